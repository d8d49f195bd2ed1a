//! What a user holds already: commitments that are paid for anyway, and private discounts.

use crate::offer::Offer;
use crate::words::Term;
use serde::{Deserialize, Serialize};
use windfall_core::{NanoUsd, Span};

/// Capacity that is paid for whether it is used or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commitment {
    pub cloud: String,
    /// The region; none where it holds everywhere.
    #[serde(default)]
    pub region: Option<String>,
    pub instance_type: String,
    pub count: u32,
    /// The day on which it ends: `2027-03-31`.
    pub until: String,
    /// What each costs an hour, in dollars; paid already.
    #[serde(default)]
    pub price_per_hour: Option<f64>,
}

/// A price agreed with a cloud.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Discount {
    pub cloud: String,
    /// `spot`, `on-demand`; none for every market.
    #[serde(default)]
    pub market: Option<String>,
    /// An instance type, or the beginning of its name with `*`; none for every type.
    #[serde(default)]
    pub instance_type: Option<String>,
    pub percent: f64,
}

/// What the holdings file says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holdings {
    #[serde(default)]
    pub commitments: Vec<Commitment>,
    #[serde(default)]
    pub discounts: Vec<Discount>,
    /// Time left of each commitment, in order; counted by whoever read the file and knows the day.
    #[serde(skip)]
    pub left: Vec<Span>,
}

impl Holdings {
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        for held in &self.commitments {
            if held.count == 0 {
                return Err(format!("commitment on {}: count must be at least 1", held.instance_type));
            }
            if held.price_per_hour.is_some_and(|price| !price.is_finite() || !(0.0..=1e6).contains(&price)) {
                return Err(format!("commitment on {}: the price an hour is absurd", held.instance_type));
            }
        }
        for discount in &self.discounts {
            if !(0.0..100.0).contains(&discount.percent) {
                return Err(format!("discount on {}: expected 0 to 100 percent", discount.cloud));
            }
            if let Some(market) = &discount.market
                && Term::named(market).is_none()
            {
                return Err(format!("discount on {}: no market is called `{market}`", discount.cloud));
            }
        }
        Ok(())
    }

    /// The list price with the best discount taken off.
    pub fn price(&self, offer: &Offer<'_>) -> NanoUsd {
        let fits = |discount: &&Discount| {
            let named = |market: &String| Term::named(market).is_some_and(|terms| terms.contains(&offer.term));
            let of_type = |name: &String| match name.strip_suffix('*') {
                Some(beginning) => offer.kind.name.starts_with(beginning),
                None => offer.kind.name == name,
            };
            discount.cloud == offer.kind.cloud
                && discount.market.as_ref().is_none_or(named)
                && discount.instance_type.as_ref().is_none_or(of_type)
        };
        let percent = self.discounts.iter().filter(fits).map(|discount| discount.percent).fold(0.0, f64::max);
        // Parts in a million, so that money stays whole.
        let kept = 1_000_000 - (percent * 10_000.0).round() as i128;
        NanoUsd(i64::try_from(i128::from(offer.price.0) * kept / 1_000_000).unwrap_or(offer.price.0))
    }

    /// The commitment that covers an offer, and how long it still holds.
    pub(super) fn covering(&self, offer: &Offer<'_>, nodes: u32) -> Option<(&Commitment, Span)> {
        let held = self.commitments.iter().zip(&self.left);
        let fits = |held: &Commitment| {
            held.cloud == offer.kind.cloud
                && held.instance_type == offer.kind.name
                && held.region.as_ref().is_none_or(|region| region == offer.region)
                && held.count >= nodes
        };
        held.filter(|(held, left)| fits(held) && left.0 > 0).map(|(held, left)| (held, *left)).max_by_key(|(_, l)| *l)
    }
}
