//! A report on single kernels on one screen.

use super::NcuReport;
use crate::text::{cut, time, wrapped};
use std::fmt::Write;

/// Kernels on the screen.
const KERNELS: usize = 20;

/// The report on one screen of so many columns.
pub fn screen(report: &NcuReport, width: usize) -> String {
    let width = width.max(80);
    let mut text = String::new();
    for line in wrapped(&format!("{}: {}", report.verdict, report.because), width) {
        let _ = writeln!(text, "{line}");
    }
    let mut facts = vec![format!("{} kernels, {}", report.kernels.len(), time(report.total_us))];
    facts.extend(report.accelerator.clone());
    let _ = writeln!(text, "{}", facts.join("   "));
    if !report.fixes.is_empty() {
        let _ = writeln!(text, "\nWhat would pay");
        for fix in &report.fixes {
            for (at, line) in wrapped(fix, width - 4).iter().enumerate() {
                let _ = writeln!(text, "  {}{line}", if at == 0 { "" } else { "  " });
            }
        }
    }
    let names = width.saturating_sub(69).clamp(11, 48);
    let _ = writeln!(
        text,
        "\n{:<names$} {:>9} {:>6} {:>5} {:>6} {:>6} {:>6} {:>5}  limited by",
        "Kernels", "time", "share", "SM", "memory", "tensor", "occup.", "TFLOP/s"
    );
    let percent = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0} %"));
    for kernel in report.kernels.iter().take(KERNELS) {
        let _ = writeln!(
            text,
            "{:<names$} {:>9} {:>6} {:>5} {:>6} {:>6} {:>6} {:>7}  {}",
            cut(&kernel.short, names),
            time(kernel.total_us),
            format!("{:.0} %", kernel.percent),
            percent(kernel.sm_percent),
            percent(kernel.memory_percent),
            percent(kernel.tensor_percent),
            percent(kernel.occupancy_percent),
            kernel.tflops.map_or("-".to_owned(), |tflops| format!("{tflops:.1}")),
            kernel.limit.word()
        );
    }
    if report.kernels.len() > KERNELS {
        let _ = writeln!(text, "and {} more (--json has them all)", report.kernels.len() - KERNELS);
    }
    for note in &report.notes {
        for line in wrapped(&format!("note: {note}"), width) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}
