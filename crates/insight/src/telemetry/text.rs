//! The report on GPUs on one screen, and what they do at this moment as a table.

use super::class::{Class, Evidence};
use super::report::{GpuLine, GpuReport};
use super::sample::{Sample, Which};
use crate::text::{cut, dollars, wrapped};
use std::fmt::Write;

/// Phases on the screen.
const PHASES: usize = 12;
/// GPUs that are told one by one.
const ONE_BY_ONE: usize = 4;
const GIB: f64 = 1_073_741_824.0;

/// The report on one screen of so many columns.
pub fn screen(report: &GpuReport, width: usize) -> String {
    let mut text = String::new();
    for gpu in report.gpus.iter().take(ONE_BY_ONE) {
        one(&mut text, gpu, width);
        text.push('\n');
    }
    if report.gpus.len() > ONE_BY_ONE {
        several(&mut text, report, width);
        text.push('\n');
    }
    explain(&mut text, report, width);
    if let Some(usd) = report.wasted_usd.filter(|usd| *usd > 0.0) {
        put(&mut text, &format!("nothing was computed for {} of it (idle and held)", dollars(usd)), width);
    }
    for note in &report.notes {
        put(&mut text, &format!("note: {note}"), width);
    }
    text
}

fn put(text: &mut String, said: &str, width: usize) {
    for (at, line) in wrapped(said, width.saturating_sub(2).max(20)).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if at == 0 { "" } else { "  " });
    }
}

fn name(gpu: &GpuLine) -> String {
    let host = gpu.host.as_ref().map_or(String::new(), |host| format!("{host} "));
    let model = gpu.name.as_ref().map_or(String::new(), |name| format!(" ({name})"));
    format!("{host}GPU {}{model}", gpu.gpu)
}

/// A span of time for people: `2m 5s`.
fn span(seconds: f64) -> String {
    windfall_core::Span((seconds * 1e3).round() as i64).to_string()
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{share:.0} %"))
}

fn one(text: &mut String, gpu: &GpuLine, width: usize) {
    let user = gpu.user.as_ref().map_or(String::new(), |user| format!(", used by {user}"));
    put(text, &format!("{}{user}: mostly {}, {}", name(gpu), gpu.class.word(), gpu.class.means()), width);
    let mut facts = vec![format!("{} seen", span(gpu.seconds))];
    facts.extend(gpu.busy_percent.map(|busy| format!("some kernel ran {busy:.0} % of the time")));
    facts.extend(gpu.sm_active_percent.map(|sm| format!("multiprocessors {sm:.0} %")));
    facts.extend(gpu.tensor_active_percent.map(|tensor| format!("tensor cores {tensor:.0} %")));
    facts.extend(gpu.dram_active_percent.map(|dram| format!("memory bandwidth {dram:.0} %")));
    facts.extend(gpu.peak_memory_held_bytes.map(|most| {
        let total = gpu.memory_total_bytes.map_or(String::new(), |total| format!(" of {:.1}", total as f64 / GIB));
        format!("{:.1}{total} GiB held at most", most as f64 / GIB)
    }));
    facts.extend(gpu.power_watts.map(|watts| {
        let limit = gpu.power_limit_watts.map_or(String::new(), |limit| format!(" of {limit:.0}"));
        format!("{watts:.0}{limit} W")
    }));
    facts.extend(gpu.energy_joules.map(|joules| format!("{:.3} kWh", joules / 3.6e6)));
    facts.extend(gpu.usd.map(dollars));
    put(text, &facts.join(", "), width);
    for class in gpu.classes.iter().filter(|class| class.percent >= 0.5) {
        let bar = "█".repeat((class.percent / 100.0 * 24.0).round() as usize);
        let usd = class.usd.map_or(String::new(), |usd| format!(" {:>9}", dollars(usd)));
        let line =
            format!("  {:<13} {:>8} {:>4.0} %{usd}  {bar}", class.class.word(), span(class.seconds), class.percent);
        let _ = writeln!(text, "{}", cut(line.trim_end(), width));
    }
    phases(text, gpu, width);
    gpu.notes.iter().for_each(|note| put(text, &format!("note: {note}"), width));
}

fn phases(text: &mut String, gpu: &GpuLine, width: usize) {
    if gpu.phases.len() < 2 {
        return;
    }
    let mut longest: Vec<usize> = (0..gpu.phases.len()).collect();
    longest.sort_by(|one, other| gpu.phases[*other].seconds.total_cmp(&gpu.phases[*one].seconds));
    longest.truncate(PHASES);
    longest.sort_unstable();
    let counters = gpu.evidence == Evidence::Counters;
    let more = if counters { format!(" {:>5} {:>6} {:>5}", "SM", "tensor", "DRAM") } else { String::new() };
    let head =
        format!("  {:>8} {:>8}  {:<12} {:>6}{more} {:>6} {:>8}", "from", "for", "phase", "busy", "power", "held");
    let _ = writeln!(text, "{}", cut(&head, width));
    for phase in longest.into_iter().map(|at| &gpu.phases[at]) {
        let more = if counters {
            let [sm, tensor, dram] = [phase.sm_active_percent, phase.tensor_active_percent, phase.dram_active_percent];
            format!(" {:>5} {:>6} {:>5}", percent(sm), percent(tensor), percent(dram))
        } else {
            String::new()
        };
        let watts = phase.power_watts.map_or("-".to_owned(), |watts| format!("{watts:.0} W"));
        let held = phase.memory_held_bytes.map_or("-".to_owned(), |bytes| format!("{:.1} GiB", bytes as f64 / GIB));
        let line = format!(
            "  {:>8} {:>8}  {:<12} {:>6}{more} {watts:>6} {held:>8}",
            span(phase.from_s),
            span(phase.seconds),
            phase.class.word(),
            percent(phase.busy_percent)
        );
        let _ = writeln!(text, "{}", cut(&line, width));
    }
    if gpu.phases.len() > PHASES {
        put(text, &format!("  and {} shorter phases (--json has them all)", gpu.phases.len() - PHASES), width);
    }
}

fn several(text: &mut String, report: &GpuReport, width: usize) {
    let head = format!(
        "{:<10} {:<13} {:>6} {:>5} {:>6} {:>5} {:>9} {:>6}",
        "GPU", "mostly", "busy", "SM", "tensor", "DRAM", "held", "power"
    );
    let _ = writeln!(text, "{}", cut(&head, width));
    for gpu in &report.gpus {
        let host = gpu.host.as_ref().map_or(String::new(), |host| format!("{host}:"));
        let held = gpu.peak_memory_held_bytes.map_or("-".to_owned(), |bytes| format!("{:.1} GiB", bytes as f64 / GIB));
        let line = format!(
            "{:<10} {:<13} {:>6} {:>5} {:>6} {:>5} {held:>9} {:>6}",
            cut(&format!("{host}{}", gpu.gpu), 10),
            gpu.class.word(),
            percent(gpu.busy_percent),
            percent(gpu.sm_active_percent),
            percent(gpu.tensor_active_percent),
            percent(gpu.dram_active_percent),
            gpu.power_watts.map_or("-".to_owned(), |watts| format!("{watts:.0} W"))
        );
        let _ = writeln!(text, "{}", cut(&line, width));
    }
}

/// What would help, and what the classes rest on.
fn explain(text: &mut String, report: &GpuReport, width: usize) {
    let mut told: Vec<Class> = Vec::new();
    for gpu in &report.gpus {
        let worth = gpu.classes.iter().filter(|class| class.percent >= 10.0).map(|class| class.class);
        for class in worth.filter(|class| class.fix().is_some()) {
            if !told.contains(&class) {
                told.push(class);
            }
        }
    }
    for class in told {
        if let Some(fix) = class.fix() {
            put(text, &format!("{}: {fix}", class.word()), width);
        }
    }
    if report.gpus.iter().any(|gpu| gpu.evidence < Evidence::Counters) {
        let why = "GPU utilisation (`utilization.gpu`, dmon's `sm`) only says that some kernel ran. Multiprocessor and \
                   tensor activity is in DCGM's profiling fields, and in `windfall gpu` on Hopper and later";
        put(text, &format!("note: {why}"), width);
    }
}

/// A program on a GPU, for the table of this moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TopProcess {
    pub gpu: String,
    pub pid: u32,
    pub name: String,
    pub user: String,
    pub job: Option<String>,
    pub memory_bytes: Option<u64>,
    pub busy_percent: Option<u32>,
}

/// What GPUs do at this moment, a line each, and the programs on them.
pub fn top(now: &[(&Which, &Sample, Class)], processes: &[TopProcess], width: usize) -> String {
    let mut text = String::new();
    let wide = width >= 78;
    let wide_head = if wide { format!(" {:>5} {:>6} {:>5}", "SM", "tensor", "DRAM") } else { String::new() };
    let head = format!("{:<4} {:<13} {:>5}{wide_head} {:>13}", "GPU", "does", "busy", "held");
    let more = if wide { format!(" {:>9} {:>5} {:>8}", "power", "temp", "clock") } else { String::new() };
    let _ = writeln!(text, "{}", cut(format!("{head}{more}").trim_end(), width));
    for (which, sample, class) in now {
        let held = match (sample.memory_used_bytes, sample.memory_total_bytes) {
            (Some(used), Some(total)) => format!("{:.1}/{:.0} GiB", used / GIB, total / GIB),
            (Some(used), None) => format!("{:.1} GiB", used / GIB),
            _ => "-".to_owned(),
        };
        let counters = if wide {
            let [sm, tensor, dram] = [sample.sm_percent, sample.tensor_percent, sample.dram_percent];
            format!(" {:>5} {:>6} {:>5}", percent(sm), percent(tensor), percent(dram))
        } else {
            String::new()
        };
        let power = match (sample.power_w, sample.power_limit_w) {
            (Some(power), Some(limit)) => format!("{power:.0}/{limit:.0} W"),
            (Some(power), None) => format!("{power:.0} W"),
            _ => "-".to_owned(),
        };
        let more = if wide {
            let celsius = sample.celsius.map_or("-".to_owned(), |celsius| format!("{celsius:.0} C"));
            let clock = sample.sm_clock_mhz.map_or("-".to_owned(), |clock| format!("{clock:.0} MHz"));
            format!(" {power:>9} {celsius:>5} {clock:>8}")
        } else {
            String::new()
        };
        let index = which.index.as_deref().unwrap_or(&which.key);
        let line = format!(
            "{:<4} {:<13} {:>5}{counters} {held:>13}{more}",
            cut(index, 4),
            class.word(),
            percent(sample.busy_percent)
        );
        let _ = writeln!(text, "{}", cut(line.trim_end(), width));
    }
    if !processes.is_empty() {
        let _ = writeln!(
            text,
            "\n{}",
            cut(&format!("{:<4} {:>8} {:<10} {:>9} {:>5}  program", "GPU", "pid", "user", "held", "busy"), width)
        );
    }
    for process in processes {
        let held = process.memory_bytes.map_or("-".to_owned(), |bytes| format!("{:.1} GiB", bytes as f64 / GIB));
        let job = process.job.as_ref().map_or(String::new(), |job| format!(" (job {job})"));
        let line = format!(
            "{:<4} {:>8} {:<10} {held:>9} {:>5}  {}{job}",
            cut(&process.gpu, 4),
            process.pid,
            cut(&process.user, 10),
            percent(process.busy_percent.map(f64::from)),
            process.name
        );
        let _ = writeln!(text, "{}", cut(&line, width));
    }
    text
}
