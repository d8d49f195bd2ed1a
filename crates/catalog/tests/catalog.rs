//! The embedded catalogue, and catalogues made from files.

#[path = "catalog/build.rs"]
mod build;
#[path = "catalog/egress.rs"]
mod egress;
#[path = "catalog/embedded.rs"]
mod embedded;
#[path = "catalog/search.rs"]
mod search;
#[path = "catalog/stored.rs"]
mod stored;
#[path = "catalog/truth.rs"]
mod truth;
