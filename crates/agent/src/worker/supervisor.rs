//! Which requests the agent obeys, and which worker each is for. There is one worker at a time of each workload and
//! member: a new one starts only when the last one is over. Workers of different workloads know nothing of each other.

use super::files::ask_to_save;
use super::owed::{Kept, Left};
use super::state::{Tell, Teller, WorkerRun};
use super::view::SharedView;
use crate::progress::now_ms;
use crate::worker_processes::LeaseProcesses;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use windfall_core::worker::{AgentRequest, AgentView, StartOrder, WorkerView};
use windfall_core::{StintId, WorkerEnd, WorkloadId};

/// How long workers may take to put their unsaved files in a safe place when the agent is told to quit.
const LEAVE: Duration = Duration::from_secs(5);

/// A request, and where its sender hears that it was done.
pub(crate) type Order = (AgentRequest, oneshot::Sender<()>);

pub(crate) struct Supervisor {
    dir: PathBuf,
    orders: mpsc::Receiver<Order>,
    view: SharedView,
    processes: Arc<LeaseProcesses>,
    /// The last worker of each workload and member.
    workers: BTreeMap<(WorkloadId, u32), RunningWorker>,
    /// When the machine ends, once that is announced.
    notice: Option<Instant>,
    kept: Kept,
}

/// A worker that was started, and may have ended since.
struct RunningWorker {
    stint: StintId,
    teller: Teller,
    task: tokio::task::JoinHandle<()>,
}

impl Supervisor {
    pub fn new(dir: &Path, orders: mpsc::Receiver<Order>, kept: Kept) -> (Supervisor, watch::Receiver<AgentView>) {
        let (view, seen) = SharedView::new(dir);
        let (workers, processes) = (BTreeMap::new(), Arc::default());
        (Supervisor { dir: dir.to_owned(), orders, view, processes, workers, notice: None, kept }, seen)
    }

    /// Goes on with what an agent owed that was killed. It runs inside a runtime.
    pub fn take_over(&mut self) {
        let Left { owed, notice_ms, .. } = self.kept.left();
        let left = |at_ms: u64| Duration::from_millis(at_ms.saturating_sub(now_ms()));
        self.notice = notice_ms.map(|at_ms| Instant::now() + left(at_ms));
        self.view.take_over(owed.iter().map(|owed| owed.worker.clone()));
        for owed in owed {
            let (order, began_ms, was_first) = (owed.order.clone(), owed.began_ms, owed.is_first);
            self.begin(order, |run| {
                let run = WorkerRun { began_ms, was_first, ..run };
                run.go_on(owed).boxed()
            });
        }
    }

    /// Serves orders until `Quit`.
    pub async fn run(mut self) {
        while let Some((request, done)) = self.orders.recv().await {
            let quit = matches!(request, AgentRequest::Quit);
            match request {
                AgentRequest::Start(order) => self.start(*order),
                AgentRequest::Stop { stint, rank, grace_ms, gone, is_torn, gives_up } => {
                    let kill_at = Instant::now() + Duration::from_millis(grace_ms);
                    if let Some(worker) = self.worker_of(stint) {
                        worker.teller.bury(&gone);
                    }
                    // What those that are named had sent still counts, and their last words tell what they had not.
                    let is_torn = is_torn && gone.is_empty();
                    self.stop(stint, rank, if gives_up { Tell::GiveUp } else { Tell::Stop { kill_at, is_torn } });
                }
                AgentRequest::Save { stint, request } => self.save(stint, request),
                AgentRequest::Notice { in_ms } => {
                    let ends = Instant::now() + Duration::from_millis(in_ms);
                    self.notice = Some(ends);
                    self.kept.noticed(now_ms() + in_ms);
                    self.workers.values().for_each(|worker| worker.teller.tell(Tell::Notice(ends)));
                }
                AgentRequest::Watch { .. } => {}
                AgentRequest::Quit => self.leave_all().await,
            }
            let _ = done.send(());
            if quit {
                return;
            }
        }
    }

    /// A new worker may start when there is none of its workload and member, or when the last one is over and of an
    /// older stint.
    fn accepts(&self, order: &StartOrder) -> bool {
        match self.view.last_of(order.stint) {
            None => true,
            Some(last) => last.end.is_some() && last.settled && order.stint.epoch > last.stint.epoch,
        }
    }

    fn start(&mut self, order: StartOrder) {
        if !self.accepts(&order) {
            return;
        }
        let stint = order.stint;
        if let Some(why) = order.refused {
            let end = Some(WorkerEnd::NeverRan { why });
            return self.view.show(WorkerView { end, settled: true, ..WorkerView::new(stint, order.rank) });
        }
        self.view.show(WorkerView::new(stint, order.rank));
        self.kept.runs(stint);
        self.begin(order, |run| run.run().boxed());
    }

    /// Begins what a worker does, beside the others.
    fn begin(&mut self, order: StartOrder, what: impl FnOnce(WorkerRun) -> BoxFuture<'static, ()>) {
        let (stint, kept) = (order.stint, self.kept.clone());
        let (run, teller) =
            WorkerRun::new(&self.dir, order, self.view.clone(), Arc::clone(&self.processes), kept.clone());
        let done = what(run);
        let task = tokio::spawn(async move {
            done.await;
            kept.is_over(stint);
        });
        let worker = RunningWorker { stint, teller, task };
        // The notice came before this worker was started.
        if let Some(ends) = self.notice {
            worker.teller.tell(Tell::Notice(ends));
        }
        self.workers.insert((stint.workload, stint.member), worker);
    }

    fn worker_of(&self, stint: StintId) -> Option<&RunningWorker> {
        self.workers.get(&(stint.workload, stint.member)).filter(|worker| worker.stint == stint)
    }

    fn stop(&self, stint: StintId, rank: u32, tell: Tell) {
        match (self.view.last_of(stint), self.worker_of(stint)) {
            (_, Some(worker)) => worker.teller.tell(tell),
            // Meant for an older stint, or for a newer one while an older still runs: nothing to stop here.
            (Some(last), None) if last.end.is_none() || last.stint.epoch >= stint.epoch => {}
            // It will not start later.
            _ => {
                let end = Some(WorkerEnd::Stopped);
                self.view.show(WorkerView { end, settled: true, ..WorkerView::new(stint, rank) });
            }
        }
    }

    fn save(&self, stint: StintId, request: u64) {
        if self.view.last_of(stint).is_some_and(|last| last.stint == stint && last.end.is_none()) {
            ask_to_save(&self.dir, stint, request);
        }
    }

    /// Ends the workers, side by side. Those whose program has ended may still put their files in a safe place.
    async fn leave_all(&mut self) {
        let view = &self.view;
        let leaving = std::mem::take(&mut self.workers).into_values().map(|worker| async move {
            let last = view.last_of(worker.stint).filter(|last| last.stint == worker.stint);
            let abort = worker.task.abort_handle();
            if last.is_some_and(|last| last.end.is_some() && !last.settled) {
                worker.teller.tell(Tell::Quit);
                let _ = tokio::time::timeout(LEAVE, worker.task).await;
            }
            abort.abort();
        });
        join_all(leaving).await;
    }
}
