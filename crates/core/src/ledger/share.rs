//! Exact fractions of a lease or of a node, and how an amount is divided by them without losing a nano-dollar.

use super::Beneficiary;
use crate::ids::LeaseId;
use crate::units::NanoUsd;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A part of what is paid for, and who it is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    pub beneficiary: Beneficiary,
    pub share: Share,
    /// The lease that has this part, where a node is paid for.
    #[serde(default)]
    pub lease: Option<LeaseId>,
}

impl Charge {
    /// A part of a lease.
    pub fn of(beneficiary: Beneficiary, share: Share) -> Charge {
        Charge { beneficiary, share, lease: None }
    }
}

/// A fraction of a lease: MIG has sevenths, which no number of thousandths can say. The order is not that of size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// So many
    pub part: u64,
    /// of so many.
    pub of: u64,
}

impl Share {
    /// All of it.
    pub const WHOLE: Share = Share { part: 1, of: 1 };

    /// A fraction in its lowest terms; a part of nothing is nothing.
    pub fn new(part: u64, of: u64) -> Share {
        match (gcd(part, of), of) {
            (0, _) | (_, 0) => Share { part: 0, of: 1 },
            (divisor, _) => Share { part: part / divisor, of: of / divisor },
        }
    }
}

impl Share {
    /// Several together; all of it where that is no number any more.
    pub fn sum(shares: impl IntoIterator<Item = Share>) -> Share {
        let shares: Vec<Share> = shares.into_iter().collect();
        match over_one_denominator(&shares) {
            Some((weights, common)) => Share::new(weights.iter().sum(), common),
            None => Share::WHOLE,
        }
    }

    /// What several leave of the whole; none when they leave nothing.
    pub fn rest(shares: impl IntoIterator<Item = Share>) -> Option<Share> {
        let taken = Share::sum(shares);
        (taken.part < taken.of).then(|| Share::new(taken.of - taken.part, taken.of))
    }

    /// This part of another part.
    pub fn times(self, other: Share) -> Share {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        let (part, of) = (product(self.part, other.part), product(self.of, other.of));
        let divisor = gcd(part, of).max(1);
        match (u64::try_from(part / divisor), u64::try_from(of / divisor)) {
            (Ok(part), Ok(of)) => Share::new(part, of),
            // Fractions so odd are no parts of a machine: nothing rather than a wrong part.
            _ => Share::new(0, 1),
        }
    }

    /// This part of a rate, rounded up.
    pub fn of_rate(self, rate: NanoUsd) -> NanoUsd {
        let product = i128::from(rate.0) * i128::from(self.part);
        let part = -(-product).div_euclid(i128::from(self.of.max(1)));
        NanoUsd(i64::try_from(part).unwrap_or(i64::MAX))
    }

    /// Whether it is no part at all.
    pub fn is_nothing(self) -> bool {
        self.part == 0 || self.of == 0
    }

    /// The smaller of two parts.
    pub fn least(self, other: Share) -> Share {
        let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
        if product(self.part, other.of) <= product(other.part, self.of) { self } else { other }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

fn gcd<N: Copy + Default + PartialEq + std::ops::Rem<Output = N>>(a: N, b: N) -> N {
    if b == N::default() { a } else { gcd(b, a % b) }
}

fn quotient(dividend: i128, divisor: u128) -> i64 {
    let divisor = i128::try_from(divisor.max(1)).unwrap_or(i128::MAX);
    i64::try_from(dividend.div_euclid(divisor)).unwrap_or(if dividend < 0 { i64::MIN } else { i64::MAX })
}

/// Shares that add up to one, whatever was given: what nobody has is charged to `spare`, and where more was given away
/// than there is, each has its part of what was given.
pub(super) fn whole(given: Vec<Charge>, spare: Beneficiary) -> Vec<Charge> {
    if is_one(&given) {
        return given;
    }
    let Some((weights, common)) = weights_of(&given) else {
        // Denominators so odd that no number is common to them are a mistake of the caller; the money stays whole.
        let first = given.first().copied().unwrap_or(Charge::of(spare, Share::WHOLE));
        return vec![Charge { share: Share::WHOLE, ..first }];
    };
    let total: u64 = weights.iter().sum();
    let of = total.max(common);
    let held = given.iter().zip(weights).filter(|(_, weight)| *weight > 0);
    let mut shares: Vec<_> = held.map(|(charge, weight)| Charge { share: Share::new(weight, of), ..*charge }).collect();
    if total < of {
        shares.push(Charge::of(spare, Share::new(of - total, of)));
    }
    shares
}

/// Parts of which nobody has more than its own part of what there is: where they are more than that together, each is less.
pub fn at_most_whole(given: Vec<Charge>) -> Vec<Charge> {
    let Some((weights, common)) = weights_of(&given) else { return given };
    let total: u64 = weights.iter().sum();
    match total > common {
        true => given
            .iter()
            .zip(weights)
            .map(|(charge, weight)| Charge { share: Share::new(weight, total), ..*charge })
            .collect(),
        false => given,
    }
}

/// Whether one has all of it, as is usual: then there is nothing to divide.
fn is_one(charges: &[Charge]) -> bool {
    matches!(charges, [Charge { share: Share::WHOLE, .. }])
}

/// Numerators over the least common denominator; none where that, or their sum, is no number of 64 bits.
fn over_one_denominator(given: &[Share]) -> Option<(Vec<u64>, u64)> {
    let shares = || given.iter().filter(|share| share.of > 0);
    let common = shares().try_fold(1_u64, |common, share| (common / gcd(common, share.of)).checked_mul(share.of))?;
    let weight = |share: &Share| common.checked_div(share.of).map_or(Some(0), |each| each.checked_mul(share.part));
    let weights = given.iter().map(weight).collect::<Option<Vec<u64>>>()?;
    weights.iter().try_fold(0_u64, |sum, weight| sum.checked_add(*weight))?;
    Some((weights, common))
}

/// What a part leaves of another; none when that is nothing.
pub(super) fn minus(from: Share, part: Share) -> Option<Share> {
    let (weights, common) = over_one_denominator(&[from, part])?;
    let rest = weights[0].saturating_sub(weights[1]);
    (rest > 0).then(|| Share::new(rest, common))
}

fn weights_of(charges: &[Charge]) -> Option<(Vec<u64>, u64)> {
    over_one_denominator(&charges.iter().map(|charge| charge.share).collect::<Vec<_>>())
}

/// An amount in proportion to weights. Rounding is cumulative: the pieces add up to the amount exactly, and each is
/// within a nano-dollar of its part.
pub(super) fn divided<const N: usize>(amount: NanoUsd, weights: [u64; N]) -> [NanoUsd; N] {
    let mut pieces = [NanoUsd(0); N];
    let mut dealt = Dealt::new(amount, weights.iter().map(|weight| u128::from(*weight)).sum());
    for (piece, weight) in pieces.iter_mut().zip(weights) {
        *piece = dealt.next(weight);
    }
    pieces
}

/// What is added to a total by shares that add up to one. Each total is dealt out as a whole, so it does not matter in how
/// many steps one becomes the other, nor in which direction: what is charged in one piece and taken back in two is nothing.
pub(super) fn between(before: NanoUsd, after: NanoUsd, charges: &[Charge]) -> Vec<NanoUsd> {
    if is_one(charges) {
        return vec![after - before];
    }
    let (before, after) = (by_share(before, charges), by_share(after, charges));
    after.into_iter().zip(before).map(|(after, before)| after - before).collect()
}

/// An amount by shares that add up to one; see [`divided`].
fn by_share(amount: NanoUsd, charges: &[Charge]) -> Vec<NanoUsd> {
    let (weights, common) = weights_of(charges).unwrap_or_else(|| (vec![1; charges.len()], charges.len() as u64));
    let mut dealt = Dealt::new(amount, u128::from(common));
    weights.into_iter().map(|weight| dealt.next(weight)).collect()
}

/// An amount that is dealt out piece by piece.
struct Dealt {
    amount: NanoUsd,
    of: u128,
    weight: u128,
    given: NanoUsd,
}

impl Dealt {
    fn new(amount: NanoUsd, of: u128) -> Dealt {
        Dealt { amount, of, weight: 0, given: NanoUsd(0) }
    }

    fn next(&mut self, weight: u64) -> NanoUsd {
        self.weight += u128::from(weight);
        // Below 2^63 · 2^64 whenever the weights are those of one denominator of 64 bits.
        let weight = i128::try_from(self.weight).unwrap_or(i128::MAX);
        let upto = NanoUsd(quotient(i128::from(self.amount.0).saturating_mul(weight), self.of));
        let piece = upto - self.given;
        self.given = upto;
        piece
    }
}
