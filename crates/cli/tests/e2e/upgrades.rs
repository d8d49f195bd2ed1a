//! Another build of the program takes the place of the old one, on a machine and on its server, while work goes on.

use super::far::Far;
use super::nodes::{beginnings, free_port, join, output, state_of, submit, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;

/// Puts a copy of the program in its place on the machine, and nowhere else. What was there before is deleted, as a package
/// manager does it: whoever runs it keeps it until its end.
fn install(far: &Far, name: &str) {
    let (program, copies) = (env!("CARGO_BIN_EXE_windfall"), far.state().with_file_name("copies"));
    let copies = copies.display();
    far.as_root(&format!(
        "mkdir -p {copies}; cp {program} {copies}/{name}; echo {name} >> {copies}/{name}; chmod 755 {copies}/{name}; \
         if mountpoint -q {program}; then umount -l {program}; fi; mount --bind {copies}/{name} {program}; \
         find {copies} -type f ! -name {name} -delete"
    ));
}

#[test]
fn work_goes_on_while_machine_and_server_get_another_build_and_both_builds_end_what_they_began() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    install(&far, "old");
    join(&testbed, &mut far, port, "lab-1");
    let first = submit(&testbed, "out");
    testbed.until(first, &["running"]);
    eventually("its program runs", || !far.programs(first).is_empty());
    let programs = far.programs(first);

    install(&far, "new");
    assert_eq!(far.stop_agent(), Some(0), "{}", far.said());
    far.start_agent(port, None);
    eventually("it is back", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));

    // The server's own build is replaced as well: it ends, and another file of the same name goes on.
    let other = testbed.work.with_file_name("other-windfall");
    std::fs::copy(env!("CARGO_BIN_EXE_windfall"), &other).unwrap();
    testbed.run(&["down"]).ends_with(0);
    testbed.finish(testbed.command_of(&other, &["up"])).ends_with(0);
    std::fs::remove_file(&other).unwrap();
    eventually("it is back", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));

    // The old build's agents still do as they are told, also to what they save; the new one's as well.
    let second = submit(&testbed, "out-2");
    testbed.until(second, &["running"]);
    let same = far.programs(first);
    assert!(programs.iter().any(|pid| same.contains(pid)), "the same program all the time: {programs:?}, {same:?}");
    for id in [first, second] {
        let explained = || testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
        eventually("it saves", || explained().contains("is durable"));
    }
    far.write(&testbed.work.join("end"), "");
    for id in [first, second] {
        testbed.until(id, &["succeeded"]);
        assert_eq!(beginnings(&testbed, id), [0], "{}", output(&testbed, id));
        assert!(output(&testbed, id).contains("done at "));
    }
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
