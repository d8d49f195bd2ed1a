//! Chance that a seed repeats. Most draws are named by what they decide (`of`), not taken from one stream,
//! so that leaving a fault out changes as little of the rest of a world as can be.

/// A stream of numbers (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

/// The stream that belongs to a name.
pub(crate) fn of(seed: u64, name: &[u64]) -> Random {
    let mut random = Random(seed ^ 0x9e37_79b9_7f4a_7c15);
    for part in name {
        random.0 = random.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
    }
    random
}

impl Random {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound - 1`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound.max(1))) >> 64) as u64
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low).max(0) as u64 + 1) as i64
    }

    /// From `low` to `high`, small ones as likely as large ones by order of magnitude.
    pub fn spread(&mut self, low: i64, high: i64) -> i64 {
        let (mut top, mut steps) = (low, 0);
        while top < high {
            top *= 2;
            steps += 1;
        }
        let floor = low << self.below(steps.max(1));
        self.between(floor, (floor * 2).min(high).max(floor))
    }

    /// True so many times in a thousand.
    pub fn permille(&mut self, chance: u64) -> bool {
        self.below(1_000) < chance
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}
