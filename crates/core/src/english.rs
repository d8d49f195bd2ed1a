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

#[cfg(test)]
mod tests {
    use super::{counted, with_causes};

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
