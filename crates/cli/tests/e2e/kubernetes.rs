//! Jobs on a real Kubernetes: pods are real processes in real containers, which are evicted as on any cluster.

use super::kube::{Cluster, IMAGE};
use super::nodes::{beginnings, free_port, has_saved, output};
use super::processes::{self, Role};
use super::slurm::counts;
use super::testbed::{Testbed, eventually, is_root, one_at_a_time};
use super::witness::check_ledger;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::Path;

/// What pods of the test have beside what every pod has: the network of this computer, its programs and these folders.
pub(super) fn template(folders: &[&Path]) -> String {
    let built = Path::new(env!("CARGO_BIN_EXE_windfall")).parent().unwrap();
    let fixed = [("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64")];
    let fixed = fixed.map(|(path, at)| (Path::new(path), Path::new(at), true));
    let own = folders.iter().map(|folder| (*folder, *folder, false));
    let shared = fixed.into_iter().chain([(built, Path::new("/opt/windfall"), true)]).chain(own);
    let shared: Vec<_> = shared.enumerate().collect();
    let volume = |(at, (path, ..)): &(usize, (&Path, &Path, bool))| json!({ "name": format!("shared-{at}"), "hostPath": { "path": path } });
    let mount = |(at, (_, there, is_fixed)): &(usize, (&Path, &Path, bool))| json!({ "name": format!("shared-{at}"), "mountPath": there, "readOnly": is_fixed });
    let volumes: Vec<Value> = shared.iter().map(volume).collect();
    let mounts: Vec<Value> = shared.iter().map(mount).collect();
    let requests = json!({ "cpu": "100m", "memory": "16Mi" });
    let own = json!({ "name": "windfall", "imagePullPolicy": "Never", "volumeMounts": mounts, "resources": { "requests": requests } });
    // JSON is YAML as well.
    json!({ "spec": { "hostNetwork": true, "volumes": volumes, "containers": [own] } }).to_string()
}

pub(super) fn up(testbed: &Testbed, port: u16, kubeconfig: &str) {
    let template = testbed.write("pod.yaml", &template(&[testbed.work.parent().unwrap()]));
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
    let kubeconfig = least_rights(&testbed, &cluster);
    up(&testbed, port, &kubeconfig);
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
    assert!(!checked.contains("it may not"), "it has all rights: {checked}");
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
    up(&testbed, port, &kubeconfig);
    testbed.until(id, &["running"]);
    assert_eq!((beginnings(&testbed, id).len(), cluster.ours("jobs")), (1, first.clone()), "{}", output(&testbed, id));

    a_stray_is_swept(&testbed, &cluster, &first[0]);

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

/// Installs what `windfall k8s install` prints, and gives a kubeconfig of the service account that it makes, which has no other rights.
pub(super) fn least_rights(testbed: &Testbed, cluster: &Cluster) -> String {
    let install = |more: &[&str]| {
        let args = ["k8s", "install", "--namespace", "default"];
        let printed = testbed.run(&[&args, more].concat()).ends_with(0).out;
        let file = testbed.write("install.yaml", &printed);
        cluster.kubectl(&["apply", "-f", file.to_str().unwrap()])
    };
    let said = install(&["--account-only"]);
    assert_eq!(said.matches(" created").count(), 5, "{said}");
    // The whole of it is what an API server takes, and its pod is one that may be made.
    let said = install(&["--image", IMAGE, "--program-image", IMAGE]);
    assert!(said.contains("deployment.apps/windfall created") && said.contains("service/windfall created"), "{said}");
    eventually("its pod is made", || {
        cluster.objects("pods").iter().any(|pod| pod["spec"]["serviceAccountName"] == "windfall")
    });
    for kind in ["deployment", "service", "pvc", "configmap"] {
        cluster.kubectl(&["delete", kind, "windfall"]);
    }
    eventually("it is gone", || cluster.objects("pods").is_empty());
    let may = |words: &[&str]| {
        let who = "--as=system:serviceaccount:default:windfall";
        cluster.kubectl(&[&["auth", "can-i"], words, &[who]].concat())
    };
    assert_eq!(may(&["delete", "jobs"]), "yes");
    for words in [["get", "secrets"], ["list", "secrets"], ["delete", "pods"], ["delete", "nodes"], ["create", "pods"]]
    {
        assert_eq!(may(&words), "no", "{words:?}");
    }
    assert_eq!(may(&["create", "jobs", "-n", "kube-system"]), "no");
    let token = cluster.kubectl(&["create", "token", "windfall"]);
    cluster.kubeconfig_of("least", &token)
}

/// A Job that this server made, and that its log does not know: it is shown and ended, and another server's is not.
fn a_stray_is_swept(testbed: &Testbed, cluster: &Cluster, known: &str) {
    let installation = known.split('-').nth(1).unwrap();
    let [stray, other] = [format!("{installation}-999999"), "00000000000000aa-7".to_owned()];
    for group in [&stray, &other] {
        let labels = json!({ "windfall.dev/installation": group.split('-').next(), "windfall.dev/group": group });
        let container =
            json!({ "name": "windfall", "image": IMAGE, "imagePullPolicy": "Never", "command": ["sleep", "1000"] });
        let pod = json!({ "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "hostNetwork": true, "containers": [container] });
        cluster.apply(&json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": { "name": format!("windfall-{group}"), "namespace": "default", "labels": labels },
            "spec": {
                "backoffLimit": 0, "completionMode": "Indexed", "completions": 1, "parallelism": 1,
                "template": { "metadata": { "labels": labels }, "spec": pod },
            },
        }));
    }
    let shown = testbed.run(&["engines", "sweep", "--dry-run", "--json"]).ends_with(0).json();
    let said = testbed.run(&["engines", "sweep"]).ends_with(0).out;
    // The server sweeps now and then by itself: it may have been quicker.
    let is_named = said.contains(&format!("kubernetes has ended lease {stray},"));
    assert!(is_named || said.contains("hold nothing of ours"), "{said}");
    let mut shown = shown.as_array().unwrap().iter();
    assert!(shown.all(|shown| shown["lease"] == json!(stray)), "{said}");
    // Its pod has a moment to end.
    eventually("it is gone", || !cluster.ours("jobs").contains(&format!("windfall-{stray}")));
    assert!(cluster.ours("jobs").contains(&format!("windfall-{other}")), "another server's is spared");
    cluster.kubectl(&["delete", "job", &format!("windfall-{other}")]);
    eventually("only what is known is left", || cluster.ours("jobs") == [known]);
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
        { "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "lacking", "namespace": "default" } },
        { "apiVersion": format!("{api}/v1"), "kind": "ClusterRole", "metadata": { "name": "lacking" }, "rules": rules },
        { "apiVersion": format!("{api}/v1"), "kind": "ClusterRoleBinding", "metadata": { "name": "lacking" },
          "roleRef": { "apiGroup": api, "kind": "ClusterRole", "name": "lacking" },
          "subjects": [{ "kind": "ServiceAccount", "name": "lacking", "namespace": "default" }] },
    ] }));
    let token = cluster.kubectl(&["create", "token", "lacking"]);
    up(testbed, port, &cluster.kubeconfig_of("lacking", &token));
    let said = testbed.run(&["engines", "check"]).ends_with(2).out;
    assert!(said.contains("it may not patch jobs.batch in namespace default"), "{said}");
    assert!(said.contains("--verb=patch --resource=jobs.batch") && said.matches("it may not").count() == 1, "{said}");
    assert!(!said.contains(&token), "a token is never shown");
    testbed.run(&["down"]).ends_with(0);
}
