//! Bugs put in on purpose, all on the explorer's side, to see that the laws catch them.

macro_rules! bugs {
    ($($bug:ident $name:literal $what:literal,)*) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $(#[doc = $what] $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)*];
            /// Its short name.
            pub fn name(self) -> &'static str { match self { $(Bug::$bug => $name,)* } }
            /// What it does.
            pub fn what(self) -> &'static str { match self { $(Bug::$bug => $what,)* } }
        }
    };
}

bugs! {
    AckWithoutWriting "ack-without-writing" "the store acknowledges a commit and does not write it",
    DispatchBeforeCommit "dispatch-before-commit" "decisions are handed to the engine before they are committed",
    OutboxDropped "outbox-dropped" "a restart does not dispatch the outbox again",
    StoppedIsDone "stopped-is-done" "a program that we stopped is reported as having exited with 0",
    JobForgotten "job-forgotten" "a submission is acknowledged and never logged",
    StopNotAwaited "stop-not-awaited" "a stop is reported as over while the program still runs",
    GoneRunsOn "gone-runs-on" "a lease is reported gone while its program runs on, and nothing fences it off",
    StaleSavesCount "stale-saves-count" "what was saved last is restored, not what the fence allows",
    HalfGang "half-gang" "the last rank of a gang is never started",
    ReleaseForgotten "release-forgotten" "releases are acknowledged and never sent",
    NoSweep "no-sweep" "leases that the log does not know are never looked for",
    OrphanUnbooked "orphan-unbooked" "a lease that the log does not know is ended without entering the books",
    AcquireNotIdempotent "acquire-not-idempotent" "asked twice for a lease, the engine makes and bills two machines",
    WrongUpTime "wrong-up-time" "the engine says that leases came up a minute later than they did",
    LedgerRowLost "ledger-row-lost" "one ledger row in ten is changed to nothing on its way to the store",
    IdleHalved "idle-halved" "what nobody uses of a node is written for half of its time",
    TimersLost "timers-lost" "the server does not wake up when the brain asked for it",
    OldCheckpointRestored "old-checkpoint-restored" "stints resume from the checkpoint before the newest",
    BadInputAccepted "bad-input-accepted" "a job that fails its check is logged anyway",
    LogAltered "log-altered" "one log row in fifty is stored with another time",
    DispatchUncommitted "dispatch-uncommitted" "decisions of a commit that failed are handed to the engine",
    AnswerBeforeCommit "answer-before-commit" "people are told that their job is accepted before it is committed",
    AnswerLost "answer-lost" "a job that was refused because the store was away is submitted all the same",
    EngineAwaited "engine-awaited" "the loop stands still until an engine that hangs has answered",
    SilenceUnnoticed "silence-unnoticed" "an engine that hangs is never known to be silent",
    FencedCommit "fenced-commit" "an old leader's commits are let through",
}
