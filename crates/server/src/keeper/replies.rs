//! What people are told who asked for something that changes the state, once it is durable or was refused.

use super::{Keeper, Reply, Undecided, Waiting};
use crate::api_types::Accepted;
use crate::cycle::{Answer, Ticket};
use crate::problem;
use crate::refusals::refusal;
use std::time::{Duration, Instant};
use windfall_core::WorkloadId;

/// How long a submitter waits until the job is decided about.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

impl Keeper {
    pub(super) fn answered(&mut self, ticket: Ticket, answer: Answer) {
        match self.waiting.remove(&ticket) {
            None => {}
            Some(Waiting::Teller(reply)) => {
                let _ = reply.send(answer.map(|_| ()).map_err(|refused| refusal(&refused)));
            }
            Some(Waiting::Submitter { remarks, reply }) => match answer {
                Ok(Some(id)) => self.accepted(id, remarks, reply),
                Ok(None) => {
                    let _ = reply.send(Err(problem(409, "duplicate-submission", "the same submission came before")));
                }
                Err(refused) => {
                    let _ = reply.send(Err(refusal(&refused)));
                }
            },
        }
    }

    /// Tells a submitter the number of the job, and what the brain had to say of it at once. While it waits for a look
    /// at an engine the submitter waits with it, but not for long.
    fn accepted(&mut self, id: u64, notes: Vec<String>, reply: Reply<Accepted>) {
        self.undecided.push(Undecided { id: WorkloadId(id), notes, reply, since: Instant::now() });
    }

    /// Answers those whose job was decided about.
    pub(super) fn answer_decided(&mut self) {
        if self.undecided.is_empty() {
            return;
        }
        let brain = self.cycle.brain();
        let decided =
            |waiting: &mut Undecided| !brain.was_left_alone(waiting.id) || waiting.since.elapsed() > LONGEST_WAIT;
        let decided: Vec<Undecided> = self.undecided.extract_if(.., decided).collect();
        for Undecided { id, notes, reply, .. } in decided {
            self.tell_submitter(id.0, notes, reply);
        }
    }

    fn tell_submitter(&self, id: u64, mut notes: Vec<String>, reply: Reply<Accepted>) {
        if let Some(job) = self.cycle.brain().job(WorkloadId(id)) {
            notes.extend(job.told.as_ref().map(ToString::to_string));
            let _ = reply.send(Ok(Accepted { id, notes }));
            return;
        }
        // It is over already: only the store remembers it.
        let archive = self.archive();
        tokio::spawn(async move {
            notes.extend(
                archive.find(WorkloadId(id)).await.ok().and_then(|view| view.told).map(|told| told.to_string()),
            );
            let _ = reply.send(Ok(Accepted { id, notes }));
        });
    }
}
