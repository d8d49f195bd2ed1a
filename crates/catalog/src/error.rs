//! What can be wrong with a catalogue or with the files that one is made from.

use std::path::PathBuf;

/// A catalogue that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    /// The file cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file is something else.
    #[error("{name}: not a Windfall catalogue")]
    Foreign {
        /// The file.
        name: String,
    },
    /// The file was made for another version of the format.
    #[error("{name}: has format {found}, this program reads format {known}")]
    Version {
        /// The file.
        name: String,
        /// What the file says.
        found: u32,
        /// What this program reads.
        known: u32,
    },
    /// Bytes are missing or changed.
    #[error("{name}: corrupt: {what}")]
    Corrupt {
        /// The file.
        name: String,
        /// What does not fit.
        what: String,
    },
}

/// Why no catalogue was made; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A file says something that cannot be true, or breaks off.
    #[error("{file}: {place}: {what}")]
    Bad {
        file: String,
        /// The line, the record or the key in it.
        place: String,
        what: String,
    },
    /// No file in the folder is in a known format.
    #[error("{}: no file with prices in a known format", path.display())]
    Empty { path: PathBuf },
    /// The result cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The catalogue to start from cannot be used.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
}

impl BuildError {
    /// Something wrong at a place of a file.
    pub fn bad(file: &str, place: impl ToString, what: impl ToString) -> BuildError {
        BuildError::Bad { file: file.to_owned(), place: place.to_string(), what: what.to_string() }
    }
}
