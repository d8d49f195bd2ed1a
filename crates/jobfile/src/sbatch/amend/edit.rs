//! Edits of a script's text: an option is put where it stood before, or below the last line of options; a command comes before
//! the first one.

use super::{BatchJob, Change};
use crate::sbatch::script::MAGIC;

/// One edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sbatch) enum Edit {
    Set { option: &'static str, value: String },
    Command { line: String },
}

impl Edit {
    pub fn says(&self) -> String {
        match self {
            Edit::Set { option, value } => format!("--{option}={value}"),
            Edit::Command { line } => line.clone(),
        }
    }
}

/// A line of the script before and after; without the line break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub before: Option<String>,
    pub after: Option<String>,
}

/// Every line, with what becomes of it.
pub(super) fn lines(job: &BatchJob<'_>, changes: &[Change]) -> Vec<Line> {
    let same = |line: &str| Line { before: Some(line.to_owned()), after: Some(line.to_owned()) };
    let mut lines: Vec<Line> = job.text.lines().map(same).collect();
    let line_of = |at: usize| job.text.get(..at).unwrap_or_default().matches('\n').count();
    // Of two queues the later rule wins: it was asked about with the earlier one in place.
    let (mut replaced, mut added, mut commands) = (Vec::new(), Vec::new(), Vec::new());
    for (at, change) in changes.iter().enumerate() {
        let later = &changes[at + 1..];
        match &change.edit {
            Edit::Command { line } => commands.push(line.clone()),
            Edit::Set { option, .. }
                if later
                    .iter()
                    .any(|other| matches!(&other.edit, Edit::Set { option: same, .. } if same == option)) => {}
            Edit::Set { option, .. } => match job.script.last(option) {
                Some(given) => replaced.push((given.span.clone(), change.says())),
                None => added.push(format!("{MAGIC} {}", change.says())),
            },
        }
    }
    // From behind, so that places before stay what they were.
    replaced.sort_by_key(|(span, _)| std::cmp::Reverse(span.start));
    for (span, says) in replaced {
        let number = line_of(span.start);
        let start = job.text.get(..span.start).and_then(|text| text.rfind('\n')).map_or(0, |at| at + 1);
        if let Some(line) = lines.get_mut(number).and_then(|line| line.after.as_mut())
            && line.get(span.start - start..span.end - start).is_some()
        {
            line.replace_range(span.start - start..span.end - start, &says);
        }
    }
    let new = |after: String| Line { before: None, after: Some(after) };
    let first_command = line_of(job.script.commands).min(lines.len());
    lines.splice(first_command..first_command, commands.into_iter().map(new));
    let last_option = job.script.given.iter().map(|given| line_of(given.span.start) + 1).max();
    let below = last_option.unwrap_or(1).min(lines.len());
    lines.splice(below..below, added.into_iter().map(new));
    lines
}

/// The script as it is submitted.
pub(super) fn changed(job: &BatchJob<'_>, changes: &[Change]) -> String {
    let mut text: String =
        lines(job, changes).into_iter().filter_map(|line| line.after).map(|line| line + "\n").collect();
    if !job.text.ends_with('\n') {
        text.pop();
    }
    text
}
