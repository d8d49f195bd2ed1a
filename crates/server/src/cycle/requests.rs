//! What people ask for that changes the state, from the asking to the answer. The answer goes out after the commit; a
//! request whose commit has failed is answered with an error, or tried again within a bound, never both.

use super::{Cycle, Moment, Phase, Step};
use crate::save_paths::{SavePaths, may_save};
use std::time::Duration;
use windfall_core::spec::Continued;
use windfall_core::{Brain, Event, WorkloadId};
use windfall_store::Notes;

/// How long a request may wait for a store that lost the answer to its commit.
const PATIENCE: Duration = Duration::from_secs(10);

/// Names a request until it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// The answer to a request: the number of the record, or of the job that a submission became.
pub type Answer = Result<Option<u64>, Refused>;

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The store does not take anything now; nothing of the request is kept.
    Away {
        /// What the store said.
        why: String,
    },
    /// Whether it was taken is not known: the same request, sent again, is safe.
    Unknown {
        /// What the store said.
        why: String,
    },
    /// A live job goes on from the same checkpoints.
    Continued {
        /// Of which ended job.
        of: WorkloadId,
        /// Which live one.
        by: WorkloadId,
    },
    /// Another job saves its checkpoints there.
    PathInUse { path: String, by: WorkloadId },
}

#[derive(Debug)]
pub(super) struct Request {
    pub ticket: Ticket,
    pub event: Event,
    /// What is kept beside the log of the job that it submits.
    pub notes: Option<Notes>,
    /// Its place in the log.
    pub logged: Option<u64>,
    /// When the answer to its commit was lost.
    pub since: Duration,
    /// It waits for the store to say whether it was taken.
    pub held: bool,
}

impl Cycle {
    /// Takes a request for the next turn. It is answered with [`Step::Answer`], once.
    pub fn ask(&mut self, now: Moment, ticket: Ticket, event: Event) {
        self.ask_with_notes(now, ticket, event, None);
    }

    /// The same for a submission, with what is kept of the job beside the log.
    pub fn ask_with_notes(&mut self, now: Moment, ticket: Ticket, event: Event, notes: Option<Notes>) {
        match &self.phase {
            Phase::Leading => {
                self.requests.push(Request { ticket, event, notes, logged: None, since: now.real, held: false });
            }
            Phase::Away(_) if !self.journal.brain().is_news(&event) => {
                let request = Request { ticket, event, notes: None, logged: None, since: now.real, held: false };
                let answer = Ok(number(self.journal.brain(), &request));
                self.out.push_back(Step::Answer(ticket, answer));
            }
            Phase::Away(away) => {
                let why = away.why().to_owned();
                // The same may have been asked before, in the commit whose answer was lost.
                let refused =
                    if self.may_have_taken(&event) { Refused::Unknown { why } } else { Refused::Away { why } };
                self.out.push_back(Step::Answer(ticket, Err(refused)));
            }
            Phase::Ended(why) => {
                let refused = Refused::Away { why: why.clone() };
                self.out.push_back(Step::Answer(ticket, Err(refused)));
            }
        }
    }

    /// Whether the same was asked in a commit whose answer was lost, so that nobody knows whether it was taken.
    pub fn may_have_taken(&self, event: &Event) -> bool {
        let held = self.requests.iter().filter(|request| request.held).map(|request| &request.event);
        held.chain(&self.given_up).any(|known| is_same(known, event))
    }

    pub(super) fn give_up_on_old_requests(&mut self, now: Moment) {
        let Phase::Away(away) = &self.phase else { return };
        let old = |request: &mut Request| request.held && now.real >= request.since + PATIENCE;
        for request in self.requests.extract_if(.., old) {
            let refused = Refused::Unknown { why: away.why().to_owned() };
            self.out.push_back(Step::Answer(request.ticket, Err(refused)));
            self.given_up.push(request.event);
        }
    }
}

/// Why a request cannot be taken as things stand at its place in the batch.
pub(super) fn refusal(brain: &Brain, paths: &SavePaths, event: &Event) -> Option<Refused> {
    let Event::Submitted { workload, key, .. } = event else { return None };
    if brain.submitted_as(key).is_some() {
        return None;
    }
    let spec = workload.job();
    let continued = || spec.continues.as_ref().and_then(|from| continued_already(brain, paths, from));
    spec.checkpoint.path.as_deref().and_then(|path| path_in_use(brain, paths, path)).or_else(continued)
}

/// A live job that goes on from the same checkpoints.
pub(crate) fn continued_already(brain: &Brain, paths: &SavePaths, from: &Continued) -> Option<Refused> {
    let other = paths.savers_in(brain, &from.key).find(may_save)?;
    Some(Refused::Continued { of: from.job, by: other.id })
}

/// The job that saves its checkpoints in a path already.
pub(crate) fn path_in_use(brain: &Brain, paths: &SavePaths, path: &str) -> Option<Refused> {
    // One inside the other is no better: what a restart clears there may be the other's.
    let other = paths.saver(brain, path)?;
    Some(Refused::PathInUse { path: path.to_owned(), by: other.id })
}

/// A submission is known by its key; whatever else is asked is the same when it says the same.
fn is_same(known: &Event, event: &Event) -> bool {
    match (known, event) {
        (Event::Submitted { key: known, .. }, Event::Submitted { key, .. }) => known == key,
        _ => known == event,
    }
}

/// Whether the log holds what a request asked for.
pub(super) fn is_in_log(brain: &Brain, request: &Request) -> bool {
    !brain.is_news(&request.event)
}

/// The number that a person gets.
pub(super) fn number(brain: &Brain, request: &Request) -> Option<u64> {
    match &request.event {
        Event::Submitted { key, .. } => brain.submitted_as(key).map(|id| id.0),
        _ => request.logged,
    }
}
