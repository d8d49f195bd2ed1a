//! What accelerators can do and what programs get out of them, from published tables.

use crate::error::BuildError;
use crate::knowledge::{Accelerator, Mfu, NodeScaling, Precision, PrecisionGain, TrainingTime};
use crate::names;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io::Read;

fn rows<T: for<'d> Deserialize<'d>>(file: &str, reader: impl Read) -> Result<Vec<T>, BuildError> {
    let rows = csv::Reader::from_reader(reader).into_deserialize();
    rows.enumerate()
        .map(|(at, row)| row.map_err(|error| BuildError::bad(file, format!("row {}", at + 1), error)))
        .collect()
}

#[derive(Deserialize)]
struct Sheet {
    name: String,
    vendor: String,
    arch: String,
    year: u16,
    mem_gb: f32,
    mem_bw_gbps: Option<f32>,
    fp64_tflops: Option<f32>,
    fp32_tflops: Option<f32>,
    tf32_tflops: Option<f32>,
    fp16_tflops: Option<f32>,
    bf16_tflops: Option<f32>,
    fp8_tflops: Option<f32>,
    int8_tops: Option<f32>,
    fp4_tflops: Option<f32>,
    tdp_w: Option<f32>,
    interconnect: String,
    interconnect_gbps_bidir: Option<f32>,
    mamf_bf16_tflops: Option<f32>,
    certainty: String,
}

/// Data sheets.
pub fn accelerators(file: &str, reader: impl Read) -> Result<Vec<Accelerator>, BuildError> {
    let sheets: Vec<Sheet> = rows(file, reader)?;
    let read = sheets.into_iter().map(|sheet| {
        let peaks = [
            (Precision::Fp64, sheet.fp64_tflops),
            (Precision::Fp32, sheet.fp32_tflops),
            (Precision::Tf32, sheet.tf32_tflops),
            (Precision::Fp16, sheet.fp16_tflops),
            (Precision::Bf16, sheet.bf16_tflops),
            (Precision::Fp8, sheet.fp8_tflops),
            (Precision::Int8, sheet.int8_tops),
            (Precision::Fp4, sheet.fp4_tflops),
        ];
        let family =
            names::family_of_model(&sheet.name).map_or_else(|| names::adopt(&sheet.name).family, str::to_owned);
        Accelerator {
            model: sheet.name,
            family,
            vendor: sheet.vendor,
            generation: sheet.arch,
            year: sheet.year,
            memory_gb: sheet.mem_gb,
            bandwidth_gb_s: sheet.mem_bw_gbps,
            tflops: peaks.into_iter().filter_map(|(precision, peak)| Some((precision, peak?))).collect(),
            power_w: sheet.tdp_w,
            link: sheet.interconnect,
            link_gb_s: sheet.interconnect_gbps_bidir,
            measured_bf16_tflops: sheet.mamf_bf16_tflops,
            certainty: sheet.certainty,
        }
    });
    Ok(read.collect())
}

#[derive(Deserialize)]
struct MfuRow {
    section: String,
    #[serde(rename = "Model")]
    model: String,
    #[serde(rename = "SeqLen (T)")]
    sequence: u32,
    #[serde(rename = "# GPUs")]
    count: u32,
    #[serde(rename = "GPU")]
    gpu: String,
    #[serde(rename = "MFU")]
    mfu: f32,
    #[serde(rename = "Precision")]
    precision: String,
    #[serde(rename = "NumParams")]
    parameters: u64,
}

/// Shares of peak that training runs reached. Of runs that differ only in batch or sharding the best is kept.
pub fn mfu(file: &str, reader: impl Read) -> Result<Vec<Mfu>, BuildError> {
    let mut best: BTreeMap<(String, String, u32, u32, Precision), Mfu> = BTreeMap::new();
    for row in rows::<MfuRow>(file, reader)? {
        let Some(precision) = Precision::named(&row.precision) else { continue };
        let accelerator = names::adopt(&row.gpu).family;
        let network_gbps = row.section.contains("1600 Gbps").then_some(1_600);
        let key = (accelerator.clone(), row.model.clone(), row.sequence, row.count, precision);
        let run = Mfu {
            model: row.model,
            parameters: row.parameters,
            sequence: row.sequence,
            accelerator,
            count: row.count,
            precision,
            mfu: row.mfu / 100.0,
            network_gbps,
        };
        let kept = best.entry(key).or_insert_with(|| run.clone());
        if run.mfu > kept.mfu {
            *kept = run;
        }
    }
    Ok(best.into_values().collect())
}

#[derive(Deserialize)]
struct MlperfRow {
    round: String,
    benchmark: String,
    accelerator: String,
    acc_total: Option<f32>,
    olympic_mean_min: Option<f32>,
    division: String,
}

/// Best times to quality in MLPerf's closed division, by benchmark, accelerator, round and count; times of different
/// rounds differ by their software, so scaling is told within one.
pub fn training_times(file: &str, reader: impl Read) -> Result<Vec<TrainingTime>, BuildError> {
    let mut best: BTreeMap<(String, String, String, u32), TrainingTime> = BTreeMap::new();
    for row in rows::<MlperfRow>(file, reader)?.into_iter().filter(|row| row.division == "closed") {
        let (Some(count), Some(minutes)) = (row.acc_total, row.olympic_mean_min) else { continue };
        let Some(accelerator) = mlperf_family(&row.accelerator) else { continue };
        let count = count as u32;
        let key = (row.benchmark.clone(), accelerator.clone(), row.round.clone(), count);
        let time = TrainingTime { benchmark: row.benchmark, accelerator, count, minutes, round: row.round };
        let kept = best.entry(key).or_insert_with(|| time.clone());
        if time.minutes < kept.minutes {
            *kept = time;
        }
    }
    Ok(best.into_values().collect())
}

/// `NVIDIA Blackwell GPU (B200-SXM-180GB)`, `NVIDIA A100-SXM-80GB CTS`, `AMD Instinct MI300X 192GB HBM3`.
fn mlperf_family(name: &str) -> Option<String> {
    let inside = name.split_once('(').and_then(|(_, rest)| rest.split(')').next());
    let candidates = inside.into_iter().chain([name]);
    let tokens = ["GB200", "B200", "B300", "H200", "GH200", "MI300X", "MI325X", "MI355X", "Gaudi2", "L40S"];
    candidates.into_iter().find_map(|text| {
        let plain = text.trim_end_matches(" CTS").trim_end_matches(" (400W)");
        let found = names::lookup(plain).map(|named| named.family);
        found.or_else(|| tokens.iter().find(|token| text.contains(**token)).map(|token| (*token).to_owned()))
    })
}

/// Models in Lambda's tables that scale credibly; NCF's figures for several GPUs are off by hundreds.
const LAMBDA_WORKLOADS: [(&str, &str); 7] = [
    ("bert_base_squad", "transformer"),
    ("bert_large_squad", "transformer"),
    ("gnmt", "recurrent"),
    ("resnet50", "cnn"),
    ("ssd", "cnn"),
    ("tacotron2", "recurrent"),
    ("waveglow", "vocoder"),
];

/// Lambda's throughputs: machine without its count, count, and figures by model.
pub struct LambdaTable(Vec<(String, u32, BTreeMap<String, f32>)>);

/// Reads one of Lambda's tables.
pub fn lambda_table(file: &str, reader: impl Read) -> Result<LambdaTable, BuildError> {
    let mut table = Vec::new();
    for (at, row) in rows::<BTreeMap<String, String>>(file, reader)?.into_iter().enumerate() {
        let wrong = |what: &str| BuildError::bad(file, format!("row {}", at + 1), what);
        let count = row.get("num_gpu").and_then(|count| count.parse::<f32>().ok());
        let count = count.ok_or_else(|| wrong("there is no number of GPUs"))? as u32;
        let name = row.get("name_gpu").ok_or_else(|| wrong("there is no name"))?.replace("LambdaCloud ", "");
        let name = name.replace(&format!("{count}x "), "").replace(&format!("{count}x"), "");
        let figures = row.into_iter().filter_map(|(model, figure)| Some((model, figure.parse().ok()?)));
        table.push((name, count, figures.collect()));
    }
    Ok(LambdaTable(table))
}

impl LambdaTable {
    fn figure(&self, machine: &str, count: u32, model: &str) -> Option<f32> {
        let row = self.0.iter().find(|(name, known, _)| name == machine && *known == count)?;
        row.2.get(model).copied().filter(|figure| *figure > 0.0)
    }
}

/// `A100 80GB SXM4`, `H100 80GB PCIe Gen5`, `V100 16GB`, `RTX A6000`.
fn lambda_family(machine: &str) -> Option<String> {
    let words: Vec<&str> = machine.split(' ').filter(|word| !word.starts_with("Gen")).collect();
    let plain = words.join(" ");
    let swapped = match words.as_slice() {
        [chip, memory, form] => format!("{chip} {form} {memory}"),
        _ => plain.clone(),
    };
    names::lookup(&plain).or_else(|| names::lookup(&swapped)).map(|named| named.family)
}

/// How well several accelerators of a node are used. What seems to scale better than perfectly was measured wrong.
pub fn node_scaling(fp16: &LambdaTable) -> Vec<NodeScaling> {
    let mut found = Vec::new();
    for (machine, count, _) in fp16.0.iter().filter(|(_, count, _)| *count > 1) {
        let Some(accelerator) = lambda_family(machine) else { continue };
        let link = if machine.contains("SXM") || machine.contains("V100") { "NVLink" } else { "PCIe" };
        for (workload, _) in LAMBDA_WORKLOADS {
            let figures = (fp16.figure(machine, 1, workload), fp16.figure(machine, *count, workload));
            let (Some(one), Some(all)) = figures else { continue };
            let efficiency = all / (one * *count as f32);
            if (0.1..=1.02).contains(&efficiency) {
                found.push(NodeScaling {
                    workload: workload.to_owned(),
                    accelerator: accelerator.clone(),
                    link: link.to_owned(),
                    count: *count,
                    efficiency,
                });
            }
        }
    }
    found
}

/// What half precision gained at the largest batch that fits each.
pub fn lambda_precision(fp32: &LambdaTable, fp16: &LambdaTable) -> Vec<PrecisionGain> {
    let mut found = Vec::new();
    for (machine, count, _) in &fp16.0 {
        let Some(accelerator) = lambda_family(machine) else { continue };
        for (workload, class) in LAMBDA_WORKLOADS {
            let figures = (fp32.figure(machine, *count, workload), fp16.figure(machine, *count, workload));
            let (Some(from), Some(to)) = figures else { continue };
            found.push(PrecisionGain {
                workload: workload.to_owned(),
                class: class.to_owned(),
                // TensorFloat is on by default since Ampere, and `fp32` in these tables means the default.
                from: if accelerator.starts_with('V') || accelerator.starts_with("RTX8") {
                    Precision::Fp32
                } else {
                    Precision::Tf32
                },
                accelerator: accelerator.clone(),
                count: *count,
                to: Precision::Fp16,
                speed: to / from,
                memory: None,
                equal_batch: false,
                source: "lambdal/deeplearning-benchmark".to_owned(),
            });
        }
    }
    found
}

#[derive(Deserialize)]
struct NvidiaRow {
    model: String,
    gpu: String,
    gpus: u32,
    base_precision: String,
    base_throughput: f32,
    mixed_throughput: f32,
    note: String,
}

/// What mixed precision gained in NVIDIA's own examples.
pub fn nvidia_precision(file: &str, reader: impl Read) -> Result<Vec<PrecisionGain>, BuildError> {
    let gains = rows::<NvidiaRow>(file, reader)?.into_iter().filter_map(|row| {
        let gpu = row.gpu.split('(').next().unwrap_or_default();
        Some(PrecisionGain {
            class: class_of(&row.model).to_owned(),
            workload: row.model,
            accelerator: names::adopt(gpu).family,
            count: row.gpus,
            from: Precision::named(&row.base_precision)?,
            to: Precision::Fp16,
            speed: row.mixed_throughput / row.base_throughput,
            memory: None,
            equal_batch: !row.note.contains(" vs "),
            source: "NVIDIA/DeepLearningExamples".to_owned(),
        })
    });
    Ok(gains.collect())
}

#[derive(Deserialize)]
struct Measured {
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    model: String,
    precision: String,
    args: Vec<u32>,
    units_per_s: f32,
    peak_mem_gib: f32,
}

/// What the project measured on an H200, at equal batches.
pub fn measured_precision(file: &str, reader: impl Read) -> Result<Vec<PrecisionGain>, BuildError> {
    let measured: Measured = serde_json::from_reader(std::io::BufReader::new(reader))
        .map_err(|error| BuildError::bad(file, format!("line {}", error.line()), error))?;
    let mut found = Vec::new();
    for from in measured.runs.iter().filter(|run| matches!(run.precision.as_str(), "fp32" | "tf32")) {
        let same = |run: &&Run| run.model == from.model && run.args == from.args && run.precision.ends_with("16");
        for to in measured.runs.iter().filter(same) {
            let (Some(before), Some(after)) = (Precision::named(&from.precision), Precision::named(&to.precision))
            else {
                continue;
            };
            found.push(PrecisionGain {
                workload: from.model.clone(),
                class: class_of(&from.model).to_owned(),
                accelerator: "H200".to_owned(),
                count: 1,
                from: before,
                to: after,
                speed: to.units_per_s / from.units_per_s,
                memory: Some(to.peak_mem_gib / from.peak_mem_gib),
                equal_batch: true,
                source: "windfall/h200".to_owned(),
            });
        }
    }
    Ok(found)
}

fn class_of(model: &str) -> &'static str {
    let lower = model.to_ascii_lowercase();
    match () {
        () if ["bert", "transformer", "gpt"].iter().any(|word| lower.contains(word)) => "transformer",
        () if ["gnmt", "tacotron"].iter().any(|word| lower.contains(word)) => "recurrent",
        () if lower.contains("dlrm") => "recommender",
        () if lower.contains("waveglow") => "vocoder",
        () => "cnn",
    }
}
