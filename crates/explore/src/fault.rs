//! Every fault that a world can suffer, and whether it strikes. Each chance has an index; a shrunk world
//! lets only some indexes strike.

use crate::random;
use std::collections::BTreeSet;
use windfall_core::Time;

macro_rules! kinds {
    ($($kind:ident $name:literal $permille:literal,)*) => {
        /// What can go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum FaultKind { $($kind,)* }

        impl FaultKind {
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];
            pub fn name(self) -> &'static str { match self { $(FaultKind::$kind => $name,)* } }
            /// How often it strikes when it could, in a thousand.
            fn permille(self) -> u64 { match self { $(FaultKind::$kind => $permille,)* } }
        }
    };
}

kinds! {
    CallLostBefore "engine call lost before it was done" 60,
    CallLostAfter "engine call done, answer lost" 60,
    CallDelayed "engine call delayed" 70,
    CallAfterDeath "engine call arrives after its server died" 500,
    OddRefusal "engine refuses for an odd reason" 30,
    ObserveFails "look at an engine fails" 25,
    ObservationDropped "observation dropped" 30,
    ObservationStale "observation delayed, arrives stale" 40,
    ObservationTwice "observation duplicated" 30,
    EventsShuffled "events of a batch shuffled" 30,
    NoticeMissing "lease taken without its notice" 250,
    NoticeFalse "notice that no loss follows" 150,
    NeverUp "lease never comes up" 60,
    NeverReady "lease is up and never ready" 40,
    Queued "group waits in its engine's queue" 80,
    NotFound "lease not found for a while" 3,
    Limbo "machine runs on after it was reported gone" 400,
    SubmittedTwice "submission sent twice with one key" 250,
    BadInput "submission that must be refused" 250,
    DiesBeforeCommit "server dies before a commit" 8,
    DiesAfterCommit "server dies after a commit" 8,
    DiesBetween "server dies between two dispatches" 30,
    TwoServers "an old leader goes on beside the new one" 6,
    ClockJump "clock jumps by hours" 1,
    StoreRefuses "store refuses commits for a while" 8,
    LeadFails "store cannot be led after a failed commit" 400,
    LoadFails "store cannot be loaded after a failed commit" 400,
    UnsureWritten "commit written, its answer lost" 6,
    UnsureLost "commit lost, and nobody knows" 6,
    StoreAway "checkpoint store away for minutes" 2,
    EngineSilent "engine refuses to answer for minutes" 2,
    EngineHangs "engine hangs for minutes" 2,
    LookSlow "look at an engine answered late" 15,
    OfferHidden "offer not shown for a while" 4,
}

/// One fault that struck.
#[derive(Clone, Debug)]
pub(crate) struct Struck {
    pub index: u64,
    pub kind: FaultKind,
    pub at: Time,
}

/// Decides which chances strike.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    seed: u64,
    next: u64,
    /// Only these may strike; none lets all.
    only: Option<BTreeSet<u64>>,
    /// Nothing strikes any more.
    pub over: bool,
    /// Kinds that this world does not know.
    pub without: BTreeSet<FaultKind>,
    /// In a thousand, on top of each kind's own chance.
    pub weight: u64,
    pub struck: Vec<Struck>,
}

impl Faults {
    pub fn new(seed: u64, only: Option<BTreeSet<u64>>) -> Faults {
        let without = BTreeSet::new();
        Faults { seed, next: 0, only, over: false, without, weight: 1_000, struck: Vec::new() }
    }

    /// Whether this chance strikes.
    pub fn strike(&mut self, kind: FaultKind, at: Time) -> bool {
        self.next += 1;
        if self.over || self.without.contains(&kind) {
            return false;
        }
        let index = self.next;
        let chance = kind.permille() * self.weight;
        let strikes = random::of(self.seed, &[7, kind as u64, index]).below(1_000_000) < chance
            && self.only.as_ref().is_none_or(|only| only.contains(&index));
        if strikes {
            self.struck.push(Struck { index, kind, at });
        }
        strikes
    }
}
