//! How often to save: a save costs time, and so does what was not saved when a lease is taken away.

use crate::units::Span;

const SHORTEST: Span = Span::minutes(1);
const LONGEST: Span = Span::hours(4);
/// Bytes a second at which a program writes a checkpoint, where nobody measured it.
const SAVES_AT: u64 = 1_000_000_000;
/// What a save costs where not even its size is known.
const USUAL: Span = Span::seconds(5);

/// Time that a program stands still for a save of so many bytes.
pub fn save_takes(bytes: Option<u64>) -> Span {
    bytes.map_or(USUAL, |bytes| Span(i64::try_from(bytes / (SAVES_AT / 1_000)).unwrap_or(i64::MAX)))
}

/// Young's interval: the square root of twice what a save takes times what a lease is expected to last.
pub fn save_every(takes: Span, lasts: Span) -> Span {
    let young = libm::sqrt(2.0 * takes.0.max(1) as f64 * lasts.0.max(1) as f64);
    Span((young as i64).clamp(SHORTEST.0, LONGEST.0))
}
