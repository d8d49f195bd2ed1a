//! What recorded traces say.

use crate::testbed::{kernel, recorded, report_of, report_on, report_with, trace};
use windfall_insight::{Options, Rounding, diff, picture, profile, text};

#[test]
fn every_recorded_trace_gets_its_true_verdict() {
    for (name, verdict) in [
        ("resnet50_bf16_healthy", "compute-bound"),
        ("resnet50_fp32", "compute-bound in fp32"),
        ("resnet50_bs2_launch_bound", "launch-bound"),
        ("bert_bf16", "launch-bound"),
        ("resnet50_input_bound", "input-bound"),
        ("resnet50_sync_bound", "sync-bound"),
        ("transformer_bf16_shapes", "compute-bound"),
    ] {
        let report = report_of(name);
        assert_eq!(report.verdict, verdict, "{name}: {}", report.because);
        assert_eq!(report.accelerator.as_deref(), Some("H200-SXM-141GB"));
    }
}

/// Kernel time, idle, compute, memory, and idle of the first stream by cause, from HTA 0.5.0 with
/// HTA_DISABLE_NS_ROUNDING=1.
const HTA: &[(&str, [f64; 7])] = &[
    ("bert_bf16", [176_041.503, 116_587.326, 59_108.061, 346.116, 112_569.12, 4_018.21, 0.0]),
    ("resnet50_bf16_healthy", [220_659.471, 10_727.272, 209_540.199, 392.0, 3_836.15, 6_847.12, 0.0]),
    ("resnet50_bs2_launch_bound", [95_815.577, 83_894.488, 11_913.441, 7.648, 81_555.87, 2_338.62, 0.0]),
    ("resnet50_fp32", [582_439.798, 8_766.894, 573_586.088, 86.816, 0.0, 8_950.26, 8_950.28]),
    ("resnet50_input_bound", [424_018.896, 192_233.048, 176_059.536, 55_726.312, 187_916.78, 4_261.99, 0.0]),
    ("resnet50_sync_bound", [60_443.119, 39_931.625, 19_976.483, 535.011, 37_223.21, 2_700.73, 0.0]),
];

#[test]
fn figures_are_hta_s_to_the_microsecond_when_they_should_be() {
    for (name, expected) in HTA {
        let options = Options { like_hta: Some(Rounding::Exact), ..Options::default() };
        let report = report_with(&[recorded(name)], &options).expect("it is there");
        let rank = &report.ranks[0];
        let idle = &rank.streams[0].idle_by_cause_us;
        let ours = [
            rank.kernel_time_us,
            rank.idle_us,
            rank.compute_us,
            rank.memory_us,
            idle.host_wait,
            idle.kernel_wait,
            idle.other,
        ];
        for (ours, theirs) in ours.iter().zip(expected) {
            assert!((ours - theirs).abs() < 1.0, "{name}: {ours} is not {theirs}");
        }
        assert_eq!(rank.streams[0].stream, 7);
        assert_eq!(rank.overlap_percent, None);
    }
}

#[test]
fn parts_of_the_time_add_up_to_all_of_it() {
    for (name, _) in HTA {
        let rank = &report_of(name).ranks[0];
        let parts: f64 = text::parts(rank).iter().map(|(_, us)| us).sum();
        assert!((parts - rank.kernel_time_us).abs() < 0.01, "{name}: {parts} of {}", rank.kernel_time_us);
        assert!((rank.busy_us + rank.idle_us - rank.kernel_time_us).abs() < 0.01);
        assert_eq!(rank.steps, if *name == "resnet50_sync_bound" { 3 } else { 4 });
    }
}

/// Measured on the same machine: 145.4 ms a step in fp32, 60.5 in tf32, 55.2 in bf16. The share of the peaks that the
/// estimate uses was fitted to this case, so this keeps the estimate where it is; it does not prove it elsewhere.
#[test]
fn the_estimate_for_a_number_format_stays_at_the_case_it_was_fitted_to() {
    let report = report_of("resnet50_fp32");
    let fix = &report.fixes[0];
    assert!(fix.what.contains("bf16"), "{}", fix.what);
    assert!((fix.saves_percent - 58.4).abs() < 5.0, "estimated {} %, measured 58.4", fix.saves_percent);
    let step = report.step_us.expect("it is there");
    assert!((step - 145_442.0).abs() < 1_500.0, "a step takes {step} µs");
}

#[test]
fn bf16_is_said_to_gain_nothing_where_the_host_is_the_limit() {
    let report = report_of("bert_bf16");
    assert!(report.notes.iter().any(|note| note.contains("gains nothing here")), "{:?}", report.notes);
    assert!(report.fixes.iter().all(|fix| !fix.what.contains("tf32")), "{:?}", report.fixes);
    assert!(report.fixes[0].what.contains("CUDA graphs"));
}

#[test]
fn fixes_have_prices_where_a_price_is_known() {
    let options = Options { usd_an_hour: Some(3.6), ..Options::default() };
    let report = report_with(&[recorded("resnet50_input_bound")], &options).expect("it is there");
    let usd = report.usd_per_1000_steps.expect("it is there");
    assert!(
        (usd - report.step_us.expect("it is there") * 1e-6).abs() < 1e-9,
        "3.6 dollars an hour are a tenth of a cent a second"
    );
    let fix = &report.fixes[0];
    assert!((fix.usd_per_1000_steps.expect("it is there") - usd * fix.saves_percent / 100.0).abs() < 1e-9);
    assert_eq!(report_of("resnet50_input_bound").fixes[0].usd_per_1000_steps, None);
}

#[test]
fn operators_with_shapes_stand_on_the_roofline() {
    let report = report_of("transformer_bf16_shapes");
    let roofline = &report.ranks[0].roofline;
    let largest = &roofline.points[0];
    assert_eq!((largest.operator.as_str(), largest.shapes.as_str()), ("aten::mm", "[[8192, 8192], [8192, 2048]]"));
    assert_eq!(format!("{:.2} {:.0} {}", largest.gflop, largest.flop_per_byte, largest.calls), "274.88 1365 24");
    assert!((700.0..989.0).contains(&largest.tflops), "{}", largest.tflops);
    // 20.3 ms a step without the profiler: 6 FLOP for each parameter and token, and attention, are half of the peak.
    assert!((47.0..54.0).contains(&roofline.mfu_percent.expect("it is there")), "{:?}", roofline.mfu_percent);
    let svg = picture::roof(roofline).expect("it is there");
    assert!(svg.contains("bf16 989 TFLOP/s") && svg.contains("4800 GB/s"));
    assert_eq!(picture::roof(&report_of("bert_bf16").ranks[0].roofline), None);
}

#[test]
fn ranks_are_read_together_and_numbered() {
    let paths = [recorded("resnet50_sync_bound"), recorded("resnet50_fp32"), recorded("resnet50_sync_bound")];
    let report = report_with(&paths, &Options::default()).expect("it is there");
    assert_eq!(report.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2]);
    let alone = report_of("resnet50_sync_bound");
    assert_eq!(report.ranks[2].busy_us, alone.ranks[0].busy_us);
    assert_eq!(report.accelerators, 3);
    assert_eq!(report.stragglers.iter().map(|straggler| straggler.rank).collect::<Vec<_>>(), [1]);
}

#[test]
fn rows_that_do_not_fit_into_memory_change_nothing() {
    use windfall_insight::read::source::Source;
    use windfall_insight::trace::collect::Budget;
    let figures = |bytes| {
        let source = Source::open(&recorded("resnet50_sync_bound"), Default::default()).expect("it is there");
        let (trace, ..) = profile::load(source, Budget { bytes }).expect("it is there");
        let figures = windfall_insight::analysis::figures(&trace, windfall_insight::trace::Whose::All, Rounding::Exact);
        (figures.unions.ns, figures.idle, figures.hta, figures.waits, figures.dispatch_ns)
    };
    assert_eq!(figures(20_000), figures(64 << 20));
}

#[test]
fn a_comparison_says_what_changed() {
    let changes = diff::diff(report_of("resnet50_fp32"), report_of("resnet50_bf16_healthy"));
    // Measured without the profiler: 145.4 and 55.2 ms.
    assert!((changes.saves_percent.expect("it is there") - 62.0).abs() < 2.0, "{:?}", changes.saves_percent);
    let computing = changes.parts.iter().find(|change| change.what == "computing").expect("it is there");
    assert!(computing.before_us > 2.0 * computing.after_us);
    assert!(diff::screen(&changes).contains("shorter"));
}

#[test]
fn json_has_the_fields_that_scripts_rely_on() {
    let report = serde_json::to_value(report_of("resnet50_sync_bound")).expect("it is there");
    assert_eq!(report["verdict"], "sync-bound");
    for field in ["what", "saves_percent", "usd_per_1000_steps"] {
        assert!(report["fixes"][0].get(field).is_some(), "{field}");
    }
    let rank = &report["ranks"][0];
    for field in [
        "rank",
        "kernel_time_us",
        "busy_us",
        "idle_us",
        "compute_us",
        "communication_us",
        "memory_us",
        "overlap_percent",
        "idle_by_cause_us",
        "steps",
        "notes",
    ] {
        assert!(rank.get(field).is_some(), "{field}");
    }
    for field in ["host_wait", "kernel_wait", "other"] {
        assert!(rank["idle_by_cause_us"][field].is_f64(), "{field}");
    }
}

#[test]
fn a_page_holds_everything_and_asks_nobody() {
    let catalog = windfall_catalog::Catalog::embedded();
    let options = Options { pictures: true, ..Options::default() };
    let paths = [recorded("transformer_bf16_shapes")];
    let profiled = windfall_insight::profile(&paths, &options, &catalog, &Default::default()).expect("it is there");
    let page = picture::page(&profiled.report, &profiled.timelines);
    assert!(page.contains("Critical path of step"));
    for outside in ["src=", "href=", "@import", "url(", "fetch("] {
        assert!(!page.contains(outside), "{outside}");
    }
    for part in ["compute-bound", "MFU", "<svg", "canvas class=\"window\"", "nvjet_sm90"] {
        assert!(page.contains(part), "{part}");
    }
    assert!(profiled.timelines[0].spans.len() > 100);
}

#[test]
fn communication_that_computation_hides_is_told_from_exposed_communication() {
    let mut events = Vec::new();
    events.extend(kernel("gemm", 1, 0, 10, 100));
    events.extend(kernel("ncclDevKernel_AllReduce_Sum", 2, 1, 60, 100).map(|event| event.replace(":7", ":8")));
    let rank = &report_on(&trace(&events)).expect("it is there").ranks[0];
    assert_eq!((rank.compute_us, rank.communication_us, rank.exposed_communication_us), (100.0, 100.0, 50.0));
    assert_eq!(rank.overlap_percent, Some(50.0));
}
