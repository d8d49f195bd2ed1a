//! How a program saves, as far as its directory shows it.

/// How a program was seen to save.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// Files or directories renamed into place.
    pub renames: u64,
    /// Times an existing file was written over in place: a kill at that moment loses it.
    pub in_place_rewrites: u64,
    /// From the start of watching to the first snapshot.
    pub first_save_after_ms: Option<u64>,
    /// Snapshots taken.
    pub saves: u64,
    /// The longest time from the first write of a file to its close or rename.
    pub longest_save_ms: u64,
    /// Whether something is being written now.
    pub mid_write_now: bool,
    /// Whether a file is open for writing now.
    pub open_now: bool,
    /// The program keeps saving, and none of its saves becomes a checkpoint.
    pub never_settles: bool,
}
