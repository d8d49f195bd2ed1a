//! The figures of one rank, put into words of the report, with notes on what was odd in its trace.

use crate::analysis::hta::{HtaFigures, IdleByCause};
use crate::analysis::path::{Part, Path};
use crate::analysis::unions::{COMMUNICATION, COMPUTE, MEMORY};
use crate::analysis::{Figures, KernelTotal, sum};
use crate::read::Walk;
use crate::read::source::Ending;
use crate::report::{HostWait, KernelLine, KindLine, LaunchReport, PathPart, PathReport, Rank, StreamIdle};
use crate::roofline::Roofline;
use crate::trace::kernel::{Kernel, short};
use crate::trace::names::NameId;
use crate::trace::{Trace, Whose};

/// Kernels that are listed.
const LISTED: usize = 40;

/// Steps that are listed one by one.
const LISTED_STEPS: usize = 500;

fn us(ns: i64) -> f64 {
    ns as f64 / 1_000.0
}

fn percent(part: i64, whole: i64) -> Option<f64> {
    (whole > 0).then(|| 100.0 * part as f64 / whole as f64)
}

/// The report of one rank by our own definitions.
pub fn rank(
    number: u64,
    file: String,
    trace: &Trace,
    figures: &Figures,
    roofline: Roofline,
    notes: Vec<String>,
) -> Rank {
    let unions = &figures.unions;
    let idle = &figures.idle;
    let communication = unions.with(COMMUNICATION);
    Rank {
        rank: number,
        file,
        kernel_time_us: us(unions.span()),
        busy_us: us(unions.busy()),
        idle_us: us(unions.span() - unions.busy()),
        compute_us: us(unions.with(COMPUTE)),
        communication_us: us(communication),
        memory_us: us(unions.with(MEMORY)),
        overlap_percent: percent(unions.both(COMPUTE, COMMUNICATION), communication),
        idle_by_cause_us: IdleByCause {
            host_wait: us(idle.host_ns()),
            kernel_wait: us(idle.kernel_wait_ns),
            other: us(idle.other_ns),
        },
        host_wait_by_cause_us: HostWait {
            launch: us(idle.launch_ns),
            sync: us(idle.sync_ns),
            input: us(idle.input_ns),
        },
        exposed_communication_us: us(unions.ns[COMMUNICATION] + unions.ns[COMMUNICATION | MEMORY]),
        exposed_memory_us: us(unions.ns[MEMORY]),
        steps: figures.steps.steps.len() as u64,
        step_us: figures.steps.mean_us(),
        step_variation_percent: figures.steps.variation().map(|share| 100.0 * share),
        step_times: figures.steps.steps.iter().take(LISTED_STEPS).copied().collect(),
        critical_path: figures.path.as_ref().map(|path| critical_path(trace, path)),
        tensor_core_percent: percent(figures.tensor_ns, figures.kernel_ns),
        occupancy_percent: figures.occupancy_percent,
        launches: launches(figures),
        kinds: kinds(figures),
        kernels: figures.kernels.iter().take(LISTED).map(|line| kernel(trace, figures, line)).collect(),
        streams: Vec::new(),
        roofline,
        notes,
    }
}

/// Replaces what HTA defines otherwise by HTA's figures.
pub fn like_hta(rank: &mut Rank, hta: &HtaFigures) {
    rank.kernel_time_us = hta.kernel_time_us;
    rank.idle_us = hta.idle_us;
    rank.busy_us = ((hta.kernel_time_us - hta.idle_us) * 1e3).round() / 1e3;
    rank.compute_us = hta.compute_us;
    rank.communication_us = hta.communication_us;
    rank.memory_us = hta.memory_us;
    rank.overlap_percent = hta.overlap_percent;
    let streams = hta.idle_by_stream_us.iter();
    rank.streams = streams.map(|(stream, idle)| StreamIdle { stream: *stream, idle_by_cause_us: *idle }).collect();
    rank.idle_by_cause_us = hta.idle_by_stream_us.iter().fold(IdleByCause::default(), |sum, (_, idle)| IdleByCause {
        host_wait: sum.host_wait + idle.host_wait,
        kernel_wait: sum.kernel_wait + idle.kernel_wait,
        other: sum.other + idle.other,
    });
}

fn launches(figures: &Figures) -> LaunchReport {
    let launches = &figures.launches;
    let count = launches.count;
    LaunchReport {
        count,
        mean_call_us: (launches.calls > 0).then(|| us(launches.calls_ns) / launches.calls as f64),
        median_kernel_us: launches.duration_us(0.5),
        median_delay_us: launches.delay_us(0.5),
        shorter_than_call_percent: percent(launches.shorter_than_call as i64, launches.calls as i64),
        queue_length: launches.queue_length(figures.unions.span()),
        waits: figures.waits,
        host_us: us(figures.dispatch_ns),
    }
}

/// Kernels of a path that are listed.
const ON_PATH: usize = 5;

fn critical_path(trace: &Trace, path: &Path) -> PathReport {
    let length = path.end_ns - path.start_ns;
    let part = |what: String, ns: i64| PathPart { what, us: us(ns), percent: percent(ns, length).unwrap_or(0.0) };
    let kernels = path.kernels.iter().take(ON_PATH);
    PathReport {
        step: path.step,
        length_us: us(length),
        parts: path.parts.iter().map(|(what, ns)| part(what.words().to_owned(), *ns)).collect(),
        kernels: kernels.map(|(name, ns)| part(short(trace.names.text(*name)), *ns)).collect(),
        work_us: us(path.work_ns),
        says: says(path, length),
    }
}

/// What a path means for who wants a shorter step.
fn says(path: &Path, length: i64) -> String {
    let of = |parts: &[Part]| sum(parts.iter().filter_map(|part| path.parts.get(part).copied()));
    let share = |ns: i64| percent(ns, length).unwrap_or(0.0);
    let work = of(&[Part::Computing, Part::Communication, Part::Copies]);
    let host = of(&[Part::Host, Part::HostElsewhere, Part::LaunchDelay, Part::Return]);
    match () {
        () if host > work => format!(
            "the host decides: {:.0} % of the path is its time; if the accelerator took no time at all, the step would be at most {:.0} % shorter",
            share(host),
            share(work)
        ),
        () if 2 * of(&[Part::Communication]) > work => format!(
            "communication decides: {:.0} % of the path; faster kernels save at most {:.0} %",
            share(of(&[Part::Communication])),
            share(of(&[Part::Computing]))
        ),
        () => format!(
            "the accelerator decides: {:.0} % of the path is its work; a host that took no time would save at most {:.0} %",
            share(work),
            share(host)
        ),
    }
}

fn kinds(figures: &Figures) -> Vec<KindLine> {
    let line = |(kind, ns): &(crate::trace::kernel::Kind, i64)| KindLine {
        kind: kind.word(),
        total_us: us(*ns),
        percent: percent(*ns, figures.kernel_ns).unwrap_or(0.0),
    };
    figures.kinds.iter().map(line).collect()
}

fn kernel(trace: &Trace, figures: &Figures, (name, kernel, total): &(NameId, Kernel, KernelTotal)) -> KernelLine {
    let all = sum(figures.kernels.iter().map(|(.., total)| total.total_ns));
    let full = trace.names.text(*name);
    KernelLine {
        name: full.to_owned(),
        short: short(full),
        class: kernel.class,
        kind: kernel.kind.word(),
        tensor: kernel.tensor,
        precision: kernel.precision.map(|precision| precision.word()),
        count: total.count,
        total_us: us(total.total_ns),
        mean_us: us(total.total_ns) / total.count.max(1) as f64,
        longest_us: us(total.longest_ns),
        percent: percent(total.total_ns, all).unwrap_or(0.0),
    }
}

/// What was odd in a trace and what that means for its figures.
pub fn notes(trace: &Trace, whose: Whose, walk: &Walk, figures: &Figures) -> Vec<String> {
    let mut notes = Vec::new();
    match &walk.ending {
        Ending::Truncated => notes.push("the gzip file ends early: what came before is analysed".to_owned()),
        Ending::Corrupt(why) => notes.push(format!("the file cannot be read to its end: {why}")),
        Ending::Whole if walk.cut => notes.push("the JSON text ends early: what came before is analysed".to_owned()),
        Ending::Whole => {}
    }
    let oddities = &trace.oddities;
    let counted = [
        (walk.broken, "broken pieces of JSON were skipped"),
        (oddities.unfinished, "spans without a start or a duration were skipped"),
        (oddities.negative, "spans with a negative duration were skipped"),
        (oddities.impossible, "spans with an impossible time were skipped"),
        (
            oddities.sync_markers,
            "markers of synchronisation on the accelerator are no work and were not counted (HTA counts them)",
        ),
        (
            oddities.without_launch,
            "spans on the accelerator have no launch in the trace; they count as work (HTA drops them where the trace has steps)",
        ),
    ];
    notes.extend(counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    let devices = trace.worked().len();
    if devices > 1 && whose == Whose::All {
        notes.push(format!("the trace has work of {devices} accelerators; they are counted as one"));
    }
    if figures.kernels.is_empty() {
        notes.push(match trace.host_events {
            0 => "the trace has no spans of host or accelerator".to_owned(),
            spans => format!("the trace has {spans} spans of the host and none of an accelerator: it was recorded without accelerator activities, or the program used none"),
        });
    } else if trace.steps.is_empty() {
        notes.push(format!(
            "the trace marks no steps ({}), so nothing is said by step",
            trace.header.program.step_words()
        ));
    }
    notes
}
