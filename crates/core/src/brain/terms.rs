//! Leases that end by agreement: the wall time of a Slurm job, a block of capacity. That end is known from the beginning and is
//! planned around: the program saves and leaves in time, and another lease is asked for. It is no interruption.

use super::decide::Round;
use super::{Brain, Job, Lease, Stint, StintPhase};
use crate::market::{self, Sight};
use crate::offer::OfferId;
use crate::reason::Reason;
use crate::units::{Span, Time};
use std::collections::BTreeMap;

/// What is kept beside the time that a stop and a save take.
const ROOM: Span = Span::seconds(60);

impl Lease {
    /// How long it lasts by agreement.
    fn term(&self) -> Option<Span> {
        let term = self.terms.ends_by? - self.up_at?;
        (term.0 > 0).then_some(term)
    }

    /// When the last save on it has to begin: never before half of its time is over, however short that is.
    fn last_call(&self, job: &Job) -> Option<Time> {
        let (ends_by, term) = (self.terms.ends_by?, self.term()?);
        let takes = job.spec.run.grace + market::save_takes(job.spec.checkpoint.size_bytes) + ROOM;
        Some(ends_by - takes.min(term.scaled(1, 2)))
    }
}

impl Brain {
    /// What it costs until the work is done that leases end by agreement, if those that follow last as long as this one: a
    /// changeover for each, and the wait for it in the engine's queue.
    pub(super) fn renewals(
        &self,
        job: &Job,
        held: Option<&Lease>,
        need: Option<Span>,
        waits: &BTreeMap<&OfferId, Span>,
        now: Time,
    ) -> Span {
        let terms = || Some((need?, held?, held?.term()?, held?.last_call(job)?, held?.terms.ends_by?));
        let Some((need, lease, term, last_call, ends_by)) = terms() else { return Span::ZERO };
        let left = need - Span((last_call - now).0.max(0));
        let restart = job.restart(&self.config);
        let each = (term - (ends_by - last_call) - restart).0.max(term.0 / 4).max(1);
        let more = if left.0 > 0 { (left.0 + each - 1) / each } else { 0 };
        (restart + waits.get(&lease.offer).copied().unwrap_or_default()).scaled(more, 1)
    }
}

impl Round<'_> {
    /// Stops a stint in time for its last save where a lease of it ends by agreement before the work is done.
    pub(super) fn stop_at_term(&mut self, job: &Job, stint: &Stint, sight: &Sight) -> bool {
        let brain = self.brain;
        let leases = stint.leases().filter_map(|id| brain.leases.get(&id));
        let first = leases.filter_map(|lease| Some((lease.last_call(job)?, lease.terms.ends_by?))).min();
        let Some((last_call, ends_by)) = first else { return false };
        let left = ends_by - self.now;
        if self.now < last_call {
            self.wake_at(last_call);
            return false;
        }
        // Whoever is done before that needs no other machine.
        let rest = sight.need.filter(|_| matches!(stint.phase, StintPhase::Running { .. }));
        if rest.is_some_and(|rest| rest.scaled(5, 4) + ROOM < left) {
            self.wake_at(self.now + ROOM.scaled(1, 2));
            return false;
        }
        let text = "the machine ends by agreement before the work is done: the program saves, and another is asked for";
        self.stop(job, stint, &Reason::new("term", text).span("left", Span(left.0.max(0))));
        true
    }

    /// Leases of a stint that is over on which it is not worth beginning again: they end soon by agreement.
    pub(super) fn has_too_little_time(&self, job: &Job, lease: &Lease) -> bool {
        let was_used = || job.stint_over_at.zip(lease.up_at).is_some_and(|(over_at, up_at)| over_at >= up_at);
        let restart = job.restart(&self.brain.config);
        let at = lease.last_call(job).zip(lease.term());
        at.is_some_and(|(last_call, term)| self.now + restart.min(term.scaled(1, 4)) >= last_call) && was_used()
    }
}
