//! Job files as data: what is accepted, and what a person reads when something is not.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "jobfile/against_schema.rs"]
mod against_schema;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use windfall_core::spec::SecretFrom;
use windfall_jobfile::{Answers, Class, Context, JobFileError, Look, Question, Secret, parse, read, schema, template};

/// Sunday, 2026-11-15 04:00 UTC, in a zone with summer time whose rules need no files.
fn context() -> Context {
    Context {
        folder: "/home/ada/projects/bert".into(),
        home: Some("/home/ada".into()),
        owner: "ada".into(),
        now_ms: 1_794_715_200_000,
        zone: TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap(),
        store: "/home/ada/.windfall/checkpoints".into(),
    }
}

fn files(folder: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jobfiles").join(folder);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "yaml"));
    paths.sort();
    assert!(!paths.is_empty());
    let name = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    paths.iter().map(|path| (name(path), std::fs::read_to_string(path).unwrap())).collect()
}

fn with_snapshots(folder: &str, check: impl FnOnce()) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("jobfiles/{folder}/snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(check);
}

/// Whatever is wrong, it is somewhere in the file.
fn check_places(text: &str, error: &JobFileError) {
    assert!(!error.problems().is_empty());
    for problem in error.problems() {
        let position = problem.position.as_ref().expect("a problem of a text has a place");
        let line =
            text.split('\n').nth(position.line - 1).unwrap_or_else(|| panic!("no line {} in {text:?}", position.line));
        assert!((1..=line.chars().count() + 1).contains(&position.column), "{position:?} in {text:?}");
        assert!(
            position.span.start <= position.span.end && text.get(position.span.clone()).is_some(),
            "{position:?} in {text:?}"
        );
    }
}

#[test]
fn every_bad_file_says_where_and_what_to_change() {
    with_snapshots("bad", || {
        for (name, text) in files("bad") {
            let file = if name.ends_with("script") { format!("{name}.sh") } else { format!("{name}.yaml") };
            let error = parse(&text, &file, &context()).expect_err(&name);
            check_places(&text, &error);
            insta::assert_snapshot!(name, error.render(Look::Unicode, 80));
        }
    });
}

#[test]
fn every_good_file_becomes_a_job() {
    with_snapshots("good", || {
        for (name, text) in files("good") {
            let read = parse(&text, &format!("{name}.yaml"), &context()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(read.spec.check(), Ok(()));
            let deadline_in = read.deadline_in.map(|span| span.0);
            let shown = serde_json::json!({ "spec": read.spec, "deadline_in_ms": deadline_in, "notes": read.notes });
            insta::assert_json_snapshot!(name, shown);
        }
    });
}

#[test]
fn what_a_program_counts_is_time_only_where_somebody_says_hours() {
    for (more, unit) in [
        ("", "time"),
        ("progress: 'step (\\d+)/(\\d+)'\n", "steps"),
        ("progress: 'step (\\d+)/(\\d+)'\nwork: { hours: 3 }\n", "time"),
        ("work: { steps: 300 }\n", "steps"),
    ] {
        let read = parse(&format!("run: train\n{more}"), "job.yaml", &context()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(serde_json::to_value(read.spec.work.unit).unwrap(), unit, "{more}");
    }
}

#[test]
fn a_problem_has_a_plain_line_and_json_for_editors_and_programs() {
    let error = parse("run: echo\ndedline: 3h\n", "job.yaml", &context()).unwrap_err();
    assert_eq!(error.lines(), ["job.yaml:2:1: unknown key: `dedline`"]);
    assert_eq!(error.to_string(), "job.yaml:2:1: unknown key: `dedline`");
    let json = error.to_json();
    assert_eq!(json["problems"][0]["hint"], "did you mean `deadline`?");
    assert_eq!(json["problems"][0]["class"], "unknown-key");
    assert_eq!(json["problems"][0]["line"], 2);
    assert_eq!(json["problems"][0]["span"], serde_json::json!([10, 17]));
}

#[test]
fn a_narrow_terminal_and_one_without_unicode_can_show_every_problem() {
    for (name, text) in files("bad") {
        let error = parse(&text, "job.yaml", &context()).unwrap_err();
        for columns in [0, 20, 40] {
            error.render(Look::Unicode, columns);
        }
        if text.is_ascii() {
            let drawn = error.render(Look::Ascii, 80);
            assert!(drawn.chars().all(|c| c.is_ascii() || c == '…'), "{name}: {drawn}");
        }
        for look in [Look::Ascii, Look::Unicode] {
            let drawn = error.render(look, 80);
            assert!(!drawn.contains(['\u{1b}', '\u{202e}', '\r', '\t']), "{name}: {drawn:?}");
            assert!(drawn.lines().all(|line| line.chars().count() <= 110), "{name}: {drawn}");
        }
    }
}

#[test]
fn files_that_cannot_be_read_say_why() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = |name: &str, bytes: Option<&[u8]>| {
        let path = folder.path().join(name);
        if let Some(bytes) = bytes {
            std::fs::write(&path, bytes).unwrap();
        }
        let error = read(&path, &context()).unwrap_err();
        error.render(Look::Unicode, 80);
        (error.problems()[0].class, error.problems()[0].message.clone())
    };
    assert_eq!(wrong("missing.yaml", None), (Class::Unreadable, "there is no such file".into()));
    assert_eq!(wrong("", None), (Class::Unreadable, "this is a folder, not a file".into()));
    let large = vec![b'#'; (1 << 20) + 1];
    assert_eq!(wrong("large.yaml", Some(&large)), (Class::Unreadable, "the file is larger than 1 MiB".into()));
    let (class, message) = wrong("latin1.yaml", Some(b"run: echo\nname: gr\xf6\xdfer\n"));
    assert_eq!((class, message.as_str()), (Class::Syntax, "a byte that is not UTF-8: this is not a text file"));
    assert_eq!(wrong("binary.yaml", Some(b"\x7fELF\0\0\0")).0, Class::Syntax);
    assert_eq!(wrong("utf16.yaml", Some(b"\xff\xfer\0u\0n\0")).0, Class::Syntax);
}

#[test]
fn a_link_to_the_folder_itself_is_refused_for_checkpoints() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(folder.path(), folder.path().join("out")).unwrap();
    let context = Context { folder: folder.path().to_owned(), ..context() };
    let error = parse("run: echo\ncheckpoint: { path: out }\n", "job.yaml", &context).unwrap_err();
    assert!(error.to_string().contains("is the folder that the job runs in"), "{error}");
}

#[test]
fn a_byte_order_mark_does_no_harm() {
    assert_eq!(parse("\u{feff}run: echo\n", "job.yaml", &context()).unwrap().spec.run.command[2], "echo");
}

#[test]
fn the_file_names_the_job_that_has_no_name() {
    let name = |file: &str| parse("run: echo", file, &context()).unwrap().spec.name;
    assert_eq!(name("jobs/train bert.yaml"), "train bert");
    assert_eq!(name("-"), "job");
    assert_eq!(name(&"ü".repeat(300)).len(), 200);
}

#[test]
fn files_made_to_be_slow_are_answered_quickly() {
    // A quarter of what is accepted: the parser is not optimised in a debug build. Anything quadratic still shows.
    let length = 1 << 18;
    let repeat = |text: &str| format!("run: echo\n{}", text.repeat(length / text.len()));
    let mut many_keys = String::from("run: echo\n");
    for n in 0.. {
        many_keys.push_str(&format!("k{n}: 1\n"));
        if many_keys.len() > length {
            break;
        }
    }
    let evil = [
        repeat("["),
        repeat("{"),
        repeat("- "),
        repeat("? "),
        repeat(": "),
        repeat("\""),
        repeat("# comment\n"),
        repeat("a: b\n"),
        repeat("[a, "),
        repeat("&a "),
        repeat("!t "),
        repeat("*a "),
        repeat("x"),
        repeat("x "),
        repeat("\n"),
        repeat(" "),
        repeat("\t"),
        repeat("- a\n"),
        repeat("{a: b}, "),
        repeat("--- a\n"),
        repeat("é"),
        repeat("|\n  x\n"),
        repeat("a:\n "),
        repeat("%YAML 1.2\n"),
        format!("run: echo\nname: {}", "9".repeat(length)),
        format!("run: echo\nnodes: {}", "9".repeat(length)),
        format!("run: echo\ndeadline: {}", "9h".repeat(length / 2)),
        format!("run: echo\nprogress: '{}'", "(".repeat(length)),
        "run: echo\nprogress: '((a{1000}){1000}){1000}'".to_owned(),
        format!("run: echo\nresources: {{ accelerators: [{}] }}", "A100:0, ".repeat(length / 8)),
        format!("run: echo\nenv: {{ {} }}", "A: 1, ".repeat(length / 6)),
        many_keys,
    ];
    for text in evil {
        let begun = std::time::Instant::now();
        let head: String = text.chars().take(40).collect();
        if let Err(error) = parse(&text, "job.yaml", &context()) {
            check_places(&text, &error);
            let drawn = error.render(Look::Unicode, 80);
            assert!(drawn.len() < 100_000, "{head:?}: {} bytes", drawn.len());
        }
        assert!(begun.elapsed().as_secs() < 10, "{head:?} took {:?}", begun.elapsed());
    }
}

#[test]
fn the_published_schema_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/job.schema.json");
    let fresh = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("WINDFALL_REFRESH").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &fresh).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        published == fresh,
        "docs/job.schema.json is stale; refresh it: WINDFALL_REFRESH=1 cargo test -p windfall-jobfile schema"
    );
}

#[test]
fn the_schema_knows_every_key_of_the_good_files() {
    let schema = schema();
    for (name, text) in files("good") {
        for line in text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase())) {
            let key = line.split(':').next().unwrap();
            assert!(schema["properties"][key].is_object(), "{name}: {key}");
        }
    }
    assert_eq!(schema["required"], serde_json::json!(["run"]));
    assert_eq!(schema["additionalProperties"], serde_json::json!(false));
}

#[test]
fn the_first_file_explains_every_key_and_parses() {
    let mut answers = Answers::default();
    let mut asked = Vec::new();
    answers.ask(&context(), |question, wrong| {
        asked.push((question, wrong.map(|problem| problem.message.clone())));
        Some(
            match (question, wrong) {
                (Question::Deadline, None) => "yesterday",
                (Question::CheckpointPath, None) => ".",
                (Question::Work, None) => "40",
                (question, _) => question.example(),
            }
            .to_owned(),
        )
    });
    assert_eq!(asked.iter().filter(|(_, wrong)| wrong.is_some()).count(), 3);
    let file = template(&answers);
    let read = parse(&file, "job.yaml", &context()).unwrap_or_else(|e| panic!("{e}\n{file}"));
    assert_eq!(read.spec.name, "bert-finetune");
    assert_eq!(read.spec.resources.len(), 2);
    with_snapshots("init", || {
        insta::assert_snapshot!("answered", file);
        insta::assert_snapshot!("nothing_answered", template(&Answers::default()));
    });
}

#[test]
fn what_stands_in_brackets_is_what_an_empty_answer_writes() {
    let mut answers = Answers::default();
    answers.ask(&context(), |_, wrong| wrong.is_none().then(String::new));
    let file = template(&answers);
    let used: Vec<&str> = file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    let in_brackets: Vec<String> = Question::ALL
        .into_iter()
        .filter_map(|question| {
            let aside = question.aside();
            Some(aside.strip_prefix('[')?.strip_suffix(']')?.to_owned())
        })
        .collect();
    assert_eq!(used.len(), in_brackets.len(), "{used:?}");
    assert!(used.iter().zip(&in_brackets).all(|(line, shown)| line.ends_with(&format!(": {shown}"))), "{used:?}");
}

#[test]
fn on_is_still_read_and_is_the_same_key_as_accelerator() {
    let of = |work: &str| parse(&format!("run: x\nwork: {work}\n"), "job.yaml", &context());
    let (before, now) = (of("{ hours: 3, on: A100:8 }").unwrap(), of("{ hours: 3, accelerator: A100:8 }").unwrap());
    assert_eq!((&before.spec, &before.wishes), (&now.spec, &now.wishes));
    assert!(now.wishes.on.is_some());
    let both = of("{ hours: 3, on: A100:8, accelerator: A100:8 }").unwrap_err();
    assert_eq!(both.problems()[0].class, Class::DuplicateKey);
}

#[test]
fn every_commented_setting_of_the_first_file_can_be_used() {
    let file = template(&Answers::default());
    let lines: Vec<&str> = file.lines().collect();
    let is_setting = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let folder = tempfile::tempdir().unwrap();
    let there = Context { folder: folder.path().to_owned(), ..context() };
    let mut tried = 0;
    for (n, line) in lines.iter().enumerate() {
        if !is_setting(line) || line.starts_with("#  ") {
            continue;
        }
        let mut used: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        used[n] = line[1..].to_owned();
        for below in n + 1..lines.len() {
            // `work` can be said in one way only: the steps stay.
            if !lines[below].starts_with("#  ") {
                break;
            }
            if !(lines[below].starts_with("#  hours") || lines[below].starts_with("#  accelerator:")) {
                used[below] = lines[below][1..].to_owned();
            }
        }
        let text = used.join("\n");
        // A setup is of a folder that is sent.
        let text = if line.starts_with("#setup") { format!("{text}\nworkdir: .\n") } else { text };
        parse(&text, "job.yaml", &there).unwrap_or_else(|e| panic!("{line}: {e}"));
        tried += 1;
    }
    assert!(tried >= 18, "{tried}");
}

const VALID: &str = include_str!("jobfiles/good/everything.yaml");

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = parse(&text, "job.yaml", &context()) {
            check_places(&text, &error);
            error.render(Look::Unicode, 60);
        }
    }

    #[test]
    fn random_yaml_like_text_never_panics(text in "([a-z]{1,4}|run|work|env|: |:|\n|  |- |\\[|\\]|\\{|\\}|,|\"|'|#|&a|\\*a|!|\\||>|%|\t|---\n|[0-9]|\r\n|é|\u{feff}){0,60}") {
        if let Err(error) = parse(&text, "job.yaml", &context()) {
            check_places(&text, &error);
            error.render(Look::Colour, 80);
        }
    }

    #[test]
    fn a_mutated_file_never_panics_and_every_problem_is_in_it(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12, prop::sample::select(vec![
            "", ":", " ", "\n", "\t", "-", "[", "]", "{", "}", "\"", "'", "#", "&", "*", "!", "|", "0", "e999", "é", "\0", "\u{85}", "\u{2028}", "\r", "...\n", "---\n",
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
    fn whatever_is_answered_the_first_file_parses(
        texts in prop::collection::vec(prop_oneof!["\\PC{0,20}", any::<String>(), "[-a-z0-9:#' \"\\\\\n&*!|>%@`{}\\[\\],?~]{0,12}"], 7),
        good in prop::collection::vec(any::<bool>(), 7),
    ) {
        let mut answers = Answers::default();
        for ((question, text), good) in Question::ALL.into_iter().zip(&texts).zip(good) {
            let text = if good { question.example() } else { text };
            let taken = answers.set(question, text, &context());
            prop_assert!(!good || taken.is_ok(), "{question:?}: {taken:?}");
        }
        let file = template(&answers);
        let read = parse(&file, "job.yaml", &context());
        prop_assert!(read.is_ok(), "{}\n{file}", read.unwrap_err());
    }

    #[test]
    fn a_command_and_a_name_come_back_as_they_were_answered(text in "\\PC{1,40}") {
        let mut answers = Answers::default();
        answers.set(Question::Command, &text, &context()).ok();
        let named = answers.set(Question::Name, &text, &context()).is_ok();
        let spec = parse(&template(&answers), "job.yaml", &context()).unwrap().spec;
        if !text.trim().is_empty() {
            prop_assert_eq!(&spec.run.command[2], text.trim());
            prop_assert!(!named || spec.name == text.trim());
        }
    }
}

#[test]
fn what_travels_is_read_with_paths_in_the_folder_that_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("project")).unwrap();
    let context = Context { folder: folder.clone(), home: None, ..context() };
    let text = "run: python train.py\nworkdir: project\nsetup: |\n  make\n  make data\noutputs: [results/, ./a.csv]\n\
                checkpoint: { path: out/ }\nsecrets: { A: terminal, B: 'file:token', C: server }\n";
    let job = parse(text, "job.yaml", &context).unwrap();
    assert_eq!(job.workdir, Some(folder.join("project")));
    assert_eq!(job.spec.run.folder, folder.join("project").to_str().unwrap());
    assert_eq!((job.spec.checkpoint.path, job.spec.checkpoint.inside.as_deref()), (None, Some("out")));
    let luggage = job.spec.run.luggage();
    assert_eq!((luggage.setup.as_deref(), luggage.parcel.as_ref()), (Some("make\nmake data\n"), None));
    assert_eq!(luggage.outputs, ["results/", "a.csv"]);
    let from = [("A", SecretFrom::Submission), ("B", SecretFrom::Submission), ("C", SecretFrom::Server)];
    assert_eq!(luggage.secrets, from.map(|(name, from)| (name.to_owned(), from)).into());
    let found = [("A", Secret::Terminal), ("B", Secret::File(folder.join("token"))), ("C", Secret::Server)];
    assert_eq!(job.secrets, found.map(|(name, secret)| (name.to_owned(), secret)).into());

    // Without a folder that is sent, nothing is different.
    let plain = parse("run: x\ncheckpoint: { path: out/ }\n", "job.yaml", &context).unwrap();
    assert_eq!(plain.spec.checkpoint.path.as_deref(), folder.join("out").to_str());
    assert!(plain.spec.run.luggage.is_none() && plain.workdir.is_none());
    // Nobody means to send a home folder along.
    let home = Context { home: Some(folder.join("project")), ..context.clone() };
    for (workdir, context) in [("project", &home), ("/", &context), ("/usr/lib", &context), ("job.yaml", &context)] {
        assert!(parse(&format!("run: x\nworkdir: {workdir}\n"), "job.yaml", context).is_err(), "{workdir}");
    }
}
