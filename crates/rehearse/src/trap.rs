//! Freezes a program at the first sign of a save, so that its lease can be taken away in the middle of one.
//! The kernel tells about the write; a stopped program stays mid-write until it is killed.

use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A trap that is set. Dropping it takes it away.
pub struct Trap {
    sprung: Arc<AtomicBool>,
    lifted: Arc<AtomicBool>,
}

impl Trap {
    /// None where the kernel refuses to watch.
    pub fn set(dir: &Path, pid: u32) -> Option<Trap> {
        let group = Pid::from_raw(pid as i32)?;
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).ok()?;
        let flags = WatchFlags::CREATE | WatchFlags::MODIFY;
        inotify::add_watch(&fd, dir, flags).ok()?;
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let _ = inotify::add_watch(&fd, entry.path(), flags);
            }
        }
        let (sprung, lifted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let trap = Trap { sprung: Arc::clone(&sprung), lifted: Arc::clone(&lifted) };
        std::thread::spawn(move || wait(&fd, group, &sprung, &lifted));
        Some(trap)
    }

    /// Whether the program is frozen in a save.
    pub fn is_sprung(&self) -> bool {
        self.sprung.load(Ordering::Acquire)
    }
}

impl Drop for Trap {
    fn drop(&mut self) {
        self.lifted.store(true, Ordering::Release);
    }
}

fn wait(fd: &OwnedFd, group: Pid, sprung: &AtomicBool, lifted: &AtomicBool) {
    let mut buffer = [MaybeUninit::uninit(); 4 << 10];
    let mut reader = Reader::new(fd, &mut buffer);
    while !lifted.load(Ordering::Acquire) {
        if reader.next().is_ok() {
            // The group's leader is the program; one that has ended meanwhile was not hit.
            sprung.store(kill_process_group(group, Signal::STOP).is_ok(), Ordering::Release);
            return;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}
