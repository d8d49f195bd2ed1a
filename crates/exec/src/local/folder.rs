//! A lease's folder: its marks (what the engine knows), its agent's socket, and the last view that the
//! agent wrote before it ended.

use crate::agents::SOCKET;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use windfall_core::pool::Shape;
use windfall_core::{LeaseEnd, LeaseId, NodeId, OfferId, Symptom, Time};

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
    /// Leases that its group has; 0 of one that was never sold.
    #[serde(default)]
    pub units: u32,
    #[serde(default)]
    pub sold_at: Option<Time>,
    pub up_at: Option<Time>,
    pub ends_at: Option<Time>,
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
            units: 0,
            sold_at: None,
            up_at: None,
            ends_at: None,
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

    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    pub fn pid(&self) -> Option<i32> {
        std::fs::read_to_string(self.path.join("agent.pid")).ok()?.trim().parse().ok()
    }

    pub fn read_marks(&self) -> Option<Marks> {
        let text = std::fs::read_to_string(self.path.join("marks.json")).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Written whole and renamed: a server that dies here leaves the old marks or the new ones.
    pub fn write_marks(&self, marks: &Marks) {
        // A mark that cannot be written is found again by looking at the agent, so this is not fatal.
        let _ = self.write(marks);
    }

    /// The same, known to be on the disk: of a lease on another machine nothing else is found again.
    pub fn write_marks_durably(&self, marks: &Marks) -> io::Result<()> {
        self.write(marks)?;
        let of_marks = [self.path.join("marks.json")].into_iter();
        let folders = self.path.ancestors().take(2).map(Path::to_owned);
        of_marks.chain(folders).try_for_each(|path| std::fs::File::open(path)?.sync_all())
    }

    fn write(&self, marks: &Marks) -> io::Result<()> {
        let (new, old) = (self.path.join("marks.json.new"), self.path.join("marks.json"));
        std::fs::write(&new, serde_json::to_vec(marks)?)?;
        std::fs::rename(&new, &old)
    }

    /// Removes it. Somebody who is just ending may write a last word into it meanwhile, so it is tried again for a moment.
    pub fn delete(&self) {
        for _ in 0..20 {
            match std::fs::remove_dir_all(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                _ => return,
            }
        }
    }
}
