//! Exact fractions of a lease, and how an amount is divided by them without losing a nano-dollar.

use super::Beneficiary;
use crate::units::NanoUsd;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A fraction of a lease: MIG has sevenths, which no number of thousandths can say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        let shares: Vec<(Beneficiary, Share)> = shares.into_iter().map(|share| (Beneficiary::Idle, share)).collect();
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
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.part, self.of)
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn quotient(dividend: i128, divisor: u128) -> i64 {
    let divisor = i128::try_from(divisor.max(1)).unwrap_or(i128::MAX);
    i64::try_from(dividend.div_euclid(divisor)).unwrap_or(if dividend < 0 { i64::MIN } else { i64::MAX })
}

/// Shares that add up to one, whatever was given: what nobody has is idle, and where more was given away than there is,
/// each has its part of what was given.
pub(super) fn whole(given: &[(Beneficiary, Share)]) -> Vec<(Beneficiary, Share)> {
    if let [(beneficiary, Share { part, of })] = given
        && part == of
        && *of > 0
    {
        return vec![(*beneficiary, Share::WHOLE)];
    }
    let Some((weights, common)) = over_one_denominator(given) else {
        // Denominators so odd that no number is common to them are a mistake of the caller; the money stays whole.
        return vec![(given.first().map_or(Beneficiary::Idle, |(first, _)| *first), Share::WHOLE)];
    };
    let total: u64 = weights.iter().sum();
    let of = total.max(common);
    let held = given.iter().zip(weights).filter(|(_, weight)| *weight > 0);
    let mut shares: Vec<_> = held.map(|((beneficiary, _), weight)| (*beneficiary, Share::new(weight, of))).collect();
    if total < of {
        shares.push((Beneficiary::Idle, Share::new(of - total, of)));
    }
    shares
}

/// Numerators over the least common denominator; none where that, or their sum, is no number of 64 bits.
fn over_one_denominator(given: &[(Beneficiary, Share)]) -> Option<(Vec<u64>, u64)> {
    let shares = || given.iter().map(|(_, share)| *share).filter(|share| share.of > 0);
    let common = shares().try_fold(1_u64, |common, share| (common / gcd(common, share.of)).checked_mul(share.of))?;
    let weight = |share: &Share| common.checked_div(share.of).map_or(Some(0), |each| each.checked_mul(share.part));
    let weights = given.iter().map(|(_, share)| weight(share)).collect::<Option<Vec<u64>>>()?;
    weights.iter().try_fold(0_u64, |sum, weight| sum.checked_add(*weight))?;
    Some((weights, common))
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

/// An amount by shares that add up to one; see [`divided`].
pub(super) fn by_share(amount: NanoUsd, shares: &[(Beneficiary, Share)]) -> Vec<NanoUsd> {
    let (weights, common) =
        over_one_denominator(shares).unwrap_or_else(|| (vec![1; shares.len()], shares.len() as u64));
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
