//! Files that are broken, cut, empty or no traces: an answer as far as the data goes, and never a panic.

use crate::testbed::{kernel, recorded, report_on, report_with, trace};
use proptest::prelude::*;
use windfall_insight::{Options, ProfileError};

fn noted(bytes: &[u8], words: &str) {
    let report = report_on(bytes).expect("it is there");
    let notes: Vec<&String> = report.notes.iter().chain(report.ranks.iter().flat_map(|rank| &rank.notes)).collect();
    assert!(notes.iter().any(|note| note.contains(words)), "{words:?} is not among {notes:?}");
}

#[test]
fn a_truncated_file_gives_what_it_has() {
    let whole = std::fs::read(recorded("resnet50_sync_bound")).expect("it is there");
    let half = &whole[..whole.len() / 2];
    noted(half, "the gzip file ends early");
    assert!(report_on(half).expect("it is there").ranks[0].launches.host_us > 0.0);
    let text = trace(&[kernel("gemm", 1, 0, 10, 100), kernel("gemm", 2, 0, 200, 100)].concat());
    noted(&text[..text.len() - 30], "the JSON text ends early");
    assert_eq!(report_on(&text[..text.len() - 30]).expect("it is there").ranks[0].compute_us, 100.0);
}

#[test]
fn corrupt_bytes_in_the_middle_cost_only_the_rest() {
    let mut bytes = std::fs::read(recorded("resnet50_fp32")).expect("it is there");
    let middle = bytes.len() / 2;
    bytes[middle..middle + 200].fill(0x55);
    let report = report_on(&bytes).expect("it is there");
    assert!(!report.ranks[0].notes.is_empty(), "{report:?}");
}

#[test]
fn odd_events_are_counted_and_skipped() {
    let good = kernel("gemm", 1, 0, 10, 100);
    let with = |event: &str| trace(&[good.to_vec(), vec![event.to_owned()]].concat());
    let span = |fields: &str| format!(r#"{{"ph":"X","cat":"kernel","name":"k"{fields},"args":{{"stream":7}}}}"#);
    noted(&with(&span(r#","ts":5,"dur":-3"#)), "1 spans with a negative duration");
    noted(&with(&span(r#","ts":5"#)), "1 spans without a start or a duration");
    noted(&with(r#"{"ph":"X" "cat"}"#), "1 broken pieces of JSON");
    noted(&with(&span(r#","ts":50,"dur":3"#)), "1 spans on the accelerator have no launch");
    let report = report_on(&with(
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"a\x01\nb\",\"ts\":200,\"dur\":50,\"args\":{\"stream\":7}}",
    ))
    .expect("it is there");
    assert_eq!(report.ranks[0].compute_us, 150.0);
    assert!(report.ranks[0].kernels.iter().any(|kernel| kernel.name == "ab"));
}

#[test]
fn traces_without_work_or_steps_say_so() {
    noted(br#"{"traceEvents": []}"#, "no spans of host or accelerator");
    assert_eq!(report_on(br#"{"traceEvents": []}"#).expect("it is there").verdict, "no accelerator work");
    let host = r#"{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}"#.to_owned();
    noted(&trace(&[host]), "none of an accelerator");
    noted(&trace(&kernel("gemm", 1, 0, 10, 100)), "marks no steps");
}

#[test]
fn what_is_no_trace_is_refused() {
    for bytes in [&b"GIF89a"[..], b"", b"{}", b"[package]\nname = \"x\"", br#"{"a": 1}"#, &[0x1f, 0x8b, 8, 0]] {
        assert!(matches!(report_on(bytes), Err(ProfileError::NotATrace { .. })), "{bytes:?}");
    }
    let missing = report_with(&["/nonexistent/trace.json".into()], &Options::default());
    assert!(matches!(missing, Err(ProfileError::Read { .. })));
}

#[test]
fn one_bad_file_among_good_ones_is_left_out_and_named() {
    let paths = [recorded("resnet50_sync_bound"), "/nonexistent/trace.json".into()];
    let report = report_with(&paths, &Options::default()).expect("it is there");
    assert_eq!(report.ranks.len(), 1);
    assert!(report.notes.iter().any(|note| note.contains("/nonexistent/trace.json")));
}

/// Times and lengths at the edges of what numbers hold.
fn extreme() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "0",
        "-1",
        "9223372036854775",
        "-9223372036854775",
        "9223372036854775807",
        "1e300",
        "-1e300",
        "0.0001",
        "\"7\"",
        "null",
        "1e-9",
        "18446744073709551615",
        "[]",
        "{}",
    ])
    .prop_map(str::to_owned)
}

fn event() -> impl Strategy<Value = String> {
    let category = prop::sample::select(vec![
        "kernel",
        "gpu_memcpy",
        "cuda_runtime",
        "cpu_op",
        "user_annotation",
        "gpu_user_annotation",
        "cuda_sync",
        "odd",
        "",
    ]);
    let name = prop::sample::select(vec![
        "ProfilerStep#1",
        "ProfilerStep#99999999999999999999",
        "gemm",
        "nccl Kernel",
        "aten::mm",
        "dataloader",
        "cudaDeviceSynchronize",
        "<<>>((",
    ]);
    (category, name, extreme(), extreme(), extreme(), extreme()).prop_map(|(category, name, start, duration, stream, correlation)| {
        format!(
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{stream},"tid":{correlation},"ts":{start},"dur":{duration},"args":{{"stream":{stream},"correlation":{correlation},"External id":{correlation},"Input Dims":[[{start},2],[2,{duration}]],"est. achieved occupancy %":{duration}}}}}"#
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = report_on(&bytes);
    }

    #[test]
    fn no_events_make_it_panic(events in prop::collection::vec(event(), 0..40)) {
        let report = report_on(&trace(&events)).expect("it is there");
        prop_assert!(!report.ranks.is_empty());
        prop_assert!(serde_json::to_string(&report).is_ok());
        let _ = windfall_insight::text::screen(&report, 80);
    }

    #[test]
    fn no_damage_to_a_trace_makes_it_panic(at in 0usize..4_000, with in any::<u8>(), cut in 0usize..4_000) {
        let mut events = Vec::new();
        for number in 0..20 {
            events.extend(kernel("gemm", number, number * 10, number * 10 + 5, 8));
        }
        let mut bytes = trace(&events);
        let length = bytes.len();
        bytes[at % length] = with;
        bytes.truncate(length - cut % length);
        let _ = report_on(&bytes);
    }
}
