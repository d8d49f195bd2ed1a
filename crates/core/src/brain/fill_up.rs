//! Gangs that run with fewer workers than they may have: only what is missing is got, while the others go on. A program
//! learns of another number of workers by being stopped and started from what it saved, so it must be worth that.

use super::decide::{Round, ends_at};
use super::{Job, Lease, Stint, StintPhase};
use crate::ids::LeaseId;
use crate::market::Sight;
use crate::offer::OfferId;
use crate::reason::Reason;
use crate::record::Decision;
use crate::units::{Span, Time};
use std::collections::BTreeSet;

/// How often what it costs must be saved.
const WORTH: i64 = 2;
/// How long machines that are there wait for a save of the program.
const PATIENCE: Span = Span::minutes(20);
/// After machines were of no use, this long nothing is asked for, then twice as long each time.
const PAUSE: Span = Span::minutes(15);
/// How often it doubles.
const MOST_DOUBLED: u32 = 5;

impl Round<'_> {
    /// Gets what a gang is missing, and stops it once that is there. True when it was told something.
    pub(super) fn fill_up(&mut self, job: &Job, stint: &Stint, sight: &Sight) -> bool {
        let StintPhase::Running { since } = stint.phase else { return false };
        if !stint.is_short(job) {
            return false;
        }
        let own: BTreeSet<LeaseId> = stint.leases().collect();
        let others = self.leases(job).into_iter().filter(|lease| !own.contains(&lease.id));
        let (back, spares): (Vec<&Lease>, Vec<&Lease>) = others.partition(|lease| lease.is_releasing());
        let (in_vain, coming): (Vec<&Lease>, Vec<&Lease>) =
            spares.into_iter().partition(|lease| self.comes_in_vain(lease));
        if !in_vain.is_empty() {
            let text = "a machine that a running gang was to go on with will be taken, or was not ready in time";
            self.leave(&in_vain, &Reason::new("fill-up", text));
            return false;
        }
        // Once one of them is done, the others are about to be.
        let is_ending = stint.workers.iter().any(|worker| worker.end.is_some());
        if !coming.is_empty() {
            let more = coming.len() as u32;
            if is_ending || !stint.gains_from(more, job, sight, Span::ZERO) {
                let text = "another start would take longer than more workers save";
                self.leave(&coming, &Reason::new("fill-up", text));
                return false;
            }
            return self.go_on_with(&coming, job, stint, sight, since);
        }
        // What is on its way back may still be paid for.
        if is_ending || !back.is_empty() {
            return false;
        }
        if let Some(again) = job.fills_up_again().filter(|again| self.now < *again) {
            self.wake_at(again);
            return false;
        }
        self.ask_for_more(job, stint, sight, since);
        false
    }

    /// Asks for what is missing, of the first of its offers that has some.
    fn ask_for_more(&mut self, job: &Job, stint: &Stint, sight: &Sight, since: Time) {
        let leases = stint.leases().filter_map(|id| self.brain.leases.get(&id));
        let offers: BTreeSet<&OfferId> = leases.map(|lease| &lease.offer).collect();
        for offer in offers.into_iter().filter_map(|id| self.brain.offers.get(id)) {
            let units = self.units_of(job, stint, offer);
            // A program that saves is waited for until it has. By the time that the machines are there, so much more is done
            // that another one loses.
            let lost = match self.unsaved(stint, sight, since).filter(|_| stint.saved_at.is_none()) {
                Some(unsaved) => unsaved + sight.restart,
                None => Span::ZERO,
            };
            let is_little = lost == Span::ZERO || sight.need.is_some();
            if units > 0 && is_little && stint.gains_from(units, job, sight, lost) {
                return self.acquire_more(job, stint, offer, units, sight);
            }
        }
    }

    /// The machines are there, or about to be: the gang stops when little is lost with that.
    fn go_on_with(&mut self, coming: &[&Lease], job: &Job, stint: &Stint, sight: &Sight, since: Time) -> bool {
        let booting = coming.iter().filter(|lease| !lease.is_usable());
        let overdue = booting.clone().filter_map(|lease| self.brain.boot_overdue(lease)).min();
        if booting.count() > 0 {
            overdue.into_iter().for_each(|at| self.wake_at(at));
            return false;
        }
        let more = coming.len() as u32;
        let is_little = match (self.unsaved(stint, sight, since), sight.need) {
            (None, _) => true,
            (Some(lost), Some(_)) => stint.gains_from(more, job, sight, lost),
            (Some(lost), None) => lost <= sight.restart,
        };
        if is_little {
            let text = "more machines are there: the gang saves, and goes on with all of them";
            let reason = Reason::new("fill-up", text).count("workers", stint.size().into());
            self.stop(job, stint, &reason.count("more", more.into()));
            return true;
        }
        let there = coming.iter().filter_map(|lease| lease.up_at).max().unwrap_or(self.now);
        let until = there + PATIENCE;
        if self.now >= until {
            let text = "more machines are there, and the program has saved nothing since: it goes on without them";
            self.leave(coming, &Reason::new("fill-up", text).span("waited", self.now - there));
            return false;
        }
        self.wake_at(until);
        if stint.save_asked.is_none_or(|asked| asked.at < there) {
            let text = "more machines are there: the program saves, and goes on with them then";
            self.say(Decision::Checkpoint { stint: stint.id }, Reason::new("fill-up", text));
            return true;
        }
        false
    }

    /// Work that a stop would lose; none where the program saves when it is told to stop.
    fn unsaved(&self, stint: &Stint, sight: &Sight, since: Time) -> Option<Span> {
        let since_then = self.now - stint.saved_at.map_or(since, |saved| saved.max(since));
        (!sight.saves_when_told).then(|| sight.need.map_or(since_then, |_| sight.at_risk))
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

    /// Whether so many workers more save more time than a start with them takes, and what is lost with it: work goes with the
    /// number of workers. Where nobody knows how much there is to do, it is taken for much.
    fn gains_from(&self, more: u32, job: &Job, sight: &Sight, lost: Span) -> bool {
        let Some(need) = sight.need else { return true };
        let with = |workers: u32| need.scaled(job.spec.gang.into(), workers.max(1).into());
        let saved = with(self.size()) - with(self.size() + more);
        saved > (sight.restart + lost).scaled(WORTH, 1)
    }
}

impl Job {
    /// Machines that it was to go on with were of no use.
    pub(super) fn fill_up_later(&mut self, now: Time) {
        let times = self.filled_in_vain.map_or(0, |(times, _)| times);
        self.filled_in_vain = Some((times.saturating_add(1), now));
    }

    /// When machines may be asked for again after that.
    fn fills_up_again(&self) -> Option<Time> {
        let (times, last) = self.filled_in_vain?;
        Some(last + Span(PAUSE.0 << times.saturating_sub(1).min(MOST_DOUBLED)))
    }
}
