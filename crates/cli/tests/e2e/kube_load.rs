//! Very many Jobs on very many nodes of a real control plane: it is not asked to death. The nodes are hollow: objects without machines.

use super::kills::setting;
use super::kube::Cluster;
use super::kubernetes::up;
use super::nodes::free_port;
use super::testbed::{Testbed, eventually, one_at_a_time, within};
use serde_json::{Value, json};
use std::time::Duration;

/// Nodes of eight accelerators that are ready, as long as nobody looks after them.
fn hollow_nodes(cluster: &Cluster, many: u64) {
    let node = |number: u64| {
        let has = json!({ "cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8" });
        let labels = json!({ "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": format!("zone-{}", number % 2) });
        json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": format!("hollow-{number}"), "labels": labels },
            "status": { "capacity": has, "allocatable": has, "conditions": [{ "type": "Ready", "status": "True" }] },
        })
    };
    let all: Vec<Value> = (0..many).map(node).collect();
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": all }));
}

/// `WINDFALL_HOLLOW_NODES` and `WINDFALL_HOLLOW_JOBS` say how many.
#[test]
fn a_cluster_with_very_many_jobs_is_not_asked_to_death() {
    let (testbed, port, _alone) = (Testbed::bare(), free_port(), one_at_a_time());
    let Some(cluster) = Cluster::start_hollow(&testbed, "a_cluster_with_very_many_jobs") else { return };
    let (nodes, jobs) = (setting("WINDFALL_HOLLOW_NODES", 20), setting("WINDFALL_HOLLOW_JOBS", 40));
    hollow_nodes(&cluster, nodes);
    up(&testbed, port, &cluster.kubeconfig());
    let first = testbed.submit("name: many\nresources: { accelerators: H100:1 }\nrun: sleep 1\n");
    let spec: Value = testbed.get(&format!("/v1/jobs/{first}/spec"));
    for number in 1..jobs {
        let submission = json!({ "key": format!("{number:032x}"), "spec": spec, "deadline_in": null, "env": {} });
        let answer = testbed.post("/v1/jobs", &submission);
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
    }
    let asked = || cluster.requests_of("windfall").values().sum::<u64>();
    eventually("all are made", || cluster.ours("jobs").len() as u64 == jobs);
    eventually("all have nodes", || {
        cluster.objects("pods").iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count() as u64 == jobs
    });
    let making = asked();
    // What it was told of them is taken in.
    std::thread::sleep(Duration::from_secs(10));
    let seconds = setting("WINDFALL_HOLLOW_S", 20);
    let before = asked();
    assert!(!within(Duration::from_secs(seconds), || testbed.is_silent("kubernetes")), "it answers all the time");
    let asked = asked() - before;
    println!(
        "{nodes} nodes, {jobs} Jobs: {:.1} requests to make each; then {asked} in {seconds} s, {:.2} a second",
        making as f64 / jobs as f64,
        asked as f64 / seconds as f64
    );
    // Jobs and their pods every two seconds, nodes, everybody's pods and quotas every five, in pages of 500.
    let pages = |many: u64| many.div_ceil(500).max(1);
    let most = seconds / 2 * 2 * pages(jobs) + seconds / 5 * (pages(nodes) + pages(jobs) + 1) + 2 * pages(jobs) + 8;
    assert!(
        asked <= most,
        "the API server was asked {asked} times in {seconds} s: {:?}",
        cluster.requests_of("windfall")
    );
}
