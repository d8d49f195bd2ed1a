//! What the ranks of a gang tell each other while they run, through the job's store: they may share no disk, and know no
//! address of one another. Each writes a word of its own; rank 0 collects all words on a board that the others read. Words
//! are of one stint: nothing of an earlier one is ever read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt, stream};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use windfall_core::CheckpointId;

use super::Checkpoints;
use super::error::{CheckpointError, Result};

/// How often words and the board are looked at.
const LOOK: Duration = Duration::from_millis(250);
/// And while all of them run, where nothing is waited for.
const SLOWLY: Duration = Duration::from_secs(1);
/// Words that rank 0 reads at the same time.
const AT_ONCE: usize = 16;
/// After a store did not answer.
const LATER: Duration = Duration::from_secs(1);

/// What a rank says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Word {
    /// Names the directory that it saves in: ranks with one place share it.
    pub place: String,
    /// Names the folder that it runs in; of older agents nothing.
    #[serde(default)]
    pub folder: String,
    /// Where others reach it.
    pub host: String,
    pub port: u16,
    /// What lies at its place now; none before that was brought there.
    pub restored: Option<Restored>,
    /// Its program has ended, and whether it died of a signal.
    pub ended: Option<Ended>,
    /// Its program was killed, or its machine lost before that had ended: the job goes on in another stint.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_cut_off: bool,
    /// The last shard that it has uploaded, if it is the keeper of its place.
    #[serde(default)]
    pub shard: Option<u64>,
    /// How often something else lay there than was uploaded before.
    #[serde(default)]
    pub saved: u64,
    /// The last round of rank 0 in which that was all that lay at its place.
    #[serde(default)]
    pub agreed: u64,
    /// Nothing more comes from its place.
    #[serde(default)]
    pub is_over: bool,
    /// What was saved last at its place is lost; of rank 0, that no checkpoint is made of it.
    #[serde(default)]
    pub gave_up: bool,
    /// Of rank 0: how often each other place had saved whose shard is in its last checkpoint, by their keepers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub composed: BTreeMap<u32, u64>,
    /// Of rank 0: it says what becomes of what others have sent. Agents of earlier versions do not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_fate: bool,
    /// Its machine is gone: this was said in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
}

/// What a rank resumes from; the same for all ranks of a stint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub from: Option<CheckpointId>,
}

/// How a program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    Well,
    Died,
}

/// What becomes of what a place has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Rank 0 has not said it yet.
    Open,
    /// It is in a checkpoint, or nothing of it is wanted.
    Kept,
    /// There is no checkpoint of it, and there will be none.
    Lost,
}

/// The words of all ranks, as rank 0 has seen them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    pub words: BTreeMap<u32, Word>,
    /// Rank 0 asks whether what was uploaded last is all that there is; a higher number asks again.
    #[serde(default)]
    pub round: u64,
}

impl Board {
    /// The lowest rank at the place of a rank.
    pub fn keeper_of(&self, rank: u32) -> Option<u32> {
        let place = &self.words.get(&rank)?.place;
        self.words.iter().find(|(_, word)| word.place == *place).map(|(keeper, _)| *keeper)
    }

    /// The keepers of all places.
    pub fn keepers(&self) -> impl Iterator<Item = u32> {
        self.words.keys().copied().filter(|rank| self.keeper_of(*rank) == Some(*rank))
    }

    /// The last shards of all places but rank 0's, by their keepers.
    pub fn shards(&self) -> BTreeMap<u32, Option<u64>> {
        let keepers = self.keepers().filter(|keeper| *keeper != 0);
        keepers.filter_map(|keeper| Some((keeper, self.words.get(&keeper)?.shard))).collect()
    }

    /// How often each place but rank 0's has saved, by their keepers.
    pub fn saved(&self) -> BTreeMap<u32, u64> {
        let keepers = self.keepers().filter(|keeper| *keeper != 0);
        keepers.filter_map(|keeper| Some((keeper, self.words.get(&keeper)?.saved))).collect()
    }

    /// Ranks that run in the same folder as one of them, which is among them.
    pub fn in_folder_of(&self, rank: u32) -> impl Iterator<Item = (u32, &Word)> {
        let folder = self.words.get(&rank).map(|word| word.folder.as_str()).unwrap_or_default();
        let is_there = move |word: &Word| word.folder == folder && !word.is_gone;
        self.words.iter().map(|(rank, word)| (*rank, word)).filter(move |(_, word)| is_there(word))
    }

    /// These ranks' machines are gone: nothing is heard of them any more, so their last word is said here. What they had not
    /// sent is lost.
    pub fn bury(&mut self, gone: &BTreeSet<u32>) {
        for rank in gone {
            let named = || Word { place: format!("gone with rank {rank}"), ..Word::default() };
            let word = self.words.entry(*rank).or_insert_with(named);
            word.was_cut_off |= word.ended.is_none();
            word.ended.get_or_insert(Ended::Died);
            word.gave_up |= !word.is_over;
            (word.is_over, word.is_gone) = (true, true);
        }
    }

    /// What becomes of what another place than rank 0's has sent last, which has saved so often.
    pub fn fate_of(&self, keeper: u32, saved: u64) -> Fate {
        if saved == 0 {
            return Fate::Kept;
        }
        match self.words.get(&0) {
            Some(first) if first.composed.get(&keeper).is_some_and(|composed| *composed >= saved) => Fate::Kept,
            Some(first) if first.gave_up => Fate::Lost,
            Some(first) if first.is_over || !first.tells_fate => Fate::Kept,
            _ => Fate::Open,
        }
    }

    /// Those at a keeper's place.
    pub fn at(&self, keeper: u32) -> impl Iterator<Item = &Word> {
        let place = self.words.get(&keeper).map(|word| word.place.clone());
        self.words.values().filter(move |word| Some(&word.place) == place.as_ref())
    }
}

/// Ranks whose machines are gone, as this one is told while it runs.
pub type Gone = Arc<watch::Sender<BTreeSet<u32>>>;

/// A rank among the others.
#[derive(Debug)]
pub struct Gang {
    pub rank: u32,
    pub size: u32,
    own: Arc<watch::Sender<Word>>,
    /// Asked for by rank 0.
    round: Arc<watch::Sender<u64>>,
    board: watch::Receiver<Board>,
    /// The last word that is on the store.
    written: watch::Receiver<Option<Word>>,
    silence: Arc<Silence>,
    talking: JoinHandle<()>,
}

impl Drop for Gang {
    fn drop(&mut self) {
        self.talking.abort();
    }
}

impl Gang {
    /// Says the first word, and listens from then on.
    pub fn join(checkpoints: Arc<Checkpoints>, epoch: u64, who: (u32, u32), first: Word, gone: &Gone) -> Gang {
        Gang::talk(checkpoints, epoch, who, (first, 0), gone)
    }

    /// Goes on in place of an agent that was killed, with what that one said last and how its program ended.
    pub async fn rejoin(
        checkpoints: &Arc<Checkpoints>,
        epoch: u64,
        (rank, size): (u32, u32),
        ended: Ended,
        gone: &Gone,
    ) -> Result<Gang> {
        let board = checkpoints.said::<Board>(&board_key(epoch)).await?.unwrap_or_default();
        let last = match rank {
            0 => board.words.get(&0).cloned(),
            _ => checkpoints.said::<Word>(&word_key(epoch, rank)).await?,
        };
        let last = last.ok_or(CheckpointError::NotBegun { epoch })?;
        let word = Word { ended: Some(ended), ..last };
        Ok(Gang::talk(Arc::clone(checkpoints), epoch, (rank, size), (word, board.round), gone))
    }

    fn talk(
        checkpoints: Arc<Checkpoints>,
        epoch: u64,
        (rank, size): (u32, u32),
        (first, round): (Word, u64),
        gone: &Gone,
    ) -> Gang {
        let (own, round) = (Arc::new(watch::Sender::new(first)), Arc::new(watch::Sender::new(round)));
        let (shown, board) = watch::channel(Board::default());
        let (said, written) = watch::channel(None);
        let (heard, asked, gone) = (own.subscribe(), round.subscribe(), Arc::clone(gone));
        let silence = Arc::new(Silence::default());
        let silent = Arc::clone(&silence);
        let talk = Talk { checkpoints, epoch, rank, size, own: heard, round: asked, gone, shown, said, silent };
        Gang { rank, size, own, round, board, written, silence, talking: tokio::spawn(talk.run()) }
    }

    /// Changes the own word.
    pub fn say(&self, change: impl FnOnce(&mut Word)) {
        self.own.send_modify(change);
    }

    /// What this rank said last.
    pub fn own_word(&self) -> Word {
        self.own.borrow().clone()
    }

    /// Waits until the others can read what was said here last.
    pub async fn written(&self) {
        let own = self.own.borrow().clone();
        let _ = self.written.clone().wait_for(|written| written.as_ref() == Some(&own)).await;
    }

    /// For how long the store has not answered now.
    pub fn silent_for(&self) -> Duration {
        self.silence.lasts()
    }

    /// What all ranks said last.
    pub fn board(&self) -> Board {
        self.board.borrow().clone()
    }

    /// Waits until the board is as wanted.
    pub async fn until(&self, is_so: impl Fn(&Board) -> bool + Send) -> Board {
        let mut board = self.board.clone();
        let found = board.wait_for(is_so).await.map(|board| board.clone());
        match found {
            Ok(board) => board,
            // Nobody talks any more: this rank is on its way out.
            Err(_) => std::future::pending().await,
        }
    }

    /// All ranks are there.
    pub async fn met(&self) -> Board {
        let size = self.size as usize;
        self.until(move |board| board.words.len() == size).await
    }

    /// Asks all keepers whether what they uploaded last is all that there is; only rank 0 does so. Gives the board on which all
    /// of them agree to that. Fails where one of them has lost what was saved there.
    pub async fn ask(&self) -> Result<Board> {
        let round = *self.round.borrow() + 1;
        self.round.send_replace(round);
        let agreed = |word: &Word| word.agreed >= round || word.is_over;
        let all = |board: &Board| {
            let mut keepers = board.keepers().filter(|keeper| *keeper != 0);
            keepers.all(|keeper| board.words.get(&keeper).is_some_and(agreed))
        };
        let is_lost = |board: &Board| board.words.values().any(|word| word.gave_up);
        let board = self.until(|board| all(board) || is_lost(board)).await;
        if is_lost(&board) { Err(CheckpointError::Torn) } else { Ok(board) }
    }
}

/// The talking itself, beside the rank.
struct Talk {
    checkpoints: Arc<Checkpoints>,
    epoch: u64,
    rank: u32,
    size: u32,
    own: watch::Receiver<Word>,
    round: watch::Receiver<u64>,
    gone: Gone,
    shown: watch::Sender<Board>,
    said: watch::Sender<Option<Word>>,
    silent: Arc<Silence>,
}

/// Since when a store has not answered.
#[derive(Debug)]
struct Silence(Mutex<Instant>);

impl Default for Silence {
    fn default() -> Silence {
        Silence(Mutex::new(Instant::now()))
    }
}

impl Silence {
    fn lasts(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    fn answered(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Talk {
    async fn run(mut self) {
        let mut told_gone = self.gone.subscribe();
        loop {
            let word = self.own.borrow_and_update().clone();
            let round = *self.round.borrow_and_update();
            let gone = told_gone.borrow_and_update().clone();
            let is_new = self.said.borrow().as_ref() != Some(&word);
            let talked = match self.rank {
                0 => self.collect(&word, round, &gone).await,
                rank => self.exchange(rank, is_new.then_some(&word), &gone).await,
            };
            let wait = match talked {
                Ok(()) => {
                    self.silent.answered();
                    self.said.send_replace(Some(word));
                    if self.is_calm() { SLOWLY } else { LOOK }
                }
                // What is said is said again once the store answers.
                Err(_) => LATER,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                changed = self.own.changed() => if changed.is_err() { return },
                changed = self.round.changed() => if changed.is_err() { return },
                _ = told_gone.changed() => {}
            }
        }
    }

    /// All run, and rank 0 has asked nothing that is not answered.
    fn is_calm(&self) -> bool {
        let board = self.shown.borrow();
        let calm = |word: &Word| word.restored.is_some() && word.ended.is_none() && word.agreed >= board.round;
        board.words.len() == self.size as usize && board.words.iter().all(|(rank, word)| *rank == 0 || calm(word))
    }

    /// Rank 0 reads what the others say, and shows all of it where that has changed.
    async fn collect(&self, own: &Word, round: u64, gone: &BTreeSet<u32>) -> Result<()> {
        let before = self.shown.borrow().clone();
        let mut board = Board { words: before.words.clone(), round };
        board.words.insert(0, own.clone());
        // Of one that is gone the last word may be there, and not read yet.
        let is_open = |rank: &u32| board.words.get(rank).is_none_or(|word| !word.is_over);
        let open: Vec<u32> = (1..self.size).filter(is_open).collect();
        let reads = open.into_iter().map(|rank| async move {
            let word = self.checkpoints.said::<Word>(&word_key(self.epoch, rank)).await?;
            Ok::<_, CheckpointError>(word.map(|word| (rank, word)))
        });
        let words = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect::<Vec<_>>().await?;
        board.words.extend(words.into_iter().flatten());
        board.bury(gone);
        if board != before {
            self.write(&board_key(self.epoch), &board).await?;
            self.shown.send_replace(board);
        }
        Ok(())
    }

    async fn exchange(&self, rank: u32, word: Option<&Word>, gone: &BTreeSet<u32>) -> Result<()> {
        if let Some(word) = word {
            self.write(&word_key(self.epoch, rank), word).await?;
        }
        let said = self.checkpoints.said::<Board>(&board_key(self.epoch)).await?;
        // Where rank 0 is gone too nobody says so there.
        if let Some(mut board) = said.or_else(|| (!gone.is_empty()).then(Board::default)) {
            board.bury(gone);
            self.shown.send_if_modified(|known| {
                let is_new = *known != board;
                *known = board;
                is_new
            });
        }
        Ok(())
    }

    async fn write<T: Serialize>(&self, key: &str, what: &T) -> Result<()> {
        let body = serde_json::to_vec(what).map_err(|error| CheckpointError::Task(error.to_string()))?;
        self.checkpoints.depot.put(key, body.into()).await
    }
}

impl Checkpoints {
    /// What somebody said at a place of the store.
    async fn said<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>> {
        let body = self.depot.get(key).await?;
        let read = body.map(|body| serde_json::from_slice(&body)).transpose();
        read.map_err(|error| CheckpointError::Task(error.to_string()))
    }
}

fn word_key(epoch: u64, rank: u32) -> String {
    format!("gang/{epoch:020}-{rank:010}")
}

fn board_key(epoch: u64) -> String {
    format!("gang/{epoch:020}-board")
}
