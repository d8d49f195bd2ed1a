//! The one task that owns the brain. It takes what was asked and what happened, lets the cycle step, and
//! hands what was committed to the engine; nothing else touches the state.

use crate::api_types::{Accepted, Bill, ExplainAnswer, Hello, InterruptRequest, JobAnswer, Problem, Submission};
use crate::bound::Bound;
use crate::cycle::Cycle;
use crate::dispatch::{self, Performed};
use crate::home::{Home, World};
use crate::outfit::{Kept, Wardrobe};
use crate::{bill, history, logs, problem};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot};
use windfall_core::record::Subject;
use windfall_core::view::{JobView, State};
use windfall_core::worker::WorkerView;
use windfall_core::{DecisionId, Event, LeaseId, Span, StintId, Time, Workload, WorkloadId};
use windfall_exec::{Engine, Interrupt, Simulated, WorldClock};

/// Progress is logged at most this often: often enough to see, rare enough to keep.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// A decision that was carried out but whose effect is not seen is carried out again after this long.
const REPEAT: Duration = Duration::from_secs(2);
/// Longest sleep: a safety net under lost wake-ups, and the resolution of the idle timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// How often the engine is asked for everything that it holds.
const SWEEP: Duration = Duration::from_secs(60);
/// Log rows of ended jobs are kept for so long.
const KEEP_LOG: Span = Span::hours(30 * 24);
/// Requests taken into one batch.
const BATCH: usize = 1_000;

type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What clients ask of the keeper.
pub enum Ask {
    /// Who are you?
    Hello(Reply<Hello>),
    /// Accept a job.
    Submit(Box<Submission>, Reply<Accepted>),
    /// A person wants something of a live job.
    Tell(Event, Reply<()>),
    /// One job, live or ended.
    Job(WorkloadId, Reply<JobAnswer>),
    /// What is known of the workers of a job's stints, oldest first.
    Stints(WorkloadId, Reply<Vec<WorkerView>>),
    /// Live jobs.
    Live(Reply<Vec<JobView>>),
    /// Why.
    Explain(WorkloadId, Reply<ExplainAnswer>),
    /// Take a lease away.
    Interrupt(InterruptRequest, Reply<()>),
    /// End the server; jobs go on.
    Shutdown(Reply<()>),
}

/// The keeper's things.
pub struct Keeper {
    pub(crate) home: Arc<Home>,
    pub(crate) world: World,
    pub(crate) cycle: Cycle,
    pub(crate) clock: Arc<WorldClock>,
    pub(crate) engine: Arc<Simulated>,
    pub(crate) wardrobe: Wardrobe,
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) performed: mpsc::UnboundedReceiver<(DecisionId, Performed)>,
    pub(crate) performed_sender: mpsc::UnboundedSender<(DecisionId, Performed)>,
    /// Decisions on their way, and those carried out whose effect is awaited.
    pub(crate) in_flight: BTreeMap<DecisionId, Option<Instant>>,
    pub(crate) progress_logged: BTreeMap<StintId, Instant>,
    pub(crate) idle_after: Duration,
    pub(crate) last_used: Instant,
    /// When the engine was last asked for everything that it holds.
    pub(crate) swept: Option<Instant>,
    /// Rung when the server is to end.
    pub(crate) over: Arc<Notify>,
    /// The process without which it ends.
    pub(crate) bound: Option<Bound>,
}

enum Next {
    GoOn,
    End,
}

impl Keeper {
    /// Serves until told to end, or until idle for long enough.
    pub async fn run(mut self) {
        // Log rows of ended jobs are for explaining them; after a month nobody asks. Jobs and ledger stay.
        if let Err(error) = self.cycle.cut(self.clock.now() - KEEP_LOG).await {
            log(&format!("old log rows stay: {}", chain(&error)));
        }
        let changed = self.engine.changed();
        loop {
            let mut asks = Vec::new();
            let mut results = Vec::new();
            let sleep = self.sleep();
            tokio::select! {
                ask = self.asks.recv() => match ask {
                    Some(ask) => asks.push(ask),
                    None => break,
                },
                result = self.performed.recv() => results.extend(result),
                () = changed.notified() => {}
                () = tokio::time::sleep(sleep) => {}
            }
            while asks.len() < BATCH
                && let Ok(ask) = self.asks.try_recv()
            {
                asks.push(ask);
            }
            while let Ok(result) = self.performed.try_recv() {
                results.push(result);
            }
            if !asks.is_empty() || self.cycle.brain().jobs().next().is_some() {
                self.last_used = Instant::now();
            }
            if let Next::End = self.turn(asks, results).await {
                break;
            }
        }
        self.over.notify_waiters();
    }

    fn sleep(&self) -> Duration {
        let wake = self.cycle.next_wakeup().map(|at| self.clock.real_time(at - self.clock.now()));
        wake.unwrap_or(LONGEST_SLEEP).clamp(Duration::from_millis(1), LONGEST_SLEEP)
    }

    async fn turn(&mut self, asks: Vec<Ask>, results: Vec<(DecisionId, Performed)>) -> Next {
        let mut events = Vec::new();
        for (id, performed) in results {
            events.extend(performed.events);
            let settled = (!performed.again).then(Instant::now);
            self.in_flight.insert(id, Some(settled.unwrap_or_else(|| Instant::now() - REPEAT / 2)));
        }
        let now = self.clock.now();
        // Engines are looked at before any timer fires, so a gap in time is met with the truth.
        match dispatch::observe(self.cycle.brain(), &self.engine, now).await {
            Ok(seen) => events.extend(self.merge_progress(seen)),
            Err(error) => log(&format!("the engine cannot be observed: {error}")),
        }
        self.sweep(&mut events).await;
        let mut submissions = Vec::new();
        let mut end = false;
        for ask in asks {
            match ask {
                Ask::Submit(submission, reply) => self.admit(*submission, reply, &mut events, &mut submissions),
                Ask::Tell(event, reply) => {
                    let refused = self.refusal(&event).await;
                    events.extend(refused.is_none().then_some(event));
                    let _ = reply.send(refused.map_or(Ok(()), Err));
                }
                Ask::Shutdown(reply) => {
                    end = true;
                    let _ = reply.send(Ok(()));
                }
                other => self.answer(other).await,
            }
        }
        if self.bound.as_ref().is_some_and(Bound::is_gone) {
            end |= self.abandon(&mut events).await;
        }
        self.step(now, events, submissions).await;
        let idle = self.last_used.elapsed() > self.idle_after && self.cycle.brain().leases().next().is_none();
        if end || idle { Next::End } else { Next::GoOn }
    }

    /// Steps the cycle, answers submitters once their jobs are durable, and dispatches.
    async fn step(&mut self, now: Time, events: Vec<Event>, submissions: Vec<(usize, Vec<String>, Reply<Accepted>)>) {
        match self.cycle.step(now, events).await {
            Ok(stepped) => {
                for (index, mut notes, reply) in submissions {
                    let logged = stepped.logged.get(index).copied().flatten();
                    notes.extend(self.first_word(logged).await);
                    let _ = reply.send(match logged {
                        Some(id) => Ok(Accepted { id, notes }),
                        None => Err(problem(409, "duplicate-submission", "the same submission came twice at once")),
                    });
                }
                self.farewell(&stepped.gone).await;
                self.wardrobe.forget_ended(self.cycle.brain());
            }
            Err(error) => {
                let text = chain(&error);
                log(&text);
                for (_, _, reply) in submissions {
                    let _ = reply.send(Err(problem(503, "store-refused", &text)));
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
        self.dispatch();
    }

    /// What the brain had to say of a job at once; it may be over already.
    async fn first_word(&self, logged: Option<u64>) -> Option<String> {
        let id = WorkloadId(logged?);
        match self.cycle.brain().job(id) {
            Some(job) => job.notice.clone(),
            None => self.find(id).await.ok()?.notice,
        }
    }

    /// Hands over every open decision that is not on its way.
    fn dispatch(&mut self) {
        let open = self.cycle.brain().outbox();
        self.in_flight.retain(|id, done| done.is_none() || open.iter().any(|open| open.id == *id));
        for open in open {
            let due = match self.in_flight.get(&open.id) {
                None => true,
                Some(None) => false,
                Some(Some(done)) => done.elapsed() > REPEAT,
            };
            let task = due.then(|| dispatch::task(self.cycle.brain(), &self.wardrobe, &open)).flatten();
            let Some(task) = task else { continue };
            self.in_flight.insert(open.id, None);
            let (engine, sender) = (Arc::clone(&self.engine), self.performed_sender.clone());
            tokio::spawn(async move {
                let performed = dispatch::perform(&engine, &task).await;
                let _ = sender.send((open.id, performed));
            });
        }
    }

    /// Writes down how the workers of gone leases ended, then lets the engine forget them.
    async fn farewell(&mut self, gone: &[LeaseId]) {
        if gone.is_empty() {
            return;
        }
        for observed in self.engine.observe(gone).await.unwrap_or_default() {
            let Some(worker) = observed.worker else { continue };
            if let Ok(answer) = self.find(worker.stint.workload).await {
                let file = self.home.job(&answer.key).join("stints.jsonl");
                let line = serde_json::to_string(&worker).expect("a view has string keys");
                // Evidence for people; nothing depends on it.
                let _ = std::fs::File::options()
                    .create(true)
                    .append(true)
                    .open(file)
                    .and_then(|mut f| writeln!(f, "{line}"));
            }
        }
        let _ = self.engine.forget(gone).await;
    }

    fn merge_progress(&mut self, events: Vec<Event>) -> Vec<Event> {
        let brain = self.cycle.brain();
        let busy: Vec<StintId> = events
            .iter()
            .filter(|event| brain.is_news(event))
            .filter_map(|event| match event {
                Event::WorkerEnded { stint, .. } | Event::CheckpointDurable { stint, .. } => Some(*stint),
                _ => None,
            })
            .collect();
        let mut kept = Vec::new();
        for event in events {
            if let Event::Progress { stint, .. } = &event {
                let recent = self.progress_logged.get(stint).is_some_and(|at| at.elapsed() < PROGRESS_EVERY);
                if recent && !busy.contains(stint) {
                    continue;
                }
                self.progress_logged.insert(*stint, Instant::now());
            }
            kept.push(event);
        }
        self.progress_logged.retain(|stint, _| self.cycle.brain().job(stint.workload).is_some());
        kept
    }

    /// Ends every job and takes every lease: nobody is there any more who wants them. True when none is left.
    async fn abandon(&mut self, events: &mut Vec<Event>) -> bool {
        let brain = self.cycle.brain();
        let live = brain.jobs().filter(|job| job.ended.is_none() && job.cancelled_by.is_none());
        let by = || "the end of its client".to_owned();
        events.extend(live.map(|job| Event::CancelRequested { workload: job.id, by: by() }));
        let leases: Vec<LeaseId> = brain.leases().map(|lease| lease.id).collect();
        for lease in &leases {
            let _ = self.engine.interrupt(*lease, Interrupt::Without).await;
        }
        leases.is_empty() && brain.jobs().next().is_none()
    }

    /// Looks for leases that nobody would ever give back: by themselves they cost money for ever.
    async fn sweep(&mut self, events: &mut Vec<Event>) {
        if self.swept.is_some_and(|swept| swept.elapsed() < SWEEP) {
            return;
        }
        self.swept = Some(Instant::now());
        let owned = match self.engine.list_owned().await {
            Ok(owned) => owned,
            Err(error) => return log(&format!("owned leases cannot be listed: {error}")),
        };
        let brain = self.cycle.brain();
        let orphans = dispatch::orphans(brain, &owned);
        orphans.iter().for_each(|event| log(&format!("not in the log, to be given back: {event:?}")));
        // An earlier server may have ended between the log's knowing that a lease is gone and the engine's forgetting it.
        let booked = |lease: &LeaseId| {
            brain.lease(*lease).is_none() && !orphans.iter().any(|event| event.subject() == Subject::Lease(*lease))
        };
        let gone: Vec<LeaseId> =
            owned.iter().filter(|owned| owned.until.is_some()).map(|owned| owned.lease).filter(booked).collect();
        self.farewell(&gone).await;
        events.extend(orphans);
    }

    /// Turns a submission into an event, or refuses it with nothing changed.
    fn admit(
        &mut self,
        submission: Submission,
        reply: Reply<Accepted>,
        events: &mut Vec<Event>,
        waiting: &mut Vec<(usize, Vec<String>, Reply<Accepted>)>,
    ) {
        let brain = self.cycle.brain();
        if let Some(known) = brain.submitted_as(&submission.key) {
            let _ = reply.send(Ok(Accepted { id: known.0, notes: Vec::new() }));
            return;
        }
        let mut spec = submission.spec;
        if let Err(refusal) = spec.check() {
            let _ = reply.send(Err(problem(422, "unacceptable-job", &refusal.to_string())));
            return;
        }
        if let Some(path) = &spec.checkpoint.path
            && let Some(other) = brain.jobs().find(|job| job.spec.checkpoint.path.as_ref() == Some(path))
        {
            let text = format!("job {} saves its checkpoints in {path} already", other.id);
            let mut refusal = problem(409, "checkpoint-path-in-use", &text);
            refusal.hint = Some(
                "leave `checkpoint.path` out and save in $WINDFALL_CHECKPOINT_DIR, or give each job its own".into(),
            );
            let _ = reply.send(Err(refusal));
            return;
        }
        if brain.jobs().next().is_none() {
            self.engine.cue();
        }
        let now = self.clock.now();
        spec.deadline = submission.deadline_in.map(|span| now + span);
        spec.run.environment = submission.key.clone();
        let (tape, tape_offset) = (self.engine.position().tape(), self.engine.position().offset(now));
        let notes = bill::promises(&spec, submission.deadline_in, tape);
        let kept = Kept {
            env: submission.env,
            foreign: Kept::foreign(&spec),
            tape_offset,
            forecast: bill::forecast(&spec, submission.deadline_in, tape, tape_offset),
        };
        if let Err(error) = kept.write(&self.home.job(&submission.key)) {
            let _ = reply.send(Err(problem(
                507,
                "state-not-writable",
                &format!("the job's folder cannot be written: {error}"),
            )));
            return;
        }
        waiting.push((events.len(), notes, reply));
        events.push(Event::Submitted { workload: Box::new(Workload::Job(spec)), key: submission.key });
    }

    async fn answer(&mut self, ask: Ask) {
        let now = self.clock.now();
        match ask {
            Ask::Hello(reply) => {
                let _ = reply.send(Ok(self.hello(now)));
            }
            Ask::Live(reply) => {
                let brain = self.cycle.brain();
                let _ = reply.send(Ok(brain.jobs().filter_map(|job| brain.view(job.id, now)).collect()));
            }
            Ask::Job(id, reply) => {
                let _ = reply.send(self.job(id).await);
            }
            Ask::Stints(id, reply) => {
                let _ = reply.send(self.stints(id).await);
            }
            Ask::Explain(id, reply) => {
                let _ = reply.send(self.explain(id, now).await);
            }
            Ask::Interrupt(request, reply) => {
                let lease = self.cycle.brain().leases_of(WorkloadId(request.job)).next().map(|lease| lease.id);
                let _ = reply.send(match lease {
                    None => Err(problem(409, "no-lease", "the job holds no lease now")),
                    Some(lease) => self
                        .engine
                        .interrupt(lease, request.how)
                        .await
                        .map_err(|error| problem(503, "engine-refused", &error.to_string())),
                });
            }
            Ask::Submit(..) | Ask::Tell(..) | Ask::Shutdown(..) => {}
        }
    }

    fn hello(&self, now: Time) -> Hello {
        let brain = self.cycle.brain();
        Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            installation: brain.installation().to_string(),
            speed: self.clock.speed(),
            market: self.world.replay.market.clone(),
            zones: self.engine.position().tape().zones().map(str::to_owned).collect(),
            now,
            live_jobs: brain.jobs().filter(|job| job.ended.is_none()).count(),
            leases: brain.leases().count(),
        }
    }

    /// A job, wherever it is remembered.
    async fn find(&self, id: WorkloadId) -> Result<JobView, Problem> {
        if let Some(view) = self.cycle.brain().view(id, self.clock.now()) {
            return Ok(view);
        }
        let row = self.cycle.store().job(id.0).await.map_err(|error| problem(503, "store-refused", &chain(&error)))?;
        let row = row.ok_or_else(|| problem(404, "no-such-job", &format!("no job has the number {id}")))?;
        windfall_core::codec::decode(row.version, &row.summary)
            .map_err(|error| problem(500, "unreadable-job", &error.to_string()))
    }

    /// Why what a person wants of a job cannot be.
    async fn refusal(&self, event: &Event) -> Option<Problem> {
        let Subject::Workload(id) = event.subject() else { return None };
        let brain = self.cycle.brain();
        let Some(job) = brain.job(id).filter(|job| job.ended.is_none()) else {
            return Some(match self.find(id).await {
                Ok(view) => problem(409, "job-is-over", &format!("job {id} is over: {}", view.state.word())),
                Err(problem) => problem,
            });
        };
        let spent = brain.spent(job, self.clock.now());
        let too_small = matches!(event, Event::BudgetSet { budget: Some(budget), .. } if *budget <= spent);
        too_small.then(|| problem(409, "budget-is-spent", &format!("job {id} has cost {spent} already")))
    }

    async fn job(&self, id: WorkloadId) -> Result<JobAnswer, Problem> {
        let job = self.find(id).await?;
        let leases: Vec<LeaseId> = self.cycle.brain().leases_of(id).map(|lease| lease.id).collect();
        let observed = self.engine.observe(&leases).await.unwrap_or_default();
        let workers: Vec<_> = observed.into_iter().filter_map(|observed| observed.worker).collect();
        // Not over for good before its leases are gone: then the bill would still change.
        let brain = self.cycle.brain();
        let paused = job.state == State::Paused && brain.leases_of(id).next().is_none();
        let settled = paused || (job.state.is_over() && brain.job(id).is_none());
        Ok(JobAnswer {
            bill: settled.then(|| self.bill(&job)),
            pids: workers.iter().filter(|worker| worker.end.is_none()).filter_map(|worker| worker.pid).collect(),
            last_words: if settled && job.state == State::Failed {
                logs::last_words(&self.home.job(&job.key))
            } else {
                Vec::new()
            },
            trouble: workers.iter().find_map(|worker| worker.trouble.as_ref()).map(|trouble| trouble.text.clone()),
            evidence: workers.into_iter().next().map(|worker| worker.evidence),
            job,
        })
    }

    /// Workers of ended stints as they were last seen, then those of the present one.
    async fn stints(&self, id: WorkloadId) -> Result<Vec<WorkerView>, Problem> {
        let job = self.find(id).await?;
        let ended = std::fs::read_to_string(self.home.job(&job.key).join("stints.jsonl")).unwrap_or_default();
        let mut workers: Vec<WorkerView> = ended.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let leases: Vec<LeaseId> = self.cycle.brain().leases_of(id).map(|lease| lease.id).collect();
        let observed = self.engine.observe(&leases).await.unwrap_or_default();
        workers.extend(observed.into_iter().filter_map(|observed| observed.worker));
        Ok(workers)
    }

    fn bill(&self, job: &JobView) -> Bill {
        let kept = Kept::read(&self.home.job(&job.key)).ok();
        bill::bill(job, kept.as_ref(), self.engine.position().tape())
    }

    async fn explain(&self, id: WorkloadId, now: Time) -> Result<ExplainAnswer, Problem> {
        let job = self.find(id).await?;
        let rows = self.cycle.store().rows_of(id.0, 0, 100_000).await;
        let rows = rows.map_err(|error| problem(503, "store-refused", &chain(&error)))?;
        let present = self.cycle.brain().explain(id, now);
        Ok(ExplainAnswer {
            lines: history::lines(&rows, job.submitted_at),
            policy: present.as_ref().map(|present| present.policy.clone()),
            next_wakeup: present.as_ref().and_then(|present| present.next_wakeup),
            present: present.map(|present| present.reason),
            job,
        })
    }
}

/// One line in the server's log.
pub(crate) fn log(text: &str) {
    // A full disk must not end the server, so this may fail.
    let _ = writeln!(std::io::stderr(), "windfall: {text}");
}

/// An error with all of its causes on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
