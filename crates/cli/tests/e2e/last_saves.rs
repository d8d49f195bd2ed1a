//! What a program saves at its end has its time, whoever ends it and whatever they do then, unless somebody gives it up.

use super::far::Far;
use super::gangs::machines;
use super::nodes::{free_port, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;

/// A machine on which what is saved at the end takes some twelve seconds to send, and a job that is about to end.
fn saving(then: &str) -> Option<(Testbed, Far, u64)> {
    if !is_root("machines of their own") {
        return None;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "120s");
    std::fs::create_dir(testbed.work.join("empty")).unwrap();
    let [far] = machines(&testbed, port, ["one"]);
    let run = format!(
        "touch /tmp/begun; save() {{ head -c 12000000 /dev/urandom > $WINDFALL_CHECKPOINT_DIR/big; exit 0; }}; \
         trap save TERM; {then}"
    );
    let id = testbed.submit(&format!(
        "name: saves\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\ngrace: 2s\nrun: \"{run}\"\n"
    ));
    eventually("it runs", || !far.says("ls /tmp/begun 2> /dev/null").is_empty());
    far.slow_down("8mbit");
    Some((testbed, far, id))
}

/// Whether what a job saved last is in its store, once its machine is given back.
fn is_saved(testbed: &Testbed, id: u64) -> bool {
    let told = || testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    eventually("its machine is given back", || told().contains("is gone (released)"));
    told().contains("is durable") && !told().contains("not durable") && !told().contains("cancelled before")
}

#[test]
fn a_cancelled_program_s_last_save_takes_longer_than_the_program_may() {
    let Some((testbed, far, id)) = saving("while :; do sleep 0.1; done") else { return };
    testbed.run(&["cancel", &id.to_string()]).ends_with(0);
    assert!(is_saved(&testbed, id), "{}", testbed.run(&["explain", "--all", &id.to_string()]).out);
    testbed.until(id, &["cancelled"]);
    far.until_quiet(id);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_cancel_takes_no_last_save_away_and_now_does() {
    for gives_up in [false, true] {
        let Some((testbed, far, id)) = saving("sleep 1; save") else { return };
        let job = id.to_string();
        testbed.until(id, &["succeeded"]);
        let refused = testbed.run(&["cancel", &job]).ends_with(2);
        assert!(refused.err.contains("what it saved last is still on its way"), "{}", refused.err);
        assert!(refused.err.contains(&format!("windfall cancel {id} --now")), "{}", refused.err);
        if gives_up {
            let said = testbed.run(&["cancel", &job, "--now"]).ends_with(0).out;
            assert!(said.contains("given up"), "{said}");
        }
        assert_eq!(is_saved(&testbed, id), !gives_up);
        far.until_quiet(id);
        let over = testbed.run(&["cancel", &job]).ends_with(2);
        assert!(over.err.contains("is over: succeeded"), "{}", over.err);
        testbed.leaves_nothing();
    }
}

#[test]
fn whoever_cancels_now_does_not_wait_for_a_program_to_save() {
    let Some((testbed, far, id)) = saving("while :; do sleep 0.1; done") else { return };
    let said = testbed.run(&["cancel", &id.to_string(), "--now"]).ends_with(0).out;
    assert!(said.contains("without time to save") || said.contains("is cancelled"), "{said}");
    assert!(!is_saved(&testbed, id));
    testbed.until(id, &["cancelled"]);
    far.until_quiet(id);
    testbed.leaves_nothing();
}

/// Saves once, when it is told to stop, by renaming; then it exits with a shell's word for that signal.
const SAVES_AND_SAYS_143: &str = "\
import os, signal, sys, time
def save(number, frame):
    path = os.environ['WINDFALL_CHECKPOINT_DIR'] + '/state'
    with open(path + '.tmp', 'w') as file:
        file.write('all of it')
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + '.tmp', path)
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, save)
open('/tmp/begun', 'w').close()
while True:
    time.sleep(0.05)
";

#[test]
fn a_program_that_saves_when_it_is_told_to_stop_may_exit_with_143() {
    if !is_root("machines of their own") {
        return;
    }
    for run in ["exec python3 t.py", "echo a shell\n  python3 t.py\n  echo its end"] {
        let (testbed, port) = (Testbed::bare(), free_port());
        up(&testbed, port, "120s");
        let folder = testbed.work.join("folder");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("t.py"), SAVES_AND_SAYS_143).unwrap();
        let [far] = machines(&testbed, port, ["one"]);
        let id = testbed.submit(&format!(
            "name: says-143\nresources: {{ accelerators: H200:1 }}\nworkdir: folder\nrun: |\n  {run}\n"
        ));
        eventually("it runs", || !far.says("ls /tmp/begun 2> /dev/null").is_empty());
        testbed.run(&["cancel", &id.to_string()]).ends_with(0);
        assert!(is_saved(&testbed, id), "{run}: {}", testbed.run(&["explain", "--all", &id.to_string()]).out);
        far.until_quiet(id);
        testbed.leaves_nothing();
    }
}
