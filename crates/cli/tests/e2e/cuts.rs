//! A wire that is cut for minutes, which is less than the time after which a machine gives its work up.

use super::far::Far;
use super::nodes::{beginnings, free_port, has_saved, join, output, state_of, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;
use std::time::{Duration, Instant};

/// Longer than anything that a node or its server waits for before it gives a connection up or says so.
const CUT: Duration = Duration::from_secs(180);

#[test]
fn a_job_goes_on_through_a_cut_of_three_minutes_as_if_there_were_none() {
    if !is_root("a machine of its own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "1h");
    let mut far = Far::new(&testbed);
    join(&testbed, &mut far, port, "lab-1");
    let job = "name: patient\nresources: { accelerators: H200:1 }\ncheckpoint: { path: out }\noutputs: [last]\nrun: |\n  \
               n=$(cat out/n 2>/dev/null || echo 0); echo from $n; mkdir -p out\n  \
               while [ ! -e end ]; do n=$((n + 1)); echo at $n; echo $n > out/n.new; mv out/n.new out/n; sleep 0.2; done\n  \
               echo $n > last\n";
    let id = testbed.submit(job);
    eventually("it has saved", || has_saved(&testbed, id));
    let programs = far.programs(id);
    let at =
        |text: &str| -> Vec<u64> { text.lines().filter_map(|line| line.strip_prefix("at ")?.parse().ok()).collect() };

    far.cut(true);
    let until = Instant::now() + CUT;
    eventually("the server notices", || state_of(&testbed, "lab-1").as_deref() == Some("away"));
    let heard = at(&output(&testbed, id)).len();
    while Instant::now() < until {
        assert_eq!(testbed.job(id)["state"], "running", "nobody gives it up");
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(at(&output(&testbed, id)).len() < heard + 50, "the wire was cut");
    far.cut(false);
    eventually("it is back", || state_of(&testbed, "lab-1").as_deref() == Some("ready"));

    let same = far.programs(id);
    assert!(!programs.is_empty() && programs.iter().any(|pid| same.contains(pid)), "{programs:?}, {same:?}");
    far.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    let said = output(&testbed, id);
    let steps = at(&said);
    assert_eq!(steps, (1..=steps.len() as u64).collect::<Vec<_>>(), "all that it said, once and in order");
    assert_eq!(beginnings(&testbed, id), [0], "{said}");
    assert!(steps.len() > heard + 100, "it went on meanwhile: {} steps, {heard} before", steps.len());
    testbed.run(&["get", &id.to_string(), "--into", "back"]).ends_with(0);
    let last = std::fs::read_to_string(testbed.work.join("back/last")).unwrap();
    assert_eq!(last.trim(), steps.len().to_string());
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
