//! Who a program on a GPU is: its name, whose it is, and which job's, as far as the kernel tells who asks.

use std::os::unix::fs::MetadataExt;
use windfall_exec::Program;
use windfall_insight::telemetry::TopProcess;

/// The variable by which a job's programs know their job.
const JOB: &[u8] = b"WINDFALL_JOB=";

pub fn told(gpu: &str, program: &Program) -> TopProcess {
    let folder = format!("/proc/{}", program.pid);
    let uid = std::fs::metadata(&folder).ok().map(|folder| folder.uid());
    TopProcess {
        gpu: gpu.to_owned(),
        pid: program.pid,
        name: command(&folder).unwrap_or_else(|| "(not seen from here)".to_owned()),
        user: uid.map_or("-".to_owned(), windfall_server::name_of),
        job: job(&folder),
        memory_bytes: program.memory_bytes,
        busy_percent: program.busy_percent,
    }
}

/// The program and its first argument, without folders: `python3 train.py`.
fn command(folder: &str) -> Option<String> {
    let line = std::fs::read(format!("{folder}/cmdline")).ok()?;
    let text = String::from_utf8_lossy(&line).into_owned();
    let mut words = text.split('\0').filter(|word| !word.is_empty());
    let last = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let program = last(words.next()?);
    let argument = words.find(|word| !word.starts_with('-')).map(|word| format!(" {}", last(word)));
    let said: String = format!("{program}{}", argument.unwrap_or_default());
    Some(said.chars().map(|letter| if letter.is_control() { '?' } else { letter }).take(60).collect())
}

fn job(folder: &str) -> Option<String> {
    let variables = std::fs::read(format!("{folder}/environ")).ok()?;
    let value = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(JOB))?;
    Some(String::from_utf8_lossy(value).into_owned()).filter(|job| !job.is_empty())
}
