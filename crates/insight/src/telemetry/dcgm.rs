//! What dcgm-exporter answers: Prometheus text with a metric for each of DCGM's fields. Fields have new names and units since
//! DCGM 4.6 and 4.7, labels too (`Hostname` became `hostname`), and a field that is blank has a number: 2^63 − 14 and its
//! neighbours, or the like in 32 bits and in floats.

use super::sample::{Sample, Which};
use std::collections::BTreeMap;

/// Numbers from here on are DCGM's words for blank, not found, not supported and no permission.
const BLANK: f64 = 9.2e18;
const BLANK_FLOAT: std::ops::RangeInclusive<f64> = 140_737_488_355_328.0..=140_737_488_355_338.0;
const BLANK_INT32: std::ops::RangeInclusive<f64> = 2_147_483_632.0..=2_147_483_647.0;

/// What a metric holds, and how many of our units one of its is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Busy,
    MemoryBusy,
    MemoryUsed,
    MemoryFree,
    MemoryReserved,
    MemoryTotal,
    Power,
    PowerLimit,
    Energy,
    SmClock,
    Celsius,
    Engine,
    Sm,
    Occupancy,
    Tensor,
    Dram,
}

/// A metric's name without `DCGM_FI_`, its field, and the factor to our unit.
const FIELDS: &[(&str, Field, f64)] = &[
    ("DEV_GPU_UTIL", Field::Busy, 1.0),
    ("DEV_GPU_UTIL_RATIO", Field::Busy, 100.0),
    ("DEV_MEM_COPY_UTIL", Field::MemoryBusy, 1.0),
    ("DEV_MEM_COPY_UTIL_RATIO", Field::MemoryBusy, 100.0),
    ("DEV_FB_USED", Field::MemoryUsed, 1_048_576.0),
    ("DEV_FB_USED_BYTES", Field::MemoryUsed, 1.0),
    ("DEV_FB_FREE", Field::MemoryFree, 1_048_576.0),
    ("DEV_FB_FREE_BYTES", Field::MemoryFree, 1.0),
    ("DEV_FB_RESERVED", Field::MemoryReserved, 1_048_576.0),
    ("DEV_FB_RESERVED_BYTES", Field::MemoryReserved, 1.0),
    ("DEV_FB_TOTAL", Field::MemoryTotal, 1_048_576.0),
    ("DEV_FB_TOTAL_BYTES", Field::MemoryTotal, 1.0),
    ("DEV_FB_CAPACITY_BYTES", Field::MemoryTotal, 1.0),
    ("DEV_POWER_USAGE", Field::Power, 1.0),
    ("DEV_BOARD_POWER_WATTS", Field::Power, 1.0),
    ("DEV_POWER_USAGE_INSTANT", Field::Power, 1.0),
    ("DEV_BOARD_POWER_RAW_WATTS", Field::Power, 1.0),
    ("DEV_ENFORCED_POWER_LIMIT", Field::PowerLimit, 1.0),
    ("DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", Field::PowerLimit, 1.0),
    ("DEV_POWER_MGMT_LIMIT", Field::PowerLimit, 1.0),
    ("DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS", Field::PowerLimit, 1.0),
    ("DEV_TOTAL_ENERGY_CONSUMPTION", Field::Energy, 1e-3),
    ("DEV_TOTAL_ENERGY_JOULES", Field::Energy, 1.0),
    ("DEV_TOTAL_ENERGY_CONSUMPTION_JOULES", Field::Energy, 1.0),
    ("DEV_SM_CLOCK", Field::SmClock, 1.0),
    ("DEV_SM_CLOCK_HZ", Field::SmClock, 1e-6),
    ("DEV_SM_CLOCK_HERTZ", Field::SmClock, 1e-6),
    ("DEV_GPU_TEMP", Field::Celsius, 1.0),
    ("DEV_GPU_TEMP_CELSIUS", Field::Celsius, 1.0),
    ("PROF_GR_ENGINE_ACTIVE", Field::Engine, 100.0),
    ("PROF_GR_ENGINE_UTIL_RATIO", Field::Engine, 100.0),
    ("PROF_SM_ACTIVE", Field::Sm, 100.0),
    ("PROF_SM_UTIL_RATIO", Field::Sm, 100.0),
    ("PROF_SM_OCCUPANCY", Field::Occupancy, 100.0),
    ("PROF_SM_OCCUPANCY_RATIO", Field::Occupancy, 100.0),
    ("PROF_PIPE_TENSOR_ACTIVE", Field::Tensor, 100.0),
    ("PROF_TENSOR_UTIL_RATIO", Field::Tensor, 100.0),
    ("PROF_DRAM_ACTIVE", Field::Dram, 100.0),
    ("PROF_DRAM_UTIL_RATIO", Field::Dram, 100.0),
];

/// One GPU's metrics: each with the factor that its name promises.
#[derive(Debug)]
struct Gpu {
    which: Which,
    values: Vec<(Field, f64, f64)>,
}

/// Metrics of one scrape.
#[derive(Debug, Default)]
pub struct Dcgm {
    gpus: BTreeMap<String, Gpu>,
    /// Blank values that were met.
    pub blanks: u64,
}

impl Dcgm {
    /// Whether a line is of an exporter.
    pub fn is_line(line: &str) -> bool {
        line.starts_with("# HELP ") || line.starts_with("# TYPE ") || line.starts_with("DCGM_FI_")
    }

    /// Takes a line; none where it is no metric.
    pub fn line(&mut self, line: &str) -> Option<()> {
        let Some(rest) = line.trim().strip_prefix("DCGM_FI_") else {
            // Comments, and metrics that the exporter has beside DCGM's fields.
            return (line.starts_with('#') || line.contains(' ') || line.is_empty()).then_some(());
        };
        let (name, labels, value) = match rest.split_once('{') {
            Some((name, rest)) => {
                let (labels, value) = rest.rsplit_once('}')?;
                (name.trim(), self::labels(labels)?, value)
            }
            None => {
                let (name, value) = rest.split_once(' ')?;
                (name, BTreeMap::new(), value)
            }
        };
        let value: f64 = value.split_whitespace().next()?.parse().ok()?;
        let Some((_, field, factor)) = FIELDS.iter().find(|(known, ..)| *known == name) else { return Some(()) };
        if !value.is_finite() || value >= BLANK || BLANK_FLOAT.contains(&value) || BLANK_INT32.contains(&value) {
            self.blanks += 1;
            return Some(());
        }
        let label = |names: &[&str]| names.iter().find_map(|name| labels.get(*name)).filter(|text| !text.is_empty());
        let host = label(&["hostname", "Hostname", "node"]).cloned();
        let uuid = label(&["UUID", "uuid"]).cloned();
        let index = label(&["gpu"]).cloned();
        // Parts of a GPU (MIG) are GPUs of their own.
        let part = label(&["GPU_I_ID"]).map_or(String::new(), |part| format!("/{part}"));
        let one = uuid.clone().or_else(|| index.clone()).unwrap_or_default();
        let key = format!("{}{one}{part}", host.as_ref().map_or(String::new(), |host| format!("{host}/")));
        let user = label(&["pod", "exported_pod", "hpc_job"]).cloned();
        let namespace = label(&["namespace", "exported_namespace"]).map(|name| format!("{name}/")).unwrap_or_default();
        let which = Which {
            key: key.clone(),
            index: index.map(|index| format!("{index}{part}")),
            uuid,
            name: label(&["modelName", "model"]).cloned(),
            host,
            user: user.map(|user| format!("{namespace}{user}")),
        };
        let gpu = self.gpus.entry(key).or_insert(Gpu { which, values: Vec::new() });
        gpu.values.push((*field, value, *factor));
        Some(())
    }

    /// The reading of each GPU.
    pub fn samples(self, at_s: Option<f64>) -> Vec<(Which, Sample)> {
        // DCGM 4.6 gave fields the names of shares before their values became shares: one above 1 is a percentage.
        let is_percentage = |field: Field| {
            let mut values = self.gpus.values().flat_map(|gpu| &gpu.values);
            values.any(|(of, value, factor)| *of == field && *factor == 100.0 && *value > 1.0)
        };
        let percentages: Vec<Field> =
            [Field::Busy, Field::MemoryBusy].into_iter().filter(|field| is_percentage(*field)).collect();
        self.gpus
            .into_values()
            .map(|Gpu { which, values }| {
                let get = |wanted: Field| {
                    let found = values.iter().find(|(field, ..)| *field == wanted);
                    found.map(|(field, value, factor)| {
                        value * if percentages.contains(field) && *factor == 100.0 { 1.0 } else { *factor }
                    })
                };
                let used = get(Field::MemoryUsed);
                let parts = used.zip(get(Field::MemoryFree));
                let total = parts.map(|(used, free)| used + free + get(Field::MemoryReserved).unwrap_or(0.0));
                let sample = Sample {
                    at_s,
                    busy_percent: get(Field::Busy).or_else(|| get(Field::Engine)),
                    memory_busy_percent: get(Field::MemoryBusy),
                    memory_used_bytes: used,
                    memory_total_bytes: get(Field::MemoryTotal).or(total),
                    power_w: get(Field::Power),
                    power_limit_w: get(Field::PowerLimit),
                    energy_j: get(Field::Energy),
                    sm_clock_mhz: get(Field::SmClock),
                    celsius: get(Field::Celsius),
                    sm_percent: get(Field::Sm),
                    occupancy_percent: get(Field::Occupancy),
                    tensor_percent: get(Field::Tensor),
                    dram_percent: get(Field::Dram),
                };
                (which, sample.checked())
            })
            .filter(|(_, sample)| sample.says_anything())
            .collect()
    }
}

/// `gpu="0",UUID="GPU-1"` taken apart.
fn labels(text: &str) -> Option<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = after.char_indices();
        let end = loop {
            match letters.next()? {
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (at, '"') => break at,
                (_, letter) => value.push(letter),
            }
        };
        labels.insert(name.trim().to_owned(), value);
        rest = after[end + 1..].trim_start_matches([',', ' ']);
    }
    Some(labels)
}
