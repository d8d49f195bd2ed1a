//! A lease's folder: its marks (what the engine knows), its agent's socket, and the last view that the
//! agent wrote before it ended.

use crate::accounts::RunsAs;
use crate::agents::SOCKET;
use crate::directory::Account;
use crate::{owned, removal};
use serde::{Deserialize, Serialize};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use windfall_core::pool::Shape;
use windfall_core::{LeaseEnd, LeaseId, NodeId, OfferId, Symptom, Time};

/// The folder in a lease's, or in a job's, that belongs to whoever it runs as.
pub(crate) const OWN: &str = "own";

/// The file of a lease's marks, and its next version.
const MARKS: &str = "marks.json";
const NEW_MARKS: &str = "marks.json.new";

/// More than the number of a process takes.
const MOST_PID: u64 = 64;

/// What the engine knows of a lease; survives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marks {
    pub offer: OfferId,
    /// The machine that it is on, where that has a name.
    #[serde(default)]
    pub node: Option<NodeId>,
    #[serde(default)]
    pub size: Shape,
    /// The joined node that its agent runs on; none for this computer.
    #[serde(default)]
    pub host: Option<String>,
    /// The accelerators of the machine that it has; none for all of them.
    #[serde(default)]
    pub devices: Option<Vec<String>>,
    /// Who it is for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The most that it has of the machine's cores and memory; zero for no limit.
    #[serde(default, skip_serializing_if = "Shape::is_unsaid")]
    pub limits: Shape,
    /// As whom its agent and programs run; none for whoever runs the engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_as: Option<RunsAs>,
    /// Programs on it run as whoever submitted them, also where that is whoever runs the engine: it takes orders of its
    /// owner's alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_apart: bool,
    /// Leases that its group has; 0 of one that was never sold.
    #[serde(default)]
    pub units: u32,
    #[serde(default)]
    pub sold_at: Option<Time>,
    pub up_at: Option<Time>,
    pub ends_at: Option<Time>,
    /// When it ends by agreement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ends_by: Option<Time>,
    #[serde(default)]
    pub at_risk: bool,
    /// What is wrong with its machine, where it ends because of that.
    #[serde(default)]
    pub why: Option<Box<Symptom>>,
    pub gone: Option<(Time, LeaseEnd)>,
}

impl Default for Marks {
    fn default() -> Marks {
        let offer = OfferId::new("");
        Marks {
            offer,
            node: None,
            size: Shape::default(),
            host: None,
            devices: None,
            owner: String::new(),
            limits: Shape::default(),
            runs_as: None,
            is_apart: false,
            units: 0,
            sold_at: None,
            up_at: None,
            ends_at: None,
            ends_by: None,
            at_risk: false,
            why: None,
            gone: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub lease: LeaseId,
    pub path: PathBuf,
}

impl Folder {
    pub fn create(root: &Path, lease: LeaseId) -> io::Result<Folder> {
        let path = root.join(lease.to_string());
        std::fs::create_dir_all(&path)?;
        Ok(Folder { lease, path })
    }

    pub fn all(root: &Path) -> io::Result<Vec<Folder>> {
        let mut folders = Vec::new();
        for entry in std::fs::read_dir(root)? {
            let entry = entry?;
            if let Some(lease) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                folders.push(Folder { lease, path: entry.path() });
            }
        }
        folders.sort_by_key(|folder| folder.lease);
        Ok(folders)
    }

    /// The part of it that its agent has: all of it, or a folder inside that belongs to whoever the agent runs as.
    pub fn of_agent(&self) -> PathBuf {
        let own = self.path.join(OWN);
        if own.is_dir() { own } else { self.path.clone() }
    }

    /// Makes that folder for somebody.
    pub fn give_to(&self, account: &Account) -> io::Result<()> {
        owned::make_passage(&self.path)?;
        owned::make(&self.path.join(OWN), account.uid, account.gid)
    }

    pub fn socket(&self) -> PathBuf {
        self.of_agent().join(SOCKET)
    }

    pub fn pid(&self) -> Option<i32> {
        self.pid_in("agent.pid")
    }

    /// The process that begins another agent where one was killed.
    pub fn guard(&self) -> Option<i32> {
        self.pid_in("guard.pid")
    }

    fn pid_in(&self, file: &str) -> Option<i32> {
        owned::read(&self.of_agent(), file, MOST_PID).ok()?.trim().parse().ok()
    }

    /// What is written down of the lease; none where nothing is, and an error where marks are there that cannot be read.
    pub fn load_marks(&self) -> io::Result<Option<Marks>> {
        match std::fs::read(self.path.join(MARKS)) {
            Ok(text) => Ok(Some(windfall_core::codec::from_json(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether anything but marks was ever put here: its agent was on this computer.
    pub fn had_agent(&self) -> bool {
        let is_mark =
            |entry: &std::fs::DirEntry| [MARKS, NEW_MARKS].contains(&entry.file_name().to_string_lossy().as_ref());
        // Of what cannot be looked at nobody knows.
        let Ok(entries) = std::fs::read_dir(&self.path) else { return true };
        entries.into_iter().any(|entry| entry.map_or(true, |entry| !is_mark(&entry)))
    }

    /// Written whole and renamed: a server that dies here leaves the old marks or the new ones, and of a lease on another
    /// machine so does a computer that loses its power. Nothing else says that such a lease is ours.
    pub fn write_marks(&self, marks: &Marks) {
        // A mark that cannot be written is found again by looking at the agent, so this is not fatal.
        let _ = self.write(marks, marks.host.is_some());
    }

    /// The same, known to be on the disk.
    pub fn write_marks_durably(&self, marks: &Marks) -> io::Result<()> {
        self.write(marks, true)?;
        self.path.ancestors().take(2).try_for_each(|path| std::fs::File::open(path)?.sync_all())
    }

    fn write(&self, marks: &Marks, is_durable: bool) -> io::Result<()> {
        let (new, old) = (self.path.join(NEW_MARKS), self.path.join(MARKS));
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&serde_json::to_vec(marks)?)?;
        if is_durable {
            // A name that is on the disk before its content is that of an empty file.
            file.sync_all()?;
        }
        std::fs::rename(&new, &old)
    }

    /// Removes the folder of a lease for which nothing was written down. One with something in it stays.
    pub fn delete_unbegun(&self) {
        let _ = std::fs::remove_file(self.path.join(NEW_MARKS));
        let _ = std::fs::remove_dir(&self.path);
    }

    /// Removes it, with everything in it or not at all.
    pub fn delete(&self) {
        // One that cannot be moved still says that its lease is gone, and the next server's sweep tries again.
        let _ = removal::remove_aside(&self.path);
    }
}
