//! Leases, each a folder on this computer. Its agent runs in it, or in one of its own on a node that has joined, so it
//! outlives the server. The folder is also the only memory, so a new server finds every lease, and every release, where the
//! old one left them. Which of them are given, and which are taken away again, is up to the engine that they are of.

mod folder;
mod hosts;
mod launcher;
mod launching;
mod notices;
#[cfg(test)]
mod tests;
mod unreadable;

pub(crate) use folder::{Folder, Marks, OWN};

use crate::accounts::{Accounts, is_in_use};
use crate::clock::WorldClock;
use crate::directory::Asks;
use crate::engine::{EngineError, LeaseState, Owned, SeenGroup, SeenLease};
use crate::nodes::{Holder, Hub};
use crate::{owned, removal};
use hosts::{Hosts, Signs};
use launcher::Launcher;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use windfall_core::{DecisionId, GroupPhase, LeaseEnd, LeaseId, LeaseTerms, OfferId};

pub(crate) struct Held {
    pub folder: Folder,
    pub marks: Marks,
    /// Its agent was told when it will be taken away.
    pub told: bool,
    /// Somebody ends it because its time is up.
    pub is_ending: bool,
}

impl Held {
    fn new(folder: Folder, marks: Marks) -> Held {
        Held { folder, marks, told: false, is_ending: false }
    }

    pub fn is_gone(&self) -> bool {
        self.marks.gone.is_some()
    }
}

pub(crate) struct LocalLeases {
    pub clock: Arc<WorldClock>,
    hosts: Hosts,
    root: PathBuf,
    /// Whom programs here run as; none where that is whoever runs this.
    accounts: Option<Accounts>,
    /// What this machine is called since its server has said so.
    machine: Mutex<Option<String>>,
    /// Held while a lease begins or ends that may run as the account of `--run-as`.
    spare: tokio::sync::Mutex<()>,
    held: Mutex<BTreeMap<LeaseId, Held>>,
    /// Leases whose marks cannot be read and of which nobody knows yet where they are.
    unreadable: Mutex<BTreeMap<LeaseId, Folder>>,
    /// One change of a lease at a time: a launch that overtakes a sweep would leave an agent that nobody ends.
    gates: Mutex<BTreeMap<LeaseId, Arc<tokio::sync::Mutex<()>>>>,
    /// Rung whenever something may have changed.
    pub changed: Notify,
}

impl LocalLeases {
    /// Takes over the leases that it finds in `root`. `program` is the binary that knows the `agent` subcommands.
    pub fn open(root: PathBuf, clock: Arc<WorldClock>, program: PathBuf) -> std::io::Result<Arc<LocalLeases>> {
        LocalLeases::open_on(Hosts { here: Launcher { program, contact: None }, nodes: None }, root, clock, None)
    }

    /// The leases of machines that are owned: this computer, whose programs run as these accounts, and nodes.
    pub fn of_machines(
        root: PathBuf,
        clock: Arc<WorldClock>,
        program: PathBuf,
        nodes: Option<Arc<Hub>>,
        accounts: Option<Accounts>,
    ) -> std::io::Result<Arc<LocalLeases>> {
        LocalLeases::open_on(Hosts { here: Launcher { program, contact: None }, nodes }, root, clock, accounts)
    }

    /// The leases of a node, whose agents end by themselves when the server was not heard for too long.
    pub fn on_node(
        root: PathBuf,
        clock: Arc<WorldClock>,
        program: PathBuf,
        contact: PathBuf,
        accounts: Option<Accounts>,
    ) -> std::io::Result<Arc<LocalLeases>> {
        let hosts = Hosts { here: Launcher { program, contact: Some(contact) }, nodes: None };
        LocalLeases::open_on(hosts, root, clock, accounts)
    }

    fn open_on(
        hosts: Hosts,
        root: PathBuf,
        clock: Arc<WorldClock>,
        accounts: Option<Accounts>,
    ) -> std::io::Result<Arc<LocalLeases>> {
        std::fs::create_dir_all(&root)?;
        if accounts.is_some() {
            owned::make_passage(&root)?;
        }
        removal::remove_left(&root);
        let folders = Folder::all(&root)?;
        let leases = Arc::new(LocalLeases {
            clock,
            hosts,
            root,
            accounts,
            machine: Mutex::default(),
            spare: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            unreadable: Mutex::default(),
            gates: Mutex::default(),
            changed: Notify::new(),
        });
        folders.into_iter().for_each(|folder| leases.adopt(folder));
        Ok(leases)
    }

    /// As whom a lease that is about to begin runs; on the disk before anything of it begins, so that it is the same for
    /// ever. Nothing is begun where that cannot be written: whoever reads the marks next would take it for root's.
    async fn settle_account(&self, lease: LeaseId, marks: &Marks) -> std::io::Result<()> {
        let Some(accounts) = self.accounts.clone().filter(|_| marks.host.is_none() && !marks.is_apart) else {
            return Ok(());
        };
        let accounts = Accounts { machine: self.machine().unwrap_or(accounts.machine), ..accounts };
        let owner = marks.owner.clone();
        let found = tokio::task::spawn_blocking(move || accounts.of(&owner, &Asks::default())).await;
        let found = found.map_err(std::io::Error::other)?.map_err(std::io::Error::other)?;
        let Some((folder, marks)) = self.known(lease) else { return Ok(()) };
        // What an earlier server has begun as somebody stays theirs.
        let mut runs_as = marks.runs_as.clone().or(found);
        if let Some(runs_as) = runs_as.as_mut().filter(|runs_as| runs_as.is_alone) {
            let uid = runs_as.account.uid;
            let others = self.others_as(lease, uid);
            runs_as.is_alone = if others.is_empty() { !is_in_use(uid) } else { others.contains(&true) };
        }
        let settled = Marks { runs_as, is_apart: true, ..marks };
        folder.write_marks_durably(&settled)?;
        self.mark(lease, |marks| (marks.runs_as, marks.is_apart) = (settled.runs_as, true));
        Ok(())
    }

    /// Of each other lease that runs as a user: whether nothing else did when it began.
    fn others_as(&self, lease: LeaseId, uid: u32) -> Vec<bool> {
        let held = self.held();
        let others = held.iter().filter(|(other, held)| **other != lease && !held.is_gone());
        let runs_as = others.filter_map(|(_, held)| held.marks.runs_as.as_ref());
        runs_as.filter(|runs_as| runs_as.account.uid == uid).map(|runs_as| runs_as.is_alone).collect()
    }

    /// One that several people's leases run as is begun and ended one lease at a time: the last one takes all of its
    /// processes along.
    async fn one_by_one(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let is_shared = self.accounts.as_ref().is_some_and(|accounts| accounts.run_as.is_some());
        if is_shared { Some(self.spare.lock().await) } else { None }
    }

    /// What refusals call this machine from now on.
    pub fn call_machine(&self, name: &str) {
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = Some(name.to_owned());
    }

    /// What refusals call this machine, where it has been said.
    pub fn machine(&self) -> Option<String> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn held(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self, lease: LeaseId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.gates.lock().unwrap_or_else(PoisonError::into_inner).entry(lease).or_default())
    }

    /// Takes a folder of an earlier server over: alive, or gone since some time nobody saw.
    fn adopt(self: &Arc<Self>, folder: Folder) {
        let marks = match folder.load_marks() {
            Ok(Some(marks)) => marks,
            // An earlier server died before it wrote any, and so before anything began here.
            Ok(None) => return folder.delete_unbegun(),
            Err(why) => return self.adopt_unreadable(folder, &why),
        };
        // One that never came up is asked for again by the log, or ended as an orphan.
        let (lease, up) = (folder.lease, marks.gone.is_none() && marks.up_at.is_some());
        self.held().insert(lease, Held::new(folder, marks));
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

    fn known(&self, lease: LeaseId) -> Option<(Folder, Marks)> {
        self.held().get(&lease).map(|held| (held.folder.clone(), held.marks.clone()))
    }

    /// What is written down of a lease, and where.
    pub fn marks_of(&self, lease: LeaseId) -> Option<(Folder, Marks)> {
        self.known(lease)
    }

    /// Whether programs run here as those who submitted them.
    pub fn runs_as_submitters(&self) -> bool {
        self.accounts.is_some()
    }

    /// The folder of a lease on this computer.
    pub fn folder_of(&self, lease: LeaseId) -> Option<Folder> {
        self.known(lease).map(|(folder, _)| folder)
    }

    /// Looks after the machine of a lease until that is gone: one whose agent has no process, or does not answer for
    /// long, is lost.
    async fn tend(self: Arc<Self>, lease: LeaseId) {
        let mut signs = Signs::new();
        while let Some((folder, marks)) = self.known(lease).filter(|(_, marks)| marks.gone.is_none()) {
            let is_lost = self.hosts.is_lost(&folder, &marks, &mut signs, &self.clock).await;
            if is_lost && self.end(lease, LeaseEnd::Lost).await.is_ok() {
                return;
            }
            tokio::time::sleep(self.hosts.pause(&marks)).await;
        }
    }

    /// Gives a group its leases: `choose` says what each slot becomes, from what is held and from what the group was
    /// given before. What an earlier server began is made whole.
    pub fn give(
        &self,
        group: DecisionId,
        choose: impl FnOnce(&BTreeMap<LeaseId, Held>, &BTreeMap<u32, Marks>) -> Result<Vec<Marks>, EngineError>,
    ) -> Result<(), EngineError> {
        if let Some(lease) = self.unreadable_of(group).first() {
            return Err(EngineError::Unreachable { why: format!("the node of lease {lease} is not known") });
        }
        let mut held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known: BTreeMap<u32, Marks> = known.map(|(lease, held)| (lease.slot, held.marks.clone())).collect();
        // Given back before it was asked for, or given by a server that knew no groups.
        if !known.is_empty() && known.values().all(|marks| marks.units == 0) {
            return Ok(());
        }
        let chosen = choose(&held, &known)?;
        for (marks, slot) in chosen.into_iter().zip(0..) {
            self.hold_in(&mut held, LeaseId { group, slot }, marks)?;
        }
        Ok(())
    }

    /// The leases of a group that are known, and where the group stands; none where nothing of it is known.
    pub fn group_of(&self, group: DecisionId) -> Option<SeenGroup> {
        let held = self.held();
        let known = held.range(LeaseId { group, slot: 0 }..=LeaseId { group, slot: u32::MAX });
        let known: Vec<(LeaseId, Marks)> = known.map(|(lease, held)| (*lease, held.marks.clone())).collect();
        drop(held);
        let unreadable = self.unreadable_of(group);
        let slots = unreadable.iter().map(|lease| lease.slot + 1);
        let units = known.iter().map(|(lease, marks)| marks.units.max(lease.slot + 1)).chain(slots).max()?;
        let at = known.iter().filter_map(|(_, marks)| marks.sold_at.or(marks.up_at)).min().unwrap_or(self.clock.now());
        let seen = |lease: LeaseId| self.state_of(lease).map(|state| SeenLease { lease, state });
        // Of what is not known nothing is said: who is there already stays, and who is not is waited for.
        let unknown = unreadable.iter().map(|lease| SeenLease { lease: *lease, state: LeaseState::Pending });
        let leases = known.iter().filter_map(|(lease, _)| seen(*lease)).chain(unknown).collect();
        Some(SeenGroup { group, phase: GroupPhase::Granted { at, units }, leases })
    }

    pub fn state_of(&self, lease: LeaseId) -> Option<LeaseState> {
        self.held().get(&lease).map(|held| match (held.marks.gone, held.marks.up_at) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => LeaseState::Up {
                since,
                terms: LeaseTerms {
                    offer: Some(held.marks.offer.clone()).filter(|offer| *offer != OfferId::new("")),
                    node: held.marks.node.clone(),
                    size: held.marks.size,
                    ends_by: held.marks.ends_by,
                    ..LeaseTerms::default()
                },
                // Its agent listens before it is up.
                ready: Some(self.hosts.address(&held.folder, &held.marks)),
                ends_at: held.marks.ends_at,
                at_risk: held.marks.at_risk,
                why: held.marks.why.clone(),
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
            address: Some(self.hosts.address(&held.folder, &held.marks)),
        };
        self.held().iter().map(owned).collect()
    }

    /// Ends a lease and everything on it; the first end counts.
    pub async fn end(&self, lease: LeaseId, end: LeaseEnd) -> Result<LeaseState, EngineError> {
        let gate = self.gate(lease);
        let _alone = gate.lock().await;
        let (folder, marks) = match self.known(lease) {
            Some(known) => known,
            None if end == LeaseEnd::Released => {
                // It may run all the same: what was written down of it may be lost.
                let (folder, marks) = self.grave(lease)?;
                let ended = self.hosts.end(&folder, &marks, false).await;
                ended.map_err(|why| EngineError::Unreachable { why: why.to_string() })?;
                self.bury(folder.clone(), marks.clone());
                (folder, marks)
            }
            // Forgotten meanwhile: whoever still followed it must not bring it back.
            None => return Err(EngineError::NoLease(lease)),
        };
        if let Some(gone @ LeaseState::Gone { .. }) = self.state_of(lease) {
            return Ok(gone);
        }
        let at = self.clock.now();
        let gently = end == LeaseEnd::Released;
        let _one = self.one_by_one().await;
        let mut marks = marks;
        if let Some(runs_as) = &mut marks.runs_as {
            runs_as.is_alone &= self.others_as(lease, runs_as.account.uid).is_empty();
        }
        let ended = self.hosts.end(&folder, &marks, gently).await;
        ended.map_err(|why| EngineError::Unreachable { why: why.to_string() })?;
        self.mark(lease, |marks| {
            marks.gone.get_or_insert((marks.ends_at.map_or(at, |ends| ends.min(at)), end));
        });
        self.state_of(lease).ok_or(EngineError::NoLease(lease))
    }

    /// A folder for a lease that was released before it was ever acquired, so that it never will be.
    fn grave(&self, lease: LeaseId) -> Result<(Folder, Marks), EngineError> {
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let host = match self.hosts.holder_of(lease) {
            Holder::Node(record) => Some(record.name),
            Holder::Unknown if self.is_unreadable(lease) => {
                return Err(EngineError::Unreachable { why: format!("the node of lease {lease} is not known") });
            }
            _ => None,
        };
        let folder = Folder::create(&self.root, lease).map_err(why)?;
        let marks = Marks { host, gone: Some((self.clock.now(), LeaseEnd::Released)), ..Marks::default() };
        Ok((folder, marks))
    }

    /// Nothing of it runs: it is known to be gone from now on.
    fn bury(&self, folder: Folder, marks: Marks) {
        folder.write_marks(&marks);
        self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).remove(&folder.lease);
        self.held().insert(folder.lease, Held::new(folder, marks));
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
            self.forget_unreadable(*lease);
            let gone = matches!(self.state_of(*lease), Some(LeaseState::Gone { .. }));
            if gone && let Some(held) = self.held().remove(lease) {
                self.hosts.forget(&held.folder, &held.marks);
                held.folder.delete();
                self.gates.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
            }
        }
    }

    /// Ends everything. Nothing is written down: the folders may be gone.
    pub async fn abandon(&self) {
        let all: Vec<(Folder, Marks)> =
            self.held().values().map(|held| (held.folder.clone(), held.marks.clone())).collect();
        for (folder, marks) in all {
            // What cannot be ended now is ended by nobody.
            let _ = self.hosts.end(&folder, &marks, false).await;
        }
    }

    /// Ends one lease. One that nobody knows can never be launched afterwards.
    pub async fn end_one(&self, lease: LeaseId, gently: bool) -> Result<(), EngineError> {
        let is_known = self.held().contains_key(&lease);
        let end = if gently || !is_known { LeaseEnd::Released } else { LeaseEnd::Lost };
        self.end(lease, end).await.map(|_| ())
    }

    /// Ends every lease that is there.
    pub async fn end_all(&self) {
        let live: Vec<LeaseId> =
            self.held().iter().filter(|(_, held)| !held.is_gone()).map(|(lease, _)| *lease).collect();
        for lease in live {
            // What could not be ended is tried again.
            let _ = self.end(lease, LeaseEnd::Lost).await;
        }
    }

    /// Knows a lease from now on, if it does not yet.
    fn hold(&self, lease: LeaseId, marks: Marks) -> Result<(), EngineError> {
        self.hold_in(&mut self.held(), lease, marks)
    }

    fn hold_in(&self, held: &mut BTreeMap<LeaseId, Held>, lease: LeaseId, marks: Marks) -> Result<(), EngineError> {
        if let Entry::Vacant(missing) = held.entry(lease) {
            let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
            let folder = Folder::create(&self.root, lease).map_err(why)?;
            if marks.host.is_some() {
                folder.write_marks_durably(&marks).map_err(why)?;
            } else {
                folder.write_marks(&marks);
            }
            missing.insert(Held::new(folder, marks));
        }
        Ok(())
    }
}
