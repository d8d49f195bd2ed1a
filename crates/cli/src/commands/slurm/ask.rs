//! What sacct and sshare of this machine answer.

use std::io::{BufReader, ErrorKind};
use std::process::{Command, Stdio};
use windfall_insight::slurm::{Reading, Shares, fields};
use windfall_server::client::{Code, Failure};

/// Every field that a report uses and that sacct has had since Slurm 20.11.
const FIELDS: &str = "JobID,JobName,User,Account,Partition,Cluster,State,Submit,Eligible,Start,End,ElapsedRaw,TimelimitRaw,\
    AllocCPUS,ReqCPUS,AllocNodes,AllocTRES,ReqTRES,ReqMem,MaxRSS,NTasks,TotalCPU,TRESUsageInAve,TRESUsageInTot";

/// Days that are asked for where nobody says since when.
const DAYS: i64 = 30;

/// Asks sacct for all jobs of a time, and says what was asked. Times are those of this machine's clock, as sacct prints
/// them. Returns since when.
pub fn sacct(
    reading: &mut Reading,
    since: Option<u32>,
    until: Option<u32>,
    notes: &mut Vec<String>,
) -> Result<u32, Failure> {
    let now = jiff::Zoned::now().datetime();
    let now = fields::time(&now.strftime("%Y-%m-%dT%H:%M:%S").to_string()).unwrap_or(u32::MAX);
    let since = since.unwrap_or_else(|| now.saturating_sub(DAYS as u32 * 86_400));
    let written = |at: u32| fields::date(at).replace(' ', "T");
    let mut command = Command::new("sacct");
    command.args(["-a", "-D", "-P", "-S", &written(since), "-E", &written(until.unwrap_or(now))]);
    command.args(["-o", FIELDS]).env("SLURM_TIME_FORMAT", "standard").stdin(Stdio::null()).stdout(Stdio::piped());
    notes.push(format!("asked of `sacct -a -D -P -S {}`", written(since)));
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Failure::new(Code::BadInput, "sacct is not on this machine, and no file is named")
            .hint("run it where Slurm is, or name a file that sacct printed there: `windfall slurm report --help` has the command"),
        _ => Failure::new(Code::BadInput, format!("sacct cannot be run: {error}")),
    })?;
    let read = child.stdout.take().map(|from| reading.take("sacct", BufReader::with_capacity(super::BLOCK, from)));
    let ended = child.wait().map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    // Without a code it was ended by our own end of the pipe: what was read says why.
    if ended.code().is_some_and(|code| code != 0) {
        return Err(Failure::new(Code::BadInput, format!("sacct failed: {ended}"))
            .hint("`sacct -a` says why; a cluster without accounting (slurmdbd) has no report"));
    }
    read.transpose().map_err(|error| super::failure(&error))?;
    Ok(since)
}

/// Asks sshare what accounts were granted; a report goes without.
pub fn sshare(notes: &mut Vec<String>) -> Option<Shares> {
    let asked = Command::new("sshare").args(["-a", "-P"]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let shares = asked.ok().filter(|answer| answer.status.success());
    let shares = shares.and_then(|answer| Shares::read(&String::from_utf8_lossy(&answer.stdout)));
    if shares.is_none() {
        notes.push("sshare gives no shares here: accounts are compared as if all had the same".to_owned());
    }
    shares
}
