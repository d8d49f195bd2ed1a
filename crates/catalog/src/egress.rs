//! What moving bytes costs, by the tiers of a month. Sums are exact; a whole month's bytes are taken together, so the
//! cost is continuous and grows with every byte.

use crate::catalog::Catalog;
use crate::knowledge::Tier;
use windfall_core::NanoUsd;

const GIB: i128 = 1 << 30;

/// A region that bytes come from or go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site<'p> {
    pub cloud: &'p str,
    pub region: &'p str,
}

impl Catalog {
    /// What `bytes` of a month out of a region to the internet cost; none where that is not known.
    pub fn internet_egress(&self, from: Site<'_>, bytes: u64) -> Option<NanoUsd> {
        let here = |known: &&crate::InternetEgress| {
            known.cloud == from.cloud && known.regions.iter().any(|region| region == from.region)
        };
        self.data_costs().internet.iter().find(here).map(|known| tiered(&known.tiers, bytes))
    }

    /// What `bytes` of a month from one region to another cost; none where that is not known. Inside a region it is
    /// nothing; to another cloud it is what the internet costs.
    pub fn egress(&self, from: Site<'_>, to: Site<'_>, bytes: u64) -> Option<NanoUsd> {
        if from == to {
            return Some(NanoUsd(0));
        }
        if from.cloud != to.cloud {
            return self.internet_egress(from, bytes);
        }
        let table = self.data_costs().regions.iter().find(|table| table.cloud == from.cloud)?;
        let number = |name: &str| table.regions.iter().position(|region| region == name).map(|at| at as u8);
        let (from, to) = (number(from.region)?, number(to.region)?);
        let rate = table.rates.iter().find(|(known_from, known_to, _)| (*known_from, *known_to) == (from, to))?;
        Some(tiered(&[Tier { up_to_gib: None, per_gib: rate.2 }], bytes))
    }

    /// What a GiB costs to keep for a month.
    pub fn storage_per_gib_month(&self, site: Site<'_>, class: &str) -> Option<NanoUsd> {
        let table = self.data_costs().storage.iter().find(|table| table.cloud == site.cloud && table.class == class)?;
        table.per_gib_month.iter().find(|(region, _)| region == site.region).map(|(_, price)| *price)
    }

    /// What an operating system costs an hour on an instance type.
    pub fn licence_per_hour(&self, cloud: &str, instance_type: &str, system: &str) -> Option<NanoUsd> {
        let all = &self.data_costs().licences;
        let known = all.iter().find(|known| known.cloud == cloud && known.instance_type == instance_type)?;
        known.per_hour.iter().find(|(name, _)| name == system).map(|(_, price)| *price)
    }
}

/// The sum over tiers, rounded once.
pub fn tiered(tiers: &[Tier], bytes: u64) -> NanoUsd {
    let bytes = i128::from(bytes);
    let mut from = 0i128;
    let mut sum = 0i128;
    for tier in tiers {
        let up_to = tier.up_to_gib.map_or(i128::MAX, |gib| i128::from(gib) * GIB);
        let inside = bytes.min(up_to) - from;
        if inside <= 0 {
            break;
        }
        sum += inside * i128::from(tier.per_gib.0);
        from = up_to;
    }
    NanoUsd(i64::try_from((sum + GIB / 2) / GIB).unwrap_or(i64::MAX))
}
