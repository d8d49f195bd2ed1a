//! The stored catalogue, format 2. Little-endian, no padding; a *number* is an unsigned LEB128 integer.
//!
//! ```text
//! magic      "WINDFCAT"
//! version    u32
//! sections   u32
//! table      sections × { id u32, offset u32, length u32, crc32 u32 }
//! crc32      u32, of everything above
//! bodies     one after the other, in the order of the table
//! ```
//!
//! | section | holds |
//! |---|---|
//! | 1 strings | count, lengths, then all bytes; everything below names strings by their number |
//! | 2 sources | who says what, since when (postcard) |
//! | 3 regions | cloud, name, zones |
//! | 4 types | instance types, those with accelerators first, sorted by accelerator, cloud, name, count |
//! | 5 listings | per type, per region: zone mask, then its prices; a type's row says how many bytes are its own |
//! | 6 history | per type, per offer: days and prices, one change after the other |
//! | 7 accelerators | data sheets (postcard) |
//! | 8 throughput | MFU, scaling, precision (postcard) |
//! | 9 data | egress, storage, licences (postcard) |
//!
//! A price is a number: mantissa × 4 + scale, where scale 0 counts ten micro-dollars, 1 micro-dollars and
//! 2 nano-dollars; the smallest form is used, so a price has one encoding. Zero stands for none. Optional
//! quantities are stored plus one.
//!
//! Opening reads the header, the strings, the regions and the rows of types; prices are walked only for types that a
//! search looks at. Section checksums are checked when a file is opened; of the embedded catalogue a test checks them.

mod bytes;
mod read;
mod write;

pub(crate) use bytes::Cursor;
pub(crate) use read::{StoredCatalog, TypeRow};
pub use write::{encode, write_file};

/// First bytes of a catalogue.
pub(crate) const MAGIC: &[u8; 8] = b"WINDFCAT";

/// What this program reads and writes.
pub const VERSION: u32 = 2;

/// Sections in the order of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Strings = 1,
    Sources = 2,
    Regions = 3,
    Types = 4,
    Listings = 5,
    History = 6,
    Accelerators = 7,
    Throughput = 8,
    Data = 9,
}

impl Section {
    pub(crate) const ALL: [Section; 9] = [
        Section::Strings,
        Section::Sources,
        Section::Regions,
        Section::Types,
        Section::Listings,
        Section::History,
        Section::Accelerators,
        Section::Throughput,
        Section::Data,
    ];
}

/// What a listing says, as bits before its prices.
pub(crate) mod says {
    /// One spot price for the region.
    pub const SPOT: u8 = 1;
    /// A spot price for each zone.
    pub const SPOT_BY_ZONE: u8 = 2;
    /// One on-demand price.
    pub const ON_DEMAND: u8 = 4;
    /// An on-demand price for each zone.
    pub const ON_DEMAND_BY_ZONE: u8 = 8;
    /// A price with a commitment of one year.
    pub const RESERVED_1Y: u8 = 16;
    /// A price with a commitment of three years.
    pub const RESERVED_3Y: u8 = 32;
    /// How often spot is taken back, and who says so.
    pub const BAND: u8 = 64;
}
