//! What must hold of the model, the filter and the plan, whatever the numbers.

use super::belief::Belief;
use super::plan::Stand;
use super::*;
use crate::market::{Choice, Margins, Present, Seen, Sight};
use crate::offer::{Market, OfferId};
use crate::reason::Number;
use crate::units::{NanoUsd, Span};

const TICK: Span = Span::seconds(600);

fn terms(restart: Span) -> PlanTerms {
    let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
    PlanTerms::of(TICK, restart, prices, Span::hours(24), Span::hours(8))
}

fn total(belief: &Belief) -> f64 {
    let mut sum = 0.0;
    belief.each(TICK, |_, _, weight| sum += weight);
    sum
}

#[test]
fn the_embedded_priors_are_sound_and_name_their_source() {
    let priors: Priors = serde_json::from_str(include_str!("priors.json")).expect("JSON");
    assert_eq!(priors.check(), Ok(()));
    assert!(priors.source.contains("spot-traces") && priors.learnt.len() == 10, "{} {}", priors.source, priors.learnt);
}

#[test]
fn a_belief_sums_to_one_whatever_is_seen() {
    let model = Model::embedded();
    let mut belief = model.belief(true);
    let mut random = 7_u64;
    for _ in 0..2_000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let elapsed = Span::seconds(1 + i64::try_from(random >> 54).expect("small"));
        model.observe(&mut belief, elapsed, TICK, random >> 62 != 0);
        assert!((total(&belief) - 1.0).abs() < 1e-6, "{}", total(&belief));
    }
}

#[test]
fn a_market_that_stays_up_is_believed_to_last() {
    let model = Model::embedded();
    let (mut flaky, mut calm) = (model.belief(true), model.belief(true));
    for tick in 0..60 {
        model.observe(&mut flaky, TICK, TICK, tick % 3 != 0);
        model.observe(&mut calm, TICK, TICK, true);
    }
    assert!(model.lifetime(&calm) > 2.0 * model.lifetime(&flaky));
}

#[test]
fn silence_counts_the_same_however_it_is_cut() {
    let model = Model::embedded();
    let mut whole = model.belief(false);
    let mut cut = whole.clone();
    model.observe(&mut whole, Span(TICK.0 * 12), TICK, true);
    for _ in 0..11 {
        model.observe(&mut cut, TICK, TICK, false);
    }
    model.observe(&mut cut, TICK, TICK, true);
    assert_eq!(whole, cut);
}

#[test]
fn more_slack_never_costs_more() {
    let model = Model::embedded();
    for restart in [Span::ZERO, Span::seconds(180), Span::seconds(900)] {
        let plan = Plan::solve(&model, terms(restart));
        for time in [4.0, 20.0, 100.0] {
            for (class, stand) in [(0, Stand::DownIdle), (3, Stand::UpSpot), (7, Stand::UpFirm), (11, Stand::UpIdle)] {
                let value = |slack: f32| plan.value(class, stand, 2, &plan.find(time, slack));
                let values: Vec<f32> = (0..40).map(|step| value(step as f32 * 0.5)).collect();
                assert!(values.windows(2).all(|pair| pair[1] <= pair[0] + 4e-3), "{restart} {stand:?} {values:?}");
            }
        }
    }
}

#[test]
fn a_plan_in_slices_is_the_plan_at_once() {
    let model = Model::embedded();
    let mut solving = Solving::new(&model, terms(Span::seconds(180)));
    let mut slices = 0;
    while !solving.solve_some(1_000) {
        slices += 1;
    }
    assert!(slices > 50);
    assert_eq!(solving.finish(), Plan::solve(&model, terms(Span::seconds(180))));
}

#[test]
fn a_long_job_keeps_within_its_memory() {
    let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
    for (hours, slack) in [(70, 22), (96, 48), (1_000, 500)] {
        let terms = PlanTerms::of(TICK, Span::seconds(180), prices, Span::hours(hours), Span::hours(slack));
        let bytes = Solving::new(&Model::embedded(), terms).bytes();
        assert!(bytes <= 64_000_000, "{hours} h: {bytes} bytes");
    }
}

#[test]
fn a_shelf_solves_what_is_wanted_and_forgets_the_oldest() {
    let model = Model::embedded();
    let mut cache = PlanCache::with_room_for(1);
    let wanted = [terms(Span::seconds(60)), terms(Span::seconds(600))];
    for terms in &wanted {
        while cache.think(&model, terms, Some(0)) {}
        assert!(cache.find(terms).is_some());
    }
    assert!(cache.find(&wanted[0]).is_none());
}

#[test]
fn where_every_plan_is_there_that_will_be_wanted_nothing_is_left_to_think_about() {
    let model = Model::embedded();
    let at = |spot_permille: u32| PlanTerms { spot_permille, ..terms(Span::seconds(60)) };
    let wanted: Vec<PlanTerms> = (300..500).step_by(9).map(at).collect();
    let mut cache = PlanCache::with_room_for(1);
    cache.solve_all(&model, &wanted);
    assert!(wanted.iter().all(|terms| !cache.lacks(terms) && !cache.think(&model, terms, Some(0))));
    assert!(cache.plans().len() < wanted.len() / 2, "prices that are near enough share a plan");
    assert!(cache.lacks(&at(700)));
}

/// A job on a market that has capacity at a constant price, as foresight sees it with a plan.
fn sight(plan: &std::sync::Arc<Plan>, model: &std::sync::Arc<Model>, need: Span, left: Span, up: bool) -> Sight {
    let belief = std::sync::Arc::new(model.belief(up));
    let seen = |id: &str, market, price, belief| Seen {
        id: OfferId::new(id),
        market,
        price: NanoUsd::from_dollars(price),
        entry: NanoUsd(0),
        available: market == Market::OnDemand || up,
        refused_until: None,
        belief,
    };
    let offers =
        vec![seen("a/spot", Market::Spot, 0.97, Some(belief)), seen("a/on-demand", Market::OnDemand, 3.06, None)];
    Sight {
        model: Some(std::sync::Arc::clone(model)),
        plan: Some(std::sync::Arc::clone(plan)),
        ..Sight::at_the_start(need, left, plan.terms().restart, Margins::default(), offers)
    }
}

#[test]
fn choices_are_those_of_a_grid_that_keeps_everything() {
    let model = Model::embedded();
    let (mut asked, mut differ, mut furthest) = (0, Vec::new(), 0.0_f64);
    for minutes in [1, 3, 6, 20, 60, 240, 900, 2_400, 6_000] {
        for tenths in [11, 13, 20, 50, 120, 500] {
            let (need, left) = (Span::minutes(minutes), Span(Span::minutes(minutes).0 * tenths / 10));
            let look = Margins::default().tick;
            let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
            let terms = PlanTerms::of(look, Span::seconds(60), prices, left, left - need);
            // Everything of the longest plans would take gigabytes.
            if terms.ticks > 160 {
                continue;
            }
            let usual = std::sync::Arc::new(Plan::solve(&model, terms));
            let mut solving = Solving::keeping(&model, terms, super::grid::Keep::EVERYTHING);
            while !solving.solve_some(u32::MAX) {}
            let exact = std::sync::Arc::new(solving.finish());
            for passed in 0..10 {
                for done in 0..10 {
                    let (left, need) = (Span(left.0 * (10 - passed) / 10), Span(need.0 * (10 - done) / 10));
                    for up in [true, false] {
                        let choose = |plan| foresight(&sight(plan, &model, need, left, up));
                        let ((ours, why), (theirs, because)) = (choose(&usual), choose(&exact));
                        asked += 1;
                        for (ours, theirs) in why.numbers.iter().zip(&because.numbers) {
                            if let (Number::Money(ours), Number::Money(theirs)) = (&ours.1, &theirs.1) {
                                furthest = furthest.max((ours.dollars() / theirs.dollars().max(1e-6) - 1.0).abs());
                            }
                        }
                        if ours.goal() != theirs.goal() {
                            differ.push((need, left, up, ours, theirs));
                        }
                    }
                }
            }
        }
    }
    assert!(asked > 3_000, "{asked}");
    assert!(furthest < 0.005, "expected costs are off by {furthest}");
    // Where two choices cost the same to within that, either will do.
    assert!(differ.len() * 2_000 <= asked, "{} of {asked} differ, such as {:?}", differ.len(), differ.first());
}

#[test]
fn nobody_waits_for_a_saving_of_a_cent_while_spot_can_be_had() {
    let model = Model::embedded();
    for minutes in [1, 6, 30] {
        for times in [2, 5, 13, 50] {
            let (need, left) = (Span::minutes(minutes), Span::minutes(minutes * times + 10));
            let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
            let terms = PlanTerms::of(Margins::default().tick, Span::seconds(60), prices, left, left - need);
            let plan = std::sync::Arc::new(Plan::solve(&model, terms));
            let (choice, reason) = foresight(&sight(&plan, &model, need, left, true));
            assert!(!matches!(choice, Choice::Wait { .. }), "{minutes} min in {left}: {reason:?}");
        }
    }
}

/// The same, running on one of the offers.
/// Also where the work is a small part of the plan's tick.
#[test]
fn on_a_flat_price_waiting_never_costs_less_than_spot_that_can_be_had() {
    let model = std::sync::Arc::new(Model::embedded());
    for hours in [10, 20, 40] {
        let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
        let (time, restart) = (Span::hours(hours), Span::seconds(360));
        let plan = PlanTerms::of(Span::seconds(195), restart, prices, time, time - Span::minutes(1));
        let plan = std::sync::Arc::new(Plan::solve(&model, plan));
        for minutes in [1, 3, 6, 20, 60] {
            let mut sight = sight(&plan, &model, Span::minutes(minutes), time, true);
            sight.restart = restart;
            let choice = foresight(&sight);
            assert!(
                matches!(&choice, (Choice::Take(offer), _) if offer.0.ends_with("spot")),
                "{minutes} of {hours}: {choice:?}"
            );
        }
    }
}

fn running_on(offer: &str, sight: Sight) -> Sight {
    let seen = sight.offers.iter().find(|seen| seen.id == OfferId::new(offer)).expect("it is offered");
    let present = Present { offer: seen.id.clone(), market: seen.market, running: true, since: sight.now };
    Sight { present: Some(present), ..sight }
}

#[test]
fn a_move_must_pay_for_its_own_risk() {
    let model = Model::embedded();
    let (whole, deadline) = (Span::hours(5), Span::hours(9));
    let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
    let terms = PlanTerms::of(Margins::default().tick, Span::seconds(60), prices, deadline, deadline - whole);
    let plan = std::sync::Arc::new(Plan::solve(&model, terms));
    let choose = |need: Span, at_risk: Span, saves_when_told: bool| {
        let sight = running_on("a/on-demand", sight(&plan, &model, need, Span::hours(4), true));
        foresight(&Sight { at_risk, saves_when_told, ..sight }).0
    };
    let spot = Choice::Take(OfferId::new("a/spot"));
    assert_eq!(choose(Span::hours(2), Span::ZERO, true), spot, "two hours of spot pay for a restart");
    // The last step of many: nobody pays beyond its end, and a restart costs more than it.
    let stays = |choice: &Choice| matches!(choice, Choice::Stay { .. });
    for seconds in [1, 5, 20] {
        assert!(stays(&choose(Span::seconds(seconds), Span::ZERO, true)), "{seconds} s");
    }
    // Half an hour is worth a restart if nothing has to be done again, and not if an hour has.
    assert_eq!(choose(Span::minutes(30), Span::hours(1), true), spot);
    assert!(stays(&choose(Span::minutes(30), Span::hours(1), false)));
}

#[test]
fn what_runs_stays_until_its_plan_is_solved() {
    let model = Model::embedded();
    let plan = std::sync::Arc::new(Plan::solve(&model, terms(Span::seconds(60))));
    let unsolved = |coming: bool| {
        let sight = running_on("a/on-demand", sight(&plan, &model, Span::hours(2), Span::hours(9), true));
        foresight(&Sight { plan: None, plan_is_coming: coming, ..sight })
    };
    assert_eq!(
        unsolved(false).0,
        Choice::Take(OfferId::new("a/spot")),
        "nothing is known, so the simple rule moves it"
    );
    let (choice, reason) = unsolved(true);
    assert!(matches!(choice, Choice::Stay { until: Some(_) }), "{choice:?}");
    assert!(reason.text.contains("until its plan is solved"), "{reason:?}");
}

#[test]
fn nobody_waits_into_the_time_that_a_start_takes() {
    let model = Model::embedded();
    let restart = Span::minutes(20);
    let plan = std::sync::Arc::new(Plan::solve(&model, terms(restart)));
    let need = Span::hours(2);
    let wait = Choice::Wait { until: None };
    let choice_with = |spare: Span| {
        let sight = sight(&plan, &model, need, need + restart + spare, false);
        let least = sight.margins.tick + sight.margins.always + need.scaled(sight.margins.spare_percent, 100);
        (sight.too_late_for(&wait).map(|(choice, _)| choice), least)
    };
    let (_, least) = choice_with(Span::ZERO);
    assert_eq!(choice_with(least).0, None, "there is just room for a start");
    assert_eq!(choice_with(least - Span(1)).0, Some(Choice::Take(OfferId::new("a/on-demand"))));
}
