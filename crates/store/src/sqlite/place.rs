//! Whether the file at the store's name is still the one that is written to. Who removes or replaces it while a server runs
//! takes it from everybody else: commits go on into a file without a name, and are gone with the process.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use sqlx::SqliteConnection;

/// A file, whatever its name: the device, and its number there.
type Identity = (u64, u64);

/// Where a store is, and which files it had there.
pub(super) struct Place {
    path: PathBuf,
    file: Option<Identity>,
    /// The write-ahead log; none before the first commit.
    log: Option<Identity>,
}

impl Place {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: identity(path), log: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a commit that was just made can be found by others.
    pub fn is_kept(&mut self) -> bool {
        let log = identity(&beside(&self.path, "-wal"));
        let known = *self.log.get_or_insert(log.unwrap_or_default());
        log == Some(known) && self.file.is_some() && identity(&self.path) == self.file
    }

    /// Writes what `connection` still sees to a file with a name: the store's own, unless another file has that by now.
    /// Gives where it is.
    pub async fn rescue(&self, connection: &mut SqliteConnection) -> io::Result<PathBuf> {
        let rescued = beside(&self.path, ".rescued");
        let _ = std::fs::remove_file(&rescued);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&rescued)?;
        let written = sqlx::query("VACUUM INTO ?").bind(rescued.to_string_lossy()).execute(connection).await;
        written.map_err(io::Error::other)?;
        File::open(&rescued)?.sync_all()?;
        let others = identity(&self.path).filter(|found| Some(*found) != self.file);
        if others.is_some() {
            return Ok(rescued);
        }
        // A log of before does not belong to the file that is put here.
        for side in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&self.path, side));
        }
        std::fs::rename(&rescued, &self.path)?;
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()?;
        Ok(self.path.clone())
    }
}

fn identity(path: &Path) -> Option<Identity> {
    std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()))
}

/// The file beside another whose name goes on like this.
pub(super) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}
