//! A unified diff of lines whose fate is known.

use super::edit::Line;

/// Lines shown around a change.
const AROUND: usize = 3;

/// The diff; empty where nothing differs.
pub(super) fn unified(lines: &[Line], name: &str) -> String {
    let differs: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].before != lines[*at].after).collect();
    let Some(first) = differs.first() else { return String::new() };
    let mut text = format!("--- {name}\n+++ {name} (as submitted)\n");
    let mut from = first.saturating_sub(AROUND);
    let mut to = first + 1;
    for at in differs.iter().copied().chain([usize::MAX]) {
        if at.saturating_sub(to) <= 2 * AROUND {
            to = at + 1;
            continue;
        }
        text += &hunk(lines, from, (to + AROUND).min(lines.len()));
        from = at.saturating_sub(AROUND);
        to = at.saturating_add(1);
    }
    text
}

fn hunk(lines: &[Line], from: usize, to: usize) -> String {
    let count = |lines: &[Line], side: fn(&Line) -> bool| lines.iter().filter(|line| side(line)).count();
    let (is_before, is_after): (fn(&Line) -> bool, fn(&Line) -> bool) =
        (|line| line.before.is_some(), |line| line.after.is_some());
    let shown = &lines[from..to];
    let mut text = format!(
        "@@ -{},{} +{},{} @@\n",
        count(&lines[..from], is_before) + 1,
        count(shown, is_before),
        count(&lines[..from], is_after) + 1,
        count(shown, is_after)
    );
    let said = |sign: char, line: &str| {
        let plain: String = line.chars().map(|c| if c.is_control() && c != '\t' { '?' } else { c }).collect();
        format!("{sign}{plain}\n")
    };
    for Line { before, after } in shown {
        match (before, after) {
            (Some(before), Some(after)) if before == after => text += &said(' ', before),
            (before, after) => {
                text.extend(before.iter().map(|line| said('-', line)));
                text.extend(after.iter().map(|line| said('+', line)));
            }
        }
    }
    text
}
