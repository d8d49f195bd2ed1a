//! What NVIDIA's library shows of the accelerators of this computer. [`tell_readings`] is the life of a process that only
//! does this: the library may hang or crash in the driver, and nobody else must hang or crash with it. Each reading is a
//! line of JSON; [`Readings`] is the other end.

mod library;
mod measure;
mod telemetry;
mod watch;

pub use measure::{Counters, Measured, Program};
pub use telemetry::{NoTelemetry, Telemetry, TelemetryFeed, tell_telemetry};
pub(crate) use watch::{Heard, Readings, read_once};

use library::{Handle, Library, NvmlError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the accelerators are read; an error is told at once.
const EVERY: Duration = Duration::from_secs(5);
/// How long one wait for an error takes at most.
const WAIT: Duration = Duration::from_secs(1);
/// The most NVLinks that an accelerator has.
const MOST_LINKS: u32 = 18;
/// Bits of NVML that say that heat or power slows an accelerator down: heat seen by software, by hardware, a power brake.
const SLOWED: u64 = 0x20 | 0x40 | 0x80;

/// What the library shows at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// None where this computer has no such library, or no driver.
    pub accelerators: Option<Vec<SeenAccelerator>>,
    /// Errors since the reading before.
    pub xids: Vec<SeenXid>,
}

/// An accelerator that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenAccelerator {
    pub uuid: String,
    /// As the driver calls its model.
    pub name: String,
    pub memory_bytes: u64,
    pub bus: String,
    /// Those that share it are reached by NVLink: a fabric of several machines, or a number on this one.
    pub nvlink: Option<String>,
    /// Cut into parts (MIG).
    pub is_cut: bool,
    pub celsius: Option<u32>,
    pub uncorrected: u64,
    pub remap_pending: bool,
    pub remap_failed: bool,
    pub is_slowed: bool,
}

/// An error of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenXid {
    pub uuid: String,
    pub number: u32,
    pub at_unix_ms: u64,
}

/// What does not change of an accelerator, and what its NVLinks lead to.
struct Known {
    handle: Handle,
    seen: SeenAccelerator,
    fabric: Option<String>,
    links: Vec<String>,
}

/// Tells what the accelerators of this computer do, a line of JSON a reading, until nobody listens; `once` for one.
pub fn tell_readings(once: bool) -> std::io::Result<()> {
    let Some(mut library) = Library::open() else { return tell(&Reading::default()) };
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    let mut xids = Vec::new();
    loop {
        let accelerators = read(&mut library, &mut known);
        tell(&Reading { accelerators, xids: std::mem::take(&mut xids) })?;
        if once {
            return Ok(());
        }
        let until = Instant::now() + EVERY;
        while xids.is_empty() && Instant::now() < until {
            match library.next_xid(WAIT.as_millis() as u32) {
                Ok((handle, number)) => {
                    let of = known.values().find(|known| known.handle == handle);
                    let uuid = of.map(|known| known.seen.uuid.clone()).unwrap_or_default();
                    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                    xids.push(SeenXid { uuid, number, at_unix_ms: since.as_millis() as u64 });
                }
                Err(NvmlError::TIMEOUT) => {}
                // No errors are told here, or an accelerator is lost: the next reading shows what there is to show.
                Err(_) => std::thread::sleep(WAIT),
            }
        }
    }
}

fn tell(reading: &Reading) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(reading)?)?;
    out.flush()
}

/// Whether an answer says that an accelerator is gone; others (it is busy, or being reset) say nothing of that.
fn is_lost(error: NvmlError) -> bool {
    error == NvmlError::GPU_IS_LOST || error == NvmlError::NOT_FOUND
}

/// Every accelerator that is there. One that is lost is missing; none where the driver does not say what there is.
fn read(library: &mut Library, known: &mut BTreeMap<String, Known>) -> Option<Vec<SeenAccelerator>> {
    let mut seen = Vec::new();
    let mut is_new = false;
    for index in 0..library.count().ok()? {
        let (handle, uuid) = match library.handle(index).and_then(|handle| Ok((handle, library.uuid(handle)?))) {
            Ok(found) => found,
            Err(error) if is_lost(error) => continue,
            Err(_) => return None,
        };
        if known.get(&uuid).is_none_or(|known| known.handle != handle) {
            known.insert(uuid.clone(), meet(library, handle, &uuid));
            // Where errors are not told of, readings are what is left.
            let _ = library.watch(handle);
            is_new = true;
        }
        seen.push(uuid);
    }
    if is_new {
        name_domains(known);
    }
    let fixed = seen.iter().filter_map(|uuid| known.get(uuid));
    Some(fixed.filter_map(|known| read_one(library, known)).collect())
}

fn meet(library: &Library, handle: Handle, uuid: &str) -> Known {
    let links = (0..MOST_LINKS).filter_map(|link| library.linked_to(handle, link).ok().flatten());
    // A fabric without an id is the one inside this computer.
    let fabric = library.fabric(handle).ok().filter(|(cluster, _)| cluster.iter().any(|byte| *byte != 0));
    let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Known {
        handle,
        seen: SeenAccelerator {
            uuid: uuid.to_owned(),
            name: library.name(handle).unwrap_or_default(),
            memory_bytes: library.memory_bytes(handle).unwrap_or(0),
            bus: library.bus(handle).unwrap_or_default().to_lowercase(),
            is_cut: library.is_cut(handle).unwrap_or(false),
            ..SeenAccelerator::default()
        },
        fabric: fabric.map(|(cluster, clique)| format!("{}.{clique}", hex(cluster))),
        links: links.map(|bus| bus.to_lowercase()).collect(),
    }
}

/// What changes of an accelerator; none where it does not answer any more.
fn read_one(library: &Library, known: &Known) -> Option<SeenAccelerator> {
    let handle = known.handle;
    // The library remembers the UUID of one that is lost; its memory it must ask for.
    library.memory_bytes(handle).map_or_else(|error| !is_lost(error), |_| true).then_some(())?;
    let remapped = library.remapped(handle).ok();
    Some(SeenAccelerator {
        celsius: library.celsius(handle).ok(),
        uncorrected: library.uncorrected(handle).unwrap_or(0),
        remap_pending: remapped.is_some_and(|remapped| remapped.is_pending),
        remap_failed: remapped.is_some_and(|remapped| remapped.has_failed),
        is_slowed: library.slowed_by(handle).unwrap_or(0) & SLOWED != 0,
        ..known.seen.clone()
    })
}

/// Names the NVLink domain of each: the fabric where there is one, else a number for those that are linked to each other,
/// directly or through a switch.
fn name_domains(known: &mut BTreeMap<String, Known>) {
    let buses: Vec<String> = known.values().map(|known| known.seen.bus.clone()).collect();
    let links: Vec<Vec<String>> = known.values().map(|known| known.links.clone()).collect();
    let groups = linked_groups(&buses, &links);
    for (known, group) in known.values_mut().zip(groups) {
        known.seen.nvlink = known.fabric.clone().or_else(|| group.map(|group| group.to_string()));
    }
}

/// The group of each accelerator: those that reach each other over links have one number. None for one without links.
fn linked_groups(buses: &[String], links: &[Vec<String>]) -> Vec<Option<usize>> {
    let mut group: Vec<usize> = (0..buses.len()).collect();
    // What is at a link's other end and is no accelerator is a switch; all switches of a computer are one fabric.
    let has_switch = |of: usize| links[of].iter().any(|bus| !buses.contains(bus));
    for one in 0..buses.len() {
        for two in 0..one {
            let is_direct = links[one].contains(&buses[two]) || links[two].contains(&buses[one]);
            let is_linked = is_direct || (has_switch(one) && has_switch(two));
            let (from, to) = (group[one].max(group[two]), group[one].min(group[two]));
            if is_linked && from != to {
                group.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
            }
        }
    }
    group.into_iter().zip(links).map(|(group, links)| (!links.is_empty()).then_some(group)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerators_that_are_linked_directly_or_by_a_switch_are_one_domain() {
        let buses: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_owned).to_vec();
        let links = |all: [&[&str]; 5]| all.map(|links| links.iter().map(|bus| (*bus).to_owned()).collect()).to_vec();
        let pairs = links([&["b"], &["a"], &["d"], &["c"], &[]]);
        assert_eq!(linked_groups(&buses, &pairs), [Some(0), Some(0), Some(2), Some(2), None]);
        let switched = links([&["s1"], &["s2", "s1"], &["s2"], &["e"], &["d"]]);
        assert_eq!(linked_groups(&buses, &switched), [Some(0), Some(0), Some(0), Some(3), Some(3)]);
        let chain = links([&["b"], &["c"], &["d"], &["e"], &["d"]]);
        assert_eq!(linked_groups(&buses, &chain), [Some(0); 5]);
    }
}
