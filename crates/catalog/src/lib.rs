//! Facts to decide with: what accelerators can be bought, where and for how much, what they can do, and what data
//! costs. Embedded in the program, rebuilt from files, searched in microseconds.
//!
//! Facts only: no clock, no network, and no model of what a job will cost (that is `core/market`). What nobody said
//! is unknown and never zero; every price carries its source and its date.
//!
//! ```
//! use windfall_catalog::{Catalog, Query, Term};
//! let catalog = Catalog::embedded();
//! let query = Query { accelerators: vec![catalog.wanted("H100:8")?], terms: vec![Term::Spot], ..Query::default() };
//! for offer in catalog.search(&query).iter().take(3) {
//!     println!("{} {} {} {}/h ({})", offer.kind.cloud, offer.region, offer.kind.name, offer.price, offer.source.as_of);
//! }
//! # Ok::<(), windfall_catalog::BadRequest>(())
//! ```

pub mod build;
mod catalog;
mod egress;
mod error;
mod facts;
pub mod format;
mod knowledge;
pub mod money;
pub mod names;
mod offer;
pub mod plan;
mod reopen;
mod search;
mod throughput;
mod words;

pub use catalog::Catalog;
pub use egress::{Site, tiered};
pub use error::{BuildError, CatalogError};
pub use facts::{Facts, History, PriceFact, SourceId, TypeFacts, TypeId};
pub use knowledge::{
    Accelerator, DataCosts, InternetEgress, Knowledge, LicencePrices, Mfu, NodeScaling, Precision, PrecisionGain,
    RegionEgress, StoragePrices, Throughput, Tier, TrainingTime,
};
pub use offer::{InstanceType, Offer, notice};
pub use search::{BadRequest, Obstacle, Query, Sort, Wanted};
pub use throughput::{GainEstimate, MfuEstimate};
pub use words::{Band, Count, Source, Term, date_of_day};
