//! Whole conversations with the command line, as golden files: what a user types, what is answered, and the
//! exit code. A change of any word is a change that somebody has to want.

#[path = "transcripts/gpu.rs"]
mod gpu;
#[path = "transcripts/sbatch.rs"]
mod sbatch;

use std::fmt::Write;
use std::process::Command;

/// Runs commands in an empty home and folder; paths of this machine are replaced by words.
fn transcript(lines: &[&[&str]]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    transcript_in(&dir, lines)
}

/// As above, in a folder that holds something already.
fn transcript_in(dir: &tempfile::TempDir, lines: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in lines {
        let output = Command::new(env!("CARGO_BIN_EXE_windfall"))
            .args(*args)
            .current_dir(dir.path())
            .env("WINDFALL_HOME", dir.path().join("home"))
            .env_remove("WINDFALL_CATALOG")
            .env_remove("WINDFALL_CONFIG")
            .env_remove("WINDFALL_IDLE")
            .env_remove("WINDFALL_POLICY")
            .env("COLUMNS", "80")
            .env("WINDFALL_TODAY", "2026-11-15")
            .env("NO_COLOR", "1")
            .output()
            .expect("it runs");
        let _ = writeln!(text, "$ windfall {}", args.join(" "));
        text.push_str(&String::from_utf8_lossy(&output.stdout));
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        let _ = writeln!(text, "[exit {}]\n", output.status.code().unwrap_or(-1));
    }
    assert!(!dir.path().join("home").exists(), "questions and mistakes start nothing and change nothing");
    text.replace(&*dir.path().to_string_lossy(), "FOLDER").replace(env!("CARGO_PKG_VERSION"), "VERSION")
}

#[test]
fn help_teaches() {
    insta::assert_snapshot!(transcript(&[
        &["--help"],
        &["--version"],
        &["run", "--help"],
        &["rehearse", "--help"],
        &["up", "--help"],
        &["config", "--help"],
        &["service", "--help"],
        &["service", "install", "--help"],
        &["doctor", "--help"],
        &["agent", "join", "--help"],
        &["cost", "--help"],
        &["profile", "--help"],
        &["simulate", "market", "--help"],
        &["slurm", "report", "--help"],
        &["sbatch", "--help"]
    ]));
}

#[test]
fn mistakes_are_answered_with_a_hint_and_code_two() {
    insta::assert_snapshot!(transcript(&[
        &[],
        &["runn"],
        &["run"],
        &["run", "nowhere.yaml"],
        &["submit", "nowhere.yaml", "--json"],
        &["up", "--speed", "61"],
        &["up", "--dead-man", "1h"],
        &["up", "--local", "--idle", "soon"],
        &["up", "--config", "nowhere.toml"],
        &["config", "check", "nowhere.toml", "--json"],
        &["rehearse", "nowhere.yaml"],
    ]));
}

#[test]
fn profiles_read_well_in_eighty_columns() {
    let dir = tempfile::tempdir().expect("a folder");
    let traces = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../insight/tests/traces");
    for (name, to) in [("bert_bf16", "bert"), ("transformer_bf16_shapes", "transformer"), ("resnet50_fp32", "fp32")] {
        let from = traces.join(format!("{name}.json.gz"));
        std::fs::copy(from, dir.path().join(format!("{to}.json.gz"))).expect("it is copied");
    }
    std::fs::write(dir.path().join("notes.json"), "{\"a\": 1}").expect("it is written");
    std::fs::create_dir(dir.path().join("empty")).expect("a folder");
    insta::assert_snapshot!(transcript_in(
        &dir,
        &[
            &["profile", "bert.json.gz", "--instance", "p5en.48xlarge"],
            &["profile", "transformer.json.gz", "--price", "3.5"],
            &["profile", "transformer.json.gz", "--like-hta"],
            &["profile", "--diff", "bert.json.gz", "transformer.json.gz"],
            &["profile", "notes.json"],
            &["profile", "nowhere.json", "--json"],
            &["profile", "empty"],
            &["profile", "bert.json.gz", "--svg", "roof.svg"],
            &["profile", "bert.json.gz", "--price", "-1"],
            &["profile", "bert.json.gz", "--instance", "nothing"],
            &["profile", "bert.json.gz", "--accelerator", "H10"],
        ]
    ));
}

#[test]
fn recorded_markets_are_played_and_bad_ones_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let ticks: Vec<&str> = (0..120).map(|tick| if tick % 17 < 11 { "4" } else { "1" }).collect();
    let good = file("good.json", &format!("{{\"metadata\":{{\"gap_seconds\":600}},\"data\":[{}]}}", ticks.join(",")));
    let gap = file("gap.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,1,null,1]}");
    let minus = file("minus.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,-1]}");
    let tickless = file("tickless.json", "{\"data\":[1,0]}");
    let free = file("free.json", "{\"metadata\":{\"gap_seconds\":600},\"data\":[1,0],\"prices\":[0.9,0]}");
    let empty = dir.path().join("empty");
    std::fs::create_dir(&empty).expect("made");
    let empty = empty.to_string_lossy().into_owned();
    let job = ["--work", "8h", "--deadline", "9h,12h", "--restart", "72s"];
    let with = |path: &str, more: &[&str]| {
        let words = [["simulate", "market", path].as_slice(), &job, more].concat();
        words.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>()
    };
    let lines = [
        with(&good, &["--gang", "2", "--starts", "3"]),
        with(&good, &["--gang", "2", "--policy", "foresight,greedy", "--json"]),
        with(&good, &["--policy", "clairvoyant"]),
        with(&good, &["--spot-price", "0"]),
        with(&gap, &[]),
        with(&minus, &[]),
        with(&tickless, &[]),
        with(&free, &[]),
        with(&empty, &[]),
        ["simulate", "market", &good, "--work", "8h", "--deadline", "7h"].map(str::to_owned).to_vec(),
        ["simulate", "market", &good, "--deadline", "60h"].map(str::to_owned).to_vec(),
    ];
    let lines: Vec<Vec<&str>> = lines.iter().map(|line| line.iter().map(String::as_str).collect()).collect();
    let lines: Vec<&[&str]> = lines.iter().map(Vec::as_slice).collect();
    let text = transcript(&lines);
    insta::assert_snapshot!(text.replace(&*dir.path().to_string_lossy(), "MARKETS"));
}

#[test]
fn questions_to_nobody_are_answered_without_a_server() {
    insta::assert_snapshot!(transcript(&[
        &["status"],
        &["status", "--json"],
        &["config", "check"],
        &["config", "show"],
        &["config", "example"],
        &["jobs"],
        &["jobs", "--all", "--json"],
        &["attach", "7"],
        &["cancel", "7"],
        &["logs", "nobody"],
        &["explain", "7", "--json"],
        &["cost"],
        &["cost", "--from", "2026-11", "--to", "2026-11-15"],
        &["cost", "--by", "job,day", "--csv"],
        &["cost", "--by", "tag:project", "--json"],
        &["down"],
        &["down", "--json"],
    ]));
}

#[test]
fn costs_that_cannot_be_asked_for_say_how_they_can() {
    insta::assert_snapshot!(transcript(&[
        &["cost", "--by", "taem"],
        &["cost", "--by", "team,weather", "--json"],
        &["cost", "--by", "tag:"],
        &["cost", "--by", "tag:two words"],
        &["cost", "--from", "yesterday"],
        &["cost", "--to", "2026-02-30"],
        &["cost", "--from", "2026-11-02", "--to", "2026-11-01"],
        &["cost", "--csv", "--json"],
        &["cost", "2026-11"],
    ]));
}

/// The ledger was written by the first version, which kept neither teams nor machines in its rows.
#[test]
fn costs_of_an_earlier_version_are_shown_as_far_as_they_are_known() {
    let dir = tempfile::tempdir().expect("a folder");
    let home = dir.path().join("home");
    std::fs::create_dir(&home).expect("made");
    let state = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/logs/version-1-gang.db");
    std::fs::copy(state, home.join("state.db")).expect("copied");
    let mut text = String::new();
    let lines: [&[&str]; 5] = [
        &["up", "--market", "steady", "--speed", "1"],
        &["cost"],
        &["cost", "--by", "job,day"],
        &["cost", "--by", "job,user,beneficiary", "--csv"],
        &["down"],
    ];
    for args in lines {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
        command.args(args).env("WINDFALL_HOME", &home).env("COLUMNS", "60").env("NO_COLOR", "1");
        let output = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).replace('\n', "\n  ");
        if args[0] == "cost" {
            let _ = writeln!(text, "$ windfall {}\n  {}", args.join(" "), said.trim_end());
        }
        assert!(output.status.success(), "{args:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
    // What the clock shows is no part of it.
    let parts = text.split("and shows ").enumerate();
    let parts = parts.map(|(at, part)| if at == 0 { part } else { part.trim_start_matches(|c| c != '.') });
    insta::assert_snapshot!(parts.collect::<Vec<_>>().join("and shows NOW"));
}

#[test]
fn a_job_file_is_written_once_and_not_over() {
    insta::assert_snapshot!(transcript(&[
        &["init", "--yes", "--name", "first", "--command", "python train.py", "--hours", "4", "--deadline", "8h"],
        &["init", "--yes"],
        &["init", "--yes", "--force", "--deadline", "soon"],
    ]));
}

#[test]
fn offers_read_well_in_eighty_columns() {
    insta::assert_snapshot!(transcript(&[
        &["offers"],
        &["offers", "H100"],
        &["offers", "H100:8,A100-80GB:8", "--market", "spot", "--cloud", "aws,gcp", "--limit", "5"],
        &["offers", "TPU-v5e:8", "--region", "us-central1"],
        &[
            "offers",
            "--gpu",
            "L4",
            "--cloud",
            "gcp",
            "--market",
            "reserved",
            "--sort",
            "price-per-tflop",
            "--limit",
            "4"
        ],
        &["offers", "--instance-type", "p4d.24xlarge", "--region", "us-east-1", "--all"],
        &["offers", "--cpu", "--cloud", "aws", "--region", "us-east-1", "--min-memory", "3000GB", "--limit", "3"],
    ]));
}

/// What `windfall` prints into a pipe, with COLUMNS as given, on the 15th of November 2026.
fn piped(columns: Option<&str>, args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
    command.args(args).env("WINDFALL_HOME", dir.path()).env_remove("WINDFALL_CATALOG").env_remove("COLUMNS");
    command.env("WINDFALL_TODAY", "2026-11-15");
    if let Some(columns) = columns {
        command.env("COLUMNS", columns);
    }
    String::from_utf8_lossy(&command.output().expect("it runs").stdout).into_owned()
}

#[test]
fn a_pipe_gets_the_whole_table_and_columns_count() {
    let whole = piped(None, &["offers", "H100"]);
    assert!(whole.contains("gpu-h100-sxm_1gpu-16vcpu-200gb") && !whole.contains('…'), "{whole}");
    let head = whole.lines().next().unwrap_or_default();
    for column in ["GPU GB", "VCPUS", "GIB", "AS OF", "WHERE", "MORE"] {
        assert!(head.contains(column), "{column}: {head}");
    }
    for columns in ["60", "100", "140"] {
        let told = piped(Some(columns), &["offers", "H100:8"]);
        let longest = told.lines().map(|line| line.chars().count()).max();
        assert!(longest <= columns.parse().ok(), "{columns}: {longest:?}\n{told}");
    }
    assert!(piped(Some("140"), &["offers", "H100:8"]).contains("GPU GB"), "what fits is shown");
}

#[test]
fn a_region_with_commas_in_its_name_can_be_chosen_among_others() {
    let told = piped(None, &["offers", "H100", "--region", "us-east-1,Florida, US, NA", "--json"]);
    let offers: Vec<serde_json::Value> = serde_json::from_str(&told).expect("a list");
    let mut regions: Vec<&str> = offers.iter().filter_map(|offer| offer["region"].as_str()).collect();
    regions.sort_unstable();
    regions.dedup();
    assert_eq!(regions, ["Florida, US, NA", "us-east-1"]);
}

#[test]
fn an_old_price_heads_no_table_unmarked() {
    let told = piped(None, &["offers", "A100-80GB", "--cloud", "azure", "--market", "spot", "--limit", "1"]);
    let first = told.lines().nth(1).unwrap_or_default();
    assert!(first.contains("0.40!") && told.contains("more than 180 days old: skypilot-catalog/azure"), "{told}");
    let overview = piped(None, &["offers"]);
    let line = overview.lines().find(|line| line.starts_with("A100-80GB ")).unwrap_or_default();
    assert!(line.contains("0.40!"), "{line}");
    let plan = piped(None, &["plan", "--hours", "8", "--on", "A100-80GB", "--cloud", "azure", "--market", "spot"]);
    let first = plan.lines().nth(3).unwrap_or_default();
    assert!(first.contains("! ") && plan.contains("days old)"), "{plan}");
}

#[test]
fn large_sums_have_commas_and_bands_the_digits_of_the_cost() {
    let plan = piped(None, &["plan", "--hours", "90000", "--on", "H100:8", "--cloud", "nebius"]);
    let cells: Vec<&str> =
        plan.lines().filter(|line| line.starts_with("nebius")).flat_map(str::split_whitespace).collect();
    let amounts: Vec<&&str> = cells.iter().filter(|cell| cell.starts_with('$')).collect();
    assert!(amounts.len() >= 2, "{plan}");
    for amount in amounts.iter().flat_map(|cell| cell.trim_start_matches('$').split('-')) {
        let (whole, cents) = amount.split_once('.').unwrap_or_default();
        assert!(cents.len() == 2 && whole.contains(','), "{amount} in {plan}");
    }
}

#[test]
fn plans_read_well_in_eighty_columns() {
    insta::assert_snapshot!(transcript(&[
        &["plan", "--hours", "8", "--on", "A100", "--by", "cloud", "--cloud", "aws,gcp,azure,lambda"],
        &["plan", "--hours", "40", "--on", "H100:8", "--deadline", "60h", "--limit", "5"],
        &[
            "plan",
            "--parameters",
            "7e9",
            "--tokens",
            "3e10",
            "--gpu",
            "H100:8",
            "--nodes",
            "1,2,4",
            "--cloud",
            "aws,lambda"
        ],
        &["plan", "--hours", "40", "--on", "A100:8", "--deadline", "60h", "--cloud", "aws", "--md"],
        &["plan", "--hours", "8", "--on", "A100:8", "--why", "g5.xlarge"],
        &["plan", "--hours", "1.28", "--on", "V100", "--deadline", "2h", "--here"],
    ]));
}

#[test]
fn plans_that_cannot_be_made_say_why() {
    insta::assert_snapshot!(transcript(&[
        &["plan"],
        &["plan", "--hours", "8", "--on", "Q100"],
        &["plan", "--hours", "-8", "--on", "A100"],
        &["plan", "--hours", "nan", "--on", "A100"],
        &["plan", "--hours", "8", "--on", "A100:8", "--deadline", "1h"],
        &["plan", "--hours", "8", "--on", "A100:8", "--deadline", "soon"],
        &["plan", "--hours", "8", "--on", "A100:8", "--cloud", "awss"],
        &["plan", "--hours", "8", "--on", "A100:8", "--nodes", "0"],
        &["plan", "--hours", "8", "--on", "A100:8", "--scaling", "2=perfect"],
        &["plan", "--hours", "8", "--on", "A100:8", "--precision", "bf17"],
        &["plan", "--hours", "8", "--on", "A100:8", "--holdings", "nothing.yaml"],
        &["plan", "--hours", "8", "--on", "A100:8", "--why", "g5.xlage"],
        &["plan", "nothing.yaml"],
        &["compare", "nothing.yaml", "nobody.yaml"],
    ]));
}

#[test]
fn offers_for_programs_have_every_field() {
    insta::assert_snapshot!(transcript(&[
        &["offers", "g5", "--json"],
        &["offers", "A10G:1", "--json", "--cloud", "aws", "--region", "us-east-1", "--limit", "2"],
        &["offers", "g2", "--csv"],
        &[
            "offers",
            "L4:1",
            "--csv",
            "--cloud",
            "gcp",
            "--region",
            "us-central1",
            "--market",
            "on-demand",
            "--limit",
            "2"
        ],
    ]));
}

#[test]
fn impossible_requests_name_what_rules_them_out() {
    insta::assert_snapshot!(transcript(&[
        &["offers", "H10O"],
        &["offers", "H100:many"],
        &["offers", "zzz"],
        &["offers", "p5.48xlarge"],
        &["offers", "H100:7"],
        &["offers", "H100:8", "--cloud", "lambda", "--market", "spot"],
        &["offers", "H100:8", "--cloud", "amazonn"],
        &["offers", "H100:8", "--region", "us-esat-1"],
        &["offers", "H100:8", "--market", "auction"],
        &["offers", "H100:8", "--max-price", "1"],
        &["offers", "H100:8", "--max-price", "-1"],
        &["offers", "H100:8", "--min-memory", "lots"],
        &["offers", "H100:8", "--sort", "beauty"],
        &["offers", "H100:8", "--min-memory", "99999", "--json"],
        &["offers", "Gaudi3"],
    ]));
}

#[test]
fn the_catalogue_says_where_its_prices_come_from() {
    insta::assert_snapshot!(transcript(&[&["catalog", "--help"], &["offers", "--help"]]));
    // Ages grow by the day, so only names and dates are golden.
    let told = transcript(&[&["catalog", "--json"]]);
    let json = told.lines().find(|line| line.starts_with('{')).unwrap_or_default();
    let told: serde_json::Value = serde_json::from_str(json).expect("an object");
    let sources = told["sources"].as_array().cloned().unwrap_or_default();
    let word = |source: &serde_json::Value, key: &str| source[key].as_str().unwrap_or_default().to_owned();
    let dates = sources.iter().map(|source| format!("{} {}", word(source, "name"), word(source, "as_of")));
    insta::assert_snapshot!("sources_and_their_dates", dates.collect::<Vec<_>>().join("\n"));
    assert!(sources.iter().all(|source| source["prices"] == 0 || source["age_days"].is_i64()));
}

#[test]
fn a_catalogue_built_without_a_name_is_used_from_then_on() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a folder");
    let reply = r#"{"data": {"gpu_1x_a10": {"instance_type": {"name": "gpu_1x_a10", "gpu_description": "A10 (24 GB PCIe)",
        "price_cents_per_hour": 42, "specs": {"vcpus": 30, "memory_gib": 200, "gpus": 1}}}}}"#;
    std::fs::create_dir(dir.path().join("files")).expect("made");
    std::fs::write(dir.path().join("files/lambda-2026-10-01.json"), reply).expect("written");
    let home = dir.path().join("home");
    let windfall = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
        let output =
            command.args(args).current_dir(dir.path()).env("WINDFALL_HOME", &home).env_remove("WINDFALL_CATALOG");
        let output = output.output().expect("it runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert_eq!(windfall(&["catalog", "build", "--from", "files"]).0, Some(0));
    let mode = std::fs::metadata(&home).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o711, "others pass through to the socket, and see nothing");
    let (code, offers) = windfall(&["offers", "A10:1", "--cloud", "Lambda", "--json", "--limit", "1"]);
    assert_eq!(code, Some(0));
    assert!(offers.contains(r#""price_usd_per_hour":0.42"#) && offers.contains("lambda-2026-10-01.json"), "{offers}");
    std::fs::write(home.join("catalog"), "torn").expect("written");
    assert_eq!(windfall(&["offers", "A10"]).0, Some(2));
    assert_eq!(windfall(&["catalog", "build", "--from", "files"]).0, Some(0), "a torn one can be built again");
}

#[test]
fn a_catalogue_of_one_s_own_is_built_or_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, text).expect("written");
    };
    let lambda = |price: &str| {
        format!(
            r#"{{"data": {{"gpu_1x_a10": {{"instance_type": {{"name": "gpu_1x_a10", "gpu_description": "A10 (24 GB PCIe)",
            "price_cents_per_hour": {price}, "specs": {{"vcpus": 30, "memory_gib": 200, "gpus": 1}}}},
            "regions_with_capacity_available": [{{"name": "us-west-1"}}]}}}}}}"#
        )
    };
    put("good/lambda-2026-10-01.json", &lambda("75"));
    put("good/notes.txt", "nothing");
    put("negative/lambda-2026-10-01.json", &lambda("-75"));
    put("torn/lambda-2026-10-01.json", &lambda("75")[..200]);
    put("euros/azure.json", r#"{"BillingCurrency": "EUR", "Items": [{"currencyCode": "EUR", "retailPrice": 1.5}]}"#);
    put("empty/notes.txt", "nothing");
    put("broken.catalog", "WINDFCAT and then nothing good");
    put("other.catalog", "#!/bin/sh");
    insta::assert_snapshot!(transcript_in(
        &dir,
        &[
            &["catalog", "build", "--from", "good", "--out", "own.catalog"],
            &["catalog", "build", "--from", "negative", "--out", "own.catalog"],
            &["catalog", "build", "--from", "torn", "--out", "own.catalog"],
            &["catalog", "build", "--from", "euros", "--out", "own.catalog"],
            &["catalog", "build", "--from", "empty", "--out", "own.catalog"],
            &["catalog", "build", "--from", "nowhere", "--out", "own.catalog", "--json"],
            &["catalog", "build"],
        ]
    ));
    let with = |catalog: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_windfall"))
            .args(["offers", "A10", "--cloud", "lambda", "--limit", "1"])
            .current_dir(dir.path())
            .env("WINDFALL_HOME", dir.path().join("home"))
            .env("WINDFALL_CATALOG", dir.path().join(catalog))
            .env("COLUMNS", "80")
            .env("WINDFALL_TODAY", "2026-11-15")
            .output()
            .expect("it runs");
        let both = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&both).replace(&*dir.path().to_string_lossy(), "FOLDER");
        format!("WINDFALL_CATALOG={catalog}\n{text}[exit {}]\n\n", output.status.code().unwrap_or(-1))
    };
    let used = ["own.catalog", "broken.catalog", "other.catalog", "absent.catalog"].map(with).concat();
    insta::assert_snapshot!("a_catalogue_of_one_s_own_is_used", used);
}
