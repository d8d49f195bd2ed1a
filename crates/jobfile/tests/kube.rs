//! Jobs of Kubernetes as data: the jobs that they become, what is said of them, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use windfall_core::Span;
use windfall_core::spec::Ask;
use windfall_jobfile::{Context, JobFileError, Look, Read, parse};

fn context() -> Context {
    Context { zone: TimeZone::UTC, ..Context::somewhere() }
}

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kube").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn with_snapshots(folder: &str, check: impl FnOnce()) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("kube/{folder}/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(check);
}

fn check_places(text: &str, error: &JobFileError) {
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        let position = problem.position.as_ref().expect("a problem of a text has a place");
        assert!(text.get(position.span.clone()).is_some(), "{position:?} in {text:?}");
    }
}

#[test]
fn every_good_job_becomes_a_job_and_says_what_of_it_is_not_used() {
    with_snapshots("good", || {
        for (name, text) in files("good") {
            let read = parse(&text, &format!("{name}.yaml"), &context()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.spec.check(), Ok(()));
            let spec = &read.spec;
            let asks: Vec<String> = spec.resources.iter().map(ToString::to_string).collect();
            let span = |span: Option<Span>| span.map_or("-".to_owned(), |span| span.to_string());
            let mut shown = format!("{} of {}, {} workers, tags {:?}", spec.name, spec.team, spec.gang, spec.tags);
            shown += &format!("\naccelerators: {asks:?}, any: {:?}", read.wishes.any_gpus);
            shown += &format!("\nhost: {} m, {} MiB", spec.host.cpu_millis, spec.host.memory_bytes >> 20);
            shown += &format!("\nat most: {}, grace: {}", span(read.wishes.at_most), spec.run.grace);
            shown += &format!("\nin {} with {:?}\n{:?}\n", spec.run.folder, spec.run.env, spec.run.command);
            shown.extend(read.notes.iter().map(|note| format!("note: {note}\n")));
            insta::assert_snapshot!(name, shown);
        }
    });
}

#[test]
fn every_bad_job_says_where_and_what_to_change() {
    with_snapshots("bad", || {
        for (name, text) in files("bad") {
            let error = parse(&text, &format!("{name}.yaml"), &context()).expect_err(&name);
            check_places(&text, &error);
            insta::assert_snapshot!(name, error.render(Look::Unicode, 80));
        }
    });
}

const VALID: &str = include_str!("kube/good/training.yaml");

/// The valid job with something else in its place.
fn with(old: &str, new: &str) -> Result<Read, JobFileError> {
    assert_eq!(VALID.matches(old).count(), 1, "{old}");
    parse(&VALID.replace(old, new), "job.yaml", &context())
}

#[test]
fn what_is_left_out_is_named_with_its_place() {
    let notes = parse(VALID, "job.yaml", &context()).unwrap().notes.join("\n");
    for (number, line) in VALID.lines().enumerate() {
        for key in ["backoffLimit", "imagePullPolicy", "volumes", "topology.kubernetes.io/zone", "tolerations", "ports"]
        {
            if let Some(at) = line.find(&format!("{key}:")) {
                let place = format!("{key} ({}:{})", number + 1, at + 1);
                assert!(notes.contains(&place), "no {place} in\n{notes}");
            }
        }
    }
}

#[test]
fn kinds_of_accelerators_are_what_labels_call_them() {
    let of = |product: &str| {
        let read = with("NVIDIA-A100-SXM4-80GB", product);
        read.map(|read| read.spec.resources).map_err(|error| error.problems()[0].message.clone())
    };
    for (product, name) in [
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("Tesla-T4", "T4"),
        ("NVIDIA-L40S", "L40S"),
        ("NVIDIA-A100-SXM4-40GB", "A100"),
    ] {
        assert_eq!(of(product), Ok(vec![Ask::of(name, 8)]), "{product}");
    }
    for product in ["NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "NVIDIA-H100-SHARED", "mystery"] {
        assert!(of(product).is_err_and(|message| message.contains("no accelerator that is known")), "{product}");
    }
}

#[test]
fn a_gang_is_as_many_pods_as_run_together() {
    let of = |lines: &str| {
        let text = VALID.replace("  backoffLimit: 4\n", &format!("  {lines}\n"));
        parse(&text, "job.yaml", &context()).map(|read| read.spec.gang)
    };
    for (lines, gang) in [
        ("completions: 1", 1),
        ("parallelism: 1", 1),
        ("{}", 0),
        ("completions: 3\n  parallelism: 3\n  completionMode: Indexed", 3),
        ("completions: 2\n  parallelism: 8\n  completionMode: Indexed", 2),
        ("completions: 2\n  parallelism: 2", 2),
    ] {
        let read = of(lines);
        assert!(
            if gang == 0 { read.is_err() } else { read.as_ref().is_ok_and(|found| *found == gang) },
            "{lines}: {read:?}"
        );
    }
    for lines in [
        "completions: 2",
        "parallelism: 2",
        "parallelism: 0",
        "parallelism: -1",
        "completions: 9999\n  parallelism: 9999",
    ] {
        assert!(of(lines).is_err(), "{lines}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_mutated_job_never_panics_and_every_problem_is_in_it(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(vec![
            "", ":", " ", "\n", "\t", "-", "- ", "{", "}", "[", "]", "'", "\"", "#", "\\", "0", "9999999999", "é", "\0", "\u{85}", "\u{2028}", "\r",
            "null", "$(", "key: ", "Gi", "1e99", "apiVersion: batch/v1\n",
        ])), 1..6),
    ) {
        let mut text: Vec<char> = VALID.chars().collect();
        for (at, remove, insert) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.splice(at..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = parse(&text, "job.yaml", &context()) {
            check_places(&text, &error);
            error.render(Look::Unicode, 80);
            error.to_json();
        }
    }

    #[test]
    fn any_value_at_any_key_never_panics(
        at in any::<prop::sample::Index>(),
        value in prop_oneof!["[-0-9:.eEkKmMgGi\\[\\]{}$()' ]{0,14}", "[0-9]{1,40}", "\\PC{0,8}", Just("[[]]".to_owned()), Just("{a: {b: [c]}}".to_owned())],
    ) {
        let lines: Vec<&str> = VALID.lines().collect();
        let at = at.index(lines.len());
        let changed = |(number, line): (usize, &&str)| match line.split_once(": ").filter(|_| number == at) {
            Some((key, _)) => format!("{key}: {value}\n"),
            None => format!("{line}\n"),
        };
        let text: String = lines.iter().enumerate().map(changed).collect();
        if let Err(error) = parse(&text, "job.yaml", &context()) {
            check_places(&text, &error);
            error.render(Look::Colour, 80);
        }
    }
}
