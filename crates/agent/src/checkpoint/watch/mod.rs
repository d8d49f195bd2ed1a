//! Watches the directory a program saves in, and decides when what is there is *taken* as a snapshot
//! (`rules.rs`). It also notes how the program saves, which a rehearsal reports. It never reads or changes a file.

mod change;
mod ears;
mod generation;
mod habits;
mod pattern;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::error::{CheckpointError, Result, blocking};
use super::tree::{Snapshot, Stamp, Standing};
use ears::Ears;
pub use habits::Habits;
use pattern::Pattern;
use rules::{Limits, Rules, Sign};

/// Events come in bursts; one look for all of them.
const GATHER: Duration = Duration::from_millis(30);
/// Memory-mapped writes and a replaced root make no events, so once in a while everything is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(20);
/// How often a tree that changes while it is read is read again at once, before that is put off.
const TRIES: usize = 3;
/// A program that saved for this many settling times, but at most for `NEVER_AFTER_AT_MOST`, without a single
/// checkpoint is reported.
const NEVER_AFTER: u32 = 20;
const NEVER_AFTER_AT_MOST: Duration = Duration::from_secs(50);

/// How a directory is watched.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// How long nothing must change before what is there counts as a checkpoint.
    pub settle: Duration,
    /// The file that the program writes last, with `*` for any characters.
    pub complete: Option<String>,
    /// A directory in which the program leaves a file when all it saves is whole.
    pub marks: Option<PathBuf>,
    /// After how long without a pause a slowly growing file counts as a stream.
    pub stream_after: Duration,
    /// How long a fast growing file is waited for.
    pub patience: Duration,
    /// How often to look where inotify is refused.
    pub poll_every: Duration,
    /// Look instead of listening, even where inotify works.
    pub poll: bool,
    /// Paths that were there before the job: not saved unless the job changes them.
    pub foreign: BTreeSet<PathBuf>,
    /// Files that the program wrote to without a pause before.
    pub streams: BTreeSet<PathBuf>,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(2),
            complete: None,
            marks: None,
            stream_after: Duration::from_secs(15),
            patience: Duration::from_secs(600),
            poll_every: Duration::from_secs(1),
            poll: false,
            foreign: BTreeSet::new(),
            streams: BTreeSet::new(),
        }
    }
}

/// Watches one directory.
#[derive(Debug)]
pub struct Watcher {
    scout: Scout,
    readable: Option<AsyncFd<Arc<OwnedFd>>>,
    poll_every: Duration,
}

/// The part of a watcher that can be asked from elsewhere.
#[derive(Debug, Clone)]
pub(super) struct Scout(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    root: PathBuf,
    start: Instant,
    rules: Rules,
    ears: Option<Ears>,
    foreign: BTreeMap<PathBuf, Stamp>,
    /// What the last look saw, to tell a rename from a new file when polling.
    seen: BTreeMap<PathBuf, Stamp>,
    looked: Instant,
    poll_every: Duration,
    /// A snapshot that nobody has fetched yet: whoever waited for it was cancelled.
    ready: Option<Snapshot>,
    /// The program died of a signal.
    torn: bool,
}

impl Watcher {
    /// Starts to watch. What is there already counts as taken. Must be called on a tokio runtime.
    pub async fn start(dir: &Path, options: WatchOptions) -> Result<Self> {
        let dir = dir.to_owned();
        let poll_every = options.poll_every;
        let inner = blocking(move || Inner::start(&dir, options)).await?;
        #[expect(
            deprecated,
            reason = "deprecated for types that may close their descriptor early; an Arc<OwnedFd> cannot, and the new one is unsafe"
        )]
        let readable = match &inner.ears {
            Some(ears) => Some(
                AsyncFd::with_interest(ears.fd(), Interest::READABLE)
                    .map_err(|e| CheckpointError::Task(e.to_string()))?,
            ),
            None => None,
        };
        Ok(Self { scout: Scout(Arc::new(Mutex::new(inner))), readable, poll_every })
    }

    /// The next snapshot. May be cancelled and called again; nothing is lost.
    pub async fn next(&mut self) -> Result<Snapshot> {
        loop {
            let wait = match self.scout.step().await? {
                Ok(snapshot) => return Ok(snapshot),
                Err(wait) => wait,
            };
            match &self.readable {
                Some(readable) => {
                    if let Ok(guard) = tokio::time::timeout(wait.min(LOOK_EVERY), readable.readable()).await {
                        guard.map_err(|e| CheckpointError::Task(e.to_string()))?.clear_ready();
                        tokio::time::sleep(GATHER).await;
                    }
                }
                None => tokio::time::sleep(self.poll_every).await,
            }
        }
    }

    /// What is there when the program has ended, if that is a checkpoint and was not taken yet.
    pub async fn last_snapshot(&mut self) -> Result<Option<Snapshot>> {
        self.scout
            .with(|inner| {
                // A snapshot that nobody fetched counts, unless something changed after it.
                let ready = inner.ready.take();
                inner.listen()?;
                let now = inner.now();
                if !inner.rules.is_last_due(now) {
                    return Ok(ready);
                }
                // Nothing is written any more, so a program's streams are finished too; a killed one's are torn.
                let streams = if inner.torn { inner.rules.busy_streams(now) } else { BTreeSet::new() };
                let snapshot = Snapshot::of(&inner.root)?;
                inner.rules.forget_open(0);
                Ok(Some(inner.dress(snapshot, &streams)))
            })
            .await
    }

    /// Whether something was written that no snapshot has.
    pub async fn has_more(&self) -> bool {
        self.scout.with(|inner| Ok(inner.rules.has_more())).await.unwrap_or(false)
    }

    /// How the program saves, up to now.
    pub async fn habits(&self) -> Habits {
        self.scout.habits().await
    }

    /// The last snapshot was of no use: another one is due as soon as it is quiet.
    pub async fn again(&self) -> Result<()> {
        self.scout
            .with(|inner| {
                inner.rules.owe();
                Ok(())
            })
            .await
    }

    pub(super) fn scout(&self) -> Scout {
        self.scout.clone()
    }
}

impl Scout {
    async fn with<T: Send + 'static>(&self, act: impl FnOnce(&mut Inner) -> Result<T> + Send + 'static) -> Result<T> {
        let inner = Arc::clone(&self.0);
        blocking(move || act(&mut lock(&inner))).await
    }

    async fn step(&self) -> Result<std::result::Result<Snapshot, Duration>> {
        let wait = self.with(Inner::step).await?;
        // Only here does it leave: a future dropped before this line leaves it for the next.
        Ok(lock(&self.0).ready.take().ok_or(wait))
    }

    /// A process of the program died of a signal at that time.
    pub(super) async fn on_death(&self, at: Instant) {
        let told = self.with(move |inner| {
            let ms = at.saturating_duration_since(inner.start).as_millis();
            inner.torn = true;
            inner.rules.on_death(u64::try_from(ms).unwrap_or(u64::MAX));
            Ok(())
        });
        // Fails only while the runtime ends.
        let _ = told.await;
    }

    /// The program ended by itself, whatever became of processes that it had left before.
    pub(super) async fn on_clean_end(&self) {
        let told = self.with(|inner| {
            inner.torn = false;
            inner.rules.on_clean_end();
            Ok(())
        });
        // Fails only while the runtime ends.
        let _ = told.await;
    }

    pub(super) async fn habits(&self) -> Habits {
        let asked = self.with(|inner| {
            inner.listen()?;
            Ok(inner.rules.habits(inner.now()))
        });
        asked.await.unwrap_or_default()
    }
}

fn lock(inner: &Arc<Mutex<Inner>>) -> MutexGuard<'_, Inner> {
    inner.lock().unwrap_or_else(PoisonError::into_inner)
}

fn stamps(snapshot: &Snapshot) -> BTreeMap<PathBuf, Stamp> {
    snapshot.files.iter().map(|file| (file.path.clone(), file.stamp)).collect()
}

impl Inner {
    fn start(dir: &Path, options: WatchOptions) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(CheckpointError::local("cannot make", dir))?;
        let root = std::fs::canonicalize(dir).map_err(CheckpointError::local("cannot open", dir))?;
        // Refused in some containers, and limited per user: then look instead of listening.
        let ears = if options.poll { None } else { Ears::open(&root, options.marks.as_deref()).ok() };
        let there = stamps(&Snapshot::of(&root)?);
        let foreign = there
            .iter()
            .filter(|(path, _)| options.foreign.contains(*path))
            .map(|(path, stamp)| (path.clone(), *stamp))
            .collect();
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let limits = Limits {
            settle_ms: ms(options.settle),
            stream_after_ms: ms(options.stream_after),
            patience_ms: ms(options.patience),
            never_after_ms: ms((options.settle * NEVER_AFTER).min(NEVER_AFTER_AT_MOST)),
            complete: options.complete.as_deref().map(Pattern::new),
        };
        let now = Instant::now();
        let rules = Rules::new(limits, 0, there.clone(), options.streams);
        Ok(Self {
            root,
            start: now,
            rules,
            ears,
            foreign,
            seen: there,
            looked: now,
            poll_every: options.poll_every,
            ready: None,
            torn: false,
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Puts a snapshot in `ready` if one is due; otherwise says how long to wait.
    fn step(&mut self) -> Result<Duration> {
        for _ in 0..TRIES {
            self.listen()?;
            let now = self.now();
            if let Err(at) = self.rules.due(now) {
                let quiet = match &self.ears {
                    Some(ears) if ears.is_waiting() => GATHER,
                    Some(_) => LOOK_EVERY,
                    None => self.poll_every,
                };
                return Ok(at.map_or(quiet, |at| Duration::from_millis(at.saturating_sub(now))).min(quiet));
            }
            let streams = self.rules.busy_streams(now);
            let snapshot = Snapshot::of(&self.root)?;
            // What happened during the look may be half in it.
            if !self.listen()? {
                self.ready = Some(self.dress(snapshot, &streams));
                return Ok(Duration::ZERO);
            }
        }
        Ok(GATHER)
    }

    fn dress(&mut self, mut snapshot: Snapshot, streams: &BTreeSet<PathBuf>) -> Snapshot {
        let now = self.now();
        for file in &mut snapshot.files {
            if streams.contains(&file.path) {
                let grows = self.rules.is_log_like(&file.path, now);
                file.standing = if grows { Standing::Growing } else { Standing::Stream };
            } else if self.foreign.get(&file.path) == Some(&file.stamp) {
                file.standing = Standing::Foreign;
            }
        }
        snapshot.logs.clone_from(self.rules.logs());
        let files = stamps(&snapshot);
        self.seen.clone_from(&files);
        self.rules.on_taken(files, now);
        snapshot
    }

    /// Takes in what happened; true if any of it is news about a file that counts.
    fn listen(&mut self) -> Result<bool> {
        let Some(ears) = &mut self.ears else { return self.look(true) };
        let Ok(heard) = ears.listen() else {
            self.ears = None;
            return self.look(true);
        };
        let replaced = ears.root_was_replaced();
        if (heard.lost || replaced) && ears.watch_all().is_err() {
            self.ears = None;
        }
        let mut news = false;
        let now = self.now();
        for sign in heard.signs {
            news |= self.on_sign(sign, now);
        }
        if heard.lost {
            self.rules.forget_open(now);
        }
        if heard.lost || replaced || self.looked.elapsed() > LOOK_EVERY {
            news |= self.look(false)?;
        }
        Ok(news)
    }

    fn on_sign(&mut self, sign: Sign, now: u64) -> bool {
        let path = match &sign {
            Sign::Gone(path) => {
                let path = path.clone();
                // A directory that left took its files along.
                for below in self.rules.known_paths().into_iter().filter(|known| known.starts_with(&path)) {
                    self.rules.on_sign(Sign::Gone(below), None, now);
                }
                return false;
            }
            Sign::Whole => {
                self.rules.on_sign(sign, None, now);
                return false;
            }
            Sign::FolderMovedIn(_) => {
                self.rules.on_sign(sign, None, now);
                return true;
            }
            Sign::Written(path)
            | Sign::Touched(path)
            | Sign::Closed(path)
            | Sign::MovedIn(path, _)
            | Sign::Carried(path, _) => path.clone(),
        };
        let stamp = std::fs::metadata(self.root.join(&path)).ok().map(|meta| Stamp::of(&meta));
        let is_news = !stamp.is_some_and(|stamp| self.rules.is_taken(&path, &stamp));
        if !is_news && !self.rules.is_changing(&path) {
            return false;
        }
        self.rules.on_sign(sign, stamp.map(|stamp| stamp.size), now);
        !self.rules.is_stream(&path)
    }

    /// Compares the tree with what the last look saw. When polling this is all there is; otherwise it only
    /// finds what made no event.
    fn look(&mut self, polling: bool) -> Result<bool> {
        self.looked = Instant::now();
        let Ok(snapshot) = Snapshot::of(&self.root) else { return Ok(false) };
        let there = stamps(&snapshot);
        let now = self.now();
        let mut news = false;
        let vanished: BTreeMap<u64, PathBuf> = self
            .seen
            .iter()
            .filter(|(path, _)| !there.contains_key(*path))
            .map(|(path, stamp)| (stamp.inode, path.clone()))
            .collect();
        for (path, stamp) in &there {
            let before = self.seen.get(path);
            let unseen = if polling { before != Some(stamp) } else { !self.rules.is_changing(path) };
            if unseen && !self.rules.is_taken(path, stamp) {
                let sign = sign_of(path, stamp, before, vanished.get(&stamp.inode), polling);
                self.rules.on_sign(sign, Some(stamp.size), now);
                news |= !self.rules.is_stream(path);
            }
        }
        for path in self.rules.known_paths() {
            if !there.contains_key(&path) && std::fs::symlink_metadata(self.root.join(&path)).is_err() {
                self.rules.on_sign(Sign::Gone(path), None, now);
            }
        }
        self.seen = there;
        Ok(news)
    }
}

/// What a look makes of a file that is new or differs from `before`. It was renamed if its inode is new under this name
/// and left another name, `from`; a look that only helps the ears out never says so, because they hear renames.
fn sign_of(path: &Path, stamp: &Stamp, before: Option<&Stamp>, from: Option<&PathBuf>, polling: bool) -> Sign {
    let renamed = polling && before.is_none_or(|before| before.inode != stamp.inode);
    match from.filter(|_| renamed) {
        Some(from) => Sign::MovedIn(path.to_owned(), Some(from.clone())),
        None => Sign::Touched(path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_was_renamed_only_if_its_inode_is_new_under_its_name() {
        let stamp = |inode| Stamp { size: 1, mtime_ns: 2, ctime_ns: 3, inode };
        let (path, from) = (Path::new("state"), PathBuf::from("state.tmp"));
        let moved = Sign::MovedIn(path.to_owned(), Some(from.clone()));
        let touched = Sign::Touched(path.to_owned());
        assert_eq!(sign_of(path, &stamp(7), None, Some(&from), true), moved);
        assert_eq!(sign_of(path, &stamp(7), Some(&stamp(6)), Some(&from), true), moved, "it replaced another");
        assert_eq!(sign_of(path, &stamp(7), Some(&stamp(7)), Some(&from), true), touched, "it lost its second name");
        assert_eq!(sign_of(path, &stamp(7), None, None, true), touched, "it left no other name");
        assert_eq!(sign_of(path, &stamp(7), None, Some(&from), false), touched, "a rename would have been heard");
    }
}
