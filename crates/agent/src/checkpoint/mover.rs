//! The mover: watches a directory and uploads each snapshot while the program goes on. One upload at a time;
//! of the snapshots that come meanwhile only the newest is sent. It never stops the program and never waits
//! for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::error::{CheckpointError, Result};
use super::manifest::Ref;
use super::watch::Scout;
use super::{Checkpoints, Habits, Saved, Snapshot, WatchOptions, Watcher};

/// Which progress belongs to files last written at this time (milliseconds since 1970).
pub type WorkAt = Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// How a stint's checkpoints are moved.
#[derive(Debug, Clone)]
pub struct MoverOptions {
    /// The stint; it must have begun.
    pub epoch: u64,
    /// Where the program saves.
    pub dir: PathBuf,
    /// How many distinct contents stay on the store.
    pub keep: usize,
    /// How the directory is watched.
    pub watch: WatchOptions,
    /// The first wait after a failed upload; doubled up to `retry_at_most`.
    pub retry_after: Duration,
    /// The longest wait between tries.
    pub retry_at_most: Duration,
}

impl MoverOptions {
    /// The usual settings.
    pub fn new(epoch: u64, dir: impl Into<PathBuf>) -> Self {
        Self {
            epoch,
            dir: dir.into(),
            keep: 3,
            watch: WatchOptions::default(),
            retry_after: Duration::from_secs(2),
            retry_at_most: Duration::from_secs(60),
        }
    }
}

/// What the mover reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MoverEvent {
    /// A checkpoint is complete and durable.
    Durable {
        /// The stint.
        epoch: u64,
        /// Which of its checkpoints.
        seq: u64,
        /// The progress it holds.
        work: Option<u64>,
        /// Bytes sent for it.
        bytes_sent: u64,
        /// How long the upload took.
        elapsed_ms: u64,
    },
    /// An upload failed; it is tried again.
    Failed {
        /// Why, with the hint.
        why: String,
        /// When.
        retry_in: Duration,
    },
    /// The files changed while they were read: a new snapshot follows when they are quiet.
    Abandoned,
    /// A later stint has begun: nothing of this one counts any more, and nothing more is sent.
    Fenced {
        /// That stint.
        by: u64,
    },
    /// Old checkpoints could not be removed.
    NotPruned {
        /// Why.
        why: String,
    },
}

/// What came of the last snapshot.
#[derive(Debug)]
pub struct Finished {
    /// The newest checkpoint of this stint that is durable, its fence aside.
    pub durable: Option<Ref>,
    /// Whether that is all the program had saved.
    pub complete: bool,
    /// Why not, if an error was the reason; none if the time was too short.
    pub error: Option<CheckpointError>,
}

/// Moves the checkpoints of one stint in the background.
#[derive(Debug)]
pub struct Mover {
    finish: Option<oneshot::Sender<Instant>>,
    task: JoinHandle<Finished>,
    scout: Scout,
}

impl Mover {
    /// Starts to watch and upload, on the current tokio runtime.
    pub async fn start(
        checkpoints: Arc<Checkpoints>,
        options: MoverOptions,
        work_at: WorkAt,
        events: mpsc::UnboundedSender<MoverEvent>,
    ) -> Result<Self> {
        let watcher = Watcher::start(&options.dir, options.watch.clone()).await?;
        let scout = watcher.scout();
        let (finish, finished) = oneshot::channel();
        let carrier = Carrier { checkpoints, options, work_at, events, watcher, seq: 0, durable: None, fenced: false };
        Ok(Self { finish: Some(finish), task: tokio::spawn(carrier.run(finished)), scout })
    }

    /// How the program saves, up to now.
    pub async fn habits(&self) -> Habits {
        self.scout.habits().await
    }

    /// Takes what is there and uploads it by the deadline. To be called when the program has ended.
    pub async fn finish(mut self, deadline: std::time::Instant) -> Finished {
        if let Some(finish) = self.finish.take() {
            let _ = finish.send(deadline.into());
        }
        match (&mut self.task).await {
            Ok(finished) => finished,
            Err(e) => Finished { durable: None, complete: false, error: Some(e.into()) },
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Carrier {
    checkpoints: Arc<Checkpoints>,
    options: MoverOptions,
    work_at: WorkAt,
    events: mpsc::UnboundedSender<MoverEvent>,
    watcher: Watcher,
    seq: u64,
    durable: Option<Ref>,
    fenced: bool,
}

/// An upload on its way.
struct Flight {
    task: AbortOnDrop,
    snapshot: Arc<Snapshot>,
    work: Option<u64>,
    began: Instant,
    sent_before: u64,
}

struct AbortOnDrop(JoinHandle<Result<Saved>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Carrier {
    async fn run(mut self, mut finish: oneshot::Receiver<Instant>) -> Finished {
        let mut flight: Option<Flight> = None;
        let mut waiting: Option<Arc<Snapshot>> = None;
        let mut not_before = Instant::now();
        let mut retry_after = self.options.retry_after;
        loop {
            if flight.is_none()
                && !self.fenced
                && Instant::now() >= not_before
                && let Some(snapshot) = waiting.take()
            {
                flight = Some(self.launch(snapshot));
            }
            tokio::select! {
                deadline = &mut finish => {
                    // A dropped sender is a dropped mover, whose task is aborted anyway.
                    let deadline = deadline.unwrap_or_else(|_| Instant::now());
                    return self.land(flight, deadline).await;
                }
                snapshot = self.watcher.next() => match snapshot {
                    Ok(snapshot) => waiting = Some(Arc::new(snapshot)),
                    Err(error) => {
                        self.say_failed(&error, retry_after);
                        tokio::time::sleep(retry_after).await;
                    }
                },
                result = arrival(&mut flight) => {
                    let done = flight.take();
                    let snapshot = done.as_ref().map(|flight| Arc::clone(&flight.snapshot));
                    match self.on_arrival(result, done.and_then(|flight| flight.work)).await {
                        Ok(()) => retry_after = self.options.retry_after,
                        Err(error @ CheckpointError::Changed { .. }) => drop(error),
                        Err(error) => {
                            self.say_failed(&error, retry_after);
                            waiting = waiting.or(snapshot);
                            not_before = Instant::now() + retry_after;
                            retry_after = (retry_after * 2).min(self.options.retry_at_most);
                        }
                    }
                }
                () = sleep_until(not_before), if flight.is_none() && waiting.is_some() && !self.fenced => {}
            }
        }
    }

    fn launch(&mut self, snapshot: Arc<Snapshot>) -> Flight {
        // Each try has its own number: one that failed may have left its manifest behind all the same.
        self.seq += 1;
        let (checkpoints, epoch, seq) = (Arc::clone(&self.checkpoints), self.options.epoch, self.seq);
        let work = (self.work_at)(snapshot.newest_mtime_ms());
        let sent_before = checkpoints.bytes_sent();
        let taken = Arc::clone(&snapshot);
        let task = tokio::spawn(async move { checkpoints.save(epoch, seq, &taken, work).await });
        Flight { task: AbortOnDrop(task), snapshot, work, began: Instant::now(), sent_before }
    }

    /// Reports an upload's end. An error that is worth another try is returned.
    async fn on_arrival(&mut self, result: Result<Saved>, work: Option<u64>) -> Result<()> {
        match result {
            Ok(saved) => {
                self.durable = Some(saved.name);
                self.say(MoverEvent::Durable {
                    epoch: saved.name.epoch,
                    seq: saved.name.seq,
                    work,
                    bytes_sent: saved.bytes_sent,
                    elapsed_ms: u64::try_from(saved.elapsed.as_millis()).unwrap_or(u64::MAX),
                });
                match self.checkpoints.prune(self.options.epoch, self.options.keep).await {
                    Ok(_) => {}
                    Err(CheckpointError::Fenced { by, .. }) => self.on_fenced(by),
                    Err(error) => self.say(MoverEvent::NotPruned { why: error.to_string() }),
                }
                Ok(())
            }
            Err(CheckpointError::Fenced { by, .. }) => {
                self.on_fenced(by);
                Ok(())
            }
            Err(error @ CheckpointError::Changed { .. }) => {
                self.say(MoverEvent::Abandoned);
                self.watcher.again().await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn on_fenced(&mut self, by: u64) {
        if !self.fenced {
            self.fenced = true;
            self.say(MoverEvent::Fenced { by });
        }
    }

    /// The last snapshot, with the time that is left. An upload on its way goes first, unless only the new
    /// one would make it in time alone: half a checkpoint is worth nothing.
    async fn land(mut self, flight: Option<Flight>, deadline: Instant) -> Finished {
        let last = match self.watcher.final_snapshot().await {
            Ok(last) => Arc::new(last),
            Err(error) => return self.finished(false, Some(error)),
        };
        if let Some(mut flight) = flight {
            let same = is_same(&flight.snapshot, &last);
            if same || self.both_fit(&flight, &last, deadline) {
                match timeout_at(deadline, &mut flight.task.0).await {
                    Ok(result) => {
                        let saved = self.on_arrival(result.map_err(Into::into).flatten(), flight.work).await;
                        if same && (saved.is_ok() || self.fenced) {
                            return self.finished(saved.is_ok() && !self.fenced, None);
                        }
                    }
                    Err(_) => return self.finished(false, None),
                }
            }
        }
        let mut wait = Duration::from_millis(200);
        let mut error = None;
        while !self.fenced && Instant::now() < deadline {
            let mut flight = self.launch(Arc::clone(&last));
            match timeout_at(deadline, &mut flight.task.0).await {
                Ok(result) => match self.on_arrival(result.map_err(Into::into).flatten(), flight.work).await {
                    Ok(()) => return self.finished(!self.fenced, None),
                    Err(failure) => {
                        self.say_failed(&failure, wait);
                        error = Some(failure);
                        tokio::time::sleep_until(deadline.min(Instant::now() + wait)).await;
                        wait *= 2;
                    }
                },
                Err(_) => break,
            }
        }
        self.finished(false, error)
    }

    /// By the speed of the upload on its way. Where nothing is known yet, what is on its way goes first.
    fn both_fit(&self, flight: &Flight, last: &Snapshot, deadline: Instant) -> bool {
        let sent = self.checkpoints.bytes_sent().saturating_sub(flight.sent_before);
        let took_ms = flight.began.elapsed().as_millis().max(1) as u64;
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis() as u64;
        let per_ms = sent / took_ms;
        if per_ms == 0 {
            return true;
        }
        let first_ms = flight.snapshot.bytes().saturating_sub(sent) / per_ms;
        let last_ms = last.bytes() / per_ms;
        // Where neither order brings the last one home, the first is what can be had.
        first_ms + last_ms <= left_ms || last_ms > left_ms
    }

    fn finished(&self, complete: bool, error: Option<CheckpointError>) -> Finished {
        Finished { durable: self.durable, complete, error }
    }

    fn say_failed(&self, error: &CheckpointError, retry_in: Duration) {
        let hint = error.hint().map(|hint| format!(" (hint: {hint})")).unwrap_or_default();
        self.say(MoverEvent::Failed { why: format!("{error}{hint}"), retry_in });
    }

    fn say(&self, event: MoverEvent) {
        // Nobody listens any more when the agent is on its way out.
        let _ = self.events.send(event);
    }
}

/// Never, while nothing is on its way.
async fn arrival(flight: &mut Option<Flight>) -> Result<Saved> {
    match flight {
        Some(flight) => (&mut flight.task.0).await.map_err(Into::into).flatten(),
        None => std::future::pending().await,
    }
}

fn is_same(a: &Snapshot, b: &Snapshot) -> bool {
    let stamps = |snapshot: &Snapshot| {
        snapshot.files.iter().map(|file| (file.path.clone(), file.stamp, file.standing)).collect::<Vec<_>>()
    };
    stamps(a) == stamps(b) && a.dirs == b.dirs && a.links == b.links
}
