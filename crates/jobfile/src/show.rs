//! How problems look: drawn with the line they are on for people, one line each for editors, JSON for programs.

use super::error::{JobFileError, Problem, is_format};
use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents,
};
use serde_json::{Value, json};
use std::fmt;

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Letters and signs of ASCII only, without colour: for files and pipes.
    Ascii,
    /// Lines drawn with Unicode, without colour.
    Unicode,
    /// With colour.
    Colour,
}

impl JobFileError {
    /// Every problem with the line it is on, for a terminal of that many columns.
    pub fn render(&self, look: Look, columns: usize) -> String {
        let theme = match look {
            Look::Ascii => GraphicalTheme { characters: miette::ThemeCharacters::ascii(), ..GraphicalTheme::none() },
            Look::Unicode => GraphicalTheme::unicode_nocolor(),
            Look::Colour => GraphicalTheme::unicode(),
        };
        // Narrower than this, the drawing has no room for words at all.
        let columns = columns.clamp(30, 200);
        let handler =
            GraphicalReportHandler::new_themed(theme).with_width(columns).with_context_lines(1).with_links(false);
        let mut drawn = String::new();
        for problem in &self.problems {
            let shown = Shown::new(self, problem, columns, look);
            // Writing to a string cannot fail; a drawing that does leaves the plain line.
            if handler.render_report(&mut drawn, &shown).is_err() {
                drawn.push_str(&self.line(problem));
            }
            for (word, text) in [("expected", &problem.expected), ("hint", &problem.hint)] {
                if let Some(text) = text {
                    wrap(&mut drawn, word, text, columns);
                }
            }
            drawn.push('\n');
        }
        if self.cut {
            drawn.push_str("There may be more problems after these.\n");
        }
        drawn
    }

    /// One `file:line:column: message` for each problem.
    pub fn lines(&self) -> Vec<String> {
        self.problems.iter().map(|problem| self.line(problem)).collect()
    }

    fn line(&self, problem: &Problem) -> String {
        let file = clean(&self.file);
        match &problem.position {
            Some(position) => format!("{file}:{}:{}: {}", position.line, position.column, problem.message),
            None => format!("{file}: {}", problem.message),
        }
    }

    /// For programs: the file, and each problem with its position, what was expected and a hint.
    pub fn to_json(&self) -> Value {
        let problems: Vec<Value> = self
            .problems
            .iter()
            .map(|problem| {
                json!({
                    "class": problem.class,
                    "message": problem.message,
                    "expected": problem.expected,
                    "hint": problem.hint,
                    "line": problem.position.as_ref().map(|position| position.line),
                    "column": problem.position.as_ref().map(|position| position.column),
                    "span": problem.position.as_ref().map(|position| [position.span.start, position.span.end]),
                })
            })
            .collect();
        json!({ "file": self.file, "problems": problems, "more": self.cut })
    }
}

/// One problem as miette draws it.
struct Shown<'a> {
    file: Option<String>,
    problem: &'a Problem,
    excerpt: Option<Excerpt>,
    label: Option<SourceSpan>,
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.problem, f)
    }
}
impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without an excerpt, nothing else would say which file this is about.
        if let Some(file) = &self.file {
            write!(f, "{file}: ")?;
        }
        f.write_str(&self.problem.message)
    }
}
impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.excerpt.as_ref().map(|excerpt| excerpt as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let label = LabeledSpan::new_with_span(None, self.label?);
        Some(Box::new(std::iter::once(label)))
    }
}

/// The problem's line with its neighbours, cut to what a terminal can show and free of control characters:
/// a job file from elsewhere must not be able to write to the terminal.
#[derive(Debug)]
struct Excerpt {
    name: String,
    text: String,
    /// Lines of the file before the excerpt, from 0.
    lines_before: usize,
    /// The problem's line within the excerpt, and its real column, from 0.
    problem_line: usize,
    problem_column: usize,
}

impl<'a> Shown<'a> {
    fn new(error: &JobFileError, problem: &'a Problem, columns: usize, look: Look) -> Shown<'a> {
        let Some(position) = &problem.position else {
            return Shown { problem, file: Some(clean(&error.file)), excerpt: None, label: None };
        };
        let room = columns.saturating_sub(12).max(16);
        let first = position.line.saturating_sub(2);
        let mut text = String::new();
        let mut label = (0, 0);
        for (n, line) in error.text.split('\n').enumerate().skip(first).take(position.line + 1 - first) {
            let is_problem = n + 1 == position.line;
            let column = if is_problem { position.column - 1 } else { 0 };
            // Keep the problem in view: start a little before it when the line is longer than the room.
            let skip = if column + 8 > room { column.saturating_sub(room / 3) } else { 0 };
            let marked = if is_problem { error.text[position.span.clone()].chars().count() } else { 0 };
            let chars = line.trim_end_matches('\r').chars().skip(skip).take(room);
            let begin = text.len();
            for (k, c) in chars.enumerate() {
                if is_problem && k + skip == column {
                    label.0 = text.len();
                }
                text.push(if c.is_control() || is_format(c) { stand_in(c, look) } else { c });
                if is_problem && k + skip < column + marked {
                    label.1 = text.len();
                }
            }
            if is_problem && label.0 < begin {
                // The problem is at the end of the line, after its last character.
                label = (text.len(), text.len());
            }
            text.push('\n');
        }
        // What follows the last line break of a file is not a line.
        let text = text.strip_suffix("\n\n").map(str::to_owned).filter(|t| t.len() >= label.1).unwrap_or(text);
        let label = SourceSpan::from((label.0, label.1.saturating_sub(label.0)));
        let excerpt = Excerpt {
            name: clean(&error.file),
            text,
            lines_before: first,
            problem_line: position.line - 1 - first,
            problem_column: position.column - 1,
        };
        Shown { problem, file: None, excerpt: Some(excerpt), label: Some(label) }
    }
}

/// What is drawn instead of a character that cannot be drawn.
fn stand_in(c: char, look: Look) -> char {
    match (c, look) {
        ('\t', Look::Ascii) => '>',
        ('\t', _) => '→',
        (_, Look::Ascii) => '?',
        _ => '·',
    }
}

impl SourceCode for Excerpt {
    fn read_span<'a>(
        &'a self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let found = self.text.read_span(span, before, after)?;
        // The position that is printed is read without context lines; only then is the column that of the file.
        let column =
            if before == 0 && found.line() == self.problem_line { self.problem_column } else { found.column() };
        Ok(Box::new(MietteSpanContents::new_named(
            self.name.clone(),
            found.data(),
            *found.span(),
            found.line() + self.lines_before,
            column,
            found.line_count(),
        )))
    }
}

/// `word: text`, broken between words, with the text in one column.
fn wrap(drawn: &mut String, word: &str, text: &str, columns: usize) {
    let mut width = word.len() + 4;
    drawn.push_str(&format!("  {word}:"));
    for piece in text.split(' ') {
        let length = piece.chars().count() + 1;
        if width + length > columns && width > word.len() + 4 {
            width = word.len() + 4;
            drawn.push_str(&format!("\n{:width$}", "", width = width - 1));
        }
        drawn.push(' ');
        drawn.push_str(piece);
        width += length;
    }
    drawn.push('\n');
}

fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || is_format(c) { '·' } else { c }).collect()
}
