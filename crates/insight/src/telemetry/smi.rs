//! `nvidia-smi --query-gpu=… --format=csv`, with a header or with names that the reader was told. Fields come in any order, with
//! units or without (`nounits`); headers may come again where logs were put together.

use super::clock::date_time;
use super::sample::{Sample, Which};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Timestamp,
    Index,
    Uuid,
    Bus,
    Name,
    Busy,
    MemoryBusy,
    MemoryUsed,
    MemoryTotal,
    Power,
    PowerLimit,
    SmClock,
    Celsius,
    Other,
}

impl Column {
    /// A field's name as nvidia-smi takes and prints it, without its unit.
    fn named(name: &str) -> Option<Column> {
        Some(match name.trim().to_ascii_lowercase().as_str() {
            "timestamp" => Column::Timestamp,
            "index" => Column::Index,
            "uuid" | "gpu_uuid" => Column::Uuid,
            "pci.bus_id" | "gpu_bus_id" => Column::Bus,
            "name" | "gpu_name" => Column::Name,
            "utilization.gpu" => Column::Busy,
            "utilization.memory" => Column::MemoryBusy,
            "memory.used" => Column::MemoryUsed,
            "memory.total" => Column::MemoryTotal,
            "power.draw" | "power.draw.average" | "power.draw.instant" => Column::Power,
            "power.limit" | "enforced.power.limit" => Column::PowerLimit,
            "clocks.sm" | "clocks.current.sm" => Column::SmClock,
            "temperature.gpu" => Column::Celsius,
            _ => return None,
        })
    }
}

/// A log while it is read.
#[derive(Debug, Default)]
pub struct Smi {
    columns: Vec<Column>,
}

impl Smi {
    /// A log without a header, whose columns are these. The name that nobody knows is the error.
    pub fn with_columns(names: &[String]) -> Result<Smi, String> {
        let other = |name: &str| name.contains('.') || name.contains('_') || name == "pstate" || name == "count";
        let columns = names.iter().map(|name| match Column::named(name) {
            Some(column) => Ok(column),
            None if other(name) => Ok(Column::Other),
            None => Err(name.clone()),
        });
        Ok(Smi { columns: columns.collect::<Result<_, _>>()? })
    }

    /// Whether a line is a header.
    pub fn is_header(line: &str) -> bool {
        let known = |field: &str| Column::named(bare(field)).is_some_and(|column| column != Column::Other);
        line.split(',').filter(|field| known(field)).count() >= line.split(',').count().min(2)
    }

    /// Takes a line; none where it is no reading, nothing where it is a header.
    pub fn line(&mut self, line: &str, mut sample: impl FnMut(Which, Sample)) -> Option<()> {
        if Smi::is_header(line) {
            self.columns = line.split(',').map(|field| Column::named(bare(field)).unwrap_or(Column::Other)).collect();
            return Some(());
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if self.columns.is_empty() || fields.len() != self.columns.len() {
            return None;
        }
        let (mut which, mut read) = (Which::default(), Sample::default());
        for (column, field) in self.columns.iter().zip(fields) {
            let said = (!is_blank(field)).then(|| field.to_owned());
            match column {
                Column::Timestamp => read.at_s = Some(date_time(field)?),
                Column::Index => which.index = said,
                Column::Uuid => which.uuid = said,
                Column::Bus => which.key = field.to_ascii_lowercase(),
                Column::Name => which.name = said,
                Column::Busy => read.busy_percent = amount(field)?,
                Column::MemoryBusy => read.memory_busy_percent = amount(field)?,
                Column::MemoryUsed => read.memory_used_bytes = bytes(field)?,
                Column::MemoryTotal => read.memory_total_bytes = bytes(field)?,
                Column::Power => read.power_w = amount(field)?,
                Column::PowerLimit => read.power_limit_w = amount(field)?,
                Column::SmClock => read.sm_clock_mhz = amount(field)?,
                Column::Celsius => read.celsius = amount(field)?,
                Column::Other => {}
            }
        }
        let bus = Some(which.key).filter(|bus| !bus.is_empty());
        which.key = which.uuid.clone().or(bus).or_else(|| which.index.clone()).unwrap_or_else(|| "0".to_owned());
        let read = read.checked();
        read.says_anything().then(|| sample(which, read))
    }
}

/// `utilization.gpu [%]` without its unit.
fn bare(field: &str) -> &str {
    field.split('[').next().unwrap_or_default().trim()
}

/// What the driver writes where it does not know: `[N/A]`, `[Not Supported]`, `[Unknown Error]`.
fn is_blank(field: &str) -> bool {
    field.is_empty() || field.starts_with('[') || field.eq_ignore_ascii_case("n/a")
}

/// A number, with its unit or without; none inside where the driver does not know it, none outside where it is no number.
fn amount(field: &str) -> Option<Option<f64>> {
    if is_blank(field) {
        return Some(None);
    }
    let number = field.split_whitespace().next()?.trim_end_matches('%');
    number.parse().ok().filter(|number: &f64| number.is_finite()).map(Some)
}

/// Memory: in MiB, whether it says so or not.
fn bytes(field: &str) -> Option<Option<f64>> {
    Some(amount(field)?.map(|mib| mib * 1_048_576.0))
}
