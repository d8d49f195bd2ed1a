//! `windfall gpu --from` and `windfall bench` on files: what is shown, what is refused, and the exit code.

use super::transcript_in;
use std::path::Path;

#[test]
fn logs_of_gpus_read_well_in_eighty_columns() {
    let dir = tempfile::tempdir().expect("a folder");
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../insight/tests/gpu");
    std::fs::copy(logs.join("query.csv"), dir.path().join("query.csv")).expect("it is copied");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("it is written");
    write("bare.csv", &"52, 100 %, 1632 MiB\n".repeat(20));
    write("notes.txt", "nothing about GPUs\n");
    let rows: String = (0..16)
        .map(|_| (0..6).map(|gpu| format!("GPU {gpu}  0.{gpu}11  0.100  0.{gpu}00  0.200\n")).collect::<String>())
        .collect();
    write("dcgmi.txt", &format!("#Entity   SMACT   SMOCC   TENSO   DRAMA\nID\n{rows}"));
    insta::assert_snapshot!(transcript_in(
        &dir,
        &[
            &["gpu", "--from", "query.csv", "--price", "3.5"],
            &["gpu", "--from", "dcgmi.txt"],
            &["gpu", "--from", "bare.csv"],
            &["gpu", "--from", "bare.csv", "--columns", "temperature.gpu,utilization.gpu,memory.used", "--every", "5s"],
            &["gpu", "--from", "bare.csv", "--columns", "speed"],
            &["gpu", "--from", "notes.txt", "--json"],
            &["gpu", "--from", "nowhere.csv"],
            &["gpu", "--from", "query.csv", "--price", "-1"],
            &["gpu", "--from", "query.csv", "--window", "soon"],
            &["gpu", "--from", "query.csv", "--accelerator", "H10"],
        ]
    ));
}

#[test]
fn results_of_benchmarks_read_well_in_eighty_columns() {
    let dir = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).expect("it is written");
    let run = |precision: &str, repetitions: [f64; 3], usd: f64| {
        serde_json::json!({
            "name": "bert-base", "accelerator": "H100", "count": 8, "precision": precision, "batch": 512, "unit": "sequences",
            "steps_per_second": repetitions.iter().sum::<f64>() / 3.0, "steps_per_second_low": repetitions[0] * 0.99,
            "steps_per_second_high": repetitions[2] * 1.01, "repetitions": repetitions, "usd_per_1000_steps": usd,
        })
    };
    write("old.json", &run("tf32", [3.10, 3.12, 3.16], 2.56).to_string());
    write("new.json", &run("bf16", [6.31, 6.35, 6.40], 1.26).to_string());
    write("noisy.json", &run("fp16", [2.80, 3.10, 3.60], 2.52).to_string());
    write("bad.json", "{ \"runs\": [ { \"name\": \"a\", \"step_ms\": -3 } ] }");
    insta::assert_snapshot!(transcript_in(
        &dir,
        &[
            &["bench", "compare", "old.json", "new.json", "noisy.json"],
            &["bench", "extrapolate", "new.json", "--steps", "400000", "--instance", "p5.48xlarge"],
            &["bench", "extrapolate", "new.json", "--steps", "400000", "--scaling", "strong", "--nodes", "1,16"],
            &["bench", "compare", "bad.json"],
            &["bench", "run", "bert"],
            &["bench", "run", "--help"],
            &["gpu", "--help"],
        ]
    ));
}
