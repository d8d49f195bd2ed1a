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
    let before = |lines: &[Line]| lines.iter().filter(|line| line.before.is_some()).count();
    let after = |lines: &[Line]| lines.iter().filter(|line| line.after.is_some()).count();
    let shown = &lines[from..to];
    let mut text = format!(
        "@@ -{},{} +{},{} @@\n",
        before(&lines[..from]) + 1,
        before(shown),
        after(&lines[..from]) + 1,
        after(shown)
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
