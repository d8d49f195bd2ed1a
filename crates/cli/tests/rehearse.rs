//! `windfall rehearse` on small programs with every habit, good and bad, each judged from outside: the verdict,
//! the codes of the findings, the exit code, and that nothing is left behind.
#![expect(clippy::unwrap_used, reason = "a test may stop where it stands")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Rehearsals at the same time: their programs mostly sleep, but restarts cost a core.
const AT_ONCE: usize = 6;

/// Longer than anything here takes, also on a busy machine, and shorter than programs sleep that must be ended.
const LIMIT: Duration = Duration::from_secs(300);

static RUNNING: Mutex<usize> = Mutex::new(0);
static FREE: Condvar = Condvar::new();

struct Turn;

impl Turn {
    fn wait() -> Turn {
        let mut running = FREE.wait_while(RUNNING.lock().unwrap(), |running| *running >= AT_ONCE).unwrap();
        *running += 1;
        Turn
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *RUNNING.lock().unwrap_or_else(std::sync::PoisonError::into_inner) -= 1;
        FREE.notify_one();
    }
}

struct Rehearsal {
    dir: tempfile::TempDir,
    _turn: Turn,
}

impl Rehearsal {
    fn of(job: &str) -> Rehearsal {
        let turn = Turn::wait();
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("tmp")).unwrap();
        std::fs::create_dir_all(dir.path().join("job")).unwrap();
        for entry in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join("job").join(entry.file_name())).unwrap();
        }
        std::fs::write(dir.path().join("job/job.yaml"), job).unwrap();
        Rehearsal { dir, _turn: turn }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("job")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_windfall"));
        command.args(["rehearse", "job.yaml", "--json", "--notice", "6s", "--limit", "2m"]).current_dir(self.folder());
        command.env("TMPDIR", self.dir.path().join("tmp")).env("WINDFALL_HOME", self.dir.path().join("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self) -> (Value, i32) {
        let output = self.command().output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        assert!(self.is_clear(), "something is left in the temporary directory");
        assert!(!self.dir.path().join("home").exists(), "the user's state directory was touched");
        (report, output.status.code().unwrap())
    }

    fn is_clear(&self) -> bool {
        std::fs::read_dir(self.dir.path().join("tmp")).unwrap().next().is_none()
    }
}

fn codes(report: &Value) -> Vec<String> {
    report["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap().to_owned()).collect()
}

/// The verdict and the findings of a program, and the exit code that goes with them.
#[track_caller]
fn check(job: &str, verdict: &str, findings: &[&str]) -> Value {
    let (report, code) = Rehearsal::of(job).run();
    assert_eq!(
        (report["verdict"].as_str(), codes(&report)),
        (Some(verdict), findings.iter().map(|f| (*f).to_owned()).collect()),
        "{report:#}"
    );
    assert_eq!(code, if verdict.starts_with("safe") { 0 } else { 3 });
    report
}

fn loop_with(habits: &str) -> String {
    format!("progress: 'step (\\d+)/(\\d+)'\nrun: exec python3 loop.py {habits}\n")
}

/// A program that tells nothing: only run time and saves show what it does.
fn silent_loop_with(habits: &str) -> String {
    format!("run: exec python3 loop.py silent {habits}\n")
}

#[test]
fn a_program_that_saves_resumes_and_heeds_notices_is_safe() {
    let report = check(&loop_with(""), "safe", &[]);
    assert_eq!(report["deterministic"], true);
    let acts = report["acts"].as_array().unwrap();
    assert!(acts.len() >= 6, "{report:#}");
    let interrupted = acts.iter().filter(|act| act["interruptions"].as_u64() > Some(0));
    assert!(interrupted.clone().count() >= 4, "{report:#}");
    for act in interrupted {
        assert_eq!(act["final_state_equal"], true, "{report:#}");
    }
}

#[test]
fn a_silent_program_with_several_files_in_a_subfolder_and_a_slow_start_is_safe() {
    check(&silent_loop_with("subfolder multi-file slow-start"), "safe", &[]);
}

#[test]
fn a_shell_program_below_a_shell_that_forwards_nothing_is_safe() {
    check("run: |\n  echo first\n  sh shell_loop.sh\n  echo last\n", "safe", &[]);
}

#[test]
fn a_relative_checkpoint_path_is_rehearsed_in_a_copy_and_the_real_one_is_neither_read_nor_written() {
    let job = format!("checkpoint: {{ path: out }}\n{}", loop_with("relative exit-143"));
    let rehearsal = Rehearsal::of(&job);
    let real = rehearsal.folder().join("out/state.json");
    std::fs::create_dir_all(real.parent().unwrap()).unwrap();
    std::fs::write(&real, "not even JSON").unwrap();
    let (report, code) = rehearsal.run();
    assert_eq!((report["verdict"].as_str(), code), (Some("safe"), 0), "{report:#}");
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "not even JSON");
    assert_eq!(std::fs::read_dir(rehearsal.folder().join("out")).unwrap().count(), 1);
}

#[test]
fn a_program_that_dies_of_sigterm_without_saving_is_safe_with_loss() {
    check(&loop_with("die-on-term"), "safe-with-loss", &[]);
}

#[test]
fn a_program_that_ignores_sigterm_but_saves_is_safe_with_loss() {
    check(&loop_with("ignore-term"), "safe-with-loss", &["ignores-sigterm"]);
}

#[test]
fn a_handler_that_takes_longer_than_the_notice_does_not_ignore_it() {
    let report = check(&loop_with("slow-term"), "safe-with-loss", &["slow-stop"]);
    assert_eq!((&report["notice_seconds"], &report["stop_seconds"]), (&Value::from(6.0), &Value::Null));
}

#[test]
fn workers_that_die_of_a_notice_are_told_from_a_program_that_ignores_it() {
    check("progress: 'step (\\d+)/(\\d+)'\nrun: exec python3 pool.py\n", "safe-with-loss", &["workers-die-of-sigterm"]);
}

#[test]
fn the_verdict_says_which_notice_was_given_and_what_was_needed_of_it() {
    let (report, _) = Rehearsal::of(&loop_with("")).run();
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.starts_with("safe: nothing is lost with a notice of 6.0s (it needed "), "{reason}");
    assert!(report["stop_seconds"].as_f64().is_some_and(|took| took < 6.0), "{report:#}");
}

#[test]
fn a_program_that_saves_when_it_is_asked_to_is_not_told_to_save_more_often() {
    let report = check(&loop_with("asked"), "safe", &["saves-when-asked"]);
    assert!(report["longest_loss_seconds"].as_f64().is_some_and(|lost| lost < 4.0), "{report:#}");
}

#[test]
fn an_act_that_missed_its_moment_is_tried_again() {
    let (report, _) = Rehearsal::of(&loop_with("early")).run();
    let acts = report["acts"].as_array().unwrap();
    let act = acts.iter().find(|act| act["name"] == "during a save").unwrap();
    assert_eq!(act["interruptions"], 1, "its last save is done before the first try begins: {report:#}");
}

#[test]
fn a_checkpoint_of_several_files_in_place_is_told_to_take_a_new_folder() {
    let report = check(&loop_with("in-place scattered"), "unsafe", &["in-place-checkpoint"]);
    let fix = report["findings"][0]["fix"].as_str().unwrap();
    assert!(fix.contains("new folder") && fix.contains("rename the folder"), "{fix}");
}

#[test]
fn acts_are_played_side_by_side() {
    let rehearsal = Rehearsal::of(&loop_with(""));
    let output = rehearsal.command().args(["--at-once", "4"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let began = |act: &str| -> f64 {
        let line = said.lines().find(|line| line.contains(act)).unwrap_or_else(|| panic!("no act {act}: {said}"));
        line.trim_start_matches('[').split('s').next().and_then(|text| text.trim().parse().ok()).unwrap()
    };
    // One after the other, each would begin when the one before it has ended, most of ten seconds later.
    assert!(began("damaged checkpoint") - began("without notice") < 9.0, "{said}");
}

#[test]
fn a_program_that_fails_beside_another_run_of_it_is_judged_alone_and_told() {
    let rehearsal = Rehearsal::of(&loop_with("alone"));
    let output = rehearsal.command().args(["--at-once", "2"]).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (report["verdict"].as_str(), codes(&report)),
        (Some("safe"), vec!["only-alone".to_owned()]),
        "{report:#}"
    );
}

#[test]
fn a_final_state_that_cannot_be_compared_is_named() {
    let report = check(&loop_with("stamped"), "safe", &["final-state-not-compared"]);
    assert_eq!(report["deterministic"], Value::Null, "{report:#}");
}

#[test]
fn a_last_line_that_differs_is_shown_and_is_no_verdict() {
    let report = check(&loop_with("counts"), "safe", &["other-last-line"]);
    let seen = report["findings"][0]["seen"].as_str().unwrap();
    assert!(seen.contains("undisturbed `done: 50 steps in this run`"), "{seen}");
}

#[test]
fn acts_that_share_a_named_checkpoint_directory_are_played_one_by_one() {
    let rehearsal = Rehearsal::of(&format!("checkpoint: {{ path: out }}\n{}", loop_with("relative")));
    let output = rehearsal.command().args(["--at-once", "4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_program_that_never_saves_is_unsafe() {
    check(&loop_with("never"), "unsafe", &["never-checkpoints"]);
}

#[test]
fn a_program_that_only_prints_is_unsafe() {
    check("run: for i in 1 2 3 4 5 6 7 8; do echo line $i; sleep 0.5; done\n", "unsafe", &["never-checkpoints"]);
}

#[test]
fn a_program_that_writes_its_checkpoint_in_place_is_unsafe() {
    check(&loop_with("in-place"), "unsafe", &["in-place-checkpoint"]);
}

#[test]
fn a_save_in_place_that_takes_its_time_is_no_log() {
    let (report, _) = Rehearsal::of(&loop_with("slow-in-place")).run();
    assert_eq!(report["verdict"], "unsafe", "{report:#}");
    assert!(codes(&report).contains(&"in-place-checkpoint".to_owned()), "{report:#}");
    assert!(!codes(&report).contains(&"log-in-checkpoint".to_owned()), "{report:#}");
}

#[test]
fn a_program_that_starts_from_zero_is_unsafe() {
    check(&loop_with("from-zero"), "unsafe", &["restarts-from-zero"]);
}

#[test]
fn a_silent_program_that_starts_from_zero_is_found_by_its_run_time() {
    check(&silent_loop_with("from-zero"), "unsafe", &["restarts-from-zero"]);
}

#[test]
fn a_program_that_leaves_children_behind_is_unsafe() {
    let report = check(&loop_with("child"), "unsafe", &["leaves-children"]);
    let seen = report["findings"][0]["seen"].as_str().unwrap();
    assert!(seen.contains("(sleep)"), "names the process: {seen}");
}

#[test]
fn a_program_that_becomes_a_daemon_is_unsafe() {
    let (report, _) = Rehearsal::of("run: python3 daemon.py\n").run();
    assert_eq!(report["verdict"], "unsafe");
    assert!(codes(&report).contains(&"leaves-children".to_owned()), "{report:#}");
}

#[test]
fn a_program_that_saves_only_at_its_end_is_unsafe() {
    check(&loop_with("end-only no-save-on-term"), "unsafe", &["saves-only-at-end"]);
}

#[test]
fn a_program_that_saves_only_on_notice_is_unsafe() {
    check(&loop_with("notice-only"), "unsafe", &["saves-only-on-notice"]);
}

#[test]
fn a_lock_in_the_checkpoint_makes_a_program_fail_on_resume() {
    let report = check(&loop_with("lock"), "unsafe", &["fails-on-resume"]);
    assert!(report["findings"][0]["seen"].as_str().unwrap().contains("train.lock"), "{report:#}");
}

#[test]
fn a_program_that_hangs_on_resume_is_unsafe() {
    check("run: python3 waits_for_lock.py\n", "unsafe", &["fails-on-resume"]);
}

#[test]
fn a_program_that_forgets_part_of_its_state_ends_differently() {
    let report = check(&loop_with("forgets"), "unsafe", &["different-final-state"]);
    assert_eq!(report["deterministic"], true);
}

#[test]
fn a_program_that_is_not_deterministic_is_not_blamed_for_it() {
    let report = check(&loop_with("random"), "safe", &["not-deterministic"]);
    assert_eq!(report["deterministic"], false);
}

/// A program whose checkpoints are torch files.
fn adam_with(habits: &str) -> String {
    format!("progress: 'step (\\d+)/(\\d+)'\nrun: exec python3 adam.py {habits}\n")
}

#[test]
fn a_torch_file_with_other_bytes_for_the_same_content_is_the_same_result() {
    let report = check(&adam_with(""), "safe", &[]);
    let acts = report["acts"].as_array().unwrap();
    let compared: Vec<&str> = acts.iter().filter_map(|act| act["compared"][0].as_str()).collect();
    assert!(compared.iter().any(|how| how.starts_with("model.pt (3 tensors, ")), "{report:#}");
}

#[test]
fn a_time_in_a_checkpoint_is_a_note() {
    let report = check(&adam_with("timestamp"), "safe", &["other-notes"]);
    assert!(report["findings"][0]["seen"].as_str().unwrap().contains("model.pt: saved"), "{report:#}");
}

#[test]
fn a_time_in_a_checkpoint_does_not_hide_a_forgotten_optimiser() {
    let report = check(&adam_with("forgets-optimiser timestamp"), "unsafe", &["different-final-state", "other-notes"]);
    let seen = report["findings"][0]["seen"].as_str().unwrap();
    assert!(seen.contains("model.weight differs by up to") && seen.contains("optimizer.exp_avg"), "{report:#}");
}

#[test]
fn what_a_program_exports_beside_its_checkpoints_is_compared_too() {
    let report = check(&adam_with("exports"), "unsafe", &["different-final-state"]);
    let seen = report["findings"][0]["seen"].as_str().unwrap();
    assert!(seen.contains("exported.pt: model.weight differs by up to 1.0e0"), "{seen}");
}

#[test]
fn forgotten_random_numbers_make_another_result() {
    check(&adam_with("forgets-random"), "unsafe", &["different-final-state"]);
}

#[test]
fn a_lost_order_of_the_data_makes_another_result() {
    check(&adam_with("loses-order"), "unsafe", &["different-final-state"]);
}

#[test]
fn what_a_trainer_logs_about_a_run_is_a_note() {
    let report = check(&loop_with("trainer-notes"), "safe", &["other-notes"]);
    assert!(report["findings"][0]["seen"].as_str().unwrap().contains("log_history"), "{report:#}");
}

#[test]
fn a_program_that_saves_beside_its_checkpoint_directory_is_unsafe() {
    let report = check(&loop_with("in-folder"), "unsafe", &["state-outside-checkpoint"]);
    assert!(report["findings"][0]["seen"].as_str().unwrap().contains("state.json"), "{report:#}");
}

#[test]
fn a_rehearsal_that_is_kept_can_be_looked_at_after_its_server_has_ended() {
    let rehearsal = Rehearsal::of("run: 'echo broken; exit 7'\n");
    rehearsal.command().arg("--keep").output().unwrap();
    let until = Instant::now() + LIMIT;
    while !processes(&rehearsal).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    let kept = std::fs::read_dir(rehearsal.dir.path().join("tmp")).unwrap().next();
    assert!(kept.is_some_and(|kept| kept.unwrap().path().join("jobs").is_dir()), "nothing was kept");
}

#[test]
fn a_program_that_fails_by_itself_cannot_be_judged() {
    check("run: 'echo broken; exit 7'\n", "unknown", &["baseline-failed"]);
}

#[test]
fn a_wrong_job_file_starts_nothing() {
    let rehearsal = Rehearsal::of("run: [\n");
    assert_eq!(rehearsal.command().output().unwrap().status.code(), Some(2));
    let mut command = rehearsal.command();
    command.args(["--limit", "soon"]);
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    assert!(rehearsal.is_clear());
}

/// Processes whose environment names this test's temporary directory.
fn processes(of: &Rehearsal) -> Vec<String> {
    let mark = format!("TMPDIR={}", of.dir.path().join("tmp").display());
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let marked = |pid: &String| {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|byte| *byte == 0).any(|pair| pair == mark.as_bytes())
    };
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).filter(marked).collect()
}

fn interrupted_by(signal: &str) {
    let rehearsal = Rehearsal::of(&loop_with(""));
    let mut child = rehearsal.command().spawn().unwrap();
    let until = Instant::now() + LIMIT;
    while processes(&rehearsal).len() < 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(processes(&rehearsal).len() >= 4, "the program never ran");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    child.wait().unwrap();
    while !(rehearsal.is_clear() && processes(&rehearsal).is_empty()) {
        assert!(Instant::now() < until, "left behind: {:?}", processes(&rehearsal));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_interrupted_rehearsal_leaves_nothing() {
    interrupted_by("-INT");
}

#[test]
fn nobody_else_looks_into_a_rehearsal() {
    use std::os::unix::fs::PermissionsExt;
    let rehearsal = Rehearsal::of(&loop_with("silent"));
    let mut child = rehearsal.command().spawn().unwrap();
    let until = Instant::now() + LIMIT;
    let stage = loop {
        let found = std::fs::read_dir(rehearsal.dir.path().join("tmp")).unwrap().next();
        match found {
            Some(entry) => break entry.unwrap().path(),
            None => assert!(Instant::now() < until, "no stage"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(std::fs::metadata(stage).unwrap().permissions().mode() & 0o777, 0o700);
    child.wait().unwrap();
}

#[test]
fn a_killed_rehearsal_leaves_nothing() {
    interrupted_by("-KILL");
}
