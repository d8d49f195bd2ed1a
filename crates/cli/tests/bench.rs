//! `windfall bench`: real programs are measured, and what is written is read by everything that takes results.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// Debian's, which has the packages of Debian.
const PYTHON: &str = "/usr/bin/python3";
/// A step takes a hundredth of a second and a bit.
const STEPS: &str = "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo \"step $i loss 0.$i\"; sleep 0.01; done";

fn windfall(folder: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
    command.args(args).current_dir(folder).env("WINDFALL_HOME", folder.join("home")).env_remove("WINDFALL_CATALOG");
    command.env("COLUMNS", "80").env("WINDFALL_TODAY", "2026-11-15").output().expect("it runs")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn lines(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

fn has_torch(test: &str) -> bool {
    let has = Path::new("/usr/lib/python3/dist-packages/torch").exists();
    if !has {
        println!("skipped: {test} (python3-torch is not installed)");
    }
    has
}

#[test]
fn a_command_is_measured_repeated_and_its_result_is_read_by_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = [
        "bench",
        "run",
        "--measure",
        "1s",
        "--warmup",
        "5",
        "--tight",
        "50",
        "--accelerator",
        "A100",
        "--price",
        "3.6",
    ];
    let more =
        ["--name", "mine", "--items", "32", "--flop", "1e12", "--precision", "bf16", "--out", "result.json", "--json"];
    let output = windfall(folder.path(), &[&args[..], &more, &["--", "sh", "-c", STEPS]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let run = lines(&output).remove(0);
    let number = |key: &str| run[key].as_f64().unwrap_or_else(|| panic!("{key}: {run:#}"));
    let speed = number("steps_per_second");
    assert!((20.0..100.0).contains(&speed), "{run:#}");
    assert_eq!(
        (&run["name"], &run["accelerator"], &run["precision"]),
        (&"mine".into(), &"A100".into(), &"bf16".into())
    );
    assert_eq!(run["batch"], 32);
    assert!(
        (number("usd_per_1000_steps") - 1.0 / speed).abs() < 1e-9,
        "3.60 dollars an hour are a thousandth a second"
    );
    assert!((number("mfu") - speed * 1e12 / 312e12).abs() < 1e-9, "{run:#}");
    assert!((number("units_per_second") - 32.0 * speed).abs() < 1e-6);
    assert!(number("peak_memory_bytes") > 100_000.0, "{run:#}");
    assert_eq!(run["repetitions"].as_array().map(Vec::len), Some(3), "{run:#}");
    assert!(number("steps_per_second_low") < speed && speed < number("steps_per_second_high"));
    assert!(run["energy_joules"].is_null(), "nothing that measures energy is there");
    // Nothing of it runs any more: the program was ended, not waited for.
    assert!(number("measured_seconds") < 9.0, "{run:#}");

    let compared = lines(&windfall(folder.path(), &["bench", "compare", "result.json", "result.json", "--json"]));
    assert_eq!(
        (&compared[1]["speed_ratio"], &compared[1]["significant"]),
        (&1.0.into(), &false.into()),
        "{compared:#?}"
    );

    let carried = windfall(
        folder.path(),
        &["bench", "extrapolate", "result.json", "--steps", "100000", "--nodes", "1,8", "--json"],
    );
    let estimates = lines(&carried).remove(0)["estimates"].clone();
    let hours = |at: usize| estimates[at]["hours"].as_f64().expect("hours");
    assert!((hours(0) - 1e5 / speed / 3_600.0).abs() < 1e-6, "{estimates:#}");
    assert!(hours(1) > hours(0) / 8.0 && hours(1) < hours(0) / 3.0, "{estimates:#}");
    let usd = estimates[0]["usd"].as_f64().expect("the file's own price");
    assert!((usd - hours(0) * 3.6).abs() < 1e-6, "{estimates:#}");

    let job = "name: x\nresources: { accelerators: A100 }\nwork: { benchmark: result.json, steps: 100000 }\nrun: x\n";
    std::fs::write(folder.path().join("job.yaml"), job).expect("it is written");
    let plan = windfall(folder.path(), &["plan", "job.yaml", "--json"]);
    assert_eq!(plan.status.code(), Some(0), "{}", text(&plan));
}

#[test]
fn mistakes_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |args: &[&str], code: i32, words: &[&str]| {
        let output = windfall(folder.path(), args);
        let text = text(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{args:?}: {text}");
    };
    said(&["bench", "run"], 2, &["nothing to measure", "bert-base", "hint:"]);
    said(&["bench", "run", "bert-bas"], 2, &["did you mean bert-base?"]);
    said(&["bench", "run", "--step", "(", "--", "true"], 2, &["not a pattern"]);
    said(&["bench", "run", "--precision", "fp13", "--", "true"], 2, &["no number format"]);
    said(&["bench", "run", "--", "true"], 2, &["no speed", "--step"]);
    said(&["bench", "run", "--", "/nonexistent"], 2, &["cannot be started"]);
    said(&["bench", "run", "--", "sh", "-c", "echo dead; exit 7"], 3, &["exit status: 7", "dead"]);
    said(
        &["bench", "run", "--repeat", "1", "--", "sh", "-c", "echo CUDA out of memory; exit 1"],
        3,
        &["out of memory", "smaller batch"],
    );
    said(&["bench", "compare", "nowhere.json"], 2, &["nowhere.json"]);
    std::fs::write(
        folder.path().join("two.json"),
        r#"{"device":"V100","runs":[{"model":"a","step_ms":2},{"model":"b","step_ms":3}]}"#,
    )
    .expect("it is written");
    said(&["bench", "extrapolate", "two.json", "--steps", "5"], 2, &["several runs", "two.json#"]);
    said(&["bench", "extrapolate", "two.json#c", "--steps", "5"], 2, &["no run `c`", "a/"]);
    said(
        &["bench", "extrapolate", "two.json#a", "--steps", "1000000", "--price", "2"],
        0,
        &["efficiency", "each doubling keeps"],
    );
}

#[test]
fn suites_run_in_pytorch() {
    if !has_torch("suites_run_in_pytorch") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let run = |suite: &str, more: &[&str]| {
        let args =
            ["bench", "run", suite, "--small", "--python", PYTHON, "--measure", "300ms", "--warmup", "2", "--json"];
        let output = windfall(folder.path(), &[&args[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{suite}: {}", text(&output));
        lines(&output).remove(0)
    };
    for suite in ["bert-base", "gpt2-medium", "resnet50"] {
        let run = run(suite, &["--repeat", "2"]);
        assert!(run["steps_per_second"].as_f64().is_some_and(|speed| speed > 0.0), "{run:#}");
        assert_eq!((&run["accelerator"], &run["precision"]), (&"cpu".into(), &"fp32".into()), "{run:#}");
        assert!(run["metric"].as_f64().is_some_and(f64::is_finite), "{run:#}");
    }
    for (suite, unit) in
        [("matmul", "TFLOP/s"), ("bandwidth", "GB/s"), ("checkpoint", "s"), ("data-loading", "images/s")]
    {
        let run = run(suite, &[]);
        let figures = run["figures"].as_array().expect("figures");
        assert!(figures.iter().any(|figure| figure["unit"] == unit && figure["value"].as_f64() > Some(0.0)), "{run:#}");
    }
}

#[test]
fn number_formats_are_tried_and_what_gains_nothing_is_not_recommended() {
    if !has_torch("number_formats_are_tried_and_what_gains_nothing_is_not_recommended") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let args =
        ["bench", "precision", "bert-base", "--small", "--python", PYTHON, "--measure", "300ms", "--warmup", "2"];
    let output = windfall(folder.path(), &[&args[..], &["--seeds", "2", "--try", "fp32,tf32,bf16", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let said = lines(&output);
    let whole = said.last().expect("the summary");
    let formats = whole["formats"].as_array().expect("formats");
    assert!(formats[1]["refused"].as_str().is_some_and(|why| why.contains("Ampere")), "{whole:#}");
    assert_eq!(formats[0]["metrics"].as_array().map(Vec::len), Some(2));
    assert!(formats[2]["metric_change"].as_f64().is_some_and(|change| change.abs() < 0.5), "{whole:#}");
    // Processors of today have no bf16 arithmetic in this PyTorch: it is slower or the same.
    let ratio = formats[2]["speed"]["ratio"].as_f64().expect("a ratio");
    let advised = whole["advice"]["precision"].as_str().expect("advice");
    assert_eq!(
        advised == "fp32",
        ratio < 1.05 || formats[2]["within_tolerance"] == false || formats[2]["speed"]["p"].as_f64() >= Some(0.05)
    );
}

/// A program that takes its format from the environment, and gains from it what it says.
#[test]
fn a_gain_is_found_and_a_loss_of_quality_refuses_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = "case $WINDFALL_PRECISION in bf16) pause=0.01; loss=0.5;; fp16) pause=0.01; loss=0.9;; *) pause=0.04; loss=0.5;; esac; \
                   i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo step $i; sleep $pause; done; echo val_loss $loss$WINDFALL_SEED";
    let args =
        ["bench", "precision", "--warmup", "2", "--metric", "val_loss ([0-9.]+)", "--try", "fp32,bf16,fp16", "--json"];
    let output = windfall(folder.path(), &[&args[..], &["--", "sh", "-c", program]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let whole = lines(&output).pop().expect("the summary");
    assert_eq!(whole["advice"]["precision"], "bf16", "{whole:#}");
    assert_eq!(whole["formats"][2]["within_tolerance"], false, "{whole:#}");
    assert!(whole["formats"][1]["speed"]["ratio"].as_f64() > Some(1.5), "{whole:#}");
}
