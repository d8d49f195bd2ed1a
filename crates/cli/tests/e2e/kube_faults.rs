//! What fails of a real Kubernetes while jobs run on it: its API server, its memory, its kubelet, its nodes, room in a quota.

use super::kube::Cluster;
use super::kubernetes::{least_rights, up};
use super::nodes::{beginnings, free_port, has_saved};
use super::processes;
use super::slurm::counts;
use super::testbed::{Testbed, eventually, is_root, one_at_a_time};
use super::witness::check_ledger;
use rustix::process::Signal;
use serde_json::json;
use std::time::Duration;

/// Longer than the server leaves jobs alone whose engine it does not see.
const ETCD_IS_AWAY: Duration = Duration::from_secs(70);

/// The processes of a job's own program, one for each rank. Other servers have jobs of this number as well.
fn programs(testbed: &Testbed, id: u64) -> Vec<i32> {
    let mut found = processes::of_job(id);
    found.retain(|pid| {
        let line = processes::line(*pid);
        line.starts_with("/bin/sh") && line.contains(&testbed.work.display().to_string())
    });
    found.sort_unstable();
    found
}

/// A gang of two that counts, and has saved.
fn running_gang(testbed: &Testbed) -> u64 {
    let id = testbed.submit(&counts(testbed, 2));
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(testbed, id));
    id
}

fn ends_well(testbed: &Testbed, cluster: &Cluster, id: u64) {
    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    for kind in ["jobs", "pods", "secrets"] {
        eventually(&format!("no {kind} are left"), || cluster.ours(kind).is_empty());
    }
    testbed.run(&["down"]).ends_with(0);
    check_ledger(testbed);
    testbed.leaves_nothing();
}

#[test]
fn what_fails_of_a_control_plane_interrupts_no_job() {
    if !is_root("a Kubernetes cluster") {
        return;
    }
    let (testbed, port, _alone) = (Testbed::bare(), free_port(), one_at_a_time());
    let Some(mut cluster) = Cluster::start(&testbed, "what_fails_of_a_control_plane") else { return };
    up(&testbed, port, &least_rights(&testbed, &cluster));
    let id = running_gang(&testbed);
    let (first, began) = (cluster.ours("jobs"), programs(&testbed, id));
    assert_eq!((first.len(), began.len()), (1, 2));
    let is_silent = || testbed.is_silent("kubernetes") && testbed.job(id)["state"] == "running";

    // The API server dies. What is asked for meanwhile is made when it is back, once.
    cluster.kill("apiserver");
    eventually("it is missed, and the job runs", is_silent);
    let beside = testbed.submit("name: beside\nresources: { accelerators: H100:1 }\nrun: echo here\n");
    std::thread::sleep(Duration::from_secs(5));
    cluster.begin_again("apiserver");
    eventually("the cluster answers again", || !testbed.is_silent("kubernetes"));
    testbed.until(beside, &["succeeded"]);
    eventually("the other one's Job is gone", || cluster.ours("jobs") == first);

    // Nothing can be read or written for more than a minute. Who ends meanwhile ends.
    let stop = testbed.work.join("stop");
    let waits = format!("while [ ! -e {} ]; do sleep 0.1; done", stop.display());
    let brief = testbed.submit(&format!("name: brief\nresources: {{ accelerators: H100:1 }}\nrun: {waits}\n"));
    testbed.until(brief, &["running"]);
    cluster.kill("etcd");
    std::fs::write(&stop, "").unwrap();
    eventually("it is missed, and the job runs", is_silent);
    std::thread::sleep(ETCD_IS_AWAY);
    assert!(is_silent(), "{}", testbed.job(id));
    cluster.begin_again("etcd");
    eventually("the cluster answers again", || !testbed.is_silent("kubernetes"));
    testbed.until(brief, &["succeeded"]);
    eventually("the other one's Job is gone", || cluster.ours("jobs") == first);
    assert_eq!(programs(&testbed, id), began, "nothing of all that was its business");

    // A kubelet that dies leaves containers running, and its node is not ready.
    eventually("its node is well", || cluster.is_ready());
    processes::signal(cluster.kubelet().unwrap(), Signal::KILL);
    eventually("its node is not ready", || !cluster.is_ready());
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!((programs(&testbed, id), cluster.ours("jobs")), (began.clone(), first.clone()));
    cluster.begin_kubelet_again();
    eventually("its node is well again", || cluster.is_ready());
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!((programs(&testbed, id), cluster.ours("jobs")), (began, first));
    let job = testbed.job(id);
    assert_eq!((&job["state"], &job["interruptions"]), (&json!("running"), &json!(0)), "{job}");
    ends_well(&testbed, &cluster, id);
}

fn limits_accelerators(cluster: &Cluster, to: u32) {
    cluster.apply(&json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "team", "namespace": "default" },
        "spec": { "hard": { "requests.nvidia.com/gpu": to.to_string() } },
    }));
}

#[test]
fn a_job_goes_on_when_its_node_is_gone_and_half_a_gang_is_never_asked_for() {
    if !is_root("a Kubernetes cluster") {
        return;
    }
    let (testbed, port, _alone) = (Testbed::bare(), free_port(), one_at_a_time());
    let Some(mut cluster) = Cluster::start(&testbed, "a_job_goes_on_when_its_node_is_gone") else { return };
    // A quota that lets in one of two.
    limits_accelerators(&cluster, 3);
    eventually("the quota counts", || {
        cluster.kubectl(&["get", "quota", "team", "-o", "jsonpath={.status.used}"]).contains('0')
    });
    up(&testbed, port, &cluster.kubeconfig());
    let id = testbed.submit(&counts(&testbed, 2));
    let small = testbed.submit("name: small\nresources: { accelerators: H100:2 }\nrun: echo fits\n");
    testbed.until(small, &["succeeded"]);
    std::thread::sleep(Duration::from_secs(15));
    let events = cluster.kubectl(&["get", "events"]);
    assert!(cluster.ours("pods").is_empty() && !events.contains("exceeded quota"), "half of a gang: {events}");
    // It is asked for beside everything else.
    eventually("the quota is shown", || {
        let limits = testbed.run(&["engines"]).ends_with(0).out;
        limits.contains("quota team") && limits.contains("requests.nvidia.com/gpu")
    });
    limits_accelerators(&cluster, 8);
    testbed.until(id, &["running"]);
    eventually("it has saved", || has_saved(&testbed, id));
    let first = cluster.ours("jobs");

    // Its node is deleted, and the machine knows nothing of it: the program is told before its pod is.
    cluster.kubectl(&["delete", "node", "localhost"]);
    eventually("its Job is over", || !cluster.ours("jobs").contains(&first[0]));
    assert!(programs(&testbed, id).is_empty(), "nothing of it runs any more");
    cluster.register_again();
    eventually("it goes on in another Job", || {
        beginnings(&testbed, id).len() == 2 && !programs(&testbed, id).is_empty()
    });
    let explained = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert!(explained.contains("notice"), "{explained}");
    eventually("it has saved again", || testbed.job(id)["state"] == "running" && programs(&testbed, id).len() == 2);
    std::thread::sleep(Duration::from_secs(5));

    // The machine dies, and with it everything on it; then its node is deleted.
    cluster.kill("node");
    cluster.kubectl(&["delete", "node", "localhost"]);
    cluster.begin_node_again();
    eventually("it goes on once more", || beginnings(&testbed, id).len() == 3 && !programs(&testbed, id).is_empty());
    let begun = beginnings(&testbed, id);
    assert!(begun[0] == 0 && begun[1] > 0 && begun[2] > begun[1], "each from what was saved: {begun:?}");
    assert_eq!(testbed.job(id)["interruptions"], 2, "{}", testbed.job(id));
    ends_well(&testbed, &cluster, id);
}
