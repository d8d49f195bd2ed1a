//! Where operators stand against what their accelerator can do: arithmetic against bandwidth.

pub mod operators;

use crate::trace::OperatorTime;
use operators::{cost, first_type};
use serde::Serialize;
use windfall_catalog::{Accelerator, Catalog, Precision, names};

/// An operator with given shapes on the roofline.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    pub operator: String,
    pub shapes: String,
    pub precision: &'static str,
    pub calls: u64,
    pub time_us: f64,
    /// Of one call.
    pub gflop: f64,
    /// Arithmetic for each byte that must move.
    pub flop_per_byte: f64,
    pub tflops: f64,
    /// What the accelerator allows at this intensity and precision.
    pub attainable_tflops: Option<f64>,
    /// Share of that which was reached.
    pub reached_percent: Option<f64>,
    /// Bandwidth and not arithmetic is the limit.
    pub memory_bound: Option<bool>,
}

/// Ceilings of an accelerator.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ceilings {
    pub accelerator: String,
    pub bandwidth_gb_s: Option<f64>,
    /// Peaks by precision, dense.
    pub peak_tflops: Vec<(&'static str, f64)>,
    /// The highest rate of matrix products in bf16 that anybody measured.
    pub measured_bf16_tflops: Option<f64>,
}

/// The roofline of one rank.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Roofline {
    pub ceilings: Option<Ceilings>,
    /// By time, most first.
    pub points: Vec<Point>,
    /// Share of kernel time whose shapes are known.
    pub known_percent: f64,
    /// Time of operators that bandwidth limits, as a share of the time with known shapes.
    pub memory_bound_percent: Option<f64>,
    /// Arithmetic of matrix products in the whole trace against the peak of the number format they ran in.
    pub mfu_percent: Option<f64>,
}

/// The data sheet that a device's name in a trace stands for.
pub fn sheet<'c>(catalog: &'c Catalog, device: &str) -> Option<&'c Accelerator> {
    let bare = ["NVIDIA", "Tesla", "AMD", "Instinct", "GeForce"]
        .iter()
        .fold(device.to_owned(), |name, word| name.replace(word, ""));
    let exact = names::lookup(bare.trim())
        .and_then(|named| catalog.accelerators().iter().find(|sheet| Some(sheet.model.as_str()) == named.model));
    // `H100 80GB HBM3`, `A100-PG509-200`, `V100-DGXS-32GB`: the family and, if it is said, the memory.
    exact.or_else(|| {
        let word = bare.split([' ', '-']).find(|word| !word.is_empty())?;
        let memory = bare.split([' ', '-']).find_map(|word| word.strip_suffix("GB"));
        let with_memory = memory.and_then(|memory| catalog.accelerator(&format!("{word}-{memory}GB")));
        with_memory.or_else(|| catalog.accelerator(word))
    })
}

/// Times of a trace that a roofline is held against.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// All kernels.
    pub kernels_ns: i64,
    /// Matrix products and attention.
    pub products_ns: i64,
    /// All steps, or the whole trace.
    pub span_ns: i64,
}

/// MFU is told where shapes of this share of all products are known.
const KNOWN: f64 = 0.8;

/// Puts operators on the roofline.
pub fn roofline(operators: &[OperatorTime], sheet: Option<&Accelerator>, times: Times) -> Roofline {
    let mut points: Vec<Point> = operators.iter().filter_map(|operator| point(operator, sheet)).collect();
    points.sort_by(|one, other| other.time_us.total_cmp(&one.time_us).then_with(|| one.shapes.cmp(&other.shapes)));
    let known: f64 = points.iter().map(|point| point.time_us).sum();
    let bound: f64 = points.iter().filter(|point| point.memory_bound == Some(true)).map(|point| point.time_us).sum();
    Roofline {
        ceilings: sheet.map(ceilings),
        known_percent: if times.kernels_ns > 0 { 100.0 * (known + 0.0) * 1e3 / times.kernels_ns as f64 } else { 0.0 },
        memory_bound_percent: (known > 0.0 && sheet.is_some()).then(|| 100.0 * bound / known),
        mfu_percent: sheet.and_then(|sheet| mfu(&points, sheet, times)),
        points,
    }
}

fn point(operator: &OperatorTime, sheet: Option<&Accelerator>) -> Option<Point> {
    let cost = cost(&operator.name, &operator.shapes, &operator.types, &operator.values)?;
    if operator.time_ns <= 0 || operator.calls == 0 {
        return None;
    }
    let precision = precision(operator, sheet);
    let intensity = cost.flops / cost.bytes;
    let tflops = cost.flops * operator.calls as f64 / operator.time_ns as f64 / 1e3;
    let (attainable, memory_bound) = attainable(sheet, precision, intensity);
    Some(Point {
        operator: operator.name.clone(),
        shapes: operator.shapes.split_whitespace().collect::<String>().replace(',', ", "),
        precision: precision.word(),
        calls: operator.calls,
        time_us: operator.time_ns as f64 / 1_000.0,
        gflop: cost.flops / 1e9,
        flop_per_byte: intensity,
        tflops,
        attainable_tflops: attainable,
        reached_percent: attainable.map(|attainable| 100.0 * tflops / attainable),
        memory_bound,
    })
}

/// What an accelerator allows at an intensity and in a number format, and whether bandwidth is what limits there.
pub(crate) fn attainable(
    sheet: Option<&Accelerator>,
    precision: Precision,
    intensity: f64,
) -> (Option<f64>, Option<bool>) {
    let peak = sheet.and_then(|sheet| sheet.peak_tflops(precision)).map(f64::from);
    let slope = sheet.and_then(|sheet| sheet.bandwidth_gb_s).map(|bandwidth| f64::from(bandwidth) * intensity / 1e3);
    match (peak, slope) {
        (Some(peak), Some(slope)) => (Some(peak.min(slope)), Some(slope < peak)),
        _ => (None, None),
    }
}

/// The number format of an operator; 32-bit floats on tensor cores are tf32.
fn precision(operator: &OperatorTime, sheet: Option<&Accelerator>) -> Precision {
    let has_tf32 = sheet.is_some_and(|sheet| sheet.peak_tflops(Precision::Tf32).is_some());
    match first_type(&operator.types).as_deref() {
        Some("c10::BFloat16") => Precision::Bf16,
        Some("c10::Half") => Precision::Fp16,
        Some("double") => Precision::Fp64,
        Some("c10::Float8_e4m3fn" | "c10::Float8_e5m2") => Precision::Fp8,
        Some("signed char" | "unsigned char") => Precision::Int8,
        _ if has_tf32 && operator.tensor_ns * 2 > operator.time_ns => Precision::Tf32,
        _ => Precision::Fp32,
    }
}

/// The ceilings of a data sheet.
pub(crate) fn ceilings(sheet: &Accelerator) -> Ceilings {
    Ceilings {
        accelerator: sheet.model.clone(),
        bandwidth_gb_s: sheet.bandwidth_gb_s.map(f64::from),
        peak_tflops: sheet.tflops.iter().map(|(precision, tflops)| (precision.word(), f64::from(*tflops))).collect(),
        measured_bf16_tflops: sheet.measured_bf16_tflops.map(f64::from),
    }
}

/// Arithmetic of products against the peak of the format that most of it ran in.
fn mfu(points: &[Point], sheet: &Accelerator, times: Times) -> Option<f64> {
    let product =
        |point: &&Point| ["mm", "linear", "convolution", "attention"].iter().any(|word| point.operator.contains(word));
    let known: f64 = points.iter().filter(product).map(|point| point.time_us * 1e3).sum();
    if known < KNOWN * times.products_ns as f64 {
        return None;
    }
    let flops = |point: &Point| point.gflop * point.calls as f64;
    let all: f64 = points.iter().filter(product).map(flops).sum();
    let main = points.iter().filter(product).max_by(|one, other| flops(one).total_cmp(&flops(other)))?;
    let peak = sheet.peak_tflops(Precision::named(main.precision)?).map(f64::from)?;
    (times.span_ns > 0 && peak > 0.0).then(|| 100.0 * all * 1e9 / (times.span_ns as f64 * 1e-9 * peak * 1e12))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value: 51.58 GFLOP in 84.46 µs on an H100 are 610.7 TFLOP/s.
    #[test]
    fn a_known_product_stands_where_it_should() {
        let operator = OperatorTime {
            name: "aten::mm".into(),
            shapes: "[[8944, 1024], [1024, 2816]]".into(),
            types: r#"["c10::BFloat16", "c10::BFloat16"]"#.into(),
            values: String::new(),
            device: 0,
            calls: 1,
            time_ns: 84_461,
            tensor_ns: 84_461,
        };
        let catalog = Catalog::embedded();
        let h100 = sheet(&catalog, "NVIDIA H100 80GB HBM3").expect("it is there");
        let times = Times { kernels_ns: 84_461, products_ns: 84_461, span_ns: 84_461 };
        let roofline = roofline(&[operator], Some(h100), times);
        let point = &roofline.points[0];
        assert_eq!(format!("{:.2} {:.0} {:.1}", point.gflop, point.flop_per_byte, point.tflops), "51.58 693 610.7");
        assert_eq!(point.memory_bound, Some(false));
        assert_eq!(
            point.attainable_tflops.map(f64::round),
            h100.peak_tflops(Precision::Bf16).map(|tflops| f64::from(tflops).round())
        );
        assert!(
            (roofline.mfu_percent.expect("it is there") - point.reached_percent.expect("it is there")).abs() < 1e-6
        );
    }

    #[test]
    fn devices_are_found_by_the_names_in_traces() {
        let catalog = Catalog::embedded();
        let model = |device: &str| sheet(&catalog, device).map(|sheet| sheet.model.as_str());
        assert_eq!(model("NVIDIA H200"), Some("H200-SXM-141GB"));
        assert_eq!(model("NVIDIA H100 80GB HBM3"), Some("H100-SXM5-80GB"));
        assert_eq!(model("NVIDIA A100-SXM4-80GB"), Some("A100-SXM4-80GB"));
        assert_eq!(model("NVIDIA A100-PG509-200"), Some("A100-SXM4-40GB"));
        assert_eq!(model("Tesla V100-SXM2-32GB"), Some("V100-SXM2-32GB"));
        assert_eq!(model("Tesla V100-DGXS-32GB"), Some("V100-SXM2-32GB"));
        assert_eq!(model("AMD Radeon Graphics"), None);
    }
}
