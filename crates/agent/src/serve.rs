//! The agent: answers on the lease's socket, one request and one answer at a time. One task owns the
//! workers; whoever asks is told the state as it is.

use crate::worker::{Kept, Order, Supervisor};
use crate::{AgentError, processes};
use rustix::process::{Signal, getppid, set_child_subreaper, set_parent_process_death_signal};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use windfall_core::worker::{AgentRequest, AgentView, CONTACT, Contact};

/// A watch is answered after this long even when nothing changed, so that a dead peer is noticed.
const HOLD: Duration = Duration::from_secs(5);

/// The longest request: a program and all of its variables are far shorter.
const MOST_REQUEST: u64 = 64 << 20;

/// How often it is looked when the server was last heard.
const LOOK_FOR_CONTACT: Duration = Duration::from_secs(1);

/// Serves a lease's folder until told to quit, or until the guard is gone.
pub fn serve(dir: &Path) -> Result<(), AgentError> {
    let failed = |what: &'static str| move |error: rustix::io::Errno| AgentError::new(what)(error.into());
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(failed("the agent cannot be bound to its guard"))?;
    set_child_subreaper(Some(rustix::process::getpid())).map_err(failed("orphans cannot be adopted"))?;
    if getppid() != parent {
        return Ok(());
    }
    // One thread: workers are bound to the thread that started them.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(AgentError::new("the agent cannot start"))?;
    let served = runtime.block_on(answer(dir));
    processes::end_descendants();
    served
}

async fn answer(dir: &Path) -> Result<(), AgentError> {
    let folder = File::open(dir).map_err(AgentError::new("the lease's folder cannot be opened"))?;
    let socket = format!("/proc/self/fd/{}/agent.sock", folder.as_raw_fd());
    let _ = std::fs::remove_file(dir.join("agent.sock"));
    let write = |name: &str, text: String| {
        let new = dir.join(format!("{name}.new"));
        std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, dir.join(name)))
    };
    write("agent.pid", std::process::id().to_string())
        .map_err(AgentError::new("the lease's folder is not writable"))?;
    let listener = UnixListener::bind(socket).map_err(AgentError::new("the agent cannot listen"))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(AgentError::new("signals cannot be heard"))?;

    let (orders, supervisor_orders) = mpsc::channel(16);
    let (mut supervisor, view) = Supervisor::new(dir, supervisor_orders, Kept::given());
    supervisor.take_over();
    let mut supervisor = tokio::spawn(supervisor.run());
    let silence = silence(std::env::var_os(CONTACT).map(PathBuf::from));
    tokio::pin!(silence);
    // Its guard is gone: nothing may run here any more, but what is on its way goes on.
    let (is_leaving, mut seen) = (Arc::new(AtomicBool::new(false)), view.clone());
    loop {
        tokio::select! {
            () = &mut silence => {
                // Others may begin what runs here: nothing of it goes on.
                let (done, heard) = oneshot::channel();
                let _ = orders.send((AgentRequest::Quit, done)).await;
                let _ = heard.await;
                return Ok(());
            },
            connection = listener.accept() => if let Ok((stream, _)) = connection {
                tokio::spawn(converse(stream, orders.clone(), view.clone(), Arc::clone(&is_leaving)));
            },
            _ = terminate.recv() => is_leaving.store(true, Ordering::Relaxed),
            _ = seen.wait_for(|view| !has_only_to_send(view)), if is_leaving.load(Ordering::Relaxed) => return Ok(()),
            _ = &mut supervisor => {
                // Lets the last answer reach its asker.
                tokio::time::sleep(Duration::from_millis(20)).await;
                return Ok(());
            }
        }
    }
}

/// Whether no program runs any more, and something that one of them left is still on its way.
fn has_only_to_send(view: &AgentView) -> bool {
    view.workers.iter().all(|worker| worker.end.is_some()) && view.workers.iter().any(|worker| !worker.settled)
}

/// Returns when the server was not heard on this node for so long that nothing may run here; never on a computer that
/// needs nobody's word. What was read last counts where the file is gone.
async fn silence(contact: Option<PathBuf>) {
    let Some(file) = contact else { return std::future::pending().await };
    let mut last: Option<Contact> = None;
    loop {
        let read = std::fs::read_to_string(&file).ok().and_then(|text| text.parse().ok());
        last = read.or(last);
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32);
        if last.is_some_and(|last| last.is_over(now)) {
            return;
        }
        tokio::time::sleep(LOOK_FOR_CONTACT).await;
    }
}

/// Answers one asker. Where this agent is leaving it starts nothing.
async fn converse(
    stream: UnixStream,
    orders: mpsc::Sender<Order>,
    mut view: watch::Receiver<AgentView>,
    is_leaving: Arc<AtomicBool>,
) {
    let (read, mut write) = stream.into_split();
    let (mut read, mut line) = (BufReader::new(read), String::new());
    while (&mut read).take(MOST_REQUEST).read_line(&mut line).await.is_ok() && line.ends_with('\n') {
        let Ok(request) = serde_json::from_str::<AgentRequest>(&line) else { return };
        line.clear();
        if matches!(request, AgentRequest::Start(_)) && is_leaving.load(Ordering::Relaxed) {
            return;
        }
        if let AgentRequest::Watch { above } = request {
            let _ = tokio::time::timeout(HOLD, view.wait_for(|view| view.version > above)).await;
        } else {
            let (done, heard) = oneshot::channel();
            if orders.send((request, done)).await.is_err() || heard.await.is_err() {
                return;
            }
        }
        let mut answer = serde_json::to_vec(&*view.borrow()).expect("a view has string keys");
        answer.push(b'\n');
        if write.write_all(&answer).await.is_err() {
            return;
        }
    }
}
