//! One worker's run, step by step: restore, start, watch, warn, end, last save. Its end is published only when nothing
//! of it runs any more, and before the last save, which may take long.

use super::gang::name_of_folder;
use super::last_save::{LastSave, ends};
use super::owed::{Owed, OwedSave};
use super::ports::Port;
use super::program::ProgramEnd;
use super::provision::Provided;
use super::restore::Folders;
use super::state::{Asked, Moving, WorkerRun, cannot_run, never_ran};
use crate::checkpoint::{CheckpointError, Checkpoints, Ended, Finished, Gang, Options, WorkAt};
use crate::progress::{Reader, now_ms, written_ms};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::WorkerEnd;

/// How long it is waited before a store that does not answer is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// A program that has ended, with what it left.
struct EndedProgram {
    end: WorkerEnd,
    /// Whether it was asked to stop, and by when.
    asked: Option<Asked>,
    /// The program, or one of its processes near the end, died of a signal.
    died: bool,
    cwd: PathBuf,
    saves: PathBuf,
    mover: Option<Moving>,
    /// What a successor would have to see to: its last save, or what becomes of what was sent of it.
    owed_save: Option<OwedSave>,
    /// The folder that it ran in is a copy for this stint alone.
    is_copy: bool,
    /// Held until the end: what it was copied from stays as long. A successor holds it no more: what is sent is in the copy.
    _provided: Option<Provided>,
}

impl WorkerRun {
    pub(super) async fn run(mut self) {
        let ended = match self.run_program().await {
            Ok(ended) => ended,
            Err(end) => {
                let is_full = matches!(end, WorkerEnd::NoRoom { .. });
                self.change(|worker| worker.end = Some(end));
                if is_full {
                    self.leave_room().await;
                }
                self.tell_nothing_ran().await;
                self.change(|worker| worker.settled = true);
                return;
            }
        };
        self.tell_end(&ended.end, ended.died);
        let owes = self.order.outputs.is_some() || ended.mover.is_some();
        let more = owes || ended.is_copy || self.gang.is_some();
        if owes && self.is_first_in_folder() {
            // Without it they are sent all the same.
            let _ = std::fs::write(self.owes(), b"");
        }
        if owes || self.gang.is_some() {
            self.note_owed(&ended);
        }
        self.change(|worker| (worker.end, worker.settled) = (Some(ended.end.clone()), !more));
        if more {
            self.settle(ended, true).await;
        }
    }

    /// Goes on with what an agent owed that was killed.
    pub(super) async fn go_on(mut self, owed: Owed) {
        let Owed { worker, asked, died, cwd, is_copy, save, .. } = owed;
        let mut asked = asked.map(Asked::from);
        let end = worker.end.unwrap_or(WorkerEnd::Stopped);
        let saves = save.as_ref().map_or_else(|| cwd.clone(), |save| save.saves.clone());
        let back = self.come_back(died, save.is_some(), &mut asked).await;
        // What the other agent had sent needs only to be heard of.
        let owes_save = save.is_some() && !self.has_left_place();
        // At one place this agent goes on in the other's stead. At several, nothing that the others save counts any more: where
        // something is durable, all begin again from that.
        let is_lost = owes_save && back.is_ok() && self.has_places() && !self.until_others_end(&mut asked).await;
        let begins_again = match &back {
            Ok(checkpoints) => is_lost && WorkerRun::could_begin_again(checkpoints.as_ref()).await,
            Err(_) => true,
        };
        if asked.is_none() && self.order.world_size > 1 && begins_again {
            WorkerRun::end_agent();
        }
        let (mut mover, mut is_saved) = (None, true);
        if let Some(save) = save.as_ref().filter(|_| owes_save) {
            let moving = match back {
                Ok(checkpoints) => self.move_again(checkpoints, save, is_copy, &mut asked).await,
                Err(end) => Err(end),
            };
            match moving {
                Ok(moving) => mover = Some(moving),
                Err(end) => {
                    let why = match end {
                        WorkerEnd::NeverRan { why } | WorkerEnd::NoRoom { why } | WorkerEnd::StoreAway { why } => why,
                        _ => "it was told to stop".to_owned(),
                    };
                    self.give_up(&Finished::default(), &why, &saves, asked.is_none());
                    self.tell_given_up();
                    is_saved = false;
                }
            }
        }
        let owed_save = save.filter(|_| is_saved);
        let ended = EndedProgram { end, asked, died, cwd, saves, mover, owed_save, is_copy, _provided: None };
        self.settle(ended, is_saved).await;
    }

    /// Sends what is still to be sent; then nothing of the worker is left to do.
    async fn settle(&mut self, mut ended: EndedProgram, mut is_saved: bool) {
        let ended_alone = ended.asked.is_none();
        if let Some(mover) = ended.mover.take() {
            let last = self.last_save(mover, &ended.saves, ended.asked).await;
            match last {
                LastSave::Sent => {}
                // Nobody waits for a checkpoint of a stint that is fenced off.
                LastSave::Stale => self.tell_over(),
                // Rank 0 does not wait for what never comes.
                LastSave::GivenUp => self.tell_given_up(),
            }
            is_saved &= !matches!(last, LastSave::GivenUp);
            ended.is_copy &= is_saved;
            // A successor has nothing to save any more; another rank than 0 must still hear what becomes of what it sent.
            let waits = matches!(last, LastSave::Sent) && self.order.rank > 0;
            ended.owed_save.take_if(|_| !waits);
            self.note_owed(&ended);
        }
        ended.asked = self.until_quiet(ended.asked).await;
        // A copy goes when what of it was to stay is in a store, and nobody else is in it.
        let is_first = self.is_first_in_folder();
        ended.is_copy &= is_saved && is_first && self.is_quiet_in_folder();
        if is_first {
            // From here on nobody else is needed: only what ranks saved at several places becomes a checkpoint while all of them
            // are there.
            self.be_heard(ended.asked).await;
            self.note_owed(&ended);
            ended.is_copy &= self.bring_back(&ended.cwd, ended.asked).await;
            // All is sent that can be: a successor sends nothing of a folder that is being removed.
            self.order.outputs = None;
            self.note_owed(&ended);
            let _ = std::fs::remove_file(self.owes());
        }
        if ended.owed_save.is_some() && is_saved && !self.until_kept(ended.asked).await {
            self.give_up_sent(&ended.saves, ended_alone && !self.goes_on());
            ended.is_copy = false;
        }
        if ended.is_copy {
            let _ = tokio::task::spawn_blocking(move || crate::folder::remove_tree(&ended.cwd)).await;
        }
        self.be_heard(ended.asked).await;
        self.change(|worker| worker.settled = true);
    }

    /// Tells the guard what is still to be sent, in case that this agent is killed before it is.
    fn note_owed(&self, ended: &EndedProgram) {
        let Some(mut worker) = self.shown() else { return };
        worker.end = Some(ended.end.clone());
        self.kept.owes(Owed {
            order: self.order.clone(),
            worker,
            asked: ended.asked.map(Into::into),
            began_ms: self.began_ms,
            died: ended.died,
            cwd: ended.cwd.clone(),
            is_first: self.is_first_in_folder(),
            is_copy: ended.is_copy,
            save: ended.owed_save.clone(),
        });
    }

    /// Nobody can go on in place of the agent that was killed: this one ends too, and its lease is lost as if none had followed. Then
    /// the gang begins again from what is durable.
    fn end_agent() -> ! {
        // Its guard follows only agents that were killed.
        std::process::exit(1)
    }

    /// Meets the others again, in place of an agent that was killed, and gives the job's store where something is still to be
    /// saved there.
    async fn come_back(
        &mut self,
        died: bool,
        saves: bool,
        asked: &mut Option<Asked>,
    ) -> Result<Option<Arc<Checkpoints>>, WorkerEnd> {
        let (epoch, who) = (self.order.stint.epoch, (self.order.rank, self.order.world_size));
        if !saves && who.1 < 2 {
            return Ok(None);
        }
        let env = self.order.env.iter().map(|(name, value)| (name.clone(), value.clone()));
        let options = Options { saved_before: true, ..Options::with_env(env) };
        let checkpoints = Checkpoints::open(&self.order.checkpoint_store, &self.order.checkpoint_key, options);
        let checkpoints = Arc::new(checkpoints.map_err(cannot_run)?);
        if who.1 > 1 {
            let ended = if died { Ended::Died } else { Ended::Well };
            let gone = Arc::clone(&self.gone);
            let again = || Gang::rejoin(&checkpoints, epoch, who, ended, &gone).boxed();
            let gang = Arc::new(self.in_time(again, asked).await?);
            self.in_time(|| gang.met().map(Ok).boxed(), asked).await?;
            self.gang = Some(gang);
        }
        Ok(Some(checkpoints))
    }

    /// Moves what lies where a program saved that has ended, in place of an agent that was killed.
    async fn move_again(
        &mut self,
        checkpoints: Option<Arc<Checkpoints>>,
        save: &OwedSave,
        is_copy: bool,
        asked: &mut Option<Asked>,
    ) -> Result<Moving, WorkerEnd> {
        let Some(checkpoints) = checkpoints else { return Err(never_ran("its store is not open")) };
        if save.is_torn || self.others().1 {
            return Err(never_ran("its agent was killed, and nobody else knows which of its files are whole"));
        }
        if self.has_places() {
            return Err(never_ran(
                "its agent was killed, and ranks make what they save at several places durable together",
            ));
        }
        let epoch = self.order.stint.epoch;
        let after = self.in_time(|| checkpoints.rejoin(epoch).boxed(), asked).await?;
        let (mut foreign, work) = (self.foreign(is_copy), save.work);
        // What its program has written since is the program's.
        foreign.retain(|path| written_ms(&save.saves.join(path)) < self.began_ms);
        let work_at: WorkAt = Arc::new(move |_| work);
        let moving = self.start_mover(&checkpoints, &save.saves, (&foreign, Some(after)), work_at).await?;
        moving.mover.on_clean_end().await;
        Ok(moving)
    }

    /// Tries something with the store for as long as there is time. What it is told meanwhile shortens that.
    async fn in_time<'a, T>(
        &mut self,
        attempt: impl Fn() -> BoxFuture<'a, Result<T, CheckpointError>>,
        asked: &mut Option<Asked>,
    ) -> Result<T, WorkerEnd> {
        let (view, stint) = (self.view.clone(), self.order.stint);
        let attempts = async {
            loop {
                match attempt().await {
                    Err(error) if error.is_store_away() => {
                        view.change(stint, |worker| worker.trouble = Some(error.trouble()));
                        tokio::time::sleep(AGAIN).await;
                    }
                    other => return other.map_err(cannot_run),
                }
            }
        };
        tokio::pin!(attempts);
        let usual = Instant::now() + Duration::from_millis(self.order.last_upload_ms);
        let mut until = asked.and_then(|asked| asked.gone_at).map_or(usual, |gone_at| gone_at.min(usual));
        loop {
            tokio::select! {
                done = &mut attempts => {
                    self.change(|worker| worker.trouble = None);
                    return done;
                }
                () = tokio::time::sleep_until(until.into()) => return Err(never_ran("the time was too short")),
                Some(tell) = self.told.recv() => {
                    until = ends(tell).map_or(until, |ends| until.min(ends));
                    let told = Asked::by(tell);
                    *asked = Some(asked.map_or(told, |asked| asked.and(told)));
                }
            }
        }
    }

    /// Prepares, runs and ends the program, with everything below it. Fails with the end of a worker whose program never ran.
    async fn run_program(&mut self) -> Result<EndedProgram, WorkerEnd> {
        let Folders { cwd, saves, provided } = self.prepare_folder().await?;
        self.folder_name = name_of_folder(&cwd);
        if self.order.rank == 0 {
            let claimed = Port::claim();
            if self.order.world_size > 1 {
                claimed.as_ref().map_err(|error| never_ran(format!("no port is free to be met on: {error}")))?;
            }
            // Whoever runs alone meets nobody, or only processes of its own.
            self.port = claimed.ok();
        }
        let foreign = self.foreign(provided.is_some());
        let checkpoints = self.restore(&saves, &foreign).await?;
        // A stop that came during the restore: nothing ran, so nothing is to be saved.
        if self.told.try_recv().is_ok() {
            return Err(WorkerEnd::Stopped);
        }
        let helper = self.dir.join(format!("progress-{}", self.order.stint.epoch));
        let mut reader = Reader::new(helper.clone(), PathBuf::from(&self.order.output), self.order.progress.as_deref());
        let mut mover = match &checkpoints {
            Some(checkpoints) => {
                let history = reader.history.clone();
                let work_at: WorkAt = Arc::new(move |ms| history.at(ms));
                Some(self.start_mover(checkpoints, &saves, (&foreign, None), work_at).await?)
            }
            None => None,
        };
        self.began_ms = now_ms();
        let mut program = self.spawn(&cwd, &saves, &helper)?;
        let began = Instant::now();
        self.change(|worker| worker.pid = Some(program.main as u32));
        let ProgramEnd { end, asked, mut died, lost_one } =
            self.watch(&mut program, &mut reader, mover.as_mut(), began).await;
        if died && let Some(moving) = &mover {
            moving.mover.on_death(Instant::now()).await;
        }
        died |= self.wait_for_the_rest(&program, asked, mover.as_ref()).await;
        died |= self.end_the_rest(&program, mover.as_ref()).await;
        if !died && let Some(moving) = &mover {
            moving.mover.on_clean_end().await;
        }
        self.report_progress(&mut reader, began);
        let (work, is_copy) = (reader.history.at(now_ms()), provided.is_some());
        let save = OwedSave { saves: saves.clone(), work, is_torn: died || lost_one };
        let owed_save = mover.is_some().then_some(save);
        Ok(EndedProgram { end, asked, died, cwd, saves, mover, owed_save, is_copy, _provided: provided })
    }

    /// Paths where it saves that are its user's own: a copy for this stint alone has none.
    fn foreign(&self, is_copy: bool) -> BTreeSet<PathBuf> {
        match self.order.fresh_folder || is_copy {
            true => BTreeSet::new(),
            false => self.order.foreign.iter().map(PathBuf::from).collect(),
        }
    }
}
