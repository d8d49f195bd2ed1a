//! The cost of a job in its parts. A part that nobody can price is unknown, never zero.

use super::request::{JobData, Request, StoreLocation};
use crate::catalog::Catalog;
use crate::egress::Site;
use crate::offer::Offer;
use windfall_core::{NanoUsd, Span};

/// Hours of the month that storage is priced by.
const MONTH: Span = Span::hours(730);
const GIB: f64 = (1u64 << 30) as f64;
/// Where objects are kept when nothing else is said.
const OBJECTS: &str = "object-standard";

/// The parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// Instances while they do work that counts.
    pub compute: Option<NanoUsd>,
    /// Instances in changeovers, and doing work that an interruption undid.
    pub restarts: Option<NanoUsd>,
    /// Keeping checkpoints.
    pub checkpoint_storage: Option<NanoUsd>,
    /// Keeping the data where the job runs.
    pub dataset_storage: Option<NanoUsd>,
    /// Bringing the data there.
    pub data_egress: Option<NanoUsd>,
    /// Bringing checkpoints to their store.
    pub checkpoint_egress: Option<NanoUsd>,
    /// Between the nodes.
    pub network: Option<NanoUsd>,
    /// Operating systems.
    pub licences: Option<NanoUsd>,
    /// Paid for and not used.
    pub idle: Option<NanoUsd>,
}

impl Parts {
    /// Every part with its name.
    pub fn each(&self) -> [(&'static str, Option<NanoUsd>); 9] {
        [
            ("compute", self.compute),
            ("restarts", self.restarts),
            ("checkpoint_storage", self.checkpoint_storage),
            ("dataset_storage", self.dataset_storage),
            ("data_egress", self.data_egress),
            ("checkpoint_egress", self.checkpoint_egress),
            ("network", self.network),
            ("licences", self.licences),
            ("idle", self.idle),
        ]
    }

    /// All that is known.
    pub fn total(&self) -> NanoUsd {
        self.each().into_iter().filter_map(|(_, part)| part).fold(NanoUsd(0), |sum, part| sum + part)
    }

    /// Names of what is not known.
    pub fn unknown(&self) -> Vec<&'static str> {
        self.each().into_iter().filter(|(_, part)| part.is_none()).map(|(name, _)| name).collect()
    }
}

/// What the parts besides the instances cost.
pub(super) struct Besides {
    pub parts: Parts,
    /// What the unknown ones among them would cost at the dearest rates that are known: no way to run a job may look
    /// cheap because nobody knows what it costs.
    pub stand_in: NanoUsd,
}

/// Checkpoints whose size nobody said are ranked as if they were so large; the cost that is shown has no such guess.
const USUAL_CHECKPOINT: u64 = 10 << 30;

/// Everything but the instances themselves, for a job of that length with so many saves.
pub(super) fn besides(catalog: &Catalog, request: &Request, offer: &Offer<'_>, length: Span, saves: f64) -> Besides {
    let here = Site { cloud: offer.kind.cloud, region: offer.region };
    let mut stand_in = NanoUsd(0);
    let months = length.0 as f64 / MONTH.0 as f64;
    let kept_for =
        |per_gib: NanoUsd, bytes: u64| NanoUsd((per_gib.0 as f64 * bytes as f64 / GIB * months).round() as i64);
    let dearest = dearest_rates(catalog);
    let keeps = |bytes: u64, stand_in: &mut NanoUsd| {
        let per_gib = catalog.storage_per_gib_month(here, OBJECTS);
        if per_gib.is_none() {
            *stand_in += kept_for(dearest.storage, bytes);
        }
        per_gib.map(|per_gib| kept_for(per_gib, bytes))
    };
    let data = request.data.clone().unwrap_or(JobData { bytes: 0, at: None });
    let nothing = Some(NanoUsd(0));
    let bytes = request.saves.bytes;
    let kept = bytes.map(|bytes| bytes.saturating_mul(u64::from(request.saves.keep.max(1))));
    let checkpoint_storage = kept.and_then(|kept| keeps(kept, &mut stand_in));
    let dataset_storage = if data.bytes == 0 { nothing } else { keeps(data.bytes, &mut stand_in) };
    let data_egress = match &data.at {
        Some((cloud, region)) if data.bytes > 0 => catalog.egress(Site { cloud, region }, here, data.bytes),
        _ => nothing,
    };
    if data_egress.is_none() {
        stand_in += moved_at(dearest.internet, data.bytes);
    }
    let sent = |bytes: u64| (bytes as f64 * saves) as u64;
    // Traffic is priced by the month: a job of several months pays each month's first tiers again.
    let monthly = |bytes: u64, price: &dyn Fn(u64) -> Option<NanoUsd>| {
        let spans = months.max(1.0);
        price((sent(bytes) as f64 / spans) as u64).map(|one| NanoUsd((one.0 as f64 * spans) as i64))
    };
    let priced = |bytes: u64| match &request.saves.at {
        StoreLocation::Here => nothing,
        StoreLocation::At { cloud, region } => {
            monthly(bytes, &|bytes| catalog.egress(here, Site { cloud, region }, bytes))
        }
        // Whoever keeps checkpoints in a cloud runs where they are.
        StoreLocation::Within { cloud } if cloud == here.cloud => nothing,
        StoreLocation::Within { .. } => monthly(bytes, &|bytes| catalog.internet_egress(here, bytes)),
    };
    // Nothing is nothing, whatever the size.
    let free = priced(1 << 40) == nothing;
    let checkpoint_egress = if free { nothing } else { bytes.and_then(priced) };
    if checkpoint_egress.is_none() {
        let bytes = bytes.unwrap_or(USUAL_CHECKPOINT);
        stand_in += priced(bytes).unwrap_or_else(|| moved_at(dearest.internet, sent(bytes)));
    }
    let parts = Parts {
        compute: None,
        restarts: None,
        checkpoint_storage,
        dataset_storage,
        data_egress,
        checkpoint_egress,
        // The nodes of a gang stand in one zone, where no cloud of the catalogue charges for traffic.
        network: nothing,
        // The prices of the catalogue are those of Linux without a licence.
        licences: nothing,
        idle: nothing,
    };
    Besides { parts, stand_in }
}

struct Dearest {
    /// A GiB to the internet.
    internet: NanoUsd,
    /// A GiB for a month.
    storage: NanoUsd,
}

fn dearest_rates(catalog: &Catalog) -> Dearest {
    let costs = catalog.data_costs();
    let internet = costs.internet.iter().flat_map(|known| &known.tiers).map(|tier| tier.per_gib).max();
    let tables = costs.storage.iter().filter(|table| table.class == OBJECTS);
    let storage = tables.flat_map(|table| &table.per_gib_month).map(|(_, price)| *price).max();
    Dearest { internet: internet.unwrap_or_default(), storage: storage.unwrap_or_default() }
}

fn moved_at(per_gib: NanoUsd, bytes: u64) -> NanoUsd {
    NanoUsd((per_gib.0 as f64 * bytes as f64 / GIB).round() as i64)
}
