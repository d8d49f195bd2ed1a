//! What all lines together say. Memory grows with ranks and their pairs, not with lines.

use super::Communicator;
use super::line::{Said, Writer, line};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Warnings that are kept apart; more are counted with the last.
const WARNINGS: usize = 32;

/// Connections of a transport between two ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair {
    /// Which communicator.
    pub of: String,
    pub transport: String,
    pub from: u64,
    pub to: u64,
}

/// Everything that matters in the logs.
#[derive(Default)]
pub struct Facts {
    /// Lines of NCCL.
    pub lines: u64,
    pub version: Option<String>,
    pub hosts: BTreeSet<String>,
    pub network: Option<String>,
    pub adapters: BTreeMap<String, BTreeSet<String>>,
    pub no_adapter: BTreeSet<String>,
    pub nvlink: bool,
    pub communicators: BTreeMap<String, Communicator>,
    pub pairs: BTreeMap<Pair, u64>,
    /// On which host a communicator's rank is.
    pub homes: HashMap<(String, u64), String>,
    pub environment: BTreeMap<String, String>,
    pub warnings: Vec<(String, u64)>,
    pub notes: Vec<String>,
    /// Which communicator a thread sets up, by host, process and thread.
    setting_up: HashMap<(String, String, String), String>,
}

impl Facts {
    /// Takes a line.
    pub fn line(&mut self, text: &str) {
        let Some((writer, said)) = line(text) else { return };
        self.lines += 1;
        if !self.hosts.contains(writer.host) {
            self.hosts.insert(writer.host.to_owned());
        }
        match said {
            Said::Version(version) => self.version = Some(version.to_owned()),
            Said::Network(network) => self.network = Some(network.to_owned()),
            Said::Adapters { network, adapters } => {
                self.adapters.entry(network.to_owned()).or_default().insert(adapters.to_owned());
            }
            Said::NoAdapter(network) => {
                self.no_adapter.insert(network.to_owned());
            }
            Said::Variable { name, value } => {
                self.environment.insert(name.to_owned(), value.to_owned());
            }
            Said::NvLink => self.nvlink = true,
            Said::Warning(text) => self.warning(text),
            Said::Rank { communicator, rank, ranks, ready } => {
                self.rank(&writer, communicator, (rank, ranks), ready);
            }
            Said::Nodes { ranks, nodes } => self.of(&writer, Some(ranks)).nodes = Some(nodes),
            Said::Ring { channels, order } => {
                let communicator = self.of(&writer, Some(order.len() as u64));
                communicator.channels = Some(channels);
                if communicator.ring.is_empty() {
                    communicator.ring = order;
                }
            }
            Said::Trees => self.of(&writer, None).trees = true,
            Said::Channels { collectives, nvls } => {
                let communicator = self.of(&writer, None);
                (communicator.channels, communicator.nvls_channels) = (Some(collectives), Some(nvls));
            }
            Said::Connection { from, to, transport } => {
                let of = self.name(&writer);
                *self.pairs.entry(Pair { of, transport: bare(transport), from, to }).or_default() += 1;
            }
            Said::Other => {}
        }
    }

    fn warning(&mut self, text: &str) {
        let at = self.warnings.iter().position(|(known, _)| known == text);
        let full = self.warnings.len() == WARNINGS;
        match at.or(full.then_some(WARNINGS - 1)).and_then(|at| self.warnings.get_mut(at)) {
            Some((_, count)) => *count += 1,
            None => self.warnings.push((text.to_owned(), 1)),
        }
    }

    fn rank(&mut self, writer: &Writer<'_>, id: Option<&str>, (rank, ranks): (u64, u64), ready: bool) {
        // Older versions give no number: communicators of as many ranks are then taken for one.
        let name = id.map_or_else(|| format!("of {ranks} ranks"), str::to_owned);
        let thread = (writer.host.to_owned(), writer.process.to_owned(), writer.thread.to_owned());
        self.setting_up.insert(thread, name.clone());
        self.homes.insert((name.clone(), rank), writer.host.to_owned());
        let communicator = self.communicators.entry(name).or_default();
        communicator.ranks = ranks;
        communicator.ready += u64::from(ready);
    }

    /// The communicator that a thread sets up.
    fn name(&self, writer: &Writer<'_>) -> String {
        let thread = (writer.host.to_owned(), writer.process.to_owned(), writer.thread.to_owned());
        self.setting_up.get(&thread).cloned().unwrap_or_default()
    }

    fn of(&mut self, writer: &Writer<'_>, ranks: Option<u64>) -> &mut Communicator {
        let name = self.name(writer);
        let communicator = self.communicators.entry(name).or_default();
        communicator.ranks = communicator.ranks.max(ranks.unwrap_or(0));
        communicator
    }

    /// Whether both ends of a pair are on one machine, where that is known.
    pub fn within_node(&self, pair: &Pair) -> Option<bool> {
        let home = |rank| self.homes.get(&(pair.of.clone(), rank));
        if let (Some(from), Some(to)) = (home(pair.from), home(pair.to)) {
            return Some(from == to);
        }
        let nodes = self.communicators.get(&pair.of)?.nodes;
        // Shared memory and peer access never leave a machine, but for racks that NVLink joins.
        (nodes == Some(1) || pair.transport.starts_with("SHM")).then_some(true)
    }
}

/// A transport without the number of its adapter: `NET/IB/3/GDRDMA` is `NET/IB/GDRDMA`.
fn bare(transport: &str) -> String {
    let parts = transport.split('/').filter(|part| !part.bytes().all(|byte| byte.is_ascii_digit()));
    let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "Shared" | "read")).collect();
    parts.join("/")
}
