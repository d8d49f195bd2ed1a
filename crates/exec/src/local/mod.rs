//! Leases on this computer: each is a folder with an agent in it, so it outlives the server. The folder is also the only
//! memory, so a new server finds every lease, and every release, where the old one left them. Which of them are given, and
//! which are taken away again, is up to the engine that they are of.

mod folder;
mod launcher;

pub(crate) use folder::{Folder, Marks};

use crate::agents;
use crate::clock::WorldClock;
use crate::engine::{EngineError, LeaseState, Owned, SeenGroup, SeenLease};
use launcher::Launcher;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use windfall_core::worker::AgentRequest;
use windfall_core::{DecisionId, GroupPhase, LeaseEnd, LeaseId, LeaseTerms, Span};

/// How often machines are looked at.
const TEND: Duration = Duration::from_millis(100);
/// How often an agent is asked for a sign of life.
const ASK_AGENT: Duration = Duration::from_secs(5);
/// An agent that has not answered for this long is a machine that is gone, whatever its process table says.
const SILENCE: Span = Span::minutes(5);
/// The least real time for it: a busy computer is no faster because a world is.
const LEAST_SILENCE: Duration = Duration::from_secs(45);

pub(crate) struct Held {
    pub folder: Folder,
    pub marks: Marks,
    /// Its agent was told when it will be taken away.
    pub told: bool,
}

impl Held {
    pub fn is_gone(&self) -> bool {
        self.marks.gone.is_some()
    }
}

pub(crate) struct LocalLeases {
    pub clock: Arc<WorldClock>,
    launcher: Launcher,
    root: PathBuf,
    held: Mutex<BTreeMap<LeaseId, Held>>,
    /// One change of a lease at a time: a launch that overtakes a sweep would leave an agent that nobody ends.
    gates: Mutex<BTreeMap<LeaseId, Arc<tokio::sync::Mutex<()>>>>,
    /// Rung whenever something may have changed.
    pub changed: Notify,
}

impl LocalLeases {
    /// Takes over the leases that it finds in `root`. `program` is the binary that knows the `agent` subcommands.
    pub fn open(root: PathBuf, clock: Arc<WorldClock>, program: PathBuf) -> std::io::Result<Arc<LocalLeases>> {
        std::fs::create_dir_all(&root)?;
        let folders = Folder::all(&root)?;
        let (held, gates, changed) = (Mutex::default(), Mutex::default(), Notify::new());
        let leases = Arc::new(LocalLeases { clock, launcher: Launcher { program }, root, held, gates, changed });
        folders.into_iter().for_each(|folder| leases.adopt(folder));
        Ok(leases)
    }

    pub fn held(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self, lease: LeaseId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.gates.lock().unwrap_or_else(PoisonError::into_inner).entry(lease).or_default())
    }

    /// Takes a folder of an earlier server over: alive, or gone since some time nobody saw.
    fn adopt(self: &Arc<Self>, folder: Folder) {
        let Some(marks) = folder.read_marks() else { return };
        // One that never came up is asked for again by the log, or ended as an orphan.
        let (lease, up) = (folder.lease, marks.gone.is_none() && marks.up_at.is_some());
        self.held().insert(lease, Held { folder, marks, told: false });
        if up {
            tokio::spawn(Arc::clone(self).tend(lease));
        }
    }

    pub fn mark(&self, lease: LeaseId, change: impl FnOnce(&mut Marks)) {
        if let Some(held) = self.held().get_mut(&lease) {
            change(&mut held.marks);
            held.folder.write_marks(&held.marks);
        }
        self.changed.notify_one();
    }

    fn folder(&self, lease: LeaseId) -> Option<Folder> {
        self.held().get(&lease).map(|held| held.folder.clone())
    }

    /// Looks after the machine of a lease until that is gone: one whose agent has no process, or does not answer for
    /// long, is lost.
    async fn tend(self: Arc<Self>, lease: LeaseId) {
        let mut heard = tokio::time::Instant::now();
        let mut asked = heard;
        loop {
            tokio::time::sleep(TEND).await;
            let Some(folder) = self.folder(lease) else { return };
            if self.state_of(lease).is_some_and(|state| matches!(state, LeaseState::Gone { .. })) {
                return;
            }
            if asked.elapsed() > ASK_AGENT {
                asked = tokio::time::Instant::now();
                if agents::ask(&folder.path, &AgentRequest::Watch { above: 0 }).await.is_ok() {
                    heard = tokio::time::Instant::now();
                }
            }
            let silent = heard.elapsed() > self.clock.real_time(SILENCE).max(LEAST_SILENCE);
            if (silent || !self.launcher.is_alive(&folder)) && self.end(lease, LeaseEnd::Lost).await.is_ok() {
                return;
            }
        }
    }

    /// Gives a group its leases: `choose` says what each slot becomes, from what is held and from what the group was
    /// given before. What an earlier server began is made whole.
    pub fn give(
        &self,
        group: DecisionId,
        choose: impl FnOnce(&BTreeMap<LeaseId, Held>, &BTreeMap<u32, Marks>) -> Result<Vec<Marks>, EngineError>,
    ) -> Result<(), EngineError> {
        let mut held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known: BTreeMap<u32, Marks> = known.map(|(lease, held)| (lease.slot, held.marks.clone())).collect();
        // Given back before it was asked for, or given by a server that knew no groups.
        if !known.is_empty() && known.values().all(|marks| marks.units == 0) {
            return Ok(());
        }
        let chosen = choose(&held, &known)?;
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        for (marks, slot) in chosen.into_iter().zip(0..) {
            if let Entry::Vacant(missing) = held.entry(LeaseId { group, slot }) {
                let folder = Folder::create(&self.root, *missing.key()).map_err(why)?;
                folder.write_marks(&marks);
                missing.insert(Held { folder, marks, told: false });
            }
        }
        Ok(())
    }

    /// Starts the agents of a group that was given, and tells of it.
    pub async fn launch_all(self: &Arc<Self>, group: DecisionId) -> Result<SeenGroup, EngineError> {
        let known = self.group_of(group).map(|seen| seen.leases).unwrap_or_default();
        let pending = known.iter().filter(|seen| seen.state == LeaseState::Pending).map(|seen| seen.lease);
        let launched = futures::future::join_all(pending.map(|lease| self.launch(lease))).await;
        launched.into_iter().collect::<Result<Vec<()>, EngineError>>()?;
        self.group_of(group).ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }

    async fn launch(self: &Arc<Self>, lease: LeaseId) -> Result<(), EngineError> {
        let gate = self.gate(lease);
        let _alone = gate.lock().await;
        if self.state_of(lease) != Some(LeaseState::Pending) {
            return Ok(());
        }
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let held = self.held().get(&lease).map(|held| (held.folder.clone(), held.marks.devices.clone()));
        let (folder, devices) = held.ok_or(EngineError::NoLease(lease))?;
        self.launcher.launch(&folder, devices.as_deref()).await.map_err(why)?;
        let now = self.clock.now();
        self.mark(lease, |marks| {
            marks.up_at.get_or_insert(now);
        });
        tokio::spawn(Arc::clone(self).tend(lease));
        Ok(())
    }

    /// The leases of a group that are known, and where the group stands; none where nothing of it is known.
    pub fn group_of(&self, group: DecisionId) -> Option<SeenGroup> {
        let held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known: Vec<(LeaseId, Marks)> = known.map(|(lease, held)| (*lease, held.marks.clone())).collect();
        drop(held);
        let units = known.iter().map(|(lease, marks)| marks.units.max(lease.slot + 1)).max()?;
        let at = known.iter().filter_map(|(_, marks)| marks.sold_at.or(marks.up_at)).min().unwrap_or(self.clock.now());
        let seen = |lease: LeaseId| self.state_of(lease).map(|state| SeenLease { lease, state });
        let leases = known.iter().filter_map(|(lease, _)| seen(*lease)).collect();
        Some(SeenGroup { group, phase: GroupPhase::Granted { at, units }, leases })
    }

    pub fn state_of(&self, lease: LeaseId) -> Option<LeaseState> {
        self.held().get(&lease).map(|held| match (held.marks.gone, held.marks.up_at) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => LeaseState::Up {
                since,
                terms: LeaseTerms {
                    offer: Some(held.marks.offer.clone()),
                    node: held.marks.node.clone(),
                    size: held.marks.size,
                    ..LeaseTerms::default()
                },
                // Its agent listens before it is up.
                ready: Some(held.folder.address()),
                ends_at: held.marks.ends_at,
                at_risk: held.marks.at_risk,
            },
            (None, None) => LeaseState::Pending,
        })
    }

    pub fn owned(&self) -> Vec<Owned> {
        let owned = |(lease, held): (&LeaseId, &Held)| Owned {
            lease: *lease,
            offer: held.marks.offer.clone(),
            since: held.marks.up_at,
            until: held.marks.gone.map(|(at, _)| at),
            address: Some(held.folder.address()),
        };
        self.held().iter().map(owned).collect()
    }

    /// Ends a lease and everything on it; the first end counts.
    pub async fn end(&self, lease: LeaseId, end: LeaseEnd) -> Result<LeaseState, EngineError> {
        let gate = self.gate(lease);
        let _alone = gate.lock().await;
        let folder = match self.folder(lease) {
            Some(folder) => folder,
            None if end == LeaseEnd::Released => self.bury(lease)?,
            // Forgotten meanwhile: whoever still followed it must not bring it back.
            None => return Err(EngineError::NoLease(lease)),
        };
        if let Some(gone @ LeaseState::Gone { .. }) = self.state_of(lease) {
            return Ok(gone);
        }
        let at = self.clock.now();
        let gently = end == LeaseEnd::Released;
        self.launcher.end(&folder, gently).await.map_err(|why| EngineError::Unreachable { why: why.to_string() })?;
        self.mark(lease, |marks| {
            marks.gone.get_or_insert((marks.ends_at.map_or(at, |ends| ends.min(at)), end));
        });
        self.state_of(lease).ok_or(EngineError::NoLease(lease))
    }

    /// A folder for a lease that was released before it was ever acquired, so that it never will be.
    fn bury(&self, lease: LeaseId) -> Result<Folder, EngineError> {
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let folder = Folder::create(&self.root, lease).map_err(why)?;
        let marks = Marks { gone: Some((self.clock.now(), LeaseEnd::Released)), ..Marks::default() };
        folder.write_marks(&marks);
        self.held().insert(lease, Held { folder: folder.clone(), marks, told: false });
        Ok(folder)
    }

    /// Ends leases of a group; returns when nothing of them runs.
    pub async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        let ends = slots.iter().map(|slot| async move {
            let lease = LeaseId { group, slot: *slot };
            self.end(lease, LeaseEnd::Released).await.map(|state| SeenLease { lease, state })
        });
        futures::future::join_all(ends).await.into_iter().collect()
    }

    pub fn forget(&self, leases: &[LeaseId]) {
        for lease in leases {
            let gone = matches!(self.state_of(*lease), Some(LeaseState::Gone { .. }));
            if gone && let Some(held) = self.held().remove(lease) {
                held.folder.delete();
                self.gates.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
            }
        }
    }

    /// Ends everything. Nothing is written down: the folders may be gone.
    pub async fn abandon(&self) {
        let folders: Vec<Folder> = self.held().values().map(|held| held.folder.clone()).collect();
        for folder in folders {
            // What cannot be ended now is ended by nobody.
            let _ = self.launcher.end(&folder, false).await;
        }
    }
}
