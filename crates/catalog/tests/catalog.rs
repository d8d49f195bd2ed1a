//! The embedded catalogue, and catalogues made from files.

#[path = "catalog/build.rs"]
mod build;
#[path = "catalog/egress.rs"]
mod egress;
#[path = "catalog/embedded.rs"]
mod embedded;
#[path = "catalog/plan.rs"]
mod plan;
#[path = "catalog/risks.rs"]
mod risks;
#[path = "catalog/search.rs"]
mod search;
#[path = "catalog/stored.rs"]
mod stored;
#[path = "catalog/truth.rs"]
mod truth;

/// The embedded catalogue, opened once.
fn catalog() -> &'static windfall_catalog::Catalog {
    static CATALOG: std::sync::LazyLock<windfall_catalog::Catalog> =
        std::sync::LazyLock::new(windfall_catalog::Catalog::embedded);
    &CATALOG
}
