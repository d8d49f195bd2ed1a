//! Folders that belong to whoever a lease runs as, and what root reads there. Such a person can put anything in their place:
//! a link to a file that only root can read, a pipe on which nobody ever writes, a file that never ends. So nothing is
//! followed, nothing is waited for, and nothing counts that is not a plain file of the folder's owner.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, chownat, fstat, mkdirat, openat};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Makes a folder of somebody's, closed to others, in one that is ours. One that is there must be theirs.
pub(crate) fn make(folder: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    match mkdirat(CWD, folder, Mode::from_raw_mode(0o700)) {
        // It was made by us just now, in a folder where nobody else can put anything in its place.
        Ok(()) => chownat(CWD, folder, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from),
        Err(Errno::EXIST) => {
            let there = fstat(&directory(folder)?)?;
            if there.st_uid == uid.as_raw() {
                return Ok(());
            }
            if there.st_uid == 0 {
                // Made, and then its maker was killed.
                let made = directory(folder)?;
                return rustix::fs::fchown(&made, Some(uid), Some(gid)).map_err(io::Error::from);
            }
            Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{} is somebody else's", folder.display())))
        }
        Err(error) => Err(error.into()),
    }
}

/// Makes a folder of ours that others pass through, and see nothing of.
pub(crate) fn make_passage(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o711))
}

/// A folder above one of root's that somebody else could put another in the place of what is below it.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("somebody else than root may change what is in {}, which is above it", above.display())]
pub struct Replaceable {
    pub above: PathBuf,
}

/// Fails where somebody else than root could put another folder in the place of one of root's: they own one above it, or may
/// write to one. In one where all may write and nobody removes what is another's (`/tmp`), what is root's stays. Whoever is
/// not root trusts whoever set up their home.
pub fn stays_in_place(folder: &Path) -> Result<(), Replaceable> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let may_replace = |above: &&Path| {
        std::fs::metadata(above).is_ok_and(|meta| {
            let by_group = meta.mode() & 0o020 != 0 && meta.gid() != 0;
            let is_open = (by_group || meta.mode() & 0o002 != 0) && meta.mode() & 0o1000 == 0;
            meta.uid() != 0 || is_open
        })
    };
    // As it is called, and where it is.
    let here = std::env::current_dir().unwrap_or_default().join(folder);
    let there = std::fs::canonicalize(&here).unwrap_or_else(|_| here.clone());
    let mut above = here.ancestors().skip(1).chain(there.ancestors().skip(1));
    above.find(may_replace).map_or(Ok(()), |above| Err(Replaceable { above: above.to_owned() }))
}

fn directory(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// Opens a plain file in a folder to read it. Where the folder is not ours, the file must be its owner's: a hard link to
/// somebody else's is none.
pub fn open(folder: &Path, name: &str) -> io::Result<File> {
    let folder = directory(folder)?;
    let owner = fstat(&folder)?.st_uid;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&folder, name, flags, Mode::empty())?;
    let stat = fstat(file.as_fd())?;
    let is_ours = owner == rustix::process::geteuid().as_raw();
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || !(is_ours || stat.st_uid == owner) {
        let text = format!("{name} is not a plain file of the folder's owner");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(File::from(file))
}

/// Removes a file from a folder.
pub(crate) fn remove(folder: &Path, name: &str) -> io::Result<()> {
    Ok(rustix::fs::unlinkat(directory(folder)?, name, AtFlags::empty())?)
}

/// A file in a folder that is no longer than `most` bytes; a longer one is an error, and no more of it is read.
pub(crate) fn read(folder: &Path, name: &str, most: u64) -> io::Result<String> {
    let mut text = String::new();
    open(folder, name)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is longer than {most} bytes")));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_but_a_plain_file_is_opened() {
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, secret) = (dir.path().join("own"), dir.path().join("secret"));
        std::fs::create_dir(&folder).expect("made");
        std::fs::write(&secret, "hush").expect("written");
        std::fs::write(folder.join("plain"), "said").expect("written");
        symlink(&secret, folder.join("link")).expect("linked");
        symlink(&folder, dir.path().join("way")).expect("linked");
        rustix::fs::mknodat(CWD, folder.join("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).expect("made");
        std::fs::create_dir(folder.join("folder")).expect("made");
        assert_eq!(read(&folder, "plain", 4).expect("plain"), "said");
        assert!(read(&folder, "plain", 3).is_err(), "a longer one than is read");
        for name in ["link", "pipe", "folder", "missing"] {
            assert!(open(&folder, name).is_err(), "{name}");
        }
        assert!(open(&dir.path().join("way"), "plain").is_err(), "a way there that is a link");
    }

    #[test]
    fn a_folder_of_root_s_is_not_below_one_that_others_may_change() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a folder of root's is not below one that others may change (needs root)");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let (above, state) = (dir.path().join("above"), dir.path().join("above/between/state"));
        std::fs::create_dir_all(&state).expect("made");
        let mode = |mode| std::fs::set_permissions(&above, PermissionsExt::from_mode(mode)).expect("set");
        let own = |uid, gid| std::os::unix::fs::chown(&above, Some(uid), Some(gid)).expect("given away");
        let refused = |folder: &Path| stays_in_place(folder).err().map(|found| found.above);
        let link = dir.path().join("link");
        symlink(&state, &link).expect("linked");
        for (uid, gid, bits, may) in [
            (0, 0, 0o755, true),
            (0, 0, 0o775, true),
            (0, 0, 0o1777, true),
            (0, 4_242, 0o775, false),
            (0, 0, 0o777, false),
            (4_242, 0, 0o755, false),
            (4_242, 0, 0o1777, false),
        ] {
            own(uid, gid);
            mode(bits);
            let expected = (!may).then(|| above.clone());
            assert_eq!(refused(&state), expected, "{uid} {gid} {bits:o}");
            assert_eq!(refused(&link), expected, "by a link: {uid} {gid} {bits:o}");
        }
    }

    #[test]
    fn a_file_in_somebody_s_folder_is_theirs_or_none() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: a file in somebody's folder is theirs or none (needs root)");
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, secret) = (dir.path().join("own"), dir.path().join("secret"));
        make(&folder, 4_242, 4_242).expect("made");
        make(&folder, 4_242, 4_242).expect("the same again");
        assert!(make(&folder, 4_243, 4_243).is_err(), "it is not theirs");
        std::fs::write(&secret, "hush").expect("written");
        std::fs::hard_link(&secret, folder.join("linked")).expect("linked");
        assert!(open(&folder, "linked").is_err(), "a file of root's by another name");
        std::os::unix::fs::chown(&secret, Some(4_242), None).expect("given away");
        assert_eq!(read(&folder, "linked", 4).expect("their own"), "hush");
    }
}
