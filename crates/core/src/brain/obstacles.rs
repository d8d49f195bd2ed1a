//! Why nothing of what could serve a job can be had now, in words for people: its price, its size, or who has it.

use super::lookout::fits;
use super::sight::affordable;
use super::{Brain, Job};
use crate::ids::PoolId;
use crate::market::Sight;
use crate::offer::{Market, Offer};
use crate::pool::Node;
use crate::spec::{Ask, JobSpec};
use std::collections::{BTreeMap, BTreeSet};

impl Brain {
    /// What stands between a job that holds nothing and what it waits for: spot, where any is sold. None where that can be
    /// had.
    pub(super) fn obstacle(&self, job: &Job, sight: &Sight) -> Option<String> {
        let any_spot = sight.offers.iter().any(|seen| seen.market.can_be_taken());
        let wanted = || sight.offers.iter().filter(|seen| seen.market.can_be_taken() || !any_spot);
        if wanted().any(|seen| seen.available) {
            return None;
        }
        let offers = wanted().filter_map(|seen| self.offers.get(&seen.id));
        let offers: Vec<&Offer> = offers.filter(|offer| self.silent_since(&offer.engine).is_none()).collect();
        let is_owned = |offer: &&Offer| offer.market == Market::Owned;
        if !offers.is_empty() && offers.iter().all(is_owned) {
            return self.outgrown(&job.spec, &offers);
        }
        let least = job.spec.least();
        let sold = offers.iter().copied().filter(|offer| !is_owned(offer));
        let shown: Vec<&Offer> = sold.filter(|offer| offer.capacity != Some(0)).collect();
        let within = |offer: &&Offer| affordable(job, offer);
        if let (Some(cheapest), Some(most)) = (shown.iter().map(|offer| offer.price_per_hour).min(), job.spec.max_price)
            && !shown.iter().any(within)
        {
            return Some(format!("the cheapest costs {cheapest} an hour, and its `max_price` is {most}"));
        }
        let most = shown.iter().filter(|offer| within(offer)).filter_map(|offer| offer.capacity).max()?;
        match most < least {
            true => Some(format!("it needs {least} machines at once, and at most {most} can be had at one place")),
            false => Some("what there is has been taken by others".to_owned()),
        }
    }

    /// Why the machines that there are can never hold the workers that a job needs at once, where nothing else could serve it.
    pub fn too_wide(&self, spec: &JobSpec) -> Option<String> {
        // Of those that need one machine there are very many, and looking at every machine takes a while.
        if spec.least() < 2 {
            return None;
        }
        let offers: Vec<&Offer> = self.offers.values().filter(|offer| fits(&spec.resources, offer)).collect();
        match offers.iter().all(|offer| offer.market == Market::Owned) {
            true => self.outgrown(spec, &offers),
            false => None,
        }
    }

    /// The same of these owned offers: of how many machines a scheduler has, nothing is known here.
    fn outgrown(&self, spec: &JobSpec, offers: &[&Offer]) -> Option<String> {
        let pools: BTreeSet<&PoolId> = offers.iter().map(|offer| &offer.pool).collect();
        let has_nodes = |pool: &&PoolId| self.nodes.values().any(|node| node.pool == **pool);
        // Of a machine with accelerators of several models only one is known by name.
        let is_mixed = |node: &Node| node.mixed && pools.contains(&node.pool);
        if !pools.iter().all(has_nodes) || self.nodes.values().any(is_mixed) {
            return None;
        }
        let kinds = self.most_at_once(spec, &pools);
        let (all, of_one) = (kinds.iter().sum::<u64>(), kinds.iter().copied().max()?);
        let needs = format!("it needs {} workers at once, and", spec.least());
        match u64::from(spec.least()) {
            least if all < least => Some(format!("{needs} all machines together have room for {all}")),
            least if of_one < least => Some(format!(
                "{needs} machines of one kind have room for {of_one}: its workers run on machines with as many \
                 accelerators, as many processors and the same price"
            )),
            _ => None,
        }
    }

    /// Workers of a job that machines of each kind have room for while nobody else has anything.
    fn most_at_once(&self, spec: &JobSpec, pools: &BTreeSet<&PoolId>) -> Vec<u64> {
        let on_node = |node: &Node| {
            let of_ask = |ask: &Ask| {
                let (parts, of) = ask.amount();
                match ask.accelerator == node.accelerator {
                    true => u64::from(node.capacity.accelerators) * of / parts.max(1),
                    false => 0,
                }
            };
            match spec.resources.as_slice() {
                [] => node.capacity.cpu_millis / 1_000,
                asks => asks.iter().map(of_ask).max().unwrap_or(0),
            }
        };
        let mut kinds: BTreeMap<_, u64> = BTreeMap::new();
        for node in self.nodes.values().filter(|node| pools.contains(&node.pool)) {
            let kind = (&node.accelerator, node.capacity.accelerators, node.capacity.cpu_millis, node.rate, node.alone);
            *kinds.entry(kind).or_default() += on_node(node);
        }
        kinds.into_values().collect()
    }
}
