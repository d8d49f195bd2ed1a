//! How sure a running time is.

/// Where a running time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The user said it of this very thing.
    Given,
    /// Measured on this very thing.
    Measured,
    /// Published figures for this accelerator and size.
    Published,
    /// In proportion to data sheets.
    Assumed,
}

impl Evidence {
    /// The share by which such a running time is off in one case of three. Programs that are rehearsed and run again
    /// differ by a few per cent; published figures are of other people's programs; data sheets are no programs at all.
    pub fn spread(self) -> f64 {
        match self {
            Evidence::Measured => 0.03,
            Evidence::Given => 0.05,
            Evidence::Published => 0.1,
            Evidence::Assumed => 0.2,
        }
    }

    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Evidence::Given => "given",
            Evidence::Measured => "measured",
            Evidence::Published => "published",
            Evidence::Assumed => "assumed",
        }
    }
}
