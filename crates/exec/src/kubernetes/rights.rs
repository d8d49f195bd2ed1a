//! What the server does in a cluster, as rights: what is checked before anything is asked for, and what an installation gives.

use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A right: verb, API group, resource, and what it is for. In the namespace of our Jobs, or in the whole cluster.
pub(super) struct Right {
    pub verb: &'static str,
    pub group: &'static str,
    pub resource: &'static str,
    pub everywhere: bool,
    /// Without it nothing works; otherwise, what does not.
    pub without: Option<&'static str>,
}

const fn right(verb: &'static str, group: &'static str, resource: &'static str) -> Right {
    Right { verb, group, resource, everywhere: false, without: None }
}

pub(super) const RIGHTS: [Right; 13] = [
    right("create", "batch", "jobs"),
    right("get", "batch", "jobs"),
    right("list", "batch", "jobs"),
    right("patch", "batch", "jobs"),
    right("delete", "batch", "jobs"),
    right("list", "", "pods"),
    right("create", "", "secrets"),
    right("patch", "", "secrets"),
    Right { everywhere: true, ..right("list", "", "nodes") },
    Right {
        everywhere: true,
        without: Some("what others' pods have of a node counts as free"),
        ..right("list", "", "pods")
    },
    Right { without: Some("quotas are not known before they refuse"), ..right("list", "", "resourcequotas") },
    Right { without: Some("`windfall engines drill` cannot evict"), ..right("create", "", "pods/eviction") },
    Right {
        everywhere: true,
        without: Some("whether priority_class is there is not known"),
        ..right("get", "scheduling.k8s.io", "priorityclasses")
    },
];

impl Right {
    /// `create jobs.batch`.
    pub fn words(&self) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        format!("{} {}{group}", self.verb, self.resource)
    }

    /// What gives it, as a command.
    pub fn mend(&self, namespace: &str) -> String {
        let group = if self.group.is_empty() { String::new() } else { format!(".{}", self.group) };
        let kind = if self.everywhere { "clusterrole" } else { "role" };
        let within = if self.everywhere { String::new() } else { format!(" -n {namespace}") };
        let (verb, resource) = (self.verb, self.resource);
        format!(
            "kubectl create {kind} windfall-{verb}{within} --verb={verb} --resource={resource}{group}  # and bind it"
        )
    }
}

/// The rules of a role with all rights in the namespace of our Jobs, or with all those in the whole cluster.
pub(super) fn rules(everywhere: bool) -> Vec<Value> {
    let mut verbs: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for right in RIGHTS.iter().filter(|right| right.everywhere == everywhere) {
        verbs.entry((right.group, right.resource)).or_default().push(right.verb);
    }
    let rule = |((group, resource), verbs): ((&str, &str), Vec<&str>)| json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs });
    verbs.into_iter().map(rule).collect()
}
