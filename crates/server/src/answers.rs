//! What people want of the loop: jobs to accept, wishes about live ones, and why a job stands where it stands. Whoever
//! only looks is answered beside the loop ([`crate::reader`]).

use crate::admission::Prepared;
use crate::api_types::{Accepted, InterruptRequest, Problem};
use crate::cycle::{Refused, Ticket};
use crate::keeper::{Ask, Keeper, Reply, Waiting};
use crate::refusals::refusal;
use crate::{JOB_IS_OVER, JOB_IS_SAVING, problem};
use std::time::Instant;
use windfall_core::brain::{Job, Verdict};
use windfall_core::record::Subject;
use windfall_core::{Event, JobSpec, Workload, WorkloadId};

impl Keeper {
    /// Takes what a client asks: answers it, or hands it to the loop.
    pub(crate) fn take(&mut self, ask: Ask) {
        match ask {
            Ask::Knock(key, reply) => self.knock(key, reply),
            Ask::Submit(prepared, reply) => self.admit(*prepared, reply),
            Ask::Tell(event, reply) => self.tell(event, reply),
            Ask::Shutdown(reply) => {
                self.ending = Some(Instant::now());
                let _ = reply.send(Ok(()));
            }
            Ask::Explain(id, reply) => {
                let _ = reply.send(Ok(self.cycle.brain().explain(id, self.clock.now())));
            }
            Ask::Sweep(reply) => {
                self.cycle.sweep_now();
                let _ = reply.send(Ok(()));
            }
            Ask::Interrupt(request, reply) => self.interrupt(request, reply),
        }
    }

    fn ticket(&mut self, waiting: Waiting) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        self.waiting.insert(ticket, waiting);
        ticket
    }

    /// Somebody is about to submit a job, and as far as was seen none lives or nothing can be written.
    fn knock(&mut self, key: String, reply: Reply<()>) {
        if let Some(why) = self.cycle.away().map(|away| away.why().to_owned()) {
            // A submission is known by its key, whatever it asks for.
            let workload = Workload::from(JobSpec::named("", Vec::new()));
            let unknown = self.cycle.may_have_taken(&Event::Submitted { workload, key, id: None });
            let refused = if unknown { Refused::Unknown { why } } else { Refused::Away { why } };
            let _ = reply.send(Err(refusal(&refused)));
            return;
        }
        let others = self.cycle.brain().jobs().next().is_some() || !self.waiting.is_empty();
        if !others {
            self.begin_anew();
        }
        let _ = reply.send(Ok(()));
    }

    /// Turns a submission into a request, or refuses it with nothing changed.
    fn admit(&mut self, prepared: Prepared, reply: Reply<Accepted>) {
        let Prepared { key, mut spec, deadline_in, remarks, notes } = prepared;
        if let Some(known) = self.cycle.brain().submitted_as(&key) {
            let _ = reply.send(Ok(Accepted { id: known.0, notes: Vec::new() }));
            return;
        }
        spec.deadline = deadline_in.map(|span| self.clock.now() + span);
        spec.run.environment.clone_from(&key);
        let ticket = self.ticket(Waiting::Submitter { remarks, reply });
        let event = Event::Submitted { workload: Workload::from(spec), key, id: None };
        self.cycle.ask_with_notes(self.moment(), ticket, event, Some(notes));
    }

    /// No job lives: recordings begin anew, so that every first run sees the same market.
    fn begin_anew(&mut self) {
        self.engines.recordings().for_each(|(_, recording)| recording.begin_anew());
        let begun: Vec<String> = self.engines.recordings().map(|(name, _)| name.to_owned()).collect();
        let now = self.moment();
        begun.iter().for_each(|engine| self.cycle.began_anew(now, engine));
    }

    /// Hands over what a person wants of a live job, or says why that cannot be.
    fn tell(&mut self, event: Event, reply: Reply<()>) {
        let Subject::Workload(id) = event.subject() else { return };
        let brain = self.cycle.brain();
        let gives_up = matches!(event, Event::GiveUpRequested { .. });
        let is_done = |job: &Job| job.ended.is_some() || job.verdict == Some(Verdict::Done);
        let saves = |job: &Job| job.stint.is_some() && is_done(job);
        if matches!(event, Event::CancelRequested { .. }) && brain.job(id).is_some_and(saves) {
            let detail = format!("the program of job {id} has ended, and what it saved last is still on its way");
            let hint = format!("it ends by itself; to give that save up: windfall cancel {id} --now");
            let _ = reply.send(Err(Problem { hint: Some(hint), ..problem(409, JOB_IS_SAVING, &detail) }));
            return;
        }
        let open = |job: &&Job| job.ended.is_none() || (gives_up && job.stint.is_some());
        let Some(job) = brain.job(id).filter(open) else {
            let known = brain.view(id, self.clock.now());
            let archive = self.archive();
            tokio::spawn(async move {
                let found = match known {
                    Some(view) => Ok(view),
                    None => archive.find(id).await,
                };
                let _ = reply.send(Err(match found {
                    Ok(view) => problem(409, JOB_IS_OVER, &format!("job {id} is over: {}", view.state.word())),
                    Err(problem) => problem,
                }));
            });
            return;
        };
        let spent = brain.spent(job, self.clock.now());
        let too_small = matches!(event, Event::BudgetSet { budget: Some(budget), .. } if budget <= spent);
        if too_small {
            let _ = reply.send(Err(problem(409, "budget-is-spent", &format!("job {id} has cost {spent} already"))));
            return;
        }
        let ticket = self.ticket(Waiting::Teller(reply));
        self.cycle.ask(self.moment(), ticket, event);
    }

    fn interrupt(&self, request: InterruptRequest, reply: Reply<()>) {
        let (brain, id) = (self.cycle.brain(), WorkloadId(request.job));
        // Its own, or another's on which it runs.
        let stint = brain.job(id).and_then(|job| job.stint.as_ref()).into_iter().flat_map(|stint| stint.leases());
        let mut leases = brain.leases_of(id).chain(stint.filter_map(|lease| brain.lease(lease)));
        let Some(lease) = leases.find(|lease| !lease.is_releasing()) else {
            let _ = reply.send(Err(problem(409, "no-lease", "the job holds no lease now")));
            return;
        };
        let (engines, engine, lease) = (self.engines.clone(), lease.offer.engine().to_owned(), lease.id);
        tokio::spawn(async move {
            let interrupted = engines.interrupt(&engine, lease, request.how).await;
            let _ = reply.send(interrupted.map_err(|error| problem(503, "engine-refused", &error.to_string())));
        });
    }
}
