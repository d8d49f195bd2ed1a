//! Traces that `jax.profiler` wrote (jax 0.11 on one NVIDIA H200): six programs whose limit is known from how they were made,
//! and files put together from a few events for what one machine cannot show.

use crate::testbed::{recorded, report_of, report_on, report_with, trace};
use proptest::prelude::*;
use windfall_insight::{Options, text};

#[test]
fn every_recorded_program_gets_its_true_verdict() {
    for (name, verdict) in [
        ("jax_bf16", "compute-bound"),
        ("jax_bf16_python_tracer", "compute-bound"),
        ("jax_fp32", "compute-bound in fp32"),
        ("jax_launch", "launch-bound"),
        ("jax_sync", "sync-bound"),
        ("jax_input", "input-bound"),
    ] {
        let report = report_of(name);
        assert_eq!(report.verdict, verdict, "{name}: {}", report.because);
    }
}

/// The program printed its own time of a step: 7.69, 93.0, 66.1, 53.0 and 291.6 ms.
#[test]
fn steps_take_what_the_program_measured() {
    for (name, step_ms) in
        [("jax_bf16", 7.69), ("jax_fp32", 92.98), ("jax_launch", 66.1), ("jax_sync", 53.0), ("jax_input", 291.6)]
    {
        let step = report_of(name).step_us.expect("it is there") / 1e3;
        assert!((step / step_ms - 1.0).abs() < 0.06, "{name}: {step} ms, measured {step_ms}");
    }
}

#[test]
fn parts_add_up_and_every_span_has_its_launch() {
    for name in ["jax_bf16", "jax_fp32", "jax_launch", "jax_sync", "jax_input"] {
        let rank = &report_of(name).ranks[0];
        let parts: f64 = text::parts(rank).iter().map(|(_, us)| us).sum();
        assert!((parts - rank.kernel_time_us).abs() < 0.01, "{name}: {parts} of {}", rank.kernel_time_us);
        assert!(rank.notes.iter().all(|note| !note.contains("no launch")), "{name}: {:?}", rank.notes);
    }
    // The host reads one number 60 times a step; two steps are in the file.
    assert_eq!(report_of("jax_sync").ranks[0].launches.waits, 120);
}

#[test]
fn advice_is_in_the_words_of_jax() {
    let report = report_of("jax_launch");
    assert!(report.fixes[0].what.contains("jax.jit"), "{:?}", report.fixes);
    assert!(report.notes.iter().any(|note| note.contains("do not name the accelerator")), "{:?}", report.notes);
    let options = Options { accelerator: Some("H200".to_owned()), ..Options::default() };
    let report = report_with(&[recorded("jax_fp32")], &options).expect("it is there");
    assert!(report.fixes[0].what.contains("jnp.bfloat16"), "{:?}", report.fixes);
    // The same program took 7.7 ms in bf16 and 93.0 in fp32: 92 % less. Two thirds of the peaks' ratio promise less.
    assert!((70.0..92.0).contains(&report.fixes[0].saves_percent), "{:?}", report.fixes);
    assert!(report.notes.iter().all(|note| !note.contains("accelerator")), "{:?}", report.notes);
}

fn named(what: &str, process: u32, thread: u32, label: &str) -> String {
    format!(r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{{"name":"{label}"}}}}"#)
}

fn span(process: u32, thread: u32, name: &str, start: u32, duration: u32, args: &str) -> String {
    format!(
        r#"{{"ph":"X","pid":{process},"tid":{thread},"ts":{start},"dur":{duration},"name":"{name}","args":{{{args}}}}}"#
    )
}

#[test]
fn accelerators_of_one_file_are_ranks_and_the_slow_one_is_named() {
    let mut events = vec![named("process_name", 99, 0, "/host:CPU"), named("thread_name", 99, 1, "python3")];
    for device in 1..=4 {
        events.push(named("process_name", device, 0, &format!("/device:GPU:{}", device - 1)));
        events.push(named("thread_name", device, 14, "Stream #14(Compute)"));
        events.push(named("thread_name", device, 20, "XLA Ops"));
    }
    for device in 1..=4 {
        let long = if device == 3 { 900 } else { 600 };
        events.push(span(99, 1, "gemm", 10 * device, 5, &format!(r#""correlation_id":"{device}""#)));
        let correlation = format!(r#""correlation_id":"{device}""#);
        events.push(span(device, 14, "gemm_fusion", 100, long, &correlation));
        events.push(span(device, 14, "ncclDevKernel_AllReduce", 100 + long, 1000 - long, ""));
        events.push(span(device, 20, "dot.1", 100, long, ""));
    }
    let report = report_on(&trace(&events)).expect("it is there");
    let computed: Vec<f64> = report.ranks.iter().map(|rank| rank.compute_us).collect();
    assert_eq!(computed, [600.0, 600.0, 900.0, 600.0]);
    assert_eq!(report.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(report.ranks[2].communication_us, 100.0);
    assert!(report.ranks[2].file.ends_with("(accelerator 2)"), "{}", report.ranks[2].file);
    assert_eq!(report.accelerators, 4);
    let slow: Vec<u64> = report.stragglers.iter().map(|straggler| straggler.rank).collect();
    assert_eq!(slow, [2]);
}

/// By XLA's names of a TPU's lines; no such machine was at hand, so this shows what is read, not that it is what TPUs write.
#[test]
fn a_tpu_s_operators_are_its_work_and_its_steps_are_steps() {
    let mut events = vec![
        named("process_name", 3, 0, "/device:TPU:0"),
        named("thread_name", 3, 1, "Steps"),
        named("thread_name", 3, 2, "XLA Modules"),
        named("thread_name", 3, 3, "XLA Ops"),
        named("process_name", 9, 0, "/host:CPU"),
        span(9, 1, "train", 0, 10, r#""step_num":"0""#),
    ];
    for step in 0..3 {
        let at = step * 1_000;
        events.push(span(3, 1, &step.to_string(), at, 1_000, ""));
        events.push(span(3, 2, "jit_train", at, 1_000, ""));
        events.push(span(3, 3, "while.1", at, 900, r#""hlo_category":"while""#));
        events.push(span(3, 3, "fusion.2", at, 700, r#""hlo_category":"convolution fusion""#));
        events.push(span(3, 3, "all-reduce.4", at + 700, 200, r#""hlo_category":"all-reduce""#));
    }
    let report = report_on(&trace(&events)).expect("it is there");
    let rank = &report.ranks[0];
    assert_eq!((rank.steps, rank.step_us), (3, Some(1_000.0)));
    assert_eq!((rank.compute_us, rank.communication_us, rank.idle_us), (2_100.0, 600.0, 200.0));
    assert_eq!(rank.step_times[1].kernels_us, 700.0);
    assert_eq!(rank.tensor_core_percent, Some(100.0));
    assert_eq!(report.verdict, "communication-bound");
}

#[test]
fn a_program_without_an_accelerator_is_said_to_have_none() {
    let events = [
        named("process_name", 9, 0, "/host:CPU"),
        named("thread_name", 9, 1, "python3"),
        span(9, 1, "train", 0, 100, r#""step_num":"0""#),
        span(9, 1, "PjitFunction(train)", 1, 90, ""),
        "{}".to_owned(),
    ];
    let report = report_on(&trace(&events)).expect("it is there");
    assert_eq!(report.verdict, "no accelerator work");
    assert!(report.ranks[0].notes.iter().any(|note| note.contains("1 spans of the host")), "{report:?}");
}

#[test]
fn without_launches_nobody_says_what_an_accelerator_waits_for() {
    let events = [
        named("process_name", 3, 0, "/device:TPU:0"),
        named("thread_name", 3, 3, "XLA Ops"),
        span(3, 3, "fusion.1", 0, 100, ""),
        span(3, 3, "fusion.1", 900, 100, ""),
    ];
    let report = report_on(&trace(&events)).expect("it is there");
    assert_eq!(report.verdict, "idle", "{}", report.because);
    assert!(report.because.contains("idle 80 %") && report.because.contains("no launches"), "{}", report.because);
    assert_eq!(report.fixes, []);
}

fn odd() -> impl Strategy<Value = String> {
    let labels = prop::sample::select(vec![
        "/device:GPU:0",
        "/device:TPU:1",
        "/host:CPU",
        "Stream #",
        "Stream #9(",
        "Stream #99999999999999999999",
        "XLA Ops",
        "Async XLA Ops",
        "Steps",
        "",
    ]);
    let names = prop::sample::select(vec![
        "process_name",
        "thread_name",
        "MemcpyH2D",
        "while.",
        "1",
        "-1",
        "PjitFunction(f)",
        "np.asarray(jax.Array)",
        "$a.py f",
    ]);
    let numbers = || prop::sample::select(vec!["0", "1", "-1", "\"2\"", "1e9", "null", "9223372036854775807", "{}"]);
    (labels, names, prop::bool::ANY, (numbers(), numbers(), numbers(), numbers(), numbers())).prop_map(
        |(label, name, spans, (process, thread, start, duration, number))| {
            let phase = if spans { "X" } else { "M" };
            format!(
                r#"{{"ph":"{phase}","pid":{process},"tid":{thread},"ts":{start},"dur":{duration},"name":"{name}","args":{{"name":"{label}","step_num":{number},"correlation_id":{thread},"hlo_category":"{label}","memcpy_details":"kind_src:{label} kind_dst"}}}}"#
            )
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_names_and_numbers_make_it_panic(events in prop::collection::vec(odd(), 0..40)) {
        let report = report_on(&trace(&events)).expect("it is there");
        prop_assert!(serde_json::to_string(&report).is_ok());
        let _ = text::screen(&report, 80);
    }
}
