//! What a job file says that takes a catalogue of prices and speeds to make something of: all of it for
//! `windfall plan`, the work for a run too.

use super::value::{Fields, Value};
use windfall_core::Span;
use windfall_core::spec::Ask;

/// What a job file says that must be worked out with a catalogue before the brain can use it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// The accelerators that the hours were counted on.
    pub on: Option<Ask>,
    pub parameters: Option<u64>,
    pub tokens: Option<u64>,
    /// Whether only LoRA matrices are trained.
    pub lora: bool,
    /// A file with a measured speed.
    pub benchmark: Option<String>,
    /// Memory of each accelerator in GB.
    pub accelerator_memory_gb: Option<f64>,
    /// Main memory of each worker in GB.
    pub memory_gb: Option<f64>,
    /// Cores of each worker.
    pub cpus: Option<f64>,
    /// Number formats that the program may use, best first.
    pub precisions: Vec<String>,
    /// Bytes that the job reads.
    pub data_bytes: Option<u64>,
    /// Where they lie.
    pub data_at: Option<String>,
    /// Accelerators of each worker, of whatever kind: of a batch script that names none.
    pub any_gpus: Option<u32>,
    /// The longest that a run may take, of a batch script: it bounds the work, and is no estimate of it.
    pub at_most: Option<Span>,
}

impl Wishes {
    pub(super) fn of(top: &Fields) -> Wishes {
        let empty = Fields::default();
        let group = |name: &str| top.fields(name).unwrap_or(&empty);
        let (work, resources, data) = (group("work"), group("resources"), group("data"));
        let amount = |fields: &Fields, name: &str| match fields.get(name) {
            Some(Value::Amount(amount) | Value::Exactly(amount)) => Some(*amount),
            _ => None,
        };
        let precisions = match top.get("precision") {
            Some(Value::Text(one)) => vec![one.clone()],
            Some(Value::Fields(fields)) => {
                let prefer = fields.text("prefer").map(str::to_owned);
                let others = fields.list("fallback").iter().filter_map(|value| match value {
                    Value::Text(text) => Some(text.clone()),
                    _ => None,
                });
                prefer.into_iter().chain(others).collect()
            }
            _ => Vec::new(),
        };
        Wishes {
            on: match work.get("accelerator") {
                Some(Value::Ask(ask)) => Some(ask.clone()),
                _ => None,
            },
            parameters: work.count("parameters"),
            tokens: work.count("tokens"),
            lora: work.count("lora") == Some(1),
            benchmark: work.text("benchmark").map(str::to_owned),
            accelerator_memory_gb: amount(resources, "accelerator_memory"),
            memory_gb: amount(resources, "memory"),
            cpus: amount(resources, "cpus"),
            precisions,
            data_bytes: match data.get("size") {
                Some(Value::Bytes(bytes)) => Some(*bytes),
                _ => None,
            },
            data_at: data.text("at").map(str::to_owned),
            any_gpus: None,
            at_most: None,
        }
    }
}
