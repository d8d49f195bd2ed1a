//! Jobs on a real Kubernetes: pods are real processes in real containers, which are evicted as on any cluster.

use super::kube::{Cluster, IMAGE};
use super::nodes::{beginnings, free_port, has_saved, output};
use super::processes::{self, Role};
use super::slurm::counts;
use super::testbed::{Testbed, eventually, is_root, one_at_a_time};
use super::witness::check_ledger;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::path::Path;

/// What pods of the test have beside what every pod has: the network of this computer, its programs and the test's folder.
fn template(testbed: &Testbed) -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_windfall")).parent().unwrap();
    let test = testbed.work.parent().unwrap();
    let shared = [
        ("usr", Path::new("/usr"), Path::new("/usr"), true),
        ("lib", Path::new("/usr/lib"), Path::new("/lib"), true),
        ("lib64", Path::new("/usr/lib64"), Path::new("/lib64"), true),
        ("built", built, Path::new("/opt/windfall"), true),
        ("test", test, test, false),
    ];
    let volumes = shared.map(|(name, path, ..)| json!({ "name": name, "hostPath": { "path": path } }));
    let mounts = shared.map(|(name, _, at, is_fixed)| json!({ "name": name, "mountPath": at, "readOnly": is_fixed }));
    let requests = json!({ "cpu": "100m", "memory": "16Mi" });
    let own = json!({ "name": "windfall", "imagePullPolicy": "Never", "volumeMounts": mounts, "resources": { "requests": requests } });
    // JSON is YAML as well.
    json!({ "spec": { "hostNetwork": true, "volumes": volumes, "containers": [own] } }).to_string()
}

fn up(testbed: &Testbed, port: u16, kubeconfig: &str) {
    let template = testbed.write("pod.yaml", &template(testbed));
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\nimage = \"{IMAGE}\"\n\
         template = \"{}\"\nrate = 2.5\n",
        template.display()
    );
    let config = testbed.write("config.toml", &config);
    testbed.run(&["up", "--config", config.to_str().unwrap()]).ends_with(0);
}

#[test]
fn a_gang_on_kubernetes_goes_on_after_an_eviction_and_after_its_server_was_killed() {
    if !is_root("a Kubernetes cluster") {
        return;
    }
    let (testbed, port, _alone) = (Testbed::bare(), free_port(), one_at_a_time());
    let Some(cluster) = Cluster::start(&testbed, "a_gang_on_kubernetes_goes_on") else { return };
    up(&testbed, port, &cluster.kubeconfig());
    eventually("the cluster has something to sell", || {
        let engines = testbed.run(&["engines", "--json"]).ends_with(0).json();
        engines.as_array().unwrap().iter().any(|one| one["name"] == "kubernetes" && one["offers"].as_u64() > Some(1))
    });
    let checked = testbed.run(&["engines", "check"]).ends_with(0).out;
    for words in
        ["Kubernetes v1.", "that it needs in namespace default", "8 of 8 accelerators free", "would be accepted"]
    {
        assert!(checked.contains(words), "no {words:?} in {checked}");
    }
    let id = testbed.submit(&counts(&testbed, 2));
    testbed.until(id, &["running"]);
    let strays = testbed.run(&["engines", "sweep", "--dry-run", "--json"]).ends_with(0).json();
    assert_eq!(strays, json!([]));
    eventually("it has saved", || has_saved(&testbed, id));
    assert!(output(&testbed, id).contains("sees [0,1]"), "{}", output(&testbed, id));
    let first = cluster.ours("jobs");
    let pods = cluster.objects("pods");
    assert_eq!((first.len(), pods.len()), (1, 2), "one Job for both");
    let secrets = cluster.objects("secrets");
    assert_eq!(secrets[0]["metadata"]["ownerReferences"][0]["name"].as_str(), Some(first[0].as_str()), "{secrets:?}");

    // Its Job is the server's only by name, and goes on without it.
    for server in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
        kill_process(Pid::from_raw(server.pid).unwrap(), Signal::KILL).unwrap();
    }
    up(&testbed, port, &cluster.kubeconfig());
    testbed.until(id, &["running"]);
    assert_eq!((beginnings(&testbed, id).len(), cluster.ours("jobs")), (1, first.clone()), "{}", output(&testbed, id));

    // Somebody drains its node.
    cluster.evict(pods[0]["metadata"]["name"].as_str().unwrap());
    eventually("it goes on in another Job", || {
        beginnings(&testbed, id).len() >= 2 && !cluster.ours("jobs").contains(&first[0])
    });
    testbed.until(id, &["running"]);
    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun[0] == 0 && begun.is_sorted() && begun[1] > 0, "it went on from what was saved: {begun:?}");
    assert_eq!(testbed.job(id)["interruptions"], 1, "{}", testbed.job(id));
    for kind in ["jobs", "pods", "secrets"] {
        eventually(&format!("no {kind} are left"), || cluster.ours(kind).is_empty());
    }
    testbed.run(&["down"]).ends_with(0);
    lacks_a_right(&testbed, &cluster, port);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// The check names the right that a service account does not have, and only that.
fn lacks_a_right(testbed: &Testbed, cluster: &Cluster, port: u16) {
    let rule = |group: &str, resource: &str, verbs: &[&str]| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    let rules = json!([
        rule("batch", "jobs", &["create", "get", "list", "delete"]),
        rule("", "pods", &["list"]),
        rule("", "nodes", &["list"]),
        rule("", "secrets", &["create", "patch"]),
        rule("", "resourcequotas", &["list"]),
        rule("", "pods/eviction", &["create"]),
        rule("scheduling.k8s.io", "priorityclasses", &["get"]),
    ]);
    let api = "rbac.authorization.k8s.io";
    cluster.apply(&json!({ "apiVersion": "v1", "kind": "List", "items": [
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "windfall", "namespace": "default" } },
        { "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": "windfall" }, "rules": rules },
        { "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "windfall" },
          "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "windfall" },
          "subjects": [{ "kind": "ServiceAccount", "name": "windfall", "namespace": "default" }] },
    ] }));
    let token = cluster.kubectl(&["create", "token", "windfall"]);
    up(testbed, port, &cluster.kubeconfig_of("lacking", &token));
    let said = testbed.run(&["engines", "check"]).ends_with(2).out;
    assert!(said.contains("it may not patch jobs.batch in namespace default"), "{said}");
    assert!(said.contains("--verb=patch --resource=jobs.batch") && said.matches("it may not").count() == 1, "{said}");
    assert!(!said.contains(&token), "a token is never shown");
    testbed.run(&["down"]).ends_with(0);
}
