//! `windfall rehearse`: runs the user's program on a stage of its own, takes its leases away in every way that
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
mod report;
mod saves;
mod script;
mod signals;
mod stage;
mod traces;
mod trap;

use super::Here;
use crate::args::RehearseArgs;
use crate::exit::{Code, Failure};
use judge::{Judgement, Seen, Verdict};
use script::Script;
use stage::Stage;
use std::path::Path;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use windfall_jobfile as jobfile;

/// Rehearses a job file.
pub async fn rehearse(here: &Here, args: &RehearseArgs) -> Result<Code, Failure> {
    let (limit, notice) = (duration("--limit", &args.limit)?, duration("--notice", &args.notice)?);
    let read = jobfile::read(&args.file, &here.context()?).map_err(|error| here.bad_file(&error))?;
    let root = std::env::temp_dir().join(format!("windfall-rehearse-{}", super::watch::key()));
    let script = Script {
        root: root.clone(),
        spec: read.spec,
        notice,
        limit,
        keep: args.keep,
        at_once: args.at_once.map(std::num::NonZero::get),
        screen: report::Screen::new(),
    };
    let hear = |kind| signal(kind).map_err(|error| Failure::new(Code::Bug, error.to_string()));
    let (mut interrupt, mut terminate, mut hangup) =
        (hear(SignalKind::interrupt())?, hear(SignalKind::terminate())?, hear(SignalKind::hangup())?);
    let seen = tokio::select! {
        seen = script.play() => Some(seen),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
        _ = hangup.recv() => None,
    };
    let judged = match &seen {
        Some(Ok(seen)) => Some(seen.judge()),
        _ => None,
    };
    if seen.is_none() {
        eprintln!("interrupted: ending what the rehearsal started");
    }
    clear(&root, args.keep).await;
    match (seen, judged) {
        (None, _) => Ok(Code::Detached),
        (Some(Err(failure)), _) => Err(failure),
        (Some(Ok(seen)), Some(judgement)) => Ok(tell(here, args, &root, &seen, &judgement)),
        (Some(Ok(_)), None) => Ok(Code::Bug),
    }
}

fn tell(here: &Here, args: &RehearseArgs, root: &Path, seen: &Seen, judgement: &Judgement) -> Code {
    if here.json {
        println!("{}", report::json(seen, judgement));
    } else {
        print!("{}", report::text(seen, judgement));
    }
    if args.keep {
        eprintln!("kept for a look: {}", root.display());
    }
    match judgement.verdict {
        Verdict::Safe | Verdict::SafeWithLoss => Code::Done,
        Verdict::Unsafe | Verdict::Unknown => Code::JobFailed,
    }
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

fn duration(name: &str, text: &str) -> Result<Duration, Failure> {
    let read = jobfile::duration(text).filter(|span| span.0 > 0);
    let span = read.ok_or_else(|| {
        Failure::new(Code::BadInput, format!("{name}: not a length of time: {text}")).hint("write 30s, 10m or 2h")
    })?;
    Ok(Duration::from_millis(span.0.unsigned_abs()))
}
