//! What a program's accelerators and its own processes do while it runs: the driver's telemetry, and the kernel's memory figures.

use rustix::process::Pid;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use windfall_exec::{Measured, Telemetry, TelemetryFeed};

/// The time between two looks at accelerators.
const EVERY: Duration = Duration::from_millis(200);
/// Who takes more memory than this of an accelerator uses it.
const USED: u64 = 128 << 20;

/// Looks at the accelerators of this machine, for as long as they answer.
pub struct Eyes {
    feed: Option<TelemetryFeed>,
}

impl Eyes {
    pub fn open() -> Eyes {
        Eyes { feed: TelemetryFeed::start(Path::new("/proc/self/exe"), EVERY, None).ok() }
    }

    /// The next look; waits for ever where there is nothing to look at.
    pub async fn next(&mut self) -> Telemetry {
        loop {
            match &mut self.feed {
                None => std::future::pending().await,
                Some(feed) => match feed.next().await {
                    Ok(telemetry) if telemetry.accelerators.is_some() => return telemetry,
                    _ => self.feed = None,
                },
            }
        }
    }

    /// The accelerators before anything is started; empty where there are none.
    pub async fn before(&mut self) -> Vec<Measured> {
        if self.feed.is_none() {
            return Vec::new();
        }
        // A driver that nothing keeps loaded takes some seconds for each accelerator.
        let looked = tokio::time::timeout(Duration::from_secs(30), async {
            match &mut self.feed {
                Some(feed) => feed.next().await.ok().and_then(|telemetry| telemetry.accelerators),
                None => None,
            }
        });
        match looked.await.ok().flatten() {
            Some(accelerators) => accelerators,
            None => {
                self.feed = None;
                Vec::new()
            }
        }
    }
}

/// One look at one accelerator.
struct Seen {
    at: Instant,
    measured: Measured,
}

/// What was seen of a program's accelerators and processes.
#[derive(Default)]
pub struct Meter {
    before: BTreeMap<String, u64>,
    seen: BTreeMap<String, Vec<Seen>>,
    /// The most that the program held of each accelerator.
    held: BTreeMap<String, u64>,
    pub host_bytes: u64,
}

/// What accelerators did in a stretch of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    pub name: Option<String>,
    pub count: u32,
    pub peak_memory_bytes: Option<u64>,
    pub busy_percent: Option<f64>,
    pub sm_active_percent: Option<f64>,
    pub tensor_active_percent: Option<f64>,
    /// Of all of them together.
    pub power_watts: Option<f64>,
    pub energy_joules: Option<f64>,
}

impl Meter {
    /// Nothing yet; accelerators held so much before.
    pub fn after(before: &[Measured]) -> Meter {
        let held = before.iter().filter_map(|one| Some((one.uuid.clone(), one.memory_used_bytes?)));
        Meter { before: held.collect(), ..Meter::default() }
    }

    /// Takes a look at the accelerators.
    pub fn look(&mut self, telemetry: Telemetry, group: Pid) {
        for measured in telemetry.accelerators.unwrap_or_default() {
            let ours = |pid: u32| is_of(pid, group);
            let own = measured.programs.iter().filter(|program| ours(program.pid));
            let own: Option<u64> = own.map(|program| program.memory_bytes).sum();
            // In a container the driver's numbers of processes are not ours; then what was added counts.
            let before = self.before.get(&measured.uuid).copied().unwrap_or(0);
            let added = measured.memory_used_bytes.map(|used| used.saturating_sub(before));
            if let Some(held) = own.filter(|own| *own > 0).or(added) {
                let most = self.held.entry(measured.uuid.clone()).or_default();
                *most = held.max(*most);
            }
            self.seen.entry(measured.uuid.clone()).or_default().push(Seen { at: Instant::now(), measured });
        }
    }

    /// Takes a look at the memory of the program's processes.
    pub fn look_at_host(&mut self, group: Pid) {
        let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let ours = pids.filter(|pid| is_of(*pid, group));
        let bytes: u64 = ours.filter_map(resident).sum();
        self.host_bytes = self.host_bytes.max(bytes);
    }

    /// What the accelerators that the program used did between two moments.
    pub fn between(&self, from: Instant, to: Instant) -> Used {
        let used: Vec<&String> = self.held.iter().filter(|(_, held)| **held >= USED).map(|(uuid, _)| uuid).collect();
        let (mut name, mut powers, mut energies) = (None, Vec::new(), Vec::new());
        let (mut busy, mut sm, mut tensor) = (Vec::new(), Vec::new(), Vec::new());
        for uuid in &used {
            let seen: Vec<&Seen> =
                self.seen.get(*uuid).into_iter().flatten().filter(|seen| seen.at >= from && seen.at <= to).collect();
            name = name.or_else(|| seen.first().map(|seen| seen.measured.name.clone()));
            let mean = |of: &dyn Fn(&Measured) -> Option<f64>| {
                let values: Vec<f64> = seen.iter().filter_map(|seen| of(&seen.measured)).collect();
                (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
            };
            busy.extend(mean(&|of| of.busy_percent.map(f64::from)));
            sm.extend(mean(&|of| of.counters.sm));
            tensor.extend(mean(&|of| of.counters.tensor));
            let power = mean(&|of| of.power_mw.map(|mw| f64::from(mw) / 1e3));
            powers.extend(power);
            energies.extend(energy(&seen, power, to.saturating_duration_since(from)));
        }
        let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let sum = |values: &[f64]| (!values.is_empty() && values.len() == used.len()).then(|| values.iter().sum());
        Used {
            name,
            count: used.len() as u32,
            peak_memory_bytes: used.iter().filter_map(|uuid| self.held.get(*uuid)).max().copied(),
            busy_percent: mean(busy),
            sm_active_percent: mean(sm),
            tensor_active_percent: mean(tensor),
            power_watts: sum(&powers),
            energy_joules: sum(&energies),
        }
    }
}

/// Energy of a stretch: by the counter between the first and the last look, carried on to the whole stretch; else by power.
fn energy(seen: &[&Seen], power: Option<f64>, lasts: Duration) -> Option<f64> {
    let counted = seen.first().zip(seen.last()).and_then(|(first, last)| {
        let apart = last.at.saturating_duration_since(first.at).as_secs_f64();
        let used = last.measured.energy_mj?.checked_sub(first.measured.energy_mj?)?;
        // Half of the stretch has to be seen.
        (apart > lasts.as_secs_f64() / 2.0).then(|| used as f64 / 1e3 / apart * lasts.as_secs_f64())
    });
    counted.or_else(|| Some(power? * lasts.as_secs_f64()))
}

/// Whether a process is of a group. The kernel's own are of none, which rustix takes for impossible.
fn is_of(pid: u32, group: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A program's name may hold anything, brackets too; what follows it are numbers.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name.split_whitespace().nth(2).and_then(|of| of.parse().ok()) == Some(group.as_raw_nonzero().get())
}

fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok().map(|kib| kib << 10)
}
