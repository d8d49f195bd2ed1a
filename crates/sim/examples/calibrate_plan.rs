//! Whether what is expected of a job is what happens: for every recorded zone, what a plan expects with a model that
//! was learnt from all other zones, against the jobs played on it. Prints errors of means and coverage of bands.

#[path = "bench_market/data.rs"]
#[allow(dead_code)]
mod data;

use data::{Data, ON_DEMAND, SPOT, alone, hours, teach};
use std::sync::Arc;
use windfall_core::Span;
use windfall_core::market::foresight::{Journey, Model};
use windfall_sim::{Course, Lesson, Player, Recording, Terms, learn, play};

const LOOKS: &[i64] = &[600, 1_200, 2_400];
const WORK: [f64; 3] = [8.0, 24.0, 48.0];
const RATIOS: [f64; 3] = [1.2, 1.5, 2.0];
const RESTARTS: [f64; 2] = [0.05, 0.2];
const STARTS: usize = 12;

#[derive(Default)]
struct Tally {
    runs: usize,
    covered: usize,
    predicted: f64,
    simulated: f64,
    predicted_hours: f64,
    simulated_hours: f64,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.covered += other.covered;
        self.predicted += other.predicted;
        self.simulated += other.simulated;
        self.predicted_hours += other.predicted_hours;
        self.simulated_hours += other.simulated_hours;
    }

    fn line(&self, name: &str) -> String {
        let n = self.runs.max(1) as f64;
        format!(
            "{name:<28} {:>5} {:>9.2} {:>9.2} {:>+7.1} % {:>7.1} {:>7.1} {:>+7.1} % {:>6.1} %",
            self.runs,
            self.predicted / n,
            self.simulated / n,
            (self.predicted / self.simulated - 1.0) * 100.0,
            self.predicted_hours / n,
            self.simulated_hours / n,
            (self.predicted_hours / self.simulated_hours - 1.0) * 100.0,
            self.covered as f64 / n * 100.0
        )
    }
}

fn main() {
    let data = match Data::open() {
        Ok(data) => data,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut zones: Vec<Recording> = data.zones_2022();
    zones.extend(data.zones_2023().iter().map(every_600_s));
    println!(
        "{:<28} {:>5} {:>9} {:>9} {:>9} {:>7} {:>7} {:>9} {:>8}",
        "zone, learnt from the others", "runs", "expected", "happened", "off", "hours", "hours", "off", "in band"
    );
    let policy = std::env::args().nth(1).unwrap_or_else(|| "levi-safe".to_owned());
    let mut all = Tally::default();
    let mut off = (0.0, 0.0);
    for zone in &zones {
        let others: Vec<Recording> = zones.iter().filter(|other| other.name != zone.name).cloned().collect();
        let priors = learn(&teach(&others, &[1], LOOKS), &Lesson::default(), 600, "the other zones", "");
        let tally = judge(&Arc::new(Model::new(&priors)), zone, &policy);
        println!("{}", tally.line(&zone.name));
        off.0 += (tally.predicted / tally.simulated - 1.0).abs();
        off.1 += (tally.predicted_hours / tally.simulated_hours - 1.0).abs();
        all.add(&tally);
    }
    println!("{}", all.line("all"));
    let n = zones.len() as f64;
    println!("off by zone, on average: cost {:.1} %, hours {:.1} %", off.0 / n * 100.0, off.1 / n * 100.0);
}

fn judge(model: &Arc<Model>, zone: &Recording, policy: &str) -> Tally {
    let mut tally = Tally::default();
    for work in WORK {
        for ratio in RATIOS {
            for restart in RESTARTS {
                let terms = Terms { work: hours(work), deadline: hours(work * ratio), restart: hours(restart) };
                let outlook = model.outlook(&Journey {
                    need: terms.work,
                    left: Some(terms.deadline),
                    restart: terms.restart,
                    undone: Span::ZERO,
                    tick: zone.tick,
                    flakiness: 1.0,
                    has_firm: true,
                });
                let dollars = |spot: Span, firm: Span| (spot.0 as f64 * SPOT + firm.0 as f64 * ON_DEMAND) / 3.6e6;
                let cost = outlook.expect(|passage| dollars(passage.spot, passage.firm));
                let long = outlook.expect(|passage| passage.elapsed.0 as f64 / 3.6e6);
                let ticks = usize::try_from(terms.deadline.0 / zone.tick.0).unwrap_or(0) + 2;
                let room = zone.counts.len().saturating_sub(ticks);
                let courses: Vec<Course> =
                    (0..STARTS).map(|start| alone(zone, room * start / (STARTS - 1), SPOT, 1)).collect();
                let player = Player::named(policy).expect("a policy").prepared(courses.iter().map(|c| (c, &terms)));
                for course in &courses {
                    let played = play(&player, course, &terms);
                    let paid = played.cost.dollars();
                    tally.runs += 1;
                    tally.covered += usize::from((cost.low..=cost.high).contains(&paid));
                    tally.predicted += cost.mean;
                    tally.simulated += paid;
                    tally.predicted_hours += long.mean;
                    tally.simulated_hours += played.finished.0 as f64 / 3.6e6;
                }
            }
        }
    }
    tally
}

fn every_600_s(recording: &Recording) -> Recording {
    let step = (600_000 + recording.tick.0 / 2) / recording.tick.0;
    let counts = recording.counts.iter().copied().step_by(usize::try_from(step).unwrap_or(1)).collect();
    Recording { tick: Span(recording.tick.0 * step), counts, prices: None, name: recording.name.clone() }
}
