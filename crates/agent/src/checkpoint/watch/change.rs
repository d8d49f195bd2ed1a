//! What happened to one file since it was last taken.

/// A log rarely reaches this; a checkpoint that is being written nearly always does.
const FAST_BYTES_PER_SECOND: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub(super) struct Change {
    pub open: bool,
    pub by_rename: bool,
    /// From when on it counts as marked.
    pub whole_from: Option<u64>,
    /// Whether a file of this name had been taken before.
    pub rewrite: bool,
    /// It has only grown so far, as a log does.
    pub grows: bool,
    pub first_ms: u64,
    pub last_ms: u64,
    pub first_size: u64,
    pub size: u64,
}

impl Change {
    /// Whether it is probably being written right now.
    pub fn busy(&self, now: u64, settle_ms: u64) -> bool {
        self.open || (!self.by_rename && now < self.last_ms + settle_ms)
    }

    pub fn at_rest(&self, now: u64, settle_ms: u64) -> bool {
        !self.open && now >= self.last_ms + settle_ms
    }

    pub fn is_whole(&self, now: u64) -> bool {
        !self.open && self.whole_from.is_some_and(|from| from <= now)
    }

    pub fn is_renamed(&self) -> bool {
        self.by_rename && !self.open
    }

    pub fn is_fast(&self, now: u64) -> bool {
        let seconds = (now.saturating_sub(self.first_ms) / 1000).max(1);
        self.size.saturating_sub(self.first_size) / seconds >= FAST_BYTES_PER_SECOND
    }
}
