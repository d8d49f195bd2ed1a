//! From an offer to a candidate: the forecast of its market, played once for all offers that share it.

use super::candidate::{Basis, Candidate, Interval};
use super::evidence::Evidence;
use super::parts::{self, Parts};
use super::request::{Request, Work};
use super::scale::UNKNOWN_GBPS;
use super::speed::Need;
use super::why::Why;
use crate::catalog::Catalog;
use crate::offer::Offer;
use crate::words::{HOURS_OF_A_MONTH, Term};
use windfall_core::market::foresight::{ForecastTerms, JobForecast, Losses, Model, WorldOutcome};
use windfall_core::market::{save_every, save_takes};
use windfall_core::{Market, NanoUsd, Span};

/// An offer whose chance to make the deadline is lower than this is rejected.
const LEAST_CHANCE: f64 = 0.9;
/// Changeover where nobody says one: an instance boots and a program loads.
const USUAL_RESTART: Span = Span::minutes(5);
/// How often a market is looked at.
const TICK: Span = Span::minutes(2);
/// Bytes a second at which a save reaches its store.
const UPLOADS_AT: f64 = 2.5e8;
/// Where a cloud publishes nothing of how often it takes machines back: Google used to say that of its preemptible
/// machines 5 to 15 % were, a day.
const UNKNOWN_DAILY: (f64, f64) = (0.05, 0.15);
/// Chance that on-demand capacity is refused when it is asked for. Nobody publishes one.
const ON_DEMAND_REFUSED: f64 = 0.01;

/// An offer that would cost more than this is rejected: money is counted in numbers that end soon after.
const MOST_DOLLARS: f64 = 4e9;

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
    forecasts: Vec<(ForecastTerms, JobForecast)>,
    /// Mean lifetimes of leases: there are as many as bands and sizes of gangs.
    lifetimes: std::cell::RefCell<Vec<(Losses, Span)>>,
}

impl<'c, 'r> Weigh<'c, 'r> {
    pub fn new(catalog: &'c Catalog, request: &'r Request, model: &'r Model) -> Weigh<'c, 'r> {
        Weigh { catalog, request, model, forecasts: Vec::new(), lifetimes: std::cell::RefCell::default() }
    }

    pub fn restart(&self) -> Span {
        self.request.restart.unwrap_or(USUAL_RESTART)
    }

    /// The mean cost in dollars as it is ranked, unknown parts at the dearest known rates; or why it will not do.
    pub fn mean(&mut self, way: &Rough<'c>) -> Result<f64, Why> {
        let firm = self.firm_price(way);
        let at = self.forecast(way, firm.is_some());
        let forecast = &self.forecasts[at].1;
        if !forecast.finishes() {
            return Err(Why::NeverEnds);
        }
        let chance = forecast.in_time();
        if self.request.deadline.is_some() && chance < LEAST_CHANCE {
            return Err(Why::MayMiss { chance });
        }
        let price = Prices { way, firm };
        let instances = forecast.expect(|outcome| price.of(outcome)).mean;
        if instances > MOST_DOLLARS {
            return Err(Why::TooDear { dollars: instances });
        }
        let length = mean_span(forecast, |outcome| outcome.elapsed);
        let saves = self.saves(way);
        let besides = parts::besides(self.catalog, self.request, &way.offer, length, saves);
        let known = instances + besides.parts.total().dollars();
        if self.request.budget.is_some_and(|budget| known > budget.dollars()) {
            return Err(Why::Budget { cost: NanoUsd::from_dollars(known) });
        }
        Ok(known + besides.stand_in.dollars())
    }

    /// The candidate with all its figures.
    pub fn candidate(&mut self, way: Rough<'c>, places: usize) -> Candidate<'c> {
        let firm = self.firm_price(&way);
        let at = self.forecast(&way, firm.is_some());
        let forecast = &self.forecasts[at].1;
        let price = Prices { way: &way, firm };
        let instances = forecast.expect(|outcome| price.of(outcome));
        let hours = forecast.expect(|outcome| outcome.elapsed.0 as f64 / 3.6e6);
        let wasted = forecast.expect(|outcome| {
            let paid = (outcome.spot + outcome.firm).0.max(1) as f64;
            price.of(outcome) * (outcome.starting + outcome.undone).0 as f64 / paid
        });
        let length = mean_span(forecast, |outcome| outcome.elapsed);
        let besides = parts::besides(self.catalog, self.request, &way.offer, length, self.saves(&way));
        let more = besides.parts.total().dollars();
        let parts = Parts {
            compute: Some(NanoUsd::from_dollars(instances.mean - wasted.mean)),
            restarts: Some(NanoUsd::from_dollars(wasted.mean)),
            ..besides.parts
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
            in_time: self.request.deadline.map(|_| forecast.in_time()),
            over_budget: self.request.budget.map(|budget| {
                let more = more + besides.stand_in.dollars();
                forecast.share(|outcome| price.of(outcome) + more > budget.dollars())
            }),
            interruptions: forecast.expect(|outcome| f64::from(outcome.interruptions)).mean,
            interval: spot.then(|| self.interval(&way)),
            basis: self.basis(&way.offer),
            parts,
            stand_in: besides.stand_in,
            committed_until: way.committed.clone(),
            places,
            offer: way.offer,
        }
    }

    fn basis(&self, offer: &Offer<'_>) -> Basis {
        let recorded = self.request.recorded.iter().any(|(cloud, region, kind)| {
            (cloud.as_str(), region.as_str(), kind.as_str()) == (offer.kind.cloud, offer.region, offer.kind.name)
        });
        match (offer.term, offer.band) {
            (Term::Spot, _) if recorded => Basis::Recorded,
            (Term::Spot, Some(band)) => Basis::Band(band),
            (Term::Spot, None) => Basis::Assumed,
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

    fn forecast(&mut self, way: &Rough<'c>, has_firm: bool) -> usize {
        let spot = way.offer.term == Term::Spot;
        let every = self.every(way);
        let slower = 1.0 + self.save().0 as f64 / every.0.max(1) as f64;
        let terms = ForecastTerms {
            need: Span((way.need.span.0 as f64 * slower) as i64),
            left: self.request.deadline,
            restart: self.restart(),
            undone: if spot { self.undone(&way.offer, every) } else { Span::ZERO },
            tick: TICK,
            losses: if spot { self.losses(way) } else { Losses::Recorded(0.0) },
            has_firm,
            spread: way.need.evidence.spread(),
            refused: ON_DEMAND_REFUSED,
        };
        if let Some(at) = self.forecasts.iter().position(|(known, _)| *known == terms) {
            return at;
        }
        let forecast = if spot { self.model.forecast(&terms) } else { JobForecast::firm(&terms) };
        self.forecasts.push((terms, forecast));
        self.forecasts.len() - 1
    }

    fn save(&self) -> Span {
        save_takes(self.request.saves.bytes)
    }

    /// Young's interval, from the lifetime of such a lease.
    fn interval(&self, way: &Rough<'_>) -> Interval {
        if let Some(every) = self.request.saves.every {
            return Interval { every, why: "as the job file says".to_owned() };
        }
        let hours = self.lifetime(way).0 as f64 / 3.6e6;
        let why = format!("√(2 × {:.0} s a save × {hours:.1} h between interruptions)", self.save().0 as f64 / 1e3);
        Interval { every: self.every(way), why }
    }

    fn every(&self, way: &Rough<'_>) -> Span {
        let lasts = if way.offer.term == Term::Spot { self.lifetime(way) } else { Span::FOREVER };
        self.request.saves.every.unwrap_or_else(|| save_every(self.save(), lasts))
    }

    fn lifetime(&self, way: &Rough<'_>) -> Span {
        let losses = self.losses(way);
        let mut known = self.lifetimes.borrow_mut();
        if let Some((_, lifetime)) = known.iter().find(|(of, _)| *of == losses) {
            return *lifetime;
        }
        let lifetime = self.model.mean_lifetime(losses);
        known.push((losses, lifetime));
        lifetime
    }

    /// How often a lease of this offer is taken back: as recorded, as published, or else as assumed.
    fn losses(&self, way: &Rough<'_>) -> Losses {
        let of_one = match self.basis(&way.offer) {
            Basis::Recorded | Basis::Firm => Losses::Recorded(1.0),
            Basis::Band(band) => {
                let (least, most) = band.monthly_range();
                Losses::of_share(least, most, HOURS_OF_A_MONTH)
            }
            Basis::Assumed => Losses::of_share(UNKNOWN_DAILY.0, UNKNOWN_DAILY.1, 24.0),
        };
        of_one.of_gang(way.nodes)
    }

    /// Work that an interruption undoes: none when the notice is long enough to save, else half an interval.
    fn undone(&self, offer: &Offer<'_>, every: Span) -> Span {
        let upload = self.request.saves.bytes.map_or(0.0, |bytes| bytes as f64 / UPLOADS_AT * 1e3);
        let saved = self.save().0 as f64 + upload <= notice(offer.kind.cloud).0 as f64;
        if saved { Span::ZERO } else { Span(every.0 / 2) }
    }

    /// Saves while the program runs: nothing is saved while it waits for a machine.
    fn saves(&self, way: &Rough<'_>) -> f64 {
        (way.need.span.0 as f64 / self.every(way).0.max(1) as f64).max(1.0)
    }

    /// What was assumed.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            "spot prices stand still".to_owned(),
            format!(
                "spot is taken back as often as recorded (AWS, 2022-23) where this very market was recorded, as often as \
                 AWS publishes for a type and region, else {:.0} to {:.0} % a day; it comes back as in the recorded markets",
                UNKNOWN_DAILY.0 * 100.0,
                UNKNOWN_DAILY.1 * 100.0
            ),
            format!(
                "running time off by {:.0} % (given), {:.0} % (measured), {:.0} % (published) or {:.0} % (assumed) two times of \
                 three; on-demand refused {:.0} time in 100, for half an hour",
                Evidence::Given.spread() * 100.0,
                Evidence::Measured.spread() * 100.0,
                Evidence::Published.spread() * 100.0,
                Evidence::Assumed.spread() * 100.0,
                ON_DEMAND_REFUSED * 100.0
            ),
        ];
        if self.request.nodes.iter().any(|nodes| *nodes > 1) {
            notes.push(
                "N nodes are interrupted N^0.28 times as often as one, as in two AWS markets that counted up to 4 and 16 \
                 (where the losses are as recorded: N^0.1, which fits what those gangs paid)"
                    .to_owned(),
            );
        }
        if self.request.nodes.iter().any(|nodes| *nodes > 1) {
            notes.push(format!("a network that nobody published has {UNKNOWN_GBPS:.0} Gb/s for each node"));
        }
        if let Some(Work::Tokens { tuning, .. }) = &self.request.work {
            notes.push(tuning.assumed());
        }
        if self.request.restart.is_none() {
            notes.push("changeover 5 min: say checkpoint.restart to replace it".to_owned());
        }
        if self.request.data.as_ref().is_some_and(|data| data.bytes > 0 && data.at.is_none()) {
            notes.push("the data lies where the job runs: say data.at to have its way there in the cost".to_owned());
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

fn mean_span(forecast: &JobForecast, of: impl Fn(&WorldOutcome) -> Span) -> Span {
    Span(forecast.expect(|outcome| of(outcome).0 as f64).mean as i64)
}

/// What an outcome costs, in dollars.
struct Prices<'w, 'c> {
    way: &'w Rough<'c>,
    firm: Option<NanoUsd>,
}

impl Prices<'_, '_> {
    fn of(&self, outcome: &WorldOutcome) -> f64 {
        let hours = |span: Span| span.0 as f64 / 3.6e6;
        let firm = self.firm.unwrap_or(self.way.price).dollars();
        (hours(outcome.spot) * self.way.price.dollars() + hours(outcome.firm) * firm) * f64::from(self.way.nodes)
    }
}
