//! The brain: a pure fold over what happened and what was decided, and the next decisions.
//!
//! `apply` is total: any record, in any order, any number of times, without panic. `decide` reads the
//! state and changes nothing but caches; a decision takes effect when it comes back through `apply`.

mod apply;
mod ask;
mod awake;
mod books;
mod ceilings;
mod decide;
mod departed;
mod drought;
mod explain;
mod fill_up;
mod following;
mod job;
mod job_table;
mod judge;
mod last_save;
mod lease;
mod lease_table;
mod leases;
mod lookout;
mod news;
mod nodes;
mod obstacles;
mod offers;
mod parts;
mod plans;
mod progress;
mod queue;
mod recent;
mod room_watch;
mod rooms;
mod rules;
mod sharing;
mod show;
mod shown;
mod sight;
mod step;
mod stints;
mod terms;
#[cfg(test)]
mod tests;
mod waits;

pub use crate::config::Config;
pub use departed::Tenure;
pub use drought::Droughts;
pub use explain::Explanation;
pub use job::{Job, Stint, StintPhase, Verdict};
use lease::releases;
pub use lease::{Group, Lease, LeasePhase, Sharer};
pub use parts::{HeldJobs, REST, put_together};
pub use progress::Progress;

use crate::ids::{DecisionId, Installation, LeaseId, NodeId, PoolId, WorkloadId};
use crate::ledger::{LedgerRow, PriceLine};
use crate::market::foresight::{Model, Plan, PlanCache};
use crate::offer::{Offer, OfferId};
use crate::pool::{Node, Pool};
use crate::reason::Reason;
use crate::record::Decision;
use crate::units::{Span, Time};
use awake::Awake;
use following::Following;
use job_table::Jobs;
use lease_table::Leases;
use recent::{Closed, Keys};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Submissions of ended jobs that are still recognised when a client sends them again.
const RECENT_KEYS: usize = 1_024;
/// No engine shows a lease for longer after its end.
const SHOWN_AFTER_END: Span = Span::hours(2);

/// The state of one world. Serialised whole as a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Brain {
    installation: Installation,
    config: Config,
    now: Time,
    last_seq: u64,
    last_batch: u64,
    offers: offers::Offers,
    /// Those that are no longer for sale, as they were last shown: a lease of one may still come up, or be found.
    #[serde(default)]
    withdrawn: BTreeMap<OfferId, Offer>,
    /// Prices of all offers, also of those that are no longer for sale: a lease of one may still come up.
    #[serde(default)]
    prices: BTreeMap<OfferId, PriceLine>,
    /// Offers that refused, and until when they are left alone.
    refused: BTreeMap<OfferId, Time>,
    jobs: Jobs,
    /// Jobs that are forgotten and whose bills can still change.
    #[serde(default)]
    departed: BTreeMap<WorkloadId, Arc<departed::Departed>>,
    leases: Leases,
    #[serde(with = "groups_as_list", default)]
    groups: BTreeMap<DecisionId, Group>,
    /// Engines that do not answer, and since when.
    #[serde(default)]
    silent_engines: BTreeMap<String, Time>,
    #[serde(default)]
    pools: BTreeMap<PoolId, Pool>,
    #[serde(default)]
    nodes: BTreeMap<NodeId, Node>,
    /// Nodes with leases on them, and nodes that are paid for as a whole.
    #[serde(default)]
    node_books: BTreeMap<NodeId, nodes::NodeBooks>,
    keys: Keys,
    #[serde(default)]
    last_workload: WorkloadId,
    /// Leases whose end is in the books, and when it was: engines show a lease for a while after its end.
    #[serde(default)]
    closed: Closed,
    /// On-demand capacity that could not be had.
    #[serde(default)]
    droughts: Droughts,
    /// What is believed about spot markets.
    #[serde(default)]
    lookouts: lookout::Lookouts,
    #[serde(skip, default = "Model::embedded")]
    model: Arc<Model>,
    #[serde(skip)]
    plan_cache: PlanCache,
    #[serde(skip)]
    fresh_ledger: Vec<LedgerRow>,
    #[serde(skip)]
    final_views: Vec<crate::view::JobView>,
    #[serde(skip)]
    awake: Awake,
    #[serde(skip)]
    following: Following,
    /// Jobs that were left alone in the last decision: what their engines show is not known.
    #[serde(skip)]
    left_alone: BTreeSet<WorkloadId>,
    /// When the next slice of a plan is to be solved.
    #[serde(skip)]
    think_at: Option<Time>,
    #[serde(skip)]
    undecided: bool,
}

mod groups_as_list {
    use super::{BTreeMap, DecisionId, Group};
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(groups: &BTreeMap<DecisionId, Group>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(groups.values())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<DecisionId, Group>, D::Error> {
        Ok(Vec::<Group>::deserialize(from)?.into_iter().map(|group| (group.id, group)).collect())
    }
}

/// A decision that is still waiting for its effect to be seen: the outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Open {
    /// Orders what is dispatched, and names it.
    pub id: DecisionId,
    /// What is to be done.
    pub decision: Decision,
}

impl Brain {
    /// An empty world. Another configuration than the first comes as a record.
    pub fn new(installation: Installation, config: Config) -> Brain {
        Brain {
            installation,
            config,
            now: Time(0),
            last_seq: 0,
            last_batch: 0,
            offers: offers::Offers::default(),
            withdrawn: BTreeMap::new(),
            prices: BTreeMap::new(),
            refused: BTreeMap::new(),
            jobs: Jobs::default(),
            departed: BTreeMap::new(),
            leases: Leases::default(),
            groups: BTreeMap::new(),
            silent_engines: BTreeMap::new(),
            pools: BTreeMap::new(),
            nodes: BTreeMap::new(),
            node_books: BTreeMap::new(),
            keys: Keys::default(),
            last_workload: WorkloadId::default(),
            closed: Closed::default(),
            droughts: Droughts::default(),
            lookouts: lookout::Lookouts::default(),
            model: Model::embedded(),
            plan_cache: PlanCache::default(),
            fresh_ledger: Vec::new(),
            final_views: Vec::new(),
            awake: Awake::default(),
            following: Following::default(),
            left_alone: BTreeSet::new(),
            think_at: None,
            undecided: true,
        }
    }

    /// Its limits and habits.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Gives it a model of markets and plans that were solved on it: before the first record, or beliefs begin anew.
    pub fn foresee(&mut self, model: Arc<Model>, plans: impl IntoIterator<Item = Arc<Plan>>) {
        self.model = model;
        plans.into_iter().for_each(|plan| self.plan_cache.put_beside(plan));
    }

    /// The latest moment that a record told of.
    pub fn now(&self) -> Time {
        self.now
    }
    /// The sequence of the last record applied.
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }
    /// The batch of the last record applied.
    pub fn last_batch(&self) -> u64 {
        self.last_batch
    }
    /// Who decides.
    pub fn installation(&self) -> Installation {
        self.installation
    }
    /// Jobs that are not over, or whose leases are not yet gone.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.values()
    }
    /// One of them.
    pub fn job(&self, id: WorkloadId) -> Option<&Job> {
        self.jobs.get(&id)
    }
    /// Leases that are not known to be gone.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.leases.values()
    }
    /// One of them.
    pub fn lease(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }
    /// Offers as last seen.
    pub fn offers(&self) -> impl Iterator<Item = &Offer> {
        self.offers.values()
    }
    /// One of them.
    pub fn offer(&self, id: &OfferId) -> Option<&Offer> {
        self.offers.get(id)
    }

    /// Pools as last seen.
    pub fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.values()
    }
    /// Nodes as last seen.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// The job that was submitted with this key, if it is remembered.
    pub fn submitted_as(&self, key: &str) -> Option<WorkloadId> {
        self.keys.find(key)
    }

    /// The id of what is submitted next. Snapshots of before ids were counted know only the jobs themselves.
    pub fn next_workload(&self) -> WorkloadId {
        let known = self.jobs.keys().next_back().copied().max(self.keys.newest());
        WorkloadId(self.last_workload.max(known.unwrap_or_default()).0 + 1)
    }

    /// Ledger rows that records applied since the last call gave rise to.
    pub fn take_ledger(&mut self) -> Vec<LedgerRow> {
        std::mem::take(&mut self.fresh_ledger)
    }

    /// Last views of jobs that records applied since the last call made the brain forget, or whose bills they corrected
    /// afterwards; of several of one job the last one counts.
    pub fn take_final_views(&mut self) -> Vec<crate::view::JobView> {
        std::mem::take(&mut self.final_views)
    }

    /// When `decide` wants to be asked again even if nothing happens.
    pub fn next_wakeup(&self) -> Option<Time> {
        if self.undecided {
            return Some(self.now);
        }
        self.awake.first_moment(&self.left_alone).into_iter().chain(self.think_at).min()
    }

    /// The earliest moment that a job waits for, where that has come: what its engines show must be known first.
    pub fn due(&self, now: Time) -> Option<Time> {
        self.awake.first_moment(&BTreeSet::new()).filter(|moment| *moment <= now)
    }

    /// Jobs that were left alone in the last decision, because what their engines show is not known.
    pub fn left_alone(&self) -> impl Iterator<Item = WorkloadId> {
        self.left_alone.iter().copied()
    }

    /// Whether a job was left alone in the last decision.
    pub fn was_left_alone(&self, id: WorkloadId) -> bool {
        self.left_alone.contains(&id)
    }

    /// Since when an engine does not answer, if so.
    pub fn silent_since(&self, engine: &str) -> Option<Time> {
        self.silent_engines.get(engine).copied()
    }

    /// Every engine that is named by an offer, a pool or a lease.
    pub fn engines(&self) -> BTreeSet<&str> {
        let offers = self.offers.values().map(|offer| offer.engine.as_str());
        let pools = self.pools.values().map(|pool| pool.engine.as_str());
        offers.chain(pools).chain(self.leases.offers().map(OfferId::engine)).collect()
    }

    /// Every decision whose effect has not been seen. It is part of the state, so the transaction that
    /// writes a decision writes the outbox; a restart dispatches it again under the same id.
    pub fn outbox(&self) -> Vec<Open> {
        let mut open = self.open_for_leases();
        open.extend(self.jobs.open().flat_map(|job| job.open(self.installation)));
        open.sort_by_key(|open| open.id);
        open
    }

    /// One of them, by what it is about; none where its effect was seen.
    pub fn open(&self, id: DecisionId, about: OpenAbout) -> Option<Open> {
        let about = match about {
            OpenAbout::Group(group) => self.open_for_group(group).into_iter().collect(),
            OpenAbout::Releases(group) => {
                let slots = LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX };
                releases(self.leases.range(slots).map(|(_, lease)| lease))
            }
            OpenAbout::Job(job) => self.jobs.get(&job).map(|job| job.open(self.installation)).unwrap_or_default(),
        };
        about.into_iter().find(|open| open.id == id)
    }
}

/// What a decision that waits for its effect is about: it is found there again without a look at all the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenAbout {
    /// A group that is asked for.
    Group(DecisionId),
    /// Leases of a group that are given back.
    Releases(DecisionId),
    /// A job's stint, or the store of its checkpoints.
    Job(WorkloadId),
}

impl OpenAbout {
    /// What a decision is about; none for one that has its effect by itself.
    pub fn of(id: DecisionId, decision: &Decision) -> Option<OpenAbout> {
        match decision {
            Decision::Acquire { .. } => Some(OpenAbout::Group(id)),
            Decision::Release { group, .. } => Some(OpenAbout::Releases(*group)),
            Decision::Start { stint, .. } | Decision::Checkpoint { stint } | Decision::Stop { stint, .. } => {
                Some(OpenAbout::Job(stint.workload))
            }
            Decision::CheckStore { workload } => Some(OpenAbout::Job(*workload)),
            Decision::HandOver { .. } | Decision::Pause { .. } | Decision::End { .. } | Decision::Notify { .. } => None,
        }
    }
}

/// A decision on its way into the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    pub decision: Decision,
    pub reason: Reason,
}
