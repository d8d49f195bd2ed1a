//! One GPU's readings in the order of time, folded into windows of some seconds, each with what the GPU did; windows that are
//! alike and follow each other are one phase. Memory grows with phases, not with readings.

use super::class::{self, Class, EMPTY, Evidence, Means};
use super::sample::Sample;
use std::collections::BTreeMap;

/// Readings that a window has at least: fewer say nothing about turns.
const LEAST: u32 = 8;
/// A pause between readings that is longer than this many usual ones is a hole in the log.
const HOLE: f64 = 10.0;
/// Phases that are kept.
const PHASES: usize = 5_000;

/// Sums of a value over time.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    sum: f64,
    weight: f64,
}

impl Mean {
    fn add(&mut self, value: Option<f64>, weight: f64) {
        if let Some(value) = value {
            self.sum += value * weight;
            self.weight += weight;
        }
    }

    fn get(self) -> Option<f64> {
        (self.weight > 0.0).then(|| self.sum / self.weight)
    }
}

/// Sums over readings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub seconds: f64,
    pub readings: u32,
    busy: Mean,
    sm: Mean,
    occupancy: Mean,
    tensor: Mean,
    dram: Mean,
    memory: Mean,
    power: Mean,
    pub most_memory: Option<f64>,
    pub most_power: Option<f64>,
    empty_s: f64,
    turns: u32,
}

impl Sums {
    fn add(&mut self, sample: &Sample, seconds: f64) {
        self.seconds += seconds;
        self.readings += 1;
        for (mean, value) in [
            (&mut self.busy, sample.busy_percent),
            (&mut self.sm, sample.sm_percent),
            (&mut self.occupancy, sample.occupancy_percent),
            (&mut self.tensor, sample.tensor_percent),
            (&mut self.dram, sample.dram_percent),
            (&mut self.memory, sample.memory_used_bytes),
            (&mut self.power, sample.power_w),
        ] {
            mean.add(value, seconds);
        }
        let most = |known: Option<f64>, more: Option<f64>| {
            more.map(|more| known.map_or(more, |known| known.max(more))).or(known)
        };
        self.most_memory = most(self.most_memory, sample.memory_used_bytes);
        self.most_power = most(self.most_power, sample.power_w);
        self.empty_s += if is_empty(sample) { seconds } else { 0.0 };
    }

    fn plus(&mut self, other: &Sums) {
        let (seconds, readings) = (self.seconds + other.seconds, self.readings + other.readings);
        let add = |one: Mean, two: Mean| Mean { sum: one.sum + two.sum, weight: one.weight + two.weight };
        let most =
            |one: Option<f64>, two: Option<f64>| one.map_or(two, |one| Some(two.map_or(one, |two| two.max(one))));
        *self = Sums {
            seconds,
            readings,
            busy: add(self.busy, other.busy),
            sm: add(self.sm, other.sm),
            occupancy: add(self.occupancy, other.occupancy),
            tensor: add(self.tensor, other.tensor),
            dram: add(self.dram, other.dram),
            memory: add(self.memory, other.memory),
            power: add(self.power, other.power),
            most_memory: most(self.most_memory, other.most_memory),
            most_power: most(self.most_power, other.most_power),
            empty_s: self.empty_s + other.empty_s,
            turns: self.turns + other.turns,
        };
    }

    /// The share of time in which some kernel ran.
    pub fn busy(&self) -> Option<f64> {
        self.busy.get()
    }

    /// The share of multiprocessors that were in use.
    pub fn sm(&self) -> Option<f64> {
        self.sm.get()
    }

    /// Warps of those that there could be.
    pub fn occupancy(&self) -> Option<f64> {
        self.occupancy.get()
    }

    /// The share of time in which tensor cores worked.
    pub fn tensor(&self) -> Option<f64> {
        self.tensor.get()
    }

    /// The share of the memory's bandwidth.
    pub fn dram(&self) -> Option<f64> {
        self.dram.get()
    }

    /// Memory that was held, in the mean.
    pub fn memory(&self) -> Option<f64> {
        self.memory.get()
    }

    /// Watts in the mean.
    pub fn power(&self) -> Option<f64> {
        self.power.get()
    }

    fn means(&self, limit_w: Option<f64>) -> Means {
        Means {
            busy: self.busy(),
            sm: self.sm(),
            tensor: self.tensor(),
            dram: self.dram(),
            memory_used_bytes: self.memory(),
            power: self.power().zip(limit_w.filter(|limit| *limit > 0.0)).map(|(power, limit)| power / limit),
            empty: if self.seconds > 0.0 { self.empty_s / self.seconds } else { 0.0 },
            turns: self.turns,
        }
    }
}

fn is_empty(sample: &Sample) -> bool {
    sample.busy_percent.or(sample.sm_percent).is_some_and(|busy| busy < EMPTY)
}

/// A stretch of time in which a GPU did one thing.
#[derive(Clone, Debug)]
pub struct Phase {
    /// Seconds since the first reading.
    pub from_s: f64,
    pub class: Class,
    pub sums: Sums,
}

/// One GPU's readings so far.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// How long a window is.
    window_s: f64,
    /// How far readings are apart where they do not say when they were taken.
    every_s: f64,
    /// The most that it may draw, where somebody else knows: its data sheet.
    limit_w: Option<f64>,
    last: Option<(f64, Sample)>,
    began_s: f64,
    /// The usual time between readings.
    usual_s: Option<f64>,
    /// Readings of the open window with what took place first: work, or emptiness.
    work: Sums,
    empty: Sums,
    /// When it was opened, in seconds since the first reading.
    open_s: f64,
    empty_first: bool,
    was_empty: Option<bool>,
    pub total: Sums,
    pub energy_j: f64,
    pub phases: Vec<Phase>,
    pub classes: BTreeMap<Class, Sums>,
    pub evidence: Option<Evidence>,
    /// Seconds that the log leaves out.
    pub holes_s: f64,
    pub dropped: u64,
}

impl Stretch {
    /// Nothing yet.
    pub fn new(window_s: f64, every_s: f64, limit_w: Option<f64>) -> Stretch {
        Stretch {
            window_s,
            every_s,
            limit_w,
            last: None,
            began_s: 0.0,
            usual_s: None,
            work: Sums::default(),
            empty: Sums::default(),
            open_s: 0.0,
            empty_first: false,
            was_empty: None,
            total: Sums::default(),
            energy_j: 0.0,
            phases: Vec::new(),
            classes: BTreeMap::new(),
            evidence: None,
            holes_s: 0.0,
            dropped: 0,
        }
    }

    /// Takes the next reading.
    pub fn add(&mut self, sample: &Sample) {
        self.limit_w = sample.power_limit_w.or(self.limit_w);
        let Some((last_at, last)) = self.last else {
            let at = sample.at_s.unwrap_or(0.0);
            self.began_s = at;
            self.last = Some((at, *sample));
            return;
        };
        let mut at = sample.at_s.unwrap_or(last_at + self.every_s);
        // Logs that name the time only begin anew at midnight.
        if at < last_at - 43_200.0 && at < 86_400.0 {
            at += 86_400.0 * ((last_at - at) / 86_400.0).ceil();
        }
        let apart = at - last_at;
        if apart <= 0.0 {
            // Clocks are set back, and lines come twice.
            self.dropped += 1;
            return;
        }
        let usual = self.usual_s.unwrap_or(apart);
        let counted = if apart > HOLE * usual.max(0.05) && self.usual_s.is_some() { usual } else { apart };
        self.holes_s += apart - counted;
        self.usual_s = Some(usual + (counted - usual) * 0.05);
        // A reading stands for the time until the next one.
        self.count(last_at, &last, sample, counted);
        if apart > counted {
            self.close();
        }
        self.last = Some((at, *sample));
    }

    fn count(&mut self, at: f64, sample: &Sample, next: &Sample, seconds: f64) {
        self.total.add(sample, seconds);
        self.energy_j += match (sample.energy_j, next.energy_j, sample.power_w) {
            (Some(before), Some(after), _) if after >= before => after - before,
            (_, _, Some(power)) => power * seconds,
            _ => 0.0,
        };
        let empty = is_empty(sample);
        if self.work.readings + self.empty.readings == 0 {
            (self.empty_first, self.open_s) = (empty, at - self.began_s);
        } else if self.was_empty.is_some_and(|before| before != empty) {
            self.work.turns += 1;
        }
        self.was_empty = Some(empty);
        let into = if empty { &mut self.empty } else { &mut self.work };
        into.add(sample, seconds);
        let readings = self.work.readings + self.empty.readings;
        if self.work.seconds + self.empty.seconds >= self.window_s && readings >= LEAST {
            self.close();
        }
    }

    /// Ends the open window.
    fn close(&mut self) {
        let (work, empty) = (std::mem::take(&mut self.work), std::mem::take(&mut self.empty));
        // Work that begins or ends within a window is not half the work.
        if work.turns <= 2 && work.readings > 0 && empty.readings > 0 {
            let parts = if self.empty_first { [empty, work] } else { [work, empty] };
            self.window(self.open_s, &parts[0]);
            self.window(self.open_s + parts[0].seconds, &parts[1]);
        } else {
            let mut all = work;
            all.plus(&empty);
            self.window(self.open_s, &all);
        }
    }

    fn window(&mut self, from_s: f64, sums: &Sums) {
        if sums.readings == 0 {
            return;
        }
        let (class, evidence) = class::class(&sums.means(self.limit_w));
        self.evidence = self.evidence.max(Some(evidence));
        self.classes.entry(class).or_default().plus(sums);
        let full = self.phases.len() >= PHASES;
        match self.phases.last_mut() {
            Some(last) if last.class == class || full => last.sums.plus(sums),
            _ => self.phases.push(Phase { from_s, class, sums: *sums }),
        }
    }

    /// Counts what is left: the last reading stands for as long as others do.
    pub fn end(&mut self) {
        if let Some((at, last)) = self.last.take() {
            let seconds = self.usual_s.unwrap_or(self.every_s);
            self.count(at, &last, &last, seconds);
        }
        self.close();
    }

    /// What it may draw at most.
    pub fn limit_w(&self) -> Option<f64> {
        self.limit_w
    }
}
