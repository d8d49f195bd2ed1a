//! The known word nearest to what was typed.

/// Words longer than this are not typing mistakes, and comparing them costs too much.
const LONGEST: usize = 40;

/// The nearest of `known`, if it is near enough to be what was meant.
pub fn nearest<'k>(typed: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let typed = fold(typed)?;
    known
        .into_iter()
        .filter_map(|word| {
            let folded = fold(word)?;
            let distance = distance(&typed, &folded);
            let prefix =
                typed.len() >= 3 && folded.len() >= 3 && (folded.starts_with(&typed) || typed.starts_with(&folded));
            let allowed = (folded.len().max(typed.len()) / 3).max(1);
            (distance <= allowed || prefix).then_some((distance, word))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// Case and the kind of hyphen are never what was meant.
fn fold(word: &str) -> Option<Vec<char>> {
    let folded: Vec<char> = word
        .chars()
        .take(LONGEST + 1)
        .map(|c| if matches!(c, '-' | ' ') { '_' } else { c.to_ascii_lowercase() })
        .collect();
    (!folded.is_empty() && folded.len() <= LONGEST).then_some(folded)
}

/// Edits between two words, where swapping two neighbours is one edit.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typing_mistake_finds_its_word_and_an_unrelated_word_finds_none() {
        let known = ["name", "deadline", "max_price", "resources"];
        assert_eq!(nearest("dedline", known), Some("deadline"));
        assert_eq!(nearest("max-price", known), Some("max_price"));
        assert_eq!(nearest("reosurces", known), Some("resources"));
        assert_eq!(nearest("Name", known), Some("name"));
        assert_eq!(nearest("zebra", known), None);
        assert_eq!(nearest(&"x".repeat(100_000), known), None);
    }
}
