//! One run of a kernel out of either page: the details page has a row for each metric, the raw page a column.

use super::csv::{number, scale};
use super::limit::Throughputs;
use std::collections::HashMap;

/// What was measured in one run of a kernel. Shares are percent of what the hardware can do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    pub kernel: String,
    pub device: Option<String>,
    pub duration_ns: Option<f64>,
    pub sm: Option<f64>,
    pub memory: Option<f64>,
    pub dram: Option<f64>,
    pub occupancy: Option<f64>,
    pub occupancy_limit: Option<f64>,
    pub tensor: Option<f64>,
    pub waves: Option<f64>,
    pub registers: Option<f64>,
    pub dram_bytes: Option<f64>,
    pub flops: Option<f64>,
    /// The advice of Nsight Compute that promises most, with percent.
    pub advice: Option<(String, f64)>,
}

/// Which page a table is of.
pub enum Page {
    Details {
        kernel: usize,
        id: usize,
        process: usize,
        section: usize,
        metric: usize,
        unit: usize,
        value: usize,
        rule: Option<(usize, usize, usize)>,
    },
    Raw {
        kernel: usize,
        names: Vec<String>,
        units: Vec<String>,
    },
}

impl Page {
    /// The page that a header is of; none where it is no header.
    pub fn of(header: &[String]) -> Option<Page> {
        let at = |name: &str| header.iter().position(|field| field == name);
        let kernel = at("Kernel Name")?;
        if let (Some(metric), Some(unit), Some(value)) = (at("Metric Name"), at("Metric Unit"), at("Metric Value")) {
            let id = at("ID").unwrap_or(0);
            let rule = at("Rule Name").zip(at("Estimated Speedup Type")).zip(at("Estimated Speedup"));
            return Some(Page::Details {
                kernel,
                id,
                process: at("Process ID").unwrap_or(id),
                section: at("Section Name").unwrap_or(metric),
                metric,
                unit,
                value,
                rule: rule.map(|((name, kind), gain)| (name, kind, gain)),
            });
        }
        at("Grid Size").or(at("ID"))?;
        Some(Page::Raw { kernel, names: header.to_vec(), units: Vec::new() })
    }
}

impl Run {
    /// What the limit is told from.
    pub fn throughputs(&self) -> Throughputs {
        Throughputs {
            sm: self.sm,
            memory: self.memory,
            dram: self.dram,
            tensor: self.tensor,
            occupancy: self.occupancy,
            occupancy_limit: self.occupancy_limit,
            waves: self.waves,
        }
    }

    /// Takes a metric of the details page.
    pub fn detail(&mut self, name: &str, unit: &str, value: &str) {
        let Some(number) = number(value).map(|number| number * scale(unit)) else { return };
        let percent = unit.trim() == "%";
        let place = match name.trim_end_matches(" [%]") {
            "Duration" => &mut self.duration_ns,
            "Compute (SM) Throughput" | "SM" => &mut self.sm,
            // The same name stands for bytes a second in another section.
            "Memory Throughput" | "Memory" if percent || name.ends_with("[%]") => &mut self.memory,
            "DRAM Throughput" if percent => &mut self.dram,
            "Achieved Occupancy" => &mut self.occupancy,
            "Theoretical Occupancy" => &mut self.occupancy_limit,
            "Waves Per SM" => &mut self.waves,
            "Registers Per Thread" => &mut self.registers,
            "Memory Throughput" if unit.contains("byte/s") => {
                self.dram_bytes = self.duration_ns.map(|ns| number * ns / 1e9);
                return;
            }
            _ => return,
        };
        *place = Some(number);
    }

    /// Takes a row of the raw page.
    pub fn raw(kernel: usize, names: &[String], units: &[String], row: &[String]) -> Run {
        let mut of: HashMap<&str, f64> = HashMap::new();
        let mut run = Run { kernel: row.get(kernel).cloned().unwrap_or_default(), ..Run::default() };
        for ((name, unit), value) in names.iter().zip(units).zip(row) {
            match number(value) {
                Some(number) => drop(of.insert(name, number * scale(unit))),
                None if name == "device__attribute_display_name" => run.device = Some(value.clone()),
                None => {}
            }
        }
        let get = |name: &str| of.get(name).copied();
        run.duration_ns = get("gpu__time_duration.sum");
        run.sm = get("sm__throughput.avg.pct_of_peak_sustained_elapsed");
        run.memory = get("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed");
        run.dram = get("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed");
        run.occupancy = get("sm__warps_active.avg.pct_of_peak_sustained_active");
        run.occupancy_limit = get("sm__maximum_warps_per_active_cycle_pct");
        run.tensor = get("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed");
        run.waves = get("launch__waves_per_multiprocessor");
        run.registers = get("launch__registers_per_thread");
        run.dram_bytes = match (get("dram__bytes_read.sum"), get("dram__bytes_write.sum")) {
            (None, None) => get("dram__bytes.sum"),
            (read, write) => Some(read.unwrap_or(0.0) + write.unwrap_or(0.0)),
        };
        run.flops = match (tensor_flops(&of), fp32_flops(&of, run.duration_ns)) {
            (None, None) => None,
            (tensor, fp32) => Some(tensor.unwrap_or(0.0) + fp32.unwrap_or(0.0)),
        };
        run
    }
}

/// Operations on tensor cores. Each input format has a sum, or one for each output format, or one for each sparsity: all three
/// count the same operations.
fn tensor_flops(of: &HashMap<&str, f64>) -> Option<f64> {
    let mut formats: HashMap<&str, [f64; 3]> = HashMap::new();
    for (name, value) in of {
        let Some(rest) = name.strip_prefix("sm__ops_path_tensor_src_").and_then(|rest| rest.strip_suffix(".sum"))
        else {
            continue;
        };
        let format = rest.split('_').next().unwrap_or_default();
        let kind = if rest.contains("sparsity") { 2 } else { usize::from(rest.contains("_dst_")) };
        formats.entry(format).or_default()[kind] += value;
    }
    let most = |sums: &[f64; 3]| sums.iter().copied().fold(0.0, f64::max);
    (!formats.is_empty()).then(|| formats.values().map(most).sum())
}

/// Additions, products, and both at once on the units for 32 bits.
fn fp32_flops(of: &HashMap<&str, f64>, duration_ns: Option<f64>) -> Option<f64> {
    let per_cycle = |what: &str| {
        of.get(format!("smsp__sass_thread_inst_executed_op_{what}_pred_on.sum.per_cycle_elapsed").as_str()).copied()
    };
    let cycles = of.get("smsp__cycles_elapsed.avg.per_second")? * duration_ns? / 1e9;
    Some((2.0 * per_cycle("ffma")? + per_cycle("fadd").unwrap_or(0.0) + per_cycle("fmul").unwrap_or(0.0)) * cycles)
}
