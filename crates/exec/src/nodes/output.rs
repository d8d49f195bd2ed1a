//! What programs on a node print, on its way to the server: a file there, and a copy of it here that has the same bytes at
//! the same places. What its agent has cut out of a long output is not sent.

use super::protocol::{NotKept, ToServer};
use crate::net::{Message, Peer};
use crate::owned;
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windfall_core::english::{CUT_LINE, cut_line};
use windfall_core::{StintId, WorkloadId};

/// So much of an output is sent at once.
const PIECE: usize = 256 << 10;
/// A program that prints faster than this is not followed word by word: what it prints is sent at this rate a second, and
/// what its agent has cut meanwhile is passed over.
const RATE: u64 = 8 << 20;
/// Nobody prints more.
const MOST: u64 = 1 << 44;
/// The first part of a copy that is kept, and the newest: as its agent keeps it.
const KEPT: [u64; 2] = [16 << 20, 48 << 20];
/// Holes are as long as this, or twice, and so on.
const STEP: u64 = 1 << 20;

/// After this long the server is asked again: where it could not write an output down, and where it knew no such worker.
const AGAIN: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(60)];
/// How long the last words of a worker are tried again before its end is told without them.
const LAST_TRIES: Duration = Duration::from_secs(8);

/// What begins the name of a file that reached nobody: it stays when the rest of its job is removed. An output is still sent.
pub(super) const UNSAVED: &str = "unsaved-";
/// The same of what a stint was to bring back.
pub(super) const UNSAVED_OUTPUTS: &str = "unsaved-outputs-";
/// The ending of a file that is there while an agent sends what a job leaves.
pub(super) const PENDING: &str = ".pending";

/// Names that are looked at in a folder of a job's, into which its program may put any number.
pub(super) const MOST_NAMES: usize = 50_000;

/// The file of what one worker prints, in the folder of its job on its node.
pub(super) fn name_of(stint: StintId, rank: u32) -> String {
    format!("output-{}-{}-{}-{rank}.log", stint.workload.0, stint.member, stint.epoch)
}

fn worker_of(name: &str) -> Option<(StintId, u32)> {
    let name = name.strip_prefix(UNSAVED).unwrap_or(name);
    let numbers = name.strip_prefix("output-")?.strip_suffix(".log")?;
    let numbers: Vec<u64> = numbers.split('-').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    let &[workload, member, epoch, rank] = numbers.as_slice() else { return None };
    let stint = StintId { workload: WorkloadId(workload), member: u32::try_from(member).ok()?, epoch };
    Some((stint, u32::try_from(rank).ok()?))
}

/// The job that a folder is of, by its name.
pub(super) fn job_of(folder: &str) -> Option<WorkloadId> {
    folder.split('-').next()?.parse().ok().map(WorkloadId)
}

/// Writes a piece of an output into the server's copy, and gives the length of that.
pub(super) fn keep(file: &Path, offset: u64, piece: &[u8]) -> io::Result<u64> {
    let file = File::options().create(true).truncate(false).write(true).read(true).open(file)?;
    let length = file.metadata()?.len();
    let end = offset.checked_add(piece.len() as u64).filter(|end| *end <= MOST);
    let end = end.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "an output that is longer than any"))?;
    // What is here stays as it came.
    if piece.is_empty() || offset < length {
        return Ok(length);
    }
    let [head, tail] = KEPT;
    // What was cut before, and what the agent has cut out since: of that nothing comes.
    let hole = seek(&file, SeekFrom::Data(head)).unwrap_or(0).max(if offset > length { offset } else { 0 });
    file.write_all_at(piece, offset)?;
    let (before, now) = ((length.saturating_sub(tail)) / STEP * STEP, end.saturating_sub(tail) / STEP * STEP);
    if length > head && (now > before.max(head) || offset > length) {
        cut(&file, head, hole.max(now))?;
    }
    Ok(end)
}

/// Cuts a copy from its head up to a place, and says before the hole how much that is: the line that came with the head is
/// from before the last cut, if there was one at all. A disk that cannot make holes keeps all of it.
fn cut(file: &File, head: u64, to: u64) -> io::Result<()> {
    if to > head && fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, head, to - head).is_ok() {
        file.write_all_at(cut_line(to - head).as_bytes(), head - CUT_LINE as u64)?;
    }
    Ok(())
}

/// Sends what workers print, each file from where the server's copy ends.
#[derive(Default)]
pub(super) struct Outputs {
    files: Mutex<BTreeMap<PathBuf, Arc<tokio::sync::Mutex<Sent>>>>,
}

/// How one file is sent.
#[derive(Default)]
struct Sent {
    /// How far, over this connection; none while the server has not said what it has.
    at: Option<u64>,
    /// Before then it is not sent.
    not_before: Option<Instant>,
    /// Since when the server could not write it down. Forgotten when all of it was taken over.
    failed_since: Option<Instant>,
    /// The server knows no such worker here.
    is_refused: bool,
}

/// What the server makes of a piece.
enum Taken {
    /// Its copy is this long.
    UpTo(u64),
    /// It could not write it down.
    NotKept(String),
    /// It knows no such worker here, or is an earlier one and could not write it down.
    Refused,
}

async fn offer(peer: &Peer, stint: StintId, rank: u32, offset: u64, body: Vec<u8>) -> io::Result<Taken> {
    let head = Message::of(&ToServer::Output { stint, rank, offset }).head;
    let Ok(answer) = peer.ask(Message { head, body }).await? else { return Ok(Taken::Refused) };
    match answer.read::<NotKept>() {
        Ok(NotKept { not_kept }) => Ok(Taken::NotKept(not_kept)),
        Err(_) => answer.read().map(Taken::UpTo),
    }
}

impl Outputs {
    /// Sends what is new in the folders of jobs.
    pub async fn send_new(&self, peer: &Peer, jobs: &Path, within: Duration) {
        let most = (RATE as f64 * within.as_secs_f64()) as u64;
        for (file, stint, rank) in found_in(jobs).await {
            // What is lost is sent again.
            let _ = self.send(peer, &file, stint, rank, most).await;
        }
    }

    /// Sends all that the workers of such stints have printed. What the server cannot write down is tried again for a few
    /// seconds.
    pub async fn send_all_of(&self, peer: &Peer, jobs: &Path, is_wanted: impl Fn(StintId) -> bool) {
        for (file, stint, rank) in found_in(jobs).await {
            while is_wanted(stint) && self.send(peer, &file, stint, rank, u64::MAX).await.is_ok() {
                let sent = self.sent(&file);
                let sent = sent.lock().await;
                let Some(again) = sent.not_before.filter(|again| sent.is_worth_waiting(*again)) else { break };
                drop(sent);
                tokio::time::sleep_until(again.into()).await;
            }
        }
    }

    fn sent(&self, file: &Path) -> Arc<tokio::sync::Mutex<Sent>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(files.entry(file.to_owned()).or_default())
    }

    async fn send(&self, peer: &Peer, file: &Path, stint: StintId, rank: u32, most: u64) -> io::Result<()> {
        let sent = self.sent(file);
        let mut sent = sent.lock().await;
        if sent.not_before.is_some_and(|again| Instant::now() < again) {
            return Ok(());
        }
        let (folder, name) = (file.parent(), file.file_name().and_then(|name| name.to_str()));
        let (folder, name) = folder.zip(name).ok_or(io::ErrorKind::InvalidInput)?;
        let opened = owned::open(folder, name)?;
        let Some(mut at) = (match sent.at {
            Some(at) => Some(at),
            None => sent.hear(file, offer(peer, stint, rank, 0, Vec::new()).await?, 0),
        }) else {
            return Ok(());
        };
        let until = at.saturating_add(most);
        while at < until {
            let (from, to) = stretch(&opened, at)?;
            let mut piece = vec![0; PIECE.min(usize::try_from(to - from).unwrap_or(PIECE))];
            let read = opened.read_at(&mut piece, from)?;
            piece.truncate(read);
            if read == 0 {
                sent.failed_since = None;
                if name.starts_with(UNSAVED) {
                    // It was kept for this alone.
                    owned::remove(folder, name)?;
                }
                break;
            }
            let taken = offer(peer, stint, rank, from, piece).await?;
            let Some(now_at) = sent.hear(file, taken, from + read as u64) else { break };
            at = now_at;
        }
        Ok(())
    }

    /// Another connection, or none of these files any more. What could not be written down is remembered.
    pub fn start_over(&self) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|_, sent| match sent.try_lock() {
            Ok(mut sent) => {
                (sent.at, sent.not_before) = (None, None);
                sent.failed_since.is_some()
            }
            // Whoever still sends it does so over the connection that is over.
            Err(_) => false,
        });
    }

    /// Gives the outputs in a job's folder that the server has not taken over, and might, a name that stays when the job is
    /// removed.
    pub fn keep_unsent(&self, job: &Path) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let length = |file: &Path| file.symlink_metadata().map_or(0, |meta| meta.len());
        // Whoever sends it at this moment has not sent all of it.
        let is_unsent = |file: &Path| match files.get(file).map(|sent| sent.try_lock()) {
            Some(Ok(sent)) => sent.failed_since.is_some() || (!sent.is_refused && sent.at < Some(length(file))),
            Some(Err(_)) | None => true,
        };
        let is_output = |file: &Path| {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            !name.starts_with(UNSAVED) && worker_of(&name).is_some()
        };
        let entries = std::fs::read_dir(job).into_iter().flatten().flatten().take(MOST_NAMES);
        let outputs = entries.map(|entry| entry.path()).filter(|file| is_output(file));
        let unsent: Vec<PathBuf> = outputs.filter(|file| is_unsent(file)).collect();
        for file in unsent {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // One that cannot be renamed is lost, as all of them were before.
            let _ = std::fs::rename(&file, job.join(format!("{UNSAVED}{name}")));
            files.remove(&file);
        }
    }
}

impl Sent {
    /// Takes in what the server made of a piece, and gives how far the file is sent; none where nothing more is to be sent now.
    fn hear(&mut self, file: &Path, taken: Taken, end: u64) -> Option<u64> {
        let [failed, refused] = AGAIN;
        match taken {
            Taken::UpTo(length) => (self.at, self.not_before) = (Some(length.max(end)), None),
            Taken::NotKept(why) => {
                if self.failed_since.is_none() {
                    eprintln!("the server could not write down {}, which is tried again: {why}", file.display());
                }
                self.failed_since.get_or_insert_with(Instant::now);
                // What its copy has is asked for anew.
                (self.at, self.not_before) = (None, Some(Instant::now() + failed));
            }
            Taken::Refused => {
                (self.at, self.not_before) = (None, Some(Instant::now() + refused));
                self.is_refused = true;
            }
        }
        self.at
    }

    /// Whether last words wait until it is sent again: not where the server refuses it, and not for ever.
    fn is_worth_waiting(&self, again: Instant) -> bool {
        let is_soon = again.saturating_duration_since(Instant::now()) <= AGAIN[0];
        is_soon && self.failed_since.is_some_and(|since| since.elapsed() < LAST_TRIES)
    }
}

/// The next bytes that are there after a place: a long output has a hole in the middle.
fn stretch(file: &File, at: u64) -> io::Result<(u64, u64)> {
    let length = file.metadata()?.len();
    if at >= length {
        return Ok((length, length));
    }
    // A file system that knows no holes has none.
    let from = seek(file, SeekFrom::Data(at)).unwrap_or(at);
    let to = seek(file, SeekFrom::Hole(from)).unwrap_or(length);
    Ok((from, to.max(from)))
}

/// The outputs in the folders of jobs. Programs may put very many names there, so a thread of its own looks.
async fn found_in(jobs: &Path) -> Vec<(PathBuf, StintId, u32)> {
    let jobs = jobs.to_owned();
    tokio::task::spawn_blocking(move || outputs_in(&jobs)).await.unwrap_or_default()
}

fn outputs_in(jobs: &Path) -> Vec<(PathBuf, StintId, u32)> {
    let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = entries(jobs).flat_map(|job| entries(&job).take(MOST_NAMES).collect::<Vec<_>>());
    let output = |file: PathBuf| {
        let (stint, rank) = worker_of(file.file_name()?.to_str()?)?;
        // Nobody prints what another's job is said to have printed.
        let job = job_of(file.parent()?.file_name()?.to_str()?)?;
        (job == stint.workload).then_some((file, stint, rank))
    };
    let mut outputs: Vec<_> = files.filter_map(output).collect();
    outputs.sort_by_key(|(_, stint, rank)| (*stint, *rank));
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn the_name_of_an_output_says_whose_it_is() {
        let stint = StintId { workload: WorkloadId(12), member: 3, epoch: 4 };
        assert_eq!(worker_of(&name_of(stint, 5)), Some((stint, 5)));
        for name in ["output-1-2-3.log", "output-1-2-3-x.log", "output-1-2-3-4.txt", "stint-1-0.log", ""] {
            assert_eq!(worker_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_copy_keeps_its_head_and_its_newest_part_and_takes_no_nonsense() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("copy");
        let piece = vec![b'x'; 1 << 20];
        for n in 0..100 {
            assert_eq!(keep(&file, n << 20, &piece).expect("kept"), (n + 1) << 20);
        }
        assert_eq!(keep(&file, 5 << 20, &[b'y'; 9]).expect("kept"), 100 << 20, "a piece that came before");
        assert_eq!(keep(&file, 0, &[]).expect("asked"), 100 << 20);
        let meta = std::fs::metadata(&file).expect("there");
        assert!(meta.blocks() * 512 <= 70 << 20, "{} bytes on disk", meta.blocks() * 512);
        assert!(keep(&file, u64::MAX - 5, &piece).is_err() && keep(&file, MOST, &piece).is_err());
    }

    #[test]
    fn a_copy_says_how_much_of_it_was_cut_however_often() {
        let dir = tempfile::tempdir().expect("a folder");
        let file = dir.path().join("copy");
        let piece = vec![b'x'; 1 << 20];
        let said = || {
            let mut line = [0; CUT_LINE];
            let place = KEPT[0] - CUT_LINE as u64;
            File::open(&file).expect("there").read_exact_at(&mut line, place).expect("read");
            String::from_utf8(line.to_vec()).expect("text")
        };
        for n in 0..100 {
            keep(&file, n << 20, &piece).expect("kept");
        }
        assert_eq!(said(), cut_line(36 << 20), "the newest 48 of 100 are kept, and the first 16");
        keep(&file, 300 << 20, &piece).expect("kept");
        assert_eq!(said(), cut_line(284 << 20), "what the agent cut meanwhile did not come");
        keep(&file, 301 << 20, &piece).expect("kept");
        assert_eq!(said(), cut_line(284 << 20));
        for n in 302..360 {
            keep(&file, n << 20, &piece).expect("kept");
        }
        assert_eq!(said(), cut_line((360 - 48 - 16) << 20));
    }

    #[test]
    fn what_a_job_puts_beside_its_output_is_not_another_job_s() {
        let dir = tempfile::tempdir().expect("a folder");
        let stint = |job| StintId { workload: WorkloadId(job), member: 0, epoch: 1 };
        std::fs::create_dir(dir.path().join("7-1001")).expect("made");
        for job in [7, 8] {
            std::fs::write(dir.path().join("7-1001").join(name_of(stint(job), 0)), "said").expect("written");
        }
        let found: Vec<StintId> = outputs_in(dir.path()).into_iter().map(|(_, stint, _)| stint).collect();
        assert_eq!(found, [stint(7)]);
    }

    /// A job's folder with the output of one worker, and a server that answers as it is told.
    async fn sent_to<F>(answer: impl Fn(ToServer, Vec<u8>) -> F + Clone + Send + Sync + 'static) -> Sending
    where
        F: Future<Output = Result<Message, String>> + Send + 'static,
    {
        let dir = tempfile::tempdir().expect("a folder");
        let (stint, jobs) = (StintId { workload: WorkloadId(1), member: 0, epoch: 2 }, dir.path().join("jobs"));
        std::fs::create_dir_all(jobs.join("1")).expect("made");
        std::fs::write(jobs.join("1").join(name_of(stint, 0)), "printed").expect("written");
        let (one, two) = tokio::io::duplex(1 << 16);
        let (peer, working) = Peer::over(one, 8, |_| async { Err(String::new()) });
        let (_, serving) = Peer::over(two, 8, move |message: Message| {
            let answer = answer.clone();
            async move { answer(message.read().expect("an output"), message.body).await }
        });
        tokio::spawn(working);
        tokio::spawn(serving);
        Sending { dir, jobs, stint, peer, outputs: Outputs::default() }
    }

    struct Sending {
        dir: tempfile::TempDir,
        jobs: PathBuf,
        stint: StintId,
        peer: Peer,
        outputs: Outputs,
    }

    #[tokio::test]
    async fn what_the_server_could_not_write_down_is_sent_again() {
        let copy = Arc::new(Mutex::new((2, Vec::new())));
        let server = Arc::clone(&copy);
        let sending = sent_to(move |asked, body| {
            let ToServer::Output { offset, .. } = asked else { panic!("{asked:?}") };
            let mut copy = server.lock().expect("free");
            let (full, kept) = &mut *copy;
            if !body.is_empty() && *full > 0 {
                *full -= 1;
                return std::future::ready(Ok(Message::of(&NotKept { not_kept: "no space left".to_owned() })));
            }
            assert_eq!(offset as usize * usize::from(!body.is_empty()), kept.len() * usize::from(!body.is_empty()));
            kept.extend(body);
            std::future::ready(Ok(Message::of(&kept.len())))
        });
        let sending = sending.await;
        sending.outputs.send_new(&sending.peer, &sending.jobs, Duration::from_secs(1)).await;
        assert_eq!(copy.lock().expect("free").1, b"");
        sending.outputs.send_all_of(&sending.peer, &sending.jobs, |of| of == sending.stint).await;
        assert_eq!(copy.lock().expect("free").1, b"printed", "its last words wait until there is room");
        let (job, name) = (sending.jobs.join("1"), name_of(sending.stint, 0));
        sending.outputs.keep_unsent(&job);
        assert!(job.join(name).exists(), "all of it was taken over");
        drop(sending.dir);
    }

    #[tokio::test]
    async fn what_reached_nobody_stays_and_what_nobody_knows_does_not() {
        for (is_kept, answer) in [
            (true, Ok(Message::of(&NotKept { not_kept: "no space left".to_owned() }))),
            (false, Err("job 1 does not run on this node".to_owned())),
        ] {
            let asked = Arc::new(Mutex::new(0));
            let count = Arc::clone(&asked);
            let sending = sent_to(move |_, _| {
                *count.lock().expect("free") += 1;
                std::future::ready(answer.clone())
            });
            let sending = sending.await;
            for _ in 0..3 {
                sending.outputs.send_new(&sending.peer, &sending.jobs, Duration::from_secs(1)).await;
            }
            assert_eq!(*asked.lock().expect("free"), 1, "it is not asked again at once");
            sending.outputs.start_over();
            sending.outputs.send_new(&sending.peer, &sending.jobs, Duration::from_secs(1)).await;
            assert_eq!(*asked.lock().expect("free"), 2, "another connection");
            let (job, name) = (sending.jobs.join("1"), name_of(sending.stint, 0));
            sending.outputs.keep_unsent(&job);
            assert_eq!(job.join(format!("{UNSAVED}{name}")).exists(), is_kept);
            assert_eq!(job.join(&name).exists(), !is_kept);
        }
    }

    #[tokio::test]
    async fn what_stayed_because_it_reached_nobody_is_sent_later_and_goes_then() {
        let copy = Arc::new(Mutex::new(Vec::new()));
        let server = Arc::clone(&copy);
        let sending = sent_to(move |_, body| {
            let mut kept = server.lock().expect("free");
            kept.extend(body);
            std::future::ready(Ok(Message::of(&kept.len())))
        });
        let sending = sending.await;
        let (job, name) = (sending.jobs.join("1"), name_of(sending.stint, 0));
        let stayed = job.join(format!("{UNSAVED}{name}"));
        std::fs::rename(job.join(&name), &stayed).expect("renamed");
        sending.outputs.keep_unsent(&job);
        assert!(stayed.exists(), "it keeps its name");
        sending.outputs.send_new(&sending.peer, &sending.jobs, Duration::from_secs(1)).await;
        assert_eq!(copy.lock().expect("free").as_slice(), b"printed");
        assert!(!stayed.exists());
    }

    #[tokio::test]
    async fn an_output_comes_whole_over_connections_that_break() {
        let dir = tempfile::tempdir().expect("a folder");
        let stint = StintId { workload: WorkloadId(1), member: 0, epoch: 2 };
        let (jobs, copy) = (dir.path().join("jobs"), dir.path().join("copy"));
        std::fs::create_dir_all(jobs.join("1")).expect("made");
        let printed: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_be_bytes).collect();
        std::fs::write(jobs.join("1").join(name_of(stint, 0)), &printed).expect("written");
        let outputs = Outputs::default();
        for pieces in [2_usize, 3, 100] {
            let (one, two) = tokio::io::duplex(1 << 16);
            let (left, to) = (Arc::new(Mutex::new(pieces)), copy.clone());
            let answer = move |message: Message| {
                let (left, to) = (Arc::clone(&left), to.clone());
                async move {
                    let mut left = left.lock().expect("free");
                    *left = left.checked_sub(1).ok_or("gone")?;
                    let ToServer::Output { offset, .. } = message.read().expect("an output") else {
                        return Err("?".into());
                    };
                    Ok(Message::of(&keep(&to, offset, &message.body).expect("kept")))
                }
            };
            let (peer, working) = Peer::over(one, 8, |_| async { Err(String::new()) });
            let (_, serving) = Peer::over(two, 8, answer);
            let workers = [tokio::spawn(working), tokio::spawn(serving)];
            outputs.start_over();
            outputs.send_all_of(&peer, &jobs, |of| of == stint).await;
            workers.iter().for_each(tokio::task::JoinHandle::abort);
        }
        assert_eq!(std::fs::read(&copy).expect("there"), printed);
    }
}
