//! What quotas of a namespace leave: each of their bounds, which of them count pods like ours, and how many more pods they let in.

use super::labels::GPU;
use super::objects::{Quota, thousandths};
use windfall_core::pool::Shape;

/// One bound of a quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub quota: String,
    pub what: String,
    pub hard: String,
    pub used: String,
}

impl Bound {
    /// Whether nothing is left of it.
    pub fn is_used_up(&self) -> bool {
        let (used, hard) = (thousandths(&self.used), thousandths(&self.hard));
        used.zip(hard).is_some_and(|(used, hard)| used >= hard)
    }

    /// How many more pods that ask for this it lets in; none where it does not bound them, or cannot be read.
    fn lets_in(&self, pod: Shape) -> Option<u32> {
        let each = match self.what.as_str() {
            "pods" | "count/pods" => 1_000,
            "cpu" | "requests.cpu" => u128::from(pod.cpu_millis),
            "memory" | "requests.memory" => u128::from(pod.memory_bytes) * 1_000,
            what if what.strip_prefix("requests.") == Some(GPU) => u128::from(pod.accelerators) * 1_000,
            // A group has one of each, however many pods it has.
            "count/jobs.batch" | "secrets" | "count/secrets" if self.is_used_up() => return Some(0),
            _ => return None,
        };
        let left = thousandths(&self.hard)?.saturating_sub(thousandths(&self.used)?);
        left.checked_div(each).map(|times| u32::try_from(times).unwrap_or(u32::MAX))
    }
}

/// How many more pods that ask for this all of them let in, and the one that lets in the fewest; none where nothing bounds them.
pub(super) fn let_in(bounds: &[Bound], pod: Shape) -> Option<(u32, &Bound)> {
    let each = bounds.iter().filter_map(|bound| Some((bound.lets_in(pod)?, bound)));
    each.min_by_key(|(times, _)| *times)
}

/// Whether a quota counts pods like ours: they ask for processors and have no deadline of their own. What is said in other words
/// is left to the cluster to refuse.
pub(super) fn counts_for(quota: &Quota, priority_class: Option<&str>) -> bool {
    let counts = |scope: &str| matches!(scope, "NotTerminating" | "NotBestEffort");
    let of_class = |values: &[String]| priority_class.is_some_and(|class| values.iter().any(|value| value == class));
    let selects = quota.spec.scope_selector.match_expressions.iter().all(|rule| {
        let of_priority = rule.scope_name == "PriorityClass" && rule.operator == "In" && of_class(&rule.values);
        of_priority || rule.operator == "Exists" && counts(&rule.scope_name)
    });
    selects && quota.spec.scopes.iter().all(|scope| counts(scope))
}

pub(super) fn of_quota(quota: &Quota) -> Vec<Bound> {
    let bound = |(what, hard): (&String, &String)| Bound {
        quota: quota.metadata.name.clone(),
        what: what.clone(),
        hard: hard.clone(),
        used: quota.status.used.get(what).cloned().unwrap_or_else(|| "0".to_owned()),
    };
    quota.status.hard.iter().map(bound).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json};

    #[test]
    fn a_quota_bounds_what_it_names() {
        let status = json!({ "hard": { "pods": "10", "requests.nvidia.com/gpu": "8" }, "used": { "requests.nvidia.com/gpu": "8" } });
        let quota: Quota = from_value(json!({ "metadata": { "name": "team" }, "status": status })).expect("a quota");
        let bounds = of_quota(&quota);
        let shown: Vec<(&str, &str, bool)> =
            bounds.iter().map(|bound| (bound.what.as_str(), bound.used.as_str(), bound.is_used_up())).collect();
        assert_eq!(shown, [("pods", "0", false), ("requests.nvidia.com/gpu", "8", true)]);
    }

    #[test]
    fn what_a_quota_leaves_is_counted_in_pods() {
        let bound = |what: &str, hard: &str, used: &str| Bound {
            quota: "team".to_owned(),
            what: what.to_owned(),
            hard: hard.to_owned(),
            used: used.to_owned(),
        };
        let pod = Shape { accelerators: 2, cpu_millis: 1_500, memory_bytes: 1 << 30 };
        for (what, hard, used, left) in [
            ("requests.nvidia.com/gpu", "8", "3", Some(2)),
            ("requests.nvidia.com/gpu", "8", "9", Some(0)),
            ("requests.cpu", "4", "500m", Some(2)),
            ("memory", "3Gi", "0", Some(3)),
            ("pods", "10", "4", Some(6)),
            ("count/jobs.batch", "1", "1", Some(0)),
            ("count/jobs.batch", "2", "1", None),
            ("services", "1", "1", None),
            ("requests.nvidia.com/gpu", "many", "0", None),
        ] {
            assert_eq!(bound(what, hard, used).lets_in(pod), left, "{used} of {hard} of {what}");
        }
        let all = [bound("pods", "10", "4"), bound("requests.nvidia.com/gpu", "8", "3")];
        assert_eq!(let_in(&all, pod), Some((2, &all[1])));
        assert_eq!(
            let_in(&all, Shape { accelerators: 0, ..pod }),
            Some((6, &all[0])),
            "it has none of what is bounded"
        );
        assert_eq!(let_in(&[], pod), None);
    }

    #[test]
    fn only_quotas_that_count_pods_like_ours_bound_them() {
        let counts = |spec: serde_json::Value, class: Option<&str>| {
            counts_for(&from_value(json!({ "spec": spec })).expect("a quota"), class)
        };
        let selects = |scope: &str, operator: &str, values: &[&str]| json!({ "scopeSelector": { "matchExpressions": [{ "scopeName": scope, "operator": operator, "values": values }] } });
        assert!(counts(json!({}), None) && counts(json!({ "scopes": ["NotTerminating", "NotBestEffort"] }), None));
        assert!(
            !counts(json!({ "scopes": ["BestEffort"] }), None) && !counts(json!({ "scopes": ["Terminating"] }), None)
        );
        let low = selects("PriorityClass", "In", &["low"]);
        assert!(counts(low.clone(), Some("low")) && !counts(low.clone(), Some("high")) && !counts(low, None));
        assert!(counts(selects("NotTerminating", "Exists", &[]), None));
        assert!(!counts(selects("CrossNamespacePodAffinity", "Exists", &[]), None));
    }
}
