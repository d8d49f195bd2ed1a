//! A row of SkyPilot's files, and the prices of many until it is known where they hold.

use super::rows::Rows;
use crate::facts::TypeId;
use crate::words::{Count, Term};
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::NanoUsd;

/// The columns of a row that are used.
#[derive(Clone, Debug)]
pub(super) struct Row<'r> {
    pub kind: &'r str,
    pub accelerator: &'r str,
    pub count: Option<Count>,
    pub vcpus_milli: Option<u32>,
    pub memory_mib: Option<u32>,
    pub gpu: &'r str,
    pub price: Option<NanoUsd>,
    pub spot: Option<NanoUsd>,
    pub region: &'r str,
    pub zone: Option<&'r str>,
}

/// Prices by zone, before it is known whether they hold in a whole region.
#[derive(Default)]
pub(super) struct Collected {
    sold: BTreeMap<(TypeId, String), BTreeSet<String>>,
    prices: BTreeMap<(TypeId, String, Term), BTreeMap<String, NanoUsd>>,
}

impl Collected {
    /// Notes that a type is sold in a zone and what it costs there.
    pub fn add(&mut self, kind: TypeId, region: &str, zone: Option<&str>, prices: [(Term, Option<NanoUsd>); 2]) {
        if let Some(zone) = zone {
            self.sold.entry((kind, region.to_owned())).or_default().insert(zone.to_owned());
        }
        for (term, price) in prices {
            let Some(price) = price else { continue };
            let zones = self.prices.entry((kind, region.to_owned(), term)).or_default();
            zones.insert(zone.unwrap_or_default().to_owned(), price);
        }
    }

    /// Hands everything over: a price that all zones of a region share is the region's.
    pub fn settle(self) -> Rows {
        let mut rows = Rows::default();
        for ((kind, region, term), zones) in self.prices {
            let sold = self.sold.get(&(kind, region.clone())).map_or(1, BTreeSet::len);
            let first = zones.values().next().copied();
            let shared = zones.len() == sold && zones.values().all(|price| Some(*price) == first);
            match first.filter(|_| shared) {
                Some(price) => rows.add(kind, &region, None, term, price),
                None => {
                    for (zone, price) in &zones {
                        rows.add(kind, &region, Some(zone.as_str()).filter(|zone| !zone.is_empty()), term, *price);
                    }
                }
            }
        }
        rows.sold = self.sold;
        rows
    }
}

/// The spot price of a row, if one is known. Outside AWS, a spot price equal to the on-demand price means that the
/// file has none.
pub(super) fn spot(cloud: &str, row: &Row<'_>) -> Option<NanoUsd> {
    row.spot.filter(|spot| cloud == "aws" || row.price.is_none_or(|price| *spot < price))
}
