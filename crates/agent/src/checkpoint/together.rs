//! How a mover's uploads become checkpoints: those of a rank alone at once, those of a gang that shares no disk when all of
//! it agrees that they belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Checkpoints;
use super::error::{CheckpointError, Result, blocking};
use super::gang::{Board, Ended, Gang};
use super::manifest::Ref;
use super::save::Saved;
use super::tree::{Snapshot, Standing};

/// How often a directory is compared with what was uploaded of it, while that is asked for.
const LOOK: Duration = Duration::from_millis(300);
/// Ranks that save at the same step begin to do so within this time of each other.
const APART: Duration = Duration::from_secs(10);

/// Whose directory a mover watches.
#[derive(Debug, Clone)]
pub enum Role {
    /// All that the job saves lies there.
    Alone,
    /// Rank 0 of a gang with several places: its uploads wait for those of the others.
    First(Arc<First>),
    /// The keeper of another place.
    Keeper(Arc<Keeper>),
}

/// What rank 0 had, and how often the others had saved, by their keepers.
type Composed = (Arc<Snapshot>, BTreeMap<u32, u64>);

/// Rank 0 of a gang with several places.
#[derive(Debug)]
pub struct First {
    gang: Arc<Gang>,
    /// The shards that it has seen: composed, or about to be.
    seen: Mutex<BTreeMap<u32, Option<u64>>>,
    /// What the last checkpoint was made of.
    composed: Mutex<Option<Composed>>,
    /// Keepers that did not save when others did: only rank 0 saves in many programs.
    silent: Mutex<BTreeSet<u32>>,
}

impl First {
    fn seen(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Option<u64>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when every place has saved that saves when this one does. A place can stand still because its rank has not begun
    /// to write: what lies there is then of an earlier step than what lies here. Fails where it will never begin.
    async fn all_saved(&self, snapshot: &Arc<Snapshot>) -> Result<()> {
        let until = Instant::now() + APART;
        loop {
            let (board, composed) = (self.gang.board(), self.composed().clone());
            let is_own_new = composed.as_ref().is_none_or(|(own, _)| !is_still(own, snapshot));
            let late = {
                let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
                let late = late(&board, is_own_new, composed.as_ref().map(|(_, saved)| saved), &mut silent)?;
                if Instant::now() >= until {
                    silent.extend(&late);
                }
                late
            };
            if late.is_empty() || Instant::now() >= until {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    fn composed(&self) -> std::sync::MutexGuard<'_, Option<Composed>> {
        self.composed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns when somebody has uploaded what is in no checkpoint yet.
    async fn stirred(&self) {
        let known = self.seen().clone();
        let is_new = move |board: &Board| {
            let shards = board.shards();
            shards.values().any(Option::is_some) && shards != known
        };
        let shards = self.gang.until(is_new).await.shards();
        *self.seen() = shards;
    }
}

/// The keeper of a place: uploads what lies there, and tells rank 0 whether that is all.
#[derive(Debug)]
pub struct Keeper {
    gang: Arc<Gang>,
    dir: PathBuf,
    /// What was uploaded last, or lay there at the start.
    last: Mutex<Arc<Snapshot>>,
    /// Something else lies there than was uploaded.
    stirred: Notify,
}

impl Role {
    /// The role of a rank that keeps a place of its gang; `dir` is that place.
    pub async fn in_gang(gang: &Arc<Gang>, dir: &Path) -> Result<Role> {
        let places = gang.board().keepers().count();
        if gang.rank == 0 {
            let first = || {
                let gang = Arc::clone(gang);
                Arc::new(First { gang, seen: Mutex::default(), composed: Mutex::default(), silent: Mutex::default() })
            };
            return Ok(if places > 1 { Role::First(first()) } else { Role::Alone });
        }
        let last = Mutex::new(Arc::new(look(dir).await?));
        let (gang, dir) = (Arc::clone(gang), dir.to_owned());
        let keeper = Arc::new(Keeper { gang, dir, last, stirred: Notify::new() });
        Ok(Role::Keeper(keeper))
    }

    /// Whether an upload is a checkpoint by itself, and old ones are this mover's to remove.
    pub(super) fn makes_checkpoints(&self) -> bool {
        !matches!(self, Role::Keeper(_))
    }

    pub(super) async fn save(
        &self,
        checkpoints: &Checkpoints,
        (epoch, seq): (u64, u64),
        snapshot: &Arc<Snapshot>,
        work: Option<u64>,
    ) -> Result<Saved> {
        match self {
            Role::Alone => checkpoints.save(epoch, seq, snapshot, work).await,
            Role::First(first) => save_together(checkpoints, first, Ref::new(epoch, seq), snapshot, work).await,
            Role::Keeper(keeper) => {
                let saved = checkpoints.save_shard(epoch, keeper.gang.rank, seq, snapshot).await?;
                // A log that went on is no save.
                let is_new = !is_still(&keeper.last(), snapshot);
                *keeper.last() = Arc::clone(snapshot);
                keeper.gang.say(|word| {
                    word.shard = Some(seq);
                    word.saved += u64::from(is_new);
                });
                Ok(saved)
            }
        }
    }

    /// Returns when another snapshot is due although nothing here calls for one: others have saved, or something was removed.
    pub(super) async fn stirred(&self) {
        match self {
            Role::Alone => std::future::pending().await,
            Role::First(first) => first.stirred().await,
            Role::Keeper(keeper) => keeper.stirred.notified().await,
        }
    }

    /// Answers rank 0 for as long as it is polled.
    pub(super) async fn agree(&self) {
        match self {
            Role::Keeper(keeper) => keeper.agree().await,
            Role::Alone | Role::First(_) => std::future::pending().await,
        }
    }

    /// Nothing runs at this place any more, and all is sent. What a keeper uploaded last counts if it is all that there is;
    /// otherwise rank 0 makes no checkpoint of what the others saved last. The others keep their files until rank 0 says this.
    pub(super) async fn leave(&self, is_sent: bool) {
        match self {
            Role::Keeper(keeper) if keeper.has_all().await => keeper.gang.say(|word| word.is_over = true),
            // What was torn here is in no checkpoint, and with it what others saved at the same time.
            Role::First(first) => first.gang.say(|word| {
                word.is_over = true;
                word.gave_up |= !is_sent;
            }),
            Role::Keeper(_) | Role::Alone => {}
        }
    }
}

impl Keeper {
    fn last(&self) -> std::sync::MutexGuard<'_, Arc<Snapshot>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether what was uploaded last is all that lies here.
    async fn has_all(&self) -> bool {
        let last = Arc::clone(&self.last());
        look(&self.dir).await.is_ok_and(|now| is_still(&last, &now))
    }

    async fn agree(&self) {
        let mut agreed = 0;
        loop {
            let round = self.gang.until(|board| board.round > agreed).await.round;
            let last = Arc::clone(&self.last());
            // What was uploaded while it was looked at is asked about again.
            if self.has_all().await && Arc::ptr_eq(&last, &self.last()) {
                self.gang.say(|word| word.agreed = round);
                agreed = round;
            } else {
                // What was removed since, or goes on all the time, calls for no snapshot by itself.
                self.stirred.notify_one();
                tokio::time::sleep(LOOK).await;
            }
        }
    }
}

/// Uploads what rank 0 has, and makes a checkpoint of it once all places have been still for a moment that they share: asked
/// twice, every place names the same shard, so between the two questions nobody wrote.
async fn save_together(
    checkpoints: &Checkpoints,
    first: &First,
    name: Ref,
    snapshot: &Arc<Snapshot>,
    work: Option<u64>,
) -> Result<Saved> {
    let began = Instant::now();
    let uploaded = checkpoints.save_first(name.epoch, name.seq, snapshot).await?;
    let waits = Instant::now();
    tokio::select! {
        all = first.all_saved(snapshot) => all?,
        changed = until_changed(snapshot) => return Err(changed),
    }
    // How far ranks are apart says nothing of how long an upload takes.
    let began = began + waits.elapsed();
    let ask = || async {
        tokio::select! {
            board = first.gang.ask() => board,
            changed = until_changed(snapshot) => Err(changed),
        }
    };
    let mut shards = ask().await?.shards();
    let saved = loop {
        let again = ask().await?;
        if again.shards() == shards {
            break again.saved();
        }
        shards = again.shards();
    };
    still_there(snapshot).await?;
    first.seen().clone_from(&shards);
    *first.composed() = Some((Arc::clone(snapshot), saved.clone()));
    let shards = shards.into_iter().filter_map(|(rank, shard)| Some((rank, shard?))).collect();
    let composed = checkpoints.compose(name, (snapshot, uploaded), shards, work, began).await?;
    first.gang.say(|word| word.composed = saved);
    Ok(composed)
}

/// Keepers whose places must still save before there is a checkpoint: those that live, and have not saved since the last one
/// although another place has. Whoever is silent is not waited for until it saves again. Fails where one that saves was killed
/// before it did.
fn late(
    board: &Board,
    is_own_new: bool,
    composed: Option<&BTreeMap<u32, u64>>,
    silent: &mut BTreeSet<u32>,
) -> Result<BTreeSet<u32>> {
    let saved = board.saved();
    let before = |keeper: u32| composed.and_then(|composed| composed.get(&keeper).copied()).unwrap_or(0);
    let is_new = |keeper: u32| match keeper {
        0 => is_own_new,
        other => saved.get(&other).copied().unwrap_or(0) != before(other),
    };
    let saves = |keeper: u32| if keeper == 0 { composed.is_some() } else { before(keeper) > 0 };
    silent.retain(|keeper| !is_new(*keeper));
    let (new, old): (Vec<u32>, Vec<u32>) = board.keepers().partition(|keeper| is_new(*keeper));
    let mut late = BTreeSet::new();
    for keeper in old.into_iter().filter(|keeper| !new.is_empty() && !silent.contains(keeper)) {
        let died = board.at(keeper).any(|word| word.ended == Some(Ended::Died));
        let is_over = board.at(keeper).all(|word| word.ended.is_some());
        match () {
            () if died && saves(keeper) => return Err(CheckpointError::Torn),
            () if is_over => {}
            () => _ = late.insert(keeper),
        }
    }
    Ok(late)
}

async fn look(dir: &Path) -> Result<Snapshot> {
    let dir = dir.to_owned();
    blocking(move || Snapshot::of(&dir)).await
}

async fn still_there(snapshot: &Snapshot) -> Result<()> {
    let now = look(&snapshot.root).await?;
    if is_still(snapshot, &now) { Ok(()) } else { Err(CheckpointError::Changed { path: snapshot.root.clone() }) }
}

async fn until_changed(snapshot: &Snapshot) -> CheckpointError {
    loop {
        if let Err(changed) = still_there(snapshot).await {
            return changed;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether nothing that counts was written since a snapshot: logs and streams go on.
fn is_still(before: &Snapshot, now: &Snapshot) -> bool {
    let goes_on = |standing| matches!(standing, Standing::Stream | Standing::Growing);
    let stamps: BTreeMap<&Path, _> =
        before.files.iter().map(|file| (file.path.as_path(), (file.stamp, goes_on(file.standing)))).collect();
    let same = |path: &Path, stamp| stamps.get(path).is_some_and(|(known, goes_on)| *goes_on || *known == stamp);
    now.files.iter().all(|file| same(&file.path, file.stamp))
        && now.files.len() == before.files.len()
        && now.links == before.links
}

#[cfg(test)]
mod tests {
    use super::super::gang::Word;
    use super::*;

    /// Ranks with places of their own, by how often they saved and how they ended.
    fn board(ranks: &[(u64, Option<Ended>)]) -> Board {
        let word = |(rank, (saved, ended)): (usize, &(u64, Option<Ended>))| {
            // Shards may be sent again with nothing new in them.
            let word =
                Word { place: rank.to_string(), shard: Some(9), saved: *saved, ended: *ended, ..Word::default() };
            (rank as u32, word)
        };
        Board { words: ranks.iter().enumerate().map(word).collect(), round: 0 }
    }

    fn late_of(board: &Board, is_own_new: bool, composed: Option<&[u64]>, silent: &[u32]) -> Option<Vec<u32>> {
        let composed = composed.map(|shards| (1..).zip(shards.iter().copied()).collect());
        let mut silent = silent.iter().copied().collect();
        late(board, is_own_new, composed.as_ref(), &mut silent).ok().map(|late| late.into_iter().collect())
    }

    #[test]
    fn a_place_that_has_not_saved_since_the_last_checkpoint_is_waited_for() {
        let runs = [(0, None), (3, None), (5, None)];
        assert_eq!(late_of(&board(&runs), true, Some(&[3, 4]), &[]), Some(vec![1]), "rank 2 has saved, and rank 1 not");
        assert_eq!(late_of(&board(&runs), true, Some(&[2, 4]), &[]), Some(vec![]), "all have");
        assert_eq!(late_of(&board(&runs), false, Some(&[2, 4]), &[]), Some(vec![0]), "but rank 0");
        assert_eq!(late_of(&board(&runs), false, Some(&[3, 5]), &[]), Some(vec![]), "nobody has");
        assert_eq!(late_of(&board(&runs), true, Some(&[3, 4]), &[1]), Some(vec![]), "it never saves when others do");
    }

    #[test]
    fn places_that_save_nothing_are_not_waited_for_once_they_have_ended() {
        let fresh = [(0, None), (0, None)];
        assert_eq!(late_of(&board(&fresh), true, None, &[]), Some(vec![1]));
        let ended = [(0, None), (0, Some(Ended::Died))];
        assert_eq!(late_of(&board(&ended), true, None, &[]), Some(vec![]), "only rank 0 saves, as far as is known");
        let well = [(0, None), (3, Some(Ended::Well))];
        assert_eq!(late_of(&board(&well), true, Some(&[3]), &[]), Some(vec![]), "it has left what it leaves");
    }

    #[test]
    fn there_is_no_checkpoint_of_different_steps_after_a_rank_was_killed() {
        let killed = [(0, None), (3, Some(Ended::Died))];
        assert_eq!(late_of(&board(&killed), true, Some(&[3]), &[]), None);
        assert_eq!(late_of(&board(&killed), true, Some(&[2]), &[]), Some(vec![]), "it had saved before it died");
        assert_eq!(late_of(&board(&killed), false, Some(&[3]), &[]), Some(vec![]), "nor had anybody else");
    }
}
