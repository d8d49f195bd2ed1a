//! How sure a plan is: where its losses come from, what a gang loses, and what nobody can price.

use super::plan::{first, hours, many, plan, wanted};
use crate::catalog;
use windfall_catalog::plan::{Basis, Candidate, Evidence, Request, Saves, StoreLocation, Tuning, Why, Work};
use windfall_catalog::{Site, Term};
use windfall_core::{NanoUsd, Span};

fn spot(count: i64, on: &str) -> Request {
    Request { terms: vec![Term::Spot], ..hours(count, on) }
}

#[test]
fn interruptions_are_those_of_the_band_where_one_is_published() {
    let plan = plan(&Request { clouds: vec!["aws".into()], ..spot(1_000, "A100:8") });
    let mut seen = 0;
    for candidate in &plan.candidates {
        let Basis::Band(band) = candidate.basis else { continue };
        let (least, most) = band.monthly_range();
        let rate = |share: f64| -(1.0 - share).ln() / 730.0;
        let by_hand = candidate.hours.mean * (rate(least) + rate(most)) / 2.0;
        let off = (candidate.interruptions - by_hand).abs();
        // 120 worlds are drawn: four of their standard errors.
        assert!(off <= 4.0 * (by_hand / 120.0).sqrt() + 0.02, "{band}: {} for {by_hand}", candidate.interruptions);
        seen += 1;
    }
    assert!(seen >= 5, "{seen} offers with a band");
}

#[test]
fn each_row_says_what_its_losses_rest_on() {
    let request =
        Request { recorded: vec![("aws".into(), "us-east-1".into(), "g6.xlarge".into())], ..spot(100, "L4:1") };
    let plan = many(&request);
    let at = |cloud: &str, region: &str| {
        first(&plan, |row: &Candidate<'_>| {
            (row.offer.kind.cloud, row.offer.region, row.offer.kind.name) == (cloud, region, "g6.xlarge")
        })
    };
    let (recorded, band) = (at("aws", "us-east-1"), at("aws", "us-west-2"));
    assert_eq!(recorded.basis, Basis::Recorded);
    assert!(matches!(band.basis, Basis::Band(_)), "{:?}", band.basis);
    let assumed = first(&plan, |row| row.offer.kind.cloud != "aws");
    assert_eq!(assumed.basis, Basis::Assumed);
    assert!(recorded.interruptions > 10.0 * assumed.interruptions, "{}", recorded.interruptions);
    assert!(assumed.interruptions > band.interruptions);
    // Of 5 to 15 % a day: −ln(1 − 0.1) / 24 an hour.
    let by_hand = assumed.hours.mean * 0.1053 / 24.0;
    assert!((assumed.interruptions / by_hand - 1.0).abs() < 0.5, "{} for {by_hand}", assumed.interruptions);
}

#[test]
fn many_nodes_are_interrupted_more_often_than_one() {
    let request = Request { nodes: vec![1, 64], clouds: vec!["gcp".into()], ..spot(2_000, "A100:8") };
    let plan = plan(&request);
    let an_hour = |nodes: u32| {
        let row = first(&plan, |row| row.nodes == nodes);
        row.interruptions / row.hours.mean
    };
    let times = an_hour(64) / an_hour(1);
    assert!((1.8..6.0).contains(&times), "{times} times as often");
    assert!(plan.notes.iter().any(|note| note.contains("N nodes")), "{:?}", plan.notes);
}

#[test]
fn published_shares_of_peak_are_those_of_the_size_asked_for() {
    let request = |nodes: u32| Request {
        work: Some(Work::Tokens { parameters: 70e9, tokens: 1e12, tuning: Tuning::Full }),
        accelerators: vec![wanted("H100:8")],
        nodes: vec![nodes],
        terms: vec![Term::OnDemand],
        clouds: vec!["aws".into(), "gcp".into()],
        ..Request::default()
    };
    // 6 × 70e9 × 1e12 FLOP on 512 × 989.4 TFLOP/s at 41.25 %.
    let on_512 = plan(&request(64));
    let row = first(&on_512, |row| row.offer.kind.network_gbps.is_some_and(|gbps| gbps >= 400.0));
    let by_hand = 6.0 * 70e9 * 1e12 / (512.0 * 989.4e12 * 0.4125) / 3_600.0;
    let running = row.need.0 as f64 / 3.6e6;
    assert!((running / by_hand - 1.0).abs() < 0.005, "{running} h for {by_hand} h, {}", row.how);
    assert_eq!(row.evidence, Evidence::Published);
    // Twice as many as anybody published: one more doubling loses something, and it is no published figure.
    let on_1024 = plan(&request(128));
    let more = first(&on_1024, |more| more.offer.kind.name == row.offer.kind.name);
    assert!(more.need.0 as f64 / 3.6e6 > by_hand / 2.0 && more.evidence == Evidence::Assumed);
}

#[test]
fn a_chance_is_a_chance() {
    let tight = plan(&Request {
        deadline: Some(Span::minutes(8 * 60 + 40)),
        terms: vec![Term::OnDemand],
        ..hours(8, "A100:1")
    });
    let given = first(&tight, |row| row.evidence == Evidence::Given);
    assert!(given.in_time.is_some_and(|chance| (0.9..1.0).contains(&chance)), "{:?}", given.in_time);
    let budget = NanoUsd::from_dollars((given.cost.mean + given.stand_in.dollars()) * 1.000_1);
    let paid = plan(&Request { budget: Some(budget), terms: vec![Term::OnDemand], ..hours(8, "A100:1") });
    let same =
        first(&paid, |row| row.offer.kind.name == given.offer.kind.name && row.offer.region == given.offer.region);
    assert!(same.over_budget.is_some_and(|chance| (0.3..0.7).contains(&chance)), "{:?}", same.over_budget);
    for row in plan(&spot(20, "A100:1")).candidates {
        assert!((row.cost.low..=row.cost.high).contains(&row.cost.mean), "{:?}", row.cost);
        assert!((row.hours.low..=row.hours.high).contains(&row.hours.mean), "{:?}", row.hours);
    }
}

#[test]
fn work_beyond_a_thousand_years_is_refused_not_cut() {
    let plan = plan(&Request {
        work: Some(Work::Hours { hours: Span(3_600_000 * 1_000_000_000), on: Some(wanted("A100:1")) }),
        ..hours(1, "A100:1")
    });
    assert!(plan.candidates.is_empty());
    assert!(plan.rejected.iter().all(|rejected| matches!(rejected.why, Why::TooLong { .. })));
}

#[test]
fn checkpoints_that_leave_a_cloud_are_paid_for_and_nobody_wins_by_what_is_unknown() {
    let saves = |bytes: Option<u64>| Saves {
        bytes,
        every: Some(Span::hours(1)),
        keep: 3,
        at: StoreLocation::At { cloud: "aws".into(), region: "us-east-1".into() },
    };
    let request = Request { saves: saves(Some(200_000_000_000)), ..spot(100, "H200:8") };
    let known = many(&request);
    let ranks: Vec<f64> = known.candidates.iter().map(|row| row.cost.mean + row.stand_in.dollars()).collect();
    assert!(ranks.windows(2).all(|pair| pair[0] <= pair[1] + 1e-6));
    let open = first(&known, |row| row.parts.checkpoint_egress.is_none());
    // About a hundred saves of 200 GB at no less than AWS asks for.
    let aws = catalog().internet_egress(Site { cloud: "aws", region: "us-east-1" }, 20_000_000_000_000).expect("known");
    assert!(open.stand_in >= NanoUsd(aws.0 / 2), "{:?} beside {aws:?}", open.stand_in);
    assert!(known.candidates[0].parts.checkpoint_egress.is_some());
    // Without a size nothing can be priced but what is free, and that comes first if it costs about the same.
    let unsized_ = plan(&Request { saves: saves(None), ..spot(100, "A100:1") });
    for row in &unsized_.candidates {
        let here = (row.offer.kind.cloud, row.offer.region) == ("aws", "us-east-1");
        assert_eq!(row.parts.checkpoint_egress.is_some(), here, "{} {}", row.offer.kind.cloud, row.offer.region);
        assert_eq!(row.stand_in.0 == 0, here);
    }
}

#[test]
fn a_bucket_somewhere_in_a_cloud_is_free_inside_it_only() {
    let saves = Saves {
        bytes: Some(10_000_000_000),
        every: Some(Span::hours(1)),
        keep: 3,
        at: StoreLocation::Within { cloud: "aws".into() },
    };
    let plan = many(&Request { saves, ..spot(100, "A100:8") });
    for row in &plan.candidates {
        let paid = row.parts.checkpoint_egress.map(|part| part.0 > 0);
        assert_ne!(paid, Some(row.offer.kind.cloud == "aws"), "{} {:?}", row.offer.kind.cloud, row.parts);
    }
    assert!(plan.candidates.iter().any(|row| row.offer.kind.cloud == "aws"));
    assert!(plan.candidates.iter().any(|row| row.offer.kind.cloud != "aws"));
}

#[test]
fn nothing_is_faster_than_the_hardware() {
    let request = Request {
        work: Some(Work::Tokens { parameters: 7e9, tokens: 3e10, tuning: Tuning::Full }),
        accelerators: vec![wanted("A100-80GB:8")],
        precision: vec![windfall_catalog::Precision::Fp16, windfall_catalog::Precision::Bf16],
        ..Request::default()
    };
    let at_peak = 6.0 * 7e9 * 3e10 / (8.0 * 312e12) / 3_600.0;
    let plan = plan(&request);
    assert!(!plan.candidates.is_empty());
    for row in plan.candidates.iter().filter(|row| row.offer.kind.accelerator == Some("A100-80GB")) {
        let running = row.need.0 as f64 / 3.6e6;
        assert!(running > at_peak * 1.2, "{running} h, {at_peak} h at peak: {}", row.how);
    }
}

#[test]
fn a_job_saves_on_machines_that_stay_too() {
    let saves = Saves {
        bytes: Some(100_000_000_000),
        every: Some(Span::minutes(30)),
        keep: 3,
        at: StoreLocation::At { cloud: "aws".into(), region: "us-east-1".into() },
    };
    let plan = plan(&Request { saves, terms: vec![Term::OnDemand], clouds: vec!["gcp".into()], ..hours(40, "A100:8") });
    let row = &plan.candidates[0];
    let here = Site { cloud: "gcp", region: row.offer.region };
    let by_hand = catalog().internet_egress(here, 80 * 100_000_000_000).expect("known").dollars();
    let paid = row.parts.checkpoint_egress.expect("known").dollars();
    assert!((0.97..1.15).contains(&(paid / by_hand)), "${paid} for ${by_hand}");
    assert!(row.hours.mean > 42.0, "80 saves of 100 s: {} h", row.hours.mean);
}

#[test]
fn a_plan_that_costs_more_than_can_be_counted_is_none() {
    let plan = many(&spot(9_000_000, "H100:8"));
    assert!(plan.candidates.iter().all(|row| row.cost.mean < 4.1e9));
    let huge = many(&Request { nodes: vec![4_096], scaling: [(4_096, 0.02)].into(), ..spot(9_000_000, "H100:8") });
    assert!(huge.candidates.is_empty(), "{}", huge.candidates[0].cost.mean);
    assert!(huge.rejected.iter().any(|rejected| matches!(rejected.why, Why::TooDear { .. })));
}
