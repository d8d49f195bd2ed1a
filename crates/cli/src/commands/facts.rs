//! Which catalogue questions are answered from.

use crate::here::Here;
use std::path::PathBuf;
use windfall_catalog::{Catalog, CatalogError};
use windfall_server::client::{Code, Failure};

/// The user's own catalogue, if there is one.
pub fn own_catalog(here: &Here) -> Option<PathBuf> {
    let named = std::env::var_os("WINDFALL_CATALOG").filter(|path| !path.is_empty()).map(PathBuf::from);
    named.or_else(|| Some(default_catalog(here)).filter(|path| path.exists()))
}

/// Where a catalogue of one's own lies unless another place is named.
pub fn default_catalog(here: &Here) -> PathBuf {
    here.home.join("catalog")
}

/// The catalogue in use: the user's own, else the embedded one.
pub fn catalog(here: &Here) -> Result<Catalog, Failure> {
    match own_catalog(here) {
        Some(path) => Catalog::open(&path).map_err(|error| unusable(&error)),
        None => Ok(Catalog::embedded()),
    }
}

/// A catalogue that cannot be used, and what to do about it.
pub fn unusable(error: &CatalogError) -> Failure {
    let message = match error {
        CatalogError::Read { source, .. } => format!("{error}: {source}"),
        _ => error.to_string(),
    };
    let hint = match error {
        CatalogError::Version { found, known, .. } if found > known => {
            "a newer windfall made it: use that one, or build it again"
        }
        CatalogError::Read { .. } => "WINDFALL_CATALOG names the file; unset it to use the embedded catalogue",
        _ => "build it again with `windfall catalog build`, or remove it to use the embedded one",
    };
    Failure::new(Code::BadInput, message).hint(hint)
}
