//! The grid of a plan: slack in steps that are fine where it is short, and the times left at which values are
//! kept. Between its points a value is interpolated.

/// (until so many ticks of slack, steps to a tick or ticks to a step).
const SLACK_STEPS: [(f32, f32); 6] = [(4.0, 0.2), (12.0, 0.5), (24.0, 1.0), (48.0, 2.0), (96.0, 4.0), (f32::MAX, 8.0)];
/// (until so many ticks left, every so many of them are kept).
const KEPT_EVERY: [(u32, u32); 4] = [(16, 1), (64, 4), (192, 8), (u32::MAX, 16)];

/// A place between two points: the lower one, and how far beyond it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Between {
    pub low: usize,
    pub part: f32,
}

/// Slack points in ticks, from zero up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlackGrid {
    pub points: Vec<f32>,
}

impl SlackGrid {
    /// Points from zero to at least `most` ticks.
    pub fn up_to(most: f32) -> SlackGrid {
        let mut points = vec![0.0_f32];
        while points[points.len() - 1] < most || points.len() < 2 {
            // Counted from the last band's end, so that rounding does not add up.
            let last = points[points.len() - 1];
            let (_, step) = SLACK_STEPS.iter().find(|(until, _)| last + 1e-3 < *until).copied().unwrap_or((0.0, 8.0));
            let next = libm::roundf((last + step) / step) * step;
            points.push(next);
        }
        SlackGrid { points }
    }

    /// Where a slack lies; beyond the last point it is as good as there.
    pub fn find(&self, slack: f32) -> Between {
        let last = self.points.len() - 1;
        if slack >= self.points[last] {
            return Between { low: last - 1, part: 1.0 };
        }
        let low = self.points.partition_point(|point| *point <= slack).saturating_sub(1).min(last - 1);
        let part = (slack - self.points[low]) / (self.points[low + 1] - self.points[low]);
        Between { low, part: part.max(0.0) }
    }

    /// Every point after a loss of `by`.
    pub fn shifted(&self, by: f32) -> Shift {
        // Slack is a sum of whole ticks and changeovers: a rounding error must not forbid the last one.
        let first = self.points.partition_point(|point| point - by <= -1e-4);
        let places = self.points[first..].iter().map(|point| self.find((point - by).max(0.0)));
        Shift { first, places: places.map(|place| (place.low as u32, place.part)).collect() }
    }
}

/// All points after a loss of slack; the first ones cannot bear it.
#[derive(Clone, Debug)]
pub(super) struct Shift {
    first: usize,
    places: Vec<(u32, f32)>,
}

impl Shift {
    /// The values of a row after the loss; `forbidden` where it would take slack below zero.
    pub fn read(&self, row: &[f32], forbidden: f32, into: &mut [f32]) {
        let first = self.first.min(into.len());
        into[..first].fill(forbidden);
        for (into, (low, part)) in into[first..].iter_mut().zip(&self.places) {
            let pair = &row[*low as usize..*low as usize + 2];
            *into = pair[0] + part * (pair[1] - pair[0]);
        }
    }
}

/// Times left, in ticks, at which values are kept: all of the end, few of the beginning.
pub(super) fn kept_times(most: u32) -> Vec<u32> {
    let mut times = vec![0];
    while times[times.len() - 1] < most {
        let last = times[times.len() - 1];
        let every = KEPT_EVERY.iter().find(|(until, _)| last < *until).map_or(16, |(_, every)| *every);
        times.push(last + every);
    }
    times
}
