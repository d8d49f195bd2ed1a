//! Goes through the keys of a map a few at a time, round after round: whoever drops what is over with each thing that is
//! added never stops to look at all of it.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Keys that are looked at with each thing that is added. While things come as fast as they end, no more than about half of
/// all that are kept are over.
pub(crate) const WITH_EACH: usize = 2;

/// Where a round stands: the last key that was looked at.
#[derive(Clone, Debug)]
pub(crate) struct Rounds<K>(Option<K>);

impl<K> Default for Rounds<K> {
    fn default() -> Rounds<K> {
        Rounds(None)
    }
}

impl<K: Clone + Ord> Rounds<K> {
    /// The next few keys; after the last one a round begins anew.
    pub fn next<V>(&mut self, map: &BTreeMap<K, V>, few: usize) -> Vec<K> {
        let after = self.0.take().map_or(Bound::Unbounded, Bound::Excluded);
        let next: Vec<K> = map.range((after, Bound::Unbounded)).take(few).map(|(key, _)| key.clone()).collect();
        self.0 = next.last().cloned();
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_its_turn_also_when_the_last_one_is_gone() {
        let mut map: BTreeMap<u32, ()> = (0..5).map(|key| (key, ())).collect();
        let mut rounds = Rounds::default();
        assert_eq!((rounds.next(&map, 2), rounds.next(&map, 2)), (vec![0, 1], vec![2, 3]));
        map.remove(&3);
        assert_eq!((rounds.next(&map, 2), rounds.next(&map, 2)), (vec![4], vec![]));
        assert_eq!(rounds.next(&map, 9), [0, 1, 2, 4]);
    }
}
