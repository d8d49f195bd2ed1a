//! Tables of Nsight Compute 2025.3 for ten runs of five kernels on one NVIDIA H200: a product of 4096×4096 matrices in bf16, one
//! of 2048×2048 in fp32, an addition and a softmax over 8192×8192 numbers, and an addition of 256 numbers. Columns and sections
//! that no figure depends on were taken out. `printed.csv` is what `ncu --csv` prints beside a program's own lines.

use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use windfall_catalog::Catalog;
use windfall_insight::ncu::{Limit, NcuError, NcuKernel, NcuReport, report, roofline, screen};
use windfall_insight::picture;

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ncu").join(name)
}

fn of(name: &str) -> NcuReport {
    report(&[recorded(name)], &Default::default()).expect("it is there")
}

fn on(bytes: &[u8]) -> Result<NcuReport, NcuError> {
    let mut file = tempfile::NamedTempFile::new().expect("it is there");
    file.write_all(bytes).expect("it is there");
    report(&[file.path().to_owned()], &Default::default())
}

fn named<'r>(report: &'r NcuReport, part: &str) -> &'r NcuKernel {
    report.kernels.iter().find(|kernel| kernel.name.contains(part)).expect("it is there")
}

#[test]
fn every_kernel_is_limited_by_what_it_was_made_to_be() {
    for page in ["raw.csv", "details.csv", "printed.csv"] {
        let report = of(page);
        // The addition of few numbers is the same kernel as the one of many, with another limit.
        let limits = report.kernels.iter().filter(|kernel| kernel.name.contains("vectorized_elementwise"));
        let limits: Vec<Limit> = limits.map(|kernel| kernel.limit).collect();
        assert_eq!((report.kernels.len(), limits), (5, vec![Limit::Bandwidth, Limit::TooSmall]), "{page}");
        let limit = |part| named(&report, part).limit;
        // Only the raw page says which units were busy: elsewhere a product is arithmetic.
        let product = if page == "raw.csv" { Limit::TensorCores } else { Limit::Arithmetic };
        assert_eq!(limit("nvjet"), product, "{page}");
        assert_eq!(limit("sgemm"), Limit::Arithmetic, "{page}");
        assert_eq!(limit("SoftMax"), Limit::Latency, "{page}");
        let screen = screen(&report, 80);
        assert!(screen.contains("bandwidth") && screen.contains("too little work"), "{screen}");
        assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    }
}

#[test]
fn arithmetic_is_that_of_the_products() {
    let report = of("raw.csv");
    assert_eq!(report.accelerator.as_deref(), Some("NVIDIA H200"));
    // Two runs each: 2 × 4096³ and 2 × 2048³ operations in the time that was measured.
    let flops = |kernel: &NcuKernel| kernel.tflops.expect("it is there") * kernel.total_us * 1e6 / kernel.runs as f64;
    let product = named(&report, "nvjet");
    assert!((flops(product) / (2.0 * 4096f64.powi(3)) - 1.0).abs() < 1e-6, "{}", flops(product));
    assert!((700.0..989.0).contains(&product.tflops.expect("it is there")), "{product:?}");
    let fp32 = named(&report, "sgemm");
    assert!((flops(fp32) / (2.0 * 2048f64.powi(3)) - 1.0).abs() < 0.02, "{}", flops(fp32));
    assert_eq!(fp32.tensor_percent, Some(0.0));
    assert!(report.fixes.iter().any(|fix| fix.contains("sgemm") && fix.contains("tensor cores")), "{:?}", report.fixes);
    // 8192 × 8192 numbers of four bytes are read; caches hold back a little of what is written.
    let added = named(&report, "vectorized_elementwise");
    assert!((3_900.0..4_800.0).contains(&added.bandwidth_gb_s.expect("it is there")), "{added:?}");
}

#[test]
fn measured_kernels_stand_on_the_roofline_of_their_accelerator() {
    let catalog = Catalog::embedded();
    let roofline = roofline(&of("raw.csv"), &catalog, None);
    let point = |part: &str| roofline.points.iter().find(|point| point.operator.contains(part)).expect("it is there");
    let product = point("nvjet");
    assert_eq!((product.precision, product.memory_bound), ("bf16", Some(false)));
    assert!((product.gflop - 137.44).abs() < 0.01, "{product:?}");
    // Of 989 TFLOP/s.
    assert!((product.reached_percent.expect("it is there") - 78.8).abs() < 1.0, "{product:?}");
    let added = point("CUDAFunctorOnSelf_add");
    assert_eq!((added.precision, added.memory_bound), ("fp32", Some(true)));
    // It moves what Nsight Compute says: 84 to 86 % of the bandwidth.
    assert!((added.reached_percent.expect("it is there") - 85.5).abs() < 2.0, "{added:?}");
    assert!(picture::roof(&roofline).is_some_and(|svg| svg.contains("4800 GB/s")));
    // The details page has no count of operations.
    assert_eq!(windfall_insight::ncu::roofline(&of("details.csv"), &catalog, Some("H200")).points, []);
}

#[test]
fn both_pages_agree() {
    let (raw, details) = (of("raw.csv"), of("details.csv"));
    for kernel in &raw.kernels {
        let same = |other: &&NcuKernel| other.name == kernel.name && (other.total_us - kernel.total_us).abs() < 1.0;
        let other = details.kernels.iter().find(same).expect("it is there");
        let close =
            |one: Option<f64>, two: Option<f64>| (one.expect("it is there") - two.expect("it is there")).abs() < 0.02;
        assert_eq!(kernel.runs, other.runs);
        assert!((kernel.total_us - other.total_us).abs() < 0.05, "{} {}", kernel.total_us, other.total_us);
        assert!(close(kernel.sm_percent, other.sm_percent), "{kernel:?} {other:?}");
        assert!(close(kernel.memory_percent, other.memory_percent), "{kernel:?} {other:?}");
        assert!(close(kernel.occupancy_percent, other.occupancy_percent), "{kernel:?} {other:?}");
    }
    assert!(details.notes.iter().any(|note| note.contains("--page raw")), "{:?}", details.notes);
    assert_eq!(raw.notes, [] as [&str; 0]);
}

#[test]
fn small_grids_are_found() {
    let header = "\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n";
    let row = |name: &str, unit: &str, value: &str| format!("\"0\",\"tiny\",\"s\",\"{name}\",\"{unit}\",\"{value}\"\n");
    let table = [
        header.to_owned(),
        row("Duration", "nsecond", "2,208"),
        row("Compute (SM) Throughput", "%", "0.02"),
        row("Memory Throughput", "%", "0.45"),
        row("Waves Per SM", "", "0.00"),
    ];
    let report = on(table.concat().as_bytes()).expect("it is there");
    assert_eq!((report.verdict.as_str(), report.kernels[0].total_us), ("too little work", 2.208));
    // Older versions write the unit into the name.
    let old =
        [header.to_owned(), row("Duration", "usecond", "3"), row("SM [%]", "%", "80"), row("Memory [%]", "%", "20")];
    assert_eq!(on(old.concat().as_bytes()).expect("it is there").verdict, "arithmetic");
}

#[test]
fn what_is_missing_is_said() {
    let table = "\"ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n\"0\",\"a\",\"Duration\",\"us\",\"5\"\n\"1\",\"b\",\"Grid Size\",\"\",\"5\"\n";
    let report = on(table.as_bytes()).expect("it is there");
    assert_eq!((report.verdict.as_str(), report.kernels.len()), ("unknown", 1));
    assert!(report.notes.iter().any(|note| note.contains("1 runs have no duration")), "{:?}", report.notes);
    assert!(report.notes.iter().any(|note| note.contains("--set full")), "{:?}", report.notes);
    let negative = table.replace("\"5\"\n\"1\"", "\"-5\"\n\"1\"");
    assert_eq!(on(negative.as_bytes()).expect("it is there").kernels.len(), 0);
}

#[test]
fn what_is_no_table_is_refused() {
    for bytes in [&b""[..], b"GIF89a", b"a,b\n1,2\n", b"==PROF== Connected\n\"x\",\"y\"\n", &[0xff; 999]] {
        assert!(matches!(on(bytes), Err(NcuError::NoTable { .. })), "{bytes:?}");
    }
    assert!(matches!(report(&["/nonexistent".into()], &Default::default()), Err(NcuError::Read { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_damage_to_a_table_makes_it_panic(
        raw in any::<bool>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = std::fs::read(recorded(if raw { "raw.csv" } else { "printed.csv" })).expect("it is there");
        for (at, with) in damage {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        bytes.truncate(cut.index(bytes.len()));
        if let Ok(report) = on(&bytes) {
            prop_assert!(!screen(&report, 80).is_empty());
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }
}
