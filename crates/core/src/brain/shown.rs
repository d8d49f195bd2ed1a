//! An offer as jobs saw it last, to tell whether it is something else by now.

use crate::offer::Offer;
use crate::units::{NanoUsd, Span};

/// An offer as jobs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub offer: Offer,
    /// Instances that nobody held, where that is known, when a step began.
    pub free: Option<u32>,
    /// The least that whoever looked may have found: who came first in a step took some.
    pub left: Option<u32>,
    /// It refused, or its engine does not answer.
    pub shut: bool,
    /// How long it may have to be waited for, by refusals of late and waits in its queue.
    pub wait: Span,
}

impl Shown {
    /// Whether so many can be had.
    pub fn has(&self, least: u32) -> bool {
        !self.shut && self.free.is_none_or(|free| free >= least)
    }

    /// Whether everybody who looked found so many.
    pub fn had_for_all(&self, least: u32) -> bool {
        self.has(least) && self.left.is_none_or(|left| left >= least)
    }

    pub fn is_spot(&self) -> bool {
        self.offer.market.can_be_taken()
    }

    pub fn price(&self) -> NanoUsd {
        self.offer.price_per_hour
    }

    /// Whether it is the same to those who find room on a machine of it, or wait for one: how many there are does not matter,
    /// as long as it is sold at all.
    pub fn has_same_terms(&self, other: &Shown) -> bool {
        let terms = |shown: &Shown| (shown.price(), shown.shut, shown.offer.capacity == Some(0));
        self.is_same_thing(other) && terms(self) == terms(other)
    }

    /// Whether it is the same but for how many there are, and what they cost.
    pub fn is_same_thing(&self, other: &Shown) -> bool {
        let (price_per_hour, capacity) = (other.offer.price_per_hour, other.offer.capacity);
        Offer { price_per_hour, capacity, ..self.offer.clone() } == other.offer
    }
}
