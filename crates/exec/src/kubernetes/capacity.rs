//! What there is of a cluster to be asked for: parts of nodes by kind, how many of each have room, and how many quotas let in; and what
//! of it a group becomes.

use super::bounds::{self, Bound};
use super::cluster::Survey;
use super::kinds::{Kind, Room};
use super::pilot::{self, node_name};
use super::{Kubernetes, SPOT_NOTICE};
use crate::engine::EngineError;
use crate::local::Marks;
use std::collections::BTreeMap;
use windfall_core::pool::Shape;
use windfall_core::{DecisionId, LeaseId, Market, NanoUsd, Node, NodeId, Offer, OfferId, Refusal, Span, Want};

fn size_of(count: u32) -> Shape {
    match count {
        0 => Shape { cpu_millis: 1_000, ..Shape::default() },
        accelerators => Shape { accelerators, ..Shape::default() },
    }
}

impl Kubernetes {
    /// The kind of node and the part of it that an offer is.
    pub(super) fn of_offer<'a>(&self, kinds: &'a [Kind], offer: &OfferId) -> Option<(&'a Kind, u32)> {
        let mut parts = kinds.iter().flat_map(|kind| kind.parts().map(move |count| (kind, count)));
        parts.find(|(kind, count)| kind.offer_id(&self.name, *count) == *offer)
    }

    pub(super) fn price(&self, kind: &Kind, count: u32) -> NanoUsd {
        let settings = &self.cluster.settings;
        let rate = match kind.market {
            Market::Spot => settings.spot_rate.unwrap_or(settings.rate),
            _ => settings.rate,
        };
        NanoUsd(rate.0.saturating_mul(i64::from(count)))
    }

    /// How many more of a part there are: of what has room on nodes, what quotas let in; none where more come and nothing bounds
    /// them.
    pub(super) fn left(&self, survey: &Survey, kind: &Kind, count: u32, needs: Shape) -> Option<u32> {
        let let_in = self.let_in(survey, kind, count, needs).map(|(times, _)| times);
        let room = if kind.elastic.is_some() { None } else { Some(self.room(kind, count)) };
        room.into_iter().chain(let_in).min()
    }

    /// How many more of a part a fixed kind has room for, with what was given already and has no node yet.
    fn room(&self, kind: &Kind, count: u32) -> u32 {
        let rooms: u32 = kind.nodes.iter().map(|room| room.left(count)).fold(0, u32::saturating_add);
        let given: u32 = kind.parts().map(|part| self.given(&kind.offer_id(&self.name, part)) * part).sum();
        let placed: u32 = kind.nodes.iter().map(|room| room.ours.accelerators).sum();
        rooms.saturating_sub(given.saturating_sub(placed).div_ceil(count.max(1)))
    }

    /// How many more of a part quotas let in, with what was given since they were read, and the narrowest of them.
    fn let_in<'a>(&self, survey: &'a Survey, kind: &Kind, count: u32, needs: Shape) -> Option<(u32, &'a Bound)> {
        // What a job does not say a template may.
        let (cpu, memory) = match self.cluster.settings.template {
            Some(_) => (Some(needs.cpu_millis), Some(needs.memory_bytes)),
            None => pilot::beside(kind, count, needs),
        };
        let pod = Shape { accelerators: count, cpu_millis: cpu.unwrap_or(0), memory_bytes: memory.unwrap_or(0) };
        let (times, bound) = bounds::let_in(&survey.bounds, pod)?;
        let is_new = |marks: &Marks| marks.gone.is_none() && marks.sold_at.is_some_and(|at| at >= survey.at);
        let new = self.leases.held().values().filter(|held| is_new(&held.marks)).count() as u32;
        Some((times.saturating_sub(new), bound))
    }

    /// How many leases of an offer are ours.
    pub(super) fn given(&self, offer: &OfferId) -> u32 {
        let held = self.leases.held();
        held.values().filter(|held| !held.is_gone() && held.marks.offer == *offer).count() as u32
    }

    /// What each slot of a group becomes: the first alternative of which there is enough.
    pub(super) fn chosen(
        &self,
        group: DecisionId,
        want: &Want,
        choices: &[(OfferId, u32, Option<u32>)],
        known: &BTreeMap<u32, Marks>,
    ) -> Result<Vec<Marks>, EngineError> {
        if let Some(begun) = known.values().find(|marks| marks.units > 0) {
            return Ok((0..begun.units).map(|slot| known.get(&slot).unwrap_or(begun).clone()).collect());
        }
        let least = want.least.max(1);
        let enough = |left: Option<u32>| left.is_none_or(|left| left >= least);
        let Some((offer, count, left)) = choices.iter().find(|(_, _, left)| enough(*left)) else {
            return Err(EngineError::Refused(Refusal::NoCapacity));
        };
        let units = want.units.min(left.unwrap_or(u32::MAX));
        let marks = |slot: u32| Marks {
            offer: offer.clone(),
            size: size_of(*count),
            host: Some(node_name(LeaseId { group, slot })),
            owner: want.owner.clone(),
            limits: Shape { accelerators: 0, ..want.worker },
            sold_at: Some(self.leases.clock.now()),
            units,
            ..Marks::default()
        };
        Ok((0..units).map(marks).collect())
    }

    /// The alternatives of a want that there are and that are not too dear, with what is left of each.
    pub(super) fn choices(&self, want: &Want, survey: &Survey) -> Vec<(OfferId, u32, Option<u32>)> {
        let asked = want.alternatives.iter().filter_map(|asked| {
            let (kind, count) = self.of_offer(&survey.kinds, &asked.offer)?;
            let affordable = asked.max_price.is_none_or(|most| self.price(kind, count) <= most);
            affordable.then(|| (asked.offer.clone(), count, self.left(survey, kind, count, want.worker)))
        });
        asked.collect()
    }

    /// Tells of the quota, if one is why there is not enough of anything that is wanted.
    pub(super) fn tell_of_quota(&self, group: DecisionId, want: &Want, survey: &Survey) {
        let gang = want.least.max(1);
        let narrow = want.alternatives.iter().find_map(|asked| {
            let (kind, count) = self.of_offer(&survey.kinds, &asked.offer)?;
            self.let_in(survey, kind, count, want.worker).filter(|(times, _)| *times < gang)
        });
        if let Some((times, Bound { quota, what, hard, used })) = narrow {
            let has = format!("{used} of {hard} of {what} are used");
            self.trouble(&format!("{group} is not asked for: quota {quota} lets in {times} of {gang} pods, {has}"));
        }
    }

    pub(super) fn offer(&self, survey: &Survey, kind: &Kind, count: u32) -> Offer {
        let id = kind.offer_id(&self.name, count);
        let capacity = self.left(survey, kind, count, Shape::default());
        let capacity = capacity.map(|left| left.saturating_add(self.given(&id)));
        Offer {
            id,
            engine: self.name.clone(),
            pool: self.pool(kind),
            cloud: "kubernetes".to_owned(),
            region: String::new(),
            zone: kind.zone.clone(),
            instance_type: kind.part_name(count),
            market: kind.market,
            accelerator: if count == 0 { String::new() } else { kind.accelerator.clone() },
            accelerators: count,
            price_per_hour: self.price(kind, count),
            capacity,
            notice: if kind.market == Market::Spot { SPOT_NOTICE } else { Span::ZERO },
        }
    }

    pub(super) fn node(&self, kind: &Kind, room: &Room) -> Node {
        Node {
            id: NodeId(format!("{}/{}", self.name, room.name).into()),
            pool: self.pool(kind),
            accelerator: kind.accelerator.clone(),
            capacity: room.capacity,
            foreign: room.foreign,
            domains: room.domains.clone(),
            health: room.health,
            rate: NanoUsd(0),
            symptoms: Vec::new(),
            mixed: false,
            drained_for: None,
            alone: false,
        }
    }
}
