//! The rules by which saved files are taken: signs of change go in with their time, and it says when a
//! snapshot is due. No clock and no disk, so that every rule is tested without waiting.
//!
//! - A file renamed into place is ready at once; one written in place when closed and unchanged for `settle`.
//! - A snapshot is due when something is ready and nothing else is mid-write.
//! - A file that never pauses and grows slowly (a log) becomes a *stream* after `stream_after`: it neither holds
//!   up the others nor calls for a snapshot, and is left out until it pauses. One that grows fast is more
//!   likely a large checkpoint on its way, and is waited for up to `patience`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::tree::Stamp;
use super::Habits;

/// A log rarely reaches this; a checkpoint that is being written nearly always does.
const FAST_BYTES_PER_SECOND: u64 = 1 << 20;

#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub settle_ms: u64,
    pub stream_after_ms: u64,
    pub patience_ms: u64,
}

/// What was seen to happen to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sign {
    /// Created for writing, or written to: open until closed.
    Written(PathBuf),
    /// Different from before, with nobody known to have it open.
    Touched(PathBuf),
    /// Closed by a writer.
    Closed(PathBuf),
    /// Appeared under this name by a rename, from another name in the tree if that is known.
    MovedIn(PathBuf, Option<PathBuf>),
    /// The same, with the directory it is in.
    Carried(PathBuf, Option<PathBuf>),
    /// No longer there.
    Gone(PathBuf),
}

#[derive(Debug, Clone)]
struct Change {
    open: bool,
    by_rename: bool,
    /// Whether a file of this name had been taken before.
    rewrite: bool,
    first_ms: u64,
    last_ms: u64,
    first_size: u64,
    size: u64,
}

impl Change {
    fn busy(&self, now: u64, settle_ms: u64) -> bool {
        self.open || (!self.by_rename && now < self.last_ms + settle_ms)
    }
}

#[derive(Debug)]
pub(super) struct Rules {
    limits: Limits,
    began_ms: u64,
    changes: BTreeMap<PathBuf, Change>,
    streams: BTreeSet<PathBuf>,
    taken: BTreeMap<PathBuf, Stamp>,
    habits: Habits,
    /// A snapshot was given up by the caller: take another when it is quiet.
    owed: bool,
}

impl Rules {
    pub fn new(limits: Limits, now: u64, there: BTreeMap<PathBuf, Stamp>) -> Self {
        Self {
            limits,
            began_ms: now,
            changes: BTreeMap::new(),
            streams: BTreeSet::new(),
            taken: there,
            habits: Habits::default(),
            owed: false,
        }
    }

    /// `size` is the file's size now, where it is known.
    pub fn on_sign(&mut self, sign: Sign, size: Option<u64>, now: u64) {
        match sign {
            Sign::Written(path) => self.on_change(path, true, size, now),
            Sign::Touched(path) => self.on_change(path, false, size, now),
            Sign::Closed(path) => self.on_close(path, size, now),
            Sign::MovedIn(path, from) => {
                self.habits.renames += 1;
                self.on_move(path, from, size, now);
            }
            Sign::Carried(path, from) => self.on_move(path, from, size, now),
            Sign::Gone(path) => {
                self.changes.remove(&path);
                self.streams.remove(&path);
                self.taken.remove(&path);
            }
        }
    }

    fn on_change(&mut self, path: PathBuf, open: bool, size: Option<u64>, now: u64) {
        let settle_ms = self.limits.settle_ms;
        let rewrite = self.taken.contains_key(&path);
        let fresh = Change {
            open,
            by_rename: false,
            rewrite,
            first_ms: now,
            last_ms: now,
            first_size: size.unwrap_or(0),
            size: size.unwrap_or(0),
        };
        let change = self.changes.entry(path).or_insert_with(|| fresh.clone());
        if !change.busy(now, settle_ms) {
            // It had paused: a new stretch of writing begins.
            *change = Change { rewrite: change.rewrite, ..fresh };
        }
        change.open |= open;
        change.by_rename = false;
        change.last_ms = now;
        change.size = size.unwrap_or(change.size);
    }

    fn on_close(&mut self, path: PathBuf, size: Option<u64>, now: u64) {
        if !self.changes.contains_key(&path) {
            // Opened for writing and closed without a write, or truncated to what it was: look again.
            self.on_change(path, false, size, now);
            return;
        }
        if let Some(change) = self.changes.get_mut(&path) {
            if change.open {
                self.habits.longest_save_ms = self.habits.longest_save_ms.max(now - change.first_ms);
                if change.rewrite && !self.streams.contains(&path) {
                    self.habits.in_place_rewrites += 1;
                }
                change.last_ms = now;
            }
            change.open = false;
            change.size = size.unwrap_or(change.size);
        }
    }

    fn on_move(&mut self, path: PathBuf, from: Option<PathBuf>, size: Option<u64>, now: u64) {
        let before = from.and_then(|from| {
            self.taken.remove(&from);
            self.streams.remove(&from);
            self.changes.remove(&from)
        });
        let first_ms = before.as_ref().map_or(now, |change| change.first_ms);
        let open = before.as_ref().is_some_and(|change| change.open);
        self.habits.longest_save_ms = self.habits.longest_save_ms.max(now - first_ms);
        self.streams.remove(&path);
        let size = size.unwrap_or(0);
        self.changes.insert(
            path,
            Change { open, by_rename: true, rewrite: false, first_ms, last_ms: now, first_size: size, size },
        );
    }

    /// After a lost event nobody knows who has what open: time decides alone.
    pub fn forget_open(&mut self, now: u64) {
        for change in self.changes.values_mut().filter(|change| change.open) {
            change.open = false;
            change.last_ms = now;
        }
    }

    /// Whether a file still is what was last taken: a late event about it is then no news.
    pub fn is_taken(&self, path: &Path, stamp: &Stamp) -> bool {
        self.taken.get(path) == Some(stamp)
    }

    pub fn is_stream(&self, path: &Path) -> bool {
        self.streams.contains(path)
    }

    pub fn is_changing(&self, path: &Path) -> bool {
        self.changes.contains_key(path)
    }

    /// A directory was renamed into place: one rename, however many files it carries.
    pub fn on_directory_moved(&mut self) {
        self.habits.renames += 1;
    }

    /// The paths known to be there, to find what vanished unseen.
    pub fn known_paths(&self) -> BTreeSet<PathBuf> {
        self.taken.keys().chain(self.changes.keys()).cloned().collect()
    }

    pub fn owe(&mut self) {
        self.owed = true;
    }

    /// Whether a snapshot is due, and otherwise when to ask again if nothing happens.
    pub fn due(&mut self, now: u64) -> Result<(), Option<u64>> {
        self.find_streams(now);
        let Limits { settle_ms, stream_after_ms, patience_ms } = self.limits;
        let (mut ready, mut held) = (self.owed, false);
        let mut ask = None;
        let mut at = |time: u64| ask = Some(ask.map_or(time, |ask: u64| ask.min(time)));
        for (path, change) in &self.changes {
            let stream = self.streams.contains(path);
            if !change.busy(now, settle_ms) {
                ready |= !stream;
            } else if !stream {
                held = true;
                at(if change.open { change.first_ms + stream_after_ms } else { change.last_ms + settle_ms });
                at(change.first_ms + stream_after_ms);
                at(change.first_ms + patience_ms);
            }
        }
        if ready && !held { Ok(()) } else { Err(ask.map(|time| time.max(now + 1).min(now + settle_ms.max(50)))) }
    }

    fn find_streams(&mut self, now: u64) {
        let Limits { settle_ms, stream_after_ms, patience_ms } = self.limits;
        for (path, change) in &self.changes {
            let ms = now.saturating_sub(change.first_ms);
            if !change.busy(now, settle_ms) || ms <= stream_after_ms {
                continue;
            }
            let grown = change.size.saturating_sub(change.first_size);
            let fast = grown / (ms / 1000).max(1) >= FAST_BYTES_PER_SECOND;
            if !fast || ms > patience_ms {
                self.streams.insert(path.clone());
            }
        }
    }

    /// The streams that are being written now: to be left out of a snapshot.
    pub fn busy_streams(&self, now: u64) -> BTreeSet<PathBuf> {
        let busy =
            |path: &&PathBuf| self.changes.get(*path).is_some_and(|change| change.busy(now, self.limits.settle_ms));
        self.streams.iter().filter(busy).cloned().collect()
    }

    /// A snapshot was taken with these files. Streams that are busy stay as they are.
    pub fn on_taken(&mut self, files: BTreeMap<PathBuf, Stamp>, now: u64) {
        let busy = self.busy_streams(now);
        self.changes.retain(|path, _| busy.contains(path));
        self.taken = files;
        self.owed = false;
        self.habits.saves += 1;
        self.habits.first_save_after_ms.get_or_insert(now.saturating_sub(self.began_ms));
    }

    pub fn habits(&self, now: u64) -> Habits {
        let writing = |(path, change): (&PathBuf, &Change)| {
            change.busy(now, self.limits.settle_ms) && !self.streams.contains(path)
        };
        Habits { mid_write_now: self.changes.iter().any(writing), ..self.habits.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { settle_ms: 2_000, stream_after_ms: 15_000, patience_ms: 600_000 };

    fn rules() -> Rules {
        Rules::new(LIMITS, 0, BTreeMap::new())
    }

    fn stamp() -> Stamp {
        Stamp { size: 1, mtime_ns: 1, ctime_ns: 1, inode: 1 }
    }

    impl Rules {
        fn see(&mut self, now: u64, sign: Sign) -> &mut Self {
            self.on_sign(sign, Some(10), now);
            self
        }

        fn is_due(&mut self, now: u64) -> bool {
            self.due(now).is_ok()
        }
    }

    fn written(path: &str) -> Sign {
        Sign::Written(path.into())
    }

    fn closed(path: &str) -> Sign {
        Sign::Closed(path.into())
    }

    #[test]
    fn a_renamed_file_is_due_at_once() {
        let mut rules = rules();
        rules.see(10, written("a.tmp")).see(20, closed("a.tmp"));
        assert!(!rules.is_due(20));
        rules.see(30, Sign::MovedIn("a".into(), Some("a.tmp".into())));
        assert!(rules.is_due(30));
        let habits = rules.habits(30);
        assert_eq!((habits.renames, habits.longest_save_ms, habits.in_place_rewrites), (1, 20, 0));
    }

    #[test]
    fn a_file_renamed_while_open_waits_for_its_close() {
        let mut rules = rules();
        rules.see(10, written("a.tmp")).see(20, Sign::MovedIn("a".into(), Some("a.tmp".into())));
        assert!(!rules.is_due(5_000));
        rules.see(5_000, closed("a"));
        assert!(rules.is_due(7_000));
    }

    #[test]
    fn a_file_written_in_place_is_due_when_it_has_settled() {
        let mut rules = rules();
        rules.see(0, written("a")).see(100, closed("a"));
        assert!(!rules.is_due(2_099));
        assert!(rules.is_due(2_100));
    }

    #[test]
    fn an_open_file_is_waited_for_however_long_it_pauses_within_the_limit() {
        let mut rules = rules();
        rules.see(0, written("a"));
        assert!(!rules.is_due(14_000));
        assert!(rules.habits(14_000).mid_write_now);
    }

    #[test]
    fn another_file_mid_write_holds_up_a_renamed_one() {
        let mut rules = rules();
        rules.see(0, Sign::MovedIn("shard-0".into(), None)).see(0, written("shard-1.tmp"));
        assert!(!rules.is_due(100));
        rules.see(200, closed("shard-1.tmp")).see(200, Sign::MovedIn("shard-1".into(), Some("shard-1.tmp".into())));
        assert!(rules.is_due(200));
    }

    #[test]
    fn an_endless_log_holds_nothing_up_and_calls_for_nothing() {
        let mut rules = rules();
        for now in (0..=16_000).step_by(500) {
            rules.see(now, written("log"));
        }
        assert!(!rules.is_due(16_001));
        rules.see(16_100, Sign::MovedIn("model".into(), None));
        assert!(rules.is_due(16_100));
        assert!(rules.busy_streams(16_100).contains(Path::new("log")));
        rules.on_taken([("model".into(), stamp())].into(), 16_100);
        rules.see(16_200, closed("log"));
        assert!(!rules.is_due(30_000));
    }

    #[test]
    fn a_large_file_that_grows_fast_is_no_stream() {
        let mut rules = rules();
        for second in 0..60 {
            rules.on_sign(written("big"), Some(second * (100 << 20)), second * 1_000);
        }
        rules.see(60_000, Sign::MovedIn("small".into(), None));
        assert!(!rules.is_due(60_000));
        rules.on_sign(closed("big"), Some(60 * (100 << 20)), 61_000);
        assert!(rules.is_due(63_000));
    }

    #[test]
    fn writing_over_a_taken_name_is_counted_as_a_rewrite() {
        let mut rules = Rules::new(LIMITS, 0, [("a".into(), stamp())].into());
        rules.see(0, written("a")).see(300, closed("a"));
        let habits = rules.habits(300);
        assert_eq!((habits.in_place_rewrites, habits.longest_save_ms, habits.renames), (1, 300, 0));
    }

    #[test]
    fn a_given_up_snapshot_is_taken_again_when_quiet() {
        let mut rules = rules();
        rules.owe();
        rules.see(0, written("a"));
        assert!(!rules.is_due(10));
        rules.see(20, closed("a"));
        assert!(rules.is_due(2_020));
        rules.on_taken(BTreeMap::new(), 2_020);
        assert!(!rules.is_due(9_000));
    }

    #[test]
    fn a_deletion_alone_calls_for_nothing() {
        let mut rules = Rules::new(LIMITS, 0, [("a".into(), stamp())].into());
        rules.see(0, Sign::Gone("a".into()));
        assert!(!rules.is_due(60_000));
    }
}
