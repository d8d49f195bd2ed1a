//! What is read of a cluster's objects, and nothing else of them. Whatever is not there is as good as empty: versions of Kubernetes
//! differ in what they leave out.

use serde::Deserialize;
use std::collections::BTreeMap;
use windfall_core::Time;
pub(super) use windfall_core::kubernetes::thousandths;

pub(super) type Labels = BTreeMap<String, String>;

/// A page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct Listed<T> {
    #[serde(default)]
    pub metadata: Page,
    pub items: Option<Vec<T>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Page {
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// What the API server says where it refuses.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub message: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Metadata {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub labels: Labels,
    pub annotations: Labels,
    pub creation_timestamp: Option<Moment>,
    /// Of something that is being deleted: when it will be gone at the latest.
    pub deletion_timestamp: Option<Moment>,
}

/// A moment as Kubernetes writes it: `2026-01-31T12:00:00Z`, perhaps with a fraction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Moment(pub Time);

impl TryFrom<String> for Moment {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Moment, jiff::Error> {
        text.parse::<jiff::Timestamp>().map(|at| Moment(Time(at.as_millisecond())))
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Moment>,
}

/// The condition of this kind that holds.
pub(super) fn holds<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|one| one.kind == kind && one.status == "True")
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub metadata: Metadata,
    pub spec: NodeSpec,
    pub status: NodeStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeSpec {
    /// Somebody has cordoned it.
    pub unschedulable: bool,
    pub taints: Vec<Taint>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Taint {
    pub key: String,
    pub effect: String,
    pub time_added: Option<Moment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeStatus {
    pub allocatable: Labels,
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub metadata: Metadata,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpec {
    pub node_name: String,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    /// What the runtime itself needs.
    pub overhead: Labels,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub resources: Resources,
    /// Of a container that begins before the others: `Always` for one that goes on beside them.
    pub restart_policy: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Resources {
    pub requests: Labels,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodStatus {
    pub phase: String,
    pub reason: String,
    pub message: String,
    pub conditions: Vec<Condition>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerStatus {
    pub name: String,
    pub state: ContainerState,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ContainerState {
    pub waiting: Option<Waiting>,
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub reason: String,
    pub message: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Terminated {
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    pub finished_at: Option<Moment>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Job {
    pub metadata: Metadata,
    pub spec: JobSpec,
    pub status: JobStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobSpec {
    pub suspend: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct JobStatus {
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Quota {
    pub metadata: Metadata,
    pub spec: QuotaSpec,
    pub status: QuotaStatus,
}

/// Which pods a quota counts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct QuotaSpec {
    pub scopes: Vec<String>,
    pub scope_selector: ScopeSelector,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScopeSelector {
    pub match_expressions: Vec<ScopeRule>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ScopeRule {
    pub scope_name: String,
    pub operator: String,
    pub values: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct QuotaStatus {
    pub hard: Labels,
    pub used: Labels,
}

/// Whether we may do something.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Review {
    pub status: ReviewStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReviewStatus {
    pub allowed: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Version {
    pub git_version: String,
}

/// A whole amount: what is no amount is none of it.
pub(super) fn whole(amounts: &Labels, of: &str) -> u64 {
    let thousandths = amounts.get(of).and_then(|text| thousandths(text)).unwrap_or(0);
    u64::try_from(thousandths / 1_000).unwrap_or(u64::MAX)
}

/// An amount in thousandths, as processors are counted.
pub(super) fn millis(amounts: &Labels, of: &str) -> u64 {
    let thousandths = amounts.get(of).and_then(|text| thousandths(text)).unwrap_or(0);
    u64::try_from(thousandths).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_empty_and_what_is_new_is_passed_over() {
        let text = r#"{"metadata":{"name":"p","deletionTimestamp":"2026-01-31T12:00:00Z","more":1},"status":{"phase":"Running"}}"#;
        let pod: Pod = serde_json::from_str(text).expect("a pod");
        assert_eq!(pod.metadata.deletion_timestamp, Some(Moment(Time(1_769_860_800_000))));
        assert_eq!((pod.spec.node_name.as_str(), pod.status.phase.as_str()), ("", "Running"));
        let fine: Moment = serde_json::from_str("\"2026-01-31T12:00:00.250000Z\"").expect("a fraction");
        assert_eq!(fine.0, Time(1_769_860_800_250));
    }
}
