//! Where on its tape a replayed world is, and what can be bought there.

use super::SimulatedError;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use windfall_core::{Market, Offer, OfferId, PoolId, Span, Time};
use windfall_sim::{Tape, embedded};

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
    file: PathBuf,
    /// The world's time at which the window began.
    cued_at: Mutex<Option<Time>>,
}

impl Position {
    pub(super) fn open(root: &Path, replay: Replay) -> Result<Position, SimulatedError> {
        let tape = embedded(&replay.market)?.with_zones(&replay.zones)?;
        let file = root.join("cued.json");
        let cued = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        Ok(Position { tape, replay, file, cued_at: Mutex::new(cued) })
    }

    /// The recording.
    pub fn tape(&self) -> &Tape {
        &self.tape
    }

    /// The name of the engine that replays it.
    pub(super) fn engine(&self) -> &str {
        "simulated"
    }

    /// One market, one pool.
    pub(super) fn pool(&self) -> PoolId {
        PoolId(format!("{}/{}", self.engine(), self.replay.market).into())
    }

    /// The tape's offset at a moment of the world.
    pub fn offset(&self, now: Time) -> Span {
        let cued = *self.cued_at.lock().unwrap_or_else(PoisonError::into_inner);
        self.replay.from + cued.map_or(Span::ZERO, |cued| now - cued)
    }

    pub(super) fn cue(&self, now: Time) {
        *self.cued_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        let new = self.file.with_extension("new");
        let text = serde_json::to_vec(&now).expect("a number");
        // Lost only together with the machine; the window then begins anew with the next first job.
        let _ = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &self.file));
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
