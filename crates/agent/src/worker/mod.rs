//! One worker's life: restore, start, watch, warn, end, last save. The supervisor owns it and publishes
//! a view after every change; the view's end is set only when nothing of the worker runs any more.

mod report;

use crate::checkpoint::{CheckpointError, Checkpoints, Choose, Mover, MoverEvent, MoverOptions, Options, Ref};
use crate::progress::Reader;
use crate::serve::Order;
use crate::{folder, processes};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, watch};
use windfall_core::record::Resume;
use windfall_core::worker::{AgentRequest, AgentView, StartOrder, WorkerView};
use windfall_core::{CheckpointId, StintId, WorkerEnd};

/// How often progress is read.
const READ: Duration = Duration::from_millis(200);
/// How long the last processes of a program may take to end after the first.
const FOLLOW: Duration = Duration::from_secs(1);
/// Time for the last upload when nobody is in a hurry.
const LAST_UPLOAD: Duration = Duration::from_secs(24 * 3_600);

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
}

impl Supervisor {
    pub fn new(dir: PathBuf, orders: mpsc::Receiver<Order>) -> (Supervisor, watch::Receiver<AgentView>) {
        let (view, seen) = watch::channel(AgentView { version: 1, pid: std::process::id(), worker: None });
        (Supervisor { dir, orders, view }, seen)
    }

    /// Serves orders until `Quit`. Between workers it is idle; during one it serves orders as well.
    pub async fn run(mut self) {
        let mut worker: Option<(mpsc::UnboundedSender<Tell>, tokio::task::JoinHandle<()>)> = None;
        let mut notice: Option<Instant> = None;
        while let Some((request, done)) = self.orders.recv().await {
            match request {
                AgentRequest::Start(order) => {
                    if self.accepts(&order) {
                        publish(&self.dir, &self.view, |view| *view = Some(WorkerView::new(order.stint, order.rank)));
                        let (tell, told) = mpsc::unbounded_channel();
                        let life = Life { dir: self.dir.clone(), order: *order, view: self.view.clone(), told };
                        worker = Some((tell.clone(), tokio::spawn(life.run())));
                        // A machine that is about to go tells a late-comer at once.
                        if let Some(ends) = notice {
                            let _ = tell.send(Tell::Stop(ends));
                        }
                    }
                }
                AgentRequest::Stop { stint, rank, grace_ms } => {
                    let last = self.view.borrow().worker.as_ref().map(|last| (last.stint, last.end.is_some()));
                    match (last, &worker) {
                        (Some((running, _)), Some((tell, _))) if running == stint => {
                            let _ = tell.send(Tell::Stop(Instant::now() + Duration::from_millis(grace_ms)));
                        }
                        // A word to an older stint, or to a newer one while an older still runs, is not for anyone here.
                        (Some((known, over)), _) if !over || known.epoch >= stint.epoch => {}
                        _ => publish(&self.dir, &self.view, |view| {
                            let over = WorkerView {
                                end: Some(WorkerEnd::Stopped),
                                settled: true,
                                ..WorkerView::new(stint, rank)
                            };
                            *view = Some(over);
                        }),
                    }
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
                    if let Some((tell, _)) = &worker {
                        let _ = tell.send(Tell::Stop(ends));
                    }
                }
                AgentRequest::Watch { .. } => {}
                AgentRequest::Quit => {
                    if let Some((_, life)) = worker.take() {
                        life.abort();
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
            Some(last) => last.end.is_some() && order.stint.epoch > last.stint.epoch,
        }
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
        let fresh = path.with_extension("new");
        // A program that is not told goes on, and is asked again.
        let _ = std::fs::write(&fresh, request.to_string()).and_then(|()| std::fs::rename(&fresh, &path));
    }
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
            let new = dir.join("view.json.new");
            let _ = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, dir.join("view.json")));
        }
        true
    });
}

struct Life {
    dir: PathBuf,
    order: StartOrder,
    view: watch::Sender<AgentView>,
    told: mpsc::UnboundedReceiver<Tell>,
}

/// A worker that could not run, for people.
struct NeverRan(String);

impl From<CheckpointError> for NeverRan {
    fn from(error: CheckpointError) -> NeverRan {
        let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        NeverRan(format!("{error}{hint}"))
    }
}

impl Life {
    async fn run(mut self) {
        let end = match self.live().await {
            Ok(end) => end,
            Err(NeverRan(why)) => WorkerEnd::NeverRan { why },
        };
        self.change(|worker| {
            worker.end = Some(end);
            worker.settled = true;
        });
    }

    fn change(&self, change: impl FnOnce(&mut WorkerView)) {
        publish(&self.dir, &self.view, |view| {
            if let Some(worker) = view {
                change(worker);
            }
        });
    }

    async fn live(&mut self) -> Result<WorkerEnd, NeverRan> {
        let (cwd, saves) = self.prepare_folder().await?;
        // A fresh copy holds nothing of the user's under the checkpoint directory.
        let foreign: BTreeSet<PathBuf> = match self.order.fresh_folder {
            true => BTreeSet::new(),
            false => self.order.foreign.iter().map(PathBuf::from).collect(),
        };
        if self.order.rank > 0 {
            self.wait_for_rank_0().await?;
        }
        let checkpoints = self.restore(&saves, &foreign).await?;
        // A stop that came during the restore: nothing ran, so nothing is to be saved.
        if self.told.try_recv().is_ok() {
            return Ok(WorkerEnd::Stopped);
        }
        let helper = self.dir.join(format!("progress-{}", self.order.stint.epoch));
        let mut reader = Reader::new(helper.clone(), PathBuf::from(&self.order.output), self.order.progress.as_deref());
        let mover = match &checkpoints {
            Some(checkpoints) => Some(self.start_mover(checkpoints, &saves, &foreign, &reader).await?),
            None => None,
        };
        let mut child = self.spawn(&cwd, &saves, &helper)?;
        let began = Instant::now();
        let pid = child.id();
        let group = pid.map(|pid| pid as i32);
        self.change(|worker| worker.pid = pid);
        let (mover, mut events) = mover.map_or((None, None), |(mover, events)| (Some(mover), Some(events)));
        let (end, asked) = self.watch(&mut child, &mut reader, mover.as_ref(), events.as_mut(), began).await;
        self.wait_for_the_rest(group, asked).await;
        let left_names = processes::names();
        let left_behind = processes::end_descendants();
        self.report_progress(&mut reader, began);
        self.change(|worker| {
            worker.evidence.left_behind = left_behind;
            worker.evidence.left_names = left_names;
        });
        if let Some(mover) = mover {
            // Killed without a word, as by a lost machine: what was not uploaded by then may be torn.
            let whole = !matches!(end, WorkerEnd::Killed { .. });
            if whole {
                self.last_save(mover, events, asked.unwrap_or_else(|| Instant::now() + LAST_UPLOAD)).await;
            }
        }
        Ok(end)
    }

    /// Where the program runs and where it saves.
    async fn prepare_folder(&self) -> Result<(PathBuf, PathBuf), NeverRan> {
        let folder = PathBuf::from(&self.order.folder);
        if !folder.is_dir() {
            return Err(NeverRan(format!("the folder is gone: {}", folder.display())));
        }
        let (epoch, saves) = (self.order.stint.epoch, self.order.checkpoint_dir.as_ref().map(PathBuf::from));
        if !self.order.fresh_folder {
            return Ok((folder, saves.unwrap_or_else(|| self.dir.join(format!("saves-{epoch}")))));
        }
        // Beside the output, so that a rehearsal can still look at it when the lease is gone.
        let beside = Path::new(&self.order.output).parent().unwrap_or(&self.dir);
        let fresh = beside.join(format!("folder-{epoch}"));
        let skip = saves.clone().unwrap_or_default();
        let (from, to) = (folder.clone(), fresh.clone());
        let copied = tokio::task::spawn_blocking(move || folder::copy_fresh(&from, &to, &skip)).await;
        let copied = copied.map_err(std::io::Error::other).flatten();
        copied.map_err(|error| NeverRan(format!("the folder cannot be copied: {error}")))?;
        let saves = match saves {
            None => beside.join(format!("saves-{epoch}")),
            // What the job file places inside its folder is inside the copy as well.
            Some(saves) => saves.strip_prefix(&folder).map(|inside| fresh.join(inside)).unwrap_or(saves),
        };
        Ok((fresh, saves))
    }

    /// Where rank 0 says what the gang resumes from, once that is in the directory which all of them share.
    fn restored_file(&self) -> PathBuf {
        let beside = Path::new(&self.order.output).parent().unwrap_or(&self.dir);
        beside.join(format!("restored-{}.json", self.order.stint.epoch))
    }

    /// Waits until rank 0 has restored, or until this worker is told to stop. A rank that starts earlier would
    /// find an empty directory and begin anew beside others that resume.
    async fn wait_for_rank_0(&mut self) -> Result<(), NeverRan> {
        let file = self.restored_file();
        // A word to stop stays in the queue: it is heard right after the restore.
        while self.told.is_empty() {
            if let Some(restored) = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()) {
                self.change(|worker| worker.restored = restored);
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Lets the other ranks start.
    fn tell_ranks(&self, restored: Option<CheckpointId>) -> Result<(), NeverRan> {
        if self.order.world_size < 2 {
            return Ok(());
        }
        let (file, text) = (self.restored_file(), serde_json::to_vec(&restored).expect("a name has string keys"));
        let new = file.with_extension("new");
        let told = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
        told.map_err(|error| NeverRan(format!("the gang cannot be told what it resumes from: {error}")))
    }

    /// Brings the checkpoint back and sets the stint's fence. Only rank 0 moves the gang's checkpoints:
    /// the ranks of a gang on one machine share its directory.
    async fn restore(&self, saves: &Path, foreign: &BTreeSet<PathBuf>) -> Result<Option<Arc<Checkpoints>>, NeverRan> {
        std::fs::create_dir_all(saves).map_err(|error| {
            NeverRan(format!("the checkpoint directory {} cannot be made: {error}", saves.display()))
        })?;
        if self.order.rank > 0 {
            return Ok(None);
        }
        let env = self.order.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let checkpoints = Arc::new(Checkpoints::open(
            &self.order.checkpoint_store,
            &self.order.checkpoint_key,
            Options::with_env(env),
        )?);
        let choose = match self.order.resume {
            Resume::Newest => Choose::Newest,
            Resume::Before(id) => Choose::Before(Ref { epoch: id.epoch, seq: id.seq }),
        };
        let begun = checkpoints.begin(self.order.stint.epoch, saves, choose, foreign).await?;
        let restored = begun.restored.map(|name| CheckpointId { epoch: name.epoch, seq: name.seq });
        self.tell_ranks(restored)?;
        self.change(|worker| {
            worker.restored = restored;
            worker.restored_work = begun.work;
            worker.evidence.restore_ms = begun.elapsed.as_millis() as u64;
            worker.evidence.skipped =
                begun.skipped.iter().map(|(name, why)| format!("{}.{}: {why}", name.epoch, name.seq)).collect();
        });
        Ok(Some(checkpoints))
    }

    async fn start_mover(
        &self,
        checkpoints: &Arc<Checkpoints>,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
        reader: &Reader,
    ) -> Result<(Mover, mpsc::UnboundedReceiver<MoverEvent>), NeverRan> {
        let mut options = MoverOptions::new(self.order.stint.epoch, saves);
        options.keep = self.order.keep as usize;
        options.watch.settle = Duration::from_millis(self.order.settle_ms);
        options.watch.foreign = foreign.clone();
        let history = reader.history.clone();
        let (sender, events) = mpsc::unbounded_channel();
        let work_at = Arc::new(move |ms| history.at(ms));
        Ok((Mover::start(Arc::clone(checkpoints), options, work_at, sender).await?, events))
    }

    fn spawn(&self, cwd: &Path, saves: &Path, helper: &Path) -> Result<Child, NeverRan> {
        let order = &self.order;
        let open = std::fs::File::options().create(true).append(true).open(&order.output);
        let output =
            open.map_err(|error| NeverRan(format!("its output cannot be written to {}: {error}", order.output)))?;
        let errors = output.try_clone().map_err(|error| NeverRan(error.to_string()))?;
        let view = self.view.borrow().worker.clone();
        let restored = view.as_ref().and_then(|worker| worker.restored).is_some();
        let mut command = Command::new("/proc/self/exe");
        command.args(["agent", "exec", "--"]).args(&order.command).current_dir(cwd).env_clear().envs(&order.env);
        command
            .env("PWD", cwd)
            .env("WINDFALL_LEASE", std::env::var_os("WINDFALL_LEASE").unwrap_or_default())
            .env("WINDFALL_JOB", order.stint.workload.to_string())
            .env("WINDFALL_STINT", order.stint.epoch.to_string())
            .env("WINDFALL_CHECKPOINT_DIR", saves)
            .env("WINDFALL_RESUME", if restored { saves.as_os_str() } else { "".as_ref() })
            .env("WINDFALL_PROGRESS", helper)
            .env("WINDFALL_SAVE_REQUEST", save_request(&self.dir, order.stint))
            .env("RANK", order.rank.to_string())
            .env("WORLD_SIZE", order.world_size.to_string())
            .env("LOCAL_RANK", "0")
            .env("MASTER_ADDR", &order.master.0)
            .env("MASTER_PORT", order.master.1.to_string());
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        command.spawn().map_err(|error| NeverRan(format!("the program cannot be started: {error}")))
    }

    /// Waits for the program's end and answers what comes meanwhile. Returns how it ended and, when it was
    /// asked to, until when the last save may take.
    async fn watch(
        &mut self,
        child: &mut Child,
        reader: &mut Reader,
        mover: Option<&Mover>,
        mut events: Option<&mut mpsc::UnboundedReceiver<MoverEvent>>,
        began: Instant,
    ) -> (WorkerEnd, Option<Instant>) {
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let mut asked: Option<(Instant, Instant)> = None;
        let mut killed = false;
        let mut tick = tokio::time::interval(READ);
        loop {
            let kill_at = asked.filter(|_| !killed).map(|(_, deadline)| deadline);
            tokio::select! {
                status = child.wait() => {
                    let end = match (asked, status) {
                        (Some((at, _)), _) => {
                            let took = at.elapsed().as_millis() as u64;
                            self.change(|worker| {
                                worker.evidence.ignored_sigterm = killed;
                                worker.evidence.stop_took_ms = (!killed).then_some(took);
                            });
                            WorkerEnd::Stopped
                        }
                        (None, Ok(status)) => match (status.code(), status.signal()) {
                            (Some(code), _) => WorkerEnd::Exited { code },
                            (None, signal) => WorkerEnd::Killed { signal: signal.unwrap_or(9) },
                        },
                        (None, Err(_)) => WorkerEnd::Killed { signal: 9 },
                    };
                    return (end, asked.map(|(_, deadline)| deadline));
                }
                Some(Tell::Stop(deadline)) = self.told.recv() => match &mut asked {
                    // A notice may shorten the grace of a stop, never lengthen it.
                    Some((_, known)) => *known = (*known).min(deadline),
                    None => {
                        asked = Some((Instant::now(), deadline));
                        signal(group, Signal::TERM);
                    }
                },
                () = sleep_until(kill_at), if kill_at.is_some() => {
                    killed = true;
                    signal(group, Signal::KILL);
                }
                Some(event) = next(&mut events) => self.on_mover_event(event),
                _ = tick.tick() => {
                    self.report_progress(reader, began);
                    if let Some(mover) = mover {
                        self.report_habits(mover).await;
                    }
                }
            }
        }
    }

    /// The program's first process may be a shell that dies of the SIGTERM that the process below it saves
    /// on: whoever heard the signal has the whole notice. Whoever heard nothing has a moment to follow.
    async fn wait_for_the_rest(&self, group: Option<i32>, asked: Option<Instant>) {
        let me = std::process::id() as i32;
        let began = Instant::now();
        // Part of the notice belongs to the upload, however long the last processes take.
        let reserve = asked.map_or(Duration::MAX, |ends| ends.saturating_duration_since(began) / 4);
        let moment = began + FOLLOW.min(reserve);
        loop {
            let left = processes::descendants(me);
            let heard = asked.is_some() && left.iter().any(|pid| processes::group_of(*pid) == group);
            let until = asked.filter(|_| heard).map_or(moment, |ends| ends.checked_sub(reserve).unwrap_or(ends));
            if left.is_empty() || Instant::now() >= until {
                let more = began.elapsed().as_millis() as u64;
                self.change(|worker| {
                    worker.evidence.ignored_sigterm |= heard;
                    let took = worker.evidence.stop_took_ms.filter(|_| !heard);
                    worker.evidence.stop_took_ms = took.map(|took| took + more);
                });
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that is gone already has heard everything.
        let _ = kill_process_group(group, signal);
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn next(events: &mut Option<&mut mpsc::UnboundedReceiver<MoverEvent>>) -> Option<MoverEvent> {
    match events {
        Some(events) => events.recv().await,
        None => std::future::pending().await,
    }
}
