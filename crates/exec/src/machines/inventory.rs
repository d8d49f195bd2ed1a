//! What this computer has: accelerators as NVIDIA's library shows them, or else its driver's files; processors and memory
//! as the kernel does.

use super::nvml::{Reading, SeenAccelerator, read_once};
use crate::accelerators::family_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use windfall_core::english::counted;
use windfall_core::pool::Shape;

/// What a computer has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The computer's name.
    pub name: String,
    pub accelerators: Vec<Accelerator>,
    pub cpus: u32,
    pub memory_bytes: u64,
}

/// Accelerators of a computer that are not found by themselves, as its owner says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stated {
    pub model: String,
    pub count: u32,
}

/// One accelerator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accelerator {
    /// As job files name it.
    pub model: String,
    /// As `CUDA_VISIBLE_DEVICES` names it: a UUID, or a number where nothing better is known.
    pub device: String,
    /// Zero where nobody said.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Its place on the bus, such as `00000000:19:00.0`; empty where nobody said.
    #[serde(default)]
    pub bus: String,
    /// Those that share it are reached by NVLink: a fabric of several machines by its id, or a number on this one.
    #[serde(default)]
    pub nvlink: Option<String>,
    /// Cut into parts (MIG): programs that want all of it do not get it.
    #[serde(default)]
    pub is_cut: bool,
}

impl Accelerator {
    /// Whether it has a name that is its own in all the world, so that it can be missed.
    pub fn has_own_name(&self) -> bool {
        self.device.starts_with("GPU-")
    }
}

impl Inventory {
    /// What this computer has; `stated` counts in the place of what is found. `program` is the binary that knows the
    /// `agent` subcommands.
    pub async fn of_this_computer(stated: &[Stated], program: &Path) -> Inventory {
        let reading = if stated.is_empty() { read_once(program).await } else { None };
        Inventory::with(stated, reading.as_ref())
    }

    /// The same, with what NVIDIA's library has shown.
    pub(crate) fn with(stated: &[Stated], reading: Option<&Reading>) -> Inventory {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let shown = reading.and_then(|reading| reading.accelerators.as_deref()).unwrap_or_default();
        let accelerators = match (stated, shown) {
            ([], []) => shown_by_driver(Path::new("/proc/driver/nvidia/gpus")),
            ([], shown) => shown.iter().map(shown_by_library).collect(),
            (stated, _) => as_stated(stated),
        };
        Inventory {
            name: read("/proc/sys/kernel/hostname").trim().to_owned(),
            accelerators,
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            memory_bytes: total_memory(&read("/proc/meminfo")),
        }
    }

    /// Whether another look at the same computer has found accelerators that are not among these.
    pub(crate) fn lacks(&self, found: &Inventory) -> bool {
        let has = |device: &str| self.accelerators.iter().any(|one| one.device == device);
        found.accelerators.iter().any(|one| !has(&one.device))
    }

    /// How many accelerators of each model.
    pub fn models(&self) -> BTreeMap<&str, u32> {
        let mut models = BTreeMap::new();
        for accelerator in &self.accelerators {
            *models.entry(accelerator.model.as_str()).or_default() += 1;
        }
        models
    }

    /// What machines like this one are called: `H200x8-96cpu`.
    pub fn kind(&self) -> String {
        let models = self.models().into_iter().map(|(model, count)| format!("{model}x{count}-")).collect::<String>();
        format!("{models}{}cpu", self.cpus)
    }

    /// All of it together.
    pub fn shape(&self) -> Shape {
        Shape {
            accelerators: self.accelerators.len() as u32,
            cpu_millis: u64::from(self.cpus) * 1_000,
            memory_bytes: self.memory_bytes,
        }
    }
}

impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with ", self.name)?;
        for (model, count) in self.models() {
            write!(f, "{model}:{count} and ")?;
        }
        f.write_str(&counted(self.cpus.into(), "processor"))
    }
}

fn as_stated(stated: &[Stated]) -> Vec<Accelerator> {
    let all = stated.iter().flat_map(|stated| (0..stated.count).map(|_| &stated.model));
    let named = |(model, number): (&String, u32)| Accelerator {
        model: model.clone(),
        device: number.to_string(),
        ..Accelerator::default()
    };
    all.zip(0..).map(named).collect()
}

fn shown_by_library(seen: &SeenAccelerator) -> Accelerator {
    Accelerator {
        model: short_name(&seen.name),
        device: seen.uuid.clone(),
        memory_bytes: seen.memory_bytes,
        bus: seen.bus.clone(),
        nvlink: seen.nvlink.clone(),
        is_cut: seen.is_cut,
    }
}

/// The accelerators for which the driver has a folder, by their place on the bus.
fn shown_by_driver(folder: &Path) -> Vec<Accelerator> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders: Vec<_> = entries.map(|entry| entry.path()).collect();
    folders.sort();
    let text = |folder: &std::path::PathBuf| std::fs::read_to_string(folder.join("information")).ok();
    folders.iter().filter_map(text).filter_map(|text| accelerator(&text)).collect()
}

fn accelerator(information: &str) -> Option<Accelerator> {
    let line = |name: &str| {
        let value = information.lines().find_map(|line| line.split_once(':').filter(|(key, _)| key.trim() == name));
        value.map(|(_, value)| value.trim().to_owned())
    };
    let model = short_name(&line("Model")?);
    // Until the driver has looked at it there are question marks: its name is not known yet.
    let device = line("GPU UUID").filter(|uuid| !uuid.contains('?'))?;
    Some(Accelerator { model, device, bus: line("Bus Location").unwrap_or_default(), ..Accelerator::default() })
}

/// The driver's name of a model as job files write it: `NVIDIA H100 80GB HBM3` is an `H100`.
fn short_name(model: &str) -> String {
    family_of(model).unwrap_or_else(|| {
        let maker = ["NVIDIA", "Tesla", "GeForce", "Quadro"];
        let words: Vec<&str> = model.split([' ', '-']).filter(|word| !maker.contains(word)).collect();
        match words.as_slice() {
            [series @ ("RTX" | "GTX"), number, ..] => format!("{series}{number}"),
            [first, ..] => (*first).to_owned(),
            [] => model.to_owned(),
        }
    })
}

fn total_memory(meminfo: &str) -> u64 {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) << 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accelerators_are_read_as_the_driver_writes_them() {
        let folder = tempfile::tempdir().expect("a folder");
        for (place, model, uuid) in [
            ("0000:9a:00.0", "NVIDIA H200", "GPU-b"),
            ("0000:19:00.0", "NVIDIA H200", "GPU-a"),
            ("0000:a0:00.0", "Tesla V100-SXM2-16GB", "GPU-c"),
        ] {
            let text = format!("Model: \t\t {model}\nIRQ:   \t\t 44\nGPU UUID: \t {uuid}\nVideo BIOS: \t ??.??\n");
            std::fs::create_dir(folder.path().join(place)).expect("made");
            std::fs::write(folder.path().join(place).join("information"), text).expect("written");
        }
        let found = shown_by_driver(folder.path());
        let found: Vec<(&str, &str)> = found.iter().map(|one| (one.model.as_str(), one.device.as_str())).collect();
        assert_eq!(found, [("H200", "GPU-a"), ("H200", "GPU-b"), ("V100", "GPU-c")]);
        assert_eq!(accelerator("Model: NVIDIA H200\nGPU UUID: GPU-????????-????\n"), None);
        assert_eq!(shown_by_driver(&folder.path().join("none")), []);
    }

    #[test]
    fn a_model_has_the_name_that_job_files_give_it() {
        let names = ["NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA X1-80GB"];
        assert_eq!(names.map(short_name), ["H100", "A100-80GB", "RTX2080", "X1"]);
    }

    #[test]
    fn what_its_owner_states_counts() {
        let stated = [Stated { model: "MI300X".to_owned(), count: 2 }, Stated { model: "L4".to_owned(), count: 1 }];
        let devices: Vec<(String, String)> =
            as_stated(&stated).into_iter().map(|one| (one.model, one.device)).collect();
        let expected = [("MI300X", "0"), ("MI300X", "1"), ("L4", "2")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(devices, expected);
    }

    #[test]
    fn memory_is_what_the_kernel_says() {
        assert_eq!(total_memory("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 16 << 20);
        assert_eq!(total_memory(""), 0);
    }
}
