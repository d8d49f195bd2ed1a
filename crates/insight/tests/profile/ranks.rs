//! Ranks of one job beside each other: small ones by hand, and `ddp_*`, real ones. Those are two ranks of PyTorch's
//! DistributedDataParallel that took the two halves of one H200's time for two machines (`NCCL_HOSTID`) and so talked over
//! sockets: alike, with rank 1 asleep for 40 ms in every step, and with 12 large products more on rank 1.

use crate::testbed::{kernel, recorded, report_of, report_with, trace};
use std::io::Write;
use windfall_insight::{Options, Report, text};

/// A job of three ranks and four steps: how long each computes in each step, and a collective that ends for all at once.
fn job(computes: [[u32; 4]; 3]) -> Report {
    let files: Vec<tempfile::NamedTempFile> = computes
        .iter()
        .enumerate()
        .map(|(rank, steps)| {
            let mut events = Vec::new();
            for (at, computes) in (0u32..).zip(steps) {
                let begin = at * 1_000;
                events.push(format!(
                    r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#{at}","pid":1,"tid":1,"ts":{begin},"dur":1000,"args":{{}}}}"#
                ));
                events.extend(kernel("gemm", 2 * at, begin + 1, begin + 10, *computes));
                events.extend(kernel(
                    "ncclDevKernel_AllReduce",
                    2 * at + 1,
                    begin + 5,
                    begin + 10 + computes,
                    900 - computes,
                ));
            }
            let events = String::from_utf8(trace(&events)).expect("it is text");
            let text = events.replacen('{', &format!(r#"{{"distributedInfo": {{"rank": {rank}, "world_size": 3}}, "#), 1);
            let mut file = tempfile::NamedTempFile::new().expect("it is there");
            file.write_all(text.as_bytes()).expect("it is there");
            file
        })
        .collect();
    let paths: Vec<_> = files.iter().map(|file| file.path().to_owned()).collect();
    report_with(&paths, &Options::default()).expect("it is there")
}

#[test]
fn a_rank_that_is_always_slow_is_named() {
    let report = job([[400; 4], [400; 4], [800; 4]]);
    let between = report.between_ranks.clone().expect("it is there");
    assert_eq!((between.last_rank, between.slowest_rank), (Some(2), Some(2)));
    assert_eq!((between.steps, between.slowest_steps), (4, 4));
    assert_eq!(between.spread_percent, Some(100.0));
    // Two ranks wait 400 µs more than the last one in each of four steps, of 3,900 µs for each of three.
    let waiting = between.waiting_percent.expect("it is there");
    assert!((waiting - 100.0 * 3_200.0 / 11_700.0).abs() < 0.01, "{waiting}");
    // Each of the two others waits 1,600 of 3,900 µs.
    let saves = between.saves_percent.expect("it is there");
    assert!((saves - 100.0 * 1_600.0 / 3_900.0).abs() < 0.01, "{saves}");
    let screen = text::screen(&report, 100);
    assert!(screen.contains("rank 2 comes last") && screen.contains("in 4 of 4 steps it is rank 2"), "{screen}");
}

#[test]
fn ranks_that_are_slow_by_turns_are_told_from_one_that_always_is() {
    let report = job([[700, 400, 400, 700], [400, 700, 400, 400], [400, 400, 700, 400]]);
    let between = report.between_ranks.expect("it is there");
    assert_eq!((between.slowest_rank, between.slowest_steps, between.steps), (Some(0), 2, 4));
    assert_eq!(between.spread_percent, Some(75.0));
}

#[test]
fn ranks_that_are_alike_are_not_talked_about() {
    let report = job([[500; 4]; 3]);
    assert_eq!(report.between_ranks.as_ref().and_then(|between| between.waiting_percent), Some(0.0));
    assert!(!text::screen(&report, 100).contains("comes last"));
    assert_eq!(report_of("resnet50_fp32").between_ranks, None);
}

fn recorded_job(name: &str) -> Report {
    report_with(&[0, 1].map(|rank| recorded(&format!("ddp_{name}_{rank}"))), &Options::default()).expect("it is there")
}

#[test]
fn the_rank_that_others_wait_for_is_found_in_recorded_jobs() {
    let of = |name: &str| recorded_job(name).between_ranks.expect("it is there");
    let even = of("even");
    assert!(even.waiting_percent.expect("it is there") < 2.0, "{even:?}");
    // Asleep for 40 of 74 ms: rank 0 waits that long in its collectives, a quarter to a third of both ranks' time.
    let sleep = of("sleep");
    assert_eq!(sleep.last_rank, Some(1));
    assert!((25.0..35.0).contains(&sleep.waiting_percent.expect("it is there")), "{sleep:?}");
    let work = of("work");
    assert_eq!((work.last_rank, work.slowest_rank, work.slowest_steps), (Some(1), Some(1), 4));
    assert!(recorded_job("even").stragglers.is_empty(), "{:?}", recorded_job("even").stragglers);
    assert_eq!(recorded_job("work").stragglers[0].rank, 1);
}

/// The path of the rank that all wait for is the job's: the other rank's ends in a collective that waits.
#[test]
fn the_job_s_critical_path_is_that_of_the_rank_that_others_wait_for() {
    let report = recorded_job("sleep");
    let part = |rank: usize, what: &str| {
        let path = report.ranks[rank].critical_path.as_ref().expect("it is there");
        path.parts.iter().find(|part| part.what == what).map_or(0.0, |part| part.us)
    };
    assert!((39_000.0..44_000.0).contains(&part(1, "host loads data or is elsewhere")), "{:?}", report.ranks[1]);
    assert!(part(0, "communication") > 60_000.0);
    let screen = text::screen(&report, 100);
    assert!(screen.contains("go (rank 1)") && screen.contains("rank 1 comes last"), "{screen}");
}

/// A step took 31.7 ms alike, 73.6 with the sleeper and 94.1 with the work, as the programs measured: 57 and 66 % less.
#[test]
fn what_an_even_job_would_save_is_what_was_measured() {
    for (name, verdict, measured) in [("sleep", "communication-bound", 57.0), ("work", "straggler-bound", 66.0)] {
        let report = recorded_job(name);
        assert_eq!(report.verdict, verdict, "{}", report.because);
        assert!(report.fixes[0].what.contains("let rank 1 keep up"), "{:?}", report.fixes);
        let estimated = report.fixes[0].saves_percent;
        assert!((estimated - measured).abs() < 4.0, "{name}: estimated {estimated} %, measured {measured}");
    }
    let even = recorded_job("even");
    assert_eq!(even.verdict, "communication-bound");
    assert!(even.fixes.iter().all(|fix| !fix.what.contains("keep up")), "{:?}", even.fixes);
}
