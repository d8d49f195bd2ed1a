//! Gangs that run with fewer workers than they may have: only what is missing is got, while the others go on. A program
//! learns of another number of workers by being stopped and started from what it saved, so it must be worth that.

use super::decide::{Round, ends_at};
use super::{Job, Lease, Stint, StintPhase};
use crate::market::Sight;
use crate::reason::Reason;
use crate::units::Span;

/// How often what it costs must be saved.
const WORTH: i64 = 2;

impl Round<'_> {
    /// Gets what a gang is missing, and stops it once that is there. True when it is stopped.
    pub(super) fn fill_up(&mut self, job: &Job, stint: &Stint, sight: &Sight) -> bool {
        if !stint.is_short(job) || !matches!(stint.phase, StintPhase::Running { .. }) {
            return false;
        }
        let others = self.leases(job).into_iter().filter(|lease| !stint.is_on(lease.id));
        let (back, spares): (Vec<&Lease>, Vec<&Lease>) = others.partition(|lease| lease.is_releasing());
        let spares = spares.into_iter();
        let (in_vain, coming): (Vec<&Lease>, Vec<&Lease>) = spares.partition(|lease| self.comes_in_vain(lease));
        if !in_vain.is_empty() {
            let text = "a machine that a running gang was to go on with will be taken, or was not ready in time";
            self.leave(&in_vain, &Reason::new("fill-up", text));
            return false;
        }
        let own = stint.leases().next().and_then(|id| self.brain.leases.get(&id));
        let offer = own.and_then(|lease| self.brain.offers.get(&lease.offer));
        if coming.is_empty() {
            let missing = job.spec.gang - stint.size();
            // What is on its way back may still be paid for. And by the time that more is there, so much more is done that
            // is not saved.
            let is_worth_it = back.is_empty() && stint.gains_from(missing, job, sight, sight.restart);
            offer.filter(|_| is_worth_it).into_iter().for_each(|offer| self.acquire_more(job, stint, offer, sight));
            return false;
        }
        let more = coming.len() as u32;
        if !stint.gains_from(more, job, sight, Span::ZERO) {
            let text = "another start would take longer, with what is done and not saved, than more workers save";
            self.leave(&coming, &Reason::new("fill-up", text));
            return false;
        }
        let booting = coming.iter().filter(|lease| !lease.is_usable());
        let overdue = booting.clone().filter_map(|lease| self.brain.boot_overdue(lease)).min();
        if booting.count() > 0 {
            overdue.into_iter().for_each(|at| self.wake_at(at));
            return false;
        }
        let text = "more machines are there: the gang saves, and goes on with all of them";
        let reason = Reason::new("fill-up", text).count("workers", stint.size().into());
        self.stop(job, stint, &reason.count("more", more.into()));
        true
    }

    /// Whether a machine that is to come is of no use any more.
    fn comes_in_vain(&self, lease: &Lease) -> bool {
        let is_late = self.brain.boot_overdue(lease).is_some_and(|overdue| self.now >= overdue);
        let is_unheard = lease.up_at.is_none() && self.brain.silent_since(lease.offer.engine()).is_some();
        ends_at(lease).is_some() || !lease.is_usable() && (is_late || is_unheard)
    }
}

impl Stint {
    /// Whether it has fewer workers than its job may have.
    pub(super) fn is_short(&self, job: &Job) -> bool {
        self.size() < job.spec.gang
    }

    /// Whether so many workers more save more time than it takes to start with them: work goes with the number of workers. What
    /// is not saved when it comes to that is done again, unless the program is known to save when it is told to stop.
    fn gains_from(&self, more: u32, job: &Job, sight: &Sight, until_then: Span) -> bool {
        let Some(need) = sight.need else { return true };
        let with = |workers: u32| need.scaled(job.spec.gang.into(), workers.max(1).into());
        let saved = with(self.size()) - with(self.size() + more);
        let lost = if sight.saves_when_told { Span::ZERO } else { sight.at_risk + until_then };
        saved > (sight.restart + lost).scaled(WORTH, 1)
    }
}
