//! What of a job travels, at the terminal's end: secrets and the folder on their way out, and what comes back.

use super::jobs::ask_about;
use crate::args::GetArgs;
use crate::here::Here;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;
use windfall_agent::{NotSent, discard_folders, fetch_outputs, folder_key, has_parcel, send_folder};
use windfall_core::english::size;
use windfall_core::spec::{JobSpec, SecretFrom};
use windfall_core::{CheckpointId, Told};
use windfall_jobfile::{Read, Secret};
use windfall_server::api_types::{JobAnswer, OutputsAt};
use windfall_server::client::{Client, Code, Failure};

/// A secret that is longer is not one.
const LONGEST_SECRET: u64 = 64 << 10;
/// From here on it is said how much was sent: the user may have meant to leave something out.
const MUCH: u64 = 100_000_000;
/// How often it is looked whether a job has settled.
const LOOK: Duration = Duration::from_millis(200);
/// So many of what could not be sent are named.
const NAMED: usize = 5;

/// Finds the values of a job's secrets, and puts them beside the terminal's environment. Nothing has been sent yet.
pub fn find_secrets(read: &Read, env: &mut BTreeMap<String, String>) -> Result<(), Failure> {
    for (name, secret) in &read.secrets {
        match secret {
            Secret::Server => {}
            Secret::Terminal if env.contains_key(name) => {}
            Secret::Terminal => return Err(not_set(name)),
            Secret::File(path) => {
                env.insert(name.clone(), in_file(name, path)?);
            }
        }
    }
    Ok(())
}

/// The secrets of a job that is submitted once more without its file: their values are in the terminal, or nowhere.
pub fn check_secrets(spec: &JobSpec, env: &BTreeMap<String, String>) -> Result<(), Failure> {
    let submitted = spec.run.luggage().secrets.iter().filter(|(_, from)| **from == SecretFrom::Submission);
    match submitted.into_iter().find(|(name, _)| !env.contains_key(*name)) {
        Some((name, _)) => {
            Err(not_set(name).hint(format!("export {name}=…, or name the job file too: windfall resume JOB FILE")))
        }
        None => Ok(()),
    }
}

fn not_set(name: &str) -> Failure {
    Failure::new(Code::BadInput, format!("secrets: {name} is not set in this terminal"))
        .hint(format!("export {name}=…, or name a file with `{name}: file:PATH` in the job file"))
}

/// What a file holds, without the end of its last line.
fn in_file(name: &str, path: &Path) -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::new(Code::BadInput, format!("secrets: {name}: {}: {why}", path.display()))
            .hint("name a file of text that holds the value and nothing else")
    };
    let about = std::fs::metadata(path).map_err(|error| wrong(&error.to_string()))?;
    if !about.is_file() {
        return Err(wrong("this is not a file"));
    }
    if about.len() > LONGEST_SECRET {
        return Err(wrong("this is too long for a secret"));
    }
    let text = std::fs::read(path).map_err(|error| wrong(&error.to_string()))?;
    let text = String::from_utf8(text).map_err(|_| wrong("this is not text"))?;
    let value = text.strip_suffix('\n').unwrap_or(&text);
    let value = value.strip_suffix('\r').unwrap_or(value);
    if value.is_empty() || value.contains('\0') {
        return Err(wrong("this holds no secret"));
    }
    Ok(value.to_owned())
}

/// Sends the folder of a job to the store of its checkpoints, where its machines find it; tells what the user should know.
pub async fn send(
    here: &Here,
    folder: &Path,
    spec: &mut JobSpec,
    env: &BTreeMap<String, String>,
    installation: &str,
) -> Result<Vec<String>, Failure> {
    let store = store_of(here, spec);
    if !is_bucket(&store) {
        check_owner(here)?;
    }
    let env = with_own(env, spec);
    let stay = left_behind(here, folder, spec, &store)?;
    let key = folder_key(installation, folder);
    // What others on this machine may read of the store is nothing, whatever this terminal's umask is.
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let packed = send_folder(&store, &key, &env, folder, stay).await;
    rustix::process::umask(umask);
    let packed = packed.map_err(|error| not_sent(&error))?;
    let (files, bytes, sent) = (packed.parcel.files, packed.parcel.bytes, packed.bytes_sent);
    let mut notes = Vec::new();
    if files == 0 {
        notes.push("workdir: the folder has no files to send".to_owned());
    } else if sent >= MUCH {
        let ignore = windfall_agent::IGNORE;
        notes.push(format!(
            "workdir: {} were sent; what the program does not need can be named in {ignore}",
            size(sent)
        ));
    }
    if !here.json {
        let all = format!("{files} file{}, {}", if files == 1 { "" } else { "s" }, size(bytes));
        eprintln!(
            "workdir: {all}, {} of them new to the store",
            if sent == 0 { "none".to_owned() } else { size(sent) }
        );
    }
    let followed = packed.followed.iter().take(NAMED);
    notes.extend(
        followed.map(|path| format!("workdir: {} is a link to a file outside: the file is sent", path.display())),
    );
    let left = packed.left_out.iter().take(NAMED);
    notes.extend(left.map(|(path, why)| format!("workdir: {} is not sent: {why}", path.display())));
    if packed.left_out.len() > NAMED {
        notes.push(format!("workdir: {} more are not sent either", packed.left_out.len() - NAMED));
    }
    spec.run.luggage.get_or_insert_default().parcel = Some(packed.parcel);
    Ok(notes)
}

/// Whoever else writes into a state directory, root for example, leaves what its server cannot read.
fn check_owner(here: &Here) -> Result<(), Failure> {
    let (own, owner) = (rustix::process::geteuid().as_raw(), std::fs::metadata(&here.home).map(|home| home.uid()).ok());
    match owner.filter(|owner| *owner != own) {
        None => Ok(()),
        Some(owner) => {
            let owner = windfall_server::name_of(owner);
            let why =
                if own == 0 { "who could not read what is sent" } else { "and nothing of yours can be sent there" };
            let text = format!("workdir: the state directory is {owner}'s, {why}");
            Err(Failure::new(Code::BadInput, text).hint(workdir_hint(own, &owner)))
        }
    }
}

/// Whether a store is not a folder: who may read it is not said by accounts of this machine.
fn is_bucket(store: &str) -> bool {
    store.contains("://") && !store.starts_with("file://")
}

/// What to do about a folder that the server could not read. Only root becomes somebody else.
fn workdir_hint(own: u32, owner: &str) -> String {
    match own {
        0 => format!("submit it as that account: runuser -u {owner} -- windfall …"),
        _ => "name a bucket in `checkpoint.store`, such as s3://bucket/ckpt, or leave `workdir` out".to_owned(),
    }
}

/// What of a folder is not sent whatever ignore files say: checkpoints, where those are kept, and a state directory, whose keys
/// are for nobody else. A folder that is one of these cannot be sent at all.
fn left_behind(here: &Here, folder: &Path, spec: &JobSpec, store: &str) -> Result<Vec<PathBuf>, Failure> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = real(folder);
    let store = PathBuf::from(store.strip_prefix("file://").unwrap_or(store));
    let mut stay: Vec<PathBuf> = spec.checkpoint.inside.iter().map(PathBuf::from).collect();
    for (path, what) in [(here.home.as_path(), "the state directory"), (&store, "the checkpoint store")] {
        let path = real(path);
        if folder.starts_with(&path) {
            let text = format!("workdir: {} is {what}, or inside it", folder.display());
            return Err(Failure::new(Code::BadInput, text).hint("put the job into a folder of its own"));
        }
        stay.extend(path.strip_prefix(&folder).ok().map(Path::to_owned));
    }
    Ok(stay)
}

/// Whether the parcel of a job that is submitted once more is still in the store.
pub async fn still_there(here: &Here, spec: &JobSpec, env: &BTreeMap<String, String>) -> Result<(), Failure> {
    let Some(parcel) = &spec.run.luggage().parcel else { return Ok(()) };
    let env = with_own(env, spec);
    match has_parcel(&store_of(here, spec), parcel, &env).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            Err(Failure::new(Code::BadInput, "the folder that the job was submitted with is not in the store any more")
                .hint("name the job file too, and the folder as it is now is sent"))
        }
        Err(error) => Err(not_sent(&error)),
    }
}

/// Clears the store of parcels that no job needs. What cannot be cleared now is cleared another time.
pub async fn clear(here: &Here, client: &Client, spec: &JobSpec, env: &BTreeMap<String, String>) {
    let Some(parcel) = &spec.run.luggage().parcel else { return };
    let used: Result<Vec<CheckpointId>, Failure> = client.get(&format!("/v1/{}", parcel.key)).await;
    if let Ok(used) = used {
        let _ = discard_folders(&store_of(here, spec), &parcel.key, &with_own(env, spec), &used).await;
    }
}

/// Brings back what a job left.
pub async fn get(here: &Here, args: &GetArgs) -> Result<Code, Failure> {
    if let Some(path) = &args.path
        && (path.is_absolute() || path.components().any(|part| matches!(part, Component::ParentDir)))
    {
        return Err(Failure::new(Code::BadInput, format!("{} is not inside the job's folder", path.display()))
            .hint("name it as `outputs:` does, such as results/"));
    }
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let answer = settled(&client, id).await?;
    let at: Option<OutputsAt> = client.get(&format!("/v1/jobs/{id}/outputs")).await?;
    let nothing = |why: String, hint: &str| Failure::new(Code::BadInput, why).hint(hint);
    let Some(at) = at else {
        return Err(nothing(
            format!("job {id} names nothing to bring back"),
            "say it in the job file: outputs: [results/]",
        ));
    };
    let env = windfall_server::client::environment();
    // Endpoints and regions of the store may be in the job file, while the log still has that.
    let spec: Option<JobSpec> = client.get(&format!("/v1/jobs/{id}/spec")).await.ok();
    let env = spec.map_or_else(|| env.clone(), |spec| with_own(&env, &spec));
    let path: Option<PathBuf> =
        args.path.as_ref().map(|path| path.components().filter(|part| *part != Component::CurDir).collect());
    let path = path.filter(|path| !path.as_os_str().is_empty());
    let into = args.into.clone().unwrap_or_else(|| PathBuf::from("."));
    let got =
        fetch_outputs(&at.store, &at.key, &env, &at.paths, path.as_deref(), &into).await.map_err(
            |error| match error.is_local() {
                true => not_sent(&error).hint("choose a folder that you can write into: --into DIR"),
                false => not_sent(&error),
            },
        )?;
    // What was lost of outputs may be told together with what was lost of a save.
    let missing = answer.job.told.filter(|told| matches!(told, Told::NotReturned { .. } | Told::Unsaved { .. }));
    if let Some(missing) = &missing {
        eprintln!("{missing}");
    }
    match (got, &path) {
        (Some(files), _) if !files.is_empty() => {
            for file in &files {
                match here.json {
                    true => println!("{}", serde_json::json!({ "type": "file", "path": into.join(file) })),
                    // A program chose the name: it must not speak to the terminal.
                    false => println!("{}", printable(&into.join(file))),
                }
            }
            Ok(Code::Done)
        }
        (Some(_), Some(path)) => Err(nothing(
            format!("job {id} has brought back nothing at {}", path.display()),
            "leave the path out to see what it has",
        )),
        (_, _) if !answer.job.state.is_over() => Err(nothing(
            format!("job {id} has brought nothing back yet"),
            "its outputs come when its program has ended",
        )),
        _ => Err(nothing(
            format!("job {id} has brought nothing back"),
            "`windfall explain` says whether something went wrong; otherwise its program left nothing that `outputs:` names",
        )),
    }
}

/// A path for people: what would move the cursor or end the line is written out.
fn printable(path: &std::path::Path) -> String {
    let text = path.to_string_lossy();
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

/// A job, once what its program left last is in the store: that is on its way for a while after its end.
async fn settled(client: &Client, id: u64) -> Result<JobAnswer, Failure> {
    let mut is_said = false;
    loop {
        let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
        if !answer.job.state.is_over() || answer.bill.is_some() {
            return Ok(answer);
        }
        if !is_said {
            eprintln!("what its program left is on its way; waiting for it");
            is_said = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn store_of(here: &Here, spec: &JobSpec) -> String {
    match spec.checkpoint.store.as_str() {
        "" => here.home.join("checkpoints").to_string_lossy().into_owned(),
        named => named.to_owned(),
    }
}

/// Credentials and endpoints of the store: what the job file says counts more than the terminal.
fn with_own(env: &BTreeMap<String, String>, spec: &JobSpec) -> BTreeMap<String, String> {
    env.iter().chain(&spec.run.env).map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn not_sent(error: &NotSent) -> Failure {
    let failure = Failure::new(Code::BadInput, windfall_core::english::with_causes(error));
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_become_another_account_is_told_of_a_bucket() {
        assert!(workdir_hint(1_000, "root").starts_with("name a bucket"));
        let (buckets, folders) = (["s3://b/c", "gs://b"], ["/srv/ckpt", "file:///srv/ckpt"]);
        assert!(buckets.into_iter().all(is_bucket) && !folders.into_iter().any(is_bucket));
        assert_eq!(workdir_hint(0, "lab"), "submit it as that account: runuser -u lab -- windfall …");
    }
}
