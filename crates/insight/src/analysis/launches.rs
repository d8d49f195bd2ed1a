//! How work gets from the host to the accelerator: how long calls take, how long work waits in the queue.

use crate::trace::rows::{DeviceRow, Launch};

/// Launches, in logarithmic classes where single ones would be too many to keep.
#[derive(Clone, Debug, Default)]
pub struct Launches {
    /// Spans whose launch is known.
    pub count: u64,
    /// Calls that launched them; one that launches a graph launches many.
    pub calls: u64,
    /// Time in launching calls.
    pub calls_ns: i64,
    /// Work that took less time than the call that launched it.
    pub shorter_than_call: u64,
    /// From the end of the call to the start of the work.
    pub delay_ns: i64,
    /// From the start of the call to the start of the work: time in the queue.
    queued_ns: i64,
    delays: Histogram,
    durations: Histogram,
    /// The call whose work came last, and the time of its work so far.
    open: Option<(Launch, i64)>,
}

impl Launches {
    /// Adds a span, if the call that launched it is known.
    pub fn add(&mut self, row: &DeviceRow) {
        let Some(launch) = row.launch else { return };
        let call = i64::from(launch.duration_ns);
        let delay = (row.start_ns.saturating_sub(launch.start_ns).saturating_sub(call)).max(0);
        self.count += 1;
        match &mut self.open {
            Some((open, work)) if *open == launch => *work = work.saturating_add(row.duration_ns()),
            _ => {
                self.finish();
                self.calls += 1;
                self.calls_ns = self.calls_ns.saturating_add(call);
                self.open = Some((launch, row.duration_ns()));
            }
        }
        self.delay_ns = self.delay_ns.saturating_add(delay);
        self.queued_ns = self.queued_ns.saturating_add(row.start_ns.saturating_sub(launch.start_ns).max(0));
        self.delays.add(delay);
        self.durations.add(row.duration_ns());
    }

    /// Ends the last call.
    pub fn finish(&mut self) {
        if let Some((launch, work)) = self.open.take() {
            self.shorter_than_call += u64::from(work < i64::from(launch.duration_ns));
        }
    }

    /// Mean number of launches that wait for the accelerator, over the time that it was looked at. By Little's law this
    /// is all time that was spent waiting, divided by the time that passed.
    pub fn queue_length(&self, span_ns: i64) -> Option<f64> {
        (span_ns > 0 && self.count > 0).then(|| self.queued_ns as f64 / span_ns as f64)
    }

    /// The delay that a share of all launches does not exceed.
    pub fn delay_us(&self, share: f64) -> Option<f64> {
        self.delays.quantile(share)
    }

    /// The duration that a share of all launched work does not exceed.
    pub fn duration_us(&self, share: f64) -> Option<f64> {
        self.durations.quantile(share)
    }
}

/// Counts by sixteenths of a power of two: quantiles to within 5 %.
#[derive(Clone, Debug)]
struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; 64 * 16], total: 0 }
    }
}

impl Histogram {
    fn add(&mut self, ns: i64) {
        let at = if ns <= 1 { 0 } else { ((ns as f64).log2() * 16.0) as usize };
        if let Some(count) = self.counts.get_mut(at) {
            *count += 1;
            self.total += 1;
        }
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = (self.total as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return Some(if at == 0 { 0.0 } else { ((at as f64 + 0.5) / 16.0).exp2() / 1_000.0 });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::names::NameId;
    use crate::trace::rows::OURS;

    #[test]
    fn a_graph_is_one_call_however_much_it_launches() {
        let mut launches = Launches::default();
        let launch = Some(Launch { start_ns: 0, duration_ns: 3_000, thread: 0 });
        for number in 0..4 {
            let start_ns = 4_000 + 1_000 * number;
            let (flags, name) = (OURS, NameId(0));
            launches.add(&DeviceRow {
                start_ns,
                end_ns: start_ns + 900,
                stream: 0,
                flags,
                occupancy: 255,
                name,
                launch,
            });
        }
        launches.finish();
        assert_eq!((launches.count, launches.calls, launches.calls_ns, launches.shorter_than_call), (4, 1, 3_000, 0));
    }

    #[test]
    fn delays_and_queues_are_what_they_are() {
        let mut launches = Launches::default();
        for number in 0..100 {
            let start_ns = 10_000 * number;
            let launch = Some(Launch { start_ns: start_ns - 8_000, duration_ns: 3_000, thread: 0 });
            let row = DeviceRow {
                start_ns,
                end_ns: start_ns + 2_000,
                stream: 0,
                flags: OURS,
                occupancy: 255,
                name: NameId(0),
                launch,
            };
            launches.add(&row);
        }
        launches.finish();
        assert_eq!((launches.count, launches.shorter_than_call, launches.delay_ns), (100, 100, 500_000));
        assert_eq!(launches.queue_length(1_000_000), Some(0.8));
        assert!((launches.delay_us(0.5).expect("it is there") - 5.0).abs() < 0.25);
        assert_eq!(Launches::default().delay_us(0.5), None);
    }
}
