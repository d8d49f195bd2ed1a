//! A report on one screen: the verdict first, then what to do, then where the time goes.

use crate::report::{BetweenRanks, KernelLine, Rank, Report};
use std::fmt::Write;
use windfall_core::english::grouped;

/// Kernels on the screen.
const KERNELS: usize = 8;

/// Ranks on the screen.
const RANKS: usize = 16;

/// A time for people: `62.3 ms`.
pub fn time(us: f64) -> String {
    match us.abs() {
        us_abs if us_abs < 1e3 => format!("{us:.1} µs"),
        us_abs if us_abs < 1e6 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.2} s", us / 1e6),
    }
}

/// Dollars with as many digits as they need: `$0.031`.
pub fn dollars(usd: f64) -> String {
    match usd.abs() {
        small if small < 0.01 => format!("${usd:.5}"),
        small if small < 1.0 => format!("${usd:.3}"),
        _ => format!("${usd:.2}"),
    }
}

pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// The report on one screen of so many columns.
pub fn screen(report: &Report, width: usize) -> String {
    let width = width.max(60);
    let mut text = String::new();
    for line in wrapped(&format!("{}: {}", report.verdict, report.because), width) {
        let _ = writeln!(text, "{line}");
    }
    header(&mut text, report);
    fixes(&mut text, report, width);
    match report.ranks.as_slice() {
        [] => {}
        [rank] => one(&mut text, rank, width),
        ranks => {
            several(&mut text, ranks);
            shown(report).into_iter().for_each(|rank| one(&mut text, rank, width));
        }
    }
    for straggler in &report.stragglers {
        let _ = writeln!(
            text,
            "rank {} computes {:.0} % longer than the others, which wait for it",
            straggler.rank, straggler.slower_percent
        );
    }
    if let Some(between) = &report.between_ranks {
        between_ranks(&mut text, between, width);
    }
    for note in &report.notes {
        tell(&mut text, note, width);
    }
    for rank in report.ranks.iter().take(RANKS) {
        for note in &rank.notes {
            let whose = if report.ranks.len() > 1 { format!("rank {}: ", rank.rank) } else { String::new() };
            tell(&mut text, &format!("{whose}{note}"), width);
        }
    }
    text
}

/// Ranks that differ by less than this are alike.
const ALIKE: f64 = 2.0;

fn between_ranks(text: &mut String, between: &BetweenRanks, width: usize) {
    let mut said = Vec::new();
    if let (Some(percent), Some(rank)) = (between.waiting_percent, between.last_rank)
        && percent >= ALIKE
    {
        said.push(format!("ranks wait {percent:.0} % of the time for others in collectives; rank {rank} comes last"));
    }
    if let (Some(spread), Some(rank)) = (between.spread_percent, between.slowest_rank)
        && spread >= ALIKE
    {
        let longer = match spread {
            much if much >= 200.0 => format!("{:.0} times as long as", 1.0 + much / 100.0),
            some => format!("{some:.0} % longer than"),
        };
        said.push(format!(
            "in a step the slowest rank computes {longer} the fastest; in {} of {} steps it is rank {rank}",
            between.slowest_steps, between.steps
        ));
    }
    for line in said.iter().flat_map(|line| wrapped(line, width)) {
        let _ = writeln!(text, "{line}");
    }
}

fn tell(text: &mut String, note: &str, width: usize) {
    for (at, line) in wrapped(note, width - 6).iter().enumerate() {
        let _ = writeln!(text, "{}{line}", if at == 0 { "note: " } else { "      " });
    }
}

/// The rank that is shown in full: the one that the others wait for, whose path is the job's, or the one that computes most.
fn shown(report: &Report) -> Option<&Rank> {
    let waited_for = report.between_ranks.as_ref().filter(|between| between.waiting_percent >= Some(ALIKE));
    let last = waited_for.and_then(|between| report.ranks.iter().find(|rank| Some(rank.rank) == between.last_rank));
    last.or_else(|| report.ranks.iter().max_by(|one, other| one.compute_us.total_cmp(&other.compute_us)))
}

fn header(text: &mut String, report: &Report) {
    let mut parts = Vec::new();
    if let Some(step) = report.step_us {
        let steps = report.ranks.iter().map(|rank| rank.steps).max().unwrap_or(0);
        parts.push(format!("{steps} {} of {}", if steps == 1 { "step" } else { "steps" }, time(step)));
    }
    if let Some(accelerator) = &report.accelerator {
        let several = if report.accelerators > 1 { format!("{} × ", report.accelerators) } else { String::new() };
        parts.push(format!("{several}{accelerator}"));
    }
    if let Some(usd) = report.usd_per_1000_steps {
        parts.push(format!("1,000 steps cost {}", dollars(usd)));
    }
    if !parts.is_empty() {
        let _ = writeln!(text, "{}", parts.join("   "));
    }
}

fn fixes(text: &mut String, report: &Report, width: usize) {
    if report.fixes.is_empty() {
        return;
    }
    let _ = writeln!(text, "\nWhat would pay most");
    for fix in &report.fixes {
        let usd = fix.usd_per_1000_steps.map_or(String::new(), |usd| format!("  {:>9}", dollars(usd)));
        let saves = format!("{:>5.1} %{usd}  ", fix.saves_percent);
        let indent = saves.chars().count() + 2;
        for (at, line) in wrapped(&fix.what, width.saturating_sub(indent).max(30)).into_iter().enumerate() {
            let lead = if at == 0 { format!("  {saves}") } else { " ".repeat(indent) };
            let _ = writeln!(text, "{lead}{line}");
        }
    }
    if report.fixes.iter().any(|fix| fix.usd_per_1000_steps.is_some()) {
        let _ = writeln!(text, "  (shorter steps; dollars saved on 1,000 steps)");
    }
}

pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    // A number stays with its sign of percent.
    let text = text.replace(" %", "\u{a0}%");
    for word in text.split(' ') {
        let full = lines
            .last()
            .is_some_and(|line| !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width);
        if full {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word.replace('\u{a0}', " "));
        }
    }
    lines
}

/// The parts that a rank's time falls into; they add up to all of it.
pub fn parts(rank: &Rank) -> [(&'static str, f64); 8] {
    let host = &rank.host_wait_by_cause_us;
    let idle = &rank.idle_by_cause_us;
    let computing = rank.busy_us - rank.exposed_communication_us - rank.exposed_memory_us;
    [
        ("computing", computing),
        ("communication alone", rank.exposed_communication_us),
        ("copies alone", rank.exposed_memory_us),
        ("idle: host launches too late", host.launch),
        ("idle: host had waited for it", host.sync),
        ("idle: host loads data or is elsewhere", host.input),
        ("idle: between kernels", idle.kernel_wait),
        ("idle: other", idle.other),
    ]
}

fn one(text: &mut String, rank: &Rank, width: usize) {
    if rank.kernel_time_us <= 0.0 {
        return;
    }
    // HTA's idle times are sums over streams: they are told as they are, not as parts of a whole.
    if rank.streams.is_empty() {
        let _ = writeln!(text, "\nWhere {} go{}", time(rank.kernel_time_us), of_rank(rank));
        for (what, us) in parts(rank).into_iter().filter(|(_, us)| *us > 0.0) {
            let share = us / rank.kernel_time_us;
            let bar = "█".repeat((share * 30.0).round().clamp(0.0, 30.0) as usize);
            let _ = writeln!(text, "  {what:<38} {:>10} {:>5.1} %  {bar}", time(us), 100.0 * share);
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
    } else {
        like_hta(text, rank);
    }
    critical_path(text, rank, width);
    let names = width.saturating_sub(40).clamp(24, 64);
    let _ = writeln!(text, "\n{:<names$} {:>12} {:>6} {:>7} {:>9}", "Kernels", "time", "share", "runs", "mean");
    for kernel in rank.kernels.iter().take(KERNELS) {
        let _ = writeln!(text, "  {}", kernel_line(kernel, names));
    }
    let _ = writeln!(text);
    for fact in facts(rank) {
        for (at, line) in wrapped(&fact, width - 2).iter().enumerate() {
            let _ = writeln!(text, "{}{line}", if at > 0 { "  " } else { "" });
        }
    }
}

fn critical_path(text: &mut String, rank: &Rank, width: usize) {
    let Some(path) = &rank.critical_path else { return };
    let _ = writeln!(text, "\nCritical path of step {}: {}", path.step, time(path.length_us));
    for part in path.parts.iter().filter(|part| part.percent >= 0.5) {
        let _ = writeln!(text, "  {:<38} {:>10} {:>5.1} %", part.what, time(part.us), part.percent);
    }
    for line in wrapped(&path.says, width - 2) {
        let _ = writeln!(text, "  {line}");
    }
}

fn of_rank(rank: &Rank) -> String {
    format!(" (rank {})", rank.rank)
}

fn like_hta(text: &mut String, rank: &Rank) {
    let _ = writeln!(text, "\nBy the definitions of Holistic Trace Analysis 0.5.0{}", of_rank(rank));
    let lines = [
        ("kernel time", rank.kernel_time_us),
        ("idle", rank.idle_us),
        ("compute", rank.compute_us),
        ("communication", rank.communication_us),
        ("memory", rank.memory_us),
    ];
    for (what, us) in lines {
        let _ = writeln!(text, "  {what:<14} {us:>14.3} µs");
    }
    for stream in &rank.streams {
        let idle = &stream.idle_by_cause_us;
        let _ = writeln!(
            text,
            "  stream {:<4} idle: host wait {:.3}, kernel wait {:.3}, other {:.3} µs",
            stream.stream, idle.host_wait, idle.kernel_wait, idle.other
        );
    }
}

fn kernel_line(kernel: &KernelLine, width: usize) -> String {
    format!(
        "{:<width$} {:>10} {:>4.0} % {:>7} {:>9}",
        cut(&kernel.short, width),
        time(kernel.total_us),
        kernel.percent,
        grouped(kernel.count.into()),
        time(kernel.mean_us)
    )
}

fn facts(rank: &Rank) -> Vec<String> {
    let mut lines = Vec::new();
    let launches = &rank.launches;
    if launches.count > 0 {
        let mut line = format!("launches {}", grouped(launches.count.into()));
        if let (Some(kernel), Some(delay)) = (launches.median_kernel_us, launches.median_delay_us) {
            line.push_str(&format!(", median kernel {}, median delay {}", time(kernel), time(delay)));
        }
        if let Some(shorter) = launches.shorter_than_call_percent {
            line.push_str(&format!(", {shorter:.0} % shorter than their call"));
        }
        if let Some(queue) = launches.queue_length {
            line.push_str(&format!(", {queue:.1} in the queue"));
        }
        lines.push(line);
    }
    let mut quality = Vec::new();
    quality.extend(rank.tensor_core_percent.map(|share| format!("tensor cores {share:.0} % of kernel time")));
    quality.extend(rank.occupancy_percent.map(|share| format!("estimated occupancy {share:.0} %")));
    quality.extend(rank.overlap_percent.map(|share| format!("{share:.0} % of communication overlapped")));
    quality.extend(rank.roofline.mfu_percent.map(|share| format!("MFU {share:.1} %")));
    quality.extend(rank.step_variation_percent.map(|share| format!("steps differ by {share:.0} %")));
    if !quality.is_empty() {
        lines.push(quality.join(", "));
    }
    let kinds: Vec<String> = rank
        .kinds
        .iter()
        .filter(|kind| kind.percent >= 3.0)
        .take(5)
        .map(|kind| format!("{} {:.0} %", kind.kind, kind.percent))
        .collect();
    if !kinds.is_empty() {
        lines.push(format!("kernel time by kind: {}", kinds.join(", ")));
    }
    if let Some(point) = rank.roofline.points.first() {
        let reached =
            point.reached_percent.map_or(String::new(), |percent| format!(", {percent:.0} % of what is attainable"));
        lines.push(format!(
            "largest operator with known shapes: {} {} {}, {:.0} FLOP/byte, {:.1} TFLOP/s{reached}",
            point.operator,
            cut(&point.shapes, 40),
            point.precision,
            point.flop_per_byte,
            point.tflops
        ));
    }
    lines
}

fn several(text: &mut String, ranks: &[Rank]) {
    let _ = writeln!(text, "\nrank   kernel time      busy   compute  communication  exposed  overlap      idle");
    for rank in ranks.iter().take(RANKS) {
        let share = |us: f64| {
            format!("{:.1} %", if rank.kernel_time_us > 0.0 { 100.0 * us / rank.kernel_time_us } else { 0.0 })
        };
        let _ = writeln!(
            text,
            "{:>4}   {:>11}  {:>8}  {:>8}  {:>13}  {:>7}  {:>7}  {:>8}",
            rank.rank,
            time(rank.kernel_time_us),
            share(rank.busy_us),
            share(rank.compute_us),
            share(rank.communication_us),
            share(rank.exposed_communication_us),
            rank.overlap_percent.map_or("-".to_owned(), |percent| format!("{percent:.0} %")),
            share(rank.idle_us),
        );
    }
    if ranks.len() > RANKS {
        let _ = writeln!(text, "and {} more ranks (--json has them all)", ranks.len() - RANKS);
    }
}
