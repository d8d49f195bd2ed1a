//! Cross-validation by data set: each part of the recorded markets is played with priors that were learnt
//! from all the others. Every constant of foresight was chosen here, without a look at the public table.

use crate::data::{Data, ON_DEMAND, SPOT, alone, hours, teach};
use std::sync::Arc;
use windfall_core::market::foresight::{MIXING, Model, Plan, PlanTerms, SHIFTS};
use windfall_core::{NanoUsd, Span, market};
use windfall_sim::{Lesson, Player, Recording, Scenario, Terms, compare, learn, mean, optima};

/// Looks at a market when regimes are learnt, in seconds: as the plan's tick, and twice that for flakier copies.
pub const LOOKS: &[i64] = &[600, 1_200, 2_400];
const WORK: f64 = 48.0;
const DEADLINES: [f64; 2] = [1.1, 1.5];
const RESTARTS: [f64; 2] = [0.05, 0.2];
const STARTS: usize = 8;

/// A part of the recorded markets.
pub struct Fold {
    pub name: &'static str,
    recordings: Vec<Recording>,
    gangs: Vec<u32>,
    scenarios: Vec<Scenario>,
    optimum: f64,
}

/// All that was chosen by hand.
#[derive(Clone, Debug)]
pub struct Settings {
    pub lesson: Lesson,
    pub shifts: Vec<(f64, f64, f64)>,
    pub mixing: f64,
    pub looks: Vec<i64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { lesson: Lesson::default(), shifts: SHIFTS.to_vec(), mixing: MIXING, looks: LOOKS.to_vec() }
    }
}

/// The parts that the public table is not made of.
pub fn folds(data: &Data) -> Vec<Fold> {
    let zones = data.zones_2023();
    let of = |prefix: &str| zones.iter().filter(|zone| zone.name.starts_with(prefix)).cloned().collect::<Vec<_>>();
    let counts = data.counts();
    vec![
        fold("nine zones 2023: us-east-1", of("us-east-1"), &[1]),
        fold("nine zones 2023: us-east-2", of("us-east-2"), &[1]),
        fold("nine zones 2023: us-west-2", of("us-west-2"), &[1]),
        fold("instances kept, April 2023", data.kept_2023(), &[1]),
        fold("counts of 16", counts[..1].to_vec(), &[1, 4, 8, 16]),
        fold("counts of 4", counts[1..].to_vec(), &[1, 2, 4]),
    ]
}

fn fold(name: &'static str, recordings: Vec<Recording>, gangs: &[u32]) -> Fold {
    let mut scenarios = Vec::new();
    for recording in &recordings {
        let recording = every_600_s(recording);
        for gang in gangs {
            for ratio in DEADLINES {
                for restart in RESTARTS {
                    let terms = Terms { work: hours(WORK), deadline: hours(WORK * ratio), restart: hours(restart) };
                    scenarios.extend(windows(&recording, hours(WORK * 1.5), STARTS).into_iter().map(|from| Scenario {
                        course: alone(&recording, from, SPOT, *gang),
                        terms,
                        name: recording.name.clone(),
                    }));
                }
            }
        }
    }
    let best = optima(&scenarios, 2, &|_| ());
    let per_instance = best
        .iter()
        .zip(&scenarios)
        .map(|(cost, scenario)| cost.map_or(0.0, NanoUsd::dollars) / f64::from(scenario.course.gang));
    let optimum = mean(per_instance.collect::<Vec<_>>().into_iter());
    Fold { name, recordings, gangs: gangs.to_vec(), scenarios, optimum }
}

fn every_600_s(recording: &Recording) -> Recording {
    let step = (600_000 + recording.tick.0 / 2) / recording.tick.0;
    let counts = recording.counts.iter().copied().step_by(usize::try_from(step).unwrap_or(1)).collect();
    Recording { tick: Span(recording.tick.0 * step), counts, prices: None, name: recording.name.clone() }
}

/// Evenly spaced beginnings of windows of a length.
pub fn windows(recording: &Recording, length: Span, count: usize) -> Vec<usize> {
    let ticks = usize::try_from(length.0 / recording.tick.0).unwrap_or(0) + 1;
    let room = recording.counts.len().saturating_sub(ticks);
    (0..count).map(|number| room * number / count.max(2).saturating_sub(1)).collect()
}

/// Learns from all folds but one.
pub fn without(folds: &[Fold], left_out: &str, settings: &Settings) -> Model {
    let taught: Vec<Vec<bool>> = folds
        .iter()
        .filter(|fold| !fold.name.starts_with(left_out) || left_out.is_empty())
        .flat_map(|fold| teach(&fold.recordings, &fold.gangs, &settings.looks))
        .collect();
    let priors = learn(&taught, &settings.lesson, 600, "recorded markets", "");
    Model::with_shifts(&priors, &settings.shifts, settings.mixing)
}

/// A plan for each changeover.
pub fn players(model: &Model, scenarios: &[Scenario]) -> Vec<(Span, Player)> {
    let mut restarts: Vec<Span> = scenarios.iter().map(|scenario| scenario.terms.restart).collect();
    restarts.sort_unstable();
    restarts.dedup();
    let most = scenarios.iter().map(|scenario| scenario.terms.deadline).max().unwrap_or_default();
    let slack =
        scenarios.iter().map(|scenario| scenario.terms.deadline - scenario.terms.work).max().unwrap_or_default();
    let player = |restart: Span| {
        let (spot, firm) = (NanoUsd::from_dollars(SPOT), NanoUsd::from_dollars(ON_DEMAND));
        let tick = scenarios.iter().map(|s| s.course.tick).max().unwrap_or_default().max(Span::seconds(585));
        let plan = Plan::solve(model, PlanTerms::of(tick, restart, spot, firm, most, slack));
        (restart, Player { name: "foresight".to_owned(), policy: market::foresight, plan: Some(Arc::new(plan)) })
    };
    restarts.into_iter().map(player).collect()
}

/// Mean cost per instance under a policy that has a plan for each changeover, and how many were late.
pub fn score(scenarios: &[Scenario], players: &[(Span, Player)]) -> (f64, usize) {
    let (mut costs, mut late) = (Vec::new(), 0);
    for (restart, player) in players {
        let mine: Vec<Scenario> = scenarios.iter().filter(|s| s.terms.restart == *restart).cloned().collect();
        let standing = compare(&mine, std::slice::from_ref(player), 2, &|_| ());
        late += standing[0].late();
        let costs_of = standing[0].played.iter().zip(&mine);
        costs.extend(costs_of.map(|(played, s)| played.cost.dollars() / f64::from(s.course.gang)));
    }
    (mean(costs.into_iter()), late)
}

/// How far above the optimum each fold ends, in percent, with what was learnt from the others.
pub fn regrets(folds: &[Fold], settings: &Settings) -> Vec<f64> {
    let regret = |fold: &Fold| {
        let model = without(folds, fold.name, settings);
        let (cost, late) = score(&fold.scenarios, &players(&model, &fold.scenarios));
        assert_eq!(late, 0, "{}", fold.name);
        100.0 * (cost / fold.optimum - 1.0)
    };
    folds.iter().map(regret).collect()
}

/// Tries other values of every constant, one at a time.
pub fn choose(folds: &[Fold]) {
    let base = Settings::default();
    let say = |name: &str, settings: &Settings| {
        let regrets = regrets(folds, settings);
        let average = mean(regrets.iter().copied());
        let each: Vec<String> = regrets.iter().map(|regret| format!("{regret:5.2}")).collect();
        println!("{name:28} {average:6.3} %   {}", each.join(" "));
    };
    say("as it is", &base);
    let calm =
        |up: f64, down: f64| vec![(0.6, 0.0, 0.0), (0.1, up, 0.0), (0.1, 0.0, up), (0.1, up, up), (0.1, -down, -down)];
    let each = |by: f64, share: f64| {
        let rest = (1.0 - share) / 4.0;
        vec![(share, 0.0, 0.0), (rest, by, 0.0), (rest, 0.0, by), (rest, -by, 0.0), (rest, 0.0, -by)]
    };
    let with =
        |regimes: usize, stretch: usize, shrink: f64, mixing: f64, looks: &[i64], shifts: Vec<(f64, f64, f64)>| {
            let name = format!("{regimes} {stretch} {shrink} {mixing} {looks:?} {shifts:?}");
            say(
                &name,
                &Settings { lesson: Lesson { regimes, stretch, shrink }, shifts, mixing, looks: looks.to_vec() },
            );
        };
    let (a, b) = ([600, 1_200], [600, 1_200, 2_400]);
    with(4, 288, 20.0, 0.001, &a, calm(0.7, 0.7));
    with(4, 288, 80.0, 0.001, &a, calm(0.7, 0.7));
    with(4, 288, 80.0, 0.001, &b, calm(0.7, 0.7));
    with(4, 288, 80.0, 0.001, &a, each(0.7, 0.5));
    with(4, 288, 80.0, 0.001, &b, each(0.7, 0.5));
    with(4, 288, 80.0, 0.001, &b, each(1.0, 0.5));
    with(4, 144, 80.0, 0.001, &b, each(0.7, 0.5));
    with(8, 288, 80.0, 0.001, &b, vec![(1.0, 0.0, 0.0)]);
    with(8, 144, 80.0, 0.001, &b, vec![(1.0, 0.0, 0.0)]);
    with(8, 288, 80.0, 0.001, &b, vec![(0.7, 0.0, 0.0), (0.3, -0.7, -0.7)]);
    with(8, 288, 80.0, 0.001, &b, vec![(0.5, 0.35, 0.35), (0.5, -0.35, -0.35)]);
    with(6, 288, 80.0, 0.001, &b, vec![(0.5, 0.0, 0.0), (0.25, 0.7, 0.7), (0.25, -0.7, -0.7)]);
    with(6, 288, 80.0, 0.001, &b, vec![(0.5, 0.0, 0.0), (0.25, -0.7, 0.7), (0.25, 0.7, -0.7)]);
    with(3, 288, 80.0, 0.001, &b, each(0.7, 0.5));
    with(16, 288, 80.0, 0.001, &b, vec![(1.0, 0.0, 0.0)]);
}
