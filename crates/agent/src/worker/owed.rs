//! What the guard keeps for its agent: which programs run, and what is still to be sent of those that have ended. An agent that
//! is killed while it sends has a successor that goes on. It is kept in memory alone, because secrets are in it.

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use windfall_core::StintId;
use windfall_core::worker::{StartOrder, WorkerView};

/// What a program left that is not in a store yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owed {
    pub order: StartOrder,
    /// What is seen of its worker, with its end.
    pub worker: WorkerView,
    pub asked: Option<AskedAt>,
    pub began_ms: u64,
    /// The program, or one of its processes near the end, died of a signal.
    pub died: bool,
    pub cwd: PathBuf,
    /// No lower rank of its gang ran there.
    pub is_first: bool,
    /// The folder that it ran in is a copy for it alone.
    pub is_copy: bool,
    /// Its last save is still to be made durable.
    pub save: Option<OwedSave>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OwedSave {
    pub saves: PathBuf,
    /// How far the program was when it ended.
    pub work: Option<u64>,
    /// A process of it died of a signal: only who watched its files can tell which of them are whole.
    pub is_torn: bool,
}

/// What it was told before it ended, at times that another process understands: in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AskedAt {
    pub at_ms: u64,
    pub kill_at_ms: u64,
    pub gone_at_ms: Option<u64>,
    pub is_torn: bool,
}

/// A line of what is kept. A last line that is cut off was never written.
#[derive(Serialize, Deserialize)]
enum Line {
    Runs(StintId),
    Owes(Box<Owed>),
    Over(StintId),
    /// When the machine goes, in milliseconds since 1970.
    Notice(u64),
}

impl Line {
    fn stint(&self) -> Option<StintId> {
        match self {
            Line::Runs(stint) | Line::Over(stint) => Some(*stint),
            Line::Owes(owed) => Some(owed.order.stint),
            Line::Notice(_) => None,
        }
    }
}

/// What an agent before this one has left.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    pub owed: Vec<Owed>,
    /// When the machine goes, where that was announced.
    pub notice_ms: Option<u64>,
    /// Programs that it was running, or about to.
    runs: usize,
}

impl Left {
    /// Whether there is something for a successor. A program that ran was killed with its agent: then its machine has failed,
    /// and who ordered it is told so.
    pub fn is_for_another(&self) -> bool {
        self.runs == 0 && !self.owed.is_empty()
    }
}

/// Where it is kept. Without a guard it is nowhere.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Option<Arc<Mutex<Book>>>);

#[derive(Debug)]
struct Book {
    file: File,
    /// Where the lines of each stint are that runs or owes something.
    open: BTreeMap<StintId, Vec<Range<u64>>>,
    notice_ms: Option<u64>,
}

/// Memory for it, which lives for as long as somebody holds it. None where the kernel gives none.
pub(crate) fn memory() -> Option<OwnedFd> {
    memfd_create("windfall-owed", MemfdFlags::CLOEXEC).ok()
}

impl Kept {
    /// What this process was given as its input.
    pub fn given() -> Kept {
        Kept::in_file(std::io::stdin().as_fd().try_clone_to_owned().map(File::from).ok())
    }

    pub fn in_file(file: Option<File>) -> Kept {
        let file = file.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()));
        Kept(file.map(|file| Arc::new(Mutex::new(Book { file, open: BTreeMap::new(), notice_ms: None }))))
    }

    /// What was left, from now on known here.
    pub fn left(&self) -> Left {
        self.book(Book::read).unwrap_or_default()
    }

    pub fn runs(&self, stint: StintId) {
        self.book(|book| book.note(&Line::Runs(stint)));
    }

    pub fn owes(&self, owed: Owed) {
        self.book(|book| book.note(&Line::Owes(Box::new(owed))));
    }

    /// Nothing of a stint is still to be sent.
    pub fn is_over(&self, stint: StintId) {
        self.book(|book| book.note(&Line::Over(stint)));
    }

    /// The machine goes at that time.
    pub fn noticed(&self, at_ms: u64) {
        self.book(|book| book.note(&Line::Notice(at_ms)));
    }

    fn book<T>(&self, act: impl FnOnce(&mut Book) -> T) -> Option<T> {
        let book = self.0.as_ref()?;
        Some(act(&mut book.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Book {
    fn length(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }

    fn read(&mut self) -> Left {
        let mut text = vec![0; self.length() as usize];
        if self.file.read_exact_at(&mut text, 0).is_err() {
            return Left::default();
        }
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        // What follows must not stand behind a part of a line.
        let _ = self.file.set_len(whole as u64);
        let (mut runs, mut owed, mut at) = (BTreeSet::new(), BTreeMap::new(), 0);
        self.open.clear();
        for line in text[..whole].split_inclusive(|byte| *byte == b'\n') {
            let place = at..at + line.len() as u64;
            at = place.end;
            // One that is blank, or was being made so, is of a stint that is over.
            let Ok(read) = windfall_core::codec::from_json::<Line>(line) else { continue };
            if let Some(stint) = read.stint() {
                runs.remove(&stint);
                self.open.entry(stint).or_default().push(place);
            }
            match read {
                Line::Runs(stint) => _ = runs.insert(stint),
                Line::Owes(more) => _ = owed.insert(more.order.stint, *more),
                Line::Over(stint) => {
                    owed.remove(&stint);
                    self.open.remove(&stint);
                }
                Line::Notice(at_ms) => self.notice_ms = Some(at_ms),
            }
        }
        Left { owed: owed.into_values().collect(), notice_ms: self.notice_ms, runs: runs.len() }
    }

    /// Where it cannot be written, an agent that is killed has no successor, as without a guard.
    fn note(&mut self, line: &Line) {
        let mut text = serde_json::to_vec(line).expect("an order has string keys");
        text.push(b'\n');
        let end = self.length();
        if self.file.write_all_at(&text, end).is_err() {
            // A part of a line would spoil the next one.
            let _ = self.file.set_len(end);
            return;
        }
        match (line, line.stint()) {
            (Line::Over(_), Some(stint)) => self.blank(stint),
            (_, Some(stint)) => self.open.entry(stint).or_default().push(end..end + text.len() as u64),
            (Line::Notice(at_ms), None) => self.notice_ms = Some(*at_ms),
            _ => {}
        }
    }

    /// Removes the lines of a stint that is over: secrets are in them.
    fn blank(&mut self, stint: StintId) {
        for place in self.open.remove(&stint).unwrap_or_default() {
            let _ = self.file.write_all_at(&vec![b'\n'; (place.end - place.start) as usize], place.start);
        }
        if self.open.is_empty() {
            let _ = self.file.set_len(0);
            if let Some(at_ms) = self.notice_ms {
                self.note(&Line::Notice(at_ms));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::{WorkerEnd, WorkloadId};

    fn stint(job: u64) -> StintId {
        StintId::of_job(WorkloadId(job), 1)
    }

    fn owed(job: u64) -> Owed {
        let worker = WorkerView { end: Some(WorkerEnd::Exited { code: 0 }), ..WorkerView::new(stint(job), 0) };
        let order = StartOrder::of(stint(job), 0, 1);
        Owed {
            order,
            worker,
            asked: None,
            began_ms: 7,
            died: false,
            cwd: "/tmp".into(),
            is_first: true,
            is_copy: true,
            save: None,
        }
    }

    fn again(memory: &OwnedFd) -> Kept {
        Kept::in_file(Some(File::from(memory.try_clone().expect("a clone"))))
    }

    #[test]
    fn a_successor_finds_what_is_owed_and_nothing_that_was_running_or_is_over() {
        let memory = memory().expect("memory");
        let kept = again(&memory);
        (1..=3).for_each(|job| kept.runs(stint(job)));
        assert!(!again(&memory).left().is_for_another(), "programs run");
        kept.owes(owed(1));
        assert!(!again(&memory).left().is_for_another(), "others still run");
        kept.is_over(stint(2));
        kept.owes(owed(3));
        let left = again(&memory).left();
        assert!(left.is_for_another());
        assert_eq!(left.owed, [owed(1), owed(3)]);

        // The successor goes on with one, and is killed too.
        let kept = again(&memory);
        kept.left();
        kept.is_over(stint(1));
        assert_eq!(again(&memory).left().owed, [owed(3)]);
        kept.is_over(stint(3));
        let left = again(&memory).left();
        assert!(!left.is_for_another() && left.owed.is_empty());
        assert_eq!(File::from(memory).metadata().expect("asked").len(), 0, "it does not grow with every program");
    }

    #[test]
    fn a_line_that_was_cut_off_counts_for_nothing() {
        let memory = memory().expect("memory");
        let kept = again(&memory);
        kept.owes(owed(1));
        let file = File::from(memory.try_clone().expect("a clone"));
        let whole = file.metadata().expect("asked").len();
        kept.owes(owed(2));
        for cut in [whole + 1, whole + 40] {
            file.set_len(cut).expect("cut");
            assert_eq!(again(&memory).left().owed, [owed(1)]);
        }
        // A successor that goes on behind it is understood by the next one.
        file.set_len(whole).expect("cut");
        file.write_all_at(b"{\"Owes\":{\"ord", whole).expect("torn");
        let kept = again(&memory);
        kept.left();
        kept.owes(owed(3));
        assert_eq!(again(&memory).left().owed, [owed(1), owed(3)]);
    }

    #[test]
    fn what_is_over_is_not_kept_and_a_notice_is() {
        let memory = memory().expect("memory");
        let kept = again(&memory);
        let mut secret = owed(1);
        secret.order.env.insert("TOKEN".to_owned(), "hush".to_owned());
        kept.noticed(9_000);
        kept.runs(stint(2));
        kept.owes(secret);
        let file = File::from(memory.try_clone().expect("a clone"));
        let holds = || {
            let mut text = vec![0; file.metadata().expect("asked").len() as usize];
            file.read_exact_at(&mut text, 0).expect("read");
            String::from_utf8(text).expect("text").contains("hush")
        };
        assert!(holds());
        kept.is_over(stint(1));
        assert!(!holds(), "another still runs");
        kept.is_over(stint(2));
        assert_eq!(again(&memory).left().notice_ms, Some(9_000));
    }

    #[test]
    fn without_a_guard_nothing_is_kept() {
        let kept = Kept::in_file(File::open("/dev/null").ok());
        kept.owes(owed(1));
        assert_eq!(kept.left(), Left::default());
    }
}
