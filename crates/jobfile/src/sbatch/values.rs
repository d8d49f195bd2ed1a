//! Values of options as Slurm writes them: counts and ranges, memory, lengths of time, accelerators, signals.

use crate::error::{Class, Problem, Quoted};
use windfall_core::Span;

/// Beyond this a number is a mistake.
const MOST: u64 = 1_000_000;

fn bad(text: &str, why: &str, expected: &str) -> Problem {
    Problem::new(Class::BadValue, format!("{} {why}", Quoted(text))).expected(expected)
}

fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok()).flatten()
}

/// A whole number of at least one.
pub(super) fn count(text: &str) -> Result<u32, Problem> {
    const EXPECTED: &str = "a whole number of at least 1";
    match digits(text) {
        Some(0) => Err(bad(text, "is too small", EXPECTED).hint("write how many, or remove the option")),
        Some(count) if count <= MOST => Ok(count as u32),
        Some(_) => Err(bad(text, "is too large", EXPECTED).hint("check the number of digits")),
        None => Err(bad(text, "is not a number", EXPECTED).hint("write digits only")),
    }
}

/// Fewest and most nodes: `4`, `2-4`, `1k`.
pub(super) fn nodes(text: &str) -> Result<(u32, u32), Problem> {
    const EXPECTED: &str = "a number of nodes, or fewest and most: 2-4";
    const LARGEST: u32 = 4_096;
    let one = |part: &str| {
        let (number, times) = match part.strip_suffix(['k', 'K']) {
            Some(number) => (number, 1_024),
            None => (part, 1),
        };
        let count = count(number).map_err(|problem| problem.expected(EXPECTED))?;
        let count = count.saturating_mul(times);
        if count > LARGEST {
            return Err(bad(part, "is too large", "at most 4096 nodes").hint("check the number of digits"));
        }
        Ok(count)
    };
    let (least, most) = text.split_once('-').unwrap_or((text, text));
    let (least, most) = (one(least)?, one(most)?);
    if least > most {
        return Err(bad(text, "begins with the larger number", EXPECTED).hint(format!("write {most}-{least}")));
    }
    Ok((least, most))
}

/// MiB: `4000`, `64G`, `1.5T` is none. Nothing where all memory of a node is meant.
pub(super) fn memory(text: &str) -> Result<Option<u64>, Problem> {
    const EXPECTED: &str = "an amount of memory, such as 64G or 4000 (MB)";
    let text = text.trim();
    let lower = text.to_ascii_lowercase();
    let squeezed =
        lower.strip_suffix('b').filter(|rest| !rest.ends_with(|c: char| c.is_ascii_digit())).unwrap_or(&lower);
    let (number, kib) = match squeezed.as_bytes().last() {
        Some(b'k') => (&squeezed[..squeezed.len() - 1], 1_u64),
        Some(b'm') => (&squeezed[..squeezed.len() - 1], 1 << 10),
        Some(b'g') => (&squeezed[..squeezed.len() - 1], 1 << 20),
        Some(b't') => (&squeezed[..squeezed.len() - 1], 1 << 30),
        _ => (squeezed, 1 << 10),
    };
    match digits(number) {
        Some(0) => Ok(None),
        Some(amount) if amount < 1 << 30 => Ok(Some((amount * kib).div_ceil(1 << 10))),
        Some(_) => Err(bad(text, "is too large", EXPECTED).hint("check the number of digits, and the unit")),
        None if number.contains('.') => {
            Err(bad(text, "has a fraction", EXPECTED).hint("write it in the next smaller unit: 1536M for 1.5G"))
        }
        None => Err(bad(text, "is not an amount of memory", EXPECTED).hint("write digits, and K, M, G or T")),
    }
}

/// A time limit: `90` (minutes), `90:00`, `1:30:00`, `2-12`, `2-12:30`, `2-12:30:00`. Nothing where there is no limit.
pub(super) fn time(text: &str) -> Result<Option<Span>, Problem> {
    const EXPECTED: &str = "minutes, hours:minutes:seconds or days-hours:minutes:seconds";
    let text = text.trim();
    if matches!(text.to_ascii_uppercase().as_str(), "UNLIMITED" | "INFINITE" | "-1" | "0") {
        return Ok(None);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (digits(days), rest),
        None => (None, text),
    };
    let parts: Option<Vec<u64>> = rest.split(':').map(digits).collect();
    let seconds = match (text.contains('-'), days, parts.as_deref()) {
        (false, _, Some([minutes])) => Some(minutes * 60),
        (false, _, Some([minutes, seconds])) => Some(minutes * 60 + seconds),
        (false, _, Some([hours, minutes, seconds])) => Some(hours * 3_600 + minutes * 60 + seconds),
        (true, Some(days), Some([hours])) => Some(days * 86_400 + hours * 3_600),
        (true, Some(days), Some([hours, minutes])) => Some(days * 86_400 + hours * 3_600 + minutes * 60),
        (true, Some(days), Some([hours, minutes, seconds])) => {
            Some(days * 86_400 + hours * 3_600 + minutes * 60 + seconds)
        }
        _ => None,
    };
    let wrong = |why: &str| Err(bad(text, why, EXPECTED).hint("write 24:00:00 for a day, or 1-00:00:00"));
    match seconds {
        // Ten years: digits that stand in the wrong place.
        Some(seconds) if seconds > 10 * 366 * 86_400 => wrong("is too long"),
        Some(0) => Ok(None),
        Some(seconds) => Ok(Some(Span::seconds(seconds as i64))),
        None => wrong("is not a length of time"),
    }
}

/// As Slurm takes it: `1-02:30:00`.
pub(super) fn written(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let clock = format!("{hours:02}:{:02}:{:02}", seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days}-{clock}") } else { clock }
}

/// Accelerators that were asked for: of one kind, or of any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gpus {
    /// As Slurm calls it; nothing where any will do.
    pub kind: Option<String>,
    pub count: u32,
}

/// What a list of generic resources asks of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Gres {
    pub gpus: Option<Gpus>,
    /// Parts that are no accelerators, as they are written.
    pub others: Vec<String>,
}

const GRES: &str = "gpu:4 or gpu:a100:4";

/// `gpu:4`, `gpu:a100:4`, `gpu:a100`, `gpu`, `gres/gpu:4`, with commas between several.
pub(super) fn gres(text: &str) -> Result<Gres, Problem> {
    let mut read = Gres::default();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty() && *part != "none") {
        let of_gpu = part.strip_prefix("gres/").or_else(|| part.strip_prefix("gres:")).unwrap_or(part);
        let rest = match of_gpu.strip_prefix("gpu") {
            Some("") => "1",
            Some(rest) if rest.starts_with([':', '=']) => &rest[1..],
            _ => {
                read.others.push(part.to_owned());
                continue;
            }
        };
        let found = one_kind(rest)?;
        add(&mut read.gpus, found, text)?;
    }
    Ok(read)
}

/// `4`, `a100:4`, `a100`, with commas between several.
pub(super) fn gpus(text: &str) -> Result<Option<Gpus>, Problem> {
    let mut read = None;
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        add(&mut read, one_kind(part)?, text)?;
    }
    match read {
        Some(_) => Ok(read),
        None => Err(bad(text, "names no accelerators", "4 or a100:4").hint("write how many, or remove the option")),
    }
}

fn one_kind(text: &str) -> Result<Option<Gpus>, Problem> {
    let (kind, number) = match text.rsplit_once([':', '=']) {
        Some((kind, number)) => (Some(kind), number),
        None if digits(text).is_some() => (None, text),
        None => (Some(text), "1"),
    };
    let is_word = |kind: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        !kind.is_empty() && kind.len() <= 64 && kind.chars().all(fits)
    };
    if kind.is_some_and(|kind| !is_word(kind)) {
        return Err(bad(text, "does not name accelerators", GRES).hint("the kind comes first, the number last: a100:4"));
    }
    if number == "0" {
        return Ok(None);
    }
    let count = count(number).map_err(|problem| problem.expected(GRES))?;
    if count > 1_024 {
        return Err(bad(text, "is too many", "at most 1024 on a node").hint("check the number of digits"));
    }
    Ok(Some(Gpus { kind: kind.map(str::to_owned), count }))
}

fn add(sum: &mut Option<Gpus>, found: Option<Gpus>, text: &str) -> Result<(), Problem> {
    match (sum.as_mut(), found) {
        (_, None) => Ok(()),
        (None, found) => {
            *sum = found;
            Ok(())
        }
        (Some(before), Some(found)) if before.kind == found.kind => {
            before.count = before.count.saturating_add(found.count);
            Ok(())
        }
        _ => Err(bad(text, "asks for several kinds of accelerators at once", "one kind")
            .hint("a worker has one kind; in a job file a list of kinds means that any of them will do")),
    }
}

/// `[R|B:]signal[@seconds]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Warning {
    /// Whether the script itself is sent it, and not only its steps.
    pub to_script: bool,
    /// Without `SIG`.
    pub signal: String,
    pub seconds: u64,
}

pub(super) fn warning(text: &str) -> Result<Warning, Problem> {
    const EXPECTED: &str = "a signal and seconds before the end, such as B:USR1@60";
    let (flags, rest) = text.split_once(':').unwrap_or(("", text));
    let (signal, seconds) = match rest.split_once('@') {
        Some((signal, seconds)) => (signal, digits(seconds)),
        None => (rest, Some(60)),
    };
    let upper = signal.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known =
        ["HUP", "INT", "QUIT", "ABRT", "KILL", "USR1", "USR2", "ALRM", "TERM", "CONT", "STOP", "URG", "XCPU", "PIPE"];
    let is_signal = known.contains(&name) || digits(name).is_some_and(|number| (1..65).contains(&number));
    let flags_known = flags.bytes().all(|flag| matches!(flag, b'B' | b'R' | b'b' | b'r'));
    match seconds.filter(|seconds| *seconds <= 65_535) {
        Some(seconds) if is_signal && flags_known => {
            let to_script = flags.contains(['B', 'b']);
            Ok(Warning { to_script, signal: name.to_owned(), seconds })
        }
        _ => Err(bad(text, "is not a signal with a time", EXPECTED).hint("write --signal=B:USR1@60")),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_slurm() {
        for (text, seconds) in [
            ("90", 5_400),
            ("90:30", 5_430),
            ("1:30:00", 5_400),
            ("2-12", 216_000),
            ("2-12:30", 217_800),
            ("2-12:30:10", 217_810),
            ("00:00:30", 30),
        ] {
            assert_eq!(time(text).unwrap(), Some(Span::seconds(seconds)), "{text}");
        }
        assert_eq!((time("UNLIMITED").unwrap(), time("0").unwrap()), (None, None));
        for wrong in ["", "1h", "24h", "1:2:3:4", "-5", "2-", "a-1", "1.5", "999999999999", "9999-00", "1-2:3:4:5"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        assert_eq!((written(5_400).as_str(), written(217_810).as_str()), ("01:30:00", "2-12:30:10"));
    }

    #[test]
    fn memory_nodes_and_signals_are_those_of_slurm() {
        for (text, mib) in
            [("4000", 4_000), ("64G", 65_536), ("64GB", 65_536), ("1T", 1 << 20), ("512K", 1), ("1g", 1_024)]
        {
            assert_eq!(memory(text).unwrap(), Some(mib), "{text}");
        }
        assert_eq!(memory("0").unwrap(), None);
        for wrong in ["", "G", "1.5G", "64 G", "lots", "-1", "9999999999"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
        assert_eq!(
            (nodes("2").unwrap(), nodes("2-4").unwrap(), nodes("1k").unwrap()),
            ((2, 2), (2, 4), (1_024, 1_024))
        );
        for wrong in ["0", "4-2", "5k", "two", "2-", "-2", ""] {
            assert!(nodes(wrong).is_err(), "{wrong}");
        }
        let expected = Warning { to_script: true, signal: "USR1".to_owned(), seconds: 60 };
        assert_eq!((warning("B:SIGUSR1@60").unwrap(), warning("B:usr1").unwrap()), (expected.clone(), expected));
        for wrong in ["", "@60", "USR3@60", "X:TERM@60", "TERM@soon", "TERM@99999", "99"] {
            assert!(warning(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn accelerators_are_read_in_every_way_that_they_are_written() {
        let of = |kind: Option<&str>, count| Some(Gpus { kind: kind.map(str::to_owned), count });
        for (text, expected) in [
            ("gpu", of(None, 1)),
            ("gpu:4", of(None, 4)),
            ("gpu:a100", of(Some("a100"), 1)),
            ("gpu:a100:4", of(Some("a100"), 4)),
            ("gres/gpu:2,tmpfs:10G", of(None, 2)),
            ("gpu:2,gpu:2", of(None, 4)),
            ("gpu:0", None),
            ("none", None),
            ("shard:3", None),
            ("gpus:3", None),
        ] {
            assert_eq!(gres(text).unwrap().gpus, expected, "{text}");
        }
        assert_eq!(gres("gpu:1,shard:3").unwrap().others, ["shard:3"]);
        for wrong in ["gpu:a100:x", "gpu:a b:1", "gpu:a100:2,gpu:v100:2", "gpu:9999", "gpu::2"] {
            assert!(gres(wrong).is_err(), "{wrong}");
        }
        assert_eq!((gpus("4").unwrap(), gpus("h100:2").unwrap()), (of(None, 4), of(Some("h100"), 2)));
        assert!(gpus("").is_err());
    }
}
