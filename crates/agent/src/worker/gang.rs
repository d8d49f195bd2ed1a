//! A rank and the others of its gang: how they meet, what they resume from, and who moves what they save. Ranks may be on
//! machines that share no disk: all of it goes through the job's store.

use super::state::{Asked, WorkerRun, could_not, never_ran};
use crate::checkpoint::{Begun, Checkpoints, Ended, Fate, Gang, Restored, Word};
use futures::FutureExt;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::record::Resume;
use windfall_core::{CheckpointId, WorkerEnd};

/// How often a rank looks whether rank 0 has chosen what they resume from.
const LOOK: Duration = Duration::from_millis(200);
/// How long after ranks are killed it is waited until that is known.
const AFTER_KILL: Duration = Duration::from_secs(5);
/// How long a rank that is told to stop may take for its last word, unless its machine goes before.
const HEARD_WITHIN: Duration = Duration::from_secs(30);
/// How long a rank whose program never ran may take to say so.
const HEARD_SOON: Duration = Duration::from_secs(5);
/// A rank's last word is worth this many times what anything else is that is sent: rank 0 waits for it, perhaps for days.
const WORTH: u32 = 24;
/// How long after a rank's end others may end, where its agent was killed meanwhile.
const OTHERS_END: Duration = Duration::from_secs(30);
/// How long the name of a place may take to be written by who was first there.
const NAMED_WITHIN: u32 = 50;

impl WorkerRun {
    /// Meets the other ranks; returns when all of them are there.
    pub(super) async fn meet(&mut self, checkpoints: &Arc<Checkpoints>, saves: &Path) -> Result<Arc<Gang>, WorkerEnd> {
        // A store that is away or refuses is said before anybody waits for the others.
        let answers = || checkpoints.answers().boxed();
        self.patiently(answers).await?;
        let order = &self.order;
        let place = place_of(saves, order.stint.epoch)
            .map_err(|error| could_not(format!("the checkpoint directory {}", saves.display()), &error))?;
        let host = order.master.0.clone();
        let port = self.port.as_ref().map_or(0, |port| port.number);
        let tells_fate = order.rank == 0;
        let first = Word { place, folder: self.folder_name.clone(), host, port, tells_fate, ..Word::default() };
        let who = (order.rank, order.world_size);
        let gang = Gang::join(Arc::clone(checkpoints), order.stint.epoch, who, first, &self.gone);
        let gang = Arc::new(gang);
        self.unless_stopped(gang.met()).await?;
        Ok(gang)
    }

    /// Brings what rank 0 chose to this rank's place, or waits for who keeps it.
    pub(super) async fn follow(
        &mut self,
        gang: &Gang,
        checkpoints: &Checkpoints,
        saves: &Path,
        foreign: &BTreeSet<PathBuf>,
    ) -> Result<Option<Begun>, WorkerEnd> {
        let rank = self.order.rank;
        let keeper = gang.board().keeper_of(rank).unwrap_or(rank);
        if keeper != rank {
            let is_there = move |board: &crate::checkpoint::Board| {
                board.words.get(&keeper).is_some_and(|word| word.restored.is_some())
            };
            let board = self.unless_stopped(gang.until(is_there)).await?;
            let restored = board.words.get(&keeper).and_then(|word| word.restored);
            self.origin = restored.and_then(|restored| restored.from);
            let origin = self.origin;
            self.change(|worker| worker.restored = origin);
            return Ok(None);
        }
        let epoch = self.order.stint.epoch;
        if self.order.resume == Resume::Newest {
            self.unless_stopped(checkpoints.fetch_ahead(rank, saves)).await?;
        }
        loop {
            let attempt = move || checkpoints.join(epoch, rank, saves, foreign).boxed();
            if let Some(begun) = self.patiently(attempt).await? {
                return Ok(Some(begun));
            }
            self.unless_stopped(tokio::time::sleep(LOOK)).await?;
        }
    }

    /// Tells the others what lies at this place now, and waits until all have the same.
    pub(super) async fn agree_to_begin(&mut self, gang: &Gang) -> Result<(), WorkerEnd> {
        let restored = Restored { from: self.origin };
        gang.say(|word| word.restored = Some(restored));
        let begins = |board: &crate::checkpoint::Board| board.words.values().all(|word| word.restored.is_some());
        let board = self.unless_stopped(gang.until(begins)).await?;
        let first = board.words.get(&0).and_then(|word| word.restored);
        if first != Some(restored) {
            let named = |restored: Option<Restored>| match restored.and_then(|restored| restored.from) {
                Some(CheckpointId { epoch, seq }) => format!("{epoch}.{seq}"),
                None => "nothing".to_owned(),
            };
            let (own, first) = (named(Some(restored)), named(first));
            return Err(never_ran(format!("rank 0 resumes from {first}, and this rank from {own}")));
        }
        Ok(())
    }

    /// Says that this rank's program never runs, and gives the others a moment to hear it: they wait for no word of it.
    pub(super) async fn tell_nothing_ran(&mut self) {
        let Some(gang) = self.gang.clone() else { return };
        // What others save at the same place is moved by nobody, where this rank was to do that; and of what they save at
        // places of their own nobody but rank 0 makes a checkpoint.
        let is_needed = self.order.rank == 0 && self.has_places();
        let has_company = is_needed || gang.board().at(self.order.rank).count() > 1;
        gang.say(|word| {
            word.ended.get_or_insert(Ended::Well);
            word.is_over = true;
            word.gave_up |= has_company;
        });
        let _ = tokio::time::timeout(HEARD_SOON, gang.written()).await;
    }

    /// Says that this rank's program has ended so and writes nothing more; `died`: it or a process of it died of a signal.
    pub(super) fn tell_end(&self, end: &WorkerEnd, died: bool) {
        if let Some(gang) = &self.gang {
            gang.say(|word| {
                word.ended = Some(if died { Ended::Died } else { Ended::Well });
                word.was_cut_off = end.is_from_outside();
            });
        }
    }

    /// Gives the others time to hear what was said here last: rank 0 waits for that. A store that is away for a while is waited
    /// for; whoever is told to stop goes when it must.
    pub(super) async fn be_heard(&mut self, asked: Option<Asked>) {
        let Some(gang) = self.gang.clone() else { return };
        let (usual, least) = (Instant::now() + self.gives_up_after() * WORTH, Instant::now() + HEARD_WITHIN);
        let of = |asked: Asked| asked.gone_at.unwrap_or_else(|| asked.until_sent().max(least));
        let mut until = asked.map_or(usual, of);
        loop {
            tokio::select! {
                () = gang.written() => return,
                () = tokio::time::sleep_until(until.into()) => return,
                Some(tell) = self.told.recv() => until = until.min(of(Asked::by(tell))),
            }
        }
    }

    /// A store that does not answer for so long is given up.
    fn gives_up_after(&self) -> Duration {
        Duration::from_millis(self.order.last_upload_ms).max(HEARD_WITHIN)
    }

    /// Whether nobody is heard, because the store is away for so long that it is given up.
    pub(super) fn is_deaf(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.silent_for() >= self.gives_up_after())
    }

    /// Whether all other ranks have ended, wherever they save.
    fn all_have_ended(&self) -> bool {
        let Some(gang) = &self.gang else { return true };
        let board = gang.board();
        let mut others = (0..self.order.world_size).filter(|rank| *rank != self.order.rank);
        others.all(|rank| board.words.get(&rank).is_some_and(|word| word.ended.is_some()))
    }

    /// Whether those that this rank waits for have ended, and whether one at this rank's place died of a signal.
    pub(super) fn others(&self) -> (bool, bool) {
        let Some(gang) = &self.gang else { return (true, false) };
        let board = gang.board();
        let has_ended = |rank: u32| board.words.get(&rank).is_some_and(|word| word.ended.is_some());
        let all =
            (0..self.order.world_size).filter(|rank| *rank != self.order.rank).all(|rank| match self.order.rank {
                0 => has_ended(rank),
                // Of other places rank 0 takes care.
                own => board.keeper_of(rank) != Some(own) || has_ended(rank),
            });
        let died = board.at(self.order.rank).any(|word| word.ended == Some(Ended::Died));
        (all, died)
    }

    /// Whether no lower rank runs in this one's folder.
    pub(super) fn is_first_in_folder(&self) -> bool {
        let rank = self.order.rank;
        let Some(gang) = &self.gang else { return rank == 0 || self.was_first };
        let first = gang.board().in_folder_of(rank).map(|(rank, _)| rank).min();
        first.is_none_or(|first| first == rank)
    }

    /// Whether all others that run in this one's folder have ended.
    pub(super) fn is_quiet_in_folder(&self) -> bool {
        let rank = self.order.rank;
        let Some(gang) = &self.gang else { return true };
        gang.board().in_folder_of(rank).all(|(other, word)| other == rank || word.ended.is_some())
    }

    /// Whether all is sent that was saved at this rank's place.
    pub(super) fn has_left_place(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.own_word().is_over)
    }

    /// Tells rank 0 that what was saved last at this rank's place is lost.
    pub(super) fn tell_given_up(&self) {
        if let Some(gang) = &self.gang {
            gang.say(|word| word.gave_up = true);
        }
    }

    /// Tells the others that nothing more comes from this rank's place.
    pub(super) fn tell_over(&self) {
        if let Some(gang) = &self.gang {
            gang.say(|word| word.is_over = true);
        }
    }

    /// Whether the job goes on in another stint, because a rank was killed or its machine lost: then what all had saved last is done
    /// again.
    pub(super) fn goes_on(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.board().words.values().any(|word| word.was_cut_off))
    }

    /// Whether there is something durable that a gang could begin again from. Where the store does not say so, nobody counts on it.
    pub(super) async fn could_begin_again(checkpoints: Option<&Arc<Checkpoints>>) -> bool {
        match checkpoints {
            Some(checkpoints) => checkpoints.has_any().await.unwrap_or(false),
            None => false,
        }
    }

    /// Waits, in place of an agent that was killed, until all other ranks have ended. False where that takes long: ranks end at
    /// about the same time.
    pub(super) async fn until_others_end(&mut self, asked: &mut Option<Asked>) -> bool {
        let until = Instant::now() + OTHERS_END;
        while asked.is_none() && !self.all_have_ended() && !self.is_deaf() {
            if Instant::now() >= until {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(tell) = self.told.recv() => *asked = Some(Asked::by(tell)),
            }
        }
        true
    }

    /// Waits until rank 0 has made a checkpoint of what this rank's place sent last. False where it has given that up, or where
    /// nobody can say any more: then the files here may be all that is left of it.
    pub(super) async fn until_kept(&mut self, asked: Option<Asked>) -> bool {
        let Some(gang) = self.gang.clone() else { return true };
        let rank = self.order.rank;
        let mut until = asked.and_then(Asked::waits_until);
        loop {
            match gang.board().fate_of(rank, gang.own_word().saved) {
                Fate::Kept => return true,
                Fate::Lost => return false,
                Fate::Open if self.is_deaf() => return false,
                Fate::Open => {}
            }
            if until.is_none() && self.all_have_ended() {
                // Rank 0 has as long for its own last save.
                until = Some(Instant::now() + self.gives_up_after() + HEARD_WITHIN);
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(tell) = self.told.recv() => {
                    until = until.into_iter().chain(Asked::by(tell).waits_until()).min();
                }
            }
        }
    }

    /// Waits until all others that run in this one's folder have ended. Whoever is told to stop waits for no longer than they
    /// may run, and not at all where the machine is gone that knows of their ends. Gives what it was told.
    pub(super) async fn until_quiet(&mut self, mut asked: Option<Asked>) -> Option<Asked> {
        let is_waited_for = |asked: Option<Asked>| {
            asked.is_none_or(|asked| !asked.is_torn && Instant::now() < asked.kill_at + AFTER_KILL)
        };
        while self.is_first_in_folder() && !self.is_quiet_in_folder() && is_waited_for(asked) && !self.is_deaf() {
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                Some(tell) = self.told.recv() => {
                    let told = Asked::by(tell);
                    asked = Some(asked.map_or(told, |asked| asked.and(told)));
                }
            }
        }
        asked
    }

    /// Whether ranks save at several places, so that a checkpoint needs all of them.
    pub(super) fn has_places(&self) -> bool {
        self.gang.as_ref().is_some_and(|gang| gang.board().keepers().count() > 1)
    }

    /// What comes of something, unless this worker is told to stop meanwhile.
    async fn unless_stopped<T>(&mut self, what: impl Future<Output = T>) -> Result<T, WorkerEnd> {
        tokio::select! {
            done = what => Ok(done),
            Some(_) = self.told.recv() => Err(WorkerEnd::Stopped),
        }
    }
}

/// A name for a folder that is the same for whoever runs in it on this machine.
pub(super) fn name_of_folder(folder: &Path) -> String {
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let place = std::fs::metadata(folder).map(|meta| format!("{}:{}", meta.dev(), meta.ino())).unwrap_or_default();
    format!("{}:{place}", machine.trim())
}

/// A name for a directory that is the same for whoever sees this very directory, on whatever machine. It lies in it until
/// something is restored there.
fn place_of(saves: &Path, epoch: u64) -> std::io::Result<String> {
    let file = saves.join(format!(".windfall-place-{epoch}"));
    let name = crate::checkpoint::token();
    match std::fs::File::options().write(true).create_new(true).open(&file) {
        Ok(mut new) => {
            new.write_all(name.as_bytes())?;
            return Ok(name);
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for _ in 0..NAMED_WITHIN {
        let named = std::fs::read_to_string(&file)?;
        if named.len() == name.len() {
            return Ok(named);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(std::io::Error::other("who was there first has not named it"))
}

/// Where rank 0 is met: at what it says itself, and by whoever runs alone on its own machine.
pub(super) fn master_of(run: &WorkerRun) -> (String, u16) {
    let first =
        run.gang.as_ref().and_then(|gang| gang.board().words.get(&0).map(|word| (word.host.clone(), word.port)));
    first.unwrap_or_else(|| (run.order.master.0.clone(), run.port.as_ref().map_or(0, |port| port.number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_name_and_another_place_another() {
        let (first, second) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let name = place_of(first.path(), 3).expect("a name");
        assert_eq!(place_of(first.path(), 3).expect("a name"), name);
        assert_ne!(place_of(second.path(), 3).expect("a name"), name);
        assert_ne!(place_of(first.path(), 4).expect("a name"), name, "one of another stint");
    }
}
