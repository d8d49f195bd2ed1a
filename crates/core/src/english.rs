//! Small matters of English.

/// `1 lease`, `2 leases`.
pub fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// An error with all that caused it, in one line. Many errors say their cause themselves: nothing is said twice.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

/// A number with its thousands apart: `1,234`.
pub fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size for people: `12.4 MB`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => counted(bytes, "byte"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// The length of the line that says what was cut out of an output: always the same, so that it can be written again in place.
pub const CUT_LINE: usize = 128;

/// The line that says how much was cut out of an output.
pub fn cut_line(cut_bytes: u64) -> String {
    let text = format!("\n[windfall: {} of output were cut here: it prints more than is kept]", size(cut_bytes));
    format!("{text:<width$}\n", width = CUT_LINE - 1)
}

#[cfg(test)]
mod tests {
    use super::{CUT_LINE, counted, cut_line, with_causes};

    #[test]
    fn the_line_about_what_was_cut_is_as_long_for_every_size() {
        for bytes in [1, 999, 35_651_584, u64::MAX] {
            assert_eq!(cut_line(bytes).len(), CUT_LINE, "{bytes}");
        }
        assert!(cut_line(35_651_584).starts_with("\n[windfall: 35.7 MB of output were cut here"));
    }

    #[test]
    fn one_is_one_and_the_rest_are_many() {
        assert_eq!([0, 1, 2].map(|count| counted(count, "job")), ["0 jobs", "1 job", "2 jobs"]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn causes_are_said_once() {
        let below = |words, cause| Some(Box::new(Layer(words, cause)));
        let error = Layer(
            "cannot list: no answer: timed out",
            below("no answer: timed out", below("timed out", below("refused", None))),
        );
        assert_eq!(with_causes(&error), "cannot list: no answer: timed out: refused");
    }
}
