//! Slurm's own programs: what they are asked, and what they answer. They find the cluster by their usual configuration, and are
//! asked by whoever runs the server, of all users' jobs.

use std::collections::BTreeMap;
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use windfall_core::{LeaseEnd, Refusal, Span, Time};

/// A controller that does not answer for so long is away; its own programs give up later.
const ANSWER: Duration = Duration::from_secs(60);
/// Accounts are not waited for as long: what they know is good to know, and nothing waits for it for ever.
const ACCOUNTS_ANSWER: Duration = Duration::from_secs(10);
/// Names of jobs that are asked for at once: a command line has an end.
const AT_ONCE: usize = 200;

/// Why one of Slurm's programs did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum SlurmError {
    #[error("{program} cannot be run: {source}")]
    NoProgram { program: &'static str, source: std::io::Error },
    #[error("{program} does not answer")]
    Silent { program: &'static str },
    #[error("{program}: {said}")]
    Failed { program: &'static str, said: String },
}

/// Nodes of a partition that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub partition: String,
    /// As Slurm calls it; empty where nodes have none.
    pub accelerator: String,
    pub accelerators: u32,
    pub cpus: u32,
    pub memory_mb: u64,
    /// Those that take work, or will when they are free.
    pub nodes: u32,
    /// The longest that a job may run.
    pub limit: Option<Span>,
}

/// Where a job of Slurm's stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub id: String,
    pub name: String,
    pub user: String,
    pub state: JobState,
    pub submitted: Option<Time>,
    pub started: Option<Time>,
    /// When it ended, or will.
    pub ends: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JobState {
    Waits,
    Runs,
    /// Its processes are being ended.
    Ends,
    /// It is over, and why.
    Over(LeaseEnd),
    /// It is over for Slurm, which hears nothing of a machine of it any more: what ran there may still run.
    NodeLost,
}

impl JobState {
    fn of(word: &str) -> JobState {
        // An operator's name may follow.
        match word.split([' ', '+']).next().unwrap_or_default() {
            "PENDING" | "CONFIGURING" | "REQUEUED" | "REQUEUE_HOLD" | "REQUEUE_FED" | "SPECIAL_EXIT"
            | "RESV_DEL_HOLD" => JobState::Waits,
            "RUNNING" | "SUSPENDED" | "STOPPED" | "RESIZING" | "SIGNALING" | "STAGE_OUT" => JobState::Runs,
            "COMPLETING" => JobState::Ends,
            // Another job has taken its place.
            "PREEMPTED" => JobState::Over(LeaseEnd::Taken),
            "TIMEOUT" | "DEADLINE" => JobState::Over(LeaseEnd::Expired),
            "CANCELLED" | "REVOKED" => JobState::Over(LeaseEnd::Revoked),
            "NODE_FAIL" => JobState::NodeLost,
            _ => JobState::Over(LeaseEnd::Lost),
        }
    }

    pub fn is_over(self) -> bool {
        matches!(self, JobState::Over(_) | JobState::NodeLost)
    }
}

/// What a program of Slurm's prints.
async fn run(program: &'static str, args: &[String], said: Option<&str>) -> Result<String, SlurmError> {
    let output = ask(program, args, said, ANSWER).await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn ask(
    program: &'static str,
    args: &[String],
    said: Option<&str>,
    within: Duration,
) -> Result<Output, SlurmError> {
    let mut command = Command::new(program);
    command.args(args).env("SLURM_TIME_FORMAT", "%s").kill_on_drop(true);
    let stdin = if said.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|source| SlurmError::NoProgram { program, source })?;
    let input = child.stdin.take().zip(said);
    let talk = async {
        if let Some((mut stdin, text)) = input {
            // One that reads nothing says why.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(within, talk).await.map_err(|_| SlurmError::Silent { program })?;
    let output = output.map_err(|source| SlurmError::NoProgram { program, source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        return Err(SlurmError::Failed { program, said });
    }
    Ok(output)
}

fn words<const N: usize>(args: [&str; N]) -> Vec<String> {
    args.map(str::to_owned).to_vec()
}

/// The kinds of nodes of every partition that can be used.
pub(super) async fn kinds() -> Result<Vec<Kind>, SlurmError> {
    let said = run("sinfo", &words(["-h", "-e", "-a", "-o", "%R|%G|%c|%m|%D|%t|%l|%a"]), None).await?;
    Ok(kinds_of(&said))
}

fn kinds_of(said: &str) -> Vec<Kind> {
    let mut kinds: BTreeMap<(String, String, u32, u32, u64), Kind> = BTreeMap::new();
    for line in said.lines() {
        let [partition, gres, cpus, memory, nodes, state, limit, available] =
            line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            continue;
        };
        let (accelerator, accelerators) = gpus(gres);
        let number = |text: &str| text.trim_end_matches('+').parse::<u64>().unwrap_or(0);
        let found = Kind {
            partition: partition.to_owned(),
            accelerator,
            accelerators,
            cpus: number(cpus) as u32,
            memory_mb: number(memory),
            nodes: if available == "up" && takes_work(state) { number(nodes) as u32 } else { 0 },
            limit: span(limit),
        };
        let key = (found.partition.clone(), found.accelerator.clone(), accelerators, found.cpus, found.memory_mb);
        kinds.entry(key).and_modify(|known| known.nodes += found.nodes).or_insert(found);
    }
    kinds.into_values().collect()
}

/// Whether nodes in a state, as `sinfo` shortens it, take work now or when they are free.
fn takes_work(state: &str) -> bool {
    let does_not_answer = state.ends_with('*');
    let word = state.trim_end_matches(['*', '~', '#', '!', '%', '$', '@', '^', '-']);
    !does_not_answer && matches!(word, "idle" | "mix" | "alloc" | "comp" | "plnd" | "resv")
}

/// The accelerators among the resources of a node: the kind that it has most of.
fn gpus(gres: &str) -> (String, u32) {
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    let mut depth = 0;
    // What stands in brackets says where a device is, and has commas of its own.
    let outside: String = gres
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(') - i32::from(*letter == ')');
            depth == 0 && *letter != ')'
        })
        .collect();
    for part in outside.split(',') {
        let fields: Vec<&str> = part.split(':').collect();
        let (name, count) = match fields[..] {
            ["gpu", count] => ("gpu", count),
            ["gpu", name, count] => (name, count),
            _ => continue,
        };
        *found.entry(name.to_owned()).or_default() += count.parse::<u32>().unwrap_or(0);
    }
    found.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default()
}

/// A time limit: minutes, `[days-]hours:minutes:seconds`, or none.
pub(super) fn span(text: &str) -> Option<Span> {
    let (days, rest) = text.split_once('-').unwrap_or(("0", text));
    let days: i64 = days.parse().ok()?;
    let parts: Vec<i64> = rest.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [minutes] => minutes * 60,
        [minutes, seconds] => minutes * 60 + seconds,
        [hours, minutes, seconds] => hours * 3_600 + minutes * 60 + seconds,
        _ => return None,
    };
    Some(Span::seconds(days * 86_400 + seconds))
}

/// The jobs of these names that the controller still knows, whoever they are of.
pub(super) async fn jobs(names: &[String]) -> Result<Vec<Job>, SlurmError> {
    let mut found = Vec::new();
    for names in names.chunks(AT_ONCE) {
        let args = words(["-h", "-a", "-t", "all", "-o", FIELDS, "-n"]);
        let args: Vec<String> = args.into_iter().chain([names.join(",")]).collect();
        found.extend(jobs_of(&run("squeue", &args, None).await?));
    }
    Ok(found)
}

/// Every job that can be seen whose name begins so, whoever it is of.
pub(super) async fn jobs_that_begin(with: &str) -> Result<Vec<Job>, SlurmError> {
    let said = run("squeue", &words(["-h", "-a", "-t", "all", "-o", FIELDS]), None).await?;
    Ok(jobs_of(&said).into_iter().filter(|job| job.name.starts_with(with)).collect())
}

const FIELDS: &str = "%i|%j|%u|%T|%V|%S|%e";

/// What the accounts say of jobs of these names, whoever they are of. Where nothing is accounted, that is an error.
pub(super) async fn past(names: &[String]) -> Result<Vec<Job>, SlurmError> {
    let mut found = Vec::new();
    for names in names.chunks(AT_ONCE) {
        let args = words(["-n", "-X", "-P", "-a", "-S", "now-30days", "-o", PAST_FIELDS, "--name"]);
        let args: Vec<String> = args.into_iter().chain([names.join(",")]).collect();
        let said = ask("sacct", &args, None, ACCOUNTS_ANSWER).await?;
        found.extend(jobs_of(&String::from_utf8_lossy(&said.stdout)));
    }
    Ok(found)
}

const PAST_FIELDS: &str = "JobID,JobName,User,State,Submit,Start,End";

/// Of several jobs of a name the one that lives, or the last one. Anybody may call a job so: only those of these users count.
pub(super) fn latest<'a>(jobs: &'a [Job], name: &str, users: &[&str]) -> Option<&'a Job> {
    let number = |job: &Job| job.id.parse::<u64>().unwrap_or(0);
    let is_ours = |job: &&Job| job.name == name && users.contains(&job.user.as_str());
    jobs.iter().filter(is_ours).max_by_key(|job| (!job.state.is_over(), number(job)))
}

fn jobs_of(said: &str) -> Vec<Job> {
    let job = |line: &str| {
        let [id, name, user, state, submitted, started, ends] = line.split('|').collect::<Vec<_>>()[..] else {
            return None;
        };
        let time = |text: &str| text.parse::<i64>().ok().map(|seconds| Time(seconds.saturating_mul(1_000)));
        Some(Job {
            id: id.to_owned(),
            name: name.to_owned(),
            user: user.to_owned(),
            state: JobState::of(state),
            submitted: time(submitted),
            started: time(started),
            ends: time(ends),
        })
    };
    said.lines().filter_map(job).collect()
}

/// Submits a batch script, and gives the job's number.
pub(super) async fn submit(options: &[String], script: &str) -> Result<String, SlurmError> {
    let args: Vec<String> = ["--parsable".to_owned()].iter().chain(options).cloned().collect();
    let said = run("sbatch", &args, Some(script)).await?;
    // With several clusters their name follows.
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    let none = || SlurmError::Failed { program: "sbatch", said: format!("no job number: {}", said.trim()) };
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) { Err(none()) } else { Ok(id) }
}

/// What Slurm says of a script with these options that is not submitted: when and where it would begin.
pub(super) async fn tested(options: &[String]) -> Result<String, SlurmError> {
    let args: Vec<String> = ["--test-only".to_owned()].iter().chain(options).cloned().collect();
    let output = ask("sbatch", &args, Some("#!/bin/sh\n"), ANSWER).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.lines().rfind(|line| line.contains("to start at")).unwrap_or("it would be accepted");
    Ok(line.trim_start_matches("sbatch: ").to_owned())
}

/// The version of a program, as it says it.
pub(super) async fn version(program: &'static str) -> Result<String, SlurmError> {
    run(program, &words(["--version"]), None).await.map(|said| said.trim().to_owned())
}

/// The accounts of a user, each with its qualities of service: none where nothing is accounted.
pub(super) async fn associations(user: &str) -> Result<Vec<[String; 2]>, SlurmError> {
    let said = accounted("assoc", "Account,QOS", Some(user)).await?;
    let fields = |line: &str| line.split_once('|').map(|(account, qos)| [account.to_owned(), qos.to_owned()]);
    Ok(said.lines().filter_map(fields).collect())
}

/// What the accounts say of all of a kind, or of those of a user: these fields, one line each.
pub(super) async fn accounted(kind: &str, fields: &str, user: Option<&str>) -> Result<String, SlurmError> {
    let mut args = words(["-n", "-P", "show", kind]);
    args.push(format!("format={fields}"));
    args.extend(user.map(|user| format!("user={user}")));
    let said = ask("sacctmgr", &args, None, ACCOUNTS_ANSWER).await?;
    Ok(String::from_utf8_lossy(&said.stdout).into_owned())
}

/// What the controller says of every partition, one a line.
pub(super) async fn partitions() -> Result<String, SlurmError> {
    run("scontrol", &words(["show", "partition", "-a", "-o"]), None).await
}

/// How jobs of a partition are ended for others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    pub name: String,
    pub is_preempted: bool,
    pub grace_seconds: u64,
}

pub(super) async fn partition(name: &str) -> Result<Partition, SlurmError> {
    let said = run("scontrol", &words(["show", "partition", name, "-o"]), None).await?;
    Ok(partition_in(name, &said))
}

fn partition_in(name: &str, said: &str) -> Partition {
    let of = |key: &str| said.split_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    Partition {
        name: name.to_owned(),
        is_preempted: of("PreemptMode").is_some_and(|mode| !matches!(mode, "OFF" | "GANG")),
        grace_seconds: of("GraceTime").and_then(|text| text.parse().ok()).unwrap_or(0),
    }
}

pub(super) async fn cancel(id: &str) -> Result<(), SlurmError> {
    match run("scancel", &words([id]), None).await {
        // It is over.
        Err(SlurmError::Failed { said, .. }) if said.contains("Invalid job id") => Ok(()),
        other => other.map(|_| ()),
    }
}

/// Lets a job run for so many minutes in all.
pub(super) async fn limit(id: &str, minutes: i64) -> Result<(), SlurmError> {
    let (job, limit) = (format!("JobId={id}"), format!("TimeLimit={minutes}"));
    run("scontrol", &words(["update", &job, &limit]), None).await.map(drop)
}

impl SlurmError {
    /// What a refusal of `sbatch` means; none where it may pass.
    pub fn refusal(&self) -> Option<Refusal> {
        let SlurmError::Failed { said, .. } = self else { return None };
        let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
        match () {
            () if has(&["Invalid account", "Access/permission denied", "not permitted", "Invalid user"]) => {
                Some(Refusal::Auth)
            }
            () if has(&["QOS", "limit", "Job violates accounting"]) => Some(Refusal::Quota),
            () if has(&["Requested node configuration is not available", "partition", "gres", "Invalid"]) => {
                Some(Refusal::Invalid)
            }
            () => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_are_alike_are_one_kind_and_those_that_take_nothing_are_not_counted() {
        let said = "gpu|gpu:h100:8(S:0-1)|16|64000|3|idle|infinite|up\n\
                    gpu|gpu:h100:8(S:0-1)|16|64000|2|mix|infinite|up\n\
                    gpu|gpu:h100:8(S:0-1)|16|64000|1|drain|infinite|up\n\
                    gpu|gpu:h100:8(S:0-1)|16|64000|1|down*|infinite|up\n\
                    cpu|(null)|64+|256000+|10|idle|2-12:30:00|up\n\
                    old|gpu:2|8|1000|4|idle|30:00|inact\n\
                    nonsense\n";
        let kinds = kinds_of(said);
        let short: Vec<_> =
            kinds.iter().map(|kind| (&*kind.partition, &*kind.accelerator, kind.accelerators, kind.nodes)).collect();
        assert_eq!(short, [("cpu", "", 0, 10), ("gpu", "h100", 8, 5), ("old", "gpu", 2, 0)]);
        let limits: Vec<_> = kinds.iter().map(|kind| kind.limit).collect();
        assert_eq!(limits, [Some(Span::seconds(2 * 86_400 + 12 * 3_600 + 1_800)), None, Some(Span::seconds(1_800))]);
    }

    #[test]
    fn the_accelerators_of_a_node_are_read_from_its_resources() {
        for (gres, found) in [
            ("(null)", ("", 0)),
            ("gpu:8", ("gpu", 8)),
            ("gpu:a100:4(S:0,1),shard:a100:32", ("a100", 4)),
            ("gpu:1g.10gb:14,gpu:h100:1", ("1g.10gb", 14)),
            ("gpu:h100:2(IDX:0-1),gpu:h100:2(IDX:2-3)", ("h100", 4)),
        ] {
            let (name, count) = gpus(gres);
            assert_eq!((name.as_str(), count), found, "{gres}");
        }
    }

    #[test]
    fn states_and_times_of_jobs_are_read() {
        let said = "7|windfall-a|ada|RUNNING|1794994881|1794994883|1794995483\n\
                    8_[1-3]|windfall-b|ada|PENDING|1794994881|N/A|N/A\n\
                    9|windfall-c|bob|CANCELLED by 1000|1794994881|1794994883|1794994886\n\
                    10|windfall-d|ada|PREEMPTED|1|2|3\n\
                    11|windfall-e|ada|TIMEOUT|1|2|3\n\
                    12|windfall-f|ada|NODE_FAIL|1|2|3\n\
                    broken line\n";
        let jobs = jobs_of(said);
        let states: Vec<JobState> = jobs.iter().map(|job| job.state).collect();
        let [revoked, taken, expired] = [LeaseEnd::Revoked, LeaseEnd::Taken, LeaseEnd::Expired].map(JobState::Over);
        let over = [revoked, taken, expired, JobState::NodeLost];
        assert_eq!(states[..2], [JobState::Runs, JobState::Waits]);
        assert_eq!(states[2..], over);
        assert_eq!((jobs[1].started, jobs[2].ends), (None, Some(Time(1_794_994_886_000))));
        let found = |users: &[&str]| latest(&jobs, "windfall-c", users).map(|job| job.id.as_str());
        assert_eq!((found(&["root", "bob"]), found(&["root", "ada"])), (Some("9"), None), "a name is nobody's");
    }

    #[test]
    fn how_a_partition_is_preempted_is_read() {
        let said = "PartitionName=gpu AllowGroups=ALL GraceTime=30 Hidden=NO PreemptMode=CANCEL PriorityTier=1\n";
        let read = |said: &str| {
            let Partition { is_preempted, grace_seconds, .. } = partition_in("gpu", said);
            (is_preempted, grace_seconds)
        };
        assert_eq!(read(said), (true, 30));
        assert_eq!(read("PartitionName=gpu GraceTime=0 PreemptMode=OFF"), (false, 0));
    }

    #[test]
    fn a_refusal_is_told_from_a_controller_that_is_away() {
        let of = |said: &str| SlurmError::Failed { program: "sbatch", said: said.to_owned() }.refusal();
        let error = |text: &str| format!("sbatch: error: Batch job submission failed: {text}");
        assert_eq!(of(&error("Invalid account or account/partition combination specified")), Some(Refusal::Auth));
        assert_eq!(of(&error("Requested node configuration is not available")), Some(Refusal::Invalid));
        assert_eq!(
            of(&error("Job violates accounting/QOS policy (job submit limit, user's size)")),
            Some(Refusal::Quota)
        );
        assert_eq!(of(&error("Unable to contact slurm controller (connect failure)")), None);
        assert_eq!(SlurmError::Silent { program: "sbatch" }.refusal(), None);
    }
}
