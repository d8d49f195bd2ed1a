//! Listens to a directory tree through inotify and turns its events into signs. Directories are followed as
//! they appear; what was written into one before its watch was set is found by looking into it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;

use super::rules::Sign;

/// What one round of listening brought.
#[derive(Debug, Default)]
pub(super) struct Heard {
    pub signs: Vec<Sign>,
    /// Events were lost: look at everything.
    pub lost: bool,
}

#[derive(Debug)]
pub(super) struct Ears {
    fd: Arc<OwnedFd>,
    root: PathBuf,
    root_inode: u64,
    watches: HashMap<i32, PathBuf>,
    /// The directory of the program's marks. Through the same descriptor, so that their order with writes is kept.
    marks: Option<i32>,
    /// Renamed away and not yet seen to arrive: by cookie, with the round it was seen in.
    leaving: HashMap<u32, (PathBuf, bool, u64)>,
    created: BTreeSet<PathBuf>,
    round: u64,
}

fn mask() -> WatchFlags {
    WatchFlags::CREATE
        | WatchFlags::OPEN
        | WatchFlags::MODIFY
        | WatchFlags::CLOSE_WRITE
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::DELETE
        | WatchFlags::ONLYDIR
        | WatchFlags::DONT_FOLLOW
        | WatchFlags::EXCL_UNLINK
}

impl Ears {
    /// Fails where inotify is refused or its limits are reached: then the tree is polled.
    pub fn open(root: &Path, marks: Option<&Path>) -> Result<Self, Errno> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let mut ears = Self {
            fd: Arc::new(fd),
            root: root.to_owned(),
            root_inode: 0,
            watches: HashMap::new(),
            marks: None,
            leaving: HashMap::new(),
            created: BTreeSet::new(),
            round: 0,
        };
        ears.watch_all()?;
        if let Some(marks) = marks {
            let renamed = WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            ears.marks = Some(inotify::add_watch(&*ears.fd, marks, renamed)?);
        }
        Ok(ears)
    }

    pub fn fd(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.fd)
    }

    /// Watches every directory of the tree, those already watched too.
    pub fn watch_all(&mut self) -> Result<(), Errno> {
        self.root_inode = fs::metadata(&self.root).map_or(0, |meta| meta.ino());
        let mut found = Vec::new();
        self.watch_below(PathBuf::new(), &mut found)
    }

    /// A program may remove its directory and make it again.
    pub fn root_was_replaced(&self) -> bool {
        fs::metadata(&self.root).is_ok_and(|meta| meta.ino() != self.root_inode)
    }

    /// The watch comes first and the look second, so that nothing falls between the two.
    fn watch_below(&mut self, below: PathBuf, found: &mut Vec<PathBuf>) -> Result<(), Errno> {
        let full = self.root.join(&below);
        match inotify::add_watch(&*self.fd, &full, mask()) {
            Ok(watch) => drop(self.watches.insert(watch, below.clone())),
            // Gone again, or not a directory any more.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(e) => return Err(e),
        }
        for entry in fs::read_dir(&full).into_iter().flatten().flatten() {
            let path = below.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => self.watch_below(path, found)?,
                Ok(_) => found.push(path),
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Everything that happened since the last time. An error means that watching no longer works.
    pub fn listen(&mut self) -> Result<Heard, Errno> {
        self.round += 1;
        let mut heard = Heard::default();
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let fd = Arc::clone(&self.fd);
        let mut reader = Reader::new(&*fd, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e),
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                heard.lost = true;
            } else if flags.contains(ReadFlags::IGNORED) {
                self.watches.remove(&event.wd());
            } else if self.marks == Some(event.wd()) {
                heard.signs.push(Sign::Whole);
            } else if let (Some(dir), Some(name)) = (self.watches.get(&event.wd()), event.file_name()) {
                let path = dir.join(OsStr::from_bytes(name.to_bytes()));
                let cookie = event.cookie();
                if flags.contains(ReadFlags::ISDIR) {
                    self.on_directory(path, flags, cookie, &mut heard)?;
                } else {
                    self.on_file(path, flags, cookie, &mut heard);
                }
            }
        }
        self.forget_departed(&mut heard);
        Ok(heard)
    }

    fn on_file(&mut self, path: PathBuf, flags: ReadFlags, cookie: u32, heard: &mut Heard) {
        if flags.contains(ReadFlags::CREATE) {
            // A link into place is created too, but never opened by its maker.
            self.created.insert(path.clone());
            heard.signs.push(Sign::Touched(path));
        } else if flags.contains(ReadFlags::OPEN) {
            if self.created.remove(&path) {
                heard.signs.push(Sign::Written(path));
            }
        } else if flags.contains(ReadFlags::MODIFY) {
            heard.signs.push(Sign::Written(path));
        } else if flags.contains(ReadFlags::CLOSE_WRITE) {
            heard.signs.push(Sign::Closed(path));
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            self.leaving.insert(cookie, (path, false, self.round));
        } else if flags.contains(ReadFlags::MOVED_TO) {
            self.created.remove(&path);
            let from = self.leaving.remove(&cookie).map(|(from, _, _)| from);
            heard.signs.push(Sign::MovedIn(path, from));
        } else if flags.contains(ReadFlags::DELETE) {
            self.created.remove(&path);
            heard.signs.push(Sign::Gone(path));
        }
    }

    fn on_directory(&mut self, path: PathBuf, flags: ReadFlags, cookie: u32, heard: &mut Heard) -> Result<(), Errno> {
        let mut found = Vec::new();
        if flags.contains(ReadFlags::CREATE) {
            self.watch_below(path, &mut found)?;
            heard.signs.extend(found.into_iter().map(Sign::Touched));
        } else if flags.contains(ReadFlags::MOVED_FROM) {
            self.leaving.insert(cookie, (path, true, self.round));
        } else if flags.contains(ReadFlags::MOVED_TO) {
            let from = self.leaving.remove(&cookie).map(|(from, _, _)| from);
            // The same directory keeps its watch, which now gets its new path.
            self.watch_below(path.clone(), &mut found)?;
            heard.signs.push(Sign::FolderMovedIn(path.clone()));
            for file in found {
                let before = from.as_ref().and_then(|from| Some(from.join(file.strip_prefix(&path).ok()?)));
                heard.signs.push(Sign::Carried(file, before));
            }
        }
        Ok(())
    }

    /// The two halves of a rename are queued together; one that is still single a round later has left the tree.
    fn forget_departed(&mut self, heard: &mut Heard) {
        let round = self.round;
        let departed: BTreeMap<u32, (PathBuf, bool)> = (self.leaving.iter())
            .filter(|(_, (_, _, seen))| *seen < round)
            .map(|(cookie, (path, is_dir, _))| (*cookie, (path.clone(), *is_dir)))
            .collect();
        for (cookie, (path, is_dir)) in departed {
            self.leaving.remove(&cookie);
            if is_dir {
                let inside: Vec<i32> =
                    self.watches.iter().filter(|(_, at)| at.starts_with(&path)).map(|(watch, _)| *watch).collect();
                for watch in inside {
                    self.watches.remove(&watch);
                    let _ = inotify::remove_watch(&*self.fd, watch);
                }
            }
            heard.signs.push(Sign::Gone(path));
        }
    }

    /// Whether a rename's second half is still to come, or must be given up soon.
    pub fn is_waiting(&self) -> bool {
        !self.leaving.is_empty()
    }
}
