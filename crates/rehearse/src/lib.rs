//! Runs the user's program on a stage of its own, takes its leases away in every way that
//! spot capacity does, and says with evidence whether it is safe. Everything goes through a real server, its
//! engine and its agents; a rehearsal only asks and looks.
//!
//! When it is interrupted it ends its jobs and its server and removes its directory. When it is killed, the
//! server notices (it is bound to this process) and does the same.

mod act;
mod compare;
mod cores;
mod damage;
mod final_state;
mod findings;
mod judge;
mod options;
mod report;
mod saves;
mod script;
mod seen;
mod signals;
mod stage;
mod traces;
mod trap;

pub use judge::Verdict;
pub use options::Options;
pub use report::{Act, Report};
pub use seen::{Finding, Severity, seconds};

use script::Script;
use stage::Stage;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use windfall_server::client::{Code, Failure, key};

/// A rehearsal that came to its end.
pub struct Rehearsed {
    /// What was seen, and what it means.
    pub report: Report,
    /// Where it was played; gone, unless it was to be kept.
    pub stage: PathBuf,
}

/// Rehearses a job; none when a signal ended it before its time.
pub async fn rehearse(options: Options<'_>) -> Result<Option<Rehearsed>, Failure> {
    let root = std::env::temp_dir().join(format!("windfall-rehearse-{}", key()));
    let keep = options.keep;
    // Copies of the user's folder lie in it, and nobody else has business there.
    std::fs::DirBuilder::new()
        .mode(0o700)
        .create(&root)
        .map_err(|error| Failure::new(Code::Unreachable, format!("{} cannot be made: {error}", root.display())))?;
    let script = Script { root: root.clone(), screen: report::Screen::new(options.say), options };
    let hear = |kind| signal(kind).map_err(|error| Failure::new(Code::Bug, error.to_string()));
    let (mut interrupt, mut terminate, mut hangup) =
        (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::hangup())?);
    let seen = tokio::select! {
        seen = script.play() => Some(seen),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    };
    if seen.is_none() {
        (script.options.say)("interrupted: ending what the rehearsal started");
    }
    let report = seen.map(|seen| seen.map(|seen| Report::of(&seen)));
    clear(&root, keep).await;
    Ok(report.transpose()?.map(|report| Rehearsed { report, stage: root }))
}

/// Ends the servers below `root` and removes it.
async fn clear(root: &Path, keep: bool) {
    for home in [root.join("same"), root.to_owned()] {
        if home.join("world.json").exists() {
            Stage::close(&home).await;
        }
    }
    if !keep {
        let _ = std::fs::remove_dir_all(root);
    }
}
