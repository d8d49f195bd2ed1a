//! The simulated engine: a replayed market whose leases are agents and programs on this machine.
//!
//! Capacity and prices follow a recorded tape at the world's speed. A lease is a folder with an agent in
//! it, so it outlives the server; the folder is also the engine's only memory, so a new server finds
//! every lease, and every release, where the old one left them.

mod folder;
mod machines;
mod market;
mod sale;
#[cfg(test)]
mod tests;

pub use market::Replay;

use crate::agents;
use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, LeaseState, Owned, Recording, SeenGroup, SeenLease};
use async_trait::async_trait;
use folder::{Folder, Marks};
use machines::Machines;
use market::Position;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use windfall_core::pool::{Books, Habits, Placing, Supply};
use windfall_core::worker::AgentRequest;
use windfall_core::{DecisionId, LeaseEnd, LeaseId, LeaseTerms, Market, Offer, OfferId, Pool, Span, Time, Want};
use windfall_sim::TapeError;

/// How often the market is looked at. At sixty times life this is three seconds of the market.
const LOOK: Duration = Duration::from_millis(50);

/// How often machines are looked at.
const TEND: Duration = Duration::from_millis(100);
/// How often an agent is asked for a sign of life.
const ASK_AGENT: Duration = Duration::from_secs(5);
/// An agent that has not answered for this long is a machine that is gone, whatever its process table says.
const SILENCE: Span = Span::minutes(5);
/// The least real time for it: a busy computer is no faster because a world is.
const LEAST_SILENCE: Duration = Duration::from_secs(45);

/// The engine could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SimulatedError {
    /// The recorded market cannot be used.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// The folder of its leases cannot be used.
    #[error("the lease folder {path} cannot be used")]
    Folder {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

struct Held {
    folder: Folder,
    marks: Marks,
    told: bool,
}

/// The engine.
pub struct Simulated {
    clock: Arc<WorldClock>,
    position: Position,
    machines: Machines,
    root: PathBuf,
    held: Mutex<BTreeMap<LeaseId, Held>>,
    /// One change of a lease at a time: a launch that overtakes a sweep would leave an agent that nobody ends.
    gates: Mutex<BTreeMap<LeaseId, Arc<tokio::sync::Mutex<()>>>>,
    /// Rung whenever something may have changed.
    changed: Notify,
    /// Agents here tell the processes of several programs apart.
    tells_apart: bool,
}

impl Simulated {
    /// Opens the engine on `root`, adopts the leases it finds there, and starts to follow the market.
    /// `agent_program` is the binary that knows the `agent` subcommands; `tells_apart`, whether its agents can tell the
    /// processes of several programs on one lease apart whatever these do.
    pub async fn open(
        name: &str,
        root: PathBuf,
        replay: Replay,
        clock: Arc<WorldClock>,
        agent_program: PathBuf,
        tells_apart: bool,
    ) -> Result<Arc<Simulated>, SimulatedError> {
        let unusable = |source| SimulatedError::Folder { path: root.clone(), source };
        std::fs::create_dir_all(&root).map_err(unusable)?;
        let engine = Arc::new(Simulated {
            position: Position::open(name, &root, replay, Arc::clone(&clock))?,
            machines: Machines { program: agent_program },
            held: Mutex::new(BTreeMap::new()),
            gates: Mutex::new(BTreeMap::new()),
            changed: Notify::new(),
            tells_apart,
            clock,
            root: root.clone(),
        });
        for folder in Folder::all(&root).map_err(unusable)? {
            engine.adopt(folder).await;
        }
        tokio::spawn(Arc::clone(&engine).follow());
        Ok(engine)
    }

    /// Begins its recording, unless that has begun.
    pub fn begin(&self) {
        if !self.position.has_begun() {
            self.position.begin_anew();
        }
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<LeaseId, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gate(&self, lease: LeaseId) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.gates.lock().unwrap_or_else(PoisonError::into_inner).entry(lease).or_default())
    }

    /// Takes a folder of an earlier server over: alive, or gone since some time nobody saw.
    async fn adopt(self: &Arc<Self>, folder: Folder) {
        let Some(marks) = folder.read_marks() else { return };
        // One that never came up is asked for again by the log, or ended as an orphan.
        let (lease, up) = (folder.lease, marks.gone.is_none() && marks.up_at.is_some());
        self.held().insert(lease, Held { folder, marks, told: false });
        if up {
            tokio::spawn(Arc::clone(self).tend(lease));
        }
    }

    fn mark(&self, lease: LeaseId, change: impl FnOnce(&mut Marks)) {
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
            if (silent || !self.machines.is_alive(&folder)) && self.end(lease, LeaseEnd::Lost).await.is_ok() {
                return;
            }
        }
    }

    /// Follows the market: notices, and the end of what the market takes.
    async fn follow(self: Arc<Self>) {
        let mut quotes = Vec::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.clock.now();
            for (lease, ends_at) in self.doomed(now) {
                self.mark(lease, |marks| marks.ends_at = Some(ends_at));
            }
            for (lease, folder, ends_at) in self.untold() {
                let in_ms = self.clock.real_time(ends_at - now).as_millis() as u64;
                let engine = Arc::clone(&self);
                // All at once: an agent that hangs must not use up the notice of the others.
                tokio::spawn(async move {
                    let told = agents::ask(&folder.path, &AgentRequest::Notice { in_ms }).await.is_ok();
                    if let Some(held) = engine.held().get_mut(&lease) {
                        held.told = told;
                    }
                });
            }
            for lease in self.overdue(now) {
                let engine = Arc::clone(&self);
                tokio::spawn(async move { engine.end(lease, LeaseEnd::Taken).await });
            }
            let seen = self.position.offers(now);
            if seen != quotes {
                quotes = seen;
                self.changed.notify_one();
            }
        }
    }

    /// Spot leases whose capacity ends within the notice, and when. Where capacity is left for some leases of an offer,
    /// the oldest stay.
    fn doomed(&self, now: Time) -> Vec<(LeaseId, Time)> {
        let held = self.held();
        let mut sold: BTreeMap<&OfferId, u32> = BTreeMap::new();
        let mut doomed = Vec::new();
        for (id, held) in held.iter().filter(|(_, held)| held.marks.gone.is_none()) {
            let count = sold.entry(&held.marks.offer).or_default();
            *count += 1;
            if held.marks.up_at.is_some() && held.marks.ends_at.is_none() {
                let ends_at = self.position.ends_within_notice(&held.marks.offer, *count, now);
                doomed.extend(ends_at.map(|ends_at| (*id, ends_at)));
            }
        }
        doomed
    }

    /// Leases whose agents are to be told of their notice now; told again only when that fails.
    fn untold(&self) -> Vec<(LeaseId, Folder, Time)> {
        let mut held = self.held();
        let live = held.iter_mut().filter(|(_, held)| held.marks.gone.is_none() && !held.told);
        live.filter_map(|(id, held)| {
            let ends_at = held.marks.ends_at?;
            held.told = true;
            Some((*id, held.folder.clone(), ends_at))
        })
        .collect()
    }

    fn overdue(&self, now: Time) -> Vec<LeaseId> {
        let held = self.held();
        let live = held.iter().filter(|(_, held)| held.marks.gone.is_none());
        live.filter(|(_, held)| held.marks.ends_at.is_some_and(|at| at <= now)).map(|(id, _)| *id).collect()
    }

    /// Ends a lease and everything on it; the first end counts.
    async fn end(&self, lease: LeaseId, end: LeaseEnd) -> Result<LeaseState, EngineError> {
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
        self.machines.end(&folder, gently).await.map_err(|why| EngineError::Unreachable { why: why.to_string() })?;
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

    fn state_of(&self, lease: LeaseId) -> Option<LeaseState> {
        self.held().get(&lease).map(|held| match (held.marks.gone, held.marks.up_at) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => LeaseState::Up {
                since,
                terms: LeaseTerms { offer: Some(held.marks.offer.clone()), ..LeaseTerms::default() },
                // Its agent listens before it is up.
                ready: Some(held.folder.address()),
                ends_at: held.marks.ends_at,
                at_risk: held.marks.at_risk,
            },
            (None, None) => LeaseState::Pending,
        })
    }
}

#[async_trait]
impl Engine for Arc<Simulated> {
    fn describe(&self) -> Capabilities {
        Capabilities {
            name: self.position.engine().to_owned(),
            markets: vec![Market::Spot, Market::OnDemand],
            places: self.position.places(),
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        Ok(self.position.offers(self.clock.now()))
    }

    async fn pools(&self) -> Result<Vec<Pool>, EngineError> {
        Ok(vec![Pool {
            id: self.position.pool(),
            engine: self.position.engine().to_owned(),
            placing: Placing::Theirs,
            supply: Supply::Elastic,
            books: Books::Leased,
            habits: Habits { notice: self.position.tape().notice, ..Habits::USUAL },
            tells_apart: self.tells_apart,
        }])
    }

    async fn acquire(&self, group: DecisionId, want: &Want) -> Result<SeenGroup, EngineError> {
        // What was sold already, perhaps by an earlier server, is not refused any more: its agents may run.
        self.sell(group, want)?;
        let known = self.group_of(group).map(|seen| seen.leases).unwrap_or_default();
        let pending = known.iter().filter(|seen| seen.state == LeaseState::Pending).map(|seen| seen.lease);
        let launched = futures::future::join_all(pending.map(|lease| self.launch(lease))).await;
        launched.into_iter().collect::<Result<Vec<()>, EngineError>>()?;
        self.group_of(group).ok_or(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        Ok(groups.iter().filter_map(|group| self.group_of(*group)).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        let owned = |(lease, held): (&LeaseId, &Held)| Owned {
            lease: *lease,
            offer: held.marks.offer.clone(),
            since: held.marks.up_at,
            until: held.marks.gone.map(|(at, _)| at),
            address: Some(held.folder.address()),
        };
        Ok(self.held().iter().map(owned).collect())
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        let ends = slots.iter().map(|slot| async move {
            let lease = LeaseId { group, slot: *slot };
            self.end(lease, LeaseEnd::Released).await.map(|state| SeenLease { lease, state })
        });
        futures::future::join_all(ends).await.into_iter().collect()
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        for lease in leases {
            let gone = matches!(self.state_of(*lease), Some(LeaseState::Gone { .. }));
            if gone && let Some(held) = self.held().remove(lease) {
                held.folder.delete();
                self.gates.lock().unwrap_or_else(PoisonError::into_inner).remove(lease);
            }
        }
        Ok(())
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        match how {
            Interrupt::Without => self.end(lease, LeaseEnd::Taken).await.map(|_| ()),
            Interrupt::WithNotice(notice) => {
                let ends_at = self.clock.now() + notice;
                self.mark(lease, |marks| marks.ends_at = Some(ends_at));
                Ok(())
            }
            Interrupt::AtRisk => {
                self.mark(lease, |marks| marks.at_risk = true);
                Ok(())
            }
        }
    }

    async fn abandon(&self) {
        // Nothing is written down: its folders may be gone.
        let folders: Vec<Folder> = self.held().values().map(|held| held.folder.clone()).collect();
        for folder in folders {
            // What cannot be ended now is ended by nobody.
            let _ = self.machines.end(&folder, false).await;
        }
    }

    fn recording(&self) -> Option<&dyn Recording> {
        Some(&self.position)
    }
}
