//! Tables that fit: the least important columns leave when the terminal is too narrow for all.

use crate::age::MARK;

/// A column of a table.
#[derive(Clone, Debug)]
pub struct Column {
    head: String,
    right: bool,
    /// When the table is too wide, columns with the highest number are left out first; those with zero never.
    leaves: u8,
    /// May be cut short, down to so many characters.
    least: Option<usize>,
    cells: Vec<String>,
}

impl Column {
    /// Words, on the left.
    pub fn words(head: impl Into<String>, leaves: u8, cells: impl IntoIterator<Item = String>) -> Column {
        Column { head: head.into(), right: false, leaves, least: None, cells: cells.into_iter().collect() }
    }

    /// Figures, on the right.
    pub fn figures(head: impl Into<String>, leaves: u8, cells: impl IntoIterator<Item = String>) -> Column {
        let mut column = Column { right: true, ..Column::words(head, leaves, cells) };
        // Digits stay below each other where some figures have a mark.
        if column.cells.iter().any(|cell| cell.ends_with(MARK)) {
            let unmarked = column.cells.iter_mut().filter(|cell| !cell.is_empty() && !cell.ends_with(MARK));
            unmarked.for_each(|cell| cell.push(' '));
        }
        column
    }

    /// Words that may be cut short, down to `least` characters, or to what still tells them apart.
    pub fn least(mut self, least: usize) -> Column {
        let mut all: Vec<&String> = self.cells.iter().collect();
        all.sort();
        all.dedup();
        let alike = |width: usize| {
            let mut short: Vec<String> = all.iter().map(|cell| cut(cell, width)).collect();
            short.sort();
            short.windows(2).any(|pair| pair[0] == pair[1])
        };
        self.least = (least..self.width()).find(|width| !alike(*width));
        self
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain([self.head.chars().count()]).max().unwrap_or(0)
    }
}

const GAP: usize = 2;

/// The table in at most `width` characters a line, if that can be. Columns without any content are left out.
pub fn fitted(columns: Vec<Column>, width: usize) -> String {
    let mut columns: Vec<Column> = columns
        .into_iter()
        .filter(|column| column.leaves == 0 || column.cells.iter().any(|cell| !cell.is_empty()))
        .collect();
    let needed = |columns: &[Column], squeezed: bool| {
        let widths = columns.iter().map(|column| match column.least {
            Some(least) if squeezed => column.width().min(least.max(column.head.len())),
            _ => column.width(),
        });
        widths.sum::<usize>() + GAP * columns.len().saturating_sub(1)
    };
    while needed(&columns, true) > width {
        let Some(leaving) =
            (0..columns.len()).filter(|at| columns[*at].leaves > 0).max_by_key(|at| columns[*at].leaves)
        else {
            break;
        };
        columns.remove(leaving);
    }
    let mut widths: Vec<usize> = columns.iter().map(Column::width).collect();
    let mut excess = needed(&columns, false).saturating_sub(width);
    // Later columns say less, so they are cut first.
    for (at, column) in columns.iter().enumerate().rev() {
        if let Some(least) = column.least {
            let cut = excess.min(widths[at].saturating_sub(least.max(column.head.len())));
            widths[at] -= cut;
            excess -= cut;
        }
    }
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let mut text = line(&columns, &widths, |column| &column.head);
    for row in 0..rows {
        text.push_str(&line(&columns, &widths, |column| &column.cells[row]));
    }
    text
}

fn line<'c>(columns: &'c [Column], widths: &[usize], cell: impl Fn(&'c Column) -> &'c str) -> String {
    let padded = columns.iter().zip(widths).map(|(column, width)| {
        let text = cut(cell(column), *width);
        if column.right { format!("{text:>width$}") } else { format!("{text:<width$}") }
    });
    padded.collect::<Vec<_>>().join(&" ".repeat(GAP)).trim_end().to_owned() + "\n"
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// Lines of prose are no longer than this, however wide the terminal.
const PROSE: usize = 100;

/// A paragraph over as many lines as it takes.
pub fn wrapped(paragraph: &str, width: usize) -> String {
    let width = width.min(PROSE);
    let mut lines = vec![String::new()];
    for word in paragraph.split_whitespace() {
        let length = lines.last().map_or(0, |line| line.chars().count());
        if length > 0 && length + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n") + "\n"
}

/// A paragraph beside its label, which stands in a column of `indent` characters.
pub fn labelled(label: &str, paragraph: &str, indent: usize, width: usize) -> String {
    let mut label = label.to_owned();
    let mut text = String::new();
    for line in wrapped(paragraph, width.saturating_sub(indent).max(20)).lines() {
        text.push_str(format!("{label:<indent$}{line}").trim_end());
        text.push('\n');
        label.clear();
    }
    text
}

/// A label and what it says in one line where that fits, else over several.
pub fn folded(label: &str, text: &str, width: usize) -> String {
    let indent = label.chars().count();
    match indent + text.chars().count() <= width {
        true => format!("{label}{text}\n"),
        false => labelled(label, text, indent, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(width: usize) -> String {
        let own = |text: &str| vec![text.to_owned()];
        fitted(
            vec![
                Column::words("NAME", 0, own("a-very-long-name")).least(8),
                Column::figures("PRICE", 0, own("1.00")),
                Column::words("NOTE", 2, own("something")),
                Column::words("EMPTY", 1, own("")),
            ],
            width,
        )
    }

    #[test]
    fn words_are_not_cut_where_they_become_alike() {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let column = |texts: &[&str]| fitted(vec![Column::words("N", 0, own(texts)).least(4)], 6);
        assert_eq!(column(&["abcdefgh", "xbcdefgh"]), "N\nabcde…\nxbcde…\n");
        assert_eq!(column(&["abcdefgh", "abcdefxh"]), "N\nabcdefgh\nabcdefxh\n");
    }

    #[test]
    fn a_label_stands_once_and_its_text_below_itself() {
        assert_eq!(
            labelled("cost", "compute $1.00, restarts $0.50", 6, 26),
            "cost  compute $1.00,\n      restarts $0.50\n"
        );
    }

    #[test]
    fn what_fits_stays_in_its_line() {
        assert_eq!(folded("  1s  ", "the machine is up", 40), "  1s  the machine is up\n");
        assert_eq!(folded("  1s  ", "the machine is up since noon", 30), "  1s  the machine is up since\n      noon\n");
        assert!(folded("", &"word ".repeat(60), usize::MAX).lines().count() == 1, "a program reads it whole");
    }

    #[test]
    fn marked_figures_keep_their_digits_in_line() {
        let figures = vec!["1.00".to_owned(), "22.00!".to_owned(), String::new()];
        assert_eq!(fitted(vec![Column::figures("X", 0, figures)], 80), "     X\n 1.00\n22.00!\n\n");
    }

    #[test]
    fn columns_leave_before_words_are_cut_too_short() {
        assert_eq!(table(80), "NAME              PRICE  NOTE\na-very-long-name   1.00  something\n");
        assert_eq!(table(28), "NAME        PRICE  NOTE\na-very-lo…   1.00  something\n");
        assert_eq!(table(15), "NAME      PRICE\na-very-…   1.00\n");
    }
}
