//! The simulated engine: a replayed market whose leases are agents and programs on this machine
//! ([`crate::local`]). Capacity and prices follow a recorded tape at the world's speed.

mod market;
mod sale;
#[cfg(test)]
mod tests;

pub use market::Replay;

use crate::clock::WorldClock;
use crate::engine::{Capabilities, Engine, EngineError, Interrupt, Owned, Recording, SeenGroup, SeenLease};
use crate::local::LocalLeases;
use async_trait::async_trait;
use market::Position;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use windfall_core::pool::{Books, Habits, Placing, Supply};
use windfall_core::{DecisionId, LeaseEnd, LeaseId, Market, Offer, OfferId, Pool, Time, Want};
use windfall_sim::TapeError;

/// How often the market is looked at. At sixty times life this is three seconds of the market.
const LOOK: Duration = Duration::from_millis(50);

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

/// The engine.
pub struct Simulated {
    position: Position,
    leases: Arc<LocalLeases>,
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
        let leases = LocalLeases::open(root.clone(), Arc::clone(&clock), agent_program).map_err(unusable)?;
        let position = Position::open(name, &root, replay, clock)?;
        let engine = Arc::new(Simulated { position, leases, tells_apart });
        tokio::spawn(Arc::clone(&engine).follow());
        Ok(engine)
    }

    /// Begins its recording, unless that has begun.
    pub fn begin(&self) {
        if !self.position.has_begun() {
            self.position.begin_anew();
        }
    }

    /// Follows the market: notices, and the end of what the market takes.
    async fn follow(self: Arc<Self>) {
        let mut quotes = Vec::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let now = self.leases.clock.now();
            for (lease, ends_at) in self.doomed(now) {
                self.leases.mark(lease, |marks| marks.ends_at = Some(ends_at));
            }
            self.leases.carry_notices_out(now);
            let seen = self.position.offers(now);
            if seen != quotes {
                quotes = seen;
                self.leases.changed.notify_one();
            }
        }
    }

    /// Spot leases whose capacity ends within the notice, and when. Where capacity is left for some leases of an offer,
    /// the oldest stay.
    fn doomed(&self, now: Time) -> Vec<(LeaseId, Time)> {
        let held = self.leases.held();
        let mut sold: BTreeMap<&OfferId, u32> = BTreeMap::new();
        let mut doomed = Vec::new();
        for (id, held) in held.iter().filter(|(_, held)| !held.is_gone()) {
            let count = sold.entry(&held.marks.offer).or_default();
            *count += 1;
            if held.marks.up_at.is_some() && held.marks.ends_at.is_none() {
                let ends_at = self.position.ends_within_notice(&held.marks.offer, *count, now);
                doomed.extend(ends_at.map(|ends_at| (*id, ends_at)));
            }
        }
        doomed
    }
}

#[async_trait]
impl Engine for Arc<Simulated> {
    fn describe(&self) -> Capabilities {
        Capabilities {
            name: self.position.engine().to_owned(),
            markets: vec![Market::Spot, Market::OnDemand],
            places: self.position.places(),
            machines: Vec::new(),
        }
    }

    async fn changed(&self) {
        self.leases.changed.notified().await;
    }

    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        Ok(self.position.offers(self.leases.clock.now()))
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
        self.leases.launch_all(group).await
    }

    async fn observe(&self, groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        self.leases.launch_what_waits(groups);
        Ok(groups.iter().filter_map(|group| self.leases.group_of(*group)).collect())
    }

    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        Ok(self.leases.owned())
    }

    async fn release(&self, group: DecisionId, slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        self.leases.release(group, slots).await
    }

    async fn forget(&self, leases: &[LeaseId]) -> Result<(), EngineError> {
        self.leases.forget(leases);
        Ok(())
    }

    async fn interrupt(&self, lease: LeaseId, how: Interrupt) -> Result<(), EngineError> {
        match how {
            Interrupt::Without => self.leases.end(lease, LeaseEnd::Taken).await.map(|_| ()),
            Interrupt::WithNotice(notice) => {
                let ends_at = self.leases.clock.now() + notice;
                self.leases.mark(lease, |marks| marks.ends_at = Some(ends_at));
                Ok(())
            }
            Interrupt::AtRisk => {
                self.leases.mark(lease, |marks| marks.at_risk = true);
                Ok(())
            }
        }
    }

    async fn abandon(&self) {
        self.leases.abandon().await;
    }

    fn recording(&self) -> Option<&dyn Recording> {
        Some(&self.position)
    }
}
