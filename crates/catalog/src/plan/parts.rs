//! The cost of a job in its parts. A part that nobody can price is unknown, never zero.

use super::request::{Request, Stored};
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

/// Everything but the instances themselves, for a job of that length with so many saves.
pub(super) fn besides(catalog: &Catalog, request: &Request, offer: &Offer<'_>, length: Span, saves: f64) -> Parts {
    let here = Site { cloud: offer.kind.cloud, region: offer.region };
    let keeps = |bytes: u64| {
        let per_gib = catalog.storage_per_gib_month(here, OBJECTS)?;
        let months = length.0 as f64 / MONTH.0 as f64;
        Some(NanoUsd((per_gib.0 as f64 * bytes as f64 / GIB * months).round() as i64))
    };
    let moved = |from: Option<&(String, String)>, to: Option<&(String, String)>, bytes: u64| {
        fn site<'a>(at: Option<&'a (String, String)>, here: Site<'a>) -> Site<'a> {
            at.map_or(here, |(cloud, region)| Site { cloud, region })
        }
        catalog.egress(site(from, here), site(to, here), bytes)
    };
    let kept = request.saves.bytes.map(|bytes| bytes.saturating_mul(u64::from(request.saves.keep.max(1))));
    let sent = request.saves.bytes.map(|bytes| (bytes as f64 * saves) as u64);
    let data = request.data.clone().unwrap_or(Stored { bytes: 0, at: None });
    let nothing = Some(NanoUsd(0));
    Parts {
        compute: None,
        restarts: None,
        checkpoint_storage: kept.and_then(keeps),
        dataset_storage: if data.bytes == 0 { nothing } else { keeps(data.bytes) },
        data_egress: if data.bytes == 0 { nothing } else { moved(data.at.as_ref(), None, data.bytes) },
        checkpoint_egress: match (&request.saves.at, sent) {
            (None, _) => nothing,
            (Some(_), None) => None,
            (at, Some(bytes)) => moved(None, at.as_ref(), bytes),
        },
        // The nodes of a gang stand in one zone, where no cloud of the catalogue charges for traffic.
        network: nothing,
        // The prices of the catalogue are those of Linux without a licence.
        licences: nothing,
        idle: nothing,
    }
}
