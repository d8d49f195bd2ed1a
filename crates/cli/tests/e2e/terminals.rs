//! Pipes, terminals and signals: who holds what open, and what Ctrl-C means.

use super::processes::{self, Role};
use super::testbed::{LIMIT, Testbed, eventually, python};
use super::witness::Witness;
use rustix::process::Signal;
use std::process::{Command, Stdio};

/// Runs a command on a terminal of its own, presses Ctrl-C as the plan says, and prints how it ended.
const ON_A_TERMINAL: &str = r#"
import os, pty, select, signal, sys, time
plan, command = sys.argv[1], sys.argv[2:]
pid, fd = pty.fork()
if pid == 0:
    os.execvp(command[0], command)
seen = b""
def more():
    global seen
    ready, _, _ = select.select([fd], [], [], 100)
    assert ready, seen
    try:
        got = os.read(fd, 65536)
    except OSError:
        got = b""
    seen += got
    return got
def until(text):
    while text not in seen:
        assert more(), seen
until(b"running")
if plan == "hangup":
    os.close(fd)
else:
    os.write(fd, b"\x03")
    until(b"again within five seconds")
    asked = time.monotonic()
    if plan == "twice":
        os.write(fd, b"\x03")
    while more():
        pass
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), int(time.monotonic() - asked) if plan != "hangup" else 0)
sys.stdout.write(seen.decode(errors="replace"))
"#;

fn on_a_terminal(testbed: &Testbed, plan: &str, name: &str) -> (i32, i32, String) {
    let mut command = Command::new(python());
    command.args(["-c", ON_A_TERMINAL, plan, env!("CARGO_BIN_EXE_windfall"), "run", name]);
    command.current_dir(&testbed.work).env("WINDFALL_HOME", &testbed.home).env("TERM", "xterm").env("NO_COLOR", "1");
    let said = testbed.finish(command).ends_with(0);
    let (first, rest) = said.out.split_once('\n').unwrap();
    let mut numbers = first.split(' ').map(|word| word.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap(), rest.to_owned())
}

const LONG: &str = "name: long\nwork: { hours: 10 }\nrun: sleep 600\n";

#[test]
fn one_ctrl_c_asks_and_then_detaches() {
    let testbed = Testbed::steady();
    testbed.write("long.yaml", LONG);
    let (code, seconds, seen) = on_a_terminal(&testbed, "once", "long.yaml");
    assert_eq!(code, 130, "{seen}");
    assert!(seconds >= 4, "it waits for a second one: {seconds}");
    assert!(seen.contains("^C\r\x1b["), "from the first column on, over the terminal's own echo: {seen:?}");
    assert!(seen.contains("\x1b[Jthe job goes on; press Ctrl-C again"), "on a line of its own: {seen:?}");
    assert!(seen.contains("detached: the job goes on. Come back with: windfall attach"), "{seen}");
    assert_eq!(testbed.jobs()[0]["state"], "running");
    testbed.leaves_nothing();
}

#[test]
fn a_second_ctrl_c_cancels() {
    let testbed = Testbed::steady();
    testbed.write("long.yaml", LONG);
    let (code, _, seen) = on_a_terminal(&testbed, "twice", "long.yaml");
    assert_eq!(code, 130, "{seen}");
    assert!(seen.contains("was cancelled by"), "{seen}");
    assert_eq!(testbed.jobs()[0]["state"], "cancelled");
}

#[test]
fn a_terminal_that_is_closed_detaches() {
    let testbed = Testbed::steady();
    testbed.write("long.yaml", LONG);
    let (code, _, seen) = on_a_terminal(&testbed, "hangup", "long.yaml");
    assert!(code == 130 || code == 141, "{code}: {seen}");
    assert_eq!(testbed.jobs()[0]["state"], "running");
    testbed.leaves_nothing();
}

#[test]
fn without_a_terminal_a_signal_detaches_at_once() {
    let testbed = Testbed::steady();
    let witness = Witness::submit(&testbed, "apart", "plain");
    let run = witness.until_beats(&[]);
    for signal in [Signal::INT, Signal::HUP, Signal::TERM] {
        let out = testbed.work.join("out");
        let mut command = testbed.command(&["attach", "apart"]);
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        eventually("it watches", || std::fs::read_to_string(&out).unwrap().contains("running"));
        processes::signal(child.id() as i32, signal);
        assert_eq!(super::testbed::wait(&mut child), Some(130), "{signal:?}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert!(said.contains("windfall attach"), "{said}");
    }
    assert_eq!(witness.alive().map(|run| run.pid), Some(run.pid), "the job does not care");
    witness.finish();
    witness.check_over(&testbed);
}

#[test]
fn a_pipe_behind_a_run_ends_with_the_run() {
    let testbed = Testbed::bare();
    testbed.write("quick.yaml", "name: quick\nrun: sleep 0.5; exit 0\n");
    testbed.write("long.yaml", LONG);
    // The first of these starts the server, with descriptors 3 and 4 open on files of the terminal's. The market has
    // room for both jobs.
    let line = "exec 3>third 4>fourth; windfall up --market steady 2>&1 | cat; windfall submit long.yaml 2>&1 | cat; \
                windfall run quick.yaml 2>&1 | tee log | cat";
    let mut shell = Command::new("sh");
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_windfall")).parent().unwrap();
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    shell.args(["-c", line]).current_dir(&testbed.work).env("WINDFALL_HOME", &testbed.home).env("PATH", path);
    let child = shell.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output().unwrap()));
    let said = ended.recv_timeout(LIMIT).expect("the pipe stays open");
    assert!(String::from_utf8_lossy(&said.stdout).contains("succeeded"));
    let all = processes::of(&testbed.home);
    assert!(all.iter().any(|process| process.role == Role::Server));
    for process in all {
        let open = std::fs::read_dir(format!("/proc/{}/fd", process.pid)).into_iter().flatten();
        let held: Vec<_> = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()).collect();
        let foreign = ["third", "fourth", "log"].map(|name| testbed.work.join(name));
        assert!(!held.iter().any(|path| foreign.contains(path)), "{process:?} holds {held:?}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_panic() {
    let testbed = Testbed::steady();
    testbed.submit(LONG);
    for args in [&["jobs"][..], &["status"], &["explain", "long"], &["attach", "long"]] {
        let mut child = testbed.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let code = super::testbed::wait(&mut child);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        assert_eq!((code, said.as_str()), (Some(141), ""), "{args:?}");
    }
    testbed.leaves_nothing();
}

#[test]
fn a_watcher_that_is_killed_changes_nothing() {
    let testbed = Testbed::steady();
    testbed.write("long.yaml", LONG);
    let mut child = testbed.command(&["run", "long.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    eventually("it runs", || testbed.jobs().first().is_some_and(|job| job["state"] == "running"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(testbed.jobs()[0]["state"], "running");
    testbed.leaves_nothing();
}
