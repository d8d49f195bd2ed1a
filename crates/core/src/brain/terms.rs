//! Leases that end by agreement: the wall time of a Slurm job, a block of capacity. That end is known from the beginning and is
//! planned around: the program saves and leaves in time, and another lease is asked for. It is no interruption.

use super::decide::Round;
use super::lease_table::Leases;
use super::{Brain, Job, Lease, Stint};
use crate::market::{self, Sight};
use crate::offer::{Offer, OfferId};
use crate::reason::Reason;
use crate::told::Told;
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

impl Job {
    /// How long the rest of its work takes so many of its workers on an offer.
    pub(super) fn rest_on(&self, offer: Option<&Offer>, workers: u32, now: Time) -> Option<Span> {
        let rate = offer.and_then(|offer| self.rate_on(offer)).or_else(|| self.rate(self.usual_accelerator()))?;
        let whole = rate.time_for(self.total()?.minus(self.done_at(now)));
        Some(whole.scaled(self.spec.gang.into(), workers.max(1).into()))
    }

    /// What it may ask to have its leases for: none for as long as can be had. Work that was not done in the time that was asked
    /// for before takes longer than anybody knows.
    pub(super) fn lasts_on(&self, offer: Option<&Offer>, workers: u32, sight: &Sight) -> Option<Span> {
        let rest = self.rest_on(offer, workers, sight.now).filter(|rest| rest.0 > 0 && self.terms_in_vain == 0);
        rest.map(|rest| rest + sight.restart)
    }

    /// Learns from a stint that is over, if it was stopped because a lease of it ended by agreement. One that saved nothing is told
    /// of: whether the job is to go on is for people to say.
    pub(super) fn note_term(&mut self, stint: &Stint, leases: &Leases) {
        let Some(stopping) = stint.stopping.filter(|_| self.cancelled_by.is_none() && !self.paused) else { return };
        let leases = stint.leases().filter_map(|id| leases.get(&id));
        let ended = leases.filter(|lease| lease.last_call(self).is_some_and(|last_call| stopping.at >= last_call));
        let Some(lasted) = ended.filter_map(Lease::term).min() else { return };
        if stint.saved {
            self.terms_in_vain = 0;
            return;
        }
        self.terms_in_vain += 1;
        self.told = Some(Told::BeginsAgain { times: self.terms_in_vain, lasted });
    }
}

impl Brain {
    /// What it costs until the work is done that leases end by agreement, if those that follow last as long as this one: a
    /// changeover for each, and the wait for it in the engine's queue.
    pub(super) fn renewals(
        &self,
        job: &Job,
        held: Option<&Lease>,
        waits: &BTreeMap<&OfferId, Span>,
        now: Time,
    ) -> Span {
        let terms = || Some((held?, held?.term()?, held?.last_call(job)?, held?.terms.ends_by?));
        let Some((lease, term, last_call, ends_by)) = terms() else { return Span::ZERO };
        let workers = job.stint.as_ref().map_or(job.spec.gang, |stint| stint.size());
        let Some(rest) = job.rest_on(self.offers.get(&lease.offer), workers, now) else { return Span::ZERO };
        let left = rest - Span((last_call - now).0.max(0));
        let restart = job.restart(&self.config);
        let each = (term - (ends_by - last_call) - restart).0.max(term.0 / 4).max(1);
        let more = if left.0 > 0 { (left.0 + each - 1) / each } else { 0 };
        (restart + waits.get(&lease.offer).copied().unwrap_or_default()).scaled(more, 1)
    }
}

impl Round<'_> {
    /// Stops a stint in time for its last save where a lease of it ends by agreement before the work is done.
    pub(super) fn stop_at_term(&mut self, job: &Job, stint: &Stint) -> bool {
        let brain = self.brain;
        let leases = stint.leases().filter_map(|id| brain.leases.get(&id));
        let calls = leases.filter_map(|lease| Some((lease.last_call(job)?, lease.terms.ends_by?, &lease.offer)));
        let Some((last_call, ends_by, offer)) = calls.min() else { return false };
        let left = ends_by - self.now;
        if self.now < last_call {
            self.wake_at(last_call);
            return false;
        }
        // Whoever is done before that needs no other machine. What takes longer than was thought must still have time to save.
        let rest = job.rest_on(brain.offers.get(offer), stint.size(), self.now);
        if rest.is_some_and(|rest| rest.0 > 0 && rest.scaled(2, 1) + ROOM < left) {
            self.wake_at(self.now + ROOM.scaled(1, 2));
            return false;
        }
        let text = "the machine ends by agreement before the work is done: the program saves, and another is asked for";
        self.stop(job, stint, &Reason::new("term", text).span("left", Span(left.0.max(0))));
        true
    }

    /// Leases on which it is not worth beginning again after a stint is over: they end soon by agreement.
    pub(super) fn has_too_little_time(&mut self, job: &Job, lease: &Lease) -> bool {
        let was_used = job.stint_over_at.zip(lease.up_at).is_some_and(|(over_at, up_at)| over_at >= up_at);
        let Some((last_call, term)) = lease.last_call(job).zip(lease.term()).filter(|_| was_used) else { return false };
        let at = last_call - job.restart(&self.brain.config).min(term.scaled(1, 4));
        if self.now < at {
            self.wake_at(at);
        }
        self.now >= at
    }
}
