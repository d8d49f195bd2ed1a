//! The program itself: started, watched, warned, and ended with everything below it.

use super::files::save_request;
use super::gang::master_of;
use super::interface::interface_of_gang;
use super::state::{Asked, Moving, WorkerRun, could_not, never_ran};
use crate::checkpoint::MoverEvent;
use crate::guard::GROUP;
use crate::limits;
use crate::output::Output;
use crate::processes;
use crate::progress::Reader;
use crate::worker_processes::{MARK, Mark, ProgramProcesses, Starting};
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};
use windfall_core::WorkerEnd;
use windfall_core::worker::DEVICES;

/// Variables by which a program is kept to its devices. What a job was told by them is not for a job that it submits.
pub const OF_DEVICES: [&str; 2] = ["CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"];

/// On which interface the others of a gang reach a rank. NCCL is not told: it finds those that carry most by itself.
const GLOO: &str = "GLOO_SOCKET_IFNAME";

/// How often progress is read.
const READ: Duration = Duration::from_millis(200);
/// Once in so many reads, processes that lost their parent are looked at.
const LOOK_EVERY: u32 = 5;
/// A disk with less than this is full.
const FULL: u64 = 1 << 20;
/// How long the last processes of a program may take to end after the first.
const FOLLOW: Duration = Duration::from_secs(1);
/// What asks a program to end.
const TERM: i32 = Signal::TERM.as_raw();
/// How long it may take until all processes of a machine have heard of its end.
const ALL_HEAR: Duration = Duration::from_millis(500);

/// A program that was started.
pub(super) struct Program {
    child: Child,
    /// Its first process, which leads its process group.
    pub main: i32,
    processes: ProgramProcesses,
    /// Processes here that were killed for their memory before it started.
    killed_before: Option<u64>,
}

/// How a command ended that has nothing to save.
pub(super) struct CommandEnd {
    /// None where it died of a signal.
    pub code: Option<i32>,
    /// Nothing more could be written where it works, at its end or before.
    pub found_no_room: bool,
}

/// How the program's first process ended.
pub(super) struct ProgramEnd {
    pub end: WorkerEnd,
    /// Whether it was asked to stop, and by when.
    pub asked: Option<Asked>,
    /// It died of a signal, or says that a process below it did.
    pub died: bool,
    /// A process below it died of a signal while it ran: what that was writing may be torn for good.
    pub lost_one: bool,
}

/// Whether nothing more can be written in a folder.
fn is_full(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|disk| {
        disk.f_bavail.saturating_mul(disk.f_frsize) < FULL || (disk.f_files > 0 && disk.f_favail == 0)
    })
}

impl WorkerRun {
    /// Starts the program.
    pub(super) fn spawn(&self, cwd: &Path, saves: &Path, helper: &Path) -> Result<Program, WorkerEnd> {
        let restored = self.shown().and_then(|worker| worker.restored).is_some();
        let mut more = vec![
            ("WINDFALL_CHECKPOINT_DIR", saves.as_os_str().to_owned()),
            ("WINDFALL_RESUME", if restored { saves.as_os_str().to_owned() } else { OsString::new() }),
            ("WINDFALL_PROGRESS", helper.as_os_str().to_owned()),
            ("WINDFALL_SAVE_REQUEST", save_request(&self.dir, self.order.stint).into_os_string()),
        ];
        if let Some(marks) = self.marks() {
            more.push(("WINDFALL_SAVED", marks.join("saved").into_os_string()));
        }
        self.spawn_in(cwd, &self.order.command, more)
    }

    /// Starts a command in a folder, with what the order says of its environment and with more.
    pub(super) fn spawn_in(
        &self,
        cwd: &Path,
        words: &[String],
        more: Vec<(&str, OsString)>,
    ) -> Result<Program, WorkerEnd> {
        let order = &self.order;
        let open = std::fs::File::options().create(true).append(true).open(&order.output);
        let output =
            open.map_err(|error| could_not(format!("its output cannot be written to {}", order.output), &error))?;
        let errors = output.try_clone().map_err(|error| never_ran(error.to_string()))?;
        let lease = std::env::var("WINDFALL_LEASE").unwrap_or_default();
        let mark = Mark::new(&lease, order.stint, order.rank);
        let master = master_of(self);
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("windfall")
            .args(["agent", "exec", "--"])
            .args(words)
            .current_dir(cwd)
            .env_clear()
            .envs(of_slurm())
            .envs(of_image())
            .envs(&order.env);
        command
            .env("PWD", cwd)
            .env("WINDFALL_LEASE", lease)
            .env(MARK, mark.value())
            .env("WINDFALL_JOB", order.stint.workload.to_string())
            .env("WINDFALL_STINT", order.stint.epoch.to_string())
            .envs(more)
            .env("RANK", order.rank.to_string())
            .env("WORLD_SIZE", order.world_size.to_string())
            .env("LOCAL_RANK", "0")
            .env("LOCAL_WORLD_SIZE", "1")
            .env("MASTER_ADDR", &master.0)
            .env("MASTER_PORT", master.1.to_string());
        if let Some(visible) = visible(std::env::var(DEVICES).ok().as_deref(), order.devices.as_deref()) {
            command.env(OF_DEVICES[0], visible);
        }
        if let Some(interface) = interface_of_gang(order).filter(|_| !order.env.contains_key(GLOO)) {
            command.env(GLOO, interface);
        }
        if let Some((part, of)) = order.share {
            // Only where NVIDIA's MPS runs on the machine is the second one kept to; the program is told in any case.
            let percent = (100 * u64::from(part) / u64::from(of.max(1))).max(1);
            command.env("WINDFALL_ACCELERATOR_SHARE", format!("{part}/{of}"));
            command.env(OF_DEVICES[1], percent.to_string());
        }
        let starting = Starting::new(&self.lease, mark);
        // The order cannot name another one.
        command.env_remove(GROUP);
        if let Some(group) = starting.group() {
            command.env(GROUP, group);
        }
        command.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let cannot = |error: std::io::Error| never_ran(format!("the program cannot be started: {error}"));
        let killed_before = limits::kills();
        let child = command.spawn().map_err(cannot)?;
        let main = child.id().ok_or_else(|| never_ran("the program ended before it was watched"))? as i32;
        Ok(Program { child, main, processes: starting.started(main), killed_before })
    }

    /// Waits for the end of a command that has nothing to save and works in a folder. Fails when this worker is told to stop.
    pub(super) async fn finish(&mut self, program: &mut Program, folder: &Path) -> Result<CommandEnd, WorkerEnd> {
        // Whoever finds no room clears up before it ends: only meanwhile can it be seen.
        let mut found_no_room = false;
        let mut output = Output::new(Path::new(&self.order.output));
        let mut tick = tokio::time::interval(READ);
        let ended = loop {
            tokio::select! {
                status = program.child.wait() => break Ok(status.ok().and_then(|status| status.code())),
                Some(_) = self.told.recv() => break Err(WorkerEnd::Stopped),
                _ = tick.tick() => {
                    output.trim();
                    found_no_room |= is_full(folder);
                }
            }
        };
        if ended.is_err() {
            signal(Pid::from_raw(program.main), Signal::KILL);
        }
        program.processes.end().await;
        output.trim();
        ended.map(|code| CommandEnd { code, found_no_room: found_no_room || is_full(folder) })
    }

    /// Waits for the program's end and answers what comes meanwhile.
    pub(super) async fn watch(
        &mut self,
        program: &mut Program,
        reader: &mut Reader,
        mut moving: Option<&mut Moving>,
        began: Instant,
    ) -> ProgramEnd {
        let group = Pid::from_raw(program.main);
        let mut output = Output::new(Path::new(&self.order.output));
        let mut asked: Option<Asked> = None;
        let (mut killed, mut lost_one, mut ticks) = (false, false, 0_u32);
        let mut main = MainProcess::Unknown;
        let mut tick = tokio::time::interval(READ);
        loop {
            let kill_at = asked.filter(|_| !killed).map(|asked| asked.kill_at);
            tokio::select! {
                status = program.child.wait() => {
                    let (code, signal) = status.map_or((None, Some(9)), |status| (status.code(), status.signal()));
                    if asked.is_none() && (signal == Some(TERM) || code == Some(128 + TERM)) {
                        // Whoever ends a machine ends all processes of it like this: then this one ends as well, and the
                        // end of the program says nothing of the program.
                        tokio::time::sleep(ALL_HEAR).await;
                    }
                    let end = match (asked, code) {
                        (Some(asked), _) => {
                            let took = asked.at.elapsed().as_millis() as u64;
                            self.change(|worker| {
                                worker.evidence.ignored_sigterm = killed;
                                worker.evidence.stop_took_ms = (!killed).then_some(took);
                            });
                            WorkerEnd::Stopped
                        }
                        (None, Some(code)) => WorkerEnd::Exited { code },
                        (None, None) => WorkerEnd::Killed { signal: signal.unwrap_or(9) },
                    };
                    output.trim();
                    let end = limits::explained(end, program.killed_before);
                    let died = match (main, code) {
                        // It chose that code itself, as programs do that have heard a signal and saved.
                        (MainProcess::Alone, Some(_)) => false,
                        // A shell that was told to stop dies at once, and writes no checkpoints; those below it tell how they end.
                        (MainProcess::Shell, None) if asked.is_some() && signal == Some(TERM) => {
                            program.processes.left().running.is_empty()
                        }
                        (_, code) => code.is_none_or(tells_of_a_signal),
                    };
                    return ProgramEnd { end, asked, died, lost_one };
                }
                Some(tell) = self.told.recv() => {
                    if asked.is_none() {
                        main = MainProcess::of(program.main);
                        signal(group, Signal::TERM);
                    }
                    let told = Asked::by(tell);
                    asked = Some(asked.map_or(told, |asked| asked.and(told)));
                }
                () = sleep_until(kill_at), if kill_at.is_some() => {
                    killed = true;
                    signal(group, Signal::KILL);
                }
                Some(event) = next(&mut moving) => self.on_mover_event(event),
                _ = tick.tick() => {
                    self.report_progress(reader, began);
                    output.trim();
                    ticks += 1;
                    if asked.is_none() {
                        main = MainProcess::of(program.main);
                    }
                    if let Some(moving) = &moving {
                        self.report_habits(&moving.mover).await;
                        if ticks.is_multiple_of(LOOK_EVERY) && program.processes.reap() {
                            lost_one = true;
                            moving.mover.on_death(Instant::now()).await;
                        }
                    }
                }
            }
        }
    }

    /// The program's first process may be a shell that dies of the SIGTERM that the process below it saves
    /// on: whoever heard the signal has the whole notice. Whoever heard nothing has a moment to follow. True if
    /// one of them died of a signal.
    pub(super) async fn wait_for_the_rest(
        &self,
        program: &Program,
        asked: Option<Asked>,
        moving: Option<&Moving>,
    ) -> bool {
        let began = Instant::now();
        let gone_at = asked.and_then(|asked| asked.gone_at);
        let reserve = gone_at.map(|gone_at| for_the_upload(gone_at.saturating_duration_since(began)));
        let moment = began + reserve.map_or(FOLLOW, |reserve| FOLLOW.min(reserve));
        // Whoever heard the signal has until then.
        let last = asked.map(|asked| {
            let before_upload =
                gone_at.zip(reserve).map(|(gone_at, reserve)| gone_at.checked_sub(reserve).unwrap_or(gone_at));
            asked.kill_at.min(before_upload.unwrap_or(asked.kill_at))
        });
        let mut died = false;
        loop {
            let left = program.processes.left();
            if left.died {
                died = true;
                if let Some(moving) = moving {
                    moving.mover.on_death(Instant::now()).await;
                }
            }
            let is_in_group = |pid: &i32| processes::stat(*pid).is_some_and(|stat| stat.group == program.main);
            let heard = asked.is_some() && left.running.iter().any(is_in_group);
            let until = last.filter(|_| heard).unwrap_or(moment);
            if left.running.is_empty() || Instant::now() >= until {
                let more = began.elapsed().as_millis() as u64;
                self.change(|worker| {
                    worker.evidence.ignored_sigterm |= heard;
                    let took = worker.evidence.stop_took_ms.filter(|_| !heard);
                    worker.evidence.stop_took_ms = took.map(|took| took + more);
                });
                // The last one may have ended between the two looks.
                return program.processes.left().died || died;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills what the program left behind. True if that was writing a checkpoint.
    pub(super) async fn end_the_rest(&self, program: &Program, moving: Option<&Moving>) -> bool {
        let names = processes::names(&program.processes.left().running);
        let mut torn = false;
        if let (Some(moving), false) = (moving, names.is_empty())
            && moving.mover.habits().await.open_now
        {
            moving.mover.on_death(Instant::now()).await;
            torn = true;
        }
        let left_behind = program.processes.end().await;
        self.change(|worker| {
            worker.evidence.left_behind = left_behind;
            worker.evidence.left_names = names;
        });
        torn
    }
}

/// What the first process of a program is, as far as that says what its exit code means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MainProcess {
    /// It has begun no other.
    Alone,
    Shell,
    /// It has begun others, and may pass on how they ended.
    Unknown,
}

impl MainProcess {
    fn of(pid: i32) -> MainProcess {
        const SHELLS: [&str; 9] = ["sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"];
        let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) else { return MainProcess::Unknown };
        if SHELLS.contains(&name.trim_end()) {
            return MainProcess::Shell;
        }
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return MainProcess::Unknown };
        let begun = threads.map(|thread| std::fs::read_to_string(thread?.path().join("children")));
        let has_none = |begun: std::io::Result<String>| begun.is_ok_and(|begun| begun.trim().is_empty());
        if begun.into_iter().all(has_none) { MainProcess::Alone } else { MainProcess::Unknown }
    }
}

/// The part of a notice that belongs to the upload, however long the last processes take.
fn for_the_upload(notice: Duration) -> Duration {
    notice / 4
}

/// A shell whose command died of signal n exits with 128 + n.
fn tells_of_a_signal(code: i32) -> bool {
    (129..=128 + 64).contains(&code)
}

fn signal(group: Option<Pid>, signal: Signal) {
    if let Some(group) = group {
        // A group that is gone already has heard everything.
        let _ = kill_process_group(group, signal);
    }
}

/// What tells of the Slurm job that this agent runs in, so that a program's own `srun` and `mpirun` find it: where this agent is a
/// process of a step, as pilots are. What tells of that step is not for programs: they, and the frameworks that they use, would
/// take themselves for a task of it.
fn of_slurm() -> impl Iterator<Item = (OsString, OsString)> {
    let is_in_step = std::env::var_os("SLURM_STEP_ID").is_some();
    std::env::vars_os().filter(move |(name, _)| is_in_step && name.to_str().is_some_and(is_of_job))
}

/// What the image that this agent runs in says of its programs, where it is a container of a pod's: where its libraries are, for
/// example. What is said by us is said anew.
fn of_image() -> impl Iterator<Item = (OsString, OsString)> {
    let is_in_pod = std::env::var_os("WINDFALL_POD").is_some();
    std::env::vars_os().filter(move |(name, _)| is_in_pod && !name.as_encoded_bytes().starts_with(b"WINDFALL_"))
}

fn is_of_job(name: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "SLURM_CLUSTER_NAME",
        "SLURM_CONF",
        "SLURM_JOBID",
        "SLURM_NODELIST",
        "SLURM_TASKS_PER_NODE",
        "SLURMD_NODENAME",
    ];
    name.starts_with("SLURM_JOB_") || OTHERS.contains(&name)
}

/// What `CUDA_VISIBLE_DEVICES` says: of the accelerators that a lease has of its machine, those with these numbers. None
/// where the program may see all that is there; an empty text hides all of them.
fn visible(of_lease: Option<&str>, numbers: Option<&[u32]>) -> Option<String> {
    let of_lease: Option<Vec<&str>> = of_lease.map(|text| text.split(',').filter(|name| !name.is_empty()).collect());
    match (of_lease, numbers) {
        (None, None) => None,
        (None, Some(numbers)) => Some(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(",")),
        (Some(devices), None) => Some(devices.join(",")),
        (Some(devices), Some(numbers)) => {
            let named = numbers.iter().filter_map(|number| devices.get(*number as usize).copied());
            Some(named.collect::<Vec<_>>().join(","))
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}

async fn next(moving: &mut Option<&mut Moving>) -> Option<MoverEvent> {
    match moving {
        Some(moving) => moving.events.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::{MainProcess, for_the_upload, is_of_job, visible};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn what_chooses_its_exit_code_itself_is_told_from_what_passes_one_on() {
        let mut alone = Command::new("sleep").arg("60").spawn().expect("begun");
        let pid = |child: &std::process::Child| i32::try_from(child.id()).expect("a number");
        let begun = std::time::Instant::now();
        // Until it is what it will be it still is a copy of this process.
        while MainProcess::of(pid(&alone)) != MainProcess::Alone && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(MainProcess::of(pid(&alone)), MainProcess::Alone);
        assert_eq!(MainProcess::of(std::process::id() as i32), MainProcess::Unknown, "it has begun one");
        alone.kill().and_then(|()| alone.wait()).expect("ended");
        let mut shell = Command::new("sh").args(["-c", "sleep 60; true"]).spawn().expect("begun");
        while MainProcess::of(pid(&shell)) != MainProcess::Shell && begun.elapsed() < Duration::from_secs(40) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(MainProcess::of(pid(&shell)), MainProcess::Shell);
        shell.kill().and_then(|()| shell.wait()).expect("ended");
    }

    #[test]
    fn a_program_finds_its_slurm_job_and_takes_itself_for_no_task_of_it() {
        assert!(["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_NODELIST", "SLURM_CONF"].into_iter().all(is_of_job));
        let of_step = ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID", "SLURM_LOCALID", "SLURM_NNODES", "PATH"];
        assert!(!of_step.into_iter().any(is_of_job));
    }

    #[test]
    fn a_program_sees_the_accelerators_of_its_lease_and_of_those_its_own() {
        let shown = |of_lease, numbers: Option<&[u32]>| visible(of_lease, numbers);
        assert_eq!(shown(None, None), None);
        assert_eq!(shown(None, Some(&[0, 2])).as_deref(), Some("0,2"));
        assert_eq!(shown(Some("GPU-b,GPU-d"), None).as_deref(), Some("GPU-b,GPU-d"));
        assert_eq!(shown(Some("GPU-b,GPU-d"), Some(&[1])).as_deref(), Some("GPU-d"));
        assert_eq!(shown(Some("GPU-b"), Some(&[7])).as_deref(), Some(""), "one that it does not have");
        assert_eq!(shown(Some(""), None).as_deref(), Some(""));
    }

    #[test]
    fn the_last_processes_have_three_quarters_of_a_notice() {
        assert_eq!(for_the_upload(Duration::from_secs(120)), Duration::from_secs(30));
    }
}
