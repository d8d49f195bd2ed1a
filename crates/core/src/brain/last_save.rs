//! After the programs' end: what they saved last is waited for.

use super::decide::Round;
use super::job::Stopping;
use super::{Job, Stint};
use crate::reason::Reason;
use crate::record::Decision;
use crate::told::Told;
use crate::trouble::{Trouble, TroubleKind};
use crate::units::{Span, Time};

/// How long the last save of a program that has ended is waited for: a little longer than agents try.
const LAST_SAVE: Span = Span::minutes(11);

impl Round<'_> {
    /// The programs have ended. What they saved last is waited for, unless somebody has given it up. Machines on which others run
    /// stay: there the agent is told.
    pub(super) fn await_last_save(&mut self, job: &Job, stint: &Stint) {
        let reason = || Reason::new("given-up", "what it saved last is given up");
        match stint.stopping {
            _ if !job.given_up => self.last_save(job, stint),
            _ if !self.has_company(job, stint) => self.leave_all(job, &reason()),
            Some(stopping) if stopping.ends() <= self.now => self.last_save(job, stint),
            _ => self.say(Decision::Stop { stint: stint.id, grace: Span::ZERO }, reason()),
        }
    }

    /// The programs have ended; what they saved last is still being stored. That is waited for, but not for ever.
    fn last_save(&mut self, job: &Job, stint: &Stint) {
        let Some(ended_at) = stint.ended_at else { return };
        if stint.torn && stint.stopping.is_none() {
            // Those that are left may wait for a word that never comes. What they send has as long as it had.
            let reason = Reason::new("torn", "a machine is gone that had not sent all: nobody waits for it");
            return self.say(Decision::Stop { stint: stint.id, grace: LAST_SAVE }, reason);
        }
        let until = ended_at + LAST_SAVE;
        if self.now < until {
            return self.wake_at(until);
        }
        let too_long = || Told::Unsaved { why: "it took too long".to_owned() };
        let told = stint.all_trouble().as_ref().and_then(Told::at_the_end).unwrap_or_else(too_long);
        let reason =
            Reason::new("last-save", "what was saved last could not be stored in time").span("tried", LAST_SAVE);
        if stint.leases().filter_map(|id| self.brain.leases.get(&id)).any(|lease| !lease.is_releasing()) {
            self.say(Decision::Notify { workload: job.id, told }, reason.clone());
        }
        self.release_under(job, stint, &reason);
    }
}

impl Stopping {
    /// When what does not stop is killed.
    pub(super) fn ends(&self) -> Time {
        self.at + self.grace
    }
}

impl Stint {
    /// A machine of it has lost something for good.
    pub(super) fn lose(&mut self, what: &Trouble) {
        self.lost = Some(match self.lost.take() {
            Some(lost) => lost.and(what),
            None => what.clone(),
        });
    }

    /// Whether what is told of its trouble is news.
    pub(super) fn would_learn(&self, told: Option<&Trouble>) -> bool {
        match told.filter(|told| told.kind == TroubleKind::NotReturned) {
            Some(lost) => self.lost.as_ref().is_none_or(|known| known.clone().and(lost) != *known),
            None => self.trouble.as_ref() != told,
        }
    }

    /// What is wrong with it now, and what it has lost. A remark is worth saying only where nothing is lost.
    pub(super) fn all_trouble(&self) -> Option<Trouble> {
        let now = self.trouble.as_ref().filter(|now| now.kind != TroubleKind::Remark || self.lost.is_none());
        now.into_iter().chain(&self.lost).cloned().reduce(|all, more| all.and(&more))
    }

    /// What it left that is in no store.
    pub(super) fn left_behind(&self) -> Option<Trouble> {
        let is_lost = |now: &&Trouble| matches!(now.kind, TroubleKind::NotSaved | TroubleKind::NotReturned);
        let unsaved = self.trouble.as_ref().filter(is_lost);
        unsaved.into_iter().chain(&self.lost).cloned().reduce(|all, more| all.and(&more))
    }
}

impl Job {
    /// What is wrong with its checkpoints now.
    pub fn trouble(&self) -> Option<Trouble> {
        let of_stint = self.stint.as_ref().and_then(|stint| stint.all_trouble());
        of_stint.or_else(|| self.store_away.as_ref().map(|away| away.trouble.clone()))
    }
}
