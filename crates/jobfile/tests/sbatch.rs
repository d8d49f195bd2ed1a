//! Batch scripts of Slurm's as data: the jobs that they become, what is said of them, and what is refused.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use windfall_core::Span;
use windfall_core::spec::{Ask, Late};
use windfall_jobfile::{Context, JobFileError, Look, Read, parse, sbatch};

/// Sunday, 2026-11-15 04:00 UTC.
fn context() -> Context {
    Context { zone: TimeZone::UTC, ..Context::somewhere() }
}

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sbatch").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "sh"));
    paths.sort();
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn with_snapshots(folder: &str, check: impl FnOnce()) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("sbatch/{folder}/snapshots"));
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

fn read(text: &str) -> Read {
    parse(text, "train.sh", &context()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A script with these options.
fn of(options: &str) -> Read {
    read(&format!("#!/bin/sh\n#SBATCH {options}\n./train\n"))
}

#[test]
fn every_good_script_becomes_a_job_and_says_what_of_it_is_not_used() {
    with_snapshots("good", || {
        for (name, text) in files("good") {
            let read = parse(&text, &format!("{name}.sh"), &context()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.spec.check(), Ok(()));
            let spec = &read.spec;
            let mut shown = format!("{} of {}, {} to {} workers", spec.name, spec.team, spec.least(), spec.gang);
            let asks: Vec<String> = spec.resources.iter().map(ToString::to_string).collect();
            shown += &format!("\naccelerators: {:?}, any: {:?}", asks, read.wishes.any_gpus);
            shown += &format!("\nhost: {} m, {} MiB", spec.host.cpu_millis, spec.host.memory_bytes >> 20);
            let (most, left) = (read.wishes.at_most, read.deadline_in);
            let span = |span: Option<Span>| span.map_or("-".to_owned(), |span| span.to_string());
            shown += &format!("\nat most: {}, deadline in: {}, {:?}", span(most), span(left), spec.late);
            shown += &format!("\nin {} with {:?}\n", spec.run.folder, spec.run.env);
            let mut command = spec.run.command.clone();
            let body = command.iter_mut().find(|word| word.len() > 40 && word.contains("#SBATCH")).unwrap();
            assert_eq!(*body, text.replace("\r\n", "\n"));
            "(the script)".clone_into(body);
            shown += &format!("{command:?}\n");
            shown.extend(read.notes.iter().map(|note| format!("note: {note}\n")));
            insta::assert_snapshot!(name, shown);
        }
    });
}

#[test]
fn every_bad_script_says_where_and_what_to_change() {
    with_snapshots("bad", || {
        for (name, text) in files("bad") {
            let error = parse(&text, &format!("{name}.sh"), &context()).expect_err(&name);
            check_places(&text, &error);
            insta::assert_snapshot!(name, error.render(Look::Unicode, 80));
        }
    });
}

#[test]
fn notes_fit_on_a_screen() {
    for (name, text) in files("good") {
        let read = parse(&text, &format!("{name}.sh"), &context()).unwrap();
        let lines: usize = read.notes.iter().map(|note| (note.len() + 6).div_ceil(80)).sum();
        assert!(lines <= 20, "{name}: {lines} lines\n{}", read.notes.join("\n"));
    }
}

#[test]
fn accelerators_are_counted_for_each_node() {
    for (options, expected) in [
        ("--gres=gpu:a100:4", Ask::of("A100", 4)),
        ("--nodes=2 --gpus=h100:8", Ask::of("H100", 4)),
        ("-N2 -G v100:8", Ask::of("V100", 4)),
        ("--gpus-per-node=tesla_v100:2", Ask::of("V100", 2)),
        ("--ntasks-per-node=4 --gpus-per-task=h100:2", Ask::of("H100", 8)),
        ("-n 4 -N 2 --gpus-per-task=h100:1", Ask::of("H100", 2)),
        ("--gres=gpu:2 --constraint=a100", Ask::of("A100", 2)),
        ("--gres=gpu:a100:1 --gres=gpu:h100:2", Ask::of("H100", 2)),
    ] {
        assert_eq!(of(options).spec.resources, [expected], "{options}");
    }
    for (options, expected) in [("--gres=gpu:4", Some(4)), ("--gpus=1", Some(1)), ("--gres=gpu:0", None), ("-N2", None)]
    {
        let read = of(options);
        assert_eq!((read.spec.resources.len(), read.wishes.any_gpus), (0, expected), "{options}");
    }
}

#[test]
fn workers_cores_and_memory_are_counted_for_each_node() {
    let shape = |options: &str| {
        let spec = of(options).spec;
        (spec.least(), spec.gang, spec.host.cpu_millis / 1_000, spec.host.memory_bytes >> 30)
    };
    for (options, expected) in [
        ("-J x", (1, 1, 0, 0)),
        ("-N2-4", (2, 4, 0, 0)),
        ("-n8 --ntasks-per-node=4 -c2", (2, 2, 8, 0)),
        ("--ntasks=4", (1, 1, 4, 0)),
        ("--ntasks=1", (1, 1, 0, 0)),
        ("--cpus-per-task=8 --mem-per-cpu=2G", (1, 1, 8, 16)),
        ("--mem=64G --mem-per-cpu=1G", (1, 1, 0, 64)),
        ("--gres=gpu:4 --cpus-per-gpu=8 --mem-per-gpu=40G", (1, 1, 32, 160)),
        ("--mem=0 --exclusive", (1, 1, 0, 0)),
    ] {
        assert_eq!(shape(options), expected, "{options}");
    }
}

#[test]
fn a_time_limit_is_neither_work_nor_a_deadline_and_a_deadline_is_one() {
    let limited = of("--time=24:00:00");
    assert_eq!(
        (limited.spec.work.total, limited.deadline_in, limited.wishes.at_most),
        (None, None, Some(Span::hours(24)))
    );
    assert!(
        limited.notes.iter().any(|note| note.starts_with("--time=24:00:00 is a limit of the cluster")),
        "{:?}",
        limited.notes
    );
    for (text, expected) in [("now+36hours", 36), ("now+2days", 48), ("now+90minutes", 1), ("2026-11-15T10:00:00", 6)] {
        let read = of(&format!("--deadline={text}"));
        assert_eq!((read.deadline_in.unwrap().0 / 3_600_000, read.spec.late), (expected, Late::Stop), "{text}");
    }
    assert_eq!(of("--time=UNLIMITED").wishes.at_most, None);
}

#[test]
fn a_script_needs_no_options_at_all() {
    let read = read("#!/bin/sh\npython train.py\n");
    assert_eq!(read.spec.run.command, ["/bin/sh", "-c", "#!/bin/sh\npython train.py\n", "train.sh"]);
    assert_eq!((read.spec.name.as_str(), read.notes), ("train", Vec::new()));
    // A job file may be one that the shell starts.
    assert_eq!(self::read("#!/usr/bin/env -S windfall run\nrun: echo\n").spec.run.command[2], "echo");
}

const VALID: &str = include_str!("sbatch/good/torchrun_two_nodes.sh");

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = format!("#!/bin/sh\n#SBATCH {}", String::from_utf8_lossy(&bytes));
        sbatch::Script::read(&text);
        if let Err(error) = parse(&text, "job.sh", &context()) {
            check_places(&text, &error);
            error.render(Look::Unicode, 60);
        }
    }

    #[test]
    fn options_with_any_value_never_panic(
        name in prop::sample::select(vec!["nodes", "ntasks", "gres", "gpus", "mem", "mem-per-cpu", "time", "deadline", "signal",
            "export", "chdir", "cpus-per-task", "gpus-per-task", "account", "constraint", "job-name", "array", "N", "c", "t"]),
        value in prop_oneof!["[-0-9:kKmMgG@.+,a-z ]{0,12}", "[0-9]{1,25}", "\\PC{0,8}"],
        more in "(#SBATCH |-N2|-n 4|--gpus=4|'|\"|\\\\|#|\n|\r\n|=|é| ){0,6}",
    ) {
        let dashes = if name.len() == 1 { "-" } else { "--" };
        let text = format!("#!/bin/sh\n#SBATCH {dashes}{name} \"{value}\"\n#SBATCH {dashes}{name}={value}{more}\n");
        if let Err(error) = parse(&text, "job.sh", &context()) {
            check_places(&text, &error);
            error.render(Look::Colour, 80);
        }
    }

    #[test]
    fn a_mutated_script_never_panics_and_every_problem_is_in_it(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(vec![
            "", ":", " ", "\n", "\t", "-", "--", "=", "'", "\"", "#", "\\", "0", "9999999999", "é", "\0", "\u{85}", "\u{2028}", "\r", "#SBATCH ", "hetjob",
        ])), 1..6),
    ) {
        let mut text: Vec<char> = VALID.chars().collect();
        for (at, remove, insert) in edits {
            let at = at.index(text.len() + 1);
            let end = (at + remove).min(text.len());
            text.splice(at..end, insert.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = parse(&text, "job.sh", &context()) {
            check_places(&text, &error);
            error.render(Look::Unicode, 80);
            error.to_json();
        }
    }
}
