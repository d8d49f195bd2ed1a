//! What people ask of the server, and what they are told. Somebody who is told that it did not work asks again later.

use super::*;
use crate::scenario::spoiled;
use crate::server::{Wish, moment};
use windfall_core::{NanoUsd, Workload};
use windfall_server::cycle::{Answer, Refused, Ticket};

/// How long people wait before they ask again.
const ASK_AGAIN: Span = Span::seconds(7);

impl WorldRun {
    /// When somebody will ask for something next.
    pub(super) fn next_wish(&self) -> Option<Time> {
        let asked = |wish: Wish| self.is_asked(wish);
        let later = |job: &usize, at: Time| self.ask_again.get(job).map_or(at, |again| at.max(*again));
        let submits = self.to_submit.iter().filter(|job| !asked(Wish::Submit(**job)));
        let submits = submits.map(|job| later(job, self.scenario.jobs[*job].submit_at));
        let cancels = self.to_cancel.iter().filter(|job| self.accepted.contains(job) && !asked(Wish::Cancel(**job)));
        let cancels = cancels.filter_map(|job| Some(later(job, self.scenario.jobs[*job].cancel_at?)));
        let raises = self.raises.iter().filter(|(job, _)| !asked(Wish::Raise(**job))).map(|(_, at)| *at);
        submits.chain(cancels).chain(raises).min()
    }

    fn is_asked(&self, wish: Wish) -> bool {
        self.server.as_ref().is_some_and(|server| server.wishes.values().any(|(known, _)| *known == wish))
    }

    fn may_ask(&self, job: usize) -> bool {
        self.ask_again.get(&job).is_none_or(|again| *again <= self.now)
    }

    fn ask(&mut self, wish: Wish, event: Event) {
        let now = self.now;
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        if let Some(server) = &mut self.server {
            server.wishes.insert(ticket, (wish, now));
            server.cycle.ask(moment(now), ticket, event);
        }
    }

    /// Submissions, cancels and budgets that are due.
    pub(super) fn hear_people(&mut self) {
        let due = self.to_submit.iter().filter(|job| self.may_ask(**job) && !self.is_asked(Wish::Submit(**job)));
        let due: Vec<usize> = due.copied().filter(|job| self.scenario.jobs[*job].submit_at <= self.now).collect();
        for job in due {
            self.submit(job);
        }
        let Some(server) = &self.server else { return };
        let brain = server.cycle.brain();
        let mut wishes = Vec::new();
        for job in self.to_cancel.iter().filter(|job| self.may_ask(**job) && !self.is_asked(Wish::Cancel(**job))) {
            let Some(workload) = brain.submitted_as(&format!("key-{job}")) else { continue };
            if self.scenario.jobs[*job].cancel_at.is_some_and(|at| at <= self.now) {
                self.shared.world().jobs[*job].cancel_sent = true;
                let by = || "somebody".to_owned();
                wishes.push((Wish::Cancel(*job), Event::CancelRequested { workload, by: by() }));
                if job % 3 == 0 {
                    wishes.push((Wish::GiveUp(*job), Event::GiveUpRequested { workload, by: by() }));
                }
            }
        }
        let paused = brain
            .jobs()
            .filter(|job| job.paused && job.ended.is_none())
            .map(|job| (job.id, brain.spent(job, self.now)));
        let paused: BTreeMap<WorkloadId, NanoUsd> = paused.collect();
        let asked: Vec<Wish> = server.wishes.values().map(|(wish, _)| *wish).collect();
        self.raises.retain(|job, _| paused.contains_key(job));
        for (workload, spent) in paused {
            let later = Span::seconds(self.random.spread(1, 20_000));
            if *self.raises.entry(workload).or_insert(self.now + later) <= self.now
                && !asked.contains(&Wish::Raise(workload))
            {
                let more = NanoUsd(self.random.between(1_000_000, 20_000_000_000));
                let budget = self.random.permille(700).then_some(spent + more);
                wishes.push((Wish::Raise(workload), Event::BudgetSet { workload, budget, by: "somebody".to_owned() }));
            }
        }
        for (wish, event) in wishes {
            self.ask(wish, event);
        }
    }

    fn submit(&mut self, job: usize) {
        let spec = self.scenario.jobs[job].spec.clone();
        if self.strike(FaultKind::BadInput) {
            let bad = spoiled(&spec, &mut self.random);
            *self.reached.entry(9).or_default() += 1;
            if bad.check().is_err() && self.how.bug != Some(Bug::BadInputAccepted) {
                self.refused_inputs += 1;
            } else if let Some(server) = &mut self.server {
                let key = format!("bad-{job}-{}", self.turns);
                server.cycle.happened([Event::Submitted { workload: Workload::from(bad), key, id: None }]);
            }
        }
        let event = Event::Submitted { workload: Workload::from(spec), key: format!("key-{job}"), id: None };
        let delay = self.shared.world().delay;
        self.delay_before.entry(job).or_insert(delay);
        self.told_no.remove(&job);
        if matches!(self.how.bug, Some(Bug::JobForgotten | Bug::AnswerBeforeCommit)) {
            self.accepted.insert(job);
        }
        if self.how.bug == Some(Bug::JobForgotten) {
            self.to_submit.retain(|known| *known != job);
            return;
        }
        if self.strike(FaultKind::SubmittedTwice) {
            self.ask(Wish::Submit(job), event.clone());
        }
        self.ask(Wish::Submit(job), event);
    }

    /// Somebody gets an answer.
    pub(super) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        let Some((wish, _)) = self.server.as_mut().and_then(|server| server.wishes.remove(&ticket)) else {
            return self.fail(1, format!("request {ticket:?} was answered twice, or never made: {answer:?}"));
        };
        *self.reached.entry(1).or_default() += 1;
        let again = self.now + ASK_AGAIN;
        match (wish, answer) {
            (Wish::Submit(job), Ok(Some(_))) => {
                self.accepted.insert(job);
                self.to_submit.retain(|known| *known != job);
            }
            (Wish::Submit(job), Ok(None)) => self.fail(1, format!("job {job} was accepted and has no number")),
            (Wish::Submit(job), Err(refused)) => {
                self.ask_again.insert(job, again);
                self.shared.world().delay += ASK_AGAIN;
                // Of two submissions with one key the first may have been taken by then.
                if matches!(refused, Refused::Away { .. }) && !self.accepted.contains(&job) {
                    self.refused_submission(job);
                }
            }
            (Wish::Cancel(job), Ok(_)) => self.to_cancel.retain(|known| *known != job),
            (Wish::Cancel(job), Err(_)) => {
                self.ask_again.insert(job, again);
            }
            (Wish::Raise(_), Ok(_)) | (Wish::GiveUp(_), _) => {}
            (Wish::Raise(workload), Err(_)) => {
                self.raises.insert(workload, again);
            }
        }
    }

    fn refused_submission(&mut self, job: usize) {
        if !self.is_asked(Wish::Submit(job)) {
            self.told_no.insert(job);
        }
        if self.how.bug == Some(Bug::AnswerLost) {
            let spec = self.scenario.jobs[job].spec.clone();
            let event = Event::Submitted { workload: Workload::from(spec), key: format!("key-{job}"), id: None };
            self.smuggled.push(event);
        }
    }

    /// Who was told that nothing was kept finds nothing kept.
    pub(super) fn check_answers(&mut self) {
        let kept = self.told_no.iter().copied().find(|job| self.audit.ids.values().any(|known| known == job));
        if let Some(job) = kept {
            self.fail(1, format!("job {job} is in the log, and its owner was told that it is not"));
        }
    }
}
