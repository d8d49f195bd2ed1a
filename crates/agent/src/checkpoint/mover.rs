//! The mover: watches a directory and uploads each snapshot while the program goes on. One upload at a time;
//! of the snapshots that come meanwhile only the newest is sent. It never stops the program and never waits
//! for it.

use super::error::{CheckpointError, Result};
use super::manifest::Ref;
use super::names::now_ms;
use super::watch::Scout;
use super::{Checkpoints, Habits, Role, Saved, Snapshot, WatchOptions, Watcher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use windfall_core::Trouble;

/// Which progress belongs to files last written at this time (milliseconds since 1970).
pub type WorkAt = Arc<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// How a stint's checkpoints are moved.
#[derive(Debug, Clone)]
pub struct MoverOptions {
    /// The stint; it must have begun.
    pub epoch: u64,
    /// The number of its last checkpoint where another process has moved them until now: what that left is new here.
    pub after: Option<u64>,
    pub dir: PathBuf,
    /// How many distinct contents stay on the store.
    pub keep: usize,
    pub watch: WatchOptions,
    /// The first wait after a failed upload; doubled up to `retry_at_most`.
    pub retry_after: Duration,
    /// The longest wait between tries.
    pub retry_at_most: Duration,
    /// Whose directory it is.
    pub role: Role,
}

impl MoverOptions {
    /// The usual settings.
    pub fn new(epoch: u64, dir: impl Into<PathBuf>) -> Self {
        Self {
            epoch,
            after: None,
            dir: dir.into(),
            keep: 3,
            watch: WatchOptions::default(),
            retry_after: Duration::from_secs(1),
            // A store that is back should not wait long for what is waiting for it.
            retry_at_most: Duration::from_secs(10),
            role: Role::Alone,
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
        /// When its newest file was written, in milliseconds since 1970.
        written_ms: u64,
        bytes_sent: u64,
        /// How long the upload took.
        elapsed_ms: u64,
    },
    /// What is there was durable already, so uploads work again.
    Unchanged,
    /// An upload failed; it is tried again.
    Failed {
        /// Its class, and words that stay the same from one try to the next.
        trouble: Trouble,
    },
    /// The files changed while they were read: a new snapshot follows when they are whole again.
    Abandoned,
    /// A later stint has begun: nothing of this one counts any more, and nothing more is sent.
    Fenced {
        /// That stint.
        by: u64,
    },
    /// Old checkpoints could not be removed.
    NotPruned { why: String },
}

/// What came of the last snapshot.
#[derive(Debug, Default)]
pub struct Finished {
    /// The newest checkpoint of this stint that is durable, its fence aside.
    pub durable: Option<Ref>,
    /// Whether that is all that the program saved and that counts as a checkpoint.
    pub complete: bool,
    /// What was there at the end was sent: it was not torn.
    pub is_sent: bool,
    /// Why not, if an error was the reason; none if the time was too short.
    pub error: Option<CheckpointError>,
    /// A later stint has begun, so nothing of this one counts.
    pub fenced: bool,
}

/// Moves the checkpoints of one stint in the background.
#[derive(Debug)]
pub struct Mover {
    deadline: watch::Sender<Option<Instant>>,
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
        let (deadline, ends) = watch::channel(None);
        let carrier = Carrier {
            checkpoints,
            seq: options.after.unwrap_or(0),
            options,
            work_at,
            events,
            watcher,
            deadline: ends,
            durable: None,
            fenced: false,
        };
        Ok(Self { deadline, task: tokio::spawn(carrier.run()), scout })
    }

    /// How the program saves, up to now.
    pub async fn habits(&self) -> Habits {
        self.scout.habits().await
    }

    /// A process of the program died of a signal: what it was writing is torn.
    pub async fn on_death(&self, at: std::time::Instant) {
        self.scout.on_death(at).await;
    }

    /// The program ended by itself: its files are finished, but for those of processes that died before.
    pub async fn on_clean_end(&self) {
        self.scout.on_clean_end().await;
    }

    /// The program has ended: what is there is uploaded by the deadline, if it is a checkpoint. A later call may
    /// shorten the time.
    pub fn finish(&self, deadline: std::time::Instant) {
        self.deadline.send_modify(|known| {
            let deadline = Instant::from(deadline);
            *known = Some(known.map_or(deadline, |known| known.min(deadline)));
        });
    }

    /// Waits for what `finish` asked for. May be cancelled and called again.
    pub async fn finished(&mut self) -> Finished {
        match (&mut self.task).await {
            Ok(finished) => finished,
            Err(e) => Finished { error: Some(e.into()), ..Finished::default() },
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
    /// Set when the program has ended.
    deadline: watch::Receiver<Option<Instant>>,
    seq: u64,
    durable: Option<Ref>,
    fenced: bool,
}

/// An upload on its way.
struct Flight {
    task: AbortOnDrop,
    snapshot: Arc<Snapshot>,
    work: Option<u64>,
    written_ms: u64,
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
    async fn run(mut self) -> Finished {
        let mut flight: Option<Flight> = None;
        let mut waiting: Option<Arc<Snapshot>> = None;
        let mut not_before = Instant::now();
        let mut retry_after = self.options.retry_after;
        let mut ending = self.deadline.clone();
        let (role, stirring) = (self.options.role.clone(), self.options.role.clone());
        let agreeing = AbortOnDrop(tokio::spawn(async move {
            role.agree().await;
            Err(CheckpointError::Task(String::new()))
        }));
        loop {
            if flight.is_none()
                && !self.fenced
                && Instant::now() >= not_before
                && let Some(snapshot) = waiting.take()
            {
                flight = Some(self.launch(snapshot));
            }
            tokio::select! {
                // A dropped sender is a dropped mover, whose task is aborted anyway.
                () = is_set(&mut ending) => {
                    let role = self.options.role.clone();
                    let finished = self.land(flight, waiting).await;
                    drop(agreeing);
                    if finished.complete {
                        role.leave(finished.is_sent).await;
                    }
                    return finished;
                }
                () = stirring.stirred() => {
                    // Without it, what others saved waits for the next save here.
                    let _ = self.watcher.again().await;
                }
                snapshot = self.watcher.next() => match snapshot {
                    Ok(snapshot) => waiting = Some(Arc::new(snapshot)),
                    Err(error) => {
                        self.say_failed(&error);
                        tokio::time::sleep(retry_after).await;
                    }
                },
                result = arrival(&mut flight) => {
                    let Some(done) = flight.take() else { continue };
                    match self.on_arrival(result, &done).await {
                        Ok(()) => retry_after = self.options.retry_after,
                        Err(CheckpointError::Changed { .. }) => {}
                        Err(error) => {
                            self.say_failed(&error);
                            waiting = waiting.or(Some(Arc::clone(&done.snapshot)));
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
        // A file may be dated in the future; it was not written later than now.
        let written_ms = snapshot.newest_mtime_ms().min(now_ms());
        let work = (self.work_at)(written_ms);
        let sent_before = checkpoints.bytes_sent();
        let taken = Arc::clone(&snapshot);
        let role = self.options.role.clone();
        let task = tokio::spawn(async move { role.save(&checkpoints, (epoch, seq), &taken, work).await });
        Flight { task: AbortOnDrop(task), snapshot, work, written_ms, began: Instant::now(), sent_before }
    }

    /// Reports an upload's end. An error that is worth another try is returned.
    async fn on_arrival(&mut self, result: Result<Saved>, flight: &Flight) -> Result<()> {
        match result {
            // What a rank has counts when rank 0 says so.
            Ok(saved) if saved.repeated || !self.options.role.makes_checkpoints() => {
                self.say(MoverEvent::Unchanged);
                Ok(())
            }
            Ok(saved) => {
                self.durable = Some(saved.name);
                self.say(MoverEvent::Durable {
                    epoch: saved.name.epoch,
                    seq: saved.name.seq,
                    work: flight.work,
                    written_ms: flight.written_ms,
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
    /// one would make it in time alone: half a checkpoint is worth nothing. `waiting` was whole when it was taken,
    /// and is better than nothing where what came after it is torn.
    async fn land(mut self, flight: Option<Flight>, waiting: Option<Arc<Snapshot>>) -> Finished {
        if !matches!(self.options.role, Role::Alone) || self.options.after.is_some() {
            // What was removed, and what others saved last, is to be in the last checkpoint too.
            let _ = self.watcher.again().await;
        }
        let mut last = match self.watcher.last_snapshot().await {
            Ok(last) => last.map(Arc::new).or(waiting),
            Err(error) => return self.finished(false, Some(error)),
        };
        if let Some(mut flight) = flight {
            let both = last.as_ref().is_none_or(|last| self.both_fit(&flight, last));
            if both {
                let Some(result) = self.in_time(&mut flight).await else { return self.finished(false, None) };
                let saved = self.on_arrival(result, &flight).await;
                match (saved, &last) {
                    (Ok(()), None) => return self.finished(!self.fenced, None),
                    (Ok(()), Some(_)) => {}
                    (Err(CheckpointError::Changed { .. }), _) => {}
                    (Err(error @ CheckpointError::Torn), _) => return self.finished(false, Some(error)),
                    (Err(error), _) => {
                        self.say_failed(&error);
                        last = last.or(Some(Arc::clone(&flight.snapshot)));
                    }
                }
            }
        }
        self.land_last(last).await
    }

    /// Tries until it succeeds or the time is over. Each try has a snapshot of its own: a file may have changed.
    async fn land_last(mut self, mut last: Option<Arc<Snapshot>>) -> Finished {
        let mut wait = Duration::from_millis(200);
        let mut error = None;
        while let Some(snapshot) = last.take() {
            if self.fenced {
                return self.finished(false, None);
            }
            let mut flight = self.launch(Arc::clone(&snapshot));
            let mut good = Some(snapshot);
            let Some(result) = self.in_time(&mut flight).await else { return self.finished(false, error) };
            match self.on_arrival(result, &flight).await {
                Ok(()) => return self.finished(!self.fenced, None),
                Err(failure) if matches!(failure, CheckpointError::Torn) || failure.is_forbidden() => {
                    return self.finished(false, Some(failure));
                }
                Err(failure) => {
                    match failure {
                        CheckpointError::Changed { .. } => good = None,
                        _ => self.say_failed(&failure),
                    }
                    error = Some(failure);
                }
            }
            if !self.sleep(wait).await {
                return self.finished(false, error);
            }
            wait = (wait * 2).min(self.options.retry_at_most);
            // It was taken before, so another must be asked for.
            let again = match self.watcher.again().await {
                Ok(()) => self.watcher.last_snapshot().await,
                Err(error) => Err(error),
            };
            last = match again {
                // What was whole and did not arrive is better than what is torn now.
                Ok(snapshot) => snapshot.map(Arc::new).or(good),
                Err(failure) => return self.finished(false, Some(failure)),
            };
        }
        // What there is now was taken already, or is torn: then there is nothing more to save.
        let is_sent = !self.watcher.has_more().await;
        Finished { is_sent, ..self.finished(!self.fenced, None) }
    }

    /// The result of an upload, or none when the time is over.
    async fn in_time(&self, flight: &mut Flight) -> Option<Result<Saved>> {
        let mut deadline = self.deadline.clone();
        tokio::select! {
            biased;
            () = passed(&mut deadline) => None,
            result = &mut flight.task.0 => Some(result.map_err(Into::into).flatten()),
        }
    }

    /// Waits; false when the time is over.
    async fn sleep(&self, wait: Duration) -> bool {
        let mut deadline = self.deadline.clone();
        tokio::select! {
            biased;
            () = passed(&mut deadline) => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// By the speed of the upload on its way. Where nothing is known yet, what is on its way goes first.
    fn both_fit(&self, flight: &Flight, last: &Snapshot) -> bool {
        let Some(deadline) = *self.deadline.borrow() else { return true };
        let sent = self.checkpoints.bytes_sent().saturating_sub(flight.sent_before);
        let took_ms = flight.began.elapsed().as_millis() as u64;
        let left_ms = deadline.saturating_duration_since(Instant::now()).as_millis() as u64;
        let first = flight.snapshot.bytes().saturating_sub(sent);
        finish_first((sent, took_ms), first, last.bytes(), left_ms)
    }

    fn finished(&self, complete: bool, error: Option<CheckpointError>) -> Finished {
        Finished { durable: self.durable, complete, is_sent: complete, error, fenced: self.fenced }
    }

    fn say_failed(&self, error: &CheckpointError) {
        self.say(MoverEvent::Failed { trouble: error.trouble() });
    }

    fn say(&self, event: MoverEvent) {
        // Nobody listens any more when the agent is on its way out.
        let _ = self.events.send(event);
    }
}

async fn is_set(deadline: &mut watch::Receiver<Option<Instant>>) {
    let _ = deadline.wait_for(Option::is_some).await;
}

/// Returns when the deadline has passed, also one that is moved to an earlier time meanwhile.
async fn passed(deadline: &mut watch::Receiver<Option<Instant>>) {
    loop {
        let Some(until) = *deadline.borrow_and_update() else { return };
        tokio::select! {
            () = sleep_until(until) => return,
            changed = deadline.changed() => if changed.is_err() {
                return sleep_until(until).await;
            },
        }
    }
}

/// Never, while nothing is on its way.
async fn arrival(flight: &mut Option<Flight>) -> Result<Saved> {
    match flight {
        Some(flight) => (&mut flight.task.0).await.map_err(Into::into).flatten(),
        None => std::future::pending().await,
    }
}

/// Whether an upload on its way, of which so many bytes are left, may go on before another one, when so much time is
/// left: at its speed up to now, bytes in milliseconds.
fn finish_first((sent, took_ms): (u64, u64), first: u64, last: u64, left_ms: u64) -> bool {
    let per_ms = sent / took_ms.max(1);
    if per_ms == 0 {
        return true;
    }
    let (first_ms, last_ms) = (first / per_ms, last / per_ms);
    // Where neither order brings the last one home, the first is what can be had.
    first_ms + last_ms <= left_ms || last_ms > left_ms
}

#[cfg(test)]
mod tests {
    use super::finish_first;

    #[test]
    fn an_upload_goes_on_if_both_fit_or_the_last_one_cannot() {
        // At 1,000 bytes a millisecond.
        let speed = (50_000, 50);
        assert!(finish_first(speed, 100_000, 200_000, 300), "both fit just so");
        assert!(!finish_first(speed, 100_000, 200_000, 299), "only the last one does");
        assert!(!finish_first(speed, 100_000, 200_000, 200));
        assert!(finish_first(speed, 100_000, 200_000, 199), "it cannot, so the first is what can be had");
        assert!(finish_first((0, 50), u64::MAX, u64::MAX, 0), "nothing is known yet");
    }
}
