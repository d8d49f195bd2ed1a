//! The critical path of a step: on recorded traces, beside HTA's, and on small ones whose path is plain to see.

use crate::testbed::{report_of, report_on, trace};
use proptest::prelude::*;
use windfall_insight::report::PathReport;

fn of(name: &str) -> PathReport {
    report_of(name).ranks[0].critical_path.clone().expect("it is there")
}

fn part(path: &PathReport, what: &str) -> f64 {
    path.parts.iter().find(|part| part.what == what).map_or(0.0, |part| part.us)
}

/// HTA 0.5.0, `critical_path_analysis(annotation="ProfilerStep", instance_id=2)`, with HTA_DISABLE_NS_ROUNDING=1: length, kernels
/// and pauses between kernels. Where the host is on the path HTA counts its operators and not what lies between them, so its
/// paths are shorter than the steps are (13.7 of 32 ms with a batch of 2): only paths of the accelerator can be compared.
#[test]
fn paths_along_the_accelerator_are_those_of_hta() {
    for (name, length, kernels, between) in
        [("resnet50_bf16_healthy", 55_690.9, 53_957.6, 1_733.3), ("resnet50_fp32", 145_715.6, 141_142.2, 4_573.4)]
    {
        let path = of(name);
        assert!((path.length_us / length - 1.0).abs() < 0.005, "{name}: {} is not {length}", path.length_us);
        assert!((part(&path, "computing") / kernels - 1.0).abs() < 0.015, "{name}: {path:?} is not {kernels}");
        assert!(part(&path, "between spans of the accelerator") <= between * 1.05, "{name}: {path:?}");
        assert!(path.says.starts_with("the accelerator decides"), "{}", path.says);
    }
    // HTA: 58,760 µs of kernels, 1,430 between them.
    let path = of("resnet50_input_bound");
    assert!((part(&path, "computing") / 58_760.0 - 1.0).abs() < 0.01, "{path:?}");
    assert!((part(&path, "between spans of the accelerator") / 1_430.0 - 1.0).abs() < 0.05, "{path:?}");
    assert!(part(&path, "host loads data or is elsewhere") > 80_000.0, "{path:?}");
}

#[test]
fn a_path_that_the_host_decides_is_as_long_as_the_step() {
    for name in ["resnet50_bs2_launch_bound", "bert_bf16", "resnet50_sync_bound", "jax_launch", "jax_sync"] {
        let (report, path) = (report_of(name), of(name));
        let step = &report.ranks[0].step_times.iter().find(|step| step.number == path.step).expect("it is there");
        assert!((path.length_us / step.time_us - 1.0).abs() < 0.05, "{name}: {} of {}", path.length_us, step.time_us);
        assert!(path.says.starts_with("the host decides"), "{name}: {}", path.says);
    }
    // The path goes through most of the 162 calls that wait, each a few microseconds after the work.
    assert!(part(&of("resnet50_sync_bound"), "return from waiting") > 400.0);
}

fn step(start: u32, duration: u32) -> String {
    format!(
        r#"{{"ph":"X","cat":"user_annotation","name":"ProfilerStep#7","pid":1,"tid":1,"ts":{start},"dur":{duration},"args":{{}}}}"#
    )
}

fn call(name: &str, correlation: u32, start: u32, duration: u32) -> String {
    format!(
        r#"{{"ph":"X","cat":"cuda_runtime","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{duration},"args":{{"correlation":{correlation}}}}}"#
    )
}

fn span(name: &str, correlation: u32, stream: u32, start: u32, duration: u32) -> String {
    format!(
        r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":{stream},"ts":{start},"dur":{duration},"args":{{"stream":{stream},"correlation":{correlation}}}}}"#
    )
}

fn path_of(events: &[String]) -> PathReport {
    report_on(&trace(events)).expect("it is there").ranks[0].critical_path.clone().expect("it is there")
}

#[test]
fn a_path_goes_through_other_streams_and_waiting_calls() {
    let path = path_of(&[
        step(0, 3_000),
        call("cudaLaunchKernel", 1, 100, 10),
        span("first", 1, 7, 120, 400),
        call("cudaLaunchKernel", 2, 110, 10),
        // It was launched long before; stream 7 let it go by an event.
        span("ncclDevKernel_AllReduce", 2, 20, 522, 600),
        call("cudaLaunchKernel", 3, 130, 10),
        span("beside", 3, 7, 522, 300),
        call("cudaStreamSynchronize", 4, 150, 980),
        call("cudaLaunchKernel", 5, 1_150, 10),
        span("last", 5, 7, 1_170, 500),
    ]);
    let parts: Vec<(&str, f64)> = path.parts.iter().map(|part| (part.what.as_str(), part.us)).collect();
    assert_eq!(
        parts,
        [
            ("computing", 900.0),
            ("communication", 600.0),
            // 20 µs from the return of the wait to the end of the launch, and 110 before the first one's.
            ("host launches", 140.0),
            ("from launch to start", 20.0),
            ("between spans of the accelerator", 2.0),
            ("return from waiting", 8.0),
        ]
    );
    assert_eq!((path.step, path.length_us, path.work_us), (7, 1_670.0, 1_800.0));
    // What ran beside the collective is not on the path.
    assert!(path.kernels.iter().all(|kernel| kernel.what != "beside"), "{path:?}");
}

#[test]
fn a_step_that_waited_for_the_step_before_begins_when_that_was_done() {
    let path = path_of(&[
        call("cudaLaunchKernel", 1, 0, 10),
        span("before", 1, 7, 20, 5_000),
        step(100, 200),
        call("cudaLaunchKernel", 2, 110, 10),
        span("own", 2, 7, 5_022, 1_000),
    ]);
    assert_eq!((path.length_us, part(&path, "computing")), (1_000.0, 1_000.0));
}

#[test]
fn a_step_whose_host_waited_for_the_step_before_begins_when_that_was_done() {
    let path = path_of(&[
        call("cudaLaunchKernel", 1, 0, 10),
        span("before", 1, 7, 20, 480),
        step(50, 2_000),
        call("cudaDeviceSynchronize", 2, 60, 450),
        call("cudaLaunchKernel", 3, 600, 10),
        span("own", 3, 7, 620, 300),
    ]);
    let parts: Vec<(&str, f64)> = path.parts.iter().map(|part| (part.what.as_str(), part.us)).collect();
    let wanted =
        [("computing", 300.0), ("host launches", 100.0), ("from launch to start", 10.0), ("return from waiting", 10.0)];
    assert_eq!((parts.as_slice(), path.length_us), (&wanted[..], 420.0));
}

#[test]
fn without_steps_or_launches_there_is_no_path() {
    let events = [span("alone", 1, 7, 10, 10), step(0, 50)];
    assert_eq!(report_on(&trace(&events)).expect("it is there").ranks[0].critical_path, None);
    let events = [call("cudaLaunchKernel", 1, 0, 5), span("alone", 1, 7, 10, 10)];
    assert_eq!(report_on(&trace(&events)).expect("it is there").ranks[0].critical_path, None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Whatever the order of things, the way back ends, and its parts are all of its length.
    #[test]
    fn parts_of_any_path_add_up(
        works in prop::collection::vec((0u32..3_000, 0u32..400, 0u32..3_000, 0u32..900, 0u32..3), 1..40),
        waits in prop::collection::vec((0u32..3_000, 0u32..2_000), 0..8),
    ) {
        let mut events = vec![step(0, 3_000)];
        for (at, (launched, call_us, start, duration, stream)) in works.into_iter().enumerate() {
            events.push(call("cudaLaunchKernel", at as u32, launched, call_us));
            events.push(span("gemm", at as u32, stream, start, duration));
        }
        events.extend(waits.into_iter().map(|(start, duration)| call("cudaDeviceSynchronize", 9_999, start, duration)));
        let path = path_of(&events);
        let parts: f64 = path.parts.iter().map(|part| part.us).sum();
        prop_assert!((parts - path.length_us).abs() < 0.01, "{} of {}", parts, path.length_us);
        prop_assert!(path.parts.iter().all(|part| part.us > 0.0));
    }
}
