//! Offers with what is looked up of them.

use crate::offer::{Offer, OfferId};
use crate::spec::Ask;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Offers as they were last seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    all: BTreeMap<OfferId, Offer>,
    of_accelerator: BTreeMap<String, BTreeSet<OfferId>>,
}

impl Offers {
    pub fn insert(&mut self, offer: Offer) -> Option<Offer> {
        let before = self.remove(&offer.id);
        self.of_accelerator.entry(offer.accelerator.clone()).or_default().insert(offer.id.clone());
        self.all.insert(offer.id.clone(), offer);
        before
    }

    pub fn remove(&mut self, id: &OfferId) -> Option<Offer> {
        let offer = self.all.remove(id)?;
        let alike = self.of_accelerator.get_mut(&offer.accelerator);
        if alike.is_some_and(|alike| alike.remove(id) && alike.is_empty()) {
            self.of_accelerator.remove(&offer.accelerator);
        }
        Some(offer)
    }

    /// Offers of an accelerator, in the order of their names.
    pub fn of_accelerator(&self, accelerator: &str) -> impl Iterator<Item = &Offer> {
        self.of_accelerator.get(accelerator).into_iter().flatten().filter_map(|id| self.all.get(id))
    }

    /// Offers of the accelerators that are asked for, in the order of their names; all where nothing is said.
    pub fn of_asks(&self, asks: &[Ask]) -> Vec<&Offer> {
        if asks.is_empty() {
            return self.all.values().collect();
        }
        let ids = asks.iter().filter_map(|ask| self.of_accelerator.get(&ask.accelerator)).flatten();
        let mut offers: Vec<&Offer> = ids.filter_map(|id| self.all.get(id)).collect();
        if asks.len() > 1 {
            offers.sort_by(|a, b| a.id.cmp(&b.id));
            offers.dedup_by(|a, b| a.id == b.id);
        }
        offers
    }
}

impl Deref for Offers {
    type Target = BTreeMap<OfferId, Offer>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Serialize for Offers {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Offers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Offers, D::Error> {
        let mut offers = Offers::default();
        BTreeMap::<OfferId, Offer>::deserialize(from)?.into_values().for_each(|offer| _ = offers.insert(offer));
        Ok(offers)
    }
}
