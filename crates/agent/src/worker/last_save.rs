//! After the program's end: what it saved last is made durable, or given up and put where it is not deleted. Who moves the
//! saves of other ranks first waits for those.

use super::state::{Asked, Moving, Tell, WorkerRun};
use crate::checkpoint::Finished;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use windfall_core::{Trouble, TroubleKind};

/// How often it looks whether the others have ended.
const LOOK: Duration = Duration::from_millis(100);

/// What came of a last save.
pub(super) enum LastSave {
    /// The store has it. Of another rank than 0 of a gang with several places it counts once rank 0 says so.
    Sent,
    /// A later stint has begun: nothing of this one counts any more.
    Stale,
    GivenUp,
}

impl WorkerRun {
    /// Makes the last save durable, or gives it up. A program that was told to stop
    /// has its grace; what it saved has as long as after any other end, unless the machine goes before.
    pub(super) async fn last_save(&mut self, mut moving: Moving, saves: &Path, asked: Option<Asked>) -> LastSave {
        let mut hurry = asked.and_then(|asked| asked.gone_at);
        let is_torn = self.wait_for_others(&mut moving, &mut hurry, asked).await;
        self.report_habits(&moving.mover).await;
        let usual = Instant::now() + Duration::from_millis(self.order.last_upload_ms);
        moving.mover.finish(hurry.unwrap_or(usual));
        let finished = loop {
            tokio::select! {
                finished = moving.mover.finished() => break finished,
                Some(event) = moving.events.recv() => self.on_mover_event(event),
                Some(tell) = self.told.recv() => ends(tell).into_iter().for_each(|ends| moving.mover.finish(ends)),
            }
        };
        while let Ok(event) = moving.events.try_recv() {
            self.on_mover_event(event);
        }
        if finished.complete {
            if !finished.is_sent {
                self.remark_torn();
            }
            return LastSave::Sent;
        }
        if finished.fenced {
            return LastSave::Stale;
        }
        let why = if is_torn { "a machine of the gang is gone" } else { "the time was too short" };
        self.give_up(&finished, why, saves, asked.is_none());
        LastSave::GivenUp
    }

    /// Goes on uploading until every rank has ended, or until this one is told to stop. Of one whose machine is gone no word
    /// comes any more: where it was alone at its place, there is no checkpoint to wait for. True when there is such a one.
    async fn wait_for_others(
        &mut self,
        moving: &mut Moving,
        hurry: &mut Option<Instant>,
        asked: Option<Asked>,
    ) -> bool {
        let mut torn = asked.filter(|asked| asked.is_torn).map(|asked| asked.kill_at);
        let mut look = tokio::time::interval(LOOK);
        loop {
            if torn.is_some() && self.has_places() {
                *hurry = Some(Instant::now());
            }
            if torn.is_some_and(|over| Instant::now() >= over) {
                return true;
            }
            let (ended, died) = self.others();
            if died {
                moving.mover.on_death(Instant::now()).await;
            }
            let over = hurry.is_some_and(|ends| Instant::now() >= ends);
            if ended || over || self.is_deaf() {
                return torn.is_some();
            }
            tokio::select! {
                _ = look.tick() => {}
                Some(event) = moving.events.recv() => self.on_mover_event(event),
                Some(tell) = self.told.recv() => {
                    if let Tell::Stop { kill_at, is_torn: true } = tell {
                        torn.get_or_insert(kill_at);
                    }
                    *hurry = [*hurry, ends(tell)].into_iter().flatten().min();
                    if matches!(tell, Tell::Quit | Tell::GiveUp) {
                        return torn.is_some();
                    }
                }
            }
        }
    }

    /// Says why what was written last counts for nothing, where nothing worse is told.
    fn remark_torn(&self) {
        let text = "what was written last is no checkpoint: the program was killed, or died of a signal, while it may have been \
                    saving; it counts where the program saves and then exits by itself, or says when a save is whole \
                    (`checkpoint.complete`, a new folder that is renamed into place, `windfall.saved()`)";
        self.change(|worker| {
            let told = || Trouble { kind: TroubleKind::Remark, text: text.to_owned() };
            worker.trouble.get_or_insert_with(told);
        });
    }

    /// Says that the last save is not durable and where it lies. A program that ended by itself does not run again,
    /// so its files are taken out of the lease's folder, which is deleted with the lease.
    pub(super) fn give_up(&self, finished: &Finished, otherwise: &str, saves: &Path, for_good: bool) {
        let known = self.shown().and_then(|worker| worker.trouble);
        let why = match (&finished.error, known) {
            (Some(error), _) => error.trouble().text,
            (None, Some(trouble)) => trouble.text,
            (None, None) => otherwise.to_owned(),
        };
        self.say_unsaved(&why, saves, for_good);
    }

    /// The same of what another rank than 0 had sent, and of which rank 0 made no checkpoint.
    pub(super) fn give_up_sent(&self, saves: &Path, for_good: bool) {
        self.say_unsaved("of what all ranks saved last there is no checkpoint", saves, for_good);
    }

    /// Of a gang rank 0 speaks for all that was saved; each other rank says only what is kept of it on its own machine.
    fn say_unsaved(&self, why: &str, saves: &Path, for_good: bool) {
        let place = if for_good { self.keep(saves) } else { None };
        let machine = super::files::on_machine(&self.order);
        let rank = self.order.rank;
        let trouble = match place {
            Some(place) if rank > 0 => Trouble {
                kind: TroubleKind::NotReturned,
                text: format!("what rank {rank} saved last lies{machine} in: {}", place.display()),
            },
            place => {
                let place = place.map(|place| format!("; its files lie{machine} in: {}", place.display()));
                let text = format!("the last save is not durable: {why}{}", place.unwrap_or_default());
                Trouble { kind: TroubleKind::NotSaved, text }
            }
        };
        self.change(|worker| {
            let lost = worker.trouble.take().filter(|known| known.kind == TroubleKind::NotReturned);
            worker.trouble = Some(lost.map_or(trouble.clone(), |lost| lost.and(&trouble)));
        });
    }

    /// Moves unsaved files from the lease's folder, or from a copy for this stint, to the job's. Files that lie elsewhere are not deleted and stay there.
    fn keep(&self, saves: &Path) -> Option<PathBuf> {
        let there = std::fs::read_dir(saves).is_ok_and(|mut entries| entries.next().is_some());
        if !there {
            return None;
        }
        // Both folders are cleared once nobody needs them; what is called like this stays.
        if !saves.starts_with(&self.dir) && !saves.starts_with(self.job_folder()) {
            return Some(saves.to_owned());
        }
        let kept = self.job_folder().join(format!("unsaved-{}", self.order.stint.epoch));
        match std::fs::rename(saves, &kept) {
            Ok(()) => Some(kept),
            Err(_) => Some(saves.to_owned()),
        }
    }
}

/// Until when what is on its way may be sent, by what a worker is told whose program has ended. A stop is for programs: it is said
/// again until its effect is seen, and what is saved has as long as after any other end.
pub(super) fn ends(tell: Tell) -> Option<Instant> {
    match tell {
        Tell::Stop { .. } => None,
        Tell::Notice(ends) => Some(ends),
        Tell::GiveUp | Tell::Quit => Some(Instant::now()),
    }
}
