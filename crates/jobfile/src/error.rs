//! What is wrong with a job file: problems with their position, collected so that one reading reports all of
//! them. How they look on a terminal is decided in `show`.

use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// More problems than this help nobody: the walk ends there, which also bounds its time.
const MOST: usize = 20;

/// The class of a problem, stable for programs that read the JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// The file cannot be read at all.
    Unreadable,
    /// Not YAML, or YAML that job files do not use.
    Syntax,
    /// A key that is not known there.
    UnknownKey,
    /// A key given twice.
    DuplicateKey,
    /// A key that must be given.
    MissingKey,
    /// A list where text was expected, and the like.
    WrongType,
    /// A value that is not accepted.
    BadValue,
    /// Understood, but not available yet.
    Unsupported,
}

/// Where in the file: lines and columns count from 1, columns in characters; the span is in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    pub line: usize,
    pub column: usize,
    /// Bytes of the file that are meant.
    pub span: Range<usize>,
}

/// One thing to change in a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub class: Class,
    pub message: String,
    pub expected: Option<String>,
    pub hint: Option<String>,
    /// Where; none when the file itself cannot be read.
    pub position: Option<FilePosition>,
}

impl Problem {
    /// A problem; where it is, is said when it is collected.
    pub fn new(class: Class, message: impl Into<String>) -> Problem {
        Problem { class, message: message.into(), expected: None, hint: None, position: None }
    }

    /// With what would do.
    pub fn expected(mut self, expected: impl Into<String>) -> Problem {
        self.expected = Some(expected.into());
        self
    }

    /// With what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Problem {
        self.hint = Some(hint.into());
        self
    }

    pub(super) fn maybe_hint(mut self, hint: Option<String>) -> Problem {
        self.hint = hint.or(self.hint);
        self
    }
}

/// Everything that is wrong with a job file; at least one problem.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.summary())]
pub struct JobFileError {
    pub(super) file: String,
    pub(super) text: String,
    pub(super) problems: Vec<Problem>,
    pub(super) cut: bool,
}

impl JobFileError {
    /// The error for a file that cannot be read at all.
    pub fn unreadable(file: &str, problem: Problem) -> JobFileError {
        JobFileError { file: file.to_owned(), text: String::new(), problems: vec![problem], cut: false }
    }

    /// The error for another kind of file that people write: its problems, and the bytes that each is about.
    pub fn of(file: &str, text: &str, found: Vec<(Range<usize>, Problem)>) -> JobFileError {
        let mut problems = Problems::new(text);
        found.into_iter().for_each(|(span, problem)| problems.add(&span, problem));
        problems.into_error(file)
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// All problems, in the order of the file.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    fn summary(&self) -> String {
        let mut lines = self.lines();
        let more = lines.len() - 1;
        match more {
            _ if self.cut => format!("{} (and many more problems)", lines[0]),
            0 => lines.swap_remove(0),
            1 => format!("{} (and 1 more problem)", lines[0]),
            _ => format!("{} (and {more} more problems)", lines[0]),
        }
    }
}

/// Collects problems while a file is walked.
pub(super) struct Problems<'a> {
    text: &'a str,
    found: Vec<Problem>,
    cut: bool,
}

impl<'a> Problems<'a> {
    pub fn new(text: &'a str) -> Problems<'a> {
        Problems { text, found: Vec::new(), cut: false }
    }

    pub fn add(&mut self, span: &Range<usize>, mut problem: Problem) {
        if self.is_full() {
            self.cut = true;
            return;
        }
        problem.position = Some(position(self.text, span));
        self.found.push(problem);
    }

    /// Whether there are so many problems that looking for more is no use.
    pub fn is_full(&self) -> bool {
        self.found.len() >= MOST
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub fn into_error(mut self, file: &str) -> JobFileError {
        self.found.sort_by_key(|p| p.position.as_ref().map(|position| position.span.start));
        JobFileError { file: file.to_owned(), text: self.text.to_owned(), problems: self.found, cut: self.cut }
    }
}

/// The position of a span, kept within the text whatever the span says.
pub fn position(text: &str, span: &Range<usize>) -> FilePosition {
    let start = floor(text, span.start);
    // A problem is shown on the line it begins on, also where the value goes on for many.
    let line_end = text[start..].find(['\n', '\r']).map_or(text.len(), |length| start + length);
    let end = floor(text, span.end.max(start)).min(line_end);
    let before = &text[..start];
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    FilePosition { line, column: before[line_start..].chars().count() + 1, span: start..end }
}

fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A piece of the user's text for a message: short and printable, whatever was in the file.
pub(super) struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST_CHARS: usize = 60;
        f.write_str("`")?;
        for (n, c) in self.0.chars().enumerate() {
            if n == MOST_CHARS {
                f.write_str("…")?;
                break;
            }
            match c {
                '\n' => f.write_str("\\n")?,
                '\t' => f.write_str("\\t")?,
                c if c.is_control() || is_format(c) => write!(f, "{}", c.escape_unicode())?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("`")
    }
}

/// Invisible characters that reorder or hide text on a terminal.
pub(super) fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}
