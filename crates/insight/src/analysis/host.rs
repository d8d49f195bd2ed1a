//! What the host did while the accelerator had nothing to do.
//!
//! Only threads that launch work count. A gap is the host's when the work that ends it was launched after the gap began.
//! The host was then *elsewhere* (a data loader, Python, the disk) where none of its threads was in an operator or a call
//! for long; it had *waited for the accelerator* when a call that waits came back after the gap began; else it was busy
//! launching, and too slow.

use super::unions::{Gap, sum};
use crate::spool::Rows;
use crate::trace::Trace;
use crate::trace::rows::{Doing, HostRow};
use std::collections::VecDeque;
use std::iter::Peekable;

/// A pause between operators that is longer than this is not the cost of launching: Python takes 5 to 50 µs between two.
pub const ELSEWHERE_NS: i64 = 200_000;

/// A call that waits returns about as long after the work as this.
const RETURN_NS: i64 = 50_000;

/// What the host did in a gap that it caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostGap {
    /// Loading data or doing something that the trace does not show.
    pub input_ns: i64,
    /// After it had waited for the accelerator.
    pub sync_ns: i64,
    pub launch_ns: i64,
}

/// Host spans in order, as far as they matter to the next gap.
pub struct Host<'t> {
    rows: Peekable<Rows<'t, { HostRow::WIDTH }>>,
    launching: &'t [bool],
    /// Time in operators and calls, all launching threads together.
    busy: VecDeque<(i64, i64)>,
    loading: VecDeque<(i64, i64)>,
    waiting: VecDeque<(i64, i64)>,
    /// When the last busy stretch that was dropped ended.
    dropped_ns: i64,
    /// All time in operators and calls of launching threads.
    pub dispatch_ns: i64,
    /// Calls that wait.
    pub waits: u64,
    pub waits_ns: i64,
    /// Time in calls that were held up.
    pub held_up_ns: i64,
}

impl<'t> Host<'t> {
    /// The host of a trace, before its first span.
    pub fn of(trace: &'t Trace) -> Host<'t> {
        Host {
            rows: trace.host.iter().peekable(),
            launching: &trace.launching,
            busy: VecDeque::new(),
            loading: VecDeque::new(),
            waiting: VecDeque::new(),
            dropped_ns: i64::MIN,
            dispatch_ns: 0,
            waits: 0,
            waits_ns: 0,
            held_up_ns: 0,
        }
    }

    /// Splits a gap that ends with work launched at `launched_ns`.
    pub fn split(&mut self, gap: Gap, launched_ns: i64) -> HostGap {
        let until = launched_ns.clamp(gap.start_ns, gap.end_ns);
        self.take_until(until);
        self.drop_before(gap.start_ns);
        let elsewhere = self.elsewhere(gap.start_ns, until);
        let loading = sum(self.loading.iter().map(|span| overlap(*span, gap.start_ns, until)));
        let input_ns = elsewhere.max(loading.min(until - gap.start_ns));
        let waited = self.waiting.iter().any(|(start, end)| *end >= gap.start_ns - RETURN_NS && *start < until);
        let rest = gap.end_ns - gap.start_ns - input_ns;
        let (sync_ns, launch_ns) = if waited { (rest, 0) } else { (0, rest) };
        HostGap { input_ns, sync_ns, launch_ns }
    }

    /// Reads what is left, so that totals are whole.
    pub fn finish(&mut self) {
        self.take_until(i64::MAX);
        self.drop_before(i64::MAX);
    }

    fn take_until(&mut self, until: i64) {
        while let Some(row) = self.rows.next_if(|row| HostRow::unpack(*row).start_ns < until) {
            let row = HostRow::unpack(row);
            if !self.launching.get(usize::from(row.thread)).copied().unwrap_or(false) {
                continue;
            }
            let span = (row.start_ns, row.end_ns);
            match row.doing {
                Doing::Loading => self.loading.push_back(span),
                Doing::Waiting => {
                    self.waits += 1;
                    self.waits_ns = self.waits_ns.saturating_add(row.end_ns - row.start_ns);
                    self.waiting.push_back(span);
                }
                Doing::HeldUp => self.held_up_ns = self.held_up_ns.saturating_add(row.end_ns - row.start_ns),
                Doing::Work => {}
            }
            if row.doing == Doing::Loading {
                continue;
            }
            let from = match self.busy.back_mut() {
                Some(last) if row.start_ns <= last.1 => {
                    let from = last.1;
                    last.1 = last.1.max(row.end_ns);
                    from
                }
                _ => {
                    self.busy.push_back(span);
                    row.start_ns
                }
            };
            self.dispatch_ns = self.dispatch_ns.saturating_add((row.end_ns - from).max(0));
        }
    }

    fn drop_before(&mut self, time: i64) {
        while let Some((_, end)) = self.busy.front().copied().filter(|(_, end)| *end <= time) {
            self.dropped_ns = end;
            self.busy.pop_front();
        }
        self.loading.retain(|(_, end)| *end > time);
        self.waiting.retain(|(_, end)| *end > time.saturating_sub(RETURN_NS));
    }

    /// Time between `from` and `until` within long stretches in which no launching thread did anything.
    fn elsewhere(&self, from: i64, until: i64) -> i64 {
        let mut total = 0;
        let mut idle_from = self.dropped_ns;
        let ends = std::iter::once((until.max(from), until));
        for (start, end) in self.busy.iter().copied().chain(ends) {
            let stretch = start.saturating_sub(idle_from);
            if stretch >= ELSEWHERE_NS {
                total += overlap((idle_from, start), from, until);
            }
            idle_from = idle_from.max(end);
        }
        total
    }
}

fn overlap((start, end): (i64, i64), from: i64, until: i64) -> i64 {
    (end.min(until) - start.max(from)).max(0)
}
