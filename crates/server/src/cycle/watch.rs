//! What is known of one engine's being seen: when to look at it, whether what was seen is of now, and how long it has
//! been silent. Looks are asked for and answered later; nothing waits for one but the jobs that depend on it.

use super::missing::Missing;
use super::{Habits, Moment};
use std::collections::BTreeSet;
use std::time::Duration;
use windfall_core::{Brain, DecisionId, LeaseId, Time};

/// One engine, watched. Times are real time since the server began.
#[derive(Debug)]
pub(super) struct Watch {
    /// The look that is on its way, if there is one.
    looking: Option<Looking>,
    /// Looks so far.
    looks: u64,
    /// Something may have changed since the last look began.
    stirred: bool,
    /// When a look was last answered.
    seen_at: Option<Duration>,
    /// The same by the world's clock.
    seen_in_world: Option<Time>,
    /// How long that look took.
    took: Duration,
    /// Since when it is wanted to be seen and is not.
    wanted_since: Option<Moment>,
    /// Looks in a row that failed.
    failed: u32,
    not_before: Duration,
    swept: Option<Duration>,
    pub missing: Missing,
}

#[derive(Debug)]
struct Looking {
    began: Duration,
    groups: Vec<DecisionId>,
    sweep: bool,
    /// Leases whose end was logged since it began: what it shows of them is older.
    over: BTreeSet<LeaseId>,
}

impl Watch {
    pub fn new(now: Moment) -> Watch {
        Watch {
            looking: None,
            looks: 0,
            stirred: true,
            seen_at: None,
            seen_in_world: None,
            took: Duration::ZERO,
            wanted_since: Some(now),
            failed: 0,
            not_before: now.real,
            swept: None,
            missing: Missing::default(),
        }
    }

    /// What it shows may have changed.
    pub fn stir(&mut self, now: Moment) {
        self.stirred = true;
        self.wanted_since.get_or_insert(now);
    }

    /// The next look is a sweep, and due at once.
    pub fn sweep_now(&mut self) {
        self.swept = None;
    }

    /// Nothing that was seen counts any more, nor what a look that is on its way will show.
    pub fn begin_anew(&mut self, now: Moment) {
        (self.seen_at, self.looking) = (None, None);
        self.stir(now);
    }

    /// Whether to look now, and whether to sweep with it.
    pub fn wants_look(&self, now: Duration, habits: &Habits) -> Option<bool> {
        let sweep = self.swept.is_none_or(|swept| now >= swept + habits.sweep_every);
        (self.looking.is_none() && now >= self.not_before && (self.stirred || sweep)).then_some(sweep)
    }

    /// Gives the number of the look.
    pub fn begin(&mut self, now: Moment, groups: Vec<DecisionId>, sweep: bool) -> u64 {
        self.looking = Some(Looking { began: now.real, groups, sweep, over: BTreeSet::new() });
        self.stirred = false;
        self.wanted_since.get_or_insert(now);
        self.looks += 1;
        self.looks
    }

    /// Whether an answer is to the look that is on its way.
    pub fn awaits(&self, number: u64) -> bool {
        self.looking.is_some() && self.looks == number
    }

    /// Everything is looked at anew: the state was loaded again. An engine that was waited for has not answered by that.
    pub fn start_over(&mut self, now: Moment) {
        let wanted_since = self.wanted_since.or(Some(now));
        *self = Watch { looks: self.looks, took: self.took, wanted_since, ..Watch::new(now) };
    }

    /// The end of a lease is in the log.
    pub fn is_over(&mut self, lease: LeaseId) {
        if let Some(looking) = &mut self.looking {
            looking.over.insert(lease);
        }
    }

    /// A look was answered; gives the groups that it was about, and the leases that ended meanwhile. None when none was
    /// on its way.
    pub fn answered(&mut self, now: Moment) -> Option<(Vec<DecisionId>, BTreeSet<LeaseId>)> {
        let looking = self.looking.take()?;
        (self.seen_at, self.failed, self.not_before) = (Some(now.real), 0, now.real);
        self.seen_in_world = Some(now.world);
        self.took = now.real.saturating_sub(looking.began);
        self.wanted_since = self.stirred.then_some(now);
        if looking.sweep {
            self.swept = Some(looking.began);
        }
        Some((looking.groups, looking.over))
    }

    /// A look failed: the same again, after a pause that doubles each time. False when it had failed before.
    pub fn failed(&mut self, now: Moment, habits: &Habits) -> bool {
        self.looking = None;
        self.stirred = true;
        let pause = habits.look_again * (1 << self.failed.min(16));
        self.not_before = now.real + pause.min(habits.look_again_most);
        self.failed = self.failed.saturating_add(1);
        self.failed == 1
    }

    /// Whether what was seen last is of now. An engine that tells of changes and tells of none is.
    pub fn is_seen(&self, now: Duration, habits: &Habits) -> bool {
        let is_fresh = self.is_fresh(now, habits);
        self.failed == 0 && self.seen_at.is_some() && (is_fresh || (self.looking.is_none() && !self.stirred))
    }

    /// Whether it was seen a moment ago.
    pub fn is_fresh(&self, now: Duration, habits: &Habits) -> bool {
        self.seen_at.is_some_and(|seen| now <= seen + habits.fresh_for)
    }

    /// Since when it is silent, once that is long enough to be said.
    pub fn silent_since(&self, now: Duration, habits: &Habits) -> Option<Time> {
        let wanted = self.wanted_since.filter(|wanted| now >= wanted.real + self.patience(habits));
        wanted.map(|wanted| wanted.world)
    }

    /// How long it may take to answer: one that is slow is not silent.
    fn patience(&self, habits: &Habits) -> Duration {
        habits.silent_after.max(self.took * 3).min(habits.blind_most)
    }

    /// This server did not run for a while: that was not the engine's silence.
    pub fn slept(&mut self, now: Moment) {
        self.wanted_since = self.wanted_since.map(|_| now);
    }

    /// When a lease that is not found counts as gone, where a look can say so.
    pub fn next_missing(&self, now: Duration, brain: &Brain) -> Option<Time> {
        let next = self.missing.next(brain).filter(|_| self.looking.is_none() && now >= self.not_before);
        // What the last look said of it is on its way into the log.
        next.filter(|at| self.seen_in_world.is_none_or(|seen| *at > seen))
    }

    /// Whether it is waited for no longer: jobs that depend on it act on what was seen last.
    pub fn is_given_up(&self, now: Duration, habits: &Habits) -> bool {
        self.wanted_since.is_some_and(|wanted| now >= wanted.real + habits.blind_most)
    }

    /// When something is to be done about it next.
    pub fn next(&self, now: Duration, habits: &Habits) -> Option<Duration> {
        let look = (self.looking.is_none() && self.stirred).then_some(self.not_before);
        let sweep = self.swept.filter(|_| self.looking.is_none()).map(|swept| swept + habits.sweep_every);
        let patience = [self.patience(habits), habits.blind_most];
        let patience = self.wanted_since.into_iter().flat_map(|wanted| patience.map(|patience| wanted.real + patience));
        look.into_iter().chain(sweep.map(|at| at.max(self.not_before))).chain(patience.filter(|at| *at > now)).min()
    }
}
