//! Whether an interrupted run ended as an undisturbed one did: which files of the two final states are compared,
//! what of their differences counts, and the findings about it.

use super::act::Played;
use super::compare::{self, Apart, Compared, How, ValuePath, Weight};
use super::saves::{Contents, is_lock};
use super::seen::{Finding, Scene, Seen, Severity};
use super::traces::last_line;
use std::collections::BTreeSet;
use std::path::PathBuf;
use windfall_core::english::counted;

const WHOLE_STATE: &str = "save everything that the next step depends on: the optimiser, the random generators, the \
                           position in the data; and count a step as done only when it is in the checkpoint";
const LIGHTNING: &str = "after a stop in the middle of an epoch Lightning starts a plain DataLoader from its first batch \
                         again: give it one with a state (torchdata's StatefulDataLoader), seed what shuffles it, and \
                         save what else the next step depends on";
/// Places that a message names.
const MOST_NAMED: usize = 4;

/// The state that a run ended with: logs and locks are no state.
fn state(played: &Played) -> Contents {
    let Some(last) = played.last() else { return Contents::new() };
    let logs: BTreeSet<PathBuf> = played.stints.iter().flat_map(|stint| stint.watch.logs()).collect();
    let state: Contents =
        last.left.iter().filter(|(path, _)| !is_lock(path)).map(|(path, what)| (path.clone(), *what)).collect();
    let only: Contents =
        state.iter().filter(|(path, _)| !logs.contains(*path)).map(|(path, what)| (path.clone(), *what)).collect();
    if only.is_empty() { state } else { only }
}

/// Files to compare. That takes as long as reading them does, so no other act may wait for it.
pub enum Comparison {
    /// Files that both have.
    Files(Vec<Pair>),
    /// Nothing is left of these.
    Gone(Vec<PathBuf>),
}

/// One file of two final states.
pub struct Pair {
    path: PathBuf,
    /// The folders that it lies in.
    folders: [PathBuf; 2],
    same_hash: bool,
    /// It counts only if it holds tensors.
    only_tensors: bool,
}

impl Comparison {
    /// Reads and compares them.
    pub fn run(self) -> Vec<Compared> {
        let files = match self {
            Comparison::Files(files) => files,
            Comparison::Gone(paths) => {
                let gone = || Apart { at: String::new(), how: "is missing".to_owned(), weight: Weight::Result };
                let compared = |path| Compared { path, how: How::Bytes, is_lightning: false, apart: vec![gone()] };
                return paths.into_iter().map(compared).collect();
            }
        };
        let compared = files.into_iter().filter_map(|pair| {
            let [one, other] = &pair.folders;
            let file = compare::file(&pair.path, one, other, pair.same_hash);
            (!pair.only_tensors || matches!(file.how, How::Content(1.., _))).then_some(file)
        });
        compared.collect()
    }
}

impl Seen {
    /// The files that a run and the undisturbed run both ended with; none where there is nothing to compare with. A
    /// file that only one of them has is an older or an extra checkpoint.
    pub fn comparison(&self, played: &Played) -> Option<Comparison> {
        let (one, other) = (state(&self.base), state(played));
        if !self.base.succeeded() || !played.succeeded() || one.is_empty() {
            return None;
        }
        let last = played.last()?;
        if other.is_empty() {
            return Some(Comparison::Gone(one.into_keys().collect()));
        }
        let common = one.iter().filter_map(|(path, what)| Some((path, what == other.get(path)?)));
        let common = common.map(|(path, same_hash)| Pair {
            path: path.clone(),
            folders: [self.base_state.clone(), last.saves_dir.clone()],
            same_hash,
            only_tensors: false,
        });
        // Beside its checkpoints a program may export its result. Other files there may be of one stint only.
        let exported = self.outside.iter().filter(|path| last.folder.join(path).is_file());
        let exported = exported.map(|path| Pair {
            path: path.clone(),
            folders: [self.base_folder.clone(), last.folder.clone()],
            same_hash: false,
            only_tensors: true,
        });
        Some(Comparison::Files(common.chain(exported).collect()))
    }
}

/// The places of two undisturbed runs that differ: nothing can be said about those.
pub fn volatile(compared: &[Compared]) -> BTreeSet<ValuePath> {
    let counts = |apart: &&Apart| matches!(apart.weight, Weight::Result | Weight::Random);
    let places = compared
        .iter()
        .flat_map(|file| file.apart.iter().filter(counts).map(|apart| (file.path.clone(), apart.at.clone())));
    places.collect()
}

impl Scene {
    /// Whether the final state is that of the undisturbed run; none when nothing of it could be compared.
    pub fn equal(&self, volatile: &BTreeSet<ValuePath>) -> Option<bool> {
        let compared = self.compared.as_ref()?;
        if compared.iter().any(|file| file.unlike(volatile).next().is_some()) {
            return Some(false);
        }
        if compared.iter().any(|file| file.unread().next().is_some()) {
            return None;
        }
        let tells = |file: &Compared| {
            let whole = volatile.contains(&(file.path.clone(), String::new()));
            !whole && !matches!(file.how, How::Not(_) | How::Books(_))
        };
        compared.iter().any(tells).then_some(true)
    }
}

fn name(file: &Compared, apart: &Apart) -> String {
    match apart.at.is_empty() {
        true => format!("{} {}", file.path.display(), apart.how),
        false => format!("{}: {} {}", file.path.display(), apart.at, apart.how),
    }
}

fn some(mut named: Vec<String>) -> String {
    let more = named.len().saturating_sub(MOST_NAMED);
    named.truncate(MOST_NAMED);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}

/// An interrupted run gave another result.
pub fn differs(seen: &Seen) -> Option<Finding> {
    let scene = seen.scenes.iter().find(|scene| scene.equal(&seen.volatile) == Some(false))?;
    let files = scene.compared.iter().flatten();
    let named = files.flat_map(|file| file.unlike(&seen.volatile).map(|apart| name(file, apart))).collect();
    let undisturbed = match seen.volatile.is_empty() {
        true => "than two undisturbed runs, which agree",
        false => "than two undisturbed runs, which agree there",
    };
    Some(Finding {
        code: "different-final-state",
        seen: format!("{}: the run ended with another result {undisturbed}: {}", scene.name, some(named)),
        why: "an interrupted run gives another result than an undisturbed one, and nobody will notice",
        fix: if scene.compared.iter().flatten().any(|file| file.is_lightning) { LIGHTNING } else { WHOLE_STATE }
            .to_owned(),
        severity: Severity::Unsafe,
    })
}

/// Notes about the run differ, or its random numbers, and the result does not.
pub fn notes(seen: &Seen) -> Vec<Finding> {
    let named = |weights: &[Weight]| -> Vec<String> {
        let files = || seen.scenes.iter().flat_map(|scene| scene.compared.iter().flatten());
        let places = files().flat_map(|file| {
            let about = file.apart.iter().filter(|apart| weights.contains(&apart.weight));
            let known = move |apart: &&Apart| !seen.volatile.contains(&(file.path.clone(), apart.at.clone()));
            about.filter(known).map(|apart| match apart.at.is_empty() {
                true => file.path.display().to_string(),
                false => format!("{}: {}", file.path.display(), apart.at),
            })
        });
        places.collect::<BTreeSet<String>>().into_iter().collect()
    };
    let mut found = Vec::new();
    let notes = named(&[Weight::Run, Weight::Books]);
    if !notes.is_empty() {
        found.push(Finding {
            code: "other-notes",
            seen: format!("an interrupted run notes other things about itself: {}", some(notes)),
            why: "times, and what a trainer notes about a run beside its result, differ with every interruption; they \
                  are no part of the verdict",
            fix: "nothing needs to be done".to_owned(),
            severity: Severity::Info,
        });
    }
    let random = named(&[Weight::Random]);
    if !random.is_empty() && differs(seen).is_none() {
        found.push(Finding {
            code: "other-random-state",
            seen: format!("an interrupted run ended with the same result and other random numbers: {}", some(random)),
            why: "a longer run may draw from them, and then it ends with another result",
            fix: "load the state of the random generators from the checkpoint when it resumes".to_owned(),
            severity: Severity::Info,
        });
    }
    found.extend(not_compared(seen));
    found.extend(other_last_line(seen));
    found
}

/// Nothing that an interrupted run ended with could be compared, or not all of it.
fn not_compared(seen: &Seen) -> Option<Finding> {
    if seen.deterministic == Some(false) {
        return None;
    }
    let scene = seen.scenes.iter().find(|scene| scene.compared.is_some() && scene.equal(&seen.volatile).is_none())?;
    let files = scene.compared.as_ref()?;
    let unread: Vec<String> = files.iter().flat_map(|file| file.unread().map(|apart| name(file, apart))).collect();
    let (what, fix) = match (files.is_empty(), unread.is_empty()) {
        (true, _) => (
            "no file of its final state has a name that the undisturbed run used".to_owned(),
            "save the last checkpoint under a name that does not depend on when it was saved",
        ),
        (false, false) => (some(unread), "compare it with a program of your own"),
        (false, true) => (
            some(files.iter().map(Compared::words).collect()),
            "leave the result itself where it is saved, as tensors, numbers or text",
        ),
    };
    Some(Finding {
        code: "final-state-not-compared",
        seen: format!("{}: {what}", scene.name),
        why: "whether an interrupted run ends as an undisturbed one does cannot be checked",
        fix: fix.to_owned(),
        severity: Severity::Info,
    })
}

/// The last line of an interrupted run differs from that of the undisturbed run. Only the program's author knows
/// whether that line is its result.
fn other_last_line(seen: &Seen) -> Option<Finding> {
    let line = |played: &Played| played.last().and_then(|stint| last_line(&stint.log)).filter(|_| played.succeeded());
    let one = line(&seen.base).filter(|_| !seen.last_line_varies)?;
    let other = |scene: &Scene| Some((scene.name, line(&scene.played)?));
    let others = seen.scenes.iter().filter(|scene| scene.played.cuts > 0).filter_map(other);
    let (act, other) = others.into_iter().find(|(_, other)| compare::mask(other) != compare::mask(&one))?;
    Some(Finding {
        code: "other-last-line",
        seen: format!("{act}: the last line that it printed is `{other}`, and undisturbed `{one}`"),
        why: "if that is its result, an interrupted run gives another one",
        fix: "nothing needs to be done if it counts what one run did; else save all that the result depends on"
            .to_owned(),
        severity: Severity::Info,
    })
}

/// Two undisturbed runs end with different results.
pub fn not_deterministic(seen: &Seen) -> Option<Finding> {
    (seen.deterministic == Some(false)).then(|| {
        let places = seen.volatile.iter().map(|(path, at)| match at.is_empty() {
            true => path.display().to_string(),
            false => format!("{}: {at}", path.display()),
        });
        Finding {
            code: "not-deterministic",
            seen: format!("two undisturbed runs end with different content: {}", some(places.collect())),
            why: "whether an interrupted run ends there as an undisturbed one does cannot be checked",
            fix: "seed every random generator, and use deterministic algorithms, if you want it checked".to_owned(),
            severity: Severity::Info,
        }
    })
}

/// Which files were compared, and how: one line, from the first act that had any.
pub fn compared(seen: &Seen) -> Option<String> {
    let files = seen.scenes.iter().filter_map(|scene| scene.compared.as_ref()).max_by_key(|files| {
        // The act with the most to say about how: equal bytes need no words.
        files.iter().filter(|file| file.how != How::SameBytes).count()
    })?;
    let same = files.iter().filter(|file| file.how == How::SameBytes).count();
    let mut lines: Vec<String> = files.iter().filter(|file| file.how != How::SameBytes).map(Compared::words).collect();
    if same > 0 {
        lines.insert(0, format!("{} with the same bytes", counted(same as u64, "file")));
    }
    (!lines.is_empty()).then(|| some(lines))
}
