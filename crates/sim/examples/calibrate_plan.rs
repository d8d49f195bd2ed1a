//! Whether what is expected of a job is what happens: for every recorded zone, what a plan expects with a model that
//! was learnt from all other zones, against the jobs played on it. Prints errors of means and coverage of bands.

#[path = "bench_market/data.rs"]
#[allow(dead_code)]
mod data;

use data::{Data, ON_DEMAND, SPOT, alone, hours, teach};
use std::sync::Arc;
use windfall_core::Span;
use windfall_core::market::foresight::{ForecastTerms, Losses, Model};
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
        let tally = judge(&Arc::new(Model::new(&priors)), zone, &policy, 1, Losses::Recorded(1.0));
        println!("{}", tally.line(&zone.name));
        off.0 += (tally.predicted / tally.simulated - 1.0).abs();
        off.1 += (tally.predicted_hours / tally.simulated_hours - 1.0).abs();
        all.add(&tally);
    }
    println!("{}", all.line("all"));
    let n = zones.len() as f64;
    println!("off by zone, on average: cost {:.1} %, hours {:.1} %", off.0 / n * 100.0, off.1 / n * 100.0);
    bands(&zones, &policy);
    gangs(&data, &zones, &policy);
}

/// The same zones as if only the band were known that AWS would have published of them. They lose machines every few
/// hours, so that is the open one, which says little.
fn bands(zones: &[Recording], policy: &str) {
    println!("\nas if only a published band were known");
    let mut all = Tally::default();
    for zone in zones {
        let others: Vec<Recording> = zones.iter().filter(|other| other.name != zone.name).cloned().collect();
        let priors = learn(&teach(&others, &[1], LOOKS), &Lesson::default(), 600, "the other zones", "");
        let model = Arc::new(Model::new(&priors));
        let up: Vec<bool> = zone.counts.iter().map(|count| *count > 0).collect();
        let ends = up.windows(2).filter(|pair| pair[0] && !pair[1]).count() as f64;
        let held = up.iter().filter(|up| **up).count() as f64 * zone.tick.0 as f64 / 3.6e6;
        let share = 1.0 - (-730.0 * ends / held.max(1.0)).exp();
        let (least, most) = match (share * 20.0) as usize {
            band @ 0..4 => (band as f64 / 20.0, (band + 1) as f64 / 20.0),
            _ => (0.2, 0.99),
        };
        let (losses, word) =
            (Losses::of_share(least, most, 730.0), format!("{:.0}-{:.0} %", least * 100.0, most * 100.0));
        let tally = judge(&model, zone, policy, 1, losses);
        println!("{}", tally.line(&format!("{} ({word})", zone.name)));
        all.add(&tally);
    }
    println!("{}", all.line("all"));
}

/// Gangs on the two recordings that counted machines, by a model of single machines elsewhere.
fn gangs(data: &Data, zones: &[Recording], policy: &str) {
    println!("\ngangs, losses as those of one machine elsewhere times a power of their size");
    for zone in data.counts() {
        let place = zone.name.split('_').next().unwrap_or_default();
        let others: Vec<Recording> = zones.iter().filter(|other| !other.name.starts_with(place)).cloned().collect();
        let priors = learn(&teach(&others, &[1], LOOKS), &Lesson::default(), 600, "the other zones", "");
        let model = Arc::new(Model::new(&priors));
        let most = zone.counts.iter().copied().max().unwrap_or(1);
        for gang in [1, 2, 4, 8, 16].into_iter().filter(|gang| *gang <= most) {
            let tally = judge(&model, &zone, policy, gang, Losses::Recorded(1.0).of_gang(gang));
            println!("{}", tally.line(&format!("{gang} in {}", zone.name)));
        }
    }
}

fn judge(model: &Arc<Model>, zone: &Recording, policy: &str, gang: u32, losses: Losses) -> Tally {
    let mut tally = Tally::default();
    for work in WORK {
        for ratio in RATIOS {
            for restart in RESTARTS {
                let terms = Terms { work: hours(work), deadline: hours(work * ratio), restart: hours(restart) };
                let forecast = model.forecast(&ForecastTerms {
                    need: terms.work,
                    left: Some(terms.deadline),
                    restart: terms.restart,
                    undone: Span::ZERO,
                    tick: zone.tick,
                    losses,
                    has_firm: true,
                    spread: 0.0,
                    refused: 0.0,
                });
                let dollars = |spot: Span, firm: Span| {
                    f64::from(gang) * (spot.0 as f64 * SPOT + firm.0 as f64 * ON_DEMAND) / 3.6e6
                };
                let cost = forecast.expect(|outcome| dollars(outcome.spot, outcome.firm));
                let long = forecast.expect(|outcome| outcome.elapsed.0 as f64 / 3.6e6);
                let ticks = usize::try_from(terms.deadline.0 / zone.tick.0).unwrap_or(0) + 2;
                let room = zone.counts.len().saturating_sub(ticks);
                let courses: Vec<Course> =
                    (0..STARTS).map(|start| alone(zone, room * start / (STARTS - 1), SPOT, gang)).collect();
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
