//! Lines that name files, as `.gitignore` has them: what a folder leaves behind when it is sent, and what of it is
//! brought back.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Lines of one file, in order: the last that fits decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    lines: Vec<Pattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// Its parts between slashes.
    parts: Vec<String>,
    /// It counts from the folder of its file on, not below any folder.
    is_anchored: bool,
    only_folders: bool,
    /// It takes back what an earlier line said.
    is_exception: bool,
}

impl Patterns {
    /// Reads lines; empty ones and those that begin with `#` say nothing.
    pub fn read(text: &str) -> Patterns {
        Patterns { lines: text.lines().filter_map(Pattern::read).collect() }
    }

    /// These lines, and others after them.
    pub fn then(mut self, others: Patterns) -> Patterns {
        self.lines.extend(others.lines);
        self
    }

    /// What the lines say of a path, relative to the folder of their file: true where the last line that fits names
    /// it, false where that is an exception, none where no line fits.
    pub fn say(&self, path: &Path, is_folder: bool) -> Option<bool> {
        let parts: Vec<&[u8]> = path.iter().map(OsStrExt::as_bytes).collect();
        let last = self.lines.iter().rev().find(|pattern| pattern.fits(&parts, is_folder));
        last.map(|pattern| !pattern.is_exception)
    }

    /// Whether a path is named, or a folder that it lies in.
    pub fn name(&self, path: &Path, is_folder: bool) -> bool {
        let folders = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty());
        self.say(path, is_folder) == Some(true)
            || folders.into_iter().any(|folder| self.say(folder, true) == Some(true))
    }
}

impl Pattern {
    fn read(line: &str) -> Option<Pattern> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.starts_with('#') {
            return None;
        }
        // A space at the end counts only where it is escaped.
        let kept = line.trim_end_matches(' ');
        let line = if kept.ends_with('\\') && kept.len() < line.len() { &line[..kept.len() + 1] } else { kept };
        let (is_exception, line) = line.strip_prefix('!').map_or((false, line), |rest| (true, rest));
        let (only_folders, line) = line.strip_suffix('/').map_or((false, line), |rest| (true, rest));
        let is_anchored = line.contains('/');
        let line = line.strip_prefix('/').unwrap_or(line);
        if line.is_empty() {
            return None;
        }
        let parts = line.split('/').filter(|part| !part.is_empty() && *part != ".").map(str::to_owned).collect();
        Some(Pattern { parts, is_anchored, only_folders, is_exception })
    }

    fn fits(&self, path: &[&[u8]], is_folder: bool) -> bool {
        if self.only_folders && !is_folder {
            return false;
        }
        match (self.is_anchored, self.parts.as_slice(), path) {
            (false, [part], [.., name]) => part_fits(part.as_bytes(), name),
            (_, parts, path) => parts_fit(parts, path),
        }
    }
}

/// Whether parts fit a whole path; `**` stands for any number of folders. Each step keeps which ends are reached, so a
/// line of many stars costs no more than its length times the path's.
fn parts_fit(parts: &[String], path: &[&[u8]]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    for (n, part) in parts.iter().enumerate() {
        let mut next = vec![false; path.len() + 1];
        if part == "**" {
            // At the end it stands for what is inside, not for the folder itself.
            let least = usize::from(n + 1 == parts.len());
            let first = reached.iter().position(|is| *is).map_or(next.len(), |first| first + least);
            next.iter_mut().skip(first).for_each(|is| *is = true);
        } else {
            for at in 0..path.len() {
                next[at + 1] = reached[at] && part_fits(part.as_bytes(), path[at]);
            }
        }
        reached = next;
    }
    reached[path.len()]
}

/// Whether a part with `*`, `?`, `[…]` and `\` fits a name.
fn part_fits(mut part: &[u8], mut name: &[u8]) -> bool {
    // Where the last star stood, and what it would take next.
    let mut again: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', rest @ ..] = part {
            (part, again) = (rest, Some((rest, name)));
            continue;
        }
        match (part, name) {
            ([], []) => return true,
            (_, []) => return false,
            (_, [first, rest @ ..]) => match one_fits(part, *first) {
                Some(after) => (part, name) = (after, rest),
                None => {
                    let Some((star, taken)) = again else { return false };
                    (part, name) = (star, &taken[1..]);
                    again = Some((star, &taken[1..]));
                }
            },
        }
    }
}

/// What is left of a part once its first sign has taken a byte; none where it does not take it.
fn one_fits(part: &[u8], byte: u8) -> Option<&[u8]> {
    match part {
        [b'?', rest @ ..] => Some(rest),
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [b'[', rest @ ..] => match set_fits(rest, byte) {
            Some((fits, after)) => fits.then_some(after),
            // Without its end it is a bracket.
            None => (byte == b'[').then_some(rest),
        },
        [sign, rest @ ..] => (*sign == byte).then_some(rest),
        [] => None,
    }
}

/// Whether a set, after its bracket, has a byte, and what comes after the set.
fn set_fits(set: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (is_not, set) = match set {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, set),
    };
    // A bracket that comes first is one of the set.
    let end = 1 + set.get(1..)?.iter().position(|sign| *sign == b']')?;
    let (mut members, mut has) = (&set[..end], false);
    loop {
        match members {
            [] => return Some((has != is_not, &set[end + 1..])),
            [from, b'-', to, rest @ ..] => (has, members) = (has || (*from..=*to).contains(&byte), rest),
            [one, rest @ ..] => (has, members) = (has || *one == byte, rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(lines: &str, path: &str) -> Option<bool> {
        let (path, is_folder) = path.strip_suffix('/').map_or((path, false), |folder| (folder, true));
        Patterns::read(lines).say(Path::new(path), is_folder)
    }

    #[test]
    fn lines_name_what_gitignore_would() {
        let named = [
            ("*.pt", "a.pt"),
            ("*.pt", "deep/down/a.pt"),
            ("/top", "top"),
            ("build/", "build/"),
            ("build/", "src/build/"),
            ("docs/*.txt", "docs/a.txt"),
            ("docs/**", "docs/a/b"),
            ("**/cache", "cache"),
            ("**/cache", "a/b/cache/"),
            ("a/**/z", "a/z"),
            ("a/**/z", "a/b/c/z"),
            ("?.py", "a.py"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[]]", "]"),
            ("[x", "[x"),
            ("\\#a", "#a"),
            ("\\!a", "!a"),
            ("a\\ ", "a "),
            ("*a*b*", "xaxbx"),
            ("a.txt\r", "a.txt"),
        ];
        for (lines, path) in named {
            assert_eq!(says(lines, path), Some(true), "{lines} {path}");
        }
        let others = [
            ("*.pt", "a.pth"),
            ("/top", "a/top"),
            ("build/", "build"),
            ("docs/*.txt", "docs/a/b.txt"),
            ("docs/*.txt", "x/docs/a.txt"),
            ("docs/**", "docs/"),
            ("# note", "# note"),
            ("", "a"),
            ("/", "a"),
            ("[a-c]x", "dx"),
            ("a ", "a "),
        ];
        for (lines, path) in others {
            assert_eq!(says(lines, path), None, "{lines} {path}");
        }
        assert_eq!(says("*.log\n!keep.log", "keep.log"), Some(false));
        assert_eq!(says("!keep.log\n*.log", "keep.log"), Some(true), "the last line decides");
    }

    #[test]
    fn what_lies_in_a_named_folder_is_named() {
        let patterns = Patterns::read("results\n*.csv");
        let named = |path: &str| patterns.name(Path::new(path), false);
        assert!(named("results/deep/a") && named("x/b.csv") && named("x/results/a") && !named("train.py"));
    }

    #[test]
    fn many_stars_take_no_longer_than_they_are_long() {
        let stars = "*a".repeat(200);
        assert_eq!(says(&stars, &"a".repeat(199)), None);
        assert_eq!(says(&format!("{}b", "**/".repeat(200)), &"a/".repeat(200)), None);
    }
}
