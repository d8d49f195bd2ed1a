//! From an offer to a candidate: the outlook of its market, played once for all offers that share it.

use super::candidate::{Basis, Candidate, Interval};
use super::parts::{self, Parts};
use super::request::{Request, Work};
use super::speed::Need;
use super::why::Why;
use crate::catalog::Catalog;
use crate::offer::Offer;
use crate::words::Term;
use windfall_core::market::foresight::{Journey, Model, Outlook, Passage};
use windfall_core::market::{save_every, save_takes};
use windfall_core::{Market, NanoUsd, Span};

/// Changeover where nobody says one: an instance boots and a program loads.
const USUAL_RESTART: Span = Span::minutes(5);
/// How often a market is looked at.
const TICK: Span = Span::minutes(2);
/// Bytes a second at which a save reaches its store.
const UPLOADS_AT: f64 = 2.5e8;
/// The monthly share of the middle band, to which the recorded markets are taken to belong.
const MIDDLE_BAND: f64 = 0.125;

/// A way to run the job of which only the least cost is known.
#[derive(Clone, Debug)]
pub(super) struct Rough<'c> {
    pub offer: Offer<'c>,
    pub nodes: u32,
    pub price: NanoUsd,
    pub need: Need,
    pub least: f64,
    pub committed: Option<String>,
}

pub(super) struct Weigh<'c, 'r> {
    catalog: &'c Catalog,
    pub request: &'r Request,
    model: &'r Model,
    outlooks: Vec<(Journey, Outlook)>,
    /// Mean lifetimes of leases, by flakiness: there are as many as bands.
    lifetimes: std::cell::RefCell<Vec<(f64, Span)>>,
}

impl<'c, 'r> Weigh<'c, 'r> {
    pub fn new(catalog: &'c Catalog, request: &'r Request, model: &'r Model) -> Weigh<'c, 'r> {
        Weigh { catalog, request, model, outlooks: Vec::new(), lifetimes: std::cell::RefCell::default() }
    }

    pub fn restart(&self) -> Span {
        self.request.restart.unwrap_or(USUAL_RESTART)
    }

    /// The mean cost in dollars, or why it will not do.
    pub fn mean(&mut self, way: &Rough<'c>) -> Result<f64, Why> {
        let firm = self.firm_price(way);
        let at = self.outlook(way, firm.is_some());
        let outlook = &self.outlooks[at].1;
        if !outlook.finishes() {
            return Err(Why::NeverEnds);
        }
        let chance = outlook.in_time();
        if self.request.deadline.is_some() && chance < super::LEAST_CHANCE {
            return Err(Why::MayMiss { chance });
        }
        let price = Prices { way, firm };
        let instances = outlook.expect(|passage| price.of(passage)).mean;
        let length = mean_span(outlook, |passage| passage.elapsed);
        let saves = self.saves(way, length);
        let besides = parts::besides(self.catalog, self.request, &way.offer, length, saves);
        Ok(instances + besides.total().dollars())
    }

    /// All that can be said.
    pub fn candidate(&mut self, way: Rough<'c>) -> Candidate<'c> {
        let firm = self.firm_price(&way);
        let at = self.outlook(&way, firm.is_some());
        let outlook = &self.outlooks[at].1;
        let price = Prices { way: &way, firm };
        let instances = outlook.expect(|passage| price.of(passage));
        let hours = outlook.expect(|passage| passage.elapsed.0 as f64 / 3.6e6);
        let wasted = outlook.expect(|passage| {
            let paid = (passage.spot + passage.firm).0.max(1) as f64;
            price.of(passage) * (passage.starting + passage.undone).0 as f64 / paid
        });
        let length = mean_span(outlook, |passage| passage.elapsed);
        let besides = parts::besides(self.catalog, self.request, &way.offer, length, self.saves(&way, length));
        let more = besides.total().dollars();
        let parts = Parts {
            compute: Some(NanoUsd::from_dollars(instances.mean - wasted.mean)),
            restarts: Some(NanoUsd::from_dollars(wasted.mean)),
            ..besides
        };
        let mut cost = instances;
        (cost.mean, cost.low, cost.high) = (parts.total().dollars(), cost.low + more, cost.high + more);
        let spot = way.offer.term == Term::Spot;
        let market = match (&way.committed, spot) {
            (Some(_), _) => Market::Reserved,
            (None, true) => Market::Spot,
            (None, false) => Market::OnDemand,
        };
        Candidate {
            market,
            nodes: way.nodes,
            price: way.price,
            firm_price: firm,
            need: way.need.span,
            evidence: way.need.evidence,
            how: way.need.how.clone(),
            efficiency: way.need.efficiency,
            precision: way.need.precision,
            cost,
            hours,
            in_time: outlook.in_time(),
            interruptions: outlook.expect(|passage| f64::from(passage.interruptions)).mean,
            interval: spot.then(|| self.interval(&way.offer)),
            basis: self.basis(&way.offer),
            parts,
            committed_until: way.committed.clone(),
            offer: way.offer,
        }
    }

    fn basis(&self, offer: &Offer<'_>) -> Basis {
        let recorded = self.request.recorded.iter().any(|(cloud, region, kind)| {
            (cloud.as_str(), region.as_str(), kind.as_str()) == (offer.kind.cloud, offer.region, offer.kind.name)
        });
        match offer.term {
            Term::Spot if recorded => Basis::Recorded,
            Term::Spot => Basis::Assumed,
            _ => Basis::Firm,
        }
    }

    /// What the same instance costs on demand in the same region.
    fn firm_price(&self, way: &Rough<'c>) -> Option<NanoUsd> {
        if way.offer.term != Term::Spot {
            return Some(way.price);
        }
        let mut found: Option<NanoUsd> = None;
        self.catalog.offers_of(way.offer.kind, false, |offer| {
            if offer.term == Term::OnDemand && offer.region == way.offer.region {
                let price = self.request.holdings.price(&offer);
                found = Some(found.map_or(price, |known| known.min(price)));
            }
        });
        found
    }

    fn outlook(&mut self, way: &Rough<'c>, has_firm: bool) -> usize {
        let spot = way.offer.term == Term::Spot;
        let every = if spot { self.every(&way.offer) } else { Span::FOREVER };
        let slower = 1.0 + self.save().0 as f64 / every.0.max(1) as f64;
        let journey = Journey {
            need: if spot { Span((way.need.span.0 as f64 * slower) as i64) } else { way.need.span },
            left: self.request.deadline,
            restart: self.restart(),
            undone: if spot { self.undone(&way.offer, every) } else { Span::ZERO },
            tick: TICK,
            flakiness: if spot { flakiness(&way.offer) } else { 0.0 },
            has_firm,
        };
        if let Some(at) = self.outlooks.iter().position(|(known, _)| *known == journey) {
            return at;
        }
        let outlook = if spot { self.model.outlook(&journey) } else { Outlook::firm(&journey) };
        self.outlooks.push((journey, outlook));
        self.outlooks.len() - 1
    }

    fn save(&self) -> Span {
        save_takes(self.request.saves.bytes)
    }

    /// Young's interval, from the lifetime of such a lease.
    fn interval(&self, offer: &Offer<'_>) -> Interval {
        if let Some(every) = self.request.saves.every {
            return Interval { every, why: "as the job file says".to_owned() };
        }
        let hours = self.lifetime(offer).0 as f64 / 3.6e6;
        let why = format!("√(2 × {:.0} s a save × {hours:.1} h between interruptions)", self.save().0 as f64 / 1e3);
        Interval { every: self.every(offer), why }
    }

    fn every(&self, offer: &Offer<'_>) -> Span {
        self.request.saves.every.unwrap_or_else(|| save_every(self.save(), self.lifetime(offer)))
    }

    fn lifetime(&self, offer: &Offer<'_>) -> Span {
        let flakiness = flakiness(offer);
        let mut known = self.lifetimes.borrow_mut();
        if let Some((_, lifetime)) = known.iter().find(|(at, _)| *at == flakiness) {
            return *lifetime;
        }
        let lifetime = self.model.mean_lifetime(flakiness);
        known.push((flakiness, lifetime));
        lifetime
    }

    /// Work that an interruption undoes: none when the notice is long enough to save, else half an interval.
    fn undone(&self, offer: &Offer<'_>, every: Span) -> Span {
        let upload = self.request.saves.bytes.map_or(0.0, |bytes| bytes as f64 / UPLOADS_AT * 1e3);
        let saved = self.save().0 as f64 + upload <= notice(offer.kind.cloud).0 as f64;
        if saved { Span::ZERO } else { Span(every.0 / 2) }
    }

    fn saves(&self, way: &Rough<'_>, length: Span) -> f64 {
        if way.offer.term != Term::Spot {
            return 1.0;
        }
        (length.0 as f64 / self.every(&way.offer).0.max(1) as f64).max(1.0)
    }

    /// What was assumed.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "spot prices stand still; spells with and without capacity follow recorded AWS markets, \
             more or less often by the type's interruption band"
                .to_owned(),
        ];
        if let Some(Work::Tokens { tuning, .. }) = &self.request.work {
            notes.push(tuning.assumed());
        }
        if self.request.restart.is_none() {
            notes.push("changeover 5 min: say checkpoint.restart to replace it".to_owned());
        }
        if self.request.saves.bytes.is_none() {
            notes.push("size of a checkpoint unknown: say checkpoint.size; its storage is not in the cost".to_owned());
        }
        notes
    }
}

/// Time between the warning and the end.
fn notice(cloud: &str) -> Span {
    Span::seconds(if cloud == "aws" { 120 } else { 30 })
}

/// How much more often than in the recorded markets it is taken back.
fn flakiness(offer: &Offer<'_>) -> f64 {
    offer.band.map_or(1.0, |band| band.monthly_share() / MIDDLE_BAND)
}

fn mean_span(outlook: &Outlook, of: impl Fn(&Passage) -> Span) -> Span {
    Span(outlook.expect(|passage| of(passage).0 as f64).mean as i64)
}

/// Dollars for a passage.
struct Prices<'w, 'c> {
    way: &'w Rough<'c>,
    firm: Option<NanoUsd>,
}

impl Prices<'_, '_> {
    fn of(&self, passage: &Passage) -> f64 {
        let hours = |span: Span| span.0 as f64 / 3.6e6;
        let firm = self.firm.unwrap_or(self.way.price).dollars();
        (hours(passage.spot) * self.way.price.dollars() + hours(passage.firm) * firm) * f64::from(self.way.nodes)
    }
}
