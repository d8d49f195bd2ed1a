//! What GPUs did, from logs. Those in `tests/gpu` are real: one H200 while models of known kinds ran on it, logged five times a
//! second (`query.csv`) and once a second (`dmon.txt`). The figures that they are held against were worked out with awk.

use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use windfall_catalog::Catalog;
use windfall_insight::telemetry::{
    Class, Dcgm, Evidence, GpuError, GpuLine, GpuOptions, GpuReport, Sample, Watch, Which, report, screen,
};

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu").join(name)
}

fn read_with(path: &Path, options: &GpuOptions) -> Result<GpuReport, GpuError> {
    report(&[path.to_owned()], options, &Catalog::embedded(), &Default::default())
}

fn of_with(text: impl AsRef<[u8]>, options: &GpuOptions) -> Result<GpuReport, GpuError> {
    let mut file = tempfile::NamedTempFile::new().expect("it is there");
    file.write_all(text.as_ref()).expect("it is there");
    read_with(file.path(), options)
}

fn of(text: impl AsRef<[u8]>) -> Result<GpuReport, GpuError> {
    of_with(text, &GpuOptions::default())
}

fn one(report: &GpuReport) -> &GpuLine {
    assert_eq!(report.gpus.len(), 1);
    &report.gpus[0]
}

/// What it did at a moment, in seconds since the first reading.
fn at(gpu: &GpuLine, second: f64) -> Class {
    let phase = gpu.phases.iter().rev().find(|phase| phase.from_s <= second);
    phase.expect("it has begun").class
}

fn near(found: Option<f64>, wanted: f64, by: f64) {
    let found = found.expect("it is there");
    assert!((found - wanted).abs() <= by, "{found} is not {wanted}");
}

#[test]
fn a_real_log_gives_the_figures_that_awk_does() {
    let report = read_with(&recorded("query.csv"), &GpuOptions { usd_an_hour: Some(3.6), ..GpuOptions::default() });
    let report = report.expect("it is read");
    let gpu = one(&report);
    assert_eq!((gpu.readings, gpu.name.as_deref(), gpu.gpu.as_str()), (624, Some("NVIDIA H200"), "0"));
    // The last reading stands for as long as the others, 0.2 s more than awk counts.
    near(Some(gpu.seconds), 124.99, 0.02);
    near(gpu.busy_percent, 38.74, 0.1);
    near(gpu.power_watts, 288.97, 0.5);
    near(gpu.energy_joules, 36_060.4, 40.0);
    assert_eq!(gpu.peak_memory_held_bytes, Some(33_747 << 20));
    assert_eq!(gpu.memory_total_bytes, Some(143_771 << 20));
    assert_eq!(gpu.power_limit_watts, Some(700.0), "by its data sheet");
    assert_eq!(gpu.evidence, Evidence::Power);
    let share = |class: Class| gpu.classes.iter().find(|one| one.class == class).map_or(0.0, |one| one.percent);
    near(Some(share(Class::Idle)), 9.0, 2.0);
    assert!((20.0..36.0).contains(&share(Class::Held)), "{:?}", gpu.classes);
    let all: f64 = gpu.classes.iter().map(|class| class.seconds).sum();
    near(Some(all), gpu.seconds, 1e-6);
    near(report.wasted_usd, (share(Class::Idle) + share(Class::Held)) / 100.0 * gpu.seconds * 1e-3, 1e-9);
}

/// When what ran is known: the log begins at 00:07:57.9, and the run's own marks say what was started when.
#[test]
fn what_ran_is_found_where_it_ran() {
    let report = read_with(&recorded("query.csv"), &GpuOptions::default()).expect("it is read");
    let gpu = one(&report);
    assert_eq!(at(gpu, 5.0), Class::Idle, "before anything was started");
    assert_eq!(at(gpu, 16.0), Class::Busy, "ResNet-50 in fp32");
    assert_eq!(at(gpu, 31.0), Class::Held, "a program that holds 1.5 GB and prepares the next model");
    assert_eq!(at(gpu, 40.0), Class::Busy, "GPT-2 in fp32");
    assert_eq!(at(gpu, 62.5), Class::Held, "another model is prepared");
    let screen = screen(&report, 80);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    assert!(!screen.contains("utilisation of memory") && screen.contains("only says that some"), "{screen}");
    let narrow = windfall_insight::telemetry::screen(&report, 40);
    assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
}

#[test]
fn dmon_s_columns_say_the_same() {
    let report = read_with(&recorded("dmon.txt"), &GpuOptions::default()).expect("it is read");
    let gpu = one(&report);
    assert_eq!((gpu.readings, gpu.seconds), (119, 119.0));
    near(gpu.busy_percent, 39.15, 0.05);
    near(gpu.power_watts, 287.13, 0.05);
    // Without a model nobody knows what it may draw, so only that kernels ran is known.
    assert_eq!((gpu.evidence, gpu.power_limit_watts), (Evidence::Busy, None));
    let named = GpuOptions { accelerator: Some("H200".into()), ..GpuOptions::default() };
    assert_eq!(one(&read_with(&recorded("dmon.txt"), &named).expect("it is read")).evidence, Evidence::Power);
}

const SMI: &str = "timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]\n";

fn line(second: u32, index: u32, busy: u32, mib: u32) -> String {
    format!("2026/11/15 00:{:02}:{:02}.000, {index}, {busy} %, {mib} MiB, 300.00 W\n", second / 60, second % 60)
}

#[test]
fn gpus_are_told_apart_and_a_program_that_only_holds_memory_is_not_busy() {
    let lines: String = (0..60).map(|second| line(second, 0, 99, 70_000) + &line(second, 1, 0, 78_000)).collect();
    let report = of(format!("{SMI}{lines}")).expect("it is read");
    let classes: Vec<(&str, Class)> = report.gpus.iter().map(|gpu| (gpu.gpu.as_str(), gpu.class)).collect();
    assert_eq!(classes, [("0", Class::Busy), ("1", Class::Held)]);
}

#[test]
fn gaps_of_seconds_are_data_and_even_gaps_are_launches() {
    let stalls: String = (0..120).map(|second| line(second, 0, if second % 4 < 2 { 95 } else { 0 }, 20_000)).collect();
    assert_eq!(one(&of(format!("{SMI}{stalls}")).expect("it is read")).class, Class::InputBound);
    let even: String = (0..120).map(|second| line(second, 0, 35 + second % 9, 20_000)).collect();
    assert_eq!(one(&of(format!("{SMI}{even}")).expect("it is read")).class, Class::HostBound);
    // Work that begins once is work.
    let begins: String = (0..60).map(|second| line(second, 0, if second < 27 { 0 } else { 98 }, 20_000)).collect();
    let begun = of(format!("{SMI}{begins}")).expect("it is read");
    let phases: Vec<Class> = one(&begun).phases.iter().map(|phase| phase.class).collect();
    assert_eq!(phases, [Class::Held, Class::Busy]);
    assert_eq!(one(&begun).phases[1].from_s, 27.0);
}

#[test]
fn headers_may_be_missing_and_units_left_out() {
    let plain = "52, 0 %, 0 MiB\n52, 100 %, 1632 MiB\n53, 98 %, 1632 MiB\n";
    assert!(matches!(of(plain), Err(GpuError::NoHeader { .. })));
    let columns = ["temperature.gpu", "utilization.gpu", "memory.used"].map(str::to_owned).to_vec();
    let options = GpuOptions { columns, every_s: 5.0, ..GpuOptions::default() };
    let report = of_with(plain, &options).expect("it is read");
    assert_eq!((one(&report).seconds, one(&report).peak_memory_held_bytes), (15.0, Some(1_632 << 20)));
    assert!(report.notes[0].contains("does not say which GPU"), "{:?}", report.notes);
    let wrong = GpuOptions { columns: vec!["speed".into()], ..GpuOptions::default() };
    assert!(matches!(of_with(plain, &wrong), Err(GpuError::NoColumn { name }) if name == "speed"));
    let bare = "index, utilization.gpu [%], memory.used [MiB]\n3, 50, 1024\n3, [N/A], 1024\n3, 70, [Unknown Error]\n";
    let bare = of(bare).expect("it is read");
    assert_eq!((one(&bare).gpu.as_str(), one(&bare).busy_percent), ("3", Some(60.0)));
}

#[test]
fn holes_repeats_and_midnights_are_not_counted_as_time() {
    let early: String = (0..20).map(|second| line(second, 0, 90, 9_000)).collect();
    let late: String = (1_800..1_820).map(|second| line(second, 0, 90, 9_000)).collect();
    let report = of(format!("{SMI}{early}{early}{late}")).expect("it is read");
    assert_eq!(one(&report).seconds, 40.0);
    assert!(one(&report).notes[0].contains("leaves out 1780 s"), "{:?}", one(&report).notes);
    assert!(one(&report).notes[1].contains("20 readings"), "{:?}", one(&report).notes);
    let dmon = "#Time        gpu    pwr     sm\n#HH:MM:SS    Idx      W      %\n 23:59:58      0    300     90\n \
                23:59:59      0    300     90\n 00:00:00      0    300     90\n";
    assert_eq!(one(&of(dmon).expect("it is read")).seconds, 3.0);
}

#[test]
fn dcgmi_s_shares_of_multiprocessors_are_no_gpu_utilisation() {
    let head = "#Entity   SMACT        SMOCC        TENSO        DRAMA\nID\n";
    let rows = "GPU 0     0.951        0.412        0.623        0.402\nGPU 1     0.012        0.001        0.000        N/A\n";
    let report = of(format!("{head}{}", rows.repeat(10))).expect("it is read");
    let classes: Vec<Class> = report.gpus.iter().map(|gpu| gpu.class).collect();
    assert_eq!(classes, [Class::TensorHeavy, Class::Idle]);
    assert_eq!(report.gpus[0].evidence, Evidence::Counters);
    near(report.gpus[0].sm_active_percent, 95.1, 1e-9);
    assert_eq!((report.gpus[0].busy_percent, report.gpus[1].dram_active_percent), (None, None));
}

/// The same GPU as exporters of several versions tell it.
#[test]
fn old_and_new_names_of_dcgm_s_fields_are_one() {
    let old = r#"# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100 80GB HBM3",Hostname="n1",pod="train-0",namespace="ml"} 97
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-1",Hostname="n1"} 40960
DCGM_FI_DEV_FB_FREE{gpu="0",UUID="GPU-1",Hostname="n1"} 40000
DCGM_FI_DEV_FB_RESERVED{gpu="0",UUID="GPU-1",Hostname="n1"} 599
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-1",Hostname="n1"} 412.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-1",Hostname="n1"} 5000000
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-1",Hostname="n1"} 1980
DCGM_FI_DEV_MEMORY_TEMP{gpu="0",UUID="GPU-1",Hostname="n1"} 9223372036854775794
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1",Hostname="n1"} 9223372036854775794
DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1"} 0.97
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1"} 0.9
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1"} 0.6
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",Hostname="n1"} 0.4
"#;
    let renamed = old
        .replace("DEV_GPU_UTIL{", "DEV_GPU_UTIL_RATIO{")
        .replace("POWER_USAGE", "BOARD_POWER_WATTS")
        .replace("GR_ENGINE_ACTIVE", "GR_ENGINE_UTIL_RATIO")
        .replace("SM_ACTIVE", "SM_UTIL_RATIO")
        .replace("PIPE_TENSOR_ACTIVE", "TENSOR_UTIL_RATIO")
        .replace("DRAM_ACTIVE", "DRAM_UTIL_RATIO")
        .replace("Hostname", "hostname");
    let new_units = renamed
        .replace("\"} 97\n", "\"} 0.97\n")
        .replace("FB_USED{", "FB_USED_BYTES{")
        .replace("} 40960\n", "} 42949672960\n")
        .replace("FB_FREE{", "FB_FREE_BYTES{")
        .replace("} 40000\n", "} 41943040000\n")
        .replace("FB_RESERVED{", "FB_RESERVED_BYTES{")
        .replace("} 599\n", "} 628097024\n")
        .replace("ENERGY_CONSUMPTION{", "ENERGY_CONSUMPTION_JOULES{")
        .replace("} 5000000\n", "} 5000\n")
        .replace("SM_CLOCK{", "SM_CLOCK_HZ{")
        .replace("} 1980\n", "} 1980000000\n");
    let samples = |text: &str| {
        let mut dcgm = Dcgm::default();
        assert!(text.lines().all(|line| dcgm.line(line).is_some()));
        (dcgm.blanks, dcgm.samples(None))
    };
    let (blanks, known) = samples(old);
    assert_eq!(blanks, 1, "of the fields that are looked at");
    let (which, sample) = &known[0];
    assert_eq!((which.host.as_deref(), which.user.as_deref()), (Some("n1"), Some("ml/train-0")));
    assert_eq!((sample.busy_percent, sample.sm_percent, sample.celsius), (Some(97.0), Some(90.0), None));
    assert_eq!(sample.memory_total_bytes, Some(f64::from(40_960 + 40_000 + 599) * 1_048_576.0));
    for text in [&renamed, &new_units] {
        let (_, found) = samples(text);
        let rounded = |sample: &Sample| format!("{sample:.3?}");
        assert_eq!(rounded(&found[0].1), rounded(sample));
    }
    let report = of(old).expect("it is read");
    assert_eq!((one(&report).class, one(&report).host.as_deref()), (Class::TensorHeavy, Some("n1")));
}

#[test]
fn what_is_no_log_is_refused_and_a_cut_one_is_read() {
    assert!(matches!(of(""), Err(GpuError::Empty { .. })));
    assert!(matches!(of("GIF89a"), Err(GpuError::NoReading { line: 1, .. })));
    assert!(matches!(of(SMI), Err(GpuError::Empty { .. })));
    assert!(matches!(of(format!("{SMI}a, b\n")), Err(GpuError::NoReading { line: 2, .. })));
    assert!(matches!(of([0xff; 3_000]), Err(GpuError::NoReading { .. })));
    assert!(matches!(read_with(Path::new("/nonexistent"), &GpuOptions::default()), Err(GpuError::Read { .. })));
    let whole = std::fs::read(recorded("query.csv")).expect("it is there");
    let cut = of(&whole[..whole.len() / 2 - 3]).expect("it is read");
    assert!(cut.notes[0].contains("1 line is no reading"), "{:?}", cut.notes);
    let many: String = (0..5_000).map(|gpu| line(1, gpu, 1, 1)).collect();
    assert!(matches!(of(format!("{SMI}{many}")), Err(GpuError::TooMany { .. })));
}

#[test]
fn a_watch_tells_the_moment_and_the_whole() {
    let catalog = Catalog::embedded();
    let mut watch = Watch::new(GpuOptions::default(), &catalog);
    let which =
        Which { key: "GPU-1".into(), index: Some("0".into()), name: Some("NVIDIA H200".into()), ..Which::default() };
    for second in 0..30 {
        let sample = Sample {
            at_s: Some(f64::from(second)),
            busy_percent: Some(100.0),
            sm_percent: Some(3.0),
            dram_percent: Some(1.0),
            energy_j: Some(f64::from(second) * 150.0),
            ..Sample::default()
        };
        assert!(watch.add(which.clone(), &sample));
    }
    let now = watch.now();
    assert_eq!((now.len(), now[0].2), (1, Class::Underused));
    let report = watch.report(Vec::new());
    // The counter says it for 29 of 30 seconds.
    assert_eq!((one(&report).energy_joules, one(&report).class), (Some(29.0 * 150.0), Class::Underused));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_damage_to_a_log_makes_it_panic(which in 0usize..2, at in any::<usize>(), with in any::<u8>(), cut in any::<usize>()) {
        let mut bytes = std::fs::read(recorded(["query.csv", "dmon.txt"][which])).expect("it is there");
        bytes.truncate(19_000);
        let length = bytes.len();
        bytes[at % length] = with;
        bytes.truncate(length - cut % length);
        if let Ok(report) = of(&bytes) {
            prop_assert!(!screen(&report, 80).is_empty());
            for gpu in &report.gpus {
                prop_assert!(gpu.busy_percent.is_none_or(|busy| (0.0..=100.0).contains(&busy)));
                let all: f64 = gpu.classes.iter().map(|class| class.seconds).sum();
                prop_assert!((all - gpu.seconds).abs() < 1e-3);
            }
        }
    }

    #[test]
    fn no_metrics_make_it_panic(lines in prop::collection::vec("(DCGM_FI_(DEV_GPU_UTIL|DEV_FB_USED|PROF_SM_ACTIVE))?[a-zA-Z0-9{}=\",.\\\\ -]{0,40}", 0..12)) {
        let _ = of(format!("# HELP x\n{}", lines.join("\n")));
    }

    /// Time that was seen is time that was counted, whatever the readings say.
    #[test]
    fn time_is_neither_lost_nor_made(readings in prop::collection::vec((1u32..40, 0u32..=100, 0u32..80_000), 2..200)) {
        let (mut now, mut text) = (0, SMI.to_owned());
        let mut longest = 0;
        for (apart, busy, mib) in &readings {
            text.push_str(&line(now, 0, *busy, *mib));
            now += apart % 4 + 1;
            longest = longest.max(apart % 4 + 1);
            if now >= 3_590 {
                break;
            }
        }
        let report = of(&text).expect("it is read");
        let gpu = one(&report);
        let last = text.lines().count() as f64 - 1.0;
        prop_assert!(gpu.readings as f64 == last);
        let seen = text.lines().last().and_then(|line| line.get(14..19)).expect("a time");
        let (minutes, seconds) = seen.split_once(':').expect("a time");
        let span = minutes.parse::<f64>().expect("a number") * 60.0 + seconds.parse::<f64>().expect("a number");
        prop_assert!(gpu.seconds >= span && gpu.seconds <= span + f64::from(longest), "{} {span}", gpu.seconds);
    }
}
