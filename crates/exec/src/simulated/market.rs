//! Where on its tape a replayed world is, and what can be bought there.

use super::SimulatedError;
use crate::clock::WorldClock;
use crate::engine::{PastJob, Recording};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use windfall_core::{Market, NanoUsd, Offer, OfferId, Place, PoolId, Span, Time};
use windfall_sim::{Tape, TapeJob, embedded, omniscient};

/// Which market is replayed, and from where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// An embedded market's name; empty sells on-demand capacity of that market only, without a tape.
    pub market: String,
    /// The zones to sell in; empty for all.
    pub zones: Vec<String>,
    /// Offset of the window from the tape's beginning.
    pub from: Span,
}

/// A tape and where it is.
pub struct Position {
    tape: Tape,
    replay: Replay,
    engine: String,
    clock: Arc<WorldClock>,
    file: PathBuf,
    /// The world's times at which the window began, the latest last.
    begins: Mutex<Vec<Time>>,
}

/// How many beginnings are remembered: a bill that is asked for later has no least cost.
const MOST_BEGINS: usize = 1_000;

/// The file with the beginnings; it once held the latest alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum Begins {
    All(Vec<Time>),
    Latest(Time),
}

impl Position {
    pub(super) fn open(
        engine: &str,
        root: &Path,
        replay: Replay,
        clock: Arc<WorldClock>,
    ) -> Result<Position, SimulatedError> {
        let tape = embedded(&replay.market)?.with_zones(&replay.zones)?;
        let file = root.join("cued.json");
        let known = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        let begins = match known {
            Some(Begins::All(begins)) => begins,
            Some(Begins::Latest(begin)) => vec![begin],
            None => Vec::new(),
        };
        Ok(Position { tape, replay, engine: engine.to_owned(), clock, file, begins: Mutex::new(begins) })
    }

    pub(super) fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The name of the engine that replays it.
    pub(super) fn engine(&self) -> &str {
        &self.engine
    }

    /// Where it sells.
    pub(super) fn places(&self) -> Vec<Place> {
        let places: BTreeSet<Place> = self.tape.zones().map(|zone| self.tape.place(zone)).collect();
        places.into_iter().collect()
    }

    pub(super) fn has_begun(&self) -> bool {
        !self.begins().is_empty()
    }

    fn begins(&self) -> MutexGuard<'_, Vec<Time>> {
        self.begins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One market, one pool.
    pub(super) fn pool(&self) -> PoolId {
        PoolId(format!("{}/{}", self.engine(), self.replay.market).into())
    }

    /// The tape's offset at a moment of the world; none before the oldest beginning that is remembered.
    fn offset_at(&self, at: Time) -> Option<Span> {
        let begins = self.begins();
        let begin = begins.iter().rev().find(|begin| **begin <= at);
        begin.map(|begin| self.replay.from + (at - *begin))
    }

    fn offset(&self, now: Time) -> Span {
        self.offset_at(now).unwrap_or(self.replay.from)
    }

    pub(super) fn offers(&self, now: Time) -> Vec<Offer> {
        let offset = self.offset(now);
        let mut offers = Vec::new();
        for zone in self.tape.zones() {
            let Some(quote) = self.tape.quote(zone, offset) else { continue };
            // Capacity that is about to be taken away is not sold any more.
            let ending = self.tape.falls_below(zone, 1, offset, self.tape.notice).is_some();
            let capacity = if ending { 0 } else { quote.capacity };
            offers.push(self.offer(zone, Market::Spot, quote.price, Some(capacity)));
        }
        if let Some(zone) = self.tape.zones().next() {
            offers.push(self.offer(zone, Market::OnDemand, self.tape.on_demand, None));
        }
        offers
    }

    fn offer(&self, zone: &str, market: Market, price: windfall_core::NanoUsd, capacity: Option<u32>) -> Offer {
        let Tape { cloud, instance_type, accelerator, accelerators, notice, .. } = &self.tape;
        Offer {
            id: OfferId::new(&format!("{}/{zone}/{instance_type}/{market}", self.engine())),
            engine: self.engine().to_owned(),
            pool: self.pool(),
            cloud: cloud.clone(),
            region: self.tape.place(zone).region,
            zone: zone.to_owned(),
            instance_type: instance_type.clone(),
            market,
            accelerator: accelerator.clone(),
            accelerators: *accelerators,
            price_per_hour: price,
            capacity,
            notice: *notice,
        }
    }

    /// When the lease ends that is the `count`th of this offer, if that is within the notice.
    pub(super) fn ends_within_notice(&self, offer: &OfferId, count: u32, now: Time) -> Option<Time> {
        let mut parts = offer.0.split('/').skip(1);
        let zone = parts.next()?;
        if parts.last()? != "spot" {
            return None;
        }
        let within = self.tape.falls_below(zone, count, self.offset(now), self.tape.notice)?;
        Some(now + within)
    }
}

impl Recording for Position {
    fn name(&self) -> &str {
        &self.replay.market
    }

    fn zones(&self) -> Vec<String> {
        self.tape.zones().map(str::to_owned).collect()
    }

    fn begin_anew(&self) {
        let mut begins = self.begins();
        begins.push(self.clock.now());
        let old = begins.len().saturating_sub(MOST_BEGINS);
        begins.drain(..old);
        let new = self.file.with_extension("new");
        let text = serde_json::to_vec(&*begins).expect("numbers");
        // Lost only together with the machine; the window then begins anew with the next first job.
        let _ = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.file));
    }

    fn offers(&self) -> Vec<Offer> {
        self.offers(self.clock.now())
    }

    fn tick(&self) -> Span {
        self.tape.tick
    }

    fn ever_lacks(&self, units: u32) -> bool {
        self.tape.ever_lacks(units)
    }

    fn most(&self) -> Option<u32> {
        self.tape.most()
    }

    fn cheapest(&self) -> Option<NanoUsd> {
        self.tape.cheapest()
    }

    fn least_cost(&self, job: &PastJob) -> Option<NanoUsd> {
        let PastJob { began, deadline, work, restart, gang } = *job;
        omniscient(&self.tape, &TapeJob { from: self.offset_at(began)?, deadline, work, restart, gang })
    }
}
