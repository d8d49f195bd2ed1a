//! Removes folders in which somebody else wrote. They may be deeper than any stack or any number of open files allows, hold
//! more files than can be removed while somebody waits, and change while they are removed. So nothing recurses: what is
//! deep is moved up into the top folder first; nothing is followed: every step is by an open folder and one name; another
//! file system is left alone; and one call removes so much and no more.

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, fstat, openat, renameat_with, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much is removed while others wait.
pub(crate) const AT_ONCE: u64 = 20_000;

/// Names that are tried for a folder that is moved up: whoever owns it may have taken some.
const NAMES: u32 = 32;

/// Removes a folder and all in it, up to so many entries. An error of the kind `WouldBlock` says that there is more, and
/// that whoever calls again gets on with it.
pub fn remove_tree(folder: &Path, most: u64) -> io::Result<()> {
    let top = match open(CWD, folder) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        // A file, or a link, which is removed and not what it leads to.
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(unlinkat(CWD, folder, AtFlags::empty())?),
        Err(error) => return Err(error.into()),
    };
    let mut removal = Removal { device: fstat(&top)?.st_dev, top, left: most, moved: first_name() };
    loop {
        removal.empty_once()?;
        match unlinkat(CWD, folder, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // What was moved up is there now, or somebody writes.
            Err(Errno::NOTEMPTY | Errno::EXIST) => removal.take_one()?,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Removes a folder. It is given another name first: whoever dies here leaves all of it where it was, or nothing. What is
/// small is removed at once; what is large, or still written into, by a thread.
pub(crate) fn remove_aside(folder: &Path) -> io::Result<()> {
    let aside = folder.with_file_name(format!("{ASIDE}{}", first_name()));
    match std::fs::rename(folder, &aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        renamed => renamed?,
    }
    remove_tree(&aside, AT_ONCE).or_else(|_| remove_later(aside))
}

/// Removes what an earlier process has put aside in a folder and did not live to remove.
pub(crate) fn remove_left(above: &Path) {
    let entries = std::fs::read_dir(above).into_iter().flatten().flatten();
    let left = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(ASIDE));
    left.for_each(|entry| _ = remove_later(entry.path()));
}

/// The beginning of the name of a folder that is being removed.
const ASIDE: &str = ".gone-";

fn remove_later(folder: PathBuf) -> io::Result<()> {
    // Somebody who is just ending may write a last word into it. What cannot be removed is found again by the next process.
    let remove = move || {
        _ = (0..20).any(|_| {
            let is_removed = remove_tree(&folder, u64::MAX).is_ok();
            if !is_removed {
                std::thread::sleep(Duration::from_millis(50));
            }
            is_removed
        });
    };
    std::thread::Builder::new().name("removal".to_owned()).spawn(remove).map(drop)
}

fn first_name() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos()
}

fn open(at: BorrowedFd<'_>, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    openat(at, name, OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

struct Removal {
    top: OwnedFd,
    device: u64,
    left: u64,
    /// The number of the next folder that is moved up.
    moved: u128,
}

impl Removal {
    fn take_one(&mut self) -> io::Result<()> {
        self.left = self.left.checked_sub(1).ok_or(io::ErrorKind::WouldBlock)?;
        Ok(())
    }

    /// Removes what is in the top folder now. Folders inside folders come up into it.
    fn empty_once(&mut self) -> io::Result<()> {
        let mut entries = Dir::read_from(&self.top)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            if is_dots(entry.file_name()) || self.removed(None, entry.file_name(), entry.file_type())? {
                continue;
            }
            let inside = match open(self.top.as_fd(), entry.file_name()) {
                Ok(inside) => inside,
                // Somebody has put something else there, which the next look shows.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error.into()),
            };
            if fstat(&inside)?.st_dev != self.device {
                return Err(io::Error::other("another file system is mounted in there"));
            }
            self.empty_into_top(&inside)?;
            // One into which somebody writes is seen again.
            let _ = unlinkat(&self.top, entry.file_name(), AtFlags::REMOVEDIR);
        }
        Ok(())
    }

    fn empty_into_top(&mut self, folder: &OwnedFd) -> io::Result<()> {
        let mut entries = Dir::read_from(folder)?;
        while let Some(entry) = entries.read() {
            let entry = entry?;
            if !is_dots(entry.file_name()) && !self.removed(Some(folder), entry.file_name(), entry.file_type())? {
                self.move_up(folder, entry.file_name())?;
            }
        }
        Ok(())
    }

    /// Removes one name in the top folder, or in another one; false where it is a folder in which something is.
    fn removed(&mut self, folder: Option<&OwnedFd>, name: &CStr, kind: FileType) -> io::Result<bool> {
        self.take_one()?;
        let at = folder.unwrap_or(&self.top);
        // Not every file system tells what a name is.
        let flags = if kind == FileType::Directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(at, name, flags) {
            Err(Errno::NOTDIR) => unlinkat(at, name, AtFlags::empty())?,
            Err(Errno::ISDIR | Errno::PERM) if flags.is_empty() => match unlinkat(at, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(false),
                done => done?,
            },
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(false),
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn move_up(&mut self, folder: &OwnedFd, name: &CStr) -> io::Result<()> {
        for _ in 0..NAMES {
            self.moved += 1;
            let up = format!("{ASIDE}{}", self.moved);
            match renameat_with(folder, name, &self.top, up, RenameFlags::NOREPLACE) {
                Ok(()) | Err(Errno::NOENT) => return Ok(()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::os::unix::fs::symlink;

    /// A chain of folders that is far deeper than a path can say.
    fn chain(below: &Path, depth: u32) {
        let mut at = open(CWD, below).expect("opened");
        for _ in 0..depth {
            mkdirat(&at, "deep", Mode::from_raw_mode(0o700)).expect("made");
            at = open(at.as_fd(), "deep").expect("opened");
        }
        drop(openat(&at, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600)).expect("made"));
    }

    #[test]
    fn a_folder_that_is_deeper_than_a_path_can_say_is_removed_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let (folder, outside) = (dir.path().join("theirs"), dir.path().join("outside"));
        std::fs::create_dir_all(folder.join("a/b")).expect("made");
        std::fs::create_dir(&outside).expect("made");
        std::fs::write(outside.join("kept"), "kept").expect("written");
        symlink(&outside, folder.join("link")).expect("linked");
        symlink(&outside, folder.join("a/b/link")).expect("linked");
        symlink(outside.join("kept"), folder.join("a/file")).expect("linked");
        chain(&folder, 5_000);
        remove_tree(&folder, u64::MAX).expect("removed");
        assert!(!folder.exists() && outside.join("kept").exists());
        symlink(&outside, &folder).expect("linked");
        remove_tree(&folder, u64::MAX).expect("the link itself");
        assert!(folder.symlink_metadata().is_err() && outside.join("kept").exists());
        remove_tree(&folder, 1).expect("nothing is there");
    }

    #[test]
    fn one_call_removes_so_much_and_the_next_goes_on() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("many");
        std::fs::create_dir_all(folder.join("in/in")).expect("made");
        (0..50).for_each(|n| std::fs::write(folder.join(format!("in/in/{n}")), "x").expect("written"));
        let calls = (0..100).take_while(|_| {
            let removed = remove_tree(&folder, 10);
            removed.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        assert!((4..20).contains(&calls.count()));
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_put_aside_is_gone_from_where_it_was_and_removed() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("lease");
        std::fs::create_dir(&folder).expect("made");
        (0..AT_ONCE + 10).for_each(|n| std::fs::write(folder.join(n.to_string()), "").expect("written"));
        remove_aside(&folder).expect("begun");
        assert!(!folder.exists());
        std::fs::create_dir_all(dir.path().join(".gone-1/in")).expect("made");
        remove_left(dir.path());
        let is_empty = || std::fs::read_dir(dir.path()).expect("readable").next().is_none();
        let emptied = (0..1_000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            is_empty()
        });
        assert!(emptied);
    }
}
