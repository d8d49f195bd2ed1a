//! How this machine is: what its accelerators and its disk show, as symptoms that go to the server with the next beat. The
//! server decides what follows from them.

use super::joined::wall_clock_ms;
use super::protocol::{DeviceReading, DiskReading, HealthReport};
use crate::machines::nvml::{Heard, Reading, Readings, SeenAccelerator};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use windfall_core::{Symptom, SymptomKind};

/// How often the disk is looked at.
const LOOK_AT_DISK: Duration = Duration::from_secs(2);
/// How often a machine without a driver is looked at for one: at boot it may come after the agent.
const LOOK_FOR_DRIVER: Duration = Duration::from_secs(30);
/// A driver that shows nothing for this long does not answer.
const UNLOADED_AFTER_MS: u64 = 30_000;
/// A disk is full when less than so many hundredths of it are free, or less than this where that is less. It counts as
/// full until twice as much is free, so that a job that writes and deletes does not turn the machine on and off.
const FULL: (u64, u64) = (2, 5 << 30);

/// What was seen of this machine since its agent began.
pub(super) struct Health {
    seen: Mutex<Seen>,
    look_for_driver: Duration,
}

/// The server's own computer while it runs.
pub(super) struct Own {
    pub name: String,
    pub health: Health,
    /// It is for jobs no more, and is left once nobody has anything of it.
    pub leaves: bool,
    pub has_left: AtomicBool,
}

impl Default for Health {
    fn default() -> Health {
        Health { seen: Mutex::default(), look_for_driver: LOOK_FOR_DRIVER }
    }
}

#[derive(Default)]
struct Seen {
    /// Accelerators that have answered, with what they showed last, and since when they are gone.
    accelerators: BTreeMap<String, (SeenAccelerator, Option<u64>)>,
    /// The last error of each number that an accelerator had.
    xids: BTreeMap<(String, u32), u64>,
    /// When something that is counted or lasts was first seen so.
    since: BTreeMap<(String, &'static str, u64), u64>,
    unanswered: Option<u64>,
    /// When a driver last said what there is.
    answered_ms: Option<u64>,
    disk: Option<DiskReading>,
    disk_trouble: Option<(SymptomKind, u64)>,
    /// When the agent's state directory was found to be removed.
    state_removed: Option<u64>,
    /// Whether anything was looked at yet.
    has_looked: bool,
}

impl Health {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it is now; none before the first look.
    pub fn report(&self, server_ahead_ms: Option<i64>) -> Option<HealthReport> {
        let mut seen = self.seen();
        seen.has_looked.then(|| seen.report(server_ahead_ms))
    }

    /// The agent's state directory was removed: the server must send no work any more.
    pub fn state_removed(&self) {
        let mut seen = self.seen();
        seen.state_removed.get_or_insert_with(wall_clock_ms);
        seen.has_looked = true;
    }

    /// Hears of accelerators and looks at the disk for ever. `first` is what the accelerators showed already; `found` is told of
    /// those that a driver shows. Without readings nobody looks at accelerators.
    pub async fn watch(
        &self,
        state: &Path,
        first: Option<Reading>,
        readings: Option<Readings>,
        found: impl Fn(&Reading),
    ) {
        let accelerators = async {
            let Some(mut readings) = readings else { return };
            let mut reading = first.unwrap_or_default();
            loop {
                let shows = reading.accelerators.as_ref().is_some_and(|shown| !shown.is_empty());
                if shows {
                    found(&reading);
                }
                let has_driver = self.seen().hear(&reading, wall_clock_ms());
                if !has_driver {
                    // A machine without accelerators, or one whose driver comes later.
                    tokio::time::sleep(self.look_for_driver).await;
                }
                reading = loop {
                    match readings.next().await {
                        Heard::Reading(reading) => break reading,
                        Heard::Nothing if has_driver => _ = self.seen().unanswered.get_or_insert_with(wall_clock_ms),
                        Heard::Nothing => {}
                    }
                };
            }
        };
        let disk = async {
            loop {
                self.seen().look_at_disk(state);
                tokio::time::sleep(LOOK_AT_DISK).await;
            }
        };
        tokio::join!(accelerators, disk);
    }
}

impl Seen {
    /// Takes a reading in; false while no driver has ever answered.
    fn hear(&mut self, reading: &Reading, now_ms: u64) -> bool {
        // A library that does not find its driver any more says nothing of accelerators that are gone. It may be busy; one
        // that stays so was unloaded.
        let Some(shown) = &reading.accelerators else {
            if self.answered_ms.is_some_and(|at| now_ms.saturating_sub(at) > UNLOADED_AFTER_MS) {
                self.unanswered.get_or_insert(now_ms);
            }
            return self.answered_ms.is_some();
        };
        self.unanswered = None;
        self.answered_ms = Some(now_ms);
        self.has_looked = true;
        for xid in &reading.xids {
            self.xids.insert((xid.uuid.clone(), xid.number), xid.at_unix_ms);
        }
        for one in shown {
            self.accelerators.insert(one.uuid.clone(), (one.clone(), None));
        }
        for (uuid, (_, gone)) in &mut self.accelerators {
            if !shown.iter().any(|one| one.uuid == *uuid) {
                gone.get_or_insert(now_ms);
            }
        }
        true
    }

    fn look_at_disk(&mut self, state: &Path) {
        let reading = match rustix::fs::statvfs(state) {
            Ok(disk) => DiskReading {
                free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
                of_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
                is_read_only: disk.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            },
            Err(_) => return,
        };
        let was_full = matches!(self.disk_trouble, Some((SymptomKind::DiskFull { .. }, _)));
        let since = self.disk_trouble.as_ref().map(|(_, since)| *since);
        let trouble = disk_trouble(&reading, was_full);
        self.disk_trouble = trouble.map(|kind| (kind, since.unwrap_or_else(wall_clock_ms)));
        self.disk = Some(reading);
        self.has_looked = true;
    }

    fn report(&mut self, server_ahead_ms: Option<i64>) -> HealthReport {
        let now_ms = wall_clock_ms();
        let mut symptoms = Vec::new();
        let mut say = |kind: SymptomKind, device: Option<&String>, seen_unix_ms: u64| {
            symptoms.push(Symptom { kind, device: device.cloned(), seen_unix_ms, accepted: false });
        };
        let mut lasting = BTreeMap::new();
        for (uuid, (seen, gone)) in &self.accelerators {
            if let Some(since) = gone {
                say(SymptomKind::Gone, Some(uuid), *since);
                continue;
            }
            let states = [
                (seen.uncorrected > 0, "uncorrected", SymptomKind::Uncorrected { errors: seen.uncorrected }),
                (seen.remap_failed, "remap-failed", SymptomKind::RemapFailed),
                (seen.remap_pending, "remap-pending", SymptomKind::RemapPending),
                (seen.is_slowed, "slowed", SymptomKind::Slowed),
            ];
            for (_, name, kind) in states.into_iter().filter(|(is, ..)| *is) {
                let count = if let SymptomKind::Uncorrected { errors } = kind { errors } else { 0 };
                let key = (uuid.clone(), name, count);
                let since = self.since.get(&key).copied().unwrap_or(now_ms);
                lasting.insert(key, since);
                say(kind, Some(uuid), since);
            }
        }
        for ((uuid, number), at) in &self.xids {
            let device = (!uuid.is_empty()).then_some(uuid);
            say(SymptomKind::Xid { number: *number }, device, *at);
        }
        self.unanswered.iter().for_each(|since| say(SymptomKind::Unanswered, None, *since));
        self.disk_trouble.iter().for_each(|(kind, since)| say(kind.clone(), None, *since));
        self.state_removed.iter().for_each(|since| say(SymptomKind::StateRemoved, None, *since));
        self.since = lasting;
        let devices = self.accelerators.values().filter(|(_, gone)| gone.is_none());
        let devices = devices.map(|(seen, _)| DeviceReading { device: seen.uuid.clone(), celsius: seen.celsius });
        HealthReport { symptoms, devices: devices.collect(), disk: self.disk, server_ahead_ms }
    }
}

/// What is wrong with a disk.
fn disk_trouble(disk: &DiskReading, was_full: bool) -> Option<SymptomKind> {
    let (hundredths, most) = FULL;
    let least = (disk.of_bytes / 100 * hundredths).min(most);
    let is_full = disk.free_bytes < if was_full { least * 2 } else { least };
    match () {
        () if disk.is_read_only => Some(SymptomKind::DiskReadOnly),
        () if is_full => Some(SymptomKind::DiskFull { free_bytes: disk.free_bytes, of_bytes: disk.of_bytes }),
        () => None,
    }
}

/// Whether two reports say different things that somebody waits for; temperatures and free bytes can wait for a beat.
pub(super) fn is_news(told: Option<&HealthReport>, now: Option<&HealthReport>) -> bool {
    let signs = |report: &HealthReport| {
        let sign = |one: &Symptom| match one.kind {
            SymptomKind::DiskFull { .. } => (std::mem::discriminant(&one.kind), None, one.device.clone(), 0),
            _ => (std::mem::discriminant(&one.kind), Some(one.kind.clone()), one.device.clone(), one.seen_unix_ms),
        };
        report.symptoms.iter().map(sign).collect::<Vec<_>>()
    };
    told.map(signs) != now.map(signs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines::nvml::SeenXid;

    fn accelerator(uuid: &str) -> SeenAccelerator {
        SeenAccelerator { uuid: uuid.to_owned(), ..SeenAccelerator::default() }
    }

    fn reading(accelerators: &[SeenAccelerator]) -> Reading {
        Reading { accelerators: Some(accelerators.to_vec()), xids: Vec::new() }
    }

    fn told(seen: &mut Seen) -> Vec<(String, SymptomKind, u64)> {
        let symptoms = seen.report(None).symptoms;
        symptoms.into_iter().map(|one| (one.device.unwrap_or_default(), one.kind, one.seen_unix_ms)).collect()
    }

    #[test]
    fn an_accelerator_that_does_not_answer_any_more_is_gone_until_it_answers() {
        let mut seen = Seen::default();
        let [a, b] = [accelerator("GPU-a"), accelerator("GPU-b")];
        seen.hear(&reading(&[a.clone(), b.clone()]), 1);
        assert_eq!(told(&mut seen), []);
        seen.hear(&reading(std::slice::from_ref(&a)), 2);
        seen.hear(&reading(std::slice::from_ref(&a)), 3);
        assert_eq!(told(&mut seen), [("GPU-b".to_owned(), SymptomKind::Gone, 2)]);
        seen.hear(&Reading::default(), 4);
        assert_eq!(told(&mut seen).len(), 1, "no library says nothing of accelerators");
        seen.hear(&reading(&[a, b]), 5);
        assert_eq!(told(&mut seen), []);
    }

    #[test]
    fn a_driver_that_was_unloaded_does_not_answer_and_one_that_is_busy_is_waited_for() {
        let mut seen = Seen::default();
        assert!(!seen.hear(&Reading::default(), 1), "there was none yet");
        assert!(seen.hear(&reading(&[accelerator("GPU-a")]), 1_000));
        assert!(seen.hear(&Reading::default(), 1_000 + UNLOADED_AFTER_MS));
        assert_eq!(told(&mut seen), [], "it is busy");
        let later = 1_001 + UNLOADED_AFTER_MS;
        seen.hear(&Reading::default(), later);
        seen.hear(&Reading::default(), later + 5);
        assert_eq!(told(&mut seen), [(String::new(), SymptomKind::Unanswered, later)]);
        seen.hear(&reading(&[accelerator("GPU-a")]), later + 10);
        assert_eq!(told(&mut seen), [], "it is back");
        let mut never = Seen::default();
        never.hear(&Reading::default(), 1_000_000);
        assert_eq!(told(&mut never), [], "a machine without accelerators");
    }

    #[tokio::test]
    async fn accelerators_whose_driver_comes_after_the_agent_are_found() {
        let dir = tempfile::tempdir().expect("a folder");
        let (program, begun) = (dir.path().join("program"), dir.path().join("begun"));
        let [none, one] = [Reading::default(), reading(&[accelerator("GPU-late")])];
        let [none, one] = [none, one].map(|reading| serde_json::to_string(&reading).expect("a reading is JSON"));
        let begun = begun.display();
        // The first process finds no driver, and ends; the next finds one.
        let script = format!(
            "#!/bin/sh\nif [ -e {begun} ]; then echo '{one}'; sleep 60; else echo '{none}'; fi\ntouch {begun}\n"
        );
        std::fs::write(&program, script).expect("written");
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        let mut readings = Readings::new(&program);
        let first = readings.first().await;
        assert_eq!(first, Some(Reading::default()));
        let health = Health { look_for_driver: Duration::from_millis(10), ..Health::default() };
        let (found, was_found) = (Mutex::new(Vec::new()), tokio::sync::Notify::new());
        let note = |reading: &Reading| {
            let shown = reading.accelerators.iter().flatten().map(|one| one.uuid.clone());
            found.lock().expect("free").extend(shown);
            was_found.notify_one();
        };
        let watching = health.watch(dir.path(), first, Some(readings), note);
        let looked = tokio::time::timeout(Duration::from_secs(60), async {
            tokio::select! { () = watching => false, () = was_found.notified() => true }
        });
        assert_eq!(looked.await, Ok(true));
        assert_eq!(*found.lock().expect("free"), ["GPU-late"]);
    }

    #[test]
    fn an_error_has_the_time_of_its_last_occurrence_and_a_count_that_of_its_first() {
        let mut seen = Seen::default();
        let broken = SeenAccelerator { uncorrected: 2, ..accelerator("GPU-a") };
        let xid = |at_unix_ms| SeenXid { uuid: "GPU-a".to_owned(), number: 79, at_unix_ms };
        seen.hear(&Reading { xids: vec![xid(1)], ..reading(std::slice::from_ref(&broken)) }, 1);
        let first = told(&mut seen);
        assert_eq!(first.len(), 2);
        seen.hear(&reading(std::slice::from_ref(&broken)), 2);
        assert_eq!(told(&mut seen), first, "the same as before");
        seen.hear(&Reading { xids: vec![xid(7)], ..reading(&[broken]) }, 3);
        let again = told(&mut seen);
        assert_eq!(again[1], ("GPU-a".to_owned(), SymptomKind::Xid { number: 79 }, 7));
    }

    #[test]
    fn a_disk_is_full_until_twice_as_much_is_free() {
        let disk = |free_bytes: u64| DiskReading { free_bytes, of_bytes: 10_000, is_read_only: false };
        let is_full = |free: u64, was: bool| disk_trouble(&disk(free), was).is_some();
        assert_eq!(
            [is_full(201, false), is_full(199, false), is_full(201, true), is_full(400, true)],
            [false, true, true, false]
        );
        // Two hundredths of a large disk are much.
        let large = |free_bytes: u64| DiskReading { free_bytes, of_bytes: 100 << 40, is_read_only: false };
        assert!(disk_trouble(&large(6 << 30), false).is_none() && disk_trouble(&large(4 << 30), false).is_some());
        let read_only = DiskReading { is_read_only: true, ..disk(9_000) };
        assert_eq!(disk_trouble(&read_only, false), Some(SymptomKind::DiskReadOnly));
    }
}
