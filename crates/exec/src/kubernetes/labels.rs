//! What nodes' labels and taints say, in the words of every cloud whose Kubernetes we know: how a node is bought, what its accelerators
//! are, where it is, whether more of its kind come when pods wait, and whether it is about to be taken away.

use super::objects::{Labels, Node, Taint};
use std::collections::BTreeMap;
pub(super) use windfall_core::kubernetes::GPU;
use windfall_core::kubernetes::PRODUCTS;
use windfall_core::{Market, Span};

/// Labels that tell how a node is bought: key, value, market. Karpenter's own first, then EKS, GKE and AKS.
const MARKETS: [(&str, &str, Market); 11] = [
    ("karpenter.sh/capacity-type", "spot", Market::Spot),
    ("karpenter.sh/capacity-type", "on-demand", Market::OnDemand),
    ("karpenter.sh/capacity-type", "reserved", Market::Reserved),
    ("eks.amazonaws.com/capacityType", "SPOT", Market::Spot),
    ("eks.amazonaws.com/capacityType", "ON_DEMAND", Market::OnDemand),
    ("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK", Market::Reserved),
    ("cloud.google.com/gke-spot", "true", Market::Spot),
    ("cloud.google.com/gke-preemptible", "true", Market::Spot),
    ("cloud.google.com/gke-provisioning", "spot", Market::Spot),
    ("kubernetes.azure.com/scalesetpriority", "spot", Market::Spot),
    ("kubernetes.azure.com/scalesetpriority", "regular", Market::OnDemand),
];
/// Labels that every node of a cloud's Kubernetes has. One of these that does not say that it is spot is on-demand.
const OF_CLOUDS: [&str; 5] = [
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "kubernetes.azure.com/cluster",
];
const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
/// Whose nodes come when pods wait for them, whoever configured it.
const KARPENTER: &str = "karpenter.sh/nodepool";
/// The accelerators of one of these reach each other by NVLink.
const CLIQUE: &str = "nvidia.com/gpu.clique";

/// Taints of nodes that are about to be taken away, and how long after the taint that is. Whoever drains them evicts pods as well, but
/// perhaps later: the taint is the earliest that can be known.
const ENDS: [(&str, Span); 7] = [
    ("aws-node-termination-handler/spot-itn", Span::seconds(120)),
    ("aws-node-termination-handler/asg-lifecycle-termination", Span::seconds(120)),
    ("cloud.google.com/impending-node-termination", Span::seconds(25)),
    ("kubernetes.azure.com/preempt", Span::seconds(30)),
    ("karpenter.sh/disrupted", Span::minutes(5)),
    ("karpenter.sh/disruption", Span::minutes(5)),
    ("ToBeDeletedByClusterAutoscaler", Span::minutes(5)),
];
/// Whoever deletes a node may not have told its kubelet: what runs there has a moment.
const DELETED: Span = Span::minutes(2);
/// Who deletes a node before it has told anybody, and whose machine may still be there: its pods are deleted after 40 to 60 s.
pub(super) const NODE_IS_GONE: Span = Span::seconds(30);
/// Taints of nodes that may soon be taken away.
const AT_RISK: [&str; 2] =
    ["aws-node-termination-handler/rebalance-recommendation", "DeletionCandidateOfClusterAutoscaler"];

fn first<'a>(labels: &'a Labels, keys: &[&'static str]) -> Option<(&'static str, &'a str)> {
    let said = keys.iter().filter_map(|key| Some((*key, labels.get(*key)?.as_str())));
    said.into_iter().find(|(_, value)| !value.is_empty())
}

/// How a node is bought, and the label that says so.
fn market_said(labels: &Labels) -> Option<(&'static str, Market)> {
    let known = MARKETS.iter().find(|(key, value, _)| labels.get(*key).is_some_and(|said| said == value));
    known.map(|(key, _, market)| (*key, *market))
}

/// How a node is bought: one of nobody's cloud is owned.
pub(super) fn market(labels: &Labels) -> Market {
    match market_said(labels) {
        Some((_, market)) => market,
        None if first(labels, &OF_CLOUDS).is_some() => Market::OnDemand,
        None => Market::Owned,
    }
}

/// What the site calls a node's accelerators.
pub(super) fn product(labels: &Labels) -> Option<&str> {
    first(labels, &PRODUCTS).map(|(_, name)| name)
}

pub(super) fn zone(labels: &Labels) -> &str {
    first(labels, &ZONES).map_or("", |(_, zone)| zone)
}

/// Its place in the topology, by level.
pub(super) fn domains(labels: &Labels) -> BTreeMap<String, String> {
    let levels = [("zone", zone(labels)), ("nvlink", labels.get(CLIQUE).map_or("", String::as_str))];
    levels.into_iter().filter(|(_, at)| !at.is_empty()).map(|(level, at)| (level.to_owned(), at.to_owned())).collect()
}

/// The label by which a node is one of many that come and go; none for one that was simply there. `named` are those that the
/// configuration names.
pub(super) fn elastic(labels: &Labels, named: &[String]) -> Option<(String, String)> {
    let of_karpenter = labels.get(KARPENTER).map(|pool| (KARPENTER.to_owned(), pool.clone()));
    let named = named.iter().filter_map(|pair| pair.split_once('='));
    let named = named.map(|(key, value)| (key.to_owned(), value.to_owned()));
    named.into_iter().find(|(key, value)| labels.get(key) == Some(value)).or(of_karpenter)
}

/// What tells nodes of one kind from others: every key of the tables, and its value where the node has one. Pods that ask for exactly
/// this come to nodes of this kind.
pub(super) fn kind(labels: &Labels) -> BTreeMap<&'static str, Option<String>> {
    let markets = MARKETS.iter().map(|(key, ..)| *key);
    let keys = markets.chain(PRODUCTS).chain([ZONES[0], KARPENTER]);
    keys.map(|key| (key, labels.get(key).cloned())).collect()
}

/// What a node that does not exist yet would have of that: what whoever makes nodes knows beforehand.
pub(super) fn kind_of_new(labels: &Labels, pool: &(String, String)) -> BTreeMap<String, String> {
    let market = market_said(labels).map(|(key, _)| key);
    let known = market.into_iter().chain([ZONES[0]]).filter_map(|key| Some((key.to_owned(), labels.get(key)?.clone())));
    known.chain([pool.clone()]).collect()
}

/// How a node's end is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    /// After this taint, which was added at that moment where that is known.
    Ends(Option<super::objects::Moment>, Span),
    AtRisk,
}

/// Whether a node is about to be taken away.
pub(super) fn announced(node: &Node) -> Option<Announced> {
    let ends = |taint: &Taint| {
        let (_, after) = ENDS.iter().find(|(key, _)| *key == taint.key)?;
        Some(Announced::Ends(taint.time_added, *after))
    };
    let deleted = node.metadata.deletion_timestamp.map(|at| Announced::Ends(Some(at), DELETED));
    let taints = &node.spec.taints;
    let at_risk = taints.iter().any(|taint| AT_RISK.contains(&taint.key.as_str())).then_some(Announced::AtRisk);
    taints.iter().find_map(ends).or(deleted).or(at_risk)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_cloud_says_in_its_own_words_what_is_spot() {
        let said: [(&[(&str, &str)], Market); 11] = [
            (&[("karpenter.sh/capacity-type", "spot")], Market::Spot),
            (&[("karpenter.sh/capacity-type", "on-demand")], Market::OnDemand),
            (&[("eks.amazonaws.com/capacityType", "SPOT"), ("eks.amazonaws.com/nodegroup", "g")], Market::Spot),
            (&[("eks.amazonaws.com/capacityType", "CAPACITY_BLOCK")], Market::Reserved),
            (&[("cloud.google.com/gke-spot", "true")], Market::Spot),
            (&[("cloud.google.com/gke-preemptible", "true")], Market::Spot),
            (&[("cloud.google.com/gke-nodepool", "gpus")], Market::OnDemand),
            (&[("kubernetes.azure.com/scalesetpriority", "spot")], Market::Spot),
            (&[("kubernetes.azure.com/agentpool", "gpus")], Market::OnDemand),
            (&[("kubernetes.io/hostname", "gpu-1")], Market::Owned),
            (&[], Market::Owned),
        ];
        for (pairs, expected) in said {
            assert_eq!(market(&labels(pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn what_comes_and_goes_is_told_from_what_is_there() {
        let karpenter = labels(&[
            (KARPENTER, "gpus"),
            ("karpenter.sh/capacity-type", "spot"),
            (ZONES[0], "a"),
            (PRODUCTS[0], "H100"),
        ]);
        let pool = elastic(&karpenter, &[]).expect("Karpenter makes more");
        let of_new = kind_of_new(&karpenter, &pool);
        assert_eq!(of_new, labels(&[(KARPENTER, "gpus"), ("karpenter.sh/capacity-type", "spot"), (ZONES[0], "a")]));
        let managed = labels(&[("cloud.google.com/gke-nodepool", "gpus")]);
        assert_eq!(elastic(&managed, &[]), None);
        assert!(elastic(&managed, &["cloud.google.com/gke-nodepool=gpus".to_owned()]).is_some());
        let known = kind(&managed);
        assert!(known.values().all(Option::is_none) && known.contains_key("nvidia.com/gpu.product"), "{known:?}");
    }

    #[test]
    fn a_node_that_is_about_to_go_says_when() {
        let mut node = Node::default();
        assert_eq!(announced(&node), None);
        let taint = |key: &str| Taint { key: key.to_owned(), ..Taint::default() };
        node.spec.taints.push(taint(AT_RISK[0]));
        assert_eq!(announced(&node), Some(Announced::AtRisk));
        node.spec.taints.push(taint("aws-node-termination-handler/spot-itn"));
        assert_eq!(announced(&node), Some(Announced::Ends(None, Span::seconds(120))));
    }
}
