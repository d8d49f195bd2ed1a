//! What a cluster has: its nodes by kind, and how much of each is free, with what everybody's pods have of it.

use super::labels::{self, GPU};
use super::objects::{self, Container, Labels, Node, Pod, holds};
use super::settings::KubernetesSettings;
use crate::accelerators::family_of;
use std::collections::BTreeMap;
use windfall_core::pool::{Health, Shape};
use windfall_core::{Market, OfferId};

/// Offers of an engine that only differ in how much of a node they are have this many accelerators at most.
const MOST_ACCELERATORS: u32 = 64;

/// Nodes that are alike: whichever of them a pod gets does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    /// As job files call its accelerators; empty for none.
    pub accelerator: String,
    /// How many one node has.
    pub accelerators: u32,
    /// Whole processors of one node.
    pub cpus: u32,
    pub market: Market,
    pub zone: String,
    /// The label by which more of them come; none where there are only those that there are.
    pub elastic: Option<(String, String)>,
    /// By which labels pods come to them.
    pub labels: BTreeMap<&'static str, Option<String>>,
    /// The same of one that does not exist yet.
    pub labels_of_new: BTreeMap<String, String>,
    pub nodes: Vec<Room>,
}

/// A node, and what is free of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Room {
    pub name: String,
    pub health: Health,
    pub domains: BTreeMap<String, String>,
    pub capacity: Shape,
    /// What pods have of it that are not ours.
    pub foreign: Shape,
    /// What our pods have of it.
    pub ours: Shape,
}

impl Room {
    /// How often so many accelerators, or else a processor, are free.
    pub fn left(&self, count: u32) -> u32 {
        let free =
            |of: fn(&Shape) -> u64| of(&self.capacity).saturating_sub(of(&self.foreign)).saturating_sub(of(&self.ours));
        if self.health != Health::Ready {
            return 0;
        }
        let times = match count {
            0 => free(|shape| shape.cpu_millis) / 1_000,
            count => free(|shape| u64::from(shape.accelerators)) / u64::from(count),
        };
        u32::try_from(times).unwrap_or(u32::MAX)
    }
}

impl Kind {
    /// The parts of a node that can be had: so many of its accelerators, or a processor.
    pub fn parts(&self) -> impl Iterator<Item = u32> + use<> {
        (1..=self.accelerators.min(MOST_ACCELERATORS)).chain([0])
    }

    pub fn part_name(&self, count: u32) -> String {
        if count == 0 { "cpu".to_owned() } else { format!("{}x{count}", self.accelerator) }
    }

    /// `engine/zone/node/part/market`.
    pub fn offer_id(&self, engine: &str, count: u32) -> OfferId {
        let node = match self.accelerators {
            0 => format!("{}cpu", self.cpus),
            many => format!("{}x{many}-{}cpu", self.accelerator, self.cpus),
        };
        let zone = if self.zone.is_empty() { "anywhere" } else { &self.zone };
        let grows = self.elastic.as_ref().map_or(String::new(), |(_, pool)| format!("-{pool}"));
        OfferId::new(&format!("{engine}/{zone}/{node}{grows}/{}/{}", self.part_name(count), self.market))
    }
}

/// Nodes by kind. `is_ours` tells our pods from others'.
pub(super) fn kinds(
    nodes: &[Node],
    pods: &[Pod],
    settings: &KubernetesSettings,
    is_ours: impl Fn(&Pod) -> bool,
) -> Vec<Kind> {
    let mut used: BTreeMap<&str, [Shape; 2]> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| !pod.spec.node_name.is_empty() && !is_over(pod)) {
        let [foreign, ours] = used.entry(&pod.spec.node_name).or_default();
        let all = if is_ours(pod) { ours } else { foreign };
        *all = sum(*all, requests(pod));
    }
    let mut kinds: Vec<Kind> = Vec::new();
    for node in nodes {
        let [foreign, ours] = used.get(node.metadata.name.as_str()).copied().unwrap_or_default();
        let (mut kind, room) = one(node, foreign, ours, settings);
        let is_alike = |other: &&mut Kind| Kind { nodes: Vec::new(), ..(*other).clone() } == kind;
        match kinds.iter_mut().find(is_alike) {
            Some(known) => known.nodes.push(room),
            None => {
                kind.nodes.push(room);
                kinds.push(kind);
            }
        }
    }
    kinds
}

fn one(node: &Node, foreign: Shape, ours: Shape, settings: &KubernetesSettings) -> (Kind, Room) {
    let (of, has) = (&node.metadata.labels, &node.status.allocatable);
    let capacity = shape(has);
    let elastic = labels::elastic(of, &settings.elastic);
    let product = labels::product(of).unwrap_or_default();
    let called = settings.accelerators.get(product).cloned().or_else(|| family_of(product));
    let accelerator = match (capacity.accelerators, product) {
        (0, _) => String::new(),
        (_, "") => "GPU".to_owned(),
        _ => called.unwrap_or_else(|| product.to_owned()),
    };
    let market = match (labels::market(of), &elastic) {
        // What comes when it is asked for is bought.
        (Market::Owned, Some(_)) => Market::OnDemand,
        (market, _) => market,
    };
    let kind = Kind {
        accelerator,
        accelerators: capacity.accelerators,
        cpus: u32::try_from(capacity.cpu_millis / 1_000).unwrap_or(u32::MAX),
        market,
        zone: labels::zone(of).to_owned(),
        labels_of_new: elastic.iter().map(|pool| labels::kind_of_new(of, pool)).next().unwrap_or_default(),
        elastic,
        labels: labels::kind(of),
        nodes: Vec::new(),
    };
    let name = node.metadata.name.clone();
    (kind, Room { name, health: health(node), domains: labels::domains(of), capacity, foreign, ours })
}

/// Of taints only those count that Kubernetes sets by itself: that of accelerators our pods tolerate, and what else a site has tainted
/// its template may tolerate.
fn health(node: &Node) -> Health {
    const NOT_FOR_PODS: [&str; 3] =
        ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "node-role.kubernetes.io/control-plane"];
    let is_sick = |key: &str| NOT_FOR_PODS.iter().any(|begin| key.starts_with(begin));
    let is_kept_away = node.spec.taints.iter().any(|taint| taint.effect != "PreferNoSchedule" && is_sick(&taint.key));
    let is_going = matches!(labels::announced(node), Some(labels::Announced::Ends(..)));
    match holds(&node.status.conditions, "Ready") {
        None => Health::NotReady,
        Some(_) if node.spec.unschedulable || is_kept_away || is_going => Health::Drained,
        Some(_) => Health::Ready,
    }
}

fn is_over(pod: &Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

fn shape(amounts: &Labels) -> Shape {
    Shape {
        accelerators: u32::try_from(objects::whole(amounts, GPU)).unwrap_or(u32::MAX),
        cpu_millis: objects::millis(amounts, "cpu"),
        memory_bytes: objects::whole(amounts, "memory"),
    }
}

fn sum(one: Shape, other: Shape) -> Shape {
    Shape {
        accelerators: one.accelerators.saturating_add(other.accelerators),
        cpu_millis: one.cpu_millis.saturating_add(other.cpu_millis),
        memory_bytes: one.memory_bytes.saturating_add(other.memory_bytes),
    }
}

fn most(one: Shape, other: Shape) -> Shape {
    Shape {
        accelerators: one.accelerators.max(other.accelerators),
        cpu_millis: one.cpu_millis.max(other.cpu_millis),
        memory_bytes: one.memory_bytes.max(other.memory_bytes),
    }
}

/// What the scheduler counts of a pod: its containers together, or the largest of those that run before them if that is more.
fn requests(pod: &Pod) -> Shape {
    let of = |container: &Container| shape(&container.resources.requests);
    let stays = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let (beside, before): (Vec<_>, Vec<_>) = pod.spec.init_containers.iter().partition(stays);
    let together = pod.spec.containers.iter().chain(beside).map(of).fold(Shape::default(), sum);
    let largest = before.into_iter().map(of).fold(Shape::default(), most);
    sum(most(together, largest), shape(&pod.spec.overhead))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json};

    fn settings() -> KubernetesSettings {
        serde_json::from_str(r#"{"server":"h:1","image":"box"}"#).expect("settings")
    }

    fn node(name: &str, gpus: &str, labels: Value) -> Node {
        let allocatable = json!({ "cpu": "95500m", "memory": "1Ti", "nvidia.com/gpu": gpus });
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let node = json!({ "metadata": { "name": name, "labels": labels }, "status": { "allocatable": allocatable, "conditions": ready } });
        from_value(node).expect("a node")
    }

    fn pod(on: &str, ours: bool, gpus: &str) -> Pod {
        let requests = json!({ "cpu": "500m", "nvidia.com/gpu": gpus });
        let labels = if ours { json!({ "ours": "yes" }) } else { json!({}) };
        let spec = json!({ "nodeName": on, "containers": [{ "resources": { "requests": requests } }] });
        from_value(json!({ "metadata": { "labels": labels }, "spec": spec, "status": { "phase": "Running" } }))
            .expect("a pod")
    }

    fn h100(zone: &str) -> Value {
        json!({ "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "topology.kubernetes.io/zone": zone })
    }

    #[test]
    fn nodes_that_are_alike_are_one_kind_and_what_others_have_of_them_is_not_free() {
        let nodes = [
            node("a", "8", h100("z")),
            node("b", "8", h100("z")),
            node("c", "8", h100("y")),
            node("d", "0", json!({})),
        ];
        let mut over = pod("b", false, "8");
        over.status.phase = "Succeeded".to_owned();
        let pods = [pod("a", false, "3"), pod("a", true, "2"), over, pod("", false, "8")];
        let kinds = kinds(&nodes, &pods, &settings(), |pod| pod.metadata.labels.contains_key("ours"));
        let names: Vec<Vec<&str>> =
            kinds.iter().map(|kind| kind.nodes.iter().map(|room| room.name.as_str()).collect()).collect();
        assert_eq!(names, [vec!["a", "b"], vec!["c"], vec!["d"]]);
        let rooms = &kinds[0].nodes;
        assert_eq!([rooms[0].left(1), rooms[0].left(2), rooms[0].left(4), rooms[1].left(8)], [3, 1, 0, 1]);
        assert_eq!(
            (rooms[0].foreign.accelerators, rooms[0].ours.accelerators, rooms[0].foreign.cpu_millis),
            (3, 2, 500)
        );
        assert_eq!(kinds[0].offer_id("kubernetes", 4).0.as_ref(), "kubernetes/z/H100x8-95cpu/H100x4/owned");
        assert_eq!(kinds[2].offer_id("kubernetes", 0).0.as_ref(), "kubernetes/anywhere/95cpu/cpu/owned");
        assert_eq!(kinds[2].parts().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn nothing_is_free_of_a_node_that_is_not_well_or_on_its_way_out() {
        let mut cordoned = node("a", "8", h100("z"));
        cordoned.spec.unschedulable = true;
        let mut away = node("a", "8", h100("z"));
        away.status.conditions.clear();
        let mut doomed = node("a", "8", h100("z"));
        doomed.spec.taints =
            from_value(json!([{ "key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule" }])).expect("taints");
        let mut tainted = node("a", "8", h100("z"));
        tainted.spec.taints = from_value(json!([{ "key": "nvidia.com/gpu", "effect": "NoSchedule" }])).expect("taints");
        for (node, health, left) in [
            (cordoned, Health::Drained, 0),
            (away, Health::NotReady, 0),
            (doomed, Health::Drained, 0),
            (tainted, Health::Ready, 2),
        ] {
            let room = &kinds(&[node], &[], &settings(), |_| false)[0].nodes[0];
            assert_eq!((room.health, room.left(4)), (health, left));
        }
    }

    #[test]
    fn what_accelerators_are_called_can_be_said_and_what_grows_is_bought() {
        let mut settings = settings();
        settings.accelerators.insert("mystery".to_owned(), "H200".to_owned());
        settings.elastic.push("pool=gpus".to_owned());
        let named = node("a", "4", json!({ "nvidia.com/gpu.product": "mystery", "pool": "gpus" }));
        let unnamed = node("b", "4", json!({}));
        let kinds = kinds(&[named, unnamed], &[], &settings, |_| false);
        assert_eq!((kinds[0].accelerator.as_str(), kinds[0].market), ("H200", Market::OnDemand));
        assert_eq!(kinds[0].labels_of_new, [("pool".to_owned(), "gpus".to_owned())].into());
        assert_eq!((kinds[1].accelerator.as_str(), kinds[1].market), ("GPU", Market::Owned));
        assert_eq!(
            kinds[0].offer_id("kubernetes", 4).0.as_ref(),
            "kubernetes/anywhere/H200x4-95cpu-gpus/H200x4/on-demand"
        );
    }

    #[test]
    fn a_pod_has_what_its_containers_have_together_or_one_that_runs_before_them() {
        let container = |cpu: &str| json!({ "resources": { "requests": { "cpu": cpu } } });
        let beside = json!({ "restartPolicy": "Always", "resources": { "requests": { "cpu": "1" } } });
        let of = |before: &str| {
            let spec = json!({
                "containers": [container("1"), container("500m")],
                "initContainers": [container(before), beside],
                "overhead": { "cpu": "100m" },
            });
            requests(&from_value(json!({ "spec": spec })).expect("a pod")).cpu_millis
        };
        assert_eq!([of("1"), of("8")], [2_600, 8_100]);
    }
}
