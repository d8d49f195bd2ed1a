//! Ranks of one job beside each other.

use crate::testbed::{kernel, report_of, report_with, trace};
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
