//! The Job of a group: Indexed, one pod a lease, each of which joins the server as a node. It is made suspended, then the Secret with
//! the tokens, which it owns, and then it is let go: a pod finds its token, or there is none. Each pod sees its own token alone.

use super::kinds::Kind;
use super::labels::GPU;
use super::settings::KubernetesSettings;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use windfall_core::pool::Shape;
use windfall_core::{DecisionId, Installation, LeaseId, NodeId};

/// What stands before the group's id in the name of a Job.
const PREFIX: &str = "windfall-";
/// The label that everything of ours carries, with the installation that it is of.
pub(super) const INSTALLATION: &str = "windfall.dev/installation";
/// The label of everything of a group.
pub(super) const GROUP: &str = "windfall.dev/group";
/// The annotation that says who a group is for.
const OWNER: &str = "windfall.dev/owner";
/// The annotation by which Kubernetes numbers the pods of a Job.
pub(super) const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The container of a pod that is ours; one of this name in a template is added to.
const CONTAINER: &str = "windfall";
/// Tells an agent that its environment is the image's.
const IN_POD: &str = "WINDFALL_POD";
/// Where things are in a pod.
const TOKEN: &str = "/run/windfall/token";
const SCRATCH: &str = "/run/windfall/scratch";
const PROGRAM_FOLDER: &str = "/run/windfall/bin";
/// How long a program has to save when its pod is deleted or evicted, where a template does not say: the longest notice of a cloud.
const GRACE_SECONDS: u32 = 120;
/// A Job that is over stays for so long, for whoever looks; we delete it earlier.
const KEPT_SECONDS: u32 = 3_600;

/// What a Job, and its Secret, are called.
pub(super) fn job_name(group: DecisionId) -> String {
    format!("{PREFIX}{group}")
}

/// The group that a Job of ours is.
pub(super) fn group_of(name: &str) -> Option<DecisionId> {
    let lease: LeaseId = name.strip_prefix(PREFIX)?.parse().ok()?;
    (lease.slot == 0).then_some(lease.group)
}

/// What a lease's node is called here.
pub(super) fn node_name(lease: LeaseId) -> String {
    format!("kubernetes-{lease}")
}

/// What is asked of a pod's node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked<'a> {
    pub kind: &'a Kind,
    /// So many of its accelerators.
    pub count: u32,
    pub units: u32,
    /// What a worker needs beside them; zero where nobody said.
    pub needs: Shape,
    /// The nodes that were chosen; empty for any of the kind.
    pub on: &'a [NodeId],
}

/// The Job of a group, not yet let go.
pub(super) fn job(
    settings: &KubernetesSettings,
    template: &Value,
    group: DecisionId,
    owner: &str,
    asked: &Asked,
) -> Value {
    let labels = marks(group);
    let mut annotations = Map::new();
    if !owner.is_empty() {
        annotations.insert(OWNER.to_owned(), json!(owner));
    }
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": { "name": job_name(group), "labels": labels, "annotations": annotations },
        "spec": {
            "suspend": true,
            "completionMode": "Indexed",
            "completions": asked.units,
            "parallelism": asked.units,
            // Only the brain tries again.
            "backoffLimit": 0,
            "podReplacementPolicy": "Failed",
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": pod(settings, template, group, asked),
        },
    })
}

/// The Secret with the tokens of a group, one for each slot, which goes when its Job does.
pub(super) fn secret(group: DecisionId, job_uid: &str, tokens: &[String]) -> Value {
    let data: Map<String, Value> =
        tokens.iter().enumerate().map(|(slot, token)| (slot.to_string(), json!(STANDARD.encode(token)))).collect();
    let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job_name(group), "uid": job_uid });
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": job_name(group), "labels": marks(group), "ownerReferences": [owner] },
        "type": "Opaque",
        "data": data,
    })
}

fn marks(group: DecisionId) -> BTreeMap<&'static str, String> {
    [
        ("app.kubernetes.io/managed-by", "windfall".to_owned()),
        (INSTALLATION, installation(group.installation)),
        (GROUP, group.to_string()),
    ]
    .into()
}

pub(super) fn installation(of: Installation) -> String {
    of.to_string()
}

fn pod(settings: &KubernetesSettings, template: &Value, group: DecisionId, asked: &Asked) -> Value {
    let mut pod = if template.is_object() { template.clone() } else { json!({}) };
    let labels = object(&mut pod, "metadata", "labels");
    labels.extend(marks(group).into_iter().map(|(key, value)| (key.to_owned(), json!(value))));
    let spec = &mut pod["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    spec["restartPolicy"] = json!("Never");
    let usual = [
        ("terminationGracePeriodSeconds", json!(GRACE_SECONDS)),
        // What runs in it is anybody's program.
        ("automountServiceAccountToken", json!(false)),
        ("enableServiceLinks", json!(false)),
    ];
    for (key, value) in usual.into_iter().filter(|(key, _)| template["spec"].get(*key).is_none()) {
        spec[key] = value;
    }
    if let Some(class) = &settings.priority_class {
        spec["priorityClassName"] = json!(class);
    }
    let tolerations = [json!({ "key": GPU, "operator": "Exists" })];
    list(spec, "tolerations").extend(tolerations.into_iter().filter(|_| asked.count > 0));
    let volumes = [
        json!({ "name": "windfall-tokens", "secret": { "secretName": job_name(group) } }),
        json!({ "name": "windfall-scratch", "emptyDir": {} }),
        json!({ "name": "windfall-bin", "emptyDir": {} }),
    ];
    list(spec, "volumes").extend(volumes);
    spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = affinity(asked);
    let containers = list(spec, "containers");
    let is_ours = |container: &Value| container["name"] == CONTAINER;
    let at = containers.iter().position(is_ours);
    let mut own = at.map_or_else(|| json!({ "name": CONTAINER }), |at| containers.remove(at));
    let theirs = list(&mut own, "volumeMounts").clone();
    fill_in(&mut own, settings, asked);
    // The first one is what `kubectl logs` shows.
    containers.insert(0, own);
    if settings.program.is_none() {
        list(spec, "initContainers").insert(0, bringer(settings, theirs));
    }
    pod
}

/// The container whose process joins.
fn fill_in(own: &mut Value, settings: &KubernetesSettings, asked: &Asked) {
    if own.get("image").is_none() {
        own["image"] = json!(settings.image);
    }
    let program = match &settings.program {
        Some(program) => program.to_string_lossy().into_owned(),
        None => format!("{PROGRAM_FOLDER}/windfall"),
    };
    let mut command = vec![program];
    command
        .extend(["agent", "pilot", &settings.server, "--scratch", SCRATCH, "--token-file", TOKEN].map(str::to_owned));
    if asked.count > 0 {
        command.extend(["--accelerators".to_owned(), format!("{}:{}", asked.kind.accelerator, asked.count)]);
    }
    own["command"] = json!(command);
    // Whatever else is in its environment, programs see as well.
    list(own, "env").push(json!({ "name": IN_POD, "value": "1" }));
    list(own, "volumeMounts").extend([
        // One file of the Secret: that of this pod's number, which Kubernetes gives to every container of an Indexed Job.
        json!({ "name": "windfall-tokens", "mountPath": TOKEN, "subPathExpr": "$(JOB_COMPLETION_INDEX)", "readOnly": true }),
        json!({ "name": "windfall-scratch", "mountPath": SCRATCH }),
        json!({ "name": "windfall-bin", "mountPath": PROGRAM_FOLDER }),
    ]);
    let (cpu, memory) = beside(asked.kind, asked.count, asked.needs);
    let resources = &mut own["resources"];
    for (what, amount) in
        [("cpu", cpu.map(|millis| format!("{millis}m"))), ("memory", memory.map(|bytes| bytes.to_string()))]
    {
        // What a job says counts more than a template; what nobody says is a template's.
        if let Some(amount) = amount.filter(|_| is_said(what, asked) || resources["requests"].get(what).is_none()) {
            resources["requests"][what] = json!(amount);
        }
    }
    if asked.count > 0 {
        resources["limits"][GPU] = json!(asked.count.to_string());
        resources["requests"][GPU] = json!(asked.count.to_string());
    }
}

fn is_said(what: &str, asked: &Asked) -> bool {
    if what == "cpu" { asked.needs.cpu_millis > 0 } else { asked.needs.memory_bytes > 0 }
}

/// Processors and memory beside the accelerators: what a job needs, or else its part of nine tenths of a node; the rest is for what
/// runs on every node.
pub(super) fn beside(kind: &Kind, count: u32, needs: Shape) -> (Option<u64>, Option<u64>) {
    let part = |all: u64| all / 10 * 9 * u64::from(count) / u64::from(kind.accelerators.max(1));
    let least = kind.nodes.iter().map(|room| room.capacity.memory_bytes).min().unwrap_or(0);
    let cpu = match (needs.cpu_millis, count) {
        (0, 0) => 1_000,
        (0, _) => part(u64::from(kind.cpus) * 1_000),
        (millis, _) => millis,
    };
    let memory = match (needs.memory_bytes, count) {
        (0, 0) => 0,
        (0, _) => part(least),
        (bytes, _) => bytes,
    };
    (Some(cpu).filter(|cpu| *cpu > 0), Some(memory).filter(|bytes| *bytes > 0))
}

/// The container that brings this program, before the other begins. It sees what that sees.
fn bringer(settings: &KubernetesSettings, mounts: Vec<Value>) -> Value {
    let mut mounts = mounts;
    mounts.push(json!({ "name": "windfall-bin", "mountPath": PROGRAM_FOLDER }));
    let image = settings.agent_image.as_ref().unwrap_or(&settings.image);
    json!({
        "name": "windfall-agent",
        "image": image,
        "command": ["windfall", "agent", "copy", PROGRAM_FOLDER],
        "volumeMounts": mounts,
    })
}

/// On which nodes pods may be: those that the brain chose, all of a kind, or those that will be made for them.
fn affinity(asked: &Asked) -> Value {
    let is_in = |key: &str, value: &str| json!({ "key": key, "operator": "In", "values": [value] });
    if !asked.on.is_empty() {
        // One term for each: a field has one value.
        let term = |node: &NodeId| json!({ "matchFields": [is_in("metadata.name", node.name())] });
        return json!({ "nodeSelectorTerms": asked.on.iter().map(term).collect::<Vec<_>>() });
    }
    let rules: Vec<Value> = match asked.kind.elastic {
        Some(_) => asked.kind.labels_of_new.iter().map(|(key, value)| is_in(key, value)).collect(),
        None => {
            let rule = |(key, value): (&&str, &Option<String>)| match value {
                Some(value) => is_in(key, value),
                None => json!({ "key": key, "operator": "DoesNotExist" }),
            };
            asked.kind.labels.iter().map(rule).collect()
        }
    };
    json!({ "nodeSelectorTerms": [{ "matchExpressions": rules }] })
}

/// A list of an object, made where it is not there.
fn list<'a>(of: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let value = &mut of[key];
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut().expect("it is one")
}

fn object<'a>(of: &'a mut Value, outer: &str, inner: &str) -> &'a mut Map<String, Value> {
    let value = &mut of[outer][inner];
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it is one")
}

#[cfg(test)]
mod tests {
    use super::super::kinds::kinds;
    use super::super::objects::Node;
    use super::*;
    use serde_json::from_value;

    const ID: DecisionId = DecisionId { installation: Installation(7), seq: 12 };

    fn settings(more: &str) -> KubernetesSettings {
        serde_json::from_str(&format!(r#"{{"server":"lab:7443","image":"box"{more}}}"#)).expect("settings")
    }

    fn kind() -> Kind {
        let labels = json!({ "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3" });
        let node: Node = from_value(json!({
            "metadata": { "name": "a", "labels": labels },
            "status": { "allocatable": { "cpu": "80", "memory": "800", "nvidia.com/gpu": "8" } },
        }))
        .expect("a node");
        kinds(&[node], &[], &settings(""), |_| false).remove(0)
    }

    fn asked(kind: &Kind) -> Asked<'_> {
        Asked { kind, count: 2, units: 3, needs: Shape::default(), on: &[] }
    }

    #[test]
    fn the_name_of_a_job_is_the_name_of_its_group() {
        assert_eq!(group_of(&job_name(ID)), Some(ID));
        assert_eq!([group_of("windfall-x"), group_of("train"), group_of("windfall-")], [None; 3]);
        // Kubernetes adds the pod's number and five letters, and has 63 of them.
        let longest = DecisionId { installation: Installation(u64::MAX), seq: u64::MAX };
        assert!(job_name(longest).len() + "-9999-abcde".len() <= 63, "{}", job_name(longest));
    }

    #[test]
    fn a_group_is_one_indexed_job_that_kubernetes_never_tries_again() {
        let kind = kind();
        let job = job(&settings(""), &Value::Null, ID, "ada", &asked(&kind));
        let spec = &job["spec"];
        assert_eq!(
            (&spec["suspend"], &spec["completions"], &spec["parallelism"]),
            (&json!(true), &json!(3), &json!(3))
        );
        assert_eq!((&spec["backoffLimit"], &spec["podReplacementPolicy"]), (&json!(0), &json!("Failed")));
        assert_eq!(job["metadata"]["annotations"][OWNER], "ada");
        let pod = &spec["template"]["spec"];
        assert_eq!((&pod["restartPolicy"], &pod["automountServiceAccountToken"]), (&json!("Never"), &json!(false)));
        let own = &pod["containers"][0];
        assert_eq!(
            own["command"],
            json!([
                "/run/windfall/bin/windfall",
                "agent",
                "pilot",
                "lab:7443",
                "--scratch",
                SCRATCH,
                "--token-file",
                TOKEN,
                "--accelerators",
                "H100:2"
            ])
        );
        let resources = json!({ "requests": { "cpu": "18000m", "memory": "180", GPU: "2" }, "limits": { GPU: "2" } });
        assert_eq!(own["resources"], resources, "a part of its node");
        assert_eq!(pod["initContainers"][0]["command"], json!(["windfall", "agent", "copy", PROGRAM_FOLDER]));
        let text = job.to_string();
        assert!(!text.contains("TOKEN\""), "no environment has it: {text}");
    }

    #[test]
    fn each_pod_sees_its_own_token_and_the_job_takes_all_of_them_along() {
        let secret = secret(ID, "uid-1", &["one".to_owned(), "two".to_owned()]);
        assert_eq!(secret["data"], json!({ "0": "b25l", "1": "dHdv" }));
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], "uid-1");
        let kind = kind();
        let job = job(&settings(""), &Value::Null, ID, "", &asked(&kind));
        let mount = &job["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0];
        assert_eq!((&mount["subPathExpr"], &mount["mountPath"]), (&json!("$(JOB_COMPLETION_INDEX)"), &json!(TOKEN)));
    }

    #[test]
    fn a_template_is_added_to_and_what_a_job_says_counts_more() {
        let template = json!({
            "metadata": { "labels": { "team": "nlp" } },
            "spec": {
                "hostNetwork": true,
                "terminationGracePeriodSeconds": 30,
                "tolerations": [{ "key": "dedicated" }],
                "volumes": [{ "name": "data" }],
                "containers": [
                    { "name": "proxy", "image": "proxy" },
                    {
                        "name": "windfall", "image": "theirs", "env": [{ "name": "A", "value": "b" }],
                        "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                        "resources": { "requests": { "cpu": "3", "memory": "5" } },
                    },
                ],
            },
        });
        let kind = kind();
        let more = r#","program":"/opt/windfall","priority_class":"research""#;
        let needs = Shape { cpu_millis: 4_000, ..Shape::default() };
        let job = job(&settings(more), &template, ID, "", &Asked { needs, ..asked(&kind) });
        let pod = &job["spec"]["template"];
        assert_eq!(
            (&pod["metadata"]["labels"]["team"], &pod["metadata"]["labels"][GROUP]),
            (&json!("nlp"), &json!(ID.to_string()))
        );
        let spec = &pod["spec"];
        assert_eq!((&spec["hostNetwork"], &spec["terminationGracePeriodSeconds"]), (&json!(true), &json!(30)));
        assert_eq!((&spec["priorityClassName"], &spec["initContainers"]), (&json!("research"), &Value::Null));
        assert_eq!(spec["tolerations"].as_array().map(Vec::len), Some(2));
        let names: Vec<&Value> =
            spec["containers"].as_array().expect("containers").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["windfall", "proxy"]);
        let own = &spec["containers"][0];
        assert_eq!((&own["image"], &own["command"][0]), (&json!("theirs"), &json!("/opt/windfall")));
        assert_eq!(own["resources"]["requests"], json!({ "cpu": "4000m", "memory": "5", GPU: "2" }));
        assert_eq!(own["volumeMounts"].as_array().map(Vec::len), Some(4));
    }

    #[test]
    fn pods_come_to_the_nodes_of_their_kind_or_to_those_that_were_chosen() {
        let kind = kind();
        let rules = |asked: &Asked| {
            let job = job(&settings(""), &Value::Null, ID, "", asked);
            job["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"].clone()
        };
        let of_kind = rules(&asked(&kind));
        let rules_of_kind = of_kind["nodeSelectorTerms"][0]["matchExpressions"].as_array().expect("rules");
        assert!(rules_of_kind.contains(&json!({ "key": "karpenter.sh/capacity-type", "operator": "DoesNotExist" })));
        let product = json!({ "key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H100-80GB-HBM3"] });
        assert!(rules_of_kind.contains(&product), "{of_kind}");
        let on = [NodeId("kubernetes/a".into()), NodeId("kubernetes/b".into())];
        let chosen = rules(&Asked { on: &on, ..asked(&kind) });
        let field =
            |name: &str| json!({ "matchFields": [{ "key": "metadata.name", "operator": "In", "values": [name] }] });
        assert_eq!(chosen, json!({ "nodeSelectorTerms": [field("a"), field("b")] }));
        let new = [("karpenter.sh/nodepool".to_owned(), "gpus".to_owned())];
        let grows = Kind { elastic: Some(new[0].clone()), labels_of_new: new.into(), ..kind.clone() };
        let rule = json!({ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["gpus"] });
        assert_eq!(rules(&asked(&grows)), json!({ "nodeSelectorTerms": [{ "matchExpressions": [rule] }] }));
    }
}
