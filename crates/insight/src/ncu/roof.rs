//! Measured kernels on the roofline of their accelerator. Arithmetic and traffic are what was counted, so a kernel that reads
//! the same bytes twice stands where it really is, and not where its shapes would put it.

use super::{NcuKernel, NcuReport};
use crate::roofline::{Point, Roofline, attainable, ceilings, sheet};
use crate::trace::kernel::kernel;
use windfall_catalog::{Accelerator, Catalog, Precision};

/// The roofline of the kernels whose arithmetic was counted; `accelerator` where the table does not say it.
pub fn roofline(report: &NcuReport, catalog: &Catalog, accelerator: Option<&str>) -> Roofline {
    let sheet = accelerator.or(report.accelerator.as_deref()).and_then(|device| sheet(catalog, device));
    let points: Vec<Point> = report.kernels.iter().filter_map(|kernel| point(kernel, sheet)).collect();
    let known: f64 = points.iter().map(|point| point.time_us).sum();
    let bound: f64 = points.iter().filter(|point| point.memory_bound == Some(true)).map(|point| point.time_us).sum();
    Roofline {
        ceilings: sheet.map(ceilings),
        known_percent: if report.total_us > 0.0 { 100.0 * known / report.total_us } else { 0.0 },
        memory_bound_percent: (known > 0.0 && sheet.is_some()).then(|| 100.0 * bound / known),
        mfu_percent: None,
        points,
    }
}

fn point(measured: &NcuKernel, sheet: Option<&Accelerator>) -> Option<Point> {
    let (tflops, intensity) = (measured.tflops?, measured.flop_per_byte?);
    if tflops <= 0.0 || intensity <= 0.0 {
        return None;
    }
    let on_tensor_cores = measured.tensor_percent.is_some_and(|percent| percent >= 10.0);
    let precision = kernel(&measured.name).precision.unwrap_or(match on_tensor_cores {
        true => Precision::Bf16,
        false => Precision::Fp32,
    });
    let (attainable, memory_bound) = attainable(sheet, precision, intensity);
    Some(Point {
        operator: measured.short.clone(),
        shapes: String::new(),
        precision: precision.word(),
        calls: measured.runs,
        time_us: measured.total_us,
        gflop: tflops * measured.total_us / measured.runs.max(1) as f64 / 1e3,
        flop_per_byte: intensity,
        tflops,
        attainable_tflops: attainable,
        reached_percent: attainable.map(|attainable| 100.0 * tflops / attainable),
        memory_bound,
    })
}
