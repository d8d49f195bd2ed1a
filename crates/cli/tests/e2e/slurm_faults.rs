//! What fails on a cluster while jobs of Windfall's run on it: its keys, the program that begins jobs on a node, a node, room.

use super::nodes::{beginnings, free_port, has_saved, output};
use super::slurm::{Cluster, NODES, counts, up};
use super::testbed::{Testbed, eventually, is_root};
use super::witness::check_ledger;
use std::time::Duration;

/// Where a job of Slurm's runs.
fn node_of(cluster: &Cluster, job: &str) -> String {
    cluster.says("squeue", &["-h", "-j", job, "-o", "%N"])
}

fn set(cluster: &Cluster, node: &str, state: &str) {
    cluster.says("scontrol", &["update", &format!("NodeName={node}"), &format!("State={state}"), "Reason=tested"]);
}

fn says_nothing_of(testbed: &Testbed, id: u64) -> bool {
    testbed.is_silent("slurm") && testbed.job(id)["state"] == "running"
}

#[test]
fn what_fails_on_a_cluster_costs_no_more_than_what_failed() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(mut cluster) = Cluster::start(&testbed, "what_fails_on_a_cluster") else { return };
    up(&testbed, &cluster, port, "gpu");
    let id = testbed.submit(&counts(&testbed, 1));
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    let first = cluster.pilots();
    let node = node_of(&cluster, &first[0]);
    let other = NODES.into_iter().find(|other| *other != node).unwrap();

    // Nobody can prove who he is: Slurm answers nobody, and what runs runs on.
    cluster.kill("munged");
    eventually("that is said, and the job runs", || says_nothing_of(&testbed, id));
    cluster.begin_keys();
    eventually("Slurm answers again", || cluster.pilots() == first);

    // What begins jobs on its node dies and comes back; what it has begun never noticed.
    cluster.kill_node(&node);
    std::thread::sleep(Duration::from_secs(3));
    cluster.begin_node(&node);
    eventually("its node is there", || cluster.says("sinfo", &["-h", "-n", &node, "-p", "gpu", "-o", "%t"]) == "mix");

    // A node that is drained finishes what it has, and gets nothing new.
    set(&cluster, &node, "DRAIN");
    let beside = "name: beside\nresources: { accelerators: H100:1 }\nrun: echo on $SLURMD_NODENAME\n";
    let second = testbed.submit(beside);
    testbed.until(second, &["succeeded"]);
    assert!(output(&testbed, second).contains(&format!("on {other}")), "{}", output(&testbed, second));
    eventually("the other one's job is over", || cluster.pilots() == first);
    assert_eq!(beginnings(&testbed, id).len(), 1, "nothing of all that was its business");
    set(&cluster, &node, "RESUME");

    // Slurm gives the node up while nothing of it answers Slurm, and all that it has begun still runs.
    cluster.kill_node(&node);
    set(&cluster, &node, "DOWN");
    eventually("it goes on on the other node", || beginnings(&testbed, id).len() == 2);
    let begun = beginnings(&testbed, id);
    assert!(begun[1] > begun[0], "from what was saved: {begun:?}");
    eventually("it runs", || testbed.job(id)["state"] == "running");
    let now = cluster.pilots();
    assert_eq!((now.len(), node_of(&cluster, &now[0])), (1, other.to_owned()));

    // There is no room for another one until the first is done.
    let waits = "name: waits\nresources: { accelerators: H100:3 }\nrun: echo at last\n";
    let third = testbed.submit(waits);
    eventually("it is in Slurm's queue", || cluster.pilots().len() == 2);
    let explained = testbed.run(&["explain", &third.to_string()]).ends_with(0).out;
    assert!(explained.contains("queue"), "{explained}");
    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    testbed.until(third, &["succeeded"]);
    cluster.begin_node(&node);
    set(&cluster, &node, "RESUME");
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    let left = || std::fs::read_dir(testbed.work.join("scratch")).unwrap().count();
    eventually("nothing of it is on the nodes", || left() == 0);
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
