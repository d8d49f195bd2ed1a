//! What an agent's log says of the way to its server: that it is lost, at every try, and that it is found again, once.

use super::NodeError;
use std::time::Duration;
use windfall_core::Span;

/// Since when the server is not reached, for the log.
#[derive(Default)]
pub(super) struct Reach(Option<Duration>);

impl Reach {
    /// What to say of a try that failed.
    pub fn lost(&mut self, error: &NodeError, pause: Duration, now: Duration) -> String {
        self.0.get_or_insert(now);
        format!("{error}: tried again in {pause:?}")
    }

    /// What to say now that it is reached, where it was not before.
    pub fn found(&mut self, server: &str, now: Duration) -> Option<String> {
        let since = self.0.take()?;
        let away = Span(i64::try_from(now.saturating_sub(since).as_millis()).unwrap_or(i64::MAX));
        Some(format!("{server} is reached again, after {away}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_says_that_a_server_is_reached_again_and_only_then() {
        let mut reach = Reach::default();
        assert_eq!(reach.found("lab:7443", Duration::from_secs(1)), None);
        let error = NodeError::NotOurs { server: "lab:7443".to_owned() };
        for second in [10, 20] {
            reach.lost(&error, Duration::from_secs(10), Duration::from_secs(second));
        }
        let said = reach.found("lab:7443", Duration::from_secs(70)).expect("it is said");
        assert_eq!(said, format!("lab:7443 is reached again, after {}", Span::seconds(60)));
        assert_eq!(reach.found("lab:7443", Duration::from_secs(71)), None);
    }
}
