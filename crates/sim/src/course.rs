//! A stretch of recorded market as one gang sees it: for each zone and tick, whether the whole gang could be
//! had and at what price; and what is to be done there.

use windfall_core::{NanoUsd, OfferId, Span};

/// A zone over the stretch.
#[derive(Clone, Debug)]
pub struct Zone {
    pub name: String,
    /// Its spot offer.
    pub spot: OfferId,
    /// Whether the gang could be had, tick by tick.
    pub up: Vec<bool>,
    /// The spot price an hour of one instance, tick by tick; one value when it never moves.
    pub price: Vec<NanoUsd>,
}

impl Zone {
    /// A zone whose price never moves.
    pub fn new(name: &str, up: Vec<bool>, price: NanoUsd) -> Zone {
        Zone { name: name.to_owned(), spot: OfferId::new(&format!("{name}/spot")), up, price: vec![price] }
    }

    /// Whether it can be had; not beyond the end of the recording.
    pub fn is_up(&self, tick: usize) -> bool {
        self.up.get(tick).copied().unwrap_or(false)
    }

    /// The price at a tick; the last one known beyond the end.
    pub fn price_at(&self, tick: usize) -> NanoUsd {
        self.price.get(tick).or(self.price.last()).copied().unwrap_or_default()
    }
}

/// The stretch of market.
#[derive(Clone, Debug)]
pub struct Course {
    pub tick: Span,
    /// Zones to choose between.
    pub zones: Vec<Zone>,
    /// The on-demand price an hour of one instance, the same everywhere.
    pub on_demand: NanoUsd,
    /// Instances held at once.
    pub gang: u32,
    /// What moving the job from the zone of a row to that of a column costs; empty when nothing.
    pub egress: Vec<Vec<NanoUsd>>,
}

impl Course {
    /// The offer that nothing takes away.
    pub fn firm() -> OfferId {
        OfferId::new("anywhere/on-demand")
    }

    /// What moving from a zone to another costs.
    pub fn egress(&self, from: Option<usize>, to: usize) -> NanoUsd {
        let row = from.and_then(|from| self.egress.get(from));
        row.and_then(|row| row.get(to)).copied().unwrap_or_default()
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Running time.
    pub work: Span,
    /// Time until it must be done.
    pub deadline: Span,
    /// Changeover on every start.
    pub restart: Span,
}

impl Terms {
    /// The earliest possible end: on-demand from the start.
    pub fn earliest(&self) -> Span {
        self.work + self.restart
    }
}
