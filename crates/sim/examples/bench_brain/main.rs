//! What one step of the brain costs, by what happened and by how many jobs are live: `cargo xtask bench brain`.
//!
//! A step is: the events are applied, `decide` is asked once, and its decisions are applied; its time is that of the
//! processor, so that a busy machine measures the same. A size that takes too long is
//! cut short, and says so; one that would take far too long by what smaller ones took is not begun.

mod heap;
mod plot;
mod table;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use windfall_sim::crowd::{Crowd, Happening, Size};

const USAGE: &str = "bench brain [SIZE ...] [--seconds S] [--rounds N] [--json] [--out FOLDER]
  SIZE       live jobs, such as 1000 or 1000000; 1000 10000 100000 if none is named
  --seconds  measure each size for at most this long (default 60); a step that has begun is not broken off
  --rounds   rounds of ten happenings each, at most (default 300)";

/// A size is not begun where its first step would take longer, by what the sizes before it took.
const LONGEST_STEP: Duration = Duration::from_secs(120);
/// Steps until a crowd that was just made comes to rest.
const MOST_STEPS_TO_REST: usize = 12;

/// What was measured at one size.
pub struct Measured {
    pub jobs: u64,
    pub live: usize,
    pub running: usize,
    pub leases: usize,
    pub made: Duration,
    /// Until the brain had nothing more to say, and in how many steps; none where time ran out.
    pub rested: (Duration, Option<usize>),
    pub bytes_per_job: usize,
    /// Seconds of each step, sorted.
    pub steps: BTreeMap<Happening, Vec<f64>>,
    pub decided: BTreeMap<Happening, usize>,
    /// Rounds that were played to their end.
    pub rounds: usize,
    pub cut_short: bool,
}

impl Measured {
    pub fn median(&self, happening: Happening) -> Option<f64> {
        let steps = self.steps.get(&happening)?;
        steps.get(steps.len() / 2).copied()
    }

    /// The step that 99 of 100 are no slower than.
    pub fn p99(&self, happening: Happening) -> Option<f64> {
        let steps = self.steps.get(&happening)?;
        steps.get((steps.len() * 99).div_ceil(100).saturating_sub(1)).copied()
    }

    /// Decisions of one step, on average.
    pub fn decided_a_step(&self, happening: Happening) -> Option<f64> {
        let steps = self.steps.get(&happening)?.len();
        (steps > 0).then(|| self.decided.get(&happening).copied().unwrap_or(0) as f64 / steps as f64)
    }

    pub fn steps_per_second(&self) -> f64 {
        let all = || self.steps.values().flatten();
        all().count() as f64 / all().sum::<f64>()
    }

    fn slowest_median(&self) -> f64 {
        self.steps.keys().filter_map(|happening| self.median(*happening)).fold(0.0, f64::max)
    }
}

struct Arguments {
    sizes: Vec<u64>,
    seconds: u64,
    rounds: usize,
    json: bool,
    out: String,
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments =
        Arguments { sizes: Vec::new(), seconds: 60, rounds: 300, json: false, out: "target/bench".to_owned() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: expected a value"));
        let number = |text: &str| text.replace(',', "").parse::<u64>().map_err(|_| format!("unknown: {text}\n{USAGE}"));
        match word.as_str() {
            "--seconds" => arguments.seconds = number(&value()?)?,
            "--rounds" => arguments.rounds = number(&value()?)? as usize,
            "--out" => arguments.out = value()?,
            "--json" => arguments.json = true,
            size => arguments.sizes.push(number(size)?),
        }
    }
    if arguments.sizes.is_empty() {
        arguments.sizes = vec![1_000, 10_000, 100_000];
    }
    arguments.sizes.sort_unstable();
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    let (mut measured, mut skipped): (Vec<Measured>, Vec<(u64, f64)>) = (Vec::new(), Vec::new());
    for jobs in &arguments.sizes {
        let expected = expected_step(&measured, *jobs);
        if expected > LONGEST_STEP.as_secs_f64() {
            skipped.push((*jobs, expected));
            continue;
        }
        eprintln!("{jobs} jobs ...");
        measured.push(measure(*jobs, Duration::from_secs(arguments.seconds), arguments.rounds));
    }
    if arguments.json {
        println!("{}", table::json(&measured, &skipped));
    } else {
        print!("{}", table::text(&measured, &skipped));
    }
    let file = std::path::Path::new(&arguments.out).join("brain.svg");
    let written = std::fs::create_dir_all(&arguments.out).and_then(|()| std::fs::write(&file, plot::svg(&measured)));
    match written {
        Ok(()) => eprintln!("plot: {}", file.display()),
        Err(error) => {
            eprintln!("{}: {error}", file.display());
            return ExitCode::from(1);
        }
    }
    ExitCode::SUCCESS
}

/// How long the slowest kind of step will take at a size, if it goes on to grow as it did so far.
fn expected_step(measured: &[Measured], jobs: u64) -> f64 {
    let [.., before, last] = measured else { return 0.0 };
    let (slower, larger) = (last.slowest_median() / before.slowest_median(), last.jobs as f64 / before.jobs as f64);
    let power = (slower.ln() / larger.ln()).max(0.0);
    last.slowest_median() * (jobs as f64 / last.jobs as f64).powf(power)
}

fn measure(jobs: u64, limit: Duration, most_rounds: usize) -> Measured {
    let began = Instant::now();
    let mut crowd = Crowd::empty(Size::of(jobs));
    let without = heap::in_use();
    crowd.fill();
    let made = began.elapsed();
    let bytes_per_job = heap::in_use().saturating_sub(without) / (jobs.max(1) as usize);
    let rested = rest(&mut crowd, limit);
    let (live, running, leases) = (crowd.live(), crowd.running(), crowd.brain.leases().count());
    let (mut steps, mut decided): (BTreeMap<Happening, Vec<f64>>, BTreeMap<Happening, usize>) = Default::default();
    let (mut rounds, mut cut_short) = (0, false);
    let mut spent = Duration::ZERO;
    'rounds: for _ in 0..most_rounds {
        for happening in Happening::ROUND {
            let mut next = Some(happening);
            while let Some(happening) = next {
                let events = crowd.prepare(happening);
                let began = processor_time();
                let step = crowd.step(events);
                let took = processor_time().saturating_sub(began);
                spent += took;
                steps.entry(happening).or_default().push(took.as_secs_f64());
                *decided.entry(happening).or_default() += step.decided.len();
                next = (!step.decided.is_empty()).then_some(Happening::SecondLook);
                crowd.hear(step);
                if spent >= limit {
                    cut_short = true;
                    break 'rounds;
                }
            }
        }
        rounds += 1;
    }
    steps.values_mut().for_each(|steps| steps.sort_by(f64::total_cmp));
    Measured { jobs, live, running, leases, made, rested, bytes_per_job, steps, decided, rounds, cut_short }
}

/// What this thread has had of a processor: others on the machine do not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Lets a crowd come to rest within a limit.
fn rest(crowd: &mut Crowd, limit: Duration) -> (Duration, Option<usize>) {
    let began = Instant::now();
    let quiet = (1..=MOST_STEPS_TO_REST).take_while(|number| *number == 1 || began.elapsed() < limit);
    let steps = quiet.into_iter().find(|_| crowd.rest(1).is_some());
    (began.elapsed(), steps)
}
