//! One worker's life: restore, start, watch, warn, end, last save. The supervisor owns it and publishes
//! a view after every change; the view's end is set only when nothing of the worker runs any more, and before the
//! last save, which may take long.

mod last_save;
mod program;
mod report;
mod restore;

use crate::checkpoint::{CheckpointError, Mover, MoverEvent};
use crate::serve::Order;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use windfall_core::worker::{AgentRequest, AgentView, StartOrder, WorkerView};
use windfall_core::{StintId, WorkerEnd};

/// How long a worker may take to put its unsaved files in a safe place when the agent is told to quit.
const LEAVE: Duration = Duration::from_secs(5);

pub(crate) struct Supervisor {
    dir: PathBuf,
    orders: mpsc::Receiver<Order>,
    view: watch::Sender<AgentView>,
}

/// What the running worker is told.
#[derive(Clone, Copy, Debug)]
enum Tell {
    /// Save and stop; killed at that time.
    Stop(Instant),
    /// The agent ends now: a last save that is still on its way is given up.
    Quit,
}

/// A worker that was started, and may have ended since.
struct Running {
    tell: mpsc::UnboundedSender<Tell>,
    life: tokio::task::JoinHandle<()>,
}

impl Running {
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
        let mut worker: Option<Running> = None;
        let mut notice: Option<Instant> = None;
        while let Some((request, done)) = self.orders.recv().await {
            match request {
                AgentRequest::Start(order) => {
                    if self.accepts(&order) {
                        let started = self.start(*order);
                        // A machine that is about to go tells a late-comer at once.
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

    fn start(&self, order: StartOrder) -> Running {
        publish(&self.dir, &self.view, |view| *view = Some(WorkerView::new(order.stint, order.rank)));
        let (tell, told) = mpsc::unbounded_channel();
        let life = Life { dir: self.dir.clone(), order, view: self.view.clone(), told, began_ms: 0 };
        Running { tell, life: tokio::spawn(life.run()) }
    }

    fn stop(&self, stint: StintId, rank: u32, worker: Option<&Running>, ends: Instant) {
        let last = self.view.borrow().worker.as_ref().map(|last| (last.stint, last.end.is_some()));
        match (last, worker) {
            (Some((running, _)), Some(worker)) if running == stint => worker.tell(Tell::Stop(ends)),
            // A word to an older stint, or to a newer one while an older still runs, is not for anyone here.
            (Some((known, over)), _) if !over || known.epoch >= stint.epoch => {}
            _ => publish(&self.dir, &self.view, |view| {
                let end = Some(WorkerEnd::Stopped);
                *view = Some(WorkerView { end, settled: true, ..WorkerView::new(stint, rank) });
            }),
        }
    }

    /// Ends a worker. One whose program has ended may still put its files in a safe place.
    async fn leave(&self, worker: Running) {
        let saving = self.view.borrow().worker.as_ref().is_some_and(|last| last.end.is_some() && !last.settled);
        let abort = worker.life.abort_handle();
        if saving {
            worker.tell(Tell::Quit);
            let _ = tokio::time::timeout(LEAVE, worker.life).await;
        }
        abort.abort();
    }
}

/// The file in which a program finds the number of the last save that was asked for.
fn save_request(dir: &Path, stint: StintId) -> PathBuf {
    dir.join(format!("save-request-{}", stint.epoch))
}

/// Leaves the number of a request where the program looks for it; older ones say nothing new.
fn ask_to_save(dir: &Path, stint: StintId, request: u64) {
    let path = save_request(dir, stint);
    let known = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if known.is_none_or(|known| known < request) {
        // A program that is not told goes on, and is asked again.
        let _ = write_whole(&path, request.to_string().as_bytes());
    }
}

/// Writes beside and renames: whoever reads finds the old content or the new one.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, content).and_then(|()| std::fs::rename(&fresh, path))
}

/// Changes the view; an end is written to the folder first, so that it outlives the agent.
fn publish(dir: &Path, view: &watch::Sender<AgentView>, change: impl FnOnce(&mut Option<WorkerView>)) {
    view.send_if_modified(|view| {
        let before = view.worker.clone();
        change(&mut view.worker);
        if view.worker == before {
            return false;
        }
        view.version += 1;
        let durable = |worker: &Option<WorkerView>| worker.as_ref().and_then(|worker| worker.durable);
        if view.worker.as_ref().is_some_and(|worker| worker.end.is_some()) || durable(&before) != durable(&view.worker)
        {
            let text = serde_json::to_vec(view).expect("a view has string keys");
            let _ = write_whole(&dir.join("view.json"), &text);
        }
        true
    });
}

struct Life {
    dir: PathBuf,
    order: StartOrder,
    view: watch::Sender<AgentView>,
    told: mpsc::UnboundedReceiver<Tell>,
    /// When the program was started, in milliseconds since 1970.
    began_ms: u64,
}

/// A program that has ended, with what it left.
struct Ended {
    end: WorkerEnd,
    /// When its last save must be durable, if it was asked to stop.
    asked: Option<Instant>,
    /// It died of a signal, or a process of it did near its end.
    died: bool,
    saves: PathBuf,
    mover: Option<Moving>,
}

/// The mover of a stint's checkpoints, and what it reports.
struct Moving {
    mover: Mover,
    events: mpsc::UnboundedReceiver<MoverEvent>,
}

/// A worker that could not run, for people.
fn never_ran(why: impl Into<String>) -> WorkerEnd {
    WorkerEnd::NeverRan { why: why.into() }
}

fn cannot_run(error: CheckpointError) -> WorkerEnd {
    never_ran(error.trouble().text)
}

impl Life {
    async fn run(mut self) {
        let ended = match self.live().await {
            Ok(ended) => ended,
            Err(end) => {
                self.change(|worker| (worker.end, worker.settled) = (Some(end), true));
                return;
            }
        };
        let Ended { end, asked, died, saves, mover } = ended;
        self.leave_mark(died);
        self.change(|worker| (worker.end, worker.settled) = (Some(end), mover.is_none()));
        if let Some(mover) = mover {
            self.last_save(mover, &saves, asked).await;
            self.change(|worker| worker.settled = true);
        }
    }

    fn change(&self, change: impl FnOnce(&mut WorkerView)) {
        publish(&self.dir, &self.view, |view| {
            if let Some(worker) = view.as_mut().filter(|worker| worker.stint == self.order.stint) {
                change(worker);
            }
        });
    }

    /// The job's folder: what is there outlives the lease, and the ranks of a gang share it.
    fn beside(&self) -> &Path {
        Path::new(&self.order.output).parent().unwrap_or(&self.dir)
    }
}
