//! What Slurm's programs of this machine say, as the rules need it.

use super::submit::Handed;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use windfall_exec::{NoSurvey, SeenPartition, survey_slurm};
use windfall_insight::slurm::{Reading, fields, runtimes};
use windfall_jobfile::sbatch::{Facts, Partition, Past, Trial};

/// Whoever waits for an answer wants to submit a job.
const ANSWER: Duration = Duration::from_secs(20);
/// Days of earlier jobs that count.
const DAYS: u32 = 90;

fn user() -> String {
    windfall_server::name_of(rustix::process::getuid().as_raw())
}

/// The cluster.
pub async fn facts() -> Result<Facts, NoSurvey> {
    let user = user();
    let seen = tokio::time::timeout(ANSWER, survey_slurm(&user)).await;
    let seen = seen.map_err(|_| NoSurvey::Away("it does not answer".to_owned()))??;
    let partitions = seen.partitions.into_iter().map(partition).collect();
    Ok(Facts { version: seen.version, partitions, qos: seen.qos, ..Facts::default() })
}

fn partition(seen: SeenPartition) -> Partition {
    let seconds = |span: windfall_core::Span| span.0.unsigned_abs() / 1_000;
    Partition {
        name: seen.name,
        is_default: seen.is_default,
        is_restricted: seen.is_restricted,
        limit_s: seen.limit.map(seconds),
        default_s: seen.default.map(seconds),
        nodes: seen.nodes,
        cpus: seen.cpus,
        memory_mb: seen.memory_mb,
        gpus: seen.accelerators,
        least_gpus: seen.least_accelerators,
        grace_s: seen.grace_seconds,
        accounts: seen.accounts,
        qos: seen.qos,
    }
}

/// What a program prints, on either stream; none where it fails or does not answer.
async fn said(mut command: Command) -> Option<(String, String)> {
    command.env("SLURM_TIME_FORMAT", "standard").stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(ANSWER, command.output()).await.ok()?.ok()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    output.status.success().then(|| (text(&output.stdout), text(&output.stderr)))
}

/// How long the user's earlier jobs of this name took. A cluster without accounting knows of none.
pub async fn past(name: &str) -> Option<Past> {
    if name.is_empty() || name.contains(',') {
        return None;
    }
    let mut command = Command::new("sacct");
    command.args(["-X", "-P", "-u", &user(), &format!("--name={name}"), "-S", &format!("now-{DAYS}days")]);
    command.args(["-o", "JobID,State,Submit,Start,End,ElapsedRaw,TimelimitRaw"]);
    let (table, _) = said(command).await?;
    let mut reading = Reading::new();
    reading.take("sacct", table.as_bytes()).ok()?;
    reading.finish();
    let took = runtimes(&reading.jobs)?;
    Some(Past {
        jobs: took.jobs,
        longest_s: took.longest_s.into(),
        p95_s: took.p95_s.into(),
        timed_out: took.timed_out,
    })
}

/// When a job would begin as it is, and with each of these options.
pub async fn trials(handed: &Handed, options: Vec<(&'static str, String)>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for option in std::iter::once(None).chain(options.into_iter().map(Some)) {
        let mut command = Command::new("sbatch");
        command.arg("--test-only").args(handed.with(option.as_ref()));
        if let Some((_, said)) = said(command).await
            && let Some(wait_s) = wait(&said)
        {
            trials.push(Trial { option, wait_s });
        }
    }
    trials
}

/// Seconds until `Job 7 to start at 2026-11-18T20:00:00 using …`, by the clock that `sbatch` prints.
fn wait(said: &str) -> Option<u64> {
    let at = said.split("to start at ").nth(1)?.split_whitespace().next()?;
    let now = jiff::Zoned::now().datetime().strftime("%Y-%m-%dT%H:%M:%S").to_string();
    Some(fields::time(at)?.saturating_sub(fields::time(&now)?).into())
}
