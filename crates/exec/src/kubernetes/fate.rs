//! What became of a pod, from what the API server shows of it: nothing is asked, and nothing is done.

use super::objects::{Condition, ContainerStatus, Pod, holds};
use windfall_core::{LeaseEnd, Time};

/// A container that does not begin for one of these reasons will not, unless a person does something.
const WILL_NOT_BEGIN: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];
/// Reasons of a disruption that somebody else's need, or their node's, is behind.
const TAKEN: [&str; 4] =
    ["PreemptionByScheduler", "TerminationByKubelet", "DeletionByTaintManager", "EvictionByEvictionAPI"];

/// Where a pod stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has no node yet, and why, where the scheduler says so.
    Waits {
        why: Option<String>,
    },
    /// It is on its node, and what it needs is fetched.
    Begins {
        since: Option<Time>,
    },
    /// It will not begin.
    Broken {
        why: String,
    },
    Runs,
    /// It is being deleted or evicted, and will be gone by then.
    Ends {
        at: Time,
        end: LeaseEnd,
    },
    /// Nothing of it runs any more.
    Over {
        at: Option<Time>,
        end: LeaseEnd,
        why: String,
    },
}

impl Fate {
    pub fn of(pod: &Pod) -> Fate {
        let status = &pod.status;
        if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
            return Fate::Over { at: finished(pod), end: end_of(pod), why: said_at_its_end(pod) };
        }
        if let Some(at) = pod.metadata.deletion_timestamp {
            return Fate::Ends { at: at.0, end: end_of(pod) };
        }
        // A kubelet that preempts or evicts says so before the pod is marked for deletion, if it ever is.
        if pod.spec.node_name.is_empty() {
            let scheduled = status.conditions.iter().find(|one| one.kind == "PodScheduled" && one.status == "False");
            let why = scheduled.map(|one| one.message.clone()).filter(|message| !message.is_empty());
            return Fate::Waits { why };
        }
        let all = || status.init_container_statuses.iter().chain(&status.container_statuses);
        if let Some(why) = all().find_map(broken) {
            return Fate::Broken { why };
        }
        match status.phase.as_str() {
            "Running" | "Unknown" => Fate::Runs,
            _ => Fate::Begins { since: scheduled_at(pod) },
        }
    }

    /// Whether it has a node, or had one.
    pub fn is_placed(&self) -> bool {
        !matches!(self, Fate::Waits { .. })
    }
}

/// When a pod was given its node.
pub(super) fn scheduled_at(pod: &Pod) -> Option<Time> {
    holds(&pod.status.conditions, "PodScheduled").and_then(|one| one.last_transition_time).map(|at| at.0)
}

/// Why a container will not begin.
fn broken(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.waiting.as_ref()?;
    let known = WILL_NOT_BEGIN.contains(&waiting.reason.as_str());
    known.then(|| match waiting.message.as_str() {
        "" => format!("{} ({})", waiting.reason, container.name),
        message => format!("{} ({}): {message}", waiting.reason, container.name),
    })
}

fn disruption(pod: &Pod) -> Option<&Condition> {
    holds(&pod.status.conditions, "DisruptionTarget")
}

/// As what it counts that a pod is over.
fn end_of(pod: &Pod) -> LeaseEnd {
    let was_taken = |reason: &str| TAKEN.contains(&reason);
    match disruption(pod) {
        Some(condition) if was_taken(&condition.reason) => LeaseEnd::Taken,
        // Its node is gone, or went to sleep.
        Some(_) => LeaseEnd::Lost,
        None if matches!(pod.status.reason.as_str(), "Evicted" | "Preempting" | "Terminated" | "NodeShutdown") => {
            LeaseEnd::Taken
        }
        None if pod.metadata.deletion_timestamp.is_some() => LeaseEnd::Revoked,
        None => LeaseEnd::Lost,
    }
}

fn finished(pod: &Pod) -> Option<Time> {
    let ended = pod.status.container_statuses.iter().filter_map(|one| one.state.terminated.as_ref());
    ended.filter_map(|ended| ended.finished_at).max().map(|at| at.0)
}

fn said_at_its_end(pod: &Pod) -> String {
    let disrupted = disruption(pod).map(|one| format!("{}: {}", one.reason, one.message));
    let ended = || {
        let bad = |one: &&ContainerStatus| one.state.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0);
        let all = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
        let bad = all.into_iter().find(bad)?;
        let ended = bad.state.terminated.as_ref()?;
        let more = if ended.message.is_empty() { String::new() } else { format!(": {}", ended.message.trim()) };
        Some(format!("{} ({}), code {}{more}", ended.reason, bad.name, ended.exit_code))
    };
    let status = &pod.status;
    let told = || (!status.reason.is_empty()).then(|| format!("{}: {}", status.reason, status.message));
    disrupted.or_else(told).or_else(ended).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn of(metadata: Value, node: &str, status: Value) -> Fate {
        let pod = json!({ "metadata": metadata, "spec": { "nodeName": node }, "status": status });
        Fate::of(&from_value(pod).expect("a pod"))
    }

    fn disrupted(reason: &str) -> Value {
        json!([{ "type": "DisruptionTarget", "status": "True", "reason": reason, "message": "m" }])
    }

    #[test]
    fn a_pod_waits_begins_and_runs() {
        let message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.";
        let unschedulable =
            json!([{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message }]);
        let waits = of(json!({}), "", json!({ "phase": "Pending", "conditions": unschedulable }));
        assert_eq!(waits, Fate::Waits { why: Some(message.to_owned()) });
        assert_eq!(of(json!({}), "", json!({})), Fate::Waits { why: None });
        let scheduled =
            json!([{ "type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:05Z" }]);
        let begins = of(json!({}), "n", json!({ "phase": "Pending", "conditions": scheduled }));
        assert_eq!(begins, Fate::Begins { since: Some(Time(5_000)) });
        assert_eq!(of(json!({}), "n", json!({ "phase": "Running" })), Fate::Runs);
        assert!(begins.is_placed() && !waits.is_placed());
    }

    #[test]
    fn what_will_not_begin_says_why() {
        let waiting = |reason: &str| json!([{ "name": "windfall", "state": { "waiting": { "reason": reason, "message": "no such image" } } }]);
        let of_main =
            of(json!({}), "n", json!({ "phase": "Pending", "containerStatuses": waiting("ImagePullBackOff") }));
        assert_eq!(of_main, Fate::Broken { why: "ImagePullBackOff (windfall): no such image".to_owned() });
        let of_init =
            of(json!({}), "n", json!({ "phase": "Pending", "initContainerStatuses": waiting("CreateContainerError") }));
        assert!(matches!(of_init, Fate::Broken { .. }));
        let creating =
            of(json!({}), "n", json!({ "phase": "Pending", "containerStatuses": waiting("ContainerCreating") }));
        assert_eq!(creating, Fate::Begins { since: None });
    }

    #[test]
    fn who_ends_a_pod_is_told_apart() {
        let deleted = json!({ "deletionTimestamp": "1970-01-01T00:01:00Z" });
        let at = Time(60_000);
        for (reason, end) in [
            ("EvictionByEvictionAPI", LeaseEnd::Taken),
            ("PreemptionByScheduler", LeaseEnd::Taken),
            ("DeletionByTaintManager", LeaseEnd::Taken),
            ("DeletionByPodGC", LeaseEnd::Lost),
        ] {
            let status = json!({ "phase": "Running", "conditions": disrupted(reason) });
            assert_eq!(of(deleted.clone(), "n", status.clone()), Fate::Ends { at, end }, "{reason}");
            let failed = of(json!({}), "n", json!({ "phase": "Failed", "conditions": disrupted(reason) }));
            assert_eq!(failed, Fate::Over { at: None, end, why: format!("{reason}: m") });
        }
        // Somebody has deleted it, or its Job.
        assert_eq!(of(deleted, "n", json!({ "phase": "Running" })), Fate::Ends { at, end: LeaseEnd::Revoked });
        let evicted = of(json!({}), "n", json!({ "phase": "Failed", "reason": "Evicted", "message": "out of disk" }));
        assert_eq!(evicted, Fate::Over { at: None, end: LeaseEnd::Taken, why: "Evicted: out of disk".to_owned() });
        let ended = json!([{ "name": "windfall", "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled", "finishedAt": "1970-01-01T00:00:09Z" } } }]);
        let over = of(json!({}), "n", json!({ "phase": "Failed", "containerStatuses": ended }));
        let why = "OOMKilled (windfall), code 137".to_owned();
        assert_eq!(over, Fate::Over { at: Some(Time(9_000)), end: LeaseEnd::Lost, why });
    }
}
