//! Two engines in two processes: one that is stopped delays nobody who does not depend on it.

use super::processes::{self, Role};
use super::testbed::{Testbed, eventually};
use super::witness::{Witness, check_ledger};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A recorded market in a process of its own.
struct Far {
    child: Child,
    leases: PathBuf,
}

impl Far {
    fn new(testbed: &Testbed) -> Far {
        let (socket, leases) = (testbed.work.join("far.sock"), testbed.home.join("far"));
        let mut command = testbed.command(&["engine", "far", "--market", "steady", "--speed", "60"]);
        command.arg("--socket").arg(&socket).arg("--leases").arg(&leases);
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        eventually("the engine listens", || socket.exists());
        Far { child, leases }
    }

    fn signal(&self, signal: Signal) {
        processes::signal(self.child.id() as i32, signal);
    }

    /// Agents on its leases.
    fn agents(&self, testbed: &Testbed) -> usize {
        let here = self.leases.to_string_lossy().into_owned();
        let agents = processes::of(&testbed.home).into_iter().filter(|process| process.role == Role::Agent);
        agents.filter(|agent| processes::line(agent.pid).contains(&here)).count()
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server with two engines, and a job on the one that is in a process of its own.
fn with_a_job_on_far() -> (Testbed, Far, Witness) {
    let testbed = Testbed::bare();
    std::fs::create_dir_all(&testbed.home).unwrap();
    let far = Far::new(&testbed);
    let engine = format!("far={}", testbed.work.join("far.sock").display());
    testbed.run(&["up", "--market", "steady", "--speed", "60", "--engine", &engine]).ends_with(0);
    // Both sell the same at the same price: the first by name is taken.
    let on_far = Witness::submit(&testbed, "on-far", "plain");
    on_far.until_beats(&[]);
    assert_eq!(far.agents(&testbed), 1, "it runs on a lease of the far engine");
    (testbed, far, on_far)
}

#[test]
fn an_engine_that_is_stopped_delays_nobody_else() {
    let (testbed, far, on_far) = with_a_job_on_far();

    far.signal(Signal::STOP);
    let before = on_far.until_beats(&[]).beats;
    let elsewhere = Witness::submit(&testbed, "elsewhere", "plain");
    elsewhere.until_beats(&[]);
    assert_eq!(far.agents(&testbed), 1, "it runs on a lease of the other engine");
    let status = testbed.run(&["status"]).ends_with(0);
    assert!(status.out.contains("far has not answered for"), "{status:?}");
    // Who never asked it hears nothing of it; who asked it in vain is over when it has given back what it made of that.
    let third = Witness::submit(&testbed, "third", "plain");
    third.until_beats(&[]);
    for witness in [&elsewhere, &third] {
        witness.finish();
    }
    third.check_over(&testbed);
    eventually("its program has ended", || elsewhere.alive().is_none());
    // What runs on the engine that is stopped goes on, and its agent is heard.
    eventually("it beats on", || on_far.alive().is_some_and(|run| run.beats > before + 20));
    let done = || testbed.job(on_far.id)["done"].as_u64().unwrap();
    let known = done();
    eventually("its progress is heard", || done() > known + 20);

    far.signal(Signal::CONT);
    eventually("it answers again", || !testbed.run(&["status"]).out.contains("has not answered"));
    on_far.finish();
    on_far.check_over(&testbed);
    elsewhere.check_over(&testbed);
    assert_eq!(on_far.runs().len(), 1, "it was never moved");
    eventually("the lease is given back", || far.agents(&testbed) == 0);
    check_ledger(&testbed);
    testbed.run(&["down", "--cancel"]).ends_with(0);
}

#[test]
fn nobody_waits_at_the_end_for_an_engine_that_is_dead() {
    let (testbed, far, on_far) = with_a_job_on_far();
    far.signal(Signal::STOP);
    let said = testbed.run(&["down", "--cancel"]).ends_with(0);
    assert!(said.out.contains("not given back yet") && said.out.contains("far did not answer"), "{said:?}");
    assert!(on_far.alive().is_none(), "its program is stopped all the same");
    // It is there again, and so is the server: the machine is given back.
    far.signal(Signal::CONT);
    testbed.run(&["up"]).ends_with(0);
    eventually("the lease is given back", || far.agents(&testbed) == 0);
    testbed.run(&["down", "--cancel"]).ends_with(0);
}

#[test]
fn an_engine_takes_no_place_that_is_another_s() {
    let testbed = Testbed::bare();
    let far = Far::new(&testbed);
    let socket = testbed.work.join("far.sock").display().to_string();
    let plain = testbed.write("plain", "keep");
    let refused = |args: &[&str], word: &str| {
        let said = testbed.run(&[&["engine", "--market", "steady", "--leases", "other-leases"], args].concat());
        let said = said.ends_with(2);
        assert!(said.err.contains(word), "no {word:?} in {said:?}");
    };
    refused(&["far", "--socket", &socket], "somebody listens");
    // One that hangs is there all the same.
    far.signal(Signal::STOP);
    refused(&["far", "--socket", &socket], "somebody listens");
    far.signal(Signal::CONT);
    refused(&["far", "--socket", &plain.display().to_string()], "no socket");
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), "keep");
    refused(&["a/b", "--socket", "new.sock"], "no name");
    refused(&["far", "--socket", "new.sock", "--speed", "0"], "1 to 60");
}
