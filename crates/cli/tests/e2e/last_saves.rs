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
    eventually("it runs", || far.says("ls /tmp/begun 2> /dev/null") != "");
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
