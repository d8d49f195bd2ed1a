//! What a flag or a key of the configuration file may say, whoever says it.

use std::time::Duration;
use windfall_core::NanoUsd;
use windfall_exec::Stated;

/// Seconds that a dead-man time may have.
const DEAD_MAN: (u64, u64) = (5, 30 * 86_400);
/// Minutes of wall time that can be asked for. Programs are told to save minutes before its end: less would be no time to work.
const WALL_MINUTES: (i64, i64) = (15, 365 * 24 * 60);
/// Dollars an hour; no computer costs more.
const MOST_RATE: f64 = 1e6;
/// Hours; every recording is shorter.
pub(crate) const LONGEST_RECORDING: f64 = 100_000.0;

/// A length of time as job files write it, in seconds.
pub(crate) fn seconds(text: &str) -> Option<u64> {
    u64::try_from(windfall_jobfile::duration(text)?.0 / 1_000).ok()
}

/// A dead-man time, such as `4h`, in seconds.
pub(crate) fn dead_man(text: &str) -> Option<u64> {
    seconds(text).filter(|seconds| (DEAD_MAN.0..=DEAD_MAN.1).contains(seconds))
}

/// How long a server stays that nobody needs: a length of time of a second or more, or `never`.
pub(crate) fn idle(text: &str) -> Option<Duration> {
    match text {
        "never" => Some(Duration::MAX),
        text => seconds(text).filter(|seconds| *seconds > 0).map(Duration::from_secs),
    }
}

/// The wall time of a job, in minutes as Slurm counts it.
pub(crate) fn wall_minutes(text: &str) -> Option<i64> {
    let minutes = i64::try_from(seconds(text)? / 60).ok()?;
    (WALL_MINUTES.0..=WALL_MINUTES.1).contains(&minutes).then_some(minutes)
}

/// Whether something is one word, as names of partitions and zones are.
pub(crate) fn is_word(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control())
}

/// Whether an hour of a computer can cost that.
pub(crate) fn is_rate(dollars: f64) -> bool {
    (0.0..=MOST_RATE).contains(&dollars)
}

/// Dollars as they are counted.
pub(crate) fn nano_usd(dollars: f64) -> NanoUsd {
    NanoUsd((dollars * 1e9).round() as i64)
}

/// What somebody states of a computer: a name and how many of it, such as `MI300X:8`.
pub(crate) fn stated(text: &str) -> Option<Stated> {
    let (model, count) = text.split_once(':')?;
    let count = count.parse().ok().filter(|count| (1..=1_024).contains(count))?;
    let names = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    (!model.is_empty() && model.chars().all(names)).then(|| Stated { model: model.to_owned(), count })
}

/// HOST:PORT of what somebody wrote as the address of a server.
pub(crate) fn server_address(text: &str) -> Option<String> {
    let plain = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
    let is_address = plain.rsplit_once(':').is_some_and(|(host, port)| {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        !host.is_empty() && !host.contains(['/', '@', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    is_address.then(|| plain.to_owned())
}

/// An address that holds a password, without it.
pub(crate) fn without_password(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let Some((who, place)) = rest.rsplit_once('@') else { return address.to_owned() };
    match who.split_once(':') {
        Some((user, _)) => format!("{scheme}://{user}:***@{place}"),
        None => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_address_is_refused() {
        for (text, is) in [("lab:7443", "lab:7443"), ("https://lab:7443/", "lab:7443"), ("[::1]:7443", "[::1]:7443")] {
            assert_eq!(server_address(text).as_deref(), Some(is));
        }
        for text in
            ["", "lab", "lab:", "lab:0", "lab:99999", ":7443", "http://lab:7443", "https://lab:7443/v1", "a@b:1"]
        {
            assert!(server_address(text).is_none(), "{text}");
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let shown = without_password("postgres://app:se:cr@et@db:5432/x");
        assert_eq!(shown, "postgres://app:***@db:5432/x");
        for plain in ["postgres://db/x", "postgres://app@db/x", "nonsense"] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn times_have_bounds() {
        assert_eq!(
            (dead_man("5s"), dead_man("30d"), dead_man("4s"), dead_man("31d")),
            (Some(5), Some(2_592_000), None, None)
        );
        assert_eq!((wall_minutes("24h"), wall_minutes("15m"), wall_minutes("14m")), (Some(1_440), Some(15), None));
        assert_eq!((idle("never"), idle("10m")), (Some(Duration::MAX), Some(Duration::from_secs(600))));
        assert_eq!((idle("0s"), idle("1ms"), idle("soon")), (None, None, None));
    }
}
