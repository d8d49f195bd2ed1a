//! What every step of a worker's run knows: its order, what it is told meanwhile, and the view that it publishes.

use super::files::own_folder;
use super::owed::{AskedAt, Kept};
use super::ports::Port;
use super::view::SharedView;
use crate::checkpoint::{CheckpointError, Gang, Gone, Mover, MoverEvent};
use crate::progress::now_ms;
use crate::worker_processes::LeaseProcesses;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use windfall_core::worker::{StartOrder, WorkerView};
use windfall_core::{CheckpointId, WorkerEnd};

/// One run of a worker, from its order to its last save.
pub(super) struct WorkerRun {
    /// Its own folder in the lease's.
    pub dir: PathBuf,
    pub order: StartOrder,
    pub view: SharedView,
    pub lease: Arc<LeaseProcesses>,
    pub told: mpsc::UnboundedReceiver<Tell>,
    /// When the program was started, in milliseconds since 1970.
    pub began_ms: u64,
    /// The others of its gang; none for a rank alone, and before it has met them.
    pub gang: Option<Arc<Gang>>,
    /// Those of them whose machines are gone.
    pub gone: Gone,
    /// Where rank 0 is met, and a port for whoever runs alone: kept for as long as the program may listen on it.
    pub port: Option<Port>,
    /// The content that it resumes from.
    pub origin: Option<CheckpointId>,
    /// The same for ranks that run in one folder.
    pub folder_name: String,
    /// What the guard keeps in case that this agent is killed.
    pub kept: Kept,
    /// It goes on with what an agent owed that was killed, and no lower rank ran in its folder.
    pub was_first: bool,
}

/// What a worker is told while it runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Tell {
    /// Save and stop; killed at that time. The machine stays.
    Stop {
        kill_at: Instant,
        /// A machine of the gang is gone, and nobody says which.
        is_torn: bool,
    },
    /// Save and stop: the machine is gone at that time.
    Notice(Instant),
    /// Stop at once: what is saved, or on its way, is given up.
    GiveUp,
    /// The agent ends now: a last save that is still on its way is given up.
    Quit,
}

/// Where a worker hears what it is told.
pub(super) struct Teller {
    tell: mpsc::UnboundedSender<Tell>,
    gone: Gone,
}

impl Teller {
    /// A worker that has ended hears nothing more, and need not.
    pub fn tell(&self, tell: Tell) {
        let _ = self.tell.send(tell);
    }

    /// These ranks' machines are gone: nobody waits for them.
    pub fn bury(&self, gone: &BTreeSet<u32>) {
        self.gone.send_if_modified(|known| {
            let before = known.len();
            known.extend(gone);
            known.len() > before
        });
    }
}

/// A program that was told to save and stop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub at: Instant,
    /// It is killed then.
    pub kill_at: Instant,
    /// The machine is gone then, if that is announced.
    pub gone_at: Option<Instant>,
    /// A machine of the gang is gone: what lay on it alone is in no checkpoint that is still to come.
    pub is_torn: bool,
}

impl Asked {
    pub fn by(tell: Tell) -> Asked {
        let at = Instant::now();
        match tell {
            Tell::Stop { kill_at, is_torn } => Asked { at, kill_at, gone_at: None, is_torn },
            Tell::Notice(gone_at) => Asked { at, kill_at: gone_at, gone_at: Some(gone_at), is_torn: false },
            // The agent aborts a worker whose program runs; until then it is as if the time were over.
            Tell::GiveUp | Tell::Quit => Asked { at, kill_at: at, gone_at: Some(at), is_torn: false },
        }
    }

    /// Told once more: a notice may shorten the grace of a stop, never lengthen it.
    pub fn and(self, other: Asked) -> Asked {
        let gone_at = self.gone_at.into_iter().chain(other.gone_at).min();
        let is_torn = self.is_torn || other.is_torn;
        Asked { at: self.at, kill_at: self.kill_at.min(other.kill_at), gone_at, is_torn }
    }

    /// Until when others are waited for whose programs have ended: they have as long for their saves as after any other end, unless
    /// a machine goes.
    pub fn waits_until(self) -> Option<Instant> {
        self.gone_at.or(self.is_torn.then_some(self.kill_at))
    }

    /// How long what it wrote besides its saves may take to be sent, when that begins now.
    pub fn until_sent(self) -> Instant {
        self.gone_at.unwrap_or_else(|| Instant::now() + self.kill_at.saturating_duration_since(self.at))
    }
}

impl From<Asked> for AskedAt {
    fn from(asked: Asked) -> AskedAt {
        let (now, now_ms) = (Instant::now(), now_ms());
        let ms = |at: Instant| {
            let (ahead, ago) = (at.saturating_duration_since(now), now.saturating_duration_since(at));
            (now_ms + ahead.as_millis() as u64).saturating_sub(ago.as_millis() as u64)
        };
        AskedAt {
            at_ms: ms(asked.at),
            kill_at_ms: ms(asked.kill_at),
            gone_at_ms: asked.gone_at.map(ms),
            is_torn: asked.is_torn,
        }
    }
}

impl From<AskedAt> for Asked {
    fn from(asked: AskedAt) -> Asked {
        let (now, now_ms) = (Instant::now(), now_ms());
        let at = |ms: u64| {
            let ahead = now + Duration::from_millis(ms.saturating_sub(now_ms));
            ahead.checked_sub(Duration::from_millis(now_ms.saturating_sub(ms))).unwrap_or(now)
        };
        Asked {
            at: at(asked.at_ms),
            kill_at: at(asked.kill_at_ms),
            gone_at: asked.gone_at_ms.map(at),
            is_torn: asked.is_torn,
        }
    }
}

/// The mover of a stint's checkpoints, and what it reports.
pub(super) struct Moving {
    pub mover: Mover,
    pub events: mpsc::UnboundedReceiver<MoverEvent>,
}

/// The end of a worker whose program could not be started, with the reason for people.
pub(super) fn never_ran(why: impl Into<String>) -> WorkerEnd {
    WorkerEnd::NeverRan { why: why.into() }
}

/// The same, where something could not be done with a file of this machine: another job may leave room for it.
pub(super) fn could_not(what: impl std::fmt::Display, error: &std::io::Error) -> WorkerEnd {
    let why = format!("{what}: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => WorkerEnd::NoRoom { why },
        _ => WorkerEnd::NeverRan { why },
    }
}

pub(super) fn cannot_run(error: CheckpointError) -> WorkerEnd {
    let why = error.trouble().text;
    match error.is_full_here() {
        true => WorkerEnd::NoRoom { why },
        false => WorkerEnd::NeverRan { why },
    }
}

impl WorkerRun {
    pub fn new(
        lease_dir: &Path,
        order: StartOrder,
        view: SharedView,
        lease: Arc<LeaseProcesses>,
        kept: Kept,
    ) -> (Self, Teller) {
        let (tell, told) = mpsc::unbounded_channel();
        let teller = Teller { tell, gone: Gone::default() };
        let dir = own_folder(lease_dir, order.stint);
        (
            WorkerRun {
                dir,
                order,
                view,
                lease,
                told,
                began_ms: 0,
                gang: None,
                gone: Arc::clone(&teller.gone),
                port: None,
                origin: None,
                folder_name: String::new(),
                kept,
                was_first: false,
            },
            teller,
        )
    }

    /// Changes what is seen of this worker. Nothing happens once another stint is shown.
    pub fn change(&self, change: impl FnOnce(&mut WorkerView)) {
        self.view.change(self.order.stint, change);
    }

    /// What is seen of this worker; nothing once another stint is shown.
    pub fn shown(&self) -> Option<WorkerView> {
        self.view.last_of(self.order.stint).filter(|worker| worker.stint == self.order.stint)
    }

    /// The job's folder: what is there outlives the lease, and the ranks of a gang share it.
    pub fn job_folder(&self) -> &Path {
        Path::new(&self.order.output).parent().unwrap_or(&self.dir)
    }
}
