//! One act: a fresh job of the user's program, interrupted as the script says, watched until it ends or until
//! enough was seen. An act notes what happened; what it means is judged elsewhere.

use super::cores;
use super::damage;
use super::saves::{Contents, SaveWatch, contents};
use super::stage::Stage;
use super::trap::Trap;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use windfall_core::record::WorkerEnd;
use windfall_core::view::State;
use windfall_core::worker::WorkerView;
use windfall_server::client::Failure;

/// How often the stage is looked at.
const LOOK: Duration = Duration::from_millis(40);
/// How often it is measured what a program uses of the processor.
const MEASURE: Duration = Duration::from_secs(1);
/// A process that is gone so soon after SIGTERM died of it.
const A_MOMENT: Duration = Duration::from_millis(700);
/// A program that does not start within this does not start.
const UNSTARTED: Duration = Duration::from_secs(300);

/// An interruption of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a notice of this length.
    Notice(Duration),
    /// Without a notice.
    Without,
    /// Without a notice, while the program saves.
    MidSave,
    /// Without a notice, after the program was asked to save (`windfall.should_save()`) and had time to.
    Asked,
    /// Without a notice, and the newest checkpoint turns out to be damaged.
    Damaged,
    /// Without a notice, and the newest checkpoint is a torn file that looks whole: what is left when a program is
    /// killed while it writes over its file.
    Torn,
}

/// When an interruption comes.
#[derive(Clone, Copy, Debug)]
pub struct Cue {
    /// Not before the stint has run this long,
    pub at_least: Duration,
    /// and has this many durable checkpoints of its own,
    pub durable: usize,
    /// and this long after a save,
    pub between: Option<(Duration, Duration)>,
    /// but by then in any case.
    pub at_most: Duration,
}

/// One stint of an act.
#[derive(Clone, Debug)]
pub struct Stint {
    pub epoch: u64,
    pub view: WorkerView,
    /// When its program was first seen to run, and last.
    pub started: Option<Instant>,
    pub started_at: SystemTime,
    pub ended: Option<Instant>,
    pub watch: SaveWatch,
    /// Files in its checkpoint directory when its program began.
    pub found: usize,
    /// When each of its checkpoints was seen to be durable.
    pub durable: Vec<Instant>,
    /// The first progress that was seen.
    pub first_done: Option<u64>,
    /// How long its output was, by age.
    pub output: Vec<(Duration, u64)>,
    pub log: PathBuf,
    pub saves_dir: PathBuf,
    pub folder: PathBuf,
    /// The interruption that ended it.
    pub cut: Option<(Cut, Instant)>,
    /// What lay in its checkpoint directory when it was over.
    pub left: Contents,
    /// What its program used of the machine, as far as was seen, and when that was.
    pub used: (cores::Used, Instant),
    /// What was seen of it after a notice.
    pub told: Option<Told>,
}

/// What the program's processes did with a SIGTERM.
#[derive(Clone, Debug)]
pub struct Told {
    /// One of them has a handler for it.
    pub handled: bool,
    /// The processes at the time of the notice.
    processes: Vec<u32>,
    /// Some of them were gone a moment later, while the first still ran.
    pub workers_gone: Option<usize>,
}

/// How an act ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The job ended by itself.
    Job(State, Option<i32>, String),
    /// Enough was seen.
    Enough,
    /// Its time was over.
    Late,
}

/// What happened in an act.
#[derive(Clone, Debug)]
pub struct Played {
    pub key: String,
    pub stints: Vec<Stint>,
    pub ended: Ended,
    /// How many of the script's interruptions took place.
    pub cuts: u32,
    /// A save was hit, or a checkpoint damaged, where the script asks for it.
    pub hit: bool,
}

impl Stint {
    /// How long its program ran until it ended or was interrupted.
    pub fn ran(&self) -> Duration {
        let end = self.cut.map(|(_, at)| at).or(self.ended).unwrap_or_else(Instant::now);
        self.started.map_or(Duration::ZERO, |started| end.saturating_duration_since(started))
    }

    pub fn age(&self, at: Instant) -> Duration {
        self.started.map_or(Duration::ZERO, |started| at.saturating_duration_since(started))
    }

    /// The longest time for which nobody looked at it while it ran, in seconds.
    pub fn longest_unseen(&self) -> f64 {
        let ages = || self.output.iter().map(|(age, _)| age.as_secs_f64());
        std::iter::once(0.0).chain(ages()).zip(ages()).map(|(from, to)| to - from).fold(0.0, f64::max)
    }

    /// Whether it still ran when its notice was over: by the agent's word, or by when it ended if the agent was gone first.
    pub fn outlasted_notice(&self) -> bool {
        let Some((Cut::Notice(notice), at)) = self.cut else { return false };
        let stayed = self.ended.is_some_and(|end| end.saturating_duration_since(at) > notice.mul_f64(0.7));
        self.view.evidence.ignored_sigterm || (self.view.evidence.stop_took_ms.is_none() && stayed)
    }

    /// A process of it has a handler for SIGTERM. What it saves after a notice without one is a save that was due.
    pub fn hears_notices(&self) -> bool {
        self.told.as_ref().is_some_and(|told| told.handled)
    }

    /// It was told to stop at this moment, and saved because of it.
    pub fn saved_after(&self, at: Instant) -> bool {
        self.hears_notices() && self.watch.saves.iter().any(|save| save.began > at)
    }

    /// The code of a program that ended by itself with one that is not 0.
    pub fn failed(&self) -> Option<i32> {
        match self.view.end {
            Some(WorkerEnd::Exited { code }) if code != 0 => Some(code),
            Some(ref end @ (WorkerEnd::Killed { .. } | WorkerEnd::OutOfMemory { .. })) if self.cut.is_none() => {
                Some(end.killed_code())
            }
            _ => None,
        }
    }
}

impl Played {
    pub fn succeeded(&self) -> bool {
        matches!(self.ended, Ended::Job(State::Succeeded, ..))
    }

    pub fn last(&self) -> Option<&Stint> {
        self.stints.last()
    }
}

/// Plays an act. `enough` ends it early, once every interruption of the script has been.
pub async fn play(
    stage: &Stage,
    script: &[(Cue, Cut)],
    limit: Duration,
    enough: impl Fn(&[Stint]) -> bool,
) -> Result<Played, Failure> {
    let (id, key) = stage.submit().await?;
    let mut act = Act { stage, id, key, stints: Vec::new(), cuts: 0, hit: false, trap: None, asked: false };
    let submitted = Instant::now();
    let mut script = script.iter();
    let mut next = script.next();
    let ended = loop {
        tokio::time::sleep(LOOK).await;
        act.look().await?;
        let answer = stage.job(id).await?;
        if answer.bill.is_some() {
            let why = match &answer.job.outcome {
                Some(windfall_core::record::Outcome::Failed { why, .. }) => why.clone(),
                _ => String::new(),
            };
            break Ended::Job(answer.job.state, answer.job.exit_code, why);
        }
        if let Some((cue, cut)) = next
            && act.perform(cue, *cut).await?
        {
            next = script.next();
        }
        if next.is_none() && enough(&act.stints) {
            break Ended::Enough;
        }
        // Its time runs while the program does, not while its folder is copied.
        let began = act.stints.first().and_then(|stint| stint.started);
        if began.map_or(submitted.elapsed() > UNSTARTED, |began| began.elapsed() > limit) {
            break Ended::Late;
        }
    };
    act.trap = None;
    if !matches!(ended, Ended::Job(..)) {
        stage.end(id).await?;
    }
    act.look().await?;
    act.close().await;
    let Act { key, stints, cuts, hit, .. } = act;
    Ok(Played { key, stints, ended, cuts, hit })
}

struct Act<'a> {
    stage: &'a Stage,
    id: u64,
    key: String,
    stints: Vec<Stint>,
    cuts: u32,
    hit: bool,
    trap: Option<Trap>,
    /// The program was asked to save.
    asked: bool,
}

/// Leaves a request to save where the agent would, and where the program looks for it.
fn ask_to_save(pid: u32) {
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut pairs = environ.split(|byte| *byte == 0).filter_map(|pair| std::str::from_utf8(pair).ok());
    if let Some(path) = pairs.find_map(|pair| pair.strip_prefix("WINDFALL_SAVE_REQUEST=")) {
        let beside = format!("{path}.rehearse");
        let _ = std::fs::write(&beside, "1000000").and_then(|()| std::fs::rename(&beside, path));
    }
}

impl Act<'_> {
    async fn look(&mut self) -> Result<(), Failure> {
        let views = self.stage.stints(self.id).await?;
        let now = Instant::now();
        let newest = views.keys().max().copied();
        for (epoch, view) in views {
            let known = self.stints.iter().position(|stint| stint.epoch == epoch);
            let at = known.unwrap_or_else(|| {
                self.stints.push(self.stint(view.clone()));
                self.stints.len() - 1
            });
            let stint = &mut self.stints[at];
            stint.take(view, now);
            if stint.ended.is_none() && (stint.view.end.is_some() || newest > Some(epoch)) {
                stint.ended = Some(now);
            }
            if newest == Some(epoch) && stint.started.is_some() {
                stint.watch.look(now);
                stint.look_at_processes(now);
                if stint.ended.is_none() {
                    let length = std::fs::metadata(&stint.log).map_or(0, |meta| meta.len());
                    stint.output.push((stint.age(now), length));
                }
            }
        }
        Ok(())
    }

    fn stint(&self, view: WorkerView) -> Stint {
        let epoch = view.stint.epoch;
        let saves_dir = self.stage.saves(&self.key, epoch);
        Stint {
            epoch,
            watch: SaveWatch::default(),
            found: 0,
            log: self.stage.log(&self.key, epoch),
            folder: self.stage.folder(&self.key, epoch),
            saves_dir,
            view,
            started: None,
            started_at: SystemTime::now(),
            ended: None,
            durable: Vec::new(),
            first_done: None,
            output: Vec::new(),
            cut: None,
            left: Contents::new(),
            used: (cores::Used::default(), Instant::now()),
            told: None,
        }
    }

    /// Interrupts when the time has come; true when this interruption is done with.
    async fn perform(&mut self, cue: &Cue, cut: Cut) -> Result<bool, Failure> {
        let (id, now) = (self.id, Instant::now());
        let Some(stint) = self.stints.last_mut() else { return Ok(false) };
        if stint.ended.is_some() || stint.cut.is_some() || stint.started.is_none() {
            return Ok(false);
        }
        let age = stint.age(now);
        let since = stint.watch.saves.last().map(|save| now.saturating_duration_since(save.ended));
        let between = cue.between.is_none_or(|(from, to)| since.is_some_and(|since| since >= from && since <= to));
        let ready = stint.durable.len() >= cue.durable && between;
        if cut == Cut::Asked
            && age >= cue.at_least
            && !self.asked
            && let Some(pid) = stint.view.pid
        {
            self.asked = true;
            ask_to_save(pid);
        }
        if age < cue.at_least || (age < cue.at_most && !ready) {
            return Ok(false);
        }
        match cut {
            Cut::MidSave => {
                if self.trap.is_none()
                    && let Some(pid) = stint.view.pid
                {
                    self.trap = Trap::set(&stint.saves_dir, pid);
                }
                if !self.trap.as_ref().is_some_and(Trap::is_sprung) {
                    return Ok(false);
                }
                self.hit = true;
            }
            Cut::Damaged => self.hit = damage::cut_short(&self.stage.store(&self.key)),
            Cut::Torn => self.hit = damage::tear(&self.stage.store(&self.key)),
            Cut::Asked => self.hit = !stint.watch.saves.is_empty(),
            Cut::Notice(_) | Cut::Without => {}
        }
        stint.cut = Some((cut, now));
        if let (Cut::Notice(_), Some(pid)) = (cut, stint.view.pid) {
            let processes = cores::of_group(pid);
            let handled = processes.iter().any(|pid| cores::catches_sigterm(*pid));
            stint.told = Some(Told { handled, processes, workers_gone: None });
        }
        self.cuts += 1;
        let notice = match cut {
            Cut::Notice(notice) => Some(notice),
            _ => None,
        };
        match self.stage.interrupt(id, notice).await {
            // It ended by itself at this very moment: there was nothing to interrupt.
            Err(_) if notice.is_none() => {
                self.cuts -= 1;
                if let Some(stint) = self.stints.last_mut() {
                    stint.cut = None;
                }
            }
            other => other?,
        }
        self.trap = None;
        Ok(true)
    }

    async fn close(&mut self) {
        let now = Instant::now();
        for stint in &mut self.stints {
            stint.ended.get_or_insert(now);
            let folder = stint.saves_dir.clone();
            // Large files take a while to read, and other acts go on meanwhile.
            stint.left = tokio::task::spawn_blocking(move || contents(&folder)).await.unwrap_or_default();
        }
    }
}

impl Stint {
    fn look_at_processes(&mut self, now: Instant) {
        let Some(pid) = self.view.pid.filter(|_| self.ended.is_none()) else { return };
        if self.cut.is_none() && now - self.used.1 > MEASURE {
            self.used = (cores::used_by_group(pid).most(self.used.0), now);
        }
        let late = self.cut.is_some_and(|(_, at)| now - at > A_MOMENT);
        if let Some(told) = self.told.as_mut().filter(|told| late && told.workers_gone.is_none()) {
            let left = cores::of_group(pid);
            let gone = told.processes.iter().filter(|pid| !left.contains(pid)).count();
            told.workers_gone = Some(if left.contains(&pid) { gone } else { 0 });
        }
    }

    /// Takes a newer view over. One that was read from disk after a sudden end may be older than the last look.
    fn take(&mut self, view: WorkerView, now: Instant) {
        if view.pid.is_some() && self.started.is_none() {
            self.started = Some(now);
            self.started_at = SystemTime::now();
            self.watch = SaveWatch::new(self.saves_dir.clone());
            // A program that has begun to save by now had found nothing; one that resumes reads first.
            self.found = if view.restored.is_some() { self.watch.files() } else { 0 };
        }
        if let Some(done) = view.done {
            self.first_done.get_or_insert(done);
        }
        let own = |view: &WorkerView| view.durable.filter(|name| name.epoch == self.epoch).map_or(0, |name| name.seq);
        if own(&view) > own(&self.view) && self.ended.is_none() {
            self.durable.push(now);
        }
        let older = view.end.is_none()
            && (view.done < self.view.done
                || view.evidence.saves < self.view.evidence.saves
                || view.pid < self.view.pid);
        if !older {
            self.view = view;
        }
    }
}
