//! Reports of accounting that was written by hand, so that every figure can be checked by hand.

use proptest::prelude::*;
use windfall_insight::slurm::{Options, Prices, ReadError, Reading, Report, Shares, fields, page, report};

const SMALL: &str = include_str!("slurm/small.txt");
/// One job that ran twice.
const REQUEUED: &str = "JobID|State|Submit|Start|End|AllocTRES|ReqMem|MaxRSS\n\
    9|PREEMPTED|1772323200|1772323200|1772326800|cpu=1,gres/gpu=1,mem=8G|8G|\n\
    9.batch|CANCELLED||1772323200|1772326800|cpu=1||4G\n\
    9|COMPLETED|1772326800|1772327000|1772330600|cpu=1,gres/gpu=1,mem=8G|8G|\n\
    9.batch|COMPLETED||1772327000|1772330600|cpu=1||2G\n";

const OLDER: &str = include_str!("slurm/older.json");
const NEWER: &str = include_str!("slurm/newer.json");

fn read(texts: &[&str]) -> Reading {
    let mut reading = Reading::new();
    for (number, text) in texts.iter().enumerate() {
        reading.take(&format!("dump {number}"), text.as_bytes()).expect("it is read");
    }
    reading
}

fn made(texts: &[&str], options: Options) -> Report {
    report(read(texts), &Options { starved: 10, ..options })
}

fn at(text: &str) -> Option<u32> {
    fields::time(text)
}

#[test]
fn a_small_dump_gives_the_figures_that_a_pencil_does() {
    let prices = Prices { each: Some(2.0), ..Prices::default() };
    let made = made(&[SMALL], Options { prices, ..Options::default() });
    let total = &made.whole.total;
    assert_eq!((made.read.lines, made.read.steps, made.read.refused), (8 - 1, 2, 0));
    assert_eq!((total.jobs, total.completed, total.failed, total.waiting, total.gave_up), (5, 2, 1, 1, 1));
    // 4 GPUs for 2 hours and 2 GPUs for one; 8 × 2 + 4 × 1 + 16 × 6 cores.
    assert_eq!((total.gpu_hours, total.cpu_hours, total.usd), (10.0, 116.0, Some(20.0)));
    let wait = total.wait.expect("waits");
    assert_eq!((wait.median_s, wait.p90_s), (600, 7_200));
    // 2 of 10 hours; the other completed job has no limit.
    let time = total.time.expect("limits");
    assert_eq!((time.jobs, time.used_percent, total.unused_gpu_hours), (1, 20.0, 32.0));
    // 4 GiB for each of two tasks, of 64.
    assert_eq!(total.memory.map(|memory| memory.used_percent), Some(12.5));
    // One of four GPUs was busy.
    assert_eq!((total.gpu_idle_percent, total.gpu_idle_hours, total.gpu_recorded_hours), (Some(75.0), Some(6.0), 8.0));
    assert_eq!(total.failed_percent.map(f64::round), Some(33.0));
    let users: Vec<(&str, f64, f64)> = made
        .whole
        .user
        .iter()
        .map(|group| (group.name.as_str(), group.figures.gpu_hours, group.figures.share_percent))
        .collect();
    assert_eq!(users, [("ada", 8.0, 80.0), ("bob", 2.0, 20.0), ("cleo", 0.0, 0.0)]);
    let kinds: Vec<&str> = made.whole.r#type.iter().map(|group| group.name.as_str()).collect();
    assert_eq!(kinds, ["train", "sweep", "mix", "eval"]);
}

#[test]
fn who_waited_longest_is_told_with_who_had_the_partition() {
    let made = made(&[SMALL], Options::default());
    let seen: Vec<(&str, u32, u32, &str)> =
        made.starved.iter().map(|row| (row.job.as_str(), row.waited_s, row.asked_s, row.outcome)).collect();
    // Until the last moment of the dump, 06:00 on the second day; the one who gave up names no limit, and an hour is taken.
    assert_eq!(seen[0], ("2_[…]", 29 * 3_600, 3_600, "waiting"));
    assert_eq!(seen[1], ("3", 3 * 3_600, 3_600, "gave-up"));
    // While 3 waited, from 2 to 5: ada had 4 GPUs for ten minutes, bob 2 for an hour.
    let behind: Vec<(&str, f64)> =
        made.starved[1].behind.iter().map(|one| (one.user.as_str(), one.percent.round())).collect();
    assert_eq!(behind, [("bob", 75.0), ("ada", 25.0)]);
    // The task of the array that ran waited two hours for one.
    assert_eq!((made.waited_longer_than_asked, made.starved[0].alike), (3, 2));
}

#[test]
fn hours_are_cut_at_the_date_and_jobs_count_where_they_were_submitted() {
    let split = at("2026-03-01T01:10:00");
    let made = made(&[SMALL], Options { split, ..Options::default() });
    let split = made.split.expect("two sides");
    assert_eq!((split.before.total.gpu_hours, split.after.total.gpu_hours), (4.0, 6.0));
    assert_eq!((split.before.total.jobs, split.after.total.jobs), (3, 2));
    let window = Options { since: at("2026-03-01T03:30:00"), until: at("2026-03-02T01:00:00"), ..Options::default() };
    let cut = self::made(&[SMALL], window).whole.total;
    assert_eq!((cut.gpu_hours, cut.cpu_hours, cut.jobs), (1.0, 18.0, 4));
}

#[test]
fn granted_shares_are_held_against_use() {
    let shares = "Account|User|RawShares|NormShares\nroot|||0\n nlp||1|0.2\n  nlp|ada|1|1\n cv||3|0.6\n bio||1|0.2\n";
    let made = made(&[SMALL], Options { shares: Shares::read(shares), ..Options::default() });
    let fair = &made.whole.fairness;
    let rows: Vec<(&str, f64, Option<f64>)> = fair
        .accounts
        .iter()
        .map(|row| (row.account.as_str(), row.used_percent, row.granted_percent.map(f64::round)))
        .collect();
    assert_eq!(rows, [("nlp", 80.0, Some(20.0)), ("cv", 20.0, Some(60.0)), ("bio", 0.0, Some(20.0))]);
    assert!(made.advice.iter().any(|advice| advice.text.contains("account nlp was granted 20.0 % and used 80.0 %")));
    // Ratios 4, 1/3 and 0: (13/3)² / (3 × 145/9).
    assert_eq!(fair.jain_index.map(|index| (index * 1e4).round()), Some(3885.0));
}

#[test]
fn a_habit_is_advised_on_with_its_numbers() {
    let mut text = SMALL.lines().next().expect("a head").to_owned() + "\n";
    for job in 1..=30 {
        text.push_str(&format!("{job}|fit_{job}|ada|nlp|gpu|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T01:18:00|4680|1440|8|cpu=8,gres/gpu=1,mem=64G,node=1||64G|||01:00:00|\n"));
    }
    let made = made(&[&text], Options::default());
    let said: Vec<&str> = made.advice.iter().map(|advice| advice.text.as_str()).collect();
    assert_eq!(said, ["user ada asks for 1d 0h and uses 1h 18m at the median of 30 jobs: backfill cannot use them"]);
    assert_eq!(made.advice[0].evidence["used_median_s"], 4_680.0);
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_named() {
    let head = SMALL.lines().next().expect("a head");
    let good = SMALL.lines().nth(1).expect("a job");
    let text = [
        head,
        good,
        "not a line",
        &good.replacen('1', "x", 1),
        &good.replace("COMPLETED", "DONE"),
        "",
        &good.replace("2026-03-01T02:10:00", "2026-02-30T02:10:00"),
        &good.replacen("1|train_1", "9|a|b|c_1", 1),
    ]
    .join("\r\n");
    let made = made(&[&text], Options::default());
    let named: Vec<(u64, &str)> = made.read.examples.iter().map(|bad| (bad.line, bad.why.as_str())).collect();
    assert_eq!(
        named,
        [
            (3, "it has too few fields"),
            (4, "its job id cannot be read"),
            (5, "its state is not one of Slurm's"),
            (7, "a time in it cannot be read")
        ]
    );
    // Pipes in a name are part of it.
    assert_eq!((made.read.refused, made.whole.total.jobs), (4, 2));
    assert_eq!(made.whole.r#type[0].name, "a|b|c");
    let red = self::made(&[&format!("{head}\n{}", good.replace("train_1", "\u{1b}[31mtrain"))], Options::default());
    assert_eq!(red.whole.r#type[0].name, "?[31mtrain");
}

#[test]
fn fields_come_in_any_order_and_a_trailing_pipe_does_not_matter() {
    let text = "AllocTRES|Elapsed|State|JobID|User|\ncpu=2,gres/gpu=2|1-00:00:00|COMPLETED|7|ada|\ncpu=2|00:10:00|COMPLETED|7.batch||\n";
    let made = made(&[text], Options::default());
    assert_eq!((made.whole.total.gpu_hours, made.whole.total.jobs, made.read.steps), (48.0, 1, 1));
    // Two such dumps in one file.
    let twice = self::made(&[&format!("{text}{text}")], Options::default());
    assert_eq!((twice.read.refused, twice.whole.total.jobs), (0, 1));
    assert_eq!(made.read.missing, ["Account", "Partition", "Submit", "Start", "Timelimit"]);
    assert_eq!(made.whole.from, None);
}

#[test]
fn what_is_not_sacct_is_refused() {
    let refused = |text: &[u8]| Reading::new().take("file", text).expect_err("it is refused");
    assert!(matches!(refused(b"1|train|ada\n2|train|bob\n"), ReadError::NotATable { .. }));
    assert!(matches!(refused(b""), ReadError::NotATable { .. }));
    assert!(matches!(refused(b"\xff\xfe\x00"), ReadError::NotATable { .. }));
    assert!(matches!(refused(b"{\"nodes\": []}"), ReadError::NotJson { .. }));
    assert!(matches!(refused(b"{\"jobs\": [{\"job_id\": 1"), ReadError::NotJson { .. }));
}

#[test]
fn a_run_that_two_dumps_have_counts_once() {
    let head = SMALL.lines().next().expect("a head");
    // Later the job that waited has run, and the first one is told again with its steps.
    let later: Vec<&str> = SMALL.lines().skip(1).take(3).collect();
    let ran = "5|late|ada|nlp|gpu|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-03T00:00:00|2026-03-03T01:00:00|3600|60|8|cpu=8,gres/gpu=1||1G|||00:00:00|";
    let waits = "5|late|ada|nlp|gpu|PENDING|2026-03-01T00:00:00|2026-03-01T00:00:00|Unknown|Unknown|0|60|0||cpu=8,gres/gpu=1|1G|||00:00:00|";
    let earlier = format!("{SMALL}{waits}\n");
    let again = format!("{head}\n{}\n{ran}\n", later.join("\n"));
    for texts in [vec![earlier.as_str(), &again], vec![again.as_str(), &earlier]] {
        let total = made(&texts, Options::default()).whole.total;
        assert_eq!((total.gpu_hours, total.jobs, total.waiting, total.gpu_idle_hours), (11.0, 6, 1, Some(6.0)));
    }
    let together = format!("{earlier}{again}");
    assert_eq!(made(&[&together], Options::default()).whole.total.gpu_hours, 11.0);
}

#[test]
fn every_run_of_a_requeued_job_counts_and_has_its_own_steps() {
    let total = made(&[REQUEUED], Options::default()).whole.total;
    assert_eq!((total.jobs, total.gpu_hours, total.preempted), (2, 2.0, 1));
    assert_eq!(total.memory.map(|memory| (memory.jobs, memory.used_percent)), Some((2, 37.5)));
}

#[test]
fn json_of_both_versions_says_the_same_as_the_table() {
    let head = "JobID|JobName|User|Account|Partition|Cluster|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|MaxRSS|NTasks|TotalCPU|TRESUsageInTot";
    let table = format!(
        "{head}\n\
        21_3|fit|ada|nlp|gpu|virt|COMPLETED|1772323200|1772323260|1772323800|1772327400|3600|120|cpu=4,gres/gpu:h100=2,gres/gpu=2,mem=8G,node=1|||00:10:00|\n\
        21_3.batch|batch||nlp||virt|COMPLETED|||1772323800|1772327400|3600||cpu=4|2G|2||gres/gpuutil=150,mem=3G\n\
        30+1|mix|bob|cv|gpu|virt|CANCELLED by 7|1772323200|1772323200|None|1772326800|0|UNLIMITED||||00:00:00|\n"
    );
    let expected = made(&[&table], Options::default());
    for json in [OLDER, NEWER] {
        let seen = made(&[json], Options::default());
        assert_eq!((&seen.whole, &seen.starved), (&expected.whole, &expected.starved));
    }
    assert_eq!(expected.whole.total.gpu_idle_percent, Some(25.0));
    assert_eq!((expected.whole.total.gave_up, expected.starved[0].job.as_str()), (1, "30+1"));
}

#[test]
fn the_page_needs_nothing_else_and_names_are_only_text() {
    let evil = SMALL.replace("|ada|", "|<script>|");
    let made = made(&[&evil], Options { split: at("2026-03-01T01:10:00"), ..Options::default() });
    let html = page(&made, 10);
    assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
    assert!(!html.contains("http://") && !html.contains("https://") && !html.contains(" src="));
    for head in ["By user", "By account", "By partition", "By type", "Before and after 2026-03-01 01:10", "Fairness"] {
        assert!(html.contains(head), "{head}");
    }
}

proptest! {
    #[test]
    fn any_order_of_lines_gives_the_same_report(
        first in Just((1..8).collect::<Vec<usize>>()).prop_shuffle(),
        second in Just((1..5).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        for (dump, order) in [(SMALL, first), (REQUEUED, second)] {
            let lines: Vec<&str> = dump.lines().collect();
            let shuffled: Vec<&str> = order.iter().map(|at| lines[*at]).collect();
            let text = format!("{}\n{}\n", lines[0], shuffled.join("\n"));
            let (seen, expected) = (made(&[&text], Options::default()), made(&[dump], Options::default()));
            prop_assert_eq!((&seen.whole, &seen.starved), (&expected.whole, &expected.starved));
        }
    }

    #[test]
    fn no_line_makes_a_reader_panic(lines in proptest::collection::vec("[0-9A-Za-z|:.,=/\\-\\[\\]_+%é ]{0,60}", 0..8)) {
        let text = format!("JobID|State|Start|Elapsed|NodeList|AllocTRES|ReqMem|Timelimit\n{}", lines.join("\n"));
        let _ = made(&[&text], Options::default());
    }
}
