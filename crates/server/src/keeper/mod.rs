//! The shell of the server's loop: one task that owns the loop, waits, and does the I/O that the loop asks for. It
//! decides nothing: what to do next, and what an error means, is in [`crate::cycle`].

mod calls;
mod replies;

use crate::admission::Prepared;
use crate::api_types::{Accepted, InterruptRequest, Problem};
use crate::archive::Archive;
use crate::bound::Bound;
use crate::cycle::{Cycle, Moment, Step, Ticket};
use crate::dispatch::{Look, Performed};
use crate::engines::Engines;
use crate::folders::{self, Folders};
use crate::home::{Home, log};
use crate::reader::Standing;
use crate::seal::Seal;
use crate::snapshots::{SnapshotEnd, SnapshotTask};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use windfall_core::brain::Explanation;
use windfall_core::english::with_causes;
use windfall_core::{DecisionId, Event, LeaseId, Span, Time, WorkloadId};
use windfall_exec::{AgentLink, WorldClock};
use windfall_store::{Loaded, Store, StoreError};

/// Longest sleep: a safety net under lost wake-ups, and the resolution of the idle timer.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// A rest that took so much longer than was asked for means that this server did not run: it was stopped, or the machine
/// slept. Only rests count: a turn that takes long is no reason to wait longer for an engine that does not answer.
const STALL: Duration = Duration::from_secs(2);
/// After that, agents have so long to say what they did meanwhile, before anything is decided on old news.
const CATCH_UP: Duration = Duration::from_millis(700);
/// Log rows of ended jobs are kept for so long.
const KEEP_LOG: Span = Span::hours(30 * 24);
/// What ended jobs printed is kept for so long.
const KEEP_OUTPUT: Duration = Duration::from_secs(30 * 24 * 3_600);
/// How often the log is cut while the server runs, where snapshots are made.
const CUT_EVERY: Duration = Duration::from_secs(3_600);
/// Time to take the lead and to load; a large state takes seconds.
const LEAD_WITHIN: Duration = Duration::from_secs(120);
/// How long a server that is told to end goes on until machines are given back that nobody uses any more.
const GIVE_BACK: Duration = Duration::from_secs(10);
/// How long a server that ends waits until engines have forgotten what is gone.
const TIDY_UP: Duration = Duration::from_secs(5);
/// Requests taken into one batch.
const BATCH: usize = 1_000;

pub(crate) type Reply<T> = oneshot::Sender<Result<T, Problem>>;

/// What clients ask of the keeper.
pub enum Ask {
    /// Somebody is about to submit a job with this key.
    Knock(String, Reply<()>),
    /// Accept a job.
    Submit(Box<Prepared>, Reply<Accepted>),
    /// A person wants something of a live job.
    Tell(Event, Reply<()>),
    /// What the brain that decides would do with a job now, and when it looks again.
    Explain(WorkloadId, Reply<Option<Explanation>>),
    /// Look at once for what engines hold that nobody knows.
    Sweep(Reply<()>),
    /// Take a lease away.
    Interrupt(InterruptRequest, Reply<()>),
    /// End the server; jobs go on.
    Shutdown(Reply<()>),
}

/// The end of something that runs beside the keeper.
pub(crate) enum Report {
    /// A decision was carried out.
    Performed(DecisionId, Performed),
    /// What an engine shows may have changed.
    Stirred(String),
    /// An engine was looked at.
    Saw(String, u64, Result<Look, String>),
    /// The store was asked for the lead and the state.
    Led(Result<(u64, Result<Loaded, StoreError>), StoreError>),
    /// A snapshot was made, or not.
    Snapshot(SnapshotEnd),
}

/// Who waits for the answer to a request.
pub(crate) enum Waiting {
    Submitter { remarks: Vec<String>, reply: Reply<Accepted> },
    Teller(Reply<()>),
}

/// When somebody asked last.
#[derive(Debug)]
pub(crate) struct Asked {
    began: Instant,
    after_ms: AtomicU64,
}

impl Asked {
    pub fn new(began: Instant) -> Asked {
        Asked { began, after_ms: AtomicU64::new(0) }
    }

    /// Somebody asks now.
    pub fn now(&self) {
        self.after_ms.store(self.began.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn at(&self) -> Instant {
        self.began + Duration::from_millis(self.after_ms.load(Ordering::Relaxed))
    }
}

/// A rest of the loop: how long it was to take at most, and took.
#[derive(Clone, Copy, Debug)]
struct Rested {
    asked: Duration,
    took: Duration,
}

impl Rested {
    /// Whether this server was stopped meanwhile, or its machine slept.
    fn did_not_run(self) -> bool {
        self.took > self.asked + STALL
    }
}

/// A job that was accepted, and who waits for what is said of it.
pub(crate) struct Undecided {
    pub id: WorkloadId,
    pub notes: Vec<String>,
    pub reply: Reply<Accepted>,
    pub since: Instant,
}

/// The keeper's things.
pub struct Keeper {
    pub(crate) home: Arc<Home>,
    pub(crate) cycle: Cycle,
    pub(crate) store: Arc<dyn Store>,
    /// Opens what the store has sealed.
    pub(crate) seal: Arc<Seal>,
    pub(crate) clock: Arc<WorldClock>,
    pub(crate) engines: Engines,
    pub(crate) link: Arc<dyn AgentLink>,
    /// Leases that were taken away because nobody wants them any more.
    pub(crate) taken_away: BTreeSet<LeaseId>,
    /// Jobs that were accepted and not decided about yet, and who waits for what is said of them.
    pub(crate) undecided: Vec<Undecided>,
    /// Leases that engines are about to forget.
    pub(crate) tidying: JoinSet<()>,
    pub(crate) folders: Folders,
    pub(crate) asks: mpsc::Receiver<Ask>,
    pub(crate) reports: mpsc::UnboundedReceiver<Report>,
    pub(crate) report_sender: mpsc::UnboundedSender<Report>,
    /// What those are told who wait for something to happen.
    pub(crate) standing: watch::Sender<Standing>,
    /// When the log was last cut.
    pub(crate) cut: Instant,
    /// When somebody asked last, whether that entered the loop or not.
    pub(crate) asked: Arc<Asked>,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    pub(crate) tickets: u64,
    pub(crate) began: Instant,
    pub(crate) idle_after: Duration,
    pub(crate) last_used: Instant,
    /// Since when it is told to end.
    pub(crate) ending: Option<Instant>,
    /// The process without which it ends.
    pub(crate) bound: Option<Bound>,
}

impl Keeper {
    /// Serves until told to end, or until idle for long enough; gives the reason when it had to end.
    pub async fn run(mut self) -> Option<String> {
        let sender = self.report_sender.clone();
        self.engines.watch(move |engine| sender.send(Report::Stirred(engine.to_owned())).is_ok());
        let why = self.serve().await;
        // What is left over is found by the next server's sweep.
        let _ = tokio::time::timeout(TIDY_UP, async { while self.tidying.join_next().await.is_some() {} }).await;
        why
    }

    async fn serve(&mut self) -> Option<String> {
        self.cut_log();
        let home = self.home.identity();
        // Agents have a moment to say what happened while no server ran.
        if !self.hear(&[], true).is_empty() || self.cycle.brain().leases().next().is_some() {
            tokio::time::sleep(CATCH_UP).await;
        }
        loop {
            match self.cycle.next(self.moment()) {
                Step::Rest { world, real } => {
                    self.answer_decided();
                    let idle = self.last_used.max(self.asked.at()).elapsed() > self.idle_after;
                    let ends = self.ending.is_some_and(|since| since.elapsed() > GIVE_BACK || !self.owes());
                    if ends || (idle && self.cycle.brain().leases().next().is_none()) {
                        return None;
                    }
                    let rested = self.rest(world, real).await?;
                    if rested.did_not_run() {
                        self.cycle.slept(self.moment());
                        tokio::time::sleep(CATCH_UP).await;
                        let reports: Vec<Report> = std::iter::from_fn(|| self.reports.try_recv().ok()).collect();
                        self.take_reports(reports);
                    }
                    if self.home.identity() != home {
                        // Nobody could ever find what it leases.
                        self.engines.abandon().await;
                        return Some(format!("the state directory is gone: {}", self.home.path.display()));
                    }
                    self.cycle.turn();
                }
                Step::End(why) => return Some(why),
                step => {
                    self.carry_out(step).await;
                    self.publish();
                }
            }
        }
    }

    /// Whether it holds machines that nobody uses any more: the next server may be started in a month, and until then they
    /// would be paid for.
    fn owes(&self) -> bool {
        let brain = self.cycle.brain();
        let is_over = |id| brain.job(id).is_none_or(|job| job.ended.is_some());
        brain.leases().any(|lease| lease.is_releasing() || lease.workloads().all(is_over))
    }

    /// Tells those who wait that there is something to see.
    fn publish(&self) {
        let away = self.cycle.away().map(|away| (self.began + away.since(), away.why().to_owned()));
        let standing = Standing { seq: self.cycle.known_seq(), away };
        self.standing.send_if_modified(|known| {
            let changed = *known != standing;
            *known = standing;
            changed
        });
    }

    pub(crate) fn moment(&self) -> Moment {
        Moment { world: self.clock.now(), real: self.began.elapsed() }
    }

    /// Waits until something happens or a moment comes. None when nobody can ask any more.
    async fn rest(&mut self, world: Option<Time>, real: Option<Duration>) -> Option<Rested> {
        let now = self.moment();
        let world = world.map(|at| self.clock.real_time(at - now.world));
        let real = real.map(|at| at.saturating_sub(now.real));
        let sleep = world.into_iter().chain(real).min().unwrap_or(LONGEST_SLEEP);
        let (sleep, began) = (sleep.clamp(Duration::from_millis(1), LONGEST_SLEEP), Instant::now());
        let (mut asks, mut reports) = (Vec::new(), Vec::new());
        tokio::select! {
            ask = self.asks.recv() => match ask {
                Some(ask) => asks.push(ask),
                None => return None,
            },
            report = self.reports.recv() => reports.extend(report),
            () = self.link.changed() => {}
            () = tokio::time::sleep(sleep) => {}
        }
        let rested = Rested { asked: sleep, took: began.elapsed() };
        while asks.len() < BATCH
            && let Ok(ask) = self.asks.try_recv()
        {
            asks.push(ask);
        }
        while let Ok(report) = self.reports.try_recv() {
            reports.push(report);
        }
        if !asks.is_empty() || self.cycle.brain().jobs().next().is_some() {
            self.last_used = Instant::now();
        }
        self.take_reports(reports);
        for ask in asks {
            self.take(ask);
        }
        if self.bound.as_ref().is_some_and(Bound::is_gone) && self.abandon() {
            self.ending = Some(Instant::now());
        }
        Some(rested)
    }

    fn take_reports(&mut self, reports: Vec<Report>) {
        let now = self.moment();
        for report in reports {
            match report {
                Report::Performed(id, performed) => self.cycle.performed(now, id, performed),
                Report::Stirred(engine) => self.cycle.stirred(now, &engine),
                Report::Saw(engine, number, result) => self.cycle.saw(now, &engine, number, result),
                Report::Led(result) => self.cycle.led(now, result),
                Report::Snapshot(end) => self.cycle.snapshot_ended(end),
            }
        }
    }

    /// Does the I/O of one step.
    async fn carry_out(&mut self, step: Step) {
        match step {
            Step::Look { engine, number, groups, sweep } => self.look(engine, number, groups, sweep),
            Step::Hear { gone, all } => {
                let (now, said) = (self.moment(), self.hear(&gone, all));
                self.cycle.heard(now, said);
            }
            Step::Commit(commit) => {
                let result = self.store.commit(self.cycle.epoch(), &commit).await;
                self.cycle.committed(self.moment(), result);
            }
            Step::Snapshot(task) => self.snapshot(task),
            Step::Lead { known } => self.lead(known),
            Step::Call(open) => self.call(open),
            Step::Answer(ticket, answer) => self.answered(ticket, answer),
            Step::Forget(gone) => self.forget(gone),
            Step::Say(text) => log(&text),
            Step::Rest { .. } | Step::End(_) => {}
        }
    }

    /// Asks the store for the lead and for what was missed, beside the keeper.
    fn lead(&self, known: u64) {
        let (store, sender) = (Arc::clone(&self.store), self.report_sender.clone());
        tokio::spawn(async move {
            let led = async {
                match store.lead().await {
                    Ok(epoch) => Ok((epoch, store.load_after(known).await)),
                    Err(error) => Err(error),
                }
            };
            // A host that froze in the middle is asked again, not waited for.
            let led = tokio::time::timeout(LEAD_WITHIN, led).await;
            let result = led.unwrap_or(Err(StoreError::Unsure { source: None }));
            let _ = sender.send(Report::Led(result));
        });
    }

    /// Makes a snapshot beside the loop, then deletes what it makes needless.
    fn snapshot(&mut self, task: SnapshotTask) {
        let (store, sender, epoch) = (Arc::clone(&self.store), self.report_sender.clone(), self.cycle.epoch());
        tokio::spawn(async move {
            let end = task.run(&*store, epoch).await;
            let _ = sender.send(Report::Snapshot(end));
            // What is left over costs room and nothing else: the next snapshot's turn deletes it.
            let _ = store.forget_parts(epoch).await;
        });
        if self.cut.elapsed() > CUT_EVERY {
            self.cut_log();
        }
    }

    /// Log rows and output of ended jobs are for explaining them; after a month nobody asks. Jobs and ledger stay.
    fn cut_log(&mut self) {
        self.cut = Instant::now();
        let (store, epoch, covered) = (Arc::clone(&self.store), self.cycle.epoch(), self.cycle.snapshot_seq());
        let before = self.clock.now() - KEEP_LOG;
        let live: BTreeSet<String> = self.cycle.brain().jobs().map(|job| job.spec.run.environment.clone()).collect();
        let folders = self.home.job("");
        tokio::task::spawn_blocking(move || folders::drop_old(&folders, &live, KEEP_OUTPUT));
        tokio::spawn(async move {
            if let Err(error) = store.cut(epoch, covered, before.0).await {
                log(&format!("old log rows stay: {}", with_causes(&error)));
            }
        });
    }

    pub(crate) fn archive(&self) -> Archive {
        Archive {
            store: Arc::clone(&self.store),
            home: Arc::clone(&self.home),
            engines: self.engines.clone(),
            seal: Arc::clone(&self.seal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_that_took_as_long_as_was_asked_for_is_no_sleep_of_the_machine() {
        let rested = |asked, took| Rested { asked: Duration::from_secs(asked), took: Duration::from_secs(took) };
        assert!(!rested(1, 1).did_not_run() && !rested(3, 4).did_not_run());
        assert!(rested(1, 4).did_not_run());
    }
}
