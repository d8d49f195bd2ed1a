//! Who may submit, and what of a submission a server of root's does as whoever submitted it. Where programs run as the
//! server's user, only that user submits any. A server of root's that has machines runs them as their submitters, so
//! everybody of the machine may; but it reads nothing as root that such a person names. What must be looked at beforehand
//! (a folder of theirs, a bucket with their credentials) is looked at by a process that has become them.

use crate::api_types::{Problem, Submission};
use crate::dispatch::{StoreAccess, StoreProbe};
use crate::principal::Principal;
use crate::{probe, problem};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use windfall_core::english::with_causes;
use windfall_core::{Trouble, TroubleKind};
use windfall_exec::{Accounts, Directory};

/// A look that takes longer is given up: a person waits for it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Files of a folder that a job may begin with, of somebody who does not run the server: they are kept with the job.
const MOST_FILES: usize = 50_000;

/// The most that is said of what somebody named.
const MOST_SAID: u64 = 8 << 20;

/// Whether a server that has machines runs programs as those who submitted them.
pub fn runs_as_submitters(has_machines: bool) -> bool {
    has_machines && Accounts::default().of_root().is_some()
}

/// Whether a store is one that machines reach without the server.
fn is_far(store: &str) -> bool {
    store.contains("://") && !store.to_ascii_lowercase().starts_with("file:")
}

/// Whether two paths are of one place by their names alone: root looks at nothing that a guest names, and whoever calls the
/// server's own store by a link is refused like anybody who names a directory.
fn is_same(one: &Path, other: &Path) -> bool {
    one.components().eq(other.components())
}

/// Nothing, or why a submission of somebody who does not run the server cannot be taken: it names what the server would
/// have to touch as root.
pub fn names_nothing_of_others(asker: &Principal, submission: &mut Submission, own: &Path) -> Result<(), Problem> {
    if asker.is_operator() {
        return Ok(());
    }
    let store = &mut submission.spec.checkpoint.store;
    if is_same(Path::new(store), own) {
        // The server's own by whatever name: from here on it has none that somebody else could make another's.
        store.clear();
    }
    let refused = |what: &str, hint: &str| Problem {
        hint: Some(hint.to_owned()),
        ..problem(403, "not-allowed", &format!("not allowed to `{}`: {what}", asker.user))
    };
    let store = &submission.spec.checkpoint.store;
    if !store.is_empty() && !is_far(store) {
        let what = "checkpoint.store names a directory, which this server would use as root";
        return Err(refused(what, "leave `checkpoint.store` out, or name a bucket"));
    }
    if submission.spec.run.luggage().parcel.is_some() && store.is_empty() {
        let what = "workdir is sent to a store, and that of this server is root's";
        return Err(refused(what, "name a bucket in `checkpoint.store`, or leave `workdir` out"));
    }
    Ok(())
}

/// What is to be looked at as somebody. One JSON value, on the standard input of a process that becomes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Look {
    /// What is in a folder.
    Folder { path: String },
    /// Whether a store can hold a job's checkpoints.
    Store { address: String, key: String, env: BTreeMap<String, String>, saved_before: bool },
    /// The last stint that wrote to a store.
    LastEpoch { address: String, key: String, env: BTreeMap<String, String>, saved_before: bool },
}

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen {
    Folder(FoundFiles),
    /// More than is looked at.
    TooMuch,
    Store(Option<Trouble>),
    LastEpoch(Result<Option<u64>, String>),
}

/// What is in a folder before a job begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundFiles {
    /// All of it, as paths below the folder.
    pub paths: Vec<String>,
    /// The first that is not a folder, and how many more are not.
    pub first_file: Option<(String, usize)>,
}

impl FoundFiles {
    /// Looks, as whoever this process is.
    pub fn of(folder: &Path) -> FoundFiles {
        let found = windfall_agent::foreign_paths(folder).unwrap_or_default();
        // A folder with nothing in it is nobody's progress.
        let mut files = found.iter().filter(|path| !folder.join(path).is_dir());
        let first = files.next().map(|path| path.to_string_lossy().into_owned());
        let first_file = first.map(|first| (first, files.count()));
        FoundFiles { paths: found.iter().map(|path| path.to_string_lossy().into_owned()).collect(), first_file }
    }
}

/// Looks, as whoever this process is.
pub async fn look(what: Look) -> Seen {
    let access =
        |address, key, env, saved_before| StoreAccess { address, key, env, saved_before, ..StoreAccess::default() };
    match what {
        Look::Folder { path } => {
            let found = FoundFiles::of(Path::new(&path));
            if found.paths.len() > MOST_FILES { Seen::TooMuch } else { Seen::Folder(found) }
        }
        Look::Store { address, key, env, saved_before } => {
            Seen::Store(probe::trouble_with(&access(address, key, env, saved_before)).await)
        }
        Look::LastEpoch { address, key, env, saved_before } => {
            let seen = probe::last_epoch(&access(address, key, env, saved_before)).await;
            Seen::LastEpoch(seen.map_err(|error| with_causes(&error)))
        }
    }
}

/// Whether a job's submitter is somebody else than this server's user, so that what they name is looked at as them.
pub fn is_guest(owner: &str) -> bool {
    Accounts::default().of_root().is_some() && owner != "root" && !owner.is_empty()
}

/// Looks as somebody.
pub async fn look_as(owner: &str, what: &Look) -> io::Result<Seen> {
    let found = Directory::of_this_machine().account(owner).await.map_err(io::Error::other)?;
    let account = found.filter(|account| account.uid != 0);
    let account = account.ok_or_else(|| io::Error::other(format!("this computer has no account `{owner}`")))?;
    let mut child = Command::new("/proc/self/exe");
    child.arg0("windfall").args(["agent", "look", "--account", &account.numbers()]).current_dir("/");
    // Nothing of the server's environment is for them.
    child.env_clear().env("HOME", &account.home).env("PATH", "/usr/bin:/bin");
    child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = child.spawn()?;
    let asked = serde_json::to_vec(what)?;
    let mut said = Vec::new();
    let answered = async {
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&asked).await?;
        }
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        // What it says is made of what they have: it is read up to a bound, and it ends when nobody reads on.
        stdout.take(MOST_SAID + 1).read_to_end(&mut said).await
    };
    tokio::time::timeout(PATIENCE, answered).await.map_err(io::Error::other)??;
    if said.len() as u64 > MOST_SAID {
        return Ok(Seen::TooMuch);
    }
    Ok(windfall_core::codec::from_json(&said)?)
}

/// The files that a submitter has in a folder that they name.
pub async fn files_of(owner: &str, path: &str) -> Result<FoundFiles, Problem> {
    let failed = |text: String| problem(500, "not-prepared", &text);
    match look_as(owner, &Look::Folder { path: path.to_owned() }).await {
        Ok(Seen::Folder(found)) => Ok(found),
        Ok(Seen::TooMuch) => Err(Problem {
            hint: Some("name a folder of the job's own: an empty one, or one that is not there yet".to_owned()),
            ..problem(422, "too-many-files", &format!("checkpoint.path holds too many files to begin with: {path}"))
        }),
        Ok(other) => Err(failed(format!("another answer than was asked for: {other:?}"))),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// What is wrong with a store of a submitter's, as they see it.
async fn trouble_of(owner: &str, access: &StoreAccess) -> Option<Trouble> {
    let StoreAccess { address, key, env, saved_before, .. } = access.clone();
    let failed = |text: String| Some(Trouble { kind: TroubleKind::StoreAway, text });
    match look_as(owner, &Look::Store { address, key, env, saved_before }).await {
        Ok(Seen::Store(trouble)) => trouble,
        Ok(other) => failed(format!("the store was not looked at: {other:?}")),
        Err(error) => failed(format!("the store cannot be looked at as {owner}: {error}")),
    }
}

/// Looks at stores: at those that a guest names as that guest.
pub struct Probe;

#[async_trait]
impl StoreProbe for Probe {
    async fn probe(&self, access: &StoreAccess) -> Option<Trouble> {
        match is_seen_as_owner(&access.owner, &access.address) {
            true => trouble_of(&access.owner, access).await,
            false => probe::trouble_with(access).await,
        }
    }
}

/// Whether a store is looked at as whoever named it.
pub fn is_seen_as_owner(owner: &str, address: &str) -> bool {
    is_guest(owner) && is_far(address)
}

/// The last stint that wrote to a store of a submitter's, as they see it.
pub async fn last_epoch(access: &StoreAccess) -> Result<Option<u64>, Problem> {
    let owner = &access.owner;
    let StoreAccess { address, key, env, saved_before, .. } = access.clone();
    let refused = |text: String| problem(422, "checkpoint-store", &text);
    match look_as(owner, &Look::LastEpoch { address, key, env, saved_before }).await {
        Ok(Seen::LastEpoch(seen)) => seen.map_err(refused),
        Ok(other) => Err(refused(format!("the store was not looked at: {other:?}"))),
        Err(error) => Err(refused(format!("the store cannot be looked at as {owner}: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::spec::Parcel;
    use windfall_core::{CheckpointId, JobSpec};

    fn submission(store: &str, with_parcel: bool) -> Submission {
        let mut spec = JobSpec::named("job", vec!["run".to_owned()]);
        spec.checkpoint.store = store.to_owned();
        if with_parcel {
            let name = CheckpointId { epoch: 1, seq: 1 };
            let (key, content) = ("folders/a".to_owned(), "c".to_owned());
            let parcel = Some(Parcel { key, name, content, files: 1, bytes: 1 });
            spec.run.luggage.get_or_insert_default().parcel = parcel;
        }
        Submission {
            key: String::new(),
            spec,
            deadline_in: None,
            env: BTreeMap::new(),
            wait: false,
            with_files: false,
            own_files: false,
            continues: None,
        }
    }

    #[test]
    fn a_guest_names_nothing_that_root_would_touch() {
        let (guest, operator) = (Principal::of(4_242, 0), Principal::of(0, 0));
        let dir = tempfile::tempdir().expect("a folder");
        let own = dir.path().join("checkpoints");
        let is_taken = |asker: &Principal, store: &str, parcel| {
            names_nothing_of_others(asker, &mut submission(store, parcel), &own).is_ok()
        };
        let mut named = submission(&dir.path().join("./checkpoints").to_string_lossy(), false);
        assert!(names_nothing_of_others(&guest, &mut named, &own).is_ok());
        assert_eq!(named.spec.checkpoint.store, "", "the server's own has no name that could become another's");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&own, &link).expect("linked");
        assert!(!is_taken(&guest, &link.to_string_lossy(), false), "root follows no link of a guest's");
        for (store, with_parcel, may) in [
            ("", false, true),
            ("s3://bucket/x", false, true),
            ("s3://bucket/x", true, true),
            ("", true, false),
            ("/home/ada", false, false),
            ("../x", false, false),
            ("file:/root", false, false),
            ("file:///root", false, false),
            ("FILE:///root", false, false),
        ] {
            assert_eq!(is_taken(&guest, store, with_parcel), may, "{store} {with_parcel}");
            assert!(is_taken(&operator, store, with_parcel), "{store}");
        }
    }

    #[tokio::test]
    async fn a_folder_is_looked_at_up_to_a_bound_and_folders_in_it_are_nobody_s_progress() {
        let dir = tempfile::tempdir().expect("a folder");
        let look = async || look(Look::Folder { path: dir.path().to_string_lossy().into_owned() }).await;
        std::fs::create_dir_all(dir.path().join("a/b")).expect("made");
        let Seen::Folder(found) = look().await else { panic!("few files") };
        assert!(!found.paths.is_empty() && found.first_file.is_none(), "{found:?}");
        for name in ["x", "y"] {
            std::fs::write(dir.path().join("a").join(name), "").expect("written");
        }
        let Seen::Folder(found) = look().await else { panic!("few files") };
        assert_eq!(found.first_file, Some(("a/x".to_owned(), 1)));
        (0..=MOST_FILES).for_each(|n| drop(std::fs::File::create(dir.path().join(n.to_string())).expect("made")));
        assert_eq!(look().await, Seen::TooMuch);
    }

    #[test]
    fn only_a_server_of_root_s_with_machines_runs_programs_as_their_submitters() {
        assert!(!runs_as_submitters(false));
        assert_eq!(runs_as_submitters(true), rustix::process::geteuid().is_root());
    }
}
