//! Which requests the agent obeys. There is one worker at a time: a new one starts only when the last one is over.

use super::files::ask_to_save;
use super::state::{Tell, WorkerRun};
use super::view::publish;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot, watch};
use windfall_core::worker::{AgentRequest, AgentView, StartOrder, WorkerView};
use windfall_core::{StintId, WorkerEnd};

/// How long a worker may take to put its unsaved files in a safe place when the agent is told to quit.
const LEAVE: Duration = Duration::from_secs(5);

/// A request, and where its sender hears that it was done.
pub(crate) type Order = (AgentRequest, oneshot::Sender<()>);

pub(crate) struct Supervisor {
    dir: PathBuf,
    orders: mpsc::Receiver<Order>,
    view: watch::Sender<AgentView>,
}

/// A worker that was started, and may have ended since.
struct RunningWorker {
    tell: mpsc::UnboundedSender<Tell>,
    task: tokio::task::JoinHandle<()>,
}

impl RunningWorker {
    fn tell(&self, tell: Tell) {
        // A worker that has ended hears nothing more, and need not.
        let _ = self.tell.send(tell);
    }
}

impl Supervisor {
    pub fn new(dir: PathBuf, orders: mpsc::Receiver<Order>) -> (Supervisor, watch::Receiver<AgentView>) {
        let (view, seen) = watch::channel(AgentView { version: 1, pid: std::process::id(), worker: None });
        (Supervisor { dir, orders, view }, seen)
    }

    /// Serves orders until `Quit`. Between workers it is idle; during one it serves orders as well.
    pub async fn run(mut self) {
        let mut worker: Option<RunningWorker> = None;
        let mut notice: Option<Instant> = None;
        while let Some((request, done)) = self.orders.recv().await {
            match request {
                AgentRequest::Start(order) => {
                    if self.accepts(&order) {
                        let started = self.start(*order);
                        // The notice came before this worker was started.
                        if let Some(ends) = notice {
                            started.tell(Tell::Stop(ends));
                        }
                        worker = Some(started);
                    }
                }
                AgentRequest::Stop { stint, rank, grace_ms } => {
                    let ends = Instant::now() + Duration::from_millis(grace_ms);
                    self.stop(stint, rank, worker.as_ref(), ends);
                }
                AgentRequest::Save { stint, request } => {
                    let runs = self.view.borrow().worker.as_ref().is_some_and(|w| w.stint == stint && w.end.is_none());
                    if runs {
                        ask_to_save(&self.dir, stint, request);
                    }
                }
                AgentRequest::Notice { in_ms } => {
                    let ends = Instant::now() + Duration::from_millis(in_ms);
                    notice = Some(ends);
                    if let Some(worker) = &worker {
                        worker.tell(Tell::Stop(ends));
                    }
                }
                AgentRequest::Watch { .. } => {}
                AgentRequest::Quit => {
                    if let Some(worker) = worker.take() {
                        self.leave(worker).await;
                    }
                    let _ = done.send(());
                    return;
                }
            }
            let _ = done.send(());
        }
    }

    /// A new worker may start when there is none, or when the last one is over and of an older stint.
    fn accepts(&self, order: &StartOrder) -> bool {
        match &self.view.borrow().worker {
            None => true,
            Some(last) => last.end.is_some() && last.settled && order.stint.epoch > last.stint.epoch,
        }
    }

    fn start(&self, order: StartOrder) -> RunningWorker {
        publish(&self.dir, &self.view, |view| *view = Some(WorkerView::new(order.stint, order.rank)));
        let (run, tell) = WorkerRun::new(self.dir.clone(), order, self.view.clone());
        RunningWorker { tell, task: tokio::spawn(run.run()) }
    }

    fn stop(&self, stint: StintId, rank: u32, worker: Option<&RunningWorker>, ends: Instant) {
        let last = self.view.borrow().worker.as_ref().map(|last| (last.stint, last.end.is_some()));
        match (last, worker) {
            (Some((running, _)), Some(worker)) if running == stint => worker.tell(Tell::Stop(ends)),
            // Meant for an older stint, or for a newer one while an older still runs: nothing to stop here.
            (Some((known, over)), _) if !over || known.epoch >= stint.epoch => {}
            _ => publish(&self.dir, &self.view, |view| {
                let end = Some(WorkerEnd::Stopped);
                *view = Some(WorkerView { end, settled: true, ..WorkerView::new(stint, rank) });
            }),
        }
    }

    /// Ends a worker. One whose program has ended may still put its files in a safe place.
    async fn leave(&self, worker: RunningWorker) {
        let saving = self.view.borrow().worker.as_ref().is_some_and(|last| last.end.is_some() && !last.settled);
        let abort = worker.task.abort_handle();
        if saving {
            worker.tell(Tell::Quit);
            let _ = tokio::time::timeout(LEAVE, worker.task).await;
        }
        abort.abort();
    }
}
