//! The words of Slurm's accounting as numbers: times, lengths, memory, trackable resources, states, ids of jobs. What is not
//! known (`Unknown`, `None`, an empty field) is `None`; what cannot be read is `None` as well, and the caller decides
//! whether a line without it is of use.

use serde::Serialize;

/// The end of a state of Slurm's that counts for a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It waits for its start.
    Waiting,
    Running,
    Completed,
    /// Its program failed, it ran out of memory, or its node did.
    Failed,
    /// It reached its time limit.
    TimedOut,
    Cancelled,
    /// Another job took its place, or it was put back into the queue.
    Preempted,
}

/// What a state of sacct means; `CANCELLED by 1000` and `COMPLETED+` are read as well.
pub fn state(text: &str) -> Option<Ended> {
    let word = text.split([' ', '+', ',']).next().unwrap_or_default();
    Some(match word {
        "PENDING" | "PD" | "REQUEUE_HOLD" | "SPECIAL_EXIT" | "RESV_DEL_HOLD" | "REQUEUE_FED" => Ended::Waiting,
        "RUNNING" | "R" | "SUSPENDED" | "S" | "COMPLETING" | "CG" | "CONFIGURING" | "CF" | "RESIZING" | "RS"
        | "STAGE_OUT" | "SIGNALING" | "STOPPED" => Ended::Running,
        "COMPLETED" | "CD" => Ended::Completed,
        "FAILED" | "F" | "NODE_FAIL" | "NF" | "OUT_OF_MEMORY" | "OOM" | "BOOT_FAIL" | "BF" | "LAUNCH_FAILED"
        | "RECONFIG_FAIL" => Ended::Failed,
        "TIMEOUT" | "TO" | "DEADLINE" | "DL" => Ended::TimedOut,
        "CANCELLED" | "CA" | "REVOKED" | "RV" | "DELETED" => Ended::Cancelled,
        "PREEMPTED" | "PR" | "REQUEUED" | "RQ" => Ended::Preempted,
        _ => return None,
    })
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.bytes().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
}

/// Seconds since 1970 of `2026-01-02T03:04:05` or of seconds; a time without a zone is taken as it stands. Only times
/// between 1980 and 2106 are.
pub fn time(text: &str) -> Option<u32> {
    let seconds = match text.as_bytes() {
        [_, _, _, _, b'-', _, _, b'-', _, _, ..] => {
            let date = days(number(&text[..4])?, number(&text[5..7])?, number(text.get(8..10)?)?)? * 86_400;
            match text.len() {
                10 => date,
                19 if matches!(text.as_bytes()[10], b'T' | b' ') => date + time_of_day(&text.as_bytes()[11..])?,
                _ => return None,
            }
        }
        _ => number(text)?,
    };
    u32::try_from(seconds).ok().filter(|seconds| *seconds > 315_532_800)
}

/// Seconds of `HH:MM:SS`. Half a million jobs have millions of these.
fn time_of_day(text: &[u8]) -> Option<u64> {
    let &[h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let two = |tens: u8, ones: u8, most: u64| {
        let digits = tens.is_ascii_digit() && ones.is_ascii_digit();
        let number = digits.then(|| u64::from(tens - b'0') * 10 + u64::from(ones - b'0'))?;
        (number <= most).then_some(number)
    };
    // A leap second is the 60th.
    Some(two(h1, h2, 23)? * 3_600 + two(m1, m2, 59)? * 60 + two(s1, s2, 60)?)
}

/// Days since 1970 of a date of the Gregorian calendar, by counting years from March on, so that leap days come last.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        2 => 28 + u64::from(leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || day == 0 || day > length {
        return None;
    }
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let before = year * 365 + year / 4 - year / 100 + year / 400;
    Some(before + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// The date and time of seconds since 1970: `2026-01-02 03:04`.
pub fn date(seconds: u32) -> String {
    let (day, rest) = (u64::from(seconds / 86_400), seconds % 86_400);
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1).is_some_and(|first| first <= day) {
        year += 1;
    }
    let month = (1..=12).rev().find(|month| days(year, *month, 1).is_some_and(|first| first <= day)).unwrap_or(1);
    let first = days(year, month, 1).unwrap_or(day);
    format!("{year:04}-{month:02}-{:02} {:02}:{:02}", day - first + 1, rest / 3_600, rest / 60 % 60)
}

/// Seconds of `[D-]HH:MM:SS`, `MM:SS` or `MM:SS.mmm`.
fn clock(text: &str) -> Option<f64> {
    let mut seconds = 0.0;
    let mut parts = 0;
    for part in text.split(':') {
        let (whole, rest) = part.split_once('.').unwrap_or((part, ""));
        let fraction = if rest.is_empty() { 0.0 } else { number(rest)? as f64 / 10_f64.powi(rest.len() as i32) };
        seconds = seconds * 60.0 + number(whole)? as f64 + fraction;
        parts += 1;
    }
    (2..=3).contains(&parts).then_some(seconds)
}

/// Seconds of a length of time as sacct writes it: `2-03:04:05`, `04:05`, `00:01.234`.
pub fn length(text: &str) -> Option<f64> {
    match text.split_once('-') {
        // Days may be followed by hours alone.
        Some((days, rest)) if !rest.contains(':') => Some((number(days)? * 86_400 + number(rest)? * 3_600) as f64),
        Some((days, rest)) => {
            let rest = if rest.matches(':').count() == 1 { clock(rest)? * 60.0 } else { clock(rest)? };
            Some(number(days)? as f64 * 86_400.0 + rest)
        }
        None => clock(text),
    }
}

/// Seconds of a time limit; a bare number is minutes, as in `TimelimitRaw`. No limit, or the partition's, is `None`.
pub fn limit(text: &str) -> Option<u32> {
    let seconds = match number(text) {
        Some(minutes) => minutes.checked_mul(60)?,
        None => length(text)? as u64,
    };
    u32::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

/// A size in MiB, and whether it counts for each core (`c`) or node (`n`). Without a unit it is in `unit` bytes.
pub fn memory(text: &str, unit: f64) -> Option<(f64, Option<Per>)> {
    let (text, per) = match text.as_bytes().last()? {
        b'c' => (&text[..text.len() - 1], Some(Per::Core)),
        b'n' => (&text[..text.len() - 1], Some(Per::Node)),
        _ => (text, None),
    };
    let (figure, factor) = match text.as_bytes().last()? {
        b'0'..=b'9' => (text, unit),
        letter => {
            let factor = match letter.to_ascii_uppercase() {
                b'K' => 1024_f64,
                b'M' => 1024_f64.powi(2),
                b'G' => 1024_f64.powi(3),
                b'T' => 1024_f64.powi(4),
                b'P' => 1024_f64.powi(5),
                b'B' => 1.0,
                _ => return None,
            };
            (text.get(..text.len() - 1)?, factor)
        }
    };
    let sane = !figure.is_empty() && figure.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let amount: f64 = sane.then(|| figure.parse().ok()).flatten()?;
    Some((amount * factor / (1024.0 * 1024.0), per))
}

/// What a memory request counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Per {
    Core,
    Node,
}

/// What a job holds or asks for, of `cpu=4,gres/gpu:h100=4,mem=2G,node=1`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tres<'t> {
    pub cpus: Option<u32>,
    pub gpus: Option<u32>,
    /// The name of the type, where one is given.
    pub gpu_type: Option<&'t str>,
    pub memory_mib: Option<f64>,
    pub nodes: Option<u32>,
}

/// How busy GPUs were, in percent of one, of what a step used: `cpu=00:00:10,gres/gpuutil=85,mem=1G`.
pub fn gpu_percent(text: &str) -> Option<f64> {
    const NAME: &str = "gres/gpuutil=";
    let from = memchr::memmem::find(text.as_bytes(), NAME.as_bytes())? + NAME.len();
    let value = text[from..].split(',').next().unwrap_or_default();
    value.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)
}

/// Reads trackable resources. GPUs are those of `gres/gpu`, or the sum of all types where only types are counted.
pub fn tres(text: &str) -> Tres<'_> {
    let mut read = Tres::default();
    let mut typed = None;
    for (name, value) in text.split(',').filter_map(|part| part.split_once('=')) {
        let count = || number(value).and_then(|count| u32::try_from(count).ok());
        match name {
            "cpu" => read.cpus = count(),
            "node" => read.nodes = count(),
            "mem" => read.memory_mib = memory(value, 1024.0 * 1024.0).map(|(mib, _)| mib),
            "gres/gpu" => read.gpus = count(),
            _ => {
                if let (Some(kind), Some(count)) = (name.strip_prefix("gres/gpu:"), count()) {
                    typed = Some(typed.unwrap_or(0) + count);
                    read.gpu_type.get_or_insert(kind);
                }
            }
        }
    }
    read.gpus = read.gpus.or(typed);
    read
}

/// GPUs and their type of an older field: `gpu:4`, `gpu:h100:4`, `gres:gpu:4`, `gpu:v100:2(S:0-1)`.
pub fn gres(text: &str) -> Option<(u32, Option<&str>)> {
    let mut found: Option<(u32, Option<&str>)> = None;
    for part in text.split(',') {
        let part = part.trim_start_matches("gres:").trim_start_matches("gres/");
        let Some(rest) = part.strip_prefix("gpu") else { continue };
        let rest = rest.split('(').next().unwrap_or_default().trim_start_matches([':', '=']);
        let (kind, count) = match rest.rsplit_once([':', '=']) {
            Some((kind, count)) => (Some(kind), number(count)),
            None if rest.is_empty() => (None, Some(1)),
            None => (None, number(rest)),
        };
        let count = u32::try_from(count?).ok()?;
        let before = found.unwrap_or((0, None));
        found = Some((before.0.checked_add(count)?, before.1.or(kind)));
    }
    found
}

/// Which job a line is about: `123`, `123_4` of an array, `123+1` of a heterogeneous job, `123_[5-9]` not begun yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId {
    number: u64,
    /// One more than the index in an array or a heterogeneous job, which are told apart by `part`.
    index: u32,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Whole,
    Task,
    Component,
    Unbegun,
}

/// The job of an id, and whether it is one of its steps (`123.batch`, `123_4.0`).
pub fn job_id(text: &str) -> Option<(JobId, bool)> {
    let (job, step) = text.split_once('.').map_or((text, None), |(job, step)| (job, Some(step)));
    if step == Some("") {
        return None;
    }
    let id = match job.find(['_', '+']) {
        None => JobId { number: number(job)?, index: 0, part: Part::Whole },
        Some(at) => {
            let (first, rest) = (number(&job[..at])?, &job[at + 1..]);
            let index = |text| number(text).and_then(|index| u32::try_from(index + 1).ok());
            match (job.as_bytes()[at], rest.as_bytes().first()?) {
                (b'_', b'[') => JobId { number: first, index: 0, part: Part::Unbegun },
                (b'_', _) => JobId { number: first, index: index(rest)?, part: Part::Task },
                _ => JobId { number: first, index: index(rest)?, part: Part::Component },
            }
        }
    };
    Some((id, step.is_some()))
}

impl JobId {
    /// The id of an array's task or of a heterogeneous job's component, from their numbers.
    pub fn of(number: u64, task: Option<u32>, component: Option<u32>) -> JobId {
        let (index, part) = match (task, component) {
            (Some(task), _) => (task.saturating_add(1), Part::Task),
            (None, Some(component)) => (component.saturating_add(1), Part::Component),
            (None, None) => (0, Part::Whole),
        };
        JobId { number, index, part }
    }

    /// The tasks of an array that have not begun.
    pub fn unbegun(number: u64) -> JobId {
        JobId { number, index: 0, part: Part::Unbegun }
    }
}

impl std::fmt::Display for JobId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.part {
            Part::Whole => write!(f, "{}", self.number),
            Part::Task => write!(f, "{}_{}", self.number, self.index - 1),
            Part::Component => write!(f, "{}+{}", self.number, self.index - 1),
            Part::Unbegun => write!(f, "{}_[…]", self.number),
        }
    }
}

/// What kind of job a name stands for: the name without the numbers at its end (`train_017` is a `train`).
pub fn kind(name: &str) -> &str {
    let kind = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || "_-.,:=#[]() ".contains(letter));
    if kind.is_empty() { name } else { kind }
}

/// How many nodes a list such as `gpu[01-03,07],login1` names; `None assigned` and nothing are none.
pub fn nodes(list: &str) -> Option<u32> {
    if list.is_empty() || list.starts_with("None") || list == "(null)" {
        return Some(0);
    }
    let (mut sum, mut depth, mut from) = (0_u64, 0, 0);
    for (at, byte) in list.bytes().chain([b',']).enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth -= 1,
            b',' if depth == 0 => {
                sum = sum.checked_add(hosts(&list[from..at])?)?;
                from = at + 1;
            }
            _ => {}
        }
        if !(0..=1).contains(&depth) {
            return None;
        }
    }
    if depth == 0 { u32::try_from(sum).ok() } else { None }
}

/// The hosts of one pattern: every pair of brackets multiplies.
fn hosts(pattern: &str) -> Option<u64> {
    if pattern.is_empty() {
        return None;
    }
    let (mut product, mut rest) = (1_u64, pattern);
    while let Some((_, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']')?;
        let mut inside = 0_u64;
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first)?, number(last)?);
            inside = inside.checked_add(last.checked_sub(first)? + 1)?;
        }
        product = product.checked_mul(inside)?;
        rest = after;
    }
    Some(product)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_both_forms_and_nonsense_is_not() {
        assert_eq!(time("2026-11-18T09:47:30"), Some(1_794_995_250));
        assert_eq!(time("1794995250"), Some(1_794_995_250));
        assert_eq!(time("2024-02-29"), Some(1_709_164_800));
        assert_eq!(date(1_794_995_250), "2026-11-18 09:47");
        assert_eq!(date(1_709_164_800), "2024-02-29 00:00");
        assert_eq!(date(1_735_689_599), "2024-12-31 23:59");
        for wrong in [
            "",
            "Unknown",
            "None",
            "2026-02-30",
            "2026-13-01",
            "2026-11-18T25",
            "0",
            "2026-11-18T09:47:3é",
            "2026-11-18T24:00:00",
            "2026-11-18T09-47-30",
            "9é6-11-18",
        ] {
            assert_eq!(time(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn lengths_and_limits_are_read_in_every_form() {
        assert_eq!(length("2-03:04:05"), Some(183_845.0));
        assert_eq!(length("04:05"), Some(245.0));
        assert_eq!(length("00:00.344"), Some(0.344));
        assert_eq!(length("1-00"), Some(86_400.0));
        assert_eq!(length("1-02:30"), Some(95_400.0));
        assert_eq!([limit("60"), limit("01:00:00"), limit("2-00:00:00")], [Some(3_600), Some(3_600), Some(172_800)]);
        for none in ["UNLIMITED", "Partition_Limit", "", "INVALID", "0"] {
            assert_eq!(limit(none), None, "{none}");
        }
    }

    #[test]
    fn memory_has_units_and_may_count_for_each_core_or_node() {
        assert_eq!(memory("2G", 1.0), Some((2_048.0, None)));
        assert_eq!(memory("4000Mn", 1.0), Some((4_000.0, Some(Per::Node))));
        assert_eq!(memory("1.50Gc", 1.0), Some((1_536.0, Some(Per::Core))));
        assert_eq!(memory("10676K", 1.0), Some((10_676.0 / 1_024.0, None)));
        assert_eq!(memory("1048576", 1.0), Some((1.0, None)));
        for wrong in ["", "G", "x", "-1G", "1e5M", "n", "1é"] {
            assert_eq!(memory(wrong, 1.0), None, "{wrong}");
        }
    }

    #[test]
    fn gpus_are_counted_once_whether_or_not_types_are_named() {
        let both = tres("billing=4,cpu=4,gres/gpu:h100=3,gres/gpu=4,gres/gpu:a100=1,mem=2G,node=1");
        assert_eq!((both.gpus, both.gpu_type, both.cpus, both.nodes), (Some(4), Some("h100"), Some(4), Some(1)));
        assert_eq!(tres("gres/gpu:h100=3,gres/gpu:a100=1").gpus, Some(4));
        assert_eq!(tres("cpu=4,mem=2G").gpus, None);
        assert_eq!(gpu_percent("cpu=00:00:10,gres/gpuutil=85,gres/gpumem=10G"), Some(85.0));
        assert_eq!([gpu_percent("mem=1G"), gpu_percent("gres/gpuutil=-1"), gpu_percent("gres/gpuutil=inf")], [None; 3]);
        assert_eq!(tres("").gpus, None);
        assert_eq!(gres("gpu:4"), Some((4, None)));
        assert_eq!(gres("gpu:v100:2(S:0-1)"), Some((2, Some("v100"))));
        assert_eq!(gres("gres:gpu:v100:2,craynetwork:1"), Some((2, Some("v100"))));
        assert_eq!(gres("craynetwork:1"), None);
    }

    #[test]
    fn steps_belong_to_their_jobs() {
        let id = |text| job_id(text).map(|(id, step)| (id.to_string(), step));
        assert_eq!(id("123"), Some(("123".into(), false)));
        assert_eq!(id("123.batch"), Some(("123".into(), true)));
        assert_eq!(id("123_4.0"), Some(("123_4".into(), true)));
        assert_eq!(id("123+1.extern"), Some(("123+1".into(), true)));
        assert_eq!(id("123_[5-9%2]"), Some(("123_[…]".into(), false)));
        for wrong in ["", "abc", "12a", "123_", "123_x", "123.", "_4", "123+"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn node_lists_are_counted() {
        assert_eq!(nodes("gpu[01-03,07]"), Some(4));
        assert_eq!(nodes("gpu[01-03,07],login1,r[1-2]n[1-4]"), Some(13));
        assert_eq!((nodes("n1"), nodes("None assigned"), nodes("")), (Some(1), Some(0), Some(0)));
        for wrong in ["gpu[01", "gpu]", "a,,b", "gpu[3-1]", "gpu[[1]]", "gpu[]"] {
            assert_eq!(nodes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_kind_of_a_job_is_its_name_without_numbers_at_the_end() {
        assert_eq!([kind("train_017"), kind("eval-3.2"), kind("bert2"), kind("42")], ["train", "eval", "bert", "42"]);
    }
}
