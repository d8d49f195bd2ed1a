//! The planner: every offer that could run a job, what each is expected to cost and to take, and why the others will
//! not do. Facts come from the catalogue; the model of markets, which the brain lives by, from `core/market`.

mod best;
mod candidate;
mod evidence;
mod holdings;
mod parts;
mod request;
mod room;
mod scale;
mod smaller;
mod speed;
mod weigh;
mod why;

pub use best::Limit;
pub use candidate::{Basis, Candidate, Interval, Ranking, Rejected};
pub use evidence::Evidence;
pub use holdings::{Commitment, Discount, Holdings};
pub use parts::Parts;
pub use request::{JobData, Request, Saves, StoreLocation, Tuning, Work};
pub use speed::{LONGEST_HOURS, Need};
pub use why::Why;

use crate::catalog::Catalog;
use crate::offer::{InstanceType, Offer};
use crate::search::{Query, Wanted};
use crate::words::{Count, Term};
use best::Best;
use std::collections::BTreeMap;
use weigh::{Rough, Weigh};
use windfall_core::NanoUsd;
use windfall_core::market::foresight::Model;

/// Speeds that are worth comparing; a whole node where a cloud sells no single accelerator is among them.
const EQUIVALENT: std::ops::RangeInclusive<f64> = 0.4..=9.0;

impl Catalog {
    /// The cheapest ways to run a job, as many as `limit` says.
    pub fn plan(&self, request: &Request, model: &Model, limit: Limit) -> Ranking<'_> {
        let mut ranking = Ranking::default();
        let mut weigh = Weigh::new(self, request, model);
        let mut rough = Vec::new();
        // A type has many offers, and takes as long wherever it stands.
        let mut needs: BTreeMap<(u32, u32), Result<Need, Why>> = BTreeMap::new();
        for offer in self.considered(request) {
            for nodes in if request.nodes.is_empty() { &[1][..] } else { &request.nodes } {
                let known = needs.entry((offer.kind.at, *nodes));
                let need = known.or_insert_with(|| self.need(request, &offer.kind, *nodes));
                match self.rough(&weigh, &offer, *nodes, need) {
                    Ok(ways) => rough.extend(ways),
                    Err(why) => ranking.rejected.push(Rejected { offer, nodes: *nodes, why }),
                }
            }
        }
        rough.sort_by(|a, b| a.least.total_cmp(&b.least));
        let mut best = Best::new(limit, &rough);
        for (at, way) in rough.iter().enumerate() {
            // Nothing that follows can be cheaper than what its work alone costs.
            if best.is_full_below(way.least) {
                ranking.dearer += rough.len() - at;
                break;
            }
            match weigh.mean(way) {
                Ok(mean) => best.add(at, way, mean),
                Err(why) => {
                    best.reject(way);
                    ranking.rejected.push(Rejected { offer: way.offer, nodes: way.nodes, why });
                }
            }
        }
        let (chosen, dearer) = best.chosen(&rough);
        ranking.dearer += dearer;
        ranking.candidates = chosen.into_iter().map(|(way, places)| weigh.candidate(way.clone(), places)).collect();
        ranking.notes = weigh.notes();
        ranking
    }

    /// Offers that are looked at: what was asked for, and smaller ones where a precision makes room.
    fn considered(&self, request: &Request) -> Vec<Offer<'_>> {
        let mut accelerators = request.accelerators.clone();
        accelerators.extend(self.smaller(request));
        let terms = if request.terms.is_empty() { vec![Term::Spot, Term::OnDemand] } else { request.terms.clone() };
        let query = Query {
            accelerators: if request.equivalents { Vec::new() } else { accelerators },
            clouds: request.clouds.clone(),
            regions: request.regions.clone(),
            terms,
            ..Query::default()
        };
        let mut found = self.search(&query);
        if request.equivalents {
            found.retain(|offer| request.accelerators.iter().any(|asked| self.is_equivalent(asked, &offer.kind)));
        }
        found
    }

    /// Whether an instance has what was asked for, or has as much memory and comes near to its speed.
    fn is_equivalent(&self, asked: &Wanted, kind: &InstanceType<'_>) -> bool {
        let count = asked.count.map_or(1.0, Count::as_f64);
        let memory = self.accelerator(&asked.family).map(|sheet| f64::from(sheet.memory_gb) * count);
        let speed = |family: &str, count: f64| self.usual_tflops(family).map(|one| one * count);
        let ratio = kind
            .accelerator
            .and_then(|family| Some(speed(family, kind.count.as_f64())? / speed(&asked.family, count)?));
        let room = kind.total_accelerator_memory_gb().zip(memory).is_some_and(|(has, needs)| has >= needs * 0.99);
        let same_maker = kind.accelerator.is_some_and(|family| self.same_maker(family, &asked.family));
        same_maker && room && ratio.is_some_and(|ratio| EQUIVALENT.contains(&ratio))
    }

    /// A program for one maker's accelerators does not run on another's.
    fn same_maker(&self, one: &str, other: &str) -> bool {
        let maker = |family: &str| self.accelerator(family).map(|sheet| sheet.vendor.as_str());
        maker(one) == maker(other)
    }

    /// What can be said without looking at the market: the ways to use an offer, or why there is none.
    fn rough<'c>(
        &'c self,
        weigh: &Weigh<'c, '_>,
        offer: &Offer<'c>,
        nodes: u32,
        need: &Result<Need, Why>,
    ) -> Result<Vec<Rough<'c>>, Why> {
        let request = weigh.request;
        let memory = offer.kind.memory_gib;
        if let Some(least) = request.min_memory_gib
            && memory.is_none_or(|memory| memory < least)
        {
            return Err(Why::Memory { has: memory, least });
        }
        let on_each = offer.kind.accelerator_memory_gb;
        if let Some(least) = request.min_accelerator_memory_gb
            && on_each.is_none_or(|memory| memory + 1e-9 < least)
        {
            return Err(Why::AcceleratorMemory { has: on_each, least });
        }
        if let Some(least) = request.min_vcpus
            && offer.kind.vcpus.is_none_or(|cores| cores < least)
        {
            return Err(Why::Cores { least });
        }
        let need = need.as_ref().map_err(Why::clone)?;
        let price = request.holdings.price(offer);
        if offer.term == Term::Spot && request.max_price.is_some_and(|most| price > most) {
            return Err(Why::MaxPrice { price });
        }
        if offer.term.market() == windfall_core::Market::Reserved {
            return Err(Why::Commitment);
        }
        if let Some(most) = request.most_spot.filter(|most| offer.term == Term::Spot && nodes > *most) {
            return Err(Why::GangTooLarge { most });
        }
        let mut ways = Vec::new();
        for need in self.with_precisions(request, &offer.kind, need.clone()) {
            let takes = need.span + weigh.restart();
            if request.deadline.is_some_and(|deadline| takes > deadline) {
                continue;
            }
            let hours = need.span.0 as f64 / 3.6e6;
            let committed = (offer.term == Term::OnDemand).then(|| request.holdings.covering(offer, nodes)).flatten();
            let committed = committed.filter(|(_, left)| *left >= takes).map(|(held, _)| held.until.clone());
            let price = if committed.is_some() { NanoUsd(0) } else { price };
            let least = price.dollars() * hours * f64::from(nodes);
            ways.push(Rough { offer: *offer, nodes, price, need, least, committed });
        }
        if ways.is_empty() {
            return Err(Why::TooSlow { takes: need.span });
        }
        Ok(ways)
    }
}
