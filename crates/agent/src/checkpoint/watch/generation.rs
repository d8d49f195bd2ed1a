//! Learns what one save of a program consists of, from the renames it makes. A program that saves more often than
//! the settling time never comes to rest, but its saves repeat: between two renames of the same file lies one whole
//! save, and the longest pause among them is where it ends. From then on a burst with exactly those files is whole
//! at once. Where the pauses do not tell saves apart, nothing is learnt and only a tree at rest counts.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Renames remembered; a save of more files than this is not learnt.
const REMEMBERED: usize = 512;
/// Saves that follow each other more closely are not told apart: signs of change come in bunches.
const SHORTEST_PAUSE_MS: u64 = 200;
/// One file that was renamed so often in a row, and no other, is all that the program saves, however fast.
const ALONE: u32 = 5;

#[derive(Debug, Clone)]
struct Renewal {
    path: PathBuf,
    /// When its content began to be written.
    begun_ms: u64,
    /// When it got its name.
    at_ms: u64,
}

/// What a save usually is.
#[derive(Debug, Clone)]
struct Usual {
    /// Its files, digits aside, and how many there are of each.
    shapes: BTreeMap<String, usize>,
    /// A longer pause lies between two saves.
    pause_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct Generations {
    renewals: VecDeque<Renewal>,
    usual: Option<Usual>,
    /// The renames of the save that is going on, as far as it is known where that began.
    present: Vec<PathBuf>,
    /// Renames of the same file in a row, less one.
    alone: u32,
}

impl Generations {
    /// A file was renamed into place.
    pub fn on_renewed(&mut self, path: &Path, begun_ms: u64, at_ms: u64) {
        let renewal = Renewal { path: path.to_owned(), begun_ms, at_ms };
        let pause = self.renewals.back().map_or(u64::MAX, |last| pause(last, &renewal));
        if self.usual.as_ref().is_none_or(|usual| pause > usual.pause_ms) {
            self.present.clear();
        }
        self.present.push(renewal.path.clone());
        let before = self.renewals.iter().rposition(|known| known.path == path);
        self.renewals.push_back(renewal);
        match before {
            Some(before) => self.learn(before),
            None => self.alone = 0,
        }
        if self.renewals.len() > REMEMBERED {
            self.renewals.pop_front();
        }
    }

    /// Whether the save that is going on has all its files.
    pub fn is_whole(&self) -> bool {
        self.usual.as_ref().is_some_and(|usual| count(self.present.iter()) == usual.shapes)
    }

    /// The file renamed last was renamed before, at position `before`: what lies between is one period.
    fn learn(&mut self, before: usize) {
        let period: Vec<&Renewal> = self.renewals.range(before..).collect();
        let pauses: Vec<u64> = period.windows(2).map(|pair| pause(pair[0], pair[1])).collect();
        self.alone = if period.len() == 2 { self.alone + 1 } else { 0 };
        let Some((cut, &longest)) = pauses.iter().enumerate().max_by_key(|(_, pause)| **pause) else { return };
        let others = pauses.iter().enumerate().filter(|(at, _)| *at != cut).map(|(_, pause)| *pause);
        let second = others.max().unwrap_or(0);
        let close = longest < SHORTEST_PAUSE_MS && self.alone < ALONE;
        if close || longest < 2 * second {
            self.usual = None;
            return;
        }
        let shapes = count(period[1..].iter().map(|renewal| &renewal.path));
        self.present = period[cut + 1..].iter().map(|renewal| renewal.path.clone()).collect();
        self.usual = Some(Usual { shapes, pause_ms: longest.midpoint(second) });
    }
}

/// From a file in place to the first byte of the next one.
fn pause(before: &Renewal, after: &Renewal) -> u64 {
    after.begun_ms.saturating_sub(before.at_ms)
}

fn count<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> BTreeMap<String, usize> {
    let mut shapes = BTreeMap::new();
    for path in paths {
        *shapes.entry(shape(path)).or_default() += 1;
    }
    shapes
}

/// The path with each run of digits as one: `step-100.pt` and `step-200.pt` are the same part of a save.
fn shape(path: &Path) -> String {
    let mut shape = String::new();
    for letter in path.to_string_lossy().chars() {
        match letter.is_ascii_digit() {
            true if shape.ends_with('#') => {}
            true => shape.push('#'),
            false => shape.push(letter),
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Generations {
        fn see(&mut self, at_ms: u64, path: &str) -> bool {
            self.on_renewed(Path::new(path), at_ms, at_ms);
            self.is_whole()
        }
    }

    #[test]
    fn the_second_save_of_one_file_is_whole_at_once() {
        let mut saves = Generations::default();
        assert!(!saves.see(1_000, "model"));
        assert!(saves.see(2_000, "model"));
        assert!(saves.see(3_000, "model"));
    }

    #[test]
    fn one_of_two_files_is_never_whole() {
        let mut saves = Generations::default();
        for n in 0..9 {
            assert!(!saves.see(n * 1_000, "weights"), "save {n}");
            assert_eq!(saves.see(n * 1_000 + 300, "optimizer"), n > 0, "save {n}");
        }
    }

    #[test]
    fn a_look_that_begins_in_the_middle_of_a_save_finds_where_saves_end() {
        let mut saves = Generations::default();
        saves.see(300, "optimizer");
        for n in 1..9 {
            assert!(!saves.see(n * 1_000, "weights"), "save {n}");
            assert!(saves.see(n * 1_000 + 300, "optimizer"), "save {n}");
        }
    }

    #[test]
    fn a_file_that_is_saved_more_often_than_the_other_makes_no_mixed_generation() {
        let mut saves = Generations::default();
        for n in 0..40 {
            if n % 10 == 9 {
                assert!(!saves.see(n * 1_000, "weights"), "step {n}");
                saves.on_renewed(Path::new("state"), n * 1_000 + 100, n * 1_000 + 100);
            } else {
                saves.see(n * 1_000 + 100, "state");
            }
        }
    }

    #[test]
    fn one_file_that_is_saved_very_often_is_learnt_when_it_stays_alone() {
        let mut saves = Generations::default();
        for n in 0..20 {
            assert_eq!(saves.see(n * 50, "model"), n >= u64::from(ALONE), "save {n}");
        }
        assert!(!saves.see(1_010, "other"));
        assert!(!saves.see(1_050, "model") && !saves.see(1_100, "model"));
    }

    #[test]
    fn saves_that_cannot_be_told_apart_are_not_learnt() {
        for (within, between) in [(300, 300), (300, 550)] {
            let mut saves = Generations::default();
            for n in 0..20 {
                assert!(!saves.see(n * (within + between), "weights"));
                assert!(!saves.see(n * (within + between) + within, "optimizer"));
            }
        }
    }

    #[test]
    fn numbered_files_with_a_pointer_are_learnt_by_the_pointer() {
        let mut saves = Generations::default();
        for n in 0..6 {
            assert!(!saves.see(n * 1_000, &format!("step-{n}.pt")), "save {n}");
            assert_eq!(saves.see(n * 1_000 + 50, "latest"), n > 0, "save {n}");
        }
    }

    #[test]
    fn a_save_that_stopped_half_way_is_no_part_of_the_next() {
        let mut saves = Generations::default();
        for n in 0..4 {
            saves.see(n * 1_000, &format!("step-{n}.pt"));
            saves.see(n * 1_000 + 50, "latest");
        }
        // Two halves of two saves are not a whole one.
        assert!(!saves.see(9_000, "step-9.pt"));
        assert!(!saves.see(11_000, "step-11.pt"));
        assert_eq!(saves.present.len(), 1);
    }
}
