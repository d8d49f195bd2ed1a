//! The critical path of one step: the chain of work in which every link waited for the one before it, from the end of the
//! step back to its beginning. What is not on it does not make the step longer.
//!
//! A trace has no list of dependencies, so each link is chosen by what ended last before it began: the span before it in its
//! stream, the call that launched it, or a span of another stream. On the host the path goes back through the threads that
//! launch, all taken together, until a call that waited for the accelerator. What other ranks do is not in the trace: a
//! collective counts as long as it ran.

use super::host::ELSEWHERE_NS;
use super::hta::KERNEL_WAIT_NS;
use super::unions::sum;
use crate::trace::kernel::Class;
use crate::trace::names::NameId;
use crate::trace::rows::{DeviceRow, Doing, HostRow, OURS};
use crate::trace::{Step, Trace, Whose};
use std::collections::{BTreeMap, HashMap};

/// Spans of one step that are kept in memory; a step with more has no path.
const MOST: usize = 1_000_000;

/// Spans that are looked at to find the one that something waited for.
const LOOKED_AT: usize = 64;

/// Work that was queued starts this soon after what it waited for.
const SOON_NS: i64 = 10_000;

/// A copy from pageable memory may end this long after its call came back, which was when the last piece was staged.
const RETURN_NS: i64 = 50_000;

/// What the time on a path went to. The order is that of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    Computing,
    Communication,
    Copies,
    /// Operators and calls of the host, and the short pauses between them.
    Host,
    /// Long pauses of the host: data, Python, the disk.
    HostElsewhere,
    /// From the end of a launching call to the start of the work.
    LaunchDelay,
    /// From the end of one span to the start of the next that waited for it.
    Between,
    /// From the end of the work to the return of the call that waited for it.
    Return,
}

impl Part {
    /// The words for people.
    pub fn words(self) -> &'static str {
        match self {
            Part::Computing => "computing",
            Part::Communication => "communication",
            Part::Copies => "copies",
            Part::Host => "host launches",
            Part::HostElsewhere => "host loads data or is elsewhere",
            Part::LaunchDelay => "from launch to start",
            Part::Between => "between spans of the accelerator",
            Part::Return => "return from waiting",
        }
    }
}

/// The critical path of one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    pub step: u64,
    pub start_ns: i64,
    pub end_ns: i64,
    pub parts: BTreeMap<Part, i64>,
    /// Time of kernels on the path, most first.
    pub kernels: Vec<(NameId, i64)>,
    /// Time of all work that the step launched, on the path or not; overlaps count twice.
    pub work_ns: i64,
}

/// The path of the step whose length is the median; none without steps or launches.
pub fn path(trace: &Trace, whose: Whose) -> Option<Path> {
    let step = median(&trace.steps)?;
    let spans = spans(trace, whose, step)?;
    let host = HostTime::of(trace, step, spans.rows.iter().map(|span| span.end_ns).max()?);
    Some(Walk::new(trace, step, spans, host).walk())
}

fn median(steps: &[Step]) -> Option<Step> {
    let mut by_length: Vec<&Step> = steps.iter().collect();
    by_length.sort_by_key(|step| (step.end_ns - step.start_ns, step.number));
    by_length.get(by_length.len() / 2).copied().copied()
}

/// Spans of a step in the order of their starts, and before each in its stream the one of an earlier step, if there is one.
struct Spans {
    rows: Vec<DeviceRow>,
    /// The step launched it.
    own: Vec<bool>,
}

fn spans(trace: &Trace, whose: Whose, step: Step) -> Option<Spans> {
    let launched =
        |row: &DeviceRow| row.launch.is_some_and(|launch| (step.start_ns..step.end_ns).contains(&launch.start_ns));
    let mut found: Vec<(DeviceRow, bool)> = Vec::new();
    let mut others: HashMap<u16, DeviceRow> = HashMap::new();
    for row in trace.spans(whose).filter(|row| row.flags & OURS != 0) {
        if !launched(&row) {
            others.insert(row.stream, row);
            continue;
        }
        found.extend(others.remove(&row.stream).map(|other| (other, false)));
        found.push((row, true));
        if found.len() > MOST {
            return None;
        }
    }
    found.sort_by_key(|(row, _)| (row.start_ns, row.end_ns));
    let (rows, own): (Vec<DeviceRow>, Vec<bool>) = found.into_iter().unzip();
    own.contains(&true).then_some(Spans { rows, own })
}

/// What the launching threads did in a step, all together.
struct HostTime {
    /// Stretches in operators and calls, in order, apart from each other.
    busy: Vec<(i64, i64)>,
    /// Calls that waited or were held up, by their ends.
    waits: Vec<(i64, i64)>,
}

impl HostTime {
    fn of(trace: &Trace, step: Step, until_ns: i64) -> HostTime {
        let mut busy: Vec<(i64, i64)> = Vec::new();
        let mut waits = Vec::new();
        let rows = trace.host.iter().map(HostRow::unpack).take_while(|row| row.start_ns < until_ns);
        let of_step = |row: &HostRow| {
            row.end_ns > step.start_ns && trace.launching.get(usize::from(row.thread)).copied().unwrap_or(false)
        };
        for row in rows.filter(of_step).take(MOST) {
            if matches!(row.doing, Doing::Waiting | Doing::HeldUp) {
                waits.push((row.start_ns, row.end_ns));
            }
            if row.doing == Doing::Loading {
                continue;
            }
            match busy.last_mut() {
                Some(last) if row.start_ns <= last.1 => last.1 = last.1.max(row.end_ns),
                _ => busy.push((row.start_ns, row.end_ns)),
            }
        }
        waits.sort_by_key(|(start, end)| (*end, *start));
        HostTime { busy, waits }
    }

    /// Time between two moments that lies in long pauses.
    fn elsewhere(&self, from: i64, until: i64) -> i64 {
        let mut at = self.busy.partition_point(|(_, end)| *end <= from);
        let mut idle_from = at.checked_sub(1).map_or(from, |before| self.busy[before].1);
        let mut total = 0;
        while idle_from < until {
            let (start, end) = self.busy.get(at).copied().unwrap_or((i64::MAX, i64::MAX));
            if start.saturating_sub(idle_from) >= ELSEWHERE_NS {
                total += (start.min(until) - idle_from.max(from)).max(0);
            }
            idle_from = end;
            at += 1;
        }
        total
    }
}

/// Where the path is.
enum At {
    Span(usize),
    Host,
}

/// Goes back from the end of a step.
struct Walk<'t> {
    trace: &'t Trace,
    spans: Vec<DeviceRow>,
    own: Vec<bool>,
    host: HostTime,
    /// The span before each in its stream.
    before: Vec<Option<usize>>,
    /// Spans by their ends.
    ends: Vec<(i64, usize)>,
    kernels: HashMap<NameId, i64>,
    path: Path,
}

impl<'t> Walk<'t> {
    fn new(trace: &'t Trace, step: Step, Spans { rows: spans, own }: Spans, host: HostTime) -> Walk<'t> {
        let mut last: HashMap<u16, usize> = HashMap::new();
        let before = spans.iter().enumerate().map(|(at, span)| last.insert(span.stream, at)).collect();
        let mut ends: Vec<(i64, usize)> = spans.iter().enumerate().map(|(at, span)| (span.end_ns, at)).collect();
        ends.sort_unstable();
        let path = Path {
            step: step.number,
            start_ns: step.start_ns,
            end_ns: step.start_ns,
            parts: BTreeMap::new(),
            kernels: Vec::new(),
            work_ns: sum(spans.iter().zip(&own).filter(|(_, own)| **own).map(|(span, _)| span.duration_ns())),
        };
        Walk { trace, spans, own, host, before, ends, kernels: HashMap::new(), path }
    }

    fn walk(mut self) -> Path {
        let Some((end_ns, last)) = self.ends.iter().rev().find(|(_, at)| self.own[*at]).copied() else {
            return self.path;
        };
        self.path.end_ns = end_ns;
        let begin_ns = self.path.start_ns;
        let (mut at, mut now) = (At::Span(last), end_ns);
        // Every turn goes back in time or to an earlier span, so this ends.
        loop {
            let next = match at {
                At::Span(span) => self.behind_span(span, &mut now),
                At::Host => self.behind_host(&mut now, begin_ns),
            };
            match next {
                Some(next) => at = next,
                None => break,
            }
        }
        self.path.start_ns = now;
        self.path.kernels = self.kernels.into_iter().collect();
        self.path.kernels.sort_by_key(|(name, ns)| (std::cmp::Reverse(*ns), *name));
        self.path
    }

    /// Counts the time back to a moment.
    fn count(&mut self, part: Part, now: &mut i64, back_to: i64) -> i64 {
        let time = (*now - back_to).max(0);
        if time > 0 {
            *self.path.parts.entry(part).or_default() += time;
            *now = back_to;
        }
        time
    }

    fn behind_span(&mut self, at: usize, now: &mut i64) -> Option<At> {
        let span = self.spans[at];
        let part = match self.trace.names.kernel(span.name).class {
            Class::Communication => Part::Communication,
            Class::Memory => Part::Copies,
            _ => Part::Computing,
        };
        let time = self.count(part, now, span.start_ns);
        *self.kernels.entry(span.name).or_default() += time;
        let launch = span.launch?;
        let called = launch.start_ns.saturating_add(i64::from(launch.duration_ns)).min(span.start_ns);
        let in_stream = self.before[at].map(|before| (self.spans[before].end_ns, before));
        let beside = self.ended_beside(at);
        let soon = |ended: Option<(i64, usize)>| ended.filter(|(end, _)| span.start_ns - end <= SOON_NS);
        let late = in_stream.is_none_or(|(end, _)| end < launch.start_ns);
        let chosen = match () {
            // Queued behind the span before it.
            () if !late && soon(in_stream).is_some() => in_stream,
            // Launched long before: it waited for what ended last, most likely by an event.
            () if span.start_ns - called > KERNEL_WAIT_NS
                && in_stream.max(beside).is_some_and(|(end, _)| end > called) =>
            {
                in_stream.max(beside)
            }
            () if late => None,
            () => in_stream,
        };
        match chosen {
            // The accelerator was still at an earlier step: this one began when it was free.
            Some((_, before)) if !self.own[before] => None,
            Some((end, before)) => {
                self.count(Part::Between, now, end);
                Some(At::Span(before))
            }
            None => {
                self.count(Part::LaunchDelay, now, called);
                Some(At::Host)
            }
        }
    }

    /// The span of another stream that ended last before this one began.
    fn ended_beside(&self, at: usize) -> Option<(i64, usize)> {
        let span = &self.spans[at];
        let until = self.ends.partition_point(|(end, _)| *end <= span.start_ns);
        let other = |(_, other): &&(i64, usize)| self.spans[*other].stream != span.stream && *other < at;
        self.ends[..until].iter().rev().take(LOOKED_AT).find(other).copied()
    }

    fn behind_host(&mut self, now: &mut i64, begin_ns: i64) -> Option<At> {
        let found = self.waited(*now);
        let back_to = found.map_or(begin_ns, |((_, returned), _)| returned.max(begin_ns));
        let elsewhere = self.host.elsewhere(back_to, *now).min((*now - back_to).max(0));
        let turn = *now - elsewhere;
        self.count(Part::HostElsewhere, now, turn);
        self.count(Part::Host, now, back_to);
        let (_, span) = found?;
        self.count(Part::Return, now, self.spans[span].end_ns.max(begin_ns));
        // What it waited for was an earlier step's: this one began when that was done.
        self.own[span].then_some(At::Span(span))
    }

    /// The last call before a moment that came back because the accelerator was done, and the span it waited for. The way
    /// goes back only, so calls that were looked at are not looked at again.
    fn waited(&mut self, now: i64) -> Option<((i64, i64), usize)> {
        let until = self.host.waits.partition_point(|(_, end)| *end <= now);
        self.host.waits.truncate(until);
        while let Some(wait) = self.host.waits.pop() {
            let done = self.ends.partition_point(|(end, _)| *end <= wait.1 + RETURN_NS);
            // What is waited for was there before the wait was over.
            let there = |(end, span): &&(i64, usize)| *end >= wait.0 && self.spans[*span].start_ns < wait.1;
            if let Some((_, span)) = self.ends[..done].iter().rev().take(LOOKED_AT).find(there) {
                return Some((wait, *span));
            }
        }
        None
    }
}
