//! What people and programs see of a report, and what is refused.

use super::{Options, Prices, Reading, Shares, remarks, show};
use crate::args::{Cli, Command, SlurmBy, SlurmCommand, SlurmReportArgs};
use crate::here::Here;
use clap::Parser;
use windfall_insight::slurm::{self, Report, fields};
use windfall_server::client::Code;

const HEAD: &str = "JobID|JobName|User|Account|Partition|State|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|AllocCPUS|\
    AllocTRES|ReqTRES|ReqMem|MaxRSS|NTasks|TotalCPU|TRESUsageInTot";

/// A month of three users: one asks for too much time, one leaves GPUs idle, one fails; a large job still waits.
fn dump() -> String {
    let mut text = format!("{HEAD}\n");
    let begin = 1_772_323_200;
    for day in 0..30 {
        for (user, account, gpus, limit, elapsed, busy, state) in [
            ("ada", "nlp", 8, 1_440, 4_680, 720, "COMPLETED"),
            ("bob", "vision", 2, 240, 10_800, 20, "COMPLETED"),
            ("cleo-with-a-long-name", "vision", 1, 60, 1_800, 90, if day % 3 == 0 { "FAILED" } else { "COMPLETED" }),
        ] {
            let (id, submit) = (1_000 + 10 * day + gpus, begin + 86_400 * day);
            let start = submit + 600 * gpus * if day < 15 { 3 } else { 1 };
            let end = start + elapsed;
            text.push_str(&format!(
                "{id}|run-{gpus}_{day}|{user}|{account}|gpu|{state}|{submit}|{submit}|{start}|{end}|{elapsed}|{limit}|8|cpu=8,gres/gpu:h100={gpus},gres/gpu={gpus},mem=64G,node=1||64G|||00:30:00|\n\
                 {id}.batch|batch||{account}||{state}|||{start}|{end}|{elapsed}||8|cpu=8|||6G|1|00:30:00|gres/gpuutil={busy}\n"
            ));
        }
    }
    text.push_str(&format!(
        "9999|giant|gus|bio|gpu|PENDING|{0}|{0}|Unknown|Unknown|0|720|0||cpu=8,gres/gpu=64|64G|||00:00:00|\n",
        begin + 86_400 * 20
    ));
    text.push_str("oops\n");
    text
}

fn made(split: Option<&str>) -> Report {
    let mut reading = Reading::new();
    reading.take("jobs.txt", dump().as_bytes()).expect("it is read");
    let shares = "Account|User|RawShares\nroot||\n nlp||2\n vision||1\n bio||1\n";
    let options = Options {
        prices: Prices { each: Some(2.5), ..Prices::default() },
        split: split.and_then(fields::time),
        shares: Shares::read(shares),
        starved: 5,
        ..Options::default()
    };
    let mut report = slurm::report(reading, &options);
    report.notes = remarks(&report);
    report
}

#[test]
fn the_report_reads_well_at_any_width() {
    insta::assert_snapshot!("in_80_columns", show::screen(&made(None), &[], 10, 80));
    insta::assert_snapshot!("in_40_columns", show::screen(&made(None), &[SlurmBy::User], 2, 40));
    insta::assert_snapshot!("before_and_after", show::screen(&made(Some("2026-03-16")), &[SlurmBy::Account], 10, 80));
    for width in [40, 80, 132] {
        for split in [None, Some("2026-03-16")] {
            let text = show::screen(&made(split), &[], 10, width);
            let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > width).collect();
            assert_eq!(long, Vec::<&str>::new(), "in {width} columns");
        }
    }
}

#[test]
fn programs_get_stable_keys_and_only_what_they_ask_for() {
    let text = show::json(&mut made(Some("2026-03-16")), Some(1), &[SlurmBy::User]).expect("json");
    let value: serde_json::Value = serde_json::from_str(&text).expect("json");
    assert_eq!(value["schema"], "windfall.slurm-report.v1");
    for part in ["/whole", "/split/before", "/split/after"] {
        let part = value.pointer(part).and_then(|part| part.as_object()).expect("a part");
        assert_eq!(part["user"].as_array().map(Vec::len), Some(1));
        assert!(!part.contains_key("account") && !part.contains_key("type"));
    }
    let keys =
        |value: &serde_json::Value| value.as_object().map(|map| map.keys().cloned().collect::<Vec<_>>().join(" "));
    insta::assert_snapshot!(
        "keys",
        [keys(&value), keys(&value["whole"]), keys(&value["whole"]["total"])].map(Option::unwrap_or_default).join("\n")
    );
}

fn args(words: &[&str]) -> SlurmReportArgs {
    match Cli::parse_from(["windfall", "slurm", "report"].iter().chain(words)).command {
        Command::Slurm(SlurmCommand::Report(args)) => *args,
        other => panic!("not a report: {other:?}"),
    }
}

#[test]
fn what_cannot_be_reported_says_why_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let here = Here { home: folder.path().join("home"), json: false };
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it is written");
        path.to_string_lossy().into_owned()
    };
    let good = path("good.txt", &dump());
    let headless = path("headless.txt", "1|train|ada\n");
    let empty = path("empty.txt", &format!("{HEAD}\n"));
    let json = path("nodes.json", "{\"nodes\": []}");
    let absent = folder.path().join("absent.txt").to_string_lossy().into_owned();
    let place = folder.path().to_string_lossy().into_owned();
    let said: Vec<String> = [
        vec![headless.as_str()],
        vec![&empty],
        vec![&json],
        vec![&absent],
        vec![&place],
        vec![&good, "--since", "yesterday"],
        vec![&good, "--split", "2026-02-30"],
        vec![&good, "--since", "2026-03-02", "--until", "2026-03-01"],
        vec![&good, "--price-per-gpu-hour", "-1"],
        vec![&good, "--sshare", &good],
    ]
    .iter()
    .map(|words| {
        let failure = super::report(&here, &args(words)).expect_err("it is refused");
        assert_eq!(failure.code, Code::BadInput);
        failure.to_string().replace(&place, "FOLDER")
    })
    .collect();
    insta::assert_snapshot!("refused", said.join("\n"));
}

#[test]
fn a_price_comes_from_the_type_of_gpu_that_slurm_names() {
    let catalog = windfall_catalog::Catalog::embedded();
    let mut notes = Vec::new();
    let prices = super::known_prices(&catalog, &["h100", "nvidia_a100-sxm4-80gb", "whatever"], &mut notes);
    let known: Vec<&str> = prices.by_type.keys().map(String::as_str).collect();
    assert_eq!((known, notes.len()), (vec!["h100", "nvidia_a100-sxm4-80gb"], 2));
}
