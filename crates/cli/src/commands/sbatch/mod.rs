//! `windfall sbatch`: a batch script is submitted to the Slurm cluster of this machine as `sbatch` would, with what its writer
//! got wrong put right. What is put right is decided in `windfall_jobfile::sbatch`; here Slurm is asked, the changes are shown,
//! and the script is handed to `sbatch`.

mod ask;
mod submit;

use crate::args::SbatchArgs;
use crate::here::Here;
use std::io::Read as _;
use std::path::Path;
use submit::{Handed, Source};
use windfall_core::english::counted;
use windfall_exec::NoSurvey;
use windfall_jobfile::sbatch::{self, BatchJob, Change, CommandLine};
use windfall_server::client::{Code, Failure};

/// Flags of ours; the rest is for `sbatch`.
#[derive(Clone, Copy)]
struct Flags {
    dry_run: bool,
    as_is: bool,
    json: bool,
}

/// Submits a script, and ends as `sbatch` does.
pub async fn sbatch(here: &Here, args: SbatchArgs) -> Result<Code, Failure> {
    let mut flags = Flags { dry_run: args.dry_run, as_is: args.as_is, json: here.json };
    let mut words = args.words;
    let line = own_flags(&mut words, &mut flags);
    let asks = |name: &str| line.given.iter().any(|given| given.option.name == name);
    let is_plain = line.unclear.is_some() || ["wrap", "help", "usage", "version"].iter().any(|name| asks(name));
    let script = if is_plain { None } else { source(words.get(line.options).map(String::as_str)) };
    let Some(source) = script else {
        // Without a script that can be read there is nothing to change; what is wrong with it sbatch says.
        if flags.dry_run {
            return Err(Failure::new(Code::BadInput, "there is no script that can be read").hint("name the script"));
        }
        return submit::end(Handed::verbatim(&words), flags.json, &[], "");
    };
    let mut chosen = sbatch::of_environment(|name| std::env::var(name).ok());
    chosen.extend(line.given);
    let job = BatchJob::of(&source.text, chosen);
    let changes = if flags.as_is { Vec::new() } else { amended(&job, &words, line.options, &source).await? };
    let diff = job.diff(&changes, &source.name);
    if !changes.is_empty() {
        show(&source.name, &changes, &diff, flags);
    }
    if flags.dry_run {
        if flags.json {
            println!("{}", submit::record(&changes, &diff, None));
        } else if changes.is_empty() {
            eprintln!("note: nothing of {} would be changed", source.name);
        }
        return Ok(Code::Done);
    }
    let handed = if changes.is_empty() {
        Handed::unchanged(&words, &source)
    } else {
        Handed::changed(&words, line.options, &source, &job.changed(&changes))?
    };
    submit::end(handed, flags.json, &changes, &diff)
}

/// Takes our flags out of the options, wherever they stand among them.
fn own_flags(words: &mut Vec<String>, flags: &mut Flags) -> CommandLine {
    let options = sbatch::command_line(words).options;
    let mut at = 0;
    words.retain(|word| {
        at += 1;
        let flag = match word.as_str() {
            _ if at > options => return true,
            "--dry-run" => &mut flags.dry_run,
            "--as-is" => &mut flags.as_is,
            "--json" => &mut flags.json,
            _ => return true,
        };
        *flag = true;
        false
    });
    sbatch::command_line(words)
}

/// The script: a file, or what comes over standard input. None where it cannot be read as text.
fn source(path: Option<&str>) -> Option<Source> {
    let Some(path) = path else {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).ok()?;
        return Some(Source { name: "stdin".to_owned(), path: None, text });
    };
    let text = std::fs::read_to_string(path).ok()?;
    let name = Path::new(path).file_name()?.to_string_lossy().into_owned();
    Some(Source { name, path: Some(path.to_owned()), text })
}

/// What is put right, after Slurm was asked.
async fn amended(
    job: &BatchJob<'_>,
    words: &[String],
    options: usize,
    source: &Source,
) -> Result<Vec<Change>, Failure> {
    if let Some(why) = job.untouched() {
        eprintln!("note: {}: {why}", source.name);
        return Ok(Vec::new());
    }
    let mut facts = match ask::facts().await {
        Ok(facts) => facts,
        Err(NoSurvey::NoSlurm) => return Err(submit::no_slurm()),
        Err(NoSurvey::Away(why)) => {
            eprintln!("note: nothing is changed, because Slurm does not say what there is: {why}");
            return Ok(Vec::new());
        }
    };
    let name = job.counts("job-name").map_or(source.name.as_str(), |given| given.value());
    facts.past = ask::past(name).await;
    let worth = job.worth_a_trial(&facts);
    if !worth.is_empty() {
        let handed = Handed::changed(words, options, source, &job.changed(&job.changes(&facts)))?;
        facts.trials = ask::trials(&handed, worth).await;
    }
    Ok(job.changes(&facts))
}

/// What is changed, why, and how the script differs.
fn show(name: &str, changes: &[Change], diff: &str, flags: Flags) {
    let count = counted(changes.len() as u64, "change");
    let name: String = name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match flags.dry_run {
        true => eprintln!("{name} would be submitted with {count}:"),
        false => eprintln!("{name} is submitted with {count}; the file stays as it is (--as-is changes nothing):"),
    }
    for change in changes {
        eprintln!("  {}\n    {}", change.says(), change.reason);
    }
    eprint!("{diff}");
}
