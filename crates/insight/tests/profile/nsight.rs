//! Exports of Nsight Systems. `xtask/peers/nsight_fixture.py` wrote recorded traces in its tables by NVIDIA's published schema, so
//! that the same program's figures must come out; `nsight_small.py` wrote one with what is rare. Nsight itself was not at hand.

use crate::testbed::{report_of, report_on, report_with};
use proptest::prelude::*;
use std::io::Read;
use std::path::Path;
use windfall_insight::{Options, ProfileError, Report, text};

fn bytes(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nsight").join(name);
    let stored = std::fs::read(path).expect("it is there");
    let mut unpacked = Vec::new();
    match name.ends_with(".gz") {
        true => drop(flate2::read::GzDecoder::new(&stored[..]).read_to_end(&mut unpacked).expect("it is there")),
        false => unpacked = stored,
    }
    unpacked
}

fn of(name: &str) -> Report {
    report_on(&bytes(name)).expect("it is there")
}

#[test]
fn an_export_gives_what_the_trace_of_the_same_program_gives() {
    for name in ["resnet50_fp32", "resnet50_sync_bound"] {
        let (export, trace) = (of(&format!("{name}.sqlite.gz")), report_of(name));
        assert_eq!(export.verdict, trace.verdict, "{name}: {}", export.because);
        assert_eq!(export.accelerator.as_deref(), Some("H200-SXM-141GB"));
        let (ours, theirs) = (&export.ranks[0], &trace.ranks[0]);
        let figures = |rank: &windfall_insight::report::Rank| {
            [rank.kernel_time_us, rank.busy_us, rank.compute_us, rank.memory_us, rank.step_us.expect("it is there")]
        };
        for (ours, theirs) in figures(ours).iter().zip(figures(theirs)) {
            assert!((ours - theirs).abs() < 0.1, "{name}: {ours} is not {theirs}");
        }
        assert_eq!(ours.launches.count, theirs.launches.count);
        assert_eq!(ours.launches.waits, theirs.launches.waits);
        assert_eq!(ours.tensor_core_percent.map(f64::round), theirs.tensor_core_percent.map(f64::round));
        let parts: f64 = text::parts(ours).iter().map(|(_, us)| us).sum();
        assert!((parts - ours.kernel_time_us).abs() < 0.01);
        // Kernels of PyTorch are known by their names, and so is what to do.
        assert!(
            export.fixes.iter().any(|fix| fix.what.contains("torch") || fix.what.contains("DataLoader")),
            "{:?}",
            export.fixes
        );
    }
}

#[test]
fn processes_and_accelerators_of_one_export_are_kept_apart() {
    let report = of("small.sqlite");
    assert_eq!(report.ranks.len(), 2);
    for (at, rank) in report.ranks.iter().enumerate() {
        // 150 of 5 µs, and a replayed graph of 20.
        assert_eq!((rank.compute_us, rank.communication_us), (770.0, 250.0));
        // Each kernel belongs to its own process's call: the calls take 2 µs and kernels start 1 and 2 µs after they begin.
        assert_eq!(rank.launches.count, 200);
        let queue = rank.launches.queue_length.expect("it is there");
        let wanted = 200.0 * (at as f64 + 1.0) / rank.kernel_time_us;
        assert!((queue - wanted).abs() < 0.001, "rank {at}: {queue} is not {wanted}");
        assert!(rank.kernels.iter().any(|kernel| kernel.name.len() == 3_024), "a name is longer than a page");
        assert!(rank.kernels.iter().any(|kernel| kernel.name == "CUDA graph"));
        // Both processes marked the same step at the same time.
        assert_eq!((rank.steps, rank.step_times[0].number), (1, 41));
    }
    let copies = |at: usize| report.ranks[at].memory_us;
    assert_eq!((copies(0), copies(1)), (1.0, 0.0), "a copy without an accelerator counts as the first one's");
    assert!(report.ranks[0].notes.iter().any(|note| note.contains("without a start or a duration")), "{report:?}");
}

#[test]
fn what_is_no_export_is_refused() {
    let mut other = bytes("small.sqlite");
    for at in 0..other.len() - 6 {
        if &other[at..at + 5] == b"CUPTI" || &other[at..at + 5] == b"NVTX_" {
            other[at] = b'X';
        }
    }
    for (bytes, why) in [
        (other, "no tables of Nsight Systems"),
        (b"SQLite format 3\0".to_vec(), "no SQLite file"),
        ([&b"SQLite format 3\0"[..], &[3; 200]].concat(), "impossible size"),
    ] {
        match report_on(&bytes) {
            Err(ProfileError::NotATrace { what, .. }) => assert!(what.contains(why), "{what}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn a_cut_export_gives_what_it_has_and_says_so() {
    let whole = bytes("resnet50_fp32.sqlite.gz");
    let report = report_on(&whole[..whole.len() / 2]).expect("it is there");
    let notes = &report.ranks[0].notes;
    assert!(notes.iter().any(|note| note.contains("shorter than it says")), "{notes:?}");
}

/// The temporary file is kept by its path, so that a copy beside it can be damaged.
#[test]
fn exports_and_traces_are_read_together() {
    let mut file = tempfile::NamedTempFile::new().expect("it is there");
    std::io::Write::write_all(&mut file, &bytes("small.sqlite")).expect("it is there");
    let paths = [file.path().to_owned(), crate::testbed::recorded("jax_fp32")];
    let report = report_with(&paths, &Options::default()).expect("it is there");
    assert_eq!(report.ranks.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [0, 1, 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn no_damage_to_an_export_makes_it_panic_or_hang(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = bytes("small.sqlite");
        for (at, with) in damage {
            let at = at.index(bytes.len());
            bytes[at] = with;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(report) = report_on(&bytes) {
            prop_assert!(serde_json::to_string(&report).is_ok());
        }
    }
}
