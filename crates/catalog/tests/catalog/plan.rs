//! Plans on the embedded catalogue: what is promised of every plan, and figures that can be worked out by hand.

use crate::catalog;
use windfall_catalog::plan::{
    Candidate, Commitment, Discount, Evidence, Holdings, JobData, Limit, Ranking, Request, Saves, StoreLocation,
    Tuning, Why, Work,
};
use windfall_catalog::{Precision, Term, Wanted};
use windfall_core::market::foresight::Model;
use windfall_core::{Market, NanoUsd, Span};

pub fn wanted(text: &str) -> Wanted {
    catalog().wanted(text).expect("a known accelerator")
}

pub fn hours(count: i64, on: &str) -> Request {
    Request {
        work: Some(Work::Hours { hours: Span::hours(count), on: Some(wanted(on)) }),
        accelerators: vec![wanted(on)],
        restart: Some(Span::minutes(6)),
        saves: Saves { bytes: Some(1_000_000_000), every: None, keep: 3, at: StoreLocation::Here },
        ..Request::default()
    }
}

pub fn plan(request: &Request) -> Ranking<'static> {
    catalog().plan(request, &Model::embedded(), Limit::Ways(50))
}

pub fn many(request: &Request) -> Ranking<'static> {
    catalog().plan(request, &Model::embedded(), Limit::Ways(500))
}

pub fn first<'p>(plan: &'p Ranking<'static>, keeps: impl Fn(&Candidate<'_>) -> bool) -> &'p Candidate<'static> {
    plan.candidates.iter().find(|candidate| keeps(candidate)).expect("such a candidate")
}

#[test]
fn on_demand_is_hours_times_price() {
    let request = Request { terms: vec![Term::OnDemand], clouds: vec!["lambda".into()], ..hours(8, "A100:1") };
    let plan = plan(&request);
    let best = &plan.candidates[0];
    assert_eq!((best.market, best.evidence), (Market::OnDemand, Evidence::Given));
    // A save of 1 GB stands still for a second, every four hours.
    let by_hand = best.price.dollars() * (8.0 * (1.0 + 1.0 / 14_400.0) + 0.1);
    assert!((best.cost.mean - by_hand).abs() < 1e-5, "{} for {by_hand}", best.cost.mean);
    let work = best.parts.compute.map_or(0.0, NanoUsd::dollars);
    assert!((work / best.price.dollars() / 8.0 - 1.0).abs() < 1e-4, "{work}");
    assert_eq!(best.in_time, None, "without a deadline");
}

#[test]
fn every_plan_is_ranked_and_its_parts_are_its_cost() {
    for request in [hours(40, "A100:8"), Request { deadline: Some(Span::hours(50)), ..hours(40, "H100:8") }] {
        let plan = plan(&request);
        assert!(plan.candidates.len() > 5);
        assert!(plan.candidates.is_sorted_by(|a, b| a.cost.mean <= b.cost.mean + 1e-6));
        for candidate in &plan.candidates {
            assert!((candidate.parts.total().dollars() - candidate.cost.mean).abs() < 1e-6);
            assert!(candidate.cost.low <= candidate.cost.high + 1e-9);
            assert!(candidate.hours.mean * 3.6e6 >= candidate.need.0 as f64);
            assert!(request.deadline.is_none_or(|deadline| candidate.hours.high * 3.6e6 <= deadline.0 as f64 * 1.01));
        }
    }
}

/// Seventy billion parameters with their gradients and moments are 1,344 GB, and 2 GB of runtime on each.
#[test]
fn a_model_is_planned_where_it_fits() {
    let request = |tuning, nodes: &[u32]| Request {
        work: Some(Work::Tokens { parameters: 70e9, tokens: 1e9, tuning }),
        nodes: nodes.to_vec(),
        ..Request::default()
    };
    for (tuning, gb) in [(Tuning::Full, 1_344.0), (Tuning::Lora, 194.88)] {
        let plan = plan(&request(tuning, &[1, 2, 4]));
        for candidate in &plan.candidates {
            let count = candidate.offer.kind.count.as_f64() * f64::from(candidate.nodes);
            let has = candidate.offer.kind.accelerator_memory_gb.expect("known");
            assert!((has - 2.0) * count >= gb * 0.999, "{count} × {has} GB on {}", candidate.offer.kind.name);
        }
        let short = plan.rejected.iter().find(|rejected| matches!(rejected.why, Why::AcceleratorMemory { .. }));
        assert!(short.is_some_and(|short| short.why.to_string().contains("GB needed on each")));
        assert!(plan.rejected.iter().any(|rejected| rejected.why.class() == "only-serves"));
        assert!(plan.notes.iter().any(|note| note.contains("bytes a parameter")), "{:?}", plan.notes);
    }
    let full = plan(&request(Tuning::Full, &[1])).candidates[0].cost.mean;
    assert!(plan(&request(Tuning::Lora, &[1])).candidates[0].cost.mean <= full);
}

#[test]
fn accelerators_with_less_memory_than_asked_for_are_not_planned() {
    let request = Request {
        work: Some(Work::Hours { hours: Span::hours(8), on: None }),
        accelerators: ["A100:8", "A100-80GB:8"].map(|name| crate::catalog().wanted(name).expect("known")).to_vec(),
        min_accelerator_memory_gb: Some(80.0),
        nodes: vec![1],
        ..Request::default()
    };
    let plan = plan(&request);
    assert!(!plan.candidates.is_empty());
    assert!(plan.candidates.iter().all(|candidate| candidate.offer.kind.accelerator == Some("A100-80GB")));
    let refused = plan.rejected.iter().find(|rejected| rejected.offer.kind.accelerator == Some("A100"));
    let why = Why::AcceleratorMemory { has: Some(40.0), least: 80.0 };
    assert_eq!(refused.map(|rejected| &rejected.why), Some(&why));
}

/// Nobody works for less than the price of the running time, however long that is.
#[test]
fn long_work_costs_what_its_hours_cost() {
    for (on, deadline) in [("L4:1", None), ("H100:8", None), ("V100:1", Some(1.15)), ("V100:1", Some(3.0))] {
        let mut before: Option<(f64, f64)> = None;
        for count in [10, 100, 1_000, 1_300, 5_000, 40_000, 100_000] {
            let deadline = deadline.map(|times| Span((Span::hours(count).0 as f64 * times) as i64 + 3_600_000));
            let plan = plan(&Request { deadline, terms: vec![Term::Spot], ..hours(count, on) });
            for candidate in &plan.candidates {
                let running = candidate.need.0 as f64 / 3.6e6;
                let least = running * candidate.price.dollars() * f64::from(candidate.nodes);
                assert!(
                    candidate.cost.mean >= least * 0.999_999,
                    "{count} h on {on}: ${} < ${least}",
                    candidate.cost.mean
                );
                assert!(candidate.hours.mean >= running * 0.999_999, "{count} h on {on}: {} h", candidate.hours.mean);
            }
            let best = &plan.candidates[0];
            if let Some((cost, hours)) = before {
                assert!(best.cost.mean > cost && best.hours.mean > hours, "{count} h on {on} after ${cost}");
            }
            before = Some((best.cost.mean, best.hours.mean));
        }
    }
}

#[test]
fn nothing_cheaper_is_left_out_by_looking_at_the_best_first() {
    let request = Request { deadline: Some(Span::hours(60)), ..hours(40, "A100:8") };
    let model = Model::embedded();
    let all = catalog().plan(&request, &model, Limit::Ways(100_000));
    let few = catalog().plan(&request, &model, Limit::Ways(5));
    let cost = |plan: &Ranking<'_>| plan.candidates.iter().take(5).map(|c| c.cost.mean).collect::<Vec<_>>();
    assert_eq!(cost(&few), cost(&all));
    assert_eq!(few.candidates.len() + few.dearer, all.candidates.len());
    // Five that differ in more than their region, with all that each is sold in.
    let types = catalog().plan(&request, &model, Limit::Types(5));
    let key = |c: &Candidate<'_>| (c.offer.kind.cloud.to_owned(), c.offer.kind.name.to_owned(), c.market, c.nodes);
    let distinct = |plan: &Ranking<'_>| {
        let mut seen = Vec::new();
        for row in plan.candidates.iter().filter(|row| row.cost.mean > 0.0) {
            if !seen.contains(&key(row)) {
                seen.push(key(row));
            }
        }
        seen
    };
    assert_eq!(distinct(&types), distinct(&all)[..5]);
    let alike = all.candidates.iter().filter(|row| key(row) == key(&types.candidates[0]));
    let regions: std::collections::BTreeSet<&str> = alike.map(|row| row.offer.region).collect();
    assert_eq!(types.candidates[0].places, regions.len());
    assert_eq!(types.candidates.len() + types.dearer, all.candidates.len());
}

#[test]
fn a_market_that_never_has_so_many_runs_no_such_gang() {
    let request = Request { nodes: vec![2, 9], most_spot: Some(8), ..hours(40, "A100:8") };
    let plan = many(&request);
    let large = |market: Market| plan.candidates.iter().any(|row| row.nodes == 9 && row.market == market);
    assert_eq!((large(Market::Spot), large(Market::OnDemand)), (false, true));
    assert!(plan.rejected.iter().any(|rejected| rejected.why == Why::GangTooLarge { most: 8 }));
}

#[test]
fn a_lower_precision_makes_room_on_accelerators_of_the_same_maker_only() {
    let request = Request { precision: vec![Precision::Bf16], smaller: true, ..hours(8, "L40S:1") };
    let plan = many(&request);
    let smaller = |row: &&Candidate<'_>| row.offer.kind.accelerator != Some("L40S");
    assert!(plan.candidates.iter().filter(smaller).count() > 0);
    for row in plan.candidates.iter().filter(smaller) {
        assert_eq!(row.offer.kind.sheet.map(|sheet| sheet.vendor.as_str()), Some("NVIDIA"), "{}", row.offer.kind.name);
        assert_eq!(row.precision, Some(Precision::Bf16), "it does not fit without");
    }
    assert!(plan.rejected.iter().all(|rejected| !matches!(rejected.why, Why::TooSlow { .. })), "there is no deadline");
    // bf16 runs at the peak of fp16, of which the gain was measured.
    let gain = |precision: Precision| catalog().gain("A100", precision, None);
    assert!(gain(Precision::Bf16).is_some_and(|gain| gain > 1.2) && gain(Precision::Bf16) == gain(Precision::Fp16));
}

#[test]
fn a_deadline_rules_out_what_is_too_slow_and_says_so() {
    let request = Request {
        accelerators: vec![wanted("H100:8"), wanted("T4:1")],
        deadline: Some(Span::hours(45)),
        ..hours(40, "H100:8")
    };
    let plan = plan(&request);
    assert!(plan.candidates.iter().all(|candidate| candidate.offer.kind.accelerator == Some("H100")));
    let slow = plan.rejected.iter().find(|r| r.offer.kind.accelerator == Some("T4")).expect("a T4");
    assert!(matches!(slow.why, Why::TooSlow { takes } if takes > Span::hours(45)), "{}", slow.why);
    assert_eq!(plan.ruled_out().iter().map(|(_, count)| count).sum::<usize>(), plan.rejected.len());
    let shortest = plan.rejected.iter().filter_map(|rejected| match rejected.why {
        Why::TooSlow { takes } => Some(takes),
        _ => None,
    });
    assert_eq!(plan.fastest_too_slow(), shortest.min().map(|takes| Why::TooSlow { takes }).as_ref());
}

#[test]
fn steps_are_only_planned_where_a_speed_was_given() {
    let per_second = [("A100".to_owned(), 3.1)].into();
    let request = Request {
        work: Some(Work::Steps { steps: 40_000, per_second, counts: [].into() }),
        accelerators: vec![wanted("A100:8"), wanted("H100:4")],
        ..Request::default()
    };
    let plan = plan(&request);
    let best = first(&plan, |candidate| candidate.evidence == Evidence::Given);
    assert!((best.need.0 as f64 / 1e3 - 40_000.0 / 3.1).abs() < 1.0);
    assert!(plan.rejected.iter().any(|rejected| rejected.why == Why::NoThroughput { family: "H100".into() }));
}

#[test]
fn tokens_become_hours_by_the_published_share_of_peak() {
    let request = Request {
        work: Some(Work::Tokens { parameters: 7e9, tokens: 3e10, tuning: Tuning::Full }),
        accelerators: vec![wanted("H100:8")],
        clouds: vec!["aws".into()],
        nodes: vec![1, 8],
        ..Request::default()
    };
    let plan = plan(&request);
    let one = first(&plan, |candidate| candidate.nodes == 1);
    let at_peak = 6.0 * 7e9 * 3e10 / (989e12 * 8.0) / 3_600.0;
    let share = at_peak / (one.need.0 as f64 / 3.6e6);
    assert!((0.3..0.6).contains(&share), "{share}");
    let eight = first(&plan, |candidate| candidate.nodes == 8);
    let speedup = one.need.0 as f64 / eight.need.0 as f64;
    assert!((5.0..8.0).contains(&speedup), "{speedup}");
    assert!(one.cost.mean < eight.cost.mean * 1.01 || one.market != eight.market);
}

#[test]
fn a_commitment_is_paid_already_until_it_ends() {
    let held = |left: Span| Holdings {
        commitments: vec![Commitment {
            cloud: "aws".into(),
            region: None,
            instance_type: "p4d.24xlarge".into(),
            count: 2,
            until: "2027-03-31".into(),
            price_per_hour: Some(12.0),
        }],
        discounts: Vec::new(),
        left: vec![left],
    };
    let request = |left, nodes| Request { holdings: held(left), nodes: vec![nodes], ..hours(40, "A100:8") };
    let covered = plan(&request(Span::hours(100), 2));
    assert_eq!((covered.candidates[0].market, covered.candidates[0].price), (Market::Reserved, NanoUsd(0)));
    assert_eq!(covered.candidates[0].committed_until.as_deref(), Some("2027-03-31"));
    assert!(plan(&request(Span::hours(39), 1)).candidates.iter().all(|candidate| candidate.market != Market::Reserved));
    assert!(
        plan(&request(Span::hours(100), 3)).candidates.iter().all(|candidate| candidate.market != Market::Reserved)
    );
}

#[test]
fn a_discount_lowers_one_cloud_only() {
    let clouds = vec!["gcp".to_owned(), "lambda".to_owned()];
    let request = Request { terms: vec![Term::OnDemand], clouds, ..hours(8, "A100:8") };
    let before = plan(&request);
    let percent =
        Discount { cloud: "gcp".into(), market: Some("on-demand".into()), instance_type: None, percent: 50.0 };
    let holdings = Holdings { discounts: vec![percent], ..Holdings::default() };
    let after = plan(&Request { holdings, ..request });
    let price = |plan: &Ranking<'static>, cloud: &str| first(plan, |c| c.offer.kind.cloud == cloud).price;
    assert_eq!(price(&after, "gcp").0, price(&before, "gcp").0 / 2);
    assert_eq!(price(&after, "lambda"), price(&before, "lambda"));
}

#[test]
fn data_from_elsewhere_costs_its_egress_and_what_is_unknown_is_not_nothing() {
    let from = |place: Option<(&str, &str)>| Request {
        data: Some(JobData { bytes: 1 << 40, at: place.map(|(cloud, region)| (cloud.into(), region.into())) }),
        clouds: vec!["aws".into()],
        ..hours(8, "A100:8")
    };
    let there = plan(&from(Some(("gcp", "us-central1"))));
    let here = plan(&from(None));
    assert!(there.candidates[0].parts.data_egress.is_none_or(|part| part.0 > 0));
    assert_eq!(here.candidates[0].parts.data_egress, Some(NanoUsd(0)));
    assert!(here.candidates[0].parts.unknown().contains(&"dataset_storage"), "nobody says what S3 costs");
    assert!(!here.candidates[0].parts.unknown().contains(&"compute"));
}

#[test]
fn a_lower_precision_makes_room_on_smaller_accelerators_and_says_when_it_gains_nothing() {
    let request = Request { precision: vec![Precision::Fp16], ..hours(40, "V100:1") };
    let with = plan(&request);
    let gained = first(&with, |candidate| candidate.precision == Some(Precision::Fp16));
    let plain = first(&with, |candidate| candidate.precision.is_none());
    assert!(gained.need < plain.need);
    assert!(with.candidates.iter().filter(|c| c.precision.is_none()).all(|c| c.offer.kind.accelerator == Some("V100")));
    assert_eq!(catalog().gain("K80", Precision::Bf16, None), None, "a K80 has no bf16");
}

#[test]
fn memory_price_and_budget_are_kept() {
    let plan = plan(&Request {
        min_memory_gib: Some(900.0),
        max_price: Some(NanoUsd::from_dollars(12.0)),
        budget: Some(NanoUsd::from_dollars(900.0)),
        ..hours(40, "A100:8")
    });
    assert!(plan.candidates.iter().all(|c| c.offer.kind.memory_gib.is_some_and(|memory| memory >= 900.0)));
    assert!(plan.candidates.iter().all(|c| c.market != Market::Spot || c.price <= NanoUsd::from_dollars(12.0)));
    assert!(plan.candidates.iter().all(|c| c.cost.mean <= 900.0));
    for class in ["memory", "max-price", "budget"] {
        assert!(plan.rejected.iter().any(|rejected| rejected.why.class() == class), "nothing was over {class}");
    }
}

#[test]
fn no_way_of_the_pareto_set_is_beaten_in_both() {
    let plan = plan(&Request { nodes: vec![1, 2, 4, 8], ..hours(40, "A100:8") });
    let pareto = plan.pareto();
    assert!(pareto.len() >= 2);
    for at in &pareto {
        let one = &plan.candidates[*at];
        let beats = |other: &Candidate<'_>| other.cost.mean < one.cost.mean && other.hours.mean < one.hours.mean;
        assert!(!plan.candidates.iter().any(beats));
    }
    let user = plan_with_scaling(0.5);
    assert!(user.evidence != Evidence::Given && user.efficiency < 0.55);
}

#[test]
fn scaling_that_was_measured_speaks_for_the_sizes_between_and_is_assumed_to_go_on() {
    let scaling = [(2, 0.9), (8, 0.6)].into();
    let request = Request { nodes: vec![1, 2, 4, 8, 16], scaling, terms: vec![Term::OnDemand], ..hours(40, "A100:8") };
    let plan = many(&request);
    let on = |nodes: u32| {
        let row = first(&plan, |row| row.nodes == nodes && row.offer.kind.name == "p4d.24xlarge");
        (row.need.0 as f64 / 3.6e6, row.evidence)
    };
    // Half way between two in doublings is half way in the logarithm of the share.
    let by_hand = [
        (1, 1.0, Evidence::Given),
        (2, 0.9, Evidence::Measured),
        (4, (0.9f64 * 0.6).sqrt(), Evidence::Measured),
        (8, 0.6, Evidence::Measured),
        (16, 0.6 * (0.6f64 / 0.9).sqrt(), Evidence::Assumed),
    ];
    for (nodes, share, evidence) in by_hand {
        let (hours, said) = on(nodes);
        assert!((hours - 40.0 / f64::from(nodes) / share).abs() < 0.01, "{nodes} nodes: {hours} h");
        assert_eq!(said, evidence, "{nodes} nodes");
    }
}

fn plan_with_scaling(share: f64) -> Candidate<'static> {
    let request = Request { nodes: vec![2], scaling: [(2, share)].into(), ..hours(40, "A100:8") };
    plan(&request).candidates[0].clone()
}

#[test]
fn what_a_job_file_states_is_of_its_own_gang_count_model_and_precision() {
    // Hours of eight nodes are the hours of eight nodes, and on four it takes longer than that.
    let gang = Request { nodes: vec![4, 8], stated_nodes: Some(8), terms: vec![Term::OnDemand], ..hours(40, "A100:8") };
    let plan = many(&gang);
    let on = |nodes: u32| first(&plan, |row| row.nodes == nodes && row.offer.kind.name == "p4d.24xlarge");
    assert_eq!((on(8).need, on(8).evidence), (Span::hours(40), Evidence::Given));
    assert!(on(4).need > Span::hours(60) && on(4).need <= Span::hours(80), "{}", on(4).need);
    // Steps a second of eight accelerators are not those of one.
    let steps = Work::Steps {
        steps: 36_000,
        per_second: [("A100".to_owned(), 1.0)].into(),
        counts: [("A100".to_owned(), windfall_catalog::Count::whole(8))].into(),
    };
    for (count, least, most) in [("A100:8", 9.99, 10.01), ("A100:1", 60.0, 80.0)] {
        let request = Request { work: Some(steps.clone()), accelerators: vec![wanted(count)], ..Request::default() };
        let need = many(&request).candidates[0].need.0 as f64 / 3.6e6;
        assert!((least..=most).contains(&need), "{count}: {need} h");
    }
    // Hours of a program that runs in bf16 gain nothing from bf16.
    let stated =
        Request { stated_precision: Some(Precision::Bf16), precision: vec![Precision::Bf16], ..hours(100, "H200:8") };
    assert!(many(&stated).candidates.iter().all(|row| row.precision.is_none() && row.need == Span::hours(100)));
}

#[test]
fn cards_of_one_generation_and_models_of_one_family_are_told_apart_by_their_peak() {
    let on = |on: &str, gpu: &str| {
        let request = Request { accelerators: vec![wanted(gpu)], ..hours(100, on) };
        let plan = many(&request);
        let mut hours: Vec<f64> = plan.candidates.iter().map(|row| row.need.0 as f64 / 3.6e6).collect();
        hours.sort_by(f64::total_cmp);
        (hours[0], hours[hours.len() - 1])
    };
    let (h200, _) = on("H100:8", "H200:8");
    assert!((h200 - 100.0).abs() < 3.0, "an H200 computes as fast as an H100: {h200}");
    let (sxm, pcie) = on("A100:8", "H100:8");
    assert!((pcie / sxm - 989.4 / 756.0).abs() < 0.03, "PCIe has less peak: {sxm} to {pcie}");
    // By hours and by tokens the larger card has the same lead.
    let tokens = |gpu: &str| {
        let work = Some(Work::Tokens { parameters: 7e9, tokens: 3e10, tuning: Tuning::Full });
        many(&Request { work, accelerators: vec![wanted(gpu)], ..Request::default() }).candidates[0].need.0 as f64
    };
    let (by_hours, _) = on("A100:8", "A100-80GB:8");
    assert!((by_hours / 100.0 - tokens("A100-80GB:8") / tokens("A100:8")).abs() < 0.02, "{by_hours}");
}

#[test]
fn models_are_trained_at_the_peak_of_the_precision() {
    let tokens = |gpu: &str, precision: Precision| {
        let work = Some(Work::Tokens { parameters: 7e9, tokens: 3e10, tuning: Tuning::Full });
        let precision = vec![precision];
        many(&Request { work, accelerators: vec![wanted(gpu)], precision, ..Request::default() })
    };
    let hours = |precision| first(&tokens("H100:8", precision), |row| row.offer.kind.name == "p5.48xlarge").need;
    let (tf32, bf16, fp8) = (hours(Precision::Tf32), hours(Precision::Bf16), hours(Precision::Fp8));
    assert!((tf32.0 as f64 / bf16.0 as f64 - 2.0).abs() < 0.01 && fp8 == bf16);
    let old = tokens("A100-80GB:8", Precision::Fp8);
    assert!(old.candidates.is_empty() && old.rejected.iter().all(|r| r.why.class() == "no-precision"));
}
