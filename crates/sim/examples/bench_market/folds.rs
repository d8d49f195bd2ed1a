//! Cross-validation by data set: each part of the recorded markets is played with priors that were learnt
//! from all the others. Every constant of foresight was chosen here, without a look at the public table.

use crate::data::{Data, SPOT, alone, hours, teach};
use std::sync::Arc;
use windfall_core::market::foresight::{MIXING, Model, Priors, SHIFTS};
use windfall_core::{NanoUsd, Span};
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

/// Learns from all folds but those whose name begins so.
pub fn without(folds: &[Fold], left_out: Option<&str>, settings: &Settings) -> Model {
    let kept = folds.iter().filter(|fold| left_out.is_none_or(|name| !fold.name.starts_with(name)));
    let taught = kept.flat_map(|fold| teach(&fold.recordings, &fold.gangs, &settings.looks)).collect::<Vec<_>>();
    let priors = learn(&taught, &settings.lesson, 600, "recorded markets", "");
    Model::with_shifts(&priors, &settings.shifts, settings.mixing)
}

/// The priors of markets never seen, from every recording there is: the fact file of `windfall-core`.
pub fn priors(data: &Data) -> Priors {
    let settings = Settings::default();
    let mut taught = teach(&data.zones_2022(), &[1], &settings.looks);
    taught.extend(folds(data).iter().flat_map(|fold| teach(&fold.recordings, &fold.gangs, &settings.looks)));
    let source = "availability and preemption of AWS K80 and V100 zones: skypilot-org/spot-traces (nine zones from 2023-02-15, \
                  four from 2023-04-22, counts of 4 and 16 nodes), mert-cemri/autoevolve (eight zones from 2022-10-26)";
    learn(&taught, &settings.lesson, 600, source, "2026-11-15")
}

/// The same as the text of that file.
pub fn priors_file(data: &Data) -> String {
    let text = serde_json::to_string(&priors(data)).expect("numbers and text");
    // One regime on a line: the file is read by people too.
    text.replace("{\"weight\"", "\n{\"weight\"")
}

/// What is known without the nine zones of 2023, and from what.
pub fn without_nine_zones(data: &Data) -> (Model, &'static str) {
    let mut taught = teach(&data.zones_2022(), &[1], LOOKS);
    let others = folds(data);
    let others = others.iter().filter(|fold| !fold.name.starts_with("nine zones"));
    taught.extend(others.flat_map(|fold| teach(&fold.recordings, &fold.gangs, LOOKS)));
    (taught_by(&taught), "eight zones of 2022, instances kept in April 2023, counts")
}

/// What is known without the recordings that count instances, and from what.
pub fn without_counts(data: &Data) -> (Model, &'static str) {
    let mut taught = teach(&data.zones_2022(), &[1], LOOKS);
    taught.extend(teach(&data.zones_2023(), &[1], LOOKS));
    taught.extend(teach(&data.kept_2023(), &[1], LOOKS));
    (taught_by(&taught), "eight zones of 2022, nine of 2023, instances kept in April 2023")
}

fn taught_by(zones: &[Vec<bool>]) -> Model {
    Model::new(&learn(zones, &Lesson::default(), 600, "recorded markets", ""))
}

/// Prints how far above the optimum each fold ends.
pub fn report(folds: &[Fold]) {
    println!("\n== cross-validation by data set");
    println!("command: WINDFALL_DATA=… cargo xtask bench market folds");
    println!("priors learnt from: for each, the others of these six only; nothing of 2022");
    for (fold, regret) in folds.iter().zip(regrets(folds, &Settings::default())) {
        println!(
            "{:32} {:5} scenarios  optimum {:7.2} $  foresight {regret:5.2} % above",
            fold.name,
            fold.scenarios.len(),
            fold.optimum
        );
    }
}

/// Foresight with a plan for each kind of job among the scenarios.
pub fn player(model: &Model, scenarios: &[Scenario]) -> Player {
    Player::foreseeing(Arc::new(model.clone()), scenarios.iter().map(|s| (&s.course, &s.terms)))
}

/// Mean cost of an instance, and how many were late.
pub fn score(scenarios: &[Scenario], player: Player) -> (f64, usize) {
    let standing = &compare(scenarios, &[player], 2, &|_| ())[0];
    let each = standing.played.iter().zip(scenarios);
    let costs: Vec<f64> = each.map(|(played, s)| played.cost.dollars() / f64::from(s.course.gang)).collect();
    (mean(costs.into_iter()), standing.late())
}

/// How far above the optimum each fold ends, in percent, with what was learnt from the others.
pub fn regrets(folds: &[Fold], settings: &Settings) -> Vec<f64> {
    let regret = |fold: &Fold| {
        let model = without(folds, Some(fold.name), settings);
        let (cost, late) = score(&fold.scenarios, player(&model, &fold.scenarios));
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
