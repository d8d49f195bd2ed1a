//! The rules by which saved files are taken: signs of change go in with their time, and it says when a
//! snapshot is due. No clock and no disk, so that every rule is tested without waiting.
//!
//! What is there is a checkpoint when one of these holds:
//! - *At rest*: nothing changed for `settle`, and nobody has a file open for writing.
//! - *Marked as whole*: a new folder was renamed into place, the file that the job file calls the last one was
//!   closed or renamed, or the helper said so.
//! - *A known save*: the files that this program usually saves together were all renamed again (`generation.rs`).
//!
//! A file that never pauses and grows slowly (a log) becomes a *stream* after `stream_after`: it neither holds up
//! the others nor calls for a snapshot. It is left out until it pauses, or, when it has only grown for long enough to be
//! nothing but a log, saved as far as it is. The next stint knows it from the start. One that grows fast is more likely a
//! large checkpoint on its way, and is waited for up to `patience`.
//!
//! Where a program replaces some files again and again, those are its saves, and a file beside them that only grows
//! is a *log*: it is saved like any other, but does not say how much work a snapshot holds. Where nothing is replaced, or
//! not any more, what grows is the save.
//!
//! When a process dies of a signal the kernel closes its files, so from then on a close proves nothing: only what
//! was at rest by then, renamed or marked as whole counts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::super::tree::Stamp;
use super::change::Change;
use super::generation::Generations;
use super::habits::Habits;
use super::pattern::Pattern;

/// A stream that has grown for so many times `stream_after` is a log.
const LOG_AFTER: u64 = 4;
/// Deaths remembered. A program that loses more processes than this is in trouble anyway.
const DEATHS: usize = 1_000;
/// A file that was written anew so often, after it was taken for the first time, is replaced again and again.
const REPLACED: u32 = 2;
/// A close may be the kernel's, for a process that was killed: long enough for the agent to learn of the death.
const AFTER_CLOSE_MS: u64 = 300;

#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub settle_ms: u64,
    pub stream_after_ms: u64,
    pub patience_ms: u64,
    /// After so long without a checkpoint a program is said never to settle.
    pub never_after_ms: u64,
    /// The file that the program writes last.
    pub complete: Option<Pattern>,
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
    /// A directory appeared under this name by a rename; its files follow as `Carried`.
    FolderMovedIn(PathBuf),
    /// The same as `MovedIn`, with the directory it is in.
    Carried(PathBuf, Option<PathBuf>),
    /// No longer there.
    Gone(PathBuf),
    /// The program said that all it saves is whole at this moment.
    Whole,
}

#[derive(Debug)]
pub(super) struct Rules {
    limits: Limits,
    began_ms: u64,
    changes: BTreeMap<PathBuf, Change>,
    streams: BTreeSet<PathBuf>,
    /// Streams of an earlier stint.
    known_streams: BTreeSet<PathBuf>,
    logs: BTreeSet<PathBuf>,
    /// How often a file that had been taken was written anew, not counting growth.
    replaced: BTreeMap<PathBuf, u32>,
    /// When such a file was taken last, and the longest time between two of them.
    replaced_ms: Option<(u64, u64)>,
    taken: BTreeMap<PathBuf, Stamp>,
    saves: Generations,
    habits: Habits,
    /// A snapshot was given up by the caller: take another when one is due.
    owed: bool,
    /// Since when something waits to be taken.
    pending_since_ms: Option<u64>,
    /// When a file that counts was deleted last.
    deleted_ms: Option<u64>,
    /// A new folder whose files are being told.
    arriving: Option<PathBuf>,
    /// When processes of the program died of a signal.
    deaths_ms: Vec<u64>,
    /// The program itself ended all the same as it should.
    clean_end: bool,
}

impl Rules {
    /// `there` counts as taken; `streams` were streams before.
    pub fn new(limits: Limits, now: u64, there: BTreeMap<PathBuf, Stamp>, streams: BTreeSet<PathBuf>) -> Self {
        Self {
            limits,
            began_ms: now,
            changes: BTreeMap::new(),
            streams: streams.clone(),
            known_streams: streams,
            logs: BTreeSet::new(),
            replaced: BTreeMap::new(),
            replaced_ms: None,
            taken: there,
            saves: Generations::default(),
            habits: Habits::default(),
            owed: false,
            pending_since_ms: None,
            deleted_ms: None,
            arriving: None,
            deaths_ms: Vec::new(),
            clean_end: false,
        }
    }

    /// `size` is the file's size now, where it is known.
    pub fn on_sign(&mut self, sign: Sign, size: Option<u64>, now: u64) {
        match sign {
            Sign::Written(path) => self.on_change(path, true, size, now),
            Sign::Touched(path) => {
                self.on_change(path.clone(), false, size, now);
                self.on_last_file(&path, now + AFTER_CLOSE_MS);
            }
            Sign::Closed(path) => {
                self.on_close(path.clone(), size, now);
                self.on_last_file(&path, now + AFTER_CLOSE_MS);
            }
            Sign::MovedIn(path, from) => {
                self.habits.renames += 1;
                self.on_move(path.clone(), from, size, now);
                self.on_last_file(&path, now);
            }
            Sign::FolderMovedIn(path) => {
                self.habits.renames += 1;
                let known = self.known_paths().iter().any(|known| known.starts_with(&path));
                self.arriving = (!known).then_some(path);
            }
            Sign::Carried(path, from) => {
                self.on_move(path.clone(), from, size, now);
                if self.arriving.as_ref().is_some_and(|folder| path.starts_with(folder))
                    && let Some(change) = self.changes.get_mut(&path)
                {
                    change.whole_from = Some(now);
                }
                self.on_last_file(&path, now);
            }
            Sign::Gone(path) => {
                self.changes.remove(&path);
                self.streams.remove(&path);
                self.logs.remove(&path);
                if self.taken.remove(&path).is_some() {
                    self.deleted_ms = Some(now);
                }
            }
            Sign::Whole => self.mark_whole(now),
        }
        let is_growing = |path: &PathBuf, change: &Change| change.grows && self.streams.contains(path);
        if self.changes.iter().all(|(path, change)| is_growing(path, change)) {
            self.pending_since_ms = None;
        } else {
            self.pending_since_ms.get_or_insert(now);
        }
    }

    fn on_change(&mut self, path: PathBuf, open: bool, size: Option<u64>, now: u64) {
        let settle_ms = self.limits.settle_ms;
        let before = self.taken.get(&path).map(|stamp| stamp.size);
        let rewrite = before.is_some();
        let fresh = Change {
            open,
            by_rename: false,
            whole_from: None,
            rewrite,
            grows: before.zip(size).is_none_or(|(before, size)| size >= before),
            first_ms: now,
            last_ms: now,
            first_size: size.unwrap_or(0),
            size: size.unwrap_or(0),
        };
        let change = self.changes.entry(path.clone()).or_insert_with(|| fresh.clone());
        if !change.busy(now, settle_ms) {
            // It had paused: a new stretch of writing begins.
            *change = Change { rewrite: change.rewrite, grows: change.grows, ..fresh };
        }
        change.open |= open;
        change.by_rename = false;
        change.whole_from = None;
        change.last_ms = now;
        change.grows &= size.is_none_or(|size| size >= change.size);
        change.size = size.unwrap_or(change.size);
        if !change.grows && self.known_streams.remove(&path) {
            // Written anew: it is judged by what it does now.
            self.streams.remove(&path);
        }
        self.find_log(path, now);
    }

    /// Whether a file has only grown since it was taken.
    fn has_grown(&self, path: &Path, change: &Change) -> bool {
        let before = self.taken.get(path).map(|stamp| stamp.size);
        !change.by_rename && change.grows && before.is_some_and(|before| change.size > before)
    }

    fn find_log(&mut self, path: PathBuf, now: u64) {
        let Some(change) = self.changes.get(&path) else { return };
        let replaces = self.replaced.values().any(|times| *times >= REPLACED);
        // A program may train first and write results then.
        let still = self.replaced_ms.is_some_and(|(last, gap)| now < last + (3 * gap).max(self.limits.patience_ms));
        if self.has_grown(&path, change) && replaces && still && !self.replaced.contains_key(&path) {
            self.logs.insert(path);
        } else {
            self.logs.remove(&path);
        }
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
        self.logs.remove(&path);
        self.saves.on_renewed(&path, first_ms, now);
        let size = size.unwrap_or(0);
        let change = Change {
            open,
            by_rename: true,
            whole_from: None,
            rewrite: false,
            grows: false,
            first_ms,
            last_ms: now,
            first_size: size,
            size,
        };
        self.changes.insert(path, change);
    }

    /// The job file names the file that is written last: with it, all of them are whole.
    fn on_last_file(&mut self, path: &Path, from: u64) {
        if self.limits.complete.as_ref().is_some_and(|complete| complete.matches(path))
            && self.changes.get(path).is_some_and(|change| !change.open)
        {
            self.mark_whole(from);
        }
    }

    /// Everything is whole from that time on. What is still open then is no part of it.
    fn mark_whole(&mut self, from: u64) {
        for (path, change) in &mut self.changes {
            change.whole_from = Some(from);
            if change.open {
                self.streams.insert(path.clone());
            }
        }
    }

    /// A process of the program died of a signal: what it had open is closed by the kernel, and torn.
    pub fn on_death(&mut self, now: u64) {
        self.clean_end = false;
        if self.deaths_ms.len() < DEATHS {
            self.deaths_ms.push(now);
        }
        for change in self.changes.values_mut() {
            change.whole_from = change.whole_from.filter(|from| *from <= now);
        }
    }

    /// The program ended by itself: only what a process that died before was writing is torn.
    pub fn on_clean_end(&mut self) {
        self.clean_end = true;
    }

    /// Whether a process that died may have been writing this.
    fn is_torn(&self, change: &Change) -> bool {
        !change.by_rename && change.whole_from.is_none() && self.dies_with(change)
    }

    /// Whether a process died before this came to rest.
    fn dies_with(&self, change: &Change) -> bool {
        let settle_ms = self.limits.settle_ms;
        self.deaths_ms.iter().any(|died| change.first_ms <= *died && !change.at_rest(*died, settle_ms))
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

    /// The paths known to be there, to find what vanished unseen.
    pub fn known_paths(&self) -> BTreeSet<PathBuf> {
        self.taken.keys().chain(self.changes.keys()).cloned().collect()
    }

    pub fn owe(&mut self) {
        self.owed = true;
    }

    fn pending(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|(path, _)| !self.streams.contains(*path)).map(|(_, change)| change)
    }

    /// Whether something was written that was not taken, streams aside.
    pub fn has_more(&self) -> bool {
        self.pending().next().is_some()
    }

    /// Whether a snapshot is due, and otherwise when to ask again if nothing happens.
    pub fn due(&mut self, now: u64) -> Result<(), Option<u64>> {
        self.find_streams(now);
        if self.pending().next().is_none() && !self.owed {
            return Err(None);
        }
        if self.is_checkpoint(now) {
            return Ok(());
        }
        let Limits { settle_ms, stream_after_ms, patience_ms, .. } = self.limits;
        let deleted = self.deleted_ms.map(|deleted| deleted + settle_ms);
        let times = self.pending().flat_map(|change| {
            let settled = if change.open { change.first_ms + stream_after_ms } else { change.last_ms + settle_ms };
            let limits = [change.first_ms + stream_after_ms, change.first_ms + patience_ms];
            [settled].into_iter().chain(limits).chain(change.whole_from)
        });
        let ask = times.chain(deleted).filter(|time| *time > now).min();
        Err(ask.map(|time| time.max(now + 1).min(now + settle_ms.max(50))))
    }

    /// Whether what is there may count as a checkpoint.
    fn is_checkpoint(&self, now: u64) -> bool {
        let settle_ms = self.limits.settle_ms;
        let deleting = self.deleted_ms.is_some_and(|deleted| now < deleted + settle_ms);
        // What settled only after a death may be torn; what was begun since then is by somebody who lives.
        let at_rest = |change: &Change| change.at_rest(now, settle_ms) && !self.dies_with(change);
        let marked = |change: &Change| change.is_whole(now) || at_rest(change);
        (self.pending().all(at_rest) && !deleting)
            || self.pending().all(marked)
            || (self.saves.is_whole() && self.pending().all(|change| change.is_renamed() || marked(change)))
    }

    /// Whether what is there when the program has ended is a checkpoint that was not taken yet. A program that
    /// ended by itself has finished its files, logs included; of one that died of a signal only a whole state counts.
    pub fn is_last_due(&self, now: u64) -> bool {
        let finished =
            self.deaths_ms.is_empty() || (self.clean_end && !self.pending().any(|change| self.is_torn(change)));
        if finished {
            return self.owed || !self.changes.is_empty();
        }
        if self.pending().next().is_none() && !self.owed {
            return false;
        }
        // Every file of the last whole state was replaced: that is a whole save too, even if it is the first seen.
        let replaced = !self.taken.is_empty()
            && self.taken.keys().all(|path| self.changes.get(path).is_some_and(Change::is_renamed))
            && self.pending().all(Change::is_renamed);
        replaced || self.is_checkpoint(now)
    }

    fn find_streams(&mut self, now: u64) {
        let Limits { settle_ms, stream_after_ms, patience_ms, .. } = self.limits;
        for (path, change) in &self.changes {
            let ms = now.saturating_sub(change.first_ms);
            if !change.busy(now, settle_ms) || ms <= stream_after_ms {
                continue;
            }
            if !change.is_fast(now) || ms > patience_ms {
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

    /// Whether a stream has only grown, and for so long that it is no checkpoint on its way: then any part of it from
    /// its beginning is as good as what a kill leaves.
    pub fn is_log_like(&self, path: &Path, now: u64) -> bool {
        let long = |change: &Change| now >= change.first_ms + LOG_AFTER * self.limits.stream_after_ms;
        let known = self.known_streams.contains(path);
        self.changes.get(path).is_some_and(|change| change.grows && (known || long(change)))
    }

    /// Files that only grow, beside what the program saves.
    pub fn logs(&self) -> &BTreeSet<PathBuf> {
        &self.logs
    }

    /// A snapshot was taken with these files. Streams that are busy stay as they are.
    pub fn on_taken(&mut self, files: BTreeMap<PathBuf, Stamp>, now: u64) {
        let busy = self.busy_streams(now);
        let anew = |path: &PathBuf, change: &Change| self.taken.contains_key(path) && !self.has_grown(path, change);
        let replaced: Vec<PathBuf> = (self.changes.iter())
            .filter(|(path, change)| !busy.contains(*path) && anew(path, change))
            .map(|(path, _)| path.clone())
            .collect();
        if !replaced.is_empty() {
            let (last, gap) = self.replaced_ms.unwrap_or((now, 0));
            self.replaced_ms = Some((now, gap.max(now.saturating_sub(last))));
        }
        replaced.into_iter().for_each(|path| *self.replaced.entry(path).or_default() += 1);
        self.replaced.retain(|path, _| files.contains_key(path));
        self.changes.retain(|path, _| busy.contains(path));
        self.taken = files;
        self.owed = false;
        self.pending_since_ms = None;
        self.deleted_ms = None;
        self.habits.saves += 1;
        self.habits.first_save_after_ms.get_or_insert(now.saturating_sub(self.began_ms));
    }

    pub fn habits(&self, now: u64) -> Habits {
        let settle_ms = self.limits.settle_ms;
        Habits {
            mid_write_now: self.pending().any(|change| change.busy(now, settle_ms)),
            open_now: self.pending().any(|change| change.open),
            never_settles: self.never_settles(now),
            ..self.habits.clone()
        }
    }

    /// Saves go on and on and none of them is a checkpoint. A log, or a large file on its way, is not meant.
    fn never_settles(&self, now: u64) -> bool {
        let long = self.pending_since_ms.is_some_and(|since| now >= since + self.limits.never_after_ms);
        let large = self.changes.values().any(|change| change.open && change.is_fast(now));
        long && !large && self.changes.values().any(|change| !change.grows)
    }
}

#[cfg(test)]
#[path = "rules_tests.rs"]
mod tests;
