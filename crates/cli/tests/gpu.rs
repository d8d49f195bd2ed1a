//! `windfall gpu` live: a library that stands in for NVIDIA's (`programs/fake_nvml.c`) is loaded by the program as it loads the real
//! one; and an exporter answers on the loopback.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A computer whose driver shows what a file says.
struct Computer {
    folder: tempfile::TempDir,
}

impl Computer {
    fn new(shown: &str) -> Computer {
        let computer = Computer { folder: tempfile::tempdir().expect("a folder") };
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/fake_nvml.c");
        let mut build = Command::new("cc");
        build.args(["-shared", "-fPIC", "-o"]).arg(computer.folder.path().join("libnvidia-ml.so.1")).arg(source);
        assert!(build.status().expect("these tests need a C compiler").success());
        std::fs::write(computer.file(), shown).expect("it is written");
        computer
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shown")
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = windfall(args);
        command.env("LD_LIBRARY_PATH", self.folder.path()).env("FAKE_NVML", self.file());
        command.output().expect("it runs")
    }
}

fn windfall(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
    command.args(args).env("WINDFALL_HOME", "/nonexistent/home").env_remove("WINDFALL_CATALOG").env("COLUMNS", "80");
    command
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim())
        .unwrap_or_else(|error| panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr)))
}

const BUSES: [&str; 2] = ["00000000:19:00.0", "00000000:9A:00.0"];

fn two(states: [&str; 2], measures: &str) -> String {
    let line = |at: usize| format!("GPU-{at} NVIDIA_H200 {} {} 0 0 -\n", BUSES[at], states[at]);
    format!("{}{}{measures}", line(0), line(1))
}

#[test]
fn counters_processes_and_classes_of_this_machine_are_told() {
    let own = std::process::id();
    let measures = format!(
        "measure 0 99 41 33745 621000 1980 91.5 40 62.5 48 {own} 33000 97\nmeasure 1 0 0 60000 120000 345 -1 -1 -1 -1 0 0 0\n"
    );
    let computer = Computer::new(&two(["ok", "ok"], &measures));
    let seen = json(&computer.run(&["gpu", "--once", "--json", "--every", "200ms"]));
    let (busy, held) = (&seen["gpus"][0], &seen["gpus"][1]);
    assert_eq!(busy["class"], "tensor-heavy", "{seen:#}");
    assert_eq!((&busy["sm_active_percent"], &busy["tensor_active_percent"]), (&91.5.into(), &62.5.into()));
    assert_eq!(busy["memory_held_bytes"], 33_745u64 << 20);
    assert_eq!(busy["power_watts"], 621.0);
    assert_eq!(busy["programs"][0]["pid"], own);
    assert_eq!(busy["programs"][0]["busy_percent"], 97);
    let name = busy["programs"][0]["name"].as_str().expect("a name");
    assert!(name.starts_with("gpu"), "this test's own program: {name}");
    // Before Hopper there are no counters; memory that is held is no work.
    assert_eq!((&held["class"], &held["sm_active_percent"]), (&"held".into(), &Value::Null));
    assert_eq!(held["programs"], serde_json::json!([]));

    let text = String::from_utf8_lossy(&computer.run(&["gpu", "--once"]).stdout).into_owned();
    assert!(text.contains("tensor-heavy") && text.contains("held"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn what_was_watched_for_a_time_is_told_as_a_whole() {
    let measures = "measure 0 98 41 33745 350000 1980 4 3 0 2 0 0 0\nmeasure 1 0 0 4 78000 345 0 0 0 0 0 0 0\n";
    let computer = Computer::new(&two(["ok", "ok"], measures));
    let args = ["gpu", "--for", "3s", "--every", "250ms", "--window", "1s", "--price", "3.6", "--json"];
    let seen = json(&computer.run(&args));
    let classes: Vec<&str> = (0..2).filter_map(|gpu| seen["gpus"][gpu]["class"].as_str()).collect();
    assert_eq!(classes, ["underused", "idle"], "{seen:#}");
    let joules = seen["gpus"][0]["energy_joules"].as_f64().expect("a number");
    let seconds = seen["gpus"][0]["seconds"].as_f64().expect("a number");
    // The counter is read twelve times in three seconds; the last reading stands for the time until the next.
    assert!((joules / 350.0 - (seconds - 0.25)).abs() < 0.5, "{joules} J in {seconds} s");
    let wasted = seen["wasted_usd"].as_f64().expect("a number");
    assert!((wasted - seconds * 1e-3).abs() < 1e-4, "{wasted}");
}

#[test]
fn an_accelerator_that_is_lost_is_missing_and_the_other_is_told() {
    let computer = Computer::new(&two(["lost", "ok"], "measure 1 50 10 1000 300000 1980 20 10 5 5 0 0 0\n"));
    let seen = json(&computer.run(&["gpu", "--once", "--json", "--every", "200ms"]));
    let gpus = seen["gpus"].as_array().expect("gpus");
    assert_eq!((gpus.len(), &gpus[0]["gpu"]), (1, &"1".into()), "{seen:#}");
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    let output = windfall(&["gpu", "--once"]).env("LD_LIBRARY_PATH", "/nonexistent").output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if Path::new("/proc/driver/nvidia").exists() {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("this machine has no NVIDIA driver"), "{text}");
    let seen = json(&windfall(&["gpu", "--once", "--json"]).output().expect("it runs"));
    assert_eq!(seen["gpus"], serde_json::json!([]));
}

/// Answers each connection with a text, so many times.
fn exporter(status: &'static str, text: &'static str, times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it listens").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(times) {
            let Ok(mut stream) = stream else { continue };
            let mut asked = [0; 4_096];
            let read = stream.read(&mut asked).unwrap_or(0);
            assert!(asked[..read].starts_with(b"GET /metrics "), "{}", String::from_utf8_lossy(&asked[..read]));
            let answer =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

const METRICS: &str = "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n\
    DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",modelName=\"NVIDIA H100 80GB HBM3\",Hostname=\"n1\",pod=\"train-0\"} 100\n\
    DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"n1\"} 71000\n\
    DCGM_FI_DEV_GPU_TEMP{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"n1\"} 9223372036854775794\n\
    DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"n1\"} 0.01\n\
    DCGM_FI_PROF_DRAM_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",Hostname=\"n1\"} 0.81\n";

#[test]
fn dcgm_exporter_is_asked_and_what_it_lacks_is_said() {
    let address = exporter("200 OK", METRICS, 1);
    let output = windfall(&["gpu", "--dcgm", &address, "--once", "--json"]).output().expect("it runs");
    let seen = json(&output);
    let gpu = &seen["gpus"][0];
    assert_eq!(
        (&gpu["class"], &gpu["user"], &gpu["celsius"]),
        (&"memory-bound".into(), &"train-0".into(), &Value::Null)
    );
    let notes = seen["notes"].to_string();
    assert!(notes.contains("1 values are blank") && notes.contains("DCGM_FI_PROF_SM_ACTIVE"), "{notes}");
}

#[test]
fn who_does_not_answer_with_metrics_is_named() {
    let refused = |status, text, code: i32, said: &str| {
        let address = exporter(status, text, 1);
        let output = windfall(&["gpu", "--dcgm", &address, "--once"]).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains(said) && errors.contains("hint:"), "{errors}");
    };
    refused("404 Not Found", "", 5, "answers 404");
    refused("200 OK", "<html></html>", 2, "has no metrics of DCGM");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").to_string();
    let output = windfall(&["gpu", "--dcgm", &free, "--once"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(5));
}
