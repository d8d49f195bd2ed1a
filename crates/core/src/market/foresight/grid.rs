//! The grids of a plan. It is solved with every tick of time and of slack; what is kept are values by slack and by
//! *span*, the time left beyond the slack. In these two a value is smooth, and where the work ends the span is short
//! and every tick of it is kept: nothing is read across "no work left", which would invent savings for short jobs.

/// Ticks of slack up to which a step is so many ticks, when solving.
const SOLVED: [(f32, f32); 3] = [(4.0, 0.2), (12.0, 0.5), (f32::MAX, 1.0)];

/// What is kept of all that is solved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// Ticks of slack up to which a step is so many ticks; every point must be one that is solved.
    slacks: &'static [(f32, f32)],
    /// Ticks of span up to which every so many are kept, beyond those in which the work ends.
    spans: &'static [(u32, u32)],
}

impl Keep {
    /// Many points where values bend, few where they are straight.
    pub const USUAL: Keep = Keep {
        slacks: &[(4.0, 0.2), (12.0, 0.5), (24.0, 1.0), (48.0, 2.0), (96.0, 4.0), (f32::MAX, 8.0)],
        spans: &[(16, 1), (32, 2), (64, 4), (128, 8), (u32::MAX, 16)],
    };
    /// Every tick: what the usual grid is held against.
    #[cfg(test)]
    pub const EVERYTHING: Keep = Keep { slacks: &SOLVED, spans: &[(u32::MAX, 1)] };
}

/// Slack points in ticks, from zero up.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlackGrid {
    pub points: Vec<f32>,
}

impl SlackGrid {
    /// The points that a plan is solved on, from zero to at least `most` ticks.
    pub fn solved(most: f32) -> SlackGrid {
        SlackGrid::up_to(most, &SOLVED)
    }

    /// The points that are kept, up to the last of a grid that was solved.
    fn kept(solved: &SlackGrid, keep: Keep) -> SlackGrid {
        let most = solved.points[solved.points.len() - 1];
        let mut kept = SlackGrid::up_to(most, keep.slacks);
        kept.points.retain(|point| *point < most - 1e-3);
        kept.points.push(most);
        kept
    }

    fn up_to(most: f32, steps: &[(f32, f32)]) -> SlackGrid {
        let mut points = vec![0.0_f32];
        while points[points.len() - 1] < most || points.len() < 2 {
            // Counted from the last band's end, so that rounding does not add up.
            let last = points[points.len() - 1];
            let (_, step) = steps.iter().find(|(until, _)| last + 1e-3 < *until).copied().unwrap_or((0.0, 1.0));
            let next = libm::roundf((last + step) / step) * step;
            points.push(next);
        }
        SlackGrid { points }
    }

    /// Where a slack lies: the lower of two points, and how far beyond it. A slack beyond the last point counts as that point.
    pub fn find(&self, slack: f32) -> (usize, f32) {
        let last = self.points.len() - 1;
        if slack >= self.points[last] {
            return (last - 1, 1.0);
        }
        let low = self.points.partition_point(|point| *point <= slack).saturating_sub(1).min(last - 1);
        let part = (slack - self.points[low]) / (self.points[low + 1] - self.points[low]);
        (low, part.max(0.0))
    }

    /// Every point after a loss of `by`.
    pub fn shifted(&self, by: f32) -> Shift {
        // Slack is a sum of whole ticks and changeovers: a rounding error must not forbid the last one.
        let first = self.points.partition_point(|point| point - by <= -1e-4);
        let places = self.points[first..].iter().map(|point| self.find((point - by).max(0.0)));
        Shift { first, places: places.map(|(low, part)| (low as u32, part)).collect() }
    }
}

/// All points after a loss of slack. The first ones have less slack than is lost.
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

/// Which (slack, span) are kept, and where each lies among them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct KeptGrid {
    slacks: SlackGrid,
    /// The kept point's place in the grid that is solved.
    solved_at: Vec<usize>,
    /// Whole ticks of span. At a slack of 2.4 the point of 7 is really 6.6: time is counted in whole ticks.
    spans: Vec<u32>,
    /// Where the spans of each slack begin; long spans of a large slack lie beyond the plan's time and are left out.
    begins: Vec<usize>,
    /// The last time left that has to be solved.
    pub last: u32,
}

/// Four kept points around a place, and how much each counts.
pub(super) type Corners = [(usize, f32); 4];

impl KeptGrid {
    /// What is kept of a plan over so many ticks; the work ends within `ending` ticks of span.
    pub fn of(solved: &SlackGrid, keep: Keep, ticks: u32, ending: f32) -> KeptGrid {
        let slacks = SlackGrid::kept(solved, keep);
        let find = |point: &f32| solved.points.partition_point(|known| *known < point - 1e-3);
        let solved_at = slacks.points.iter().map(find).collect();
        let ending = libm::ceilf(ending) as u32;
        let mut spans = vec![0];
        while spans[spans.len() - 1] < ticks {
            let last = spans[spans.len() - 1];
            let band = last.saturating_sub(ending);
            let every = keep.spans.iter().find(|(until, _)| band < *until).map_or(16, |(_, every)| *every);
            spans.push(last + every);
        }
        // A place is read between its neighbours, which may lie a cell beyond the plan's time.
        let cell = |pair: &[u32]| pair[1] - pair[0];
        let wide = slacks.points.windows(2).map(|pair| libm::ceilf(pair[1] - pair[0]) as u32).max().unwrap_or(1);
        let last = ticks + spans.windows(2).map(cell).max().unwrap_or(1) + wide + 1;
        let mut kept = KeptGrid { slacks, solved_at, spans, begins: vec![0], last };
        for slack in 0..kept.slacks.points.len() {
            let count = kept.spans.iter().filter(|span| kept.time_of(slack, **span) <= last).count();
            kept.begins.push(kept.begins[slack] + count);
        }
        kept
    }

    /// How many points there are.
    pub fn len(&self) -> usize {
        self.begins[self.begins.len() - 1]
    }

    /// The time left at a kept slack and span.
    fn time_of(&self, slack: usize, span: u32) -> u32 {
        libm::floorf(self.slacks.points[slack] + 1e-3) as u32 + span
    }

    /// What is kept of the layer of a time left: the point's number, and its place in the grid that is solved.
    pub fn at_time(&self, time: u32) -> impl Iterator<Item = (usize, usize)> {
        (0..self.slacks.points.len()).filter_map(move |slack| {
            let span = time.checked_sub(self.time_of(slack, 0))?;
            let number = self.spans.binary_search(&span).ok()?;
            Some((self.begins[slack] + number, self.solved_at[slack]))
        })
    }

    /// The points around a time left and a slack, both in ticks.
    pub fn around(&self, time: f32, slack: f32) -> Corners {
        let span = (time - slack).max(0.0);
        let (low, part) = self.slacks.find(slack);
        let [a, b] = self.between(low, span);
        let [c, d] = self.between(low + 1, span);
        let part_of = |(place, weight): (usize, f32), of: f32| (place, weight * of);
        [part_of(a, 1.0 - part), part_of(b, 1.0 - part), part_of(c, part), part_of(d, part)]
    }

    /// The two points of a slack between which a span lies.
    fn between(&self, slack: usize, span: f32) -> [(usize, f32); 2] {
        // The points of a slack that is no whole tick are a little shorter than they are named, but none below nothing.
        let less = (self.slacks.points[slack] - self.time_of(slack, 0) as f32).max(0.0);
        let real = |known: &u32| (*known as f32 - less).max(0.0);
        let count = self.begins[slack + 1] - self.begins[slack];
        let high = self.spans[..count].partition_point(|known| real(known) <= span).clamp(1, count - 1);
        let (from, to) = (real(&self.spans[high - 1]), real(&self.spans[high]));
        let part = ((span - from) / (to - from)).clamp(0.0, 1.0);
        [(self.begins[slack] + high - 1, 1.0 - part), (self.begins[slack] + high, part)]
    }
}
