//! What forecasts must hold to.

use super::*;

fn terms(hours: i64, deadline: Option<i64>) -> ForecastTerms {
    ForecastTerms {
        need: Span::hours(hours),
        left: deadline.map(Span::hours),
        restart: Span::minutes(6),
        undone: Span::minutes(5),
        tick: Span::minutes(10),
        losses: Losses::Recorded(1.0),
        has_firm: true,
        spread: 0.0,
        refused: 0.0,
    }
}

#[test]
fn a_deadline_that_on_demand_can_meet_is_met_in_every_world() {
    let model = Model::embedded();
    for (hours, deadline) in [(1, 2), (10, 11), (48, 52), (48, 70), (48, 200), (5, 6)] {
        for losses in [0.2, 1.0, 5.0].map(Losses::Recorded) {
            let forecast = model.forecast(&ForecastTerms { losses, ..terms(hours, Some(deadline)) });
            assert_eq!(forecast.in_time(), 1.0, "{hours} h in {deadline} h at {losses:?}");
        }
    }
}

#[test]
fn what_is_paid_for_is_work_changeovers_and_what_was_undone() {
    let forecast = Model::embedded().forecast(&terms(20, Some(30)));
    for outcome in &forecast.outcomes {
        let paid = outcome.spot + outcome.firm;
        let known = Span::hours(20) + outcome.starting + outcome.undone;
        assert!((paid - known).0.abs() <= 5, "{outcome:?}");
        assert!(outcome.elapsed >= paid);
    }
}

#[test]
fn more_slack_is_cheaper_and_a_flakier_market_dearer() {
    let model = Model::embedded();
    let cost = |terms: &ForecastTerms| {
        model.forecast(terms).expect(|outcome| outcome.spot.0 as f64 + 3.0 * outcome.firm.0 as f64).mean
    };
    let tight = cost(&terms(48, Some(50)));
    let loose = cost(&terms(48, Some(96)));
    assert!(loose < tight);
    assert!(cost(&ForecastTerms { losses: Losses::Recorded(4.0), ..terms(48, Some(60)) }) > cost(&terms(48, Some(60))));
}

#[test]
fn without_a_deadline_or_a_firm_market_only_spot_is_paid_for() {
    let forecast = Model::embedded().forecast(&ForecastTerms { has_firm: false, ..terms(20, None) });
    assert!(forecast.outcomes.iter().all(|outcome| outcome.firm == Span::ZERO && !outcome.late));
}

#[test]
fn a_long_job_is_a_short_one_many_times() {
    let model = Model::embedded();
    let mut before: Option<(f64, f64)> = None;
    for hours in [100, 300, 1_000, 1_200, 3_000, 10_000, 100_000] {
        for (deadline, has_firm) in
            [(None, false), (None, true), (Some(hours * 3), true), (Some(hours + hours / 50), true)]
        {
            let forecast = model.forecast(&ForecastTerms { has_firm, ..terms(hours, deadline) });
            assert!(forecast.finishes(), "{hours} h in {deadline:?}");
            for outcome in &forecast.outcomes {
                let paid = outcome.spot + outcome.firm;
                assert!(
                    paid >= Span::hours(hours) && outcome.elapsed >= paid,
                    "{hours} h in {deadline:?}: {outcome:?}"
                );
                assert!(deadline.is_none() || !has_firm || !outcome.late, "{hours} h in {deadline:?}: {outcome:?}");
            }
            if deadline.is_none() && !has_firm {
                let mean = |figure: fn(&WorldOutcome) -> Span| forecast.expect(|outcome| figure(outcome).0 as f64).mean;
                let (paid, took) =
                    (mean(|outcome| outcome.spot) / hours as f64, mean(|outcome| outcome.elapsed) / hours as f64);
                if let Some((last_paid, last_took)) = before {
                    assert!((paid / last_paid - 1.0).abs() < 0.02, "{hours} h cost {paid} an hour, {last_paid} before");
                    assert!((took / last_took - 1.0).abs() < 0.25, "{hours} h took {took} an hour, {last_took} before");
                }
                before = Some((paid, took));
            }
        }
    }
}

#[test]
fn a_market_whose_spells_are_shorter_than_a_start_never_ends_a_job() {
    let endless = ForecastTerms {
        restart: Span::hours(5_000),
        losses: Losses::Recorded(5.0),
        has_firm: false,
        ..terms(20, None)
    };
    let forecast = Model::embedded().forecast(&endless);
    assert!(!forecast.finishes() && forecast.in_time() < 1.0);
}

#[test]
fn a_published_band_is_what_happens() {
    let model = Model::embedded();
    // 10 to 15 % of the machines in a month of 730 hours: −ln(1 − 0.125) / 730 an hour.
    let losses = Losses::of_share(0.10, 0.15, 730.0);
    let by_hand = 20_000.0 * -libm::log1p(-0.125) / 730.0;
    let forecast = model.forecast(&ForecastTerms { losses, has_firm: false, ..terms(20_000, None) });
    let seen = forecast.expect(|outcome| f64::from(outcome.interruptions)).mean;
    // About 440 in all worlds together: three of their standard errors.
    assert!((seen / by_hand - 1.0).abs() < 0.15, "{seen} interruptions, {by_hand} by hand");
    let lifetime = model.mean_lifetime(losses).0 as f64 / 3.6e6;
    assert!((lifetime * by_hand / 20_000.0 - 1.0).abs() < 0.01, "{lifetime} h");
}

#[test]
fn a_gang_is_interrupted_more_often_than_one_machine_and_less_than_all_of_its_machines() {
    let model = Model::embedded();
    for one in [Losses::Recorded(1.0), Losses::of_share(0.05, 0.15, 24.0)] {
        let mut before = 0.0;
        let least = if matches!(one, Losses::Recorded(_)) { 1.02 } else { 1.2 };
        for nodes in [1, 4, 16, 64] {
            let forecast =
                model.forecast(&ForecastTerms { losses: one.of_gang(nodes), has_firm: false, ..terms(300, None) });
            let seen = forecast.expect(|outcome| f64::from(outcome.interruptions)).mean;
            assert!(seen > before * least && (before == 0.0 || seen < before * 3.0), "{nodes} nodes: {seen}");
            before = seen;
        }
    }
}

#[test]
fn hours_that_are_not_sure_make_a_tight_deadline_unsure_and_leave_the_mean() {
    let model = Model::embedded();
    let sure = ForecastTerms { left: Some(Span::hours(22)), ..terms(20, None) };
    let unsure = ForecastTerms { spread: 0.2, ..sure };
    for (sure, unsure) in
        [(JobForecast::firm(&sure), JobForecast::firm(&unsure)), (model.forecast(&sure), model.forecast(&unsure))]
    {
        let chance = unsure.in_time();
        assert!(sure.in_time() == 1.0 && (0.5..0.85).contains(&chance), "{chance}");
        let hours = unsure.expect(|outcome| outcome.elapsed.0 as f64 / 3.6e6);
        assert!(hours.low < 21.0 && hours.high > 22.0 && (hours.low..=hours.high).contains(&hours.mean), "{hours:?}");
    }
    let hours = |terms: &ForecastTerms| JobForecast::firm(terms).expect(|outcome| outcome.elapsed.0 as f64).mean;
    assert!((hours(&unsure) / hours(&sure) - 1.0).abs() < 0.001);
}

#[test]
fn on_demand_capacity_that_is_refused_can_cost_the_deadline() {
    let model = Model::embedded();
    let tight = ForecastTerms { refused: 0.1, left: Some(Span::minutes(20 * 60 + 20)), ..terms(20, None) };
    for forecast in [JobForecast::firm(&tight), model.forecast(&tight)] {
        let chance = forecast.in_time();
        assert!(chance < 1.0 && chance > 0.8, "{chance}");
    }
}

#[test]
fn two_of_three_worlds_are_off_by_less_than_the_spread() {
    let unsure = ForecastTerms { spread: 0.1, ..terms(100, None) };
    let forecast = JobForecast::firm(&ForecastTerms { restart: Span::ZERO, ..unsure });
    let within = forecast.share(|outcome| (outcome.elapsed.0 as f64 / Span::hours(100).0 as f64 - 1.0).abs() < 0.1);
    assert!((0.62..0.75).contains(&within), "{within}");
}
