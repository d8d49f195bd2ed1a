//! The simulated engine: a replayed market whose leases are agents and programs on this machine.
//!
//! Capacity and prices follow a recorded tape at the world's speed. A lease is a folder with an agent in
//! it, so it outlives the server; the folder is also the engine's only memory, so a new server finds
//! every lease, and every release, where the old one left them.

mod agents;
mod folder;
mod market;
mod sale;
#[cfg(test)]
mod tests;

pub use market::Replay;

use crate::clock::WorldClock;
use crate::engine::{
    AgentLink, Capabilities, Engine, EngineError, LeaseState, Owned, SeenGroup, SeenLease, SeenWorker,
};
use agents::Agents;
use async_trait::async_trait;
use folder::{Folder, Marks};
use market::Position;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use windfall_core::pool::{Books, Habits, Placing, Supply};
use windfall_core::worker::{AgentRequest, StartOrder, WorkerView};
use windfall_core::{
    Address, DecisionId, LeaseEnd, LeaseId, LeaseTerms, Market, Offer, OfferId, Pool, Span, StintId, Time, Want,
};
use windfall_sim::TapeError;

/// How often the market is looked at. At sixty times life this is three seconds of the market.
const LOOK: Duration = Duration::from_millis(50);

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

/// An interruption that a rehearsal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Interrupt {
    /// Announced this long before, in the world's time.
    WithNotice(Span),
    /// The machine is simply gone.
    Without,
    /// None, but the market says that one may come.
    AtRisk,
}

struct Held {
    folder: Folder,
    marks: Marks,
    worker: Option<WorkerView>,
    told: bool,
}

/// The engine.
pub struct Simulated {
    clock: Arc<WorldClock>,
    position: Position,
    agents: Agents,
    root: PathBuf,
    held: Mutex<BTreeMap<LeaseId, Held>>,
    /// One change of a lease at a time: a launch that overtakes a sweep would leave an agent that nobody ends.
    gates: Mutex<BTreeMap<LeaseId, Arc<tokio::sync::Mutex<()>>>>,
    /// Rung whenever something may have changed.
    changed: Arc<Notify>,
}

impl Simulated {
    /// Opens the engine on `root`, adopts the leases it finds there, and starts to follow the market.
    /// `agent_program` is the binary that knows the `agent` subcommands.
    pub async fn open(
        root: PathBuf,
        replay: Replay,
        clock: Arc<WorldClock>,
        agent_program: PathBuf,
    ) -> Result<Arc<Simulated>, SimulatedError> {
        let unusable = |source| SimulatedError::Folder { path: root.clone(), source };
        std::fs::create_dir_all(&root).map_err(unusable)?;
        let engine = Arc::new(Simulated {
            position: Position::open(&root, replay)?,
            agents: Agents { program: agent_program },
            held: Mutex::new(BTreeMap::new()),
            gates: Mutex::new(BTreeMap::new()),
            changed: Arc::new(Notify::new()),
            clock,
            root: root.clone(),
        });
        for folder in Folder::all(&root).map_err(unusable)? {
            engine.adopt(folder).await;
        }
        tokio::spawn(Arc::clone(&engine).follow());
        Ok(engine)
    }

    /// Rung whenever an observation may differ from the one before.
    pub fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Where on the tape the world is, and the tape.
    pub fn position(&self) -> &Position {
        &self.position
    }

    /// Puts the tape back to the beginning of its window. Only to be called while no job lives: then
    /// every first run sees the same market.
    pub fn cue(&self) {
        self.position.cue(self.clock.now());
    }

    /// Takes a lease away on request.
    pub async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
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
        self.held().insert(lease, Held { worker: folder.read_worker(), folder, marks, told: false });
        if up {
            tokio::spawn(Arc::clone(self).watch(lease));
        }
    }

    /// Takes in what an agent wrote down before it ended. That is written with saves and ends only, so what it was last
    /// heard to have done may be more.
    fn recall(&self, folder: &Folder) {
        let Some(mut written) = folder.read_worker() else { return };
        if let Some(held) = self.held().get_mut(&folder.lease) {
            match &held.worker {
                // What was written is of an earlier stint.
                Some(heard) if heard.stint.epoch > written.stint.epoch => return,
                Some(heard) if heard.stint == written.stint => {
                    written.done = written.done.max(heard.done);
                    written.total = written.total.or(heard.total);
                }
                _ => {}
            }
            held.worker = Some(written);
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

    /// Follows one agent's view until the lease is gone.
    async fn watch(self: Arc<Self>, lease: LeaseId) {
        let mut above = 0;
        let mut silent = 0;
        let mut heard = tokio::time::Instant::now();
        loop {
            let Some(folder) = self.folder(lease) else { return };
            if self.state_of(lease).is_some_and(|state| matches!(state, LeaseState::Gone { .. })) {
                return;
            }
            match self.agents.ask(&folder, &AgentRequest::Watch { above }).await {
                Ok(view) => {
                    (above, silent, heard) = (view.version, 0, tokio::time::Instant::now());
                    if let Some(held) = self.held().get_mut(&lease) {
                        held.worker = view.worker;
                    }
                    self.changed.notify_one();
                }
                // An agent that cannot be reached and has no process is a machine that is gone.
                Err(_)
                    if !self.agents.is_alive(&folder)
                        || heard.elapsed() > self.clock.real_time(SILENCE).max(LEAST_SILENCE) =>
                {
                    self.recall(&folder);
                    if self.end(lease, LeaseEnd::Lost).await.is_ok() {
                        return;
                    }
                }
                Err(_) => {
                    silent += 1;
                    tokio::time::sleep(Duration::from_millis(50 * silent.min(20))).await;
                }
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
                    let told = engine.agents.ask(&folder, &AgentRequest::Notice { in_ms }).await.is_ok();
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
        self.agents.end(&folder, gently).await.map_err(|why| EngineError::Unreachable { why: why.to_string() })?;
        self.recall(&folder);
        self.mark(lease, |marks| {
            marks.gone.get_or_insert((marks.ends_at.map_or(at, |ends| ends.min(at)), end));
        });
        self.state_of(lease).ok_or(EngineError::NoLease(lease))
    }

    /// Ends whatever runs on any lease, and writes nothing down: its folders are gone.
    pub async fn abandon(&self) {
        let folders: Vec<Folder> = self.held().values().map(|held| held.folder.clone()).collect();
        for folder in folders {
            // What cannot be ended now is ended by nobody.
            let _ = self.agents.end(&folder, false).await;
        }
    }

    /// A folder for a lease that was released before it was ever acquired, so that it never will be.
    fn bury(&self, lease: LeaseId) -> Result<Folder, EngineError> {
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let folder = Folder::create(&self.root, lease).map_err(why)?;
        let marks = Marks { gone: Some((self.clock.now(), LeaseEnd::Released)), ..Marks::default() };
        folder.write_marks(&marks);
        self.held().insert(lease, Held { folder: folder.clone(), marks, worker: None, told: false });
        Ok(folder)
    }

    fn state_of(&self, lease: LeaseId) -> Option<LeaseState> {
        self.held().get(&lease).map(|held| match (held.marks.gone, held.marks.up_at) {
            (Some((at, end)), since) => LeaseState::Gone { since, at, end },
            (None, Some(since)) => LeaseState::Up {
                since,
                terms: LeaseTerms { offer: Some(held.marks.offer.clone()), ..LeaseTerms::default() },
                // Its agent listens before it is up.
                ready: Some(Address(held.folder.socket().display().to_string())),
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
            speed: self.clock.speed(),
        }
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
}

#[async_trait]
impl AgentLink for Arc<Simulated> {
    async fn workers(&self, leases: &[LeaseId]) -> Result<Vec<SeenWorker>, EngineError> {
        let held = self.held();
        let seen = |lease: &LeaseId| Some(SeenWorker { lease: *lease, worker: held.get(lease)?.worker.clone()? });
        Ok(leases.iter().filter_map(seen).collect())
    }

    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError> {
        self.order(lease, &AgentRequest::Start(Box::new(order.clone()))).await
    }

    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, grace: Span) -> Result<(), EngineError> {
        let grace_ms = self.clock.real_time(grace).as_millis() as u64;
        self.order(lease, &AgentRequest::Stop { stint, rank, grace_ms }).await
    }

    async fn save(&self, lease: LeaseId, stint: StintId, _rank: u32, request: u64) -> Result<(), EngineError> {
        self.order(lease, &AgentRequest::Save { stint, request }).await
    }
}

impl Simulated {
    async fn order(&self, lease: LeaseId, request: &AgentRequest) -> Result<(), EngineError> {
        let folder = self.folder(lease).ok_or(EngineError::NoLease(lease))?;
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let view = self.agents.ask(&folder, request).await.map_err(why)?;
        if let Some(held) = self.held().get_mut(&lease) {
            held.worker = view.worker;
        }
        self.changed.notify_one();
        Ok(())
    }
}
