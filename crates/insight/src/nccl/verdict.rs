//! What the transports mean, worst first.

use super::facts::Facts;
use super::{Link, NcclReport};
use std::collections::{BTreeMap, BTreeSet};

/// Something that costs bandwidth.
struct Finding {
    word: &'static str,
    because: String,
    fix: String,
}

/// Looks for one such thing.
type Rule = fn(&Facts, &[Link]) -> Option<Finding>;

/// The report on all logs.
pub fn report(facts: &Facts) -> NcclReport {
    let links = links(facts);
    let largest = facts.communicators.values().max_by_key(|communicator| communicator.ranks);
    let rules: [Rule; 4] = [network_within_a_node, sockets_between_nodes, no_peer_access, no_gpu_direct];
    let findings: Vec<Finding> = rules.iter().filter_map(|rule| rule(facts, &links)).collect();
    let ranks = largest.map(|communicator| communicator.ranks).filter(|ranks| *ranks > 0);
    let (word, because) = match findings.first() {
        Some(finding) => (finding.word, finding.because.clone()),
        None => healthy(&links, ranks),
    };
    let network = facts.network.clone();
    NcclReport {
        verdict: word.to_owned(),
        because,
        fixes: findings.into_iter().map(|finding| finding.fix).collect(),
        version: facts.version.clone(),
        ranks,
        nodes: largest.and_then(|communicator| communicator.nodes),
        hosts: facts.hosts.iter().cloned().collect(),
        interfaces: network
            .as_ref()
            .and_then(|network| facts.adapters.get(network))
            .map_or_else(Vec::new, |adapters| adapters.iter().cloned().collect()),
        network,
        nvlink: facts.nvlink,
        communicators: facts.communicators.values().filter(|communicator| communicator.ranks > 0).cloned().collect(),
        links,
        environment: facts.environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        warnings: facts.warnings.clone(),
        notes: notes(facts),
    }
}

fn links(facts: &Facts) -> Vec<Link> {
    /// Pairs of ranks and connections of one transport.
    #[derive(Default)]
    struct Sum {
        pairs: BTreeSet<(String, u64, u64)>,
        connections: u64,
    }
    let mut sums: BTreeMap<(String, Option<bool>), Sum> = BTreeMap::new();
    for (pair, connections) in &facts.pairs {
        let sum = sums.entry((pair.transport.clone(), facts.within_node(pair))).or_default();
        sum.pairs.insert((pair.of.clone(), pair.from.min(pair.to), pair.from.max(pair.to)));
        sum.connections += connections;
    }
    let link = |((transport, within_node), sum): (_, Sum)| Link {
        transport,
        within_node,
        pairs: sum.pairs.len() as u64,
        connections: sum.connections,
    };
    sums.into_iter().map(link).collect()
}

fn set(facts: &Facts, names: &[&str]) -> String {
    let said: Vec<String> =
        names.iter().filter_map(|name| facts.environment.get(*name).map(|value| format!("{name}={value}"))).collect();
    if said.is_empty() { String::new() } else { format!(" ({} is set)", said.join(", ")) }
}

fn pairs(links: &[&Link]) -> String {
    let count: u64 = links.iter().map(|link| link.pairs).sum();
    if count == 1 { "1 pair of ranks".to_owned() } else { format!("{count} pairs of ranks") }
}

fn network_within_a_node(facts: &Facts, links: &[Link]) -> Option<Finding> {
    let inside = |link: &&Link| link.within_node == Some(true) && link.transport.starts_with("NET/");
    let found: Vec<&Link> = links.iter().filter(inside).collect();
    let first = found.first()?;
    let sockets = found.iter().any(|link| link.transport.starts_with("NET/Socket"));
    Some(Finding {
        word: if sockets { "sockets within a node" } else { "network within a node" },
        because: format!(
            "{} on the same node talk over {} instead of NVLink, PCIe or shared memory",
            pairs(&found),
            first.transport
        ),
        fix: format!(
            "let ranks of a node see each other: one /dev/shm and one host name for all containers of a node, no NCCL_HOSTID, NCCL_P2P_DISABLE or NCCL_SHM_DISABLE{}",
            set(facts, &["NCCL_HOSTID", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_P2P_LEVEL"])
        ),
    })
}

fn sockets_between_nodes(facts: &Facts, links: &[Link]) -> Option<Finding> {
    let outside = |link: &&Link| link.within_node != Some(true) && link.transport.starts_with("NET/Socket");
    let found: Vec<&Link> = links.iter().filter(outside).collect();
    found.first()?;
    let why = match () {
        () if facts.no_adapter.contains("IB") => "; NCCL found no RDMA adapter",
        () if facts.adapters.contains_key("IB") => "; NCCL found RDMA adapters and did not use them",
        () => "",
    };
    Some(Finding {
        word: "sockets between nodes",
        because: format!("{} on different nodes talk over TCP sockets{why}", pairs(&found)),
        fix: format!(
            "give the job RDMA: machines with InfiniBand, RoCE, EFA or gIB, its devices and its NCCL plugin inside the container, NCCL_IB_DISABLE unset{}",
            set(facts, &["NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "NCCL_NET_PLUGIN"])
        ),
    })
}

fn no_peer_access(facts: &Facts, links: &[Link]) -> Option<Finding> {
    let shared: Vec<&Link> = links.iter().filter(|link| link.transport.starts_with("SHM")).collect();
    shared.first()?;
    Some(Finding {
        word: "no peer access within a node",
        because: format!(
            "{} on the same node copy through the host's memory: their GPUs do not reach each other",
            pairs(&shared)
        ),
        fix: format!(
            "GPUs with NVLink or peer access over PCIe: bare metal or a machine with ACS and IOMMU set for it, NCCL_P2P_DISABLE unset{}; cards for consumers have none",
            set(facts, &["NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_IGNORE_DISABLED_P2P"])
        ),
    })
}

fn no_gpu_direct(facts: &Facts, links: &[Link]) -> Option<Finding> {
    let plain = |link: &&Link| {
        let net = link.transport.strip_prefix("NET/").unwrap_or("Socket");
        !net.starts_with("Socket") && !link.transport.contains("GDRDMA")
    };
    let found: Vec<&Link> = links.iter().filter(plain).collect();
    let first = found.first()?;
    Some(Finding {
        word: "RDMA without GPUDirect",
        because: format!(
            "{} talk over {}, and data stops in the host's memory on its way",
            pairs(&found),
            first.transport
        ),
        fix: format!(
            "GPUDirect RDMA: the module nvidia-peermem or DMA-BUF on the host, adapters near the GPUs{}",
            set(facts, &["NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_IB_GDR_LEVEL"])
        ),
    })
}

fn healthy(links: &[Link], ranks: Option<u64>) -> (&'static str, String) {
    if ranks == Some(1) {
        return ("one rank", "one rank has nobody to talk to".to_owned());
    }
    if links.is_empty() {
        return (
            "connections unknown",
            "the logs do not say how ranks are connected: NCCL writes that with NCCL_DEBUG=INFO at the first collective".to_owned(),
        );
    }
    let names: Vec<&str> = links.iter().map(|link| link.transport.as_str()).collect();
    ("fast transports", format!("ranks talk over {}", names.join(", ")))
}

fn notes(facts: &Facts) -> Vec<String> {
    let mut notes = facts.notes.clone();
    for communicator in facts.communicators.values().filter(|communicator| communicator.ranks > 1) {
        let logged = communicator.ready;
        if logged == 0 {
            notes.push(format!("a communicator of {} ranks was never ready", communicator.ranks));
        } else if logged < communicator.ranks {
            notes.push(format!(
                "the logs have {logged} of {} ranks: connections of the others are not counted",
                communicator.ranks
            ));
        }
    }
    notes.dedup();
    notes
}
