//! How gangs over machines end when a rank is lost at its end, or never begins: those that are left hold nothing for long.

use super::far::Far;
use super::gangs::machines;
use super::nodes::{free_port, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;

/// A server with machines of these names, and an empty folder to run in. None without the rights that this takes.
fn with_machines<const N: usize>(dead_man: &str, names: [&str; N]) -> Option<(Testbed, [Far; N])> {
    if !is_root("machines of their own") {
        return None;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, dead_man);
    std::fs::create_dir(testbed.work.join("empty")).unwrap();
    let machines = machines(&testbed, port, names);
    Some((testbed, machines))
}

fn two_machines(dead_man: &str) -> Option<(Testbed, [Far; 2])> {
    with_machines(dead_man, ["one", "two"])
}

fn are_free(testbed: &Testbed, of: usize) -> bool {
    let nodes = testbed.run(&["nodes", "--json"]).json();
    nodes.as_array().unwrap().iter().filter(|node| node["accelerators_used"] == 0).count() >= of
}

#[test]
fn nobody_waits_for_a_rank_whose_machine_is_gone() {
    let Some((testbed, mut machines)) = two_machines("20s") else { return };
    // What the second rank saves at its end takes a minute to send.
    let run = "touch /tmp/begun-$RANK; echo 1 > $WINDFALL_CHECKPOINT_DIR/first-$RANK; sleep 6; \
               [ $RANK = 0 ] || head -c 60000000 /dev/urandom > $WINDFALL_CHECKPOINT_DIR/big; echo $RANK > o$RANK";
    let id = testbed.submit(&format!(
        "name: torn\nnodes: 2\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\ncheckpoint: {{ settle: 1s }}\n\
         outputs: ['o*']\nrun: '{run}'\n"
    ));
    let has_second = |far: &Far| far.says("ls /tmp/begun-1 2> /dev/null").ends_with("-1");
    eventually("the second rank runs", || machines.iter().any(has_second));
    let second = machines.iter().position(has_second).unwrap();
    machines[second].slow_down("8mbit");
    testbed.until(id, &["succeeded"]);
    machines[second].lose_power();
    machines[1 - second].until_quiet(id);
    eventually("the other machine is free", || are_free(&testbed, 2));
    let told = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert!(told.contains("its machine was lost before all that its program left was sent"), "{told}");
    let into = testbed.work.join("back");
    testbed.run(&["get", &id.to_string(), "--into", into.to_str().unwrap()]).ends_with(0);
    assert_eq!(std::fs::read_to_string(into.join("o0")).unwrap_or_default(), "0\n", "{told}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// The machine of a gang on which a rank runs.
fn of_rank(machines: &[Far], rank: u32) -> usize {
    let has = |far: &Far| far.says("ls /tmp/begun-* 2> /dev/null").ends_with(&format!("-{rank}"));
    eventually("the rank runs", || machines.iter().any(has));
    machines.iter().position(has).unwrap()
}

#[test]
fn a_rank_that_has_sent_its_part_keeps_it_until_there_is_a_checkpoint_of_all() {
    let Some((testbed, mut machines)) = with_machines("20s", ["one", "two", "three"]) else { return };
    // What the third rank saves at its end takes a minute to send; the others are done long before.
    let run = "touch /tmp/begun-$RANK; sleep 4; echo part $RANK > $WINDFALL_CHECKPOINT_DIR/part-$RANK; \
               [ $RANK != 2 ] || head -c 60000000 /dev/urandom > $WINDFALL_CHECKPOINT_DIR/big";
    let id = testbed.submit(&format!(
        "name: torn\nnodes: 3\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\ncheckpoint: {{ settle: 1s }}\n\
         run: '{run}'\n"
    ));
    let [zeroth, first, second] = [0, 1, 2].map(|rank| of_rank(&machines, rank));
    machines[second].slow_down("8mbit");
    testbed.until(id, &["succeeded"]);
    machines[second].lose_power();
    for rank in [zeroth, first] {
        machines[rank].until_quiet(id);
    }
    eventually("the other machines are free", || are_free(&testbed, 3));
    let told = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    for (rank, machine) in [(0, zeroth), (1, first)] {
        let far = &machines[machine];
        let line = format!("find {} -name part-{rank} -path '*unsaved*' -exec cat {{}} +", far.disk().display());
        assert_eq!(far.says(&line).trim(), format!("part {rank}"), "{told}");
    }
    let told = told.replace("\n", " ");
    assert!(told.contains("its files lie on") && told.contains("what rank 1 saved last lies on"), "{told}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_rank_that_failed_waits_for_a_checkpoint_that_takes_longer_than_programs_may() {
    let Some((testbed, machines)) = two_machines("120s") else { return };
    // The second rank fails; the first one is told to stop, has two seconds for that, and some twelve seconds of sending before it.
    let run = "touch /tmp/begun-$RANK; sleep 4; echo part $RANK > $WINDFALL_CHECKPOINT_DIR/part-$RANK; \
               [ $RANK = 1 ] && sleep 4 && exit 7; head -c 12000000 /dev/urandom > $WINDFALL_CHECKPOINT_DIR/big; sleep 1000";
    let id = testbed.submit(&format!(
        "name: fails\nnodes: 2\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\nretries: 0\ngrace: 2s\n\
         checkpoint: {{ settle: 1s }}\nrun: '{run}'\n"
    ));
    machines[of_rank(&machines, 0)].slow_down("8mbit");
    testbed.until(id, &["failed"]);
    machines.iter().for_each(|far| far.until_quiet(id));
    eventually("the machines are free", || are_free(&testbed, 2));
    let told = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert!(!told.contains("lies on") && !told.contains("lie on"), "{told}");
    for far in &machines {
        let line = format!("find {} -name 'unsaved*'", far.disk().display());
        assert_eq!(far.says(&line), "", "{told}");
    }
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_gang_that_fails_at_once_gives_its_machines_back() {
    let Some((testbed, machines)) = two_machines("120s") else { return };
    for run in ["exit 3", "[ $RANK = 1 ] && exit 3; sleep 1000", "nosuchprogram"] {
        let id = testbed.submit(&format!(
            "name: fails\nnodes: 2\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\ngrace: 20m\nretries: 0\n\
             run: '{run}'\n"
        ));
        testbed.until(id, &["failed"]);
        eventually("the machines are free", || are_free(&testbed, 2));
        machines.iter().for_each(|far| far.until_quiet(id));
    }
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
