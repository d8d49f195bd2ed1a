//! A process that an engine has begun on a machine of others: it joins the server as a node for one lease, and ends with it.

use crate::args::PilotArgs;
use crate::config::values;
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windfall_core::english::with_causes;
use windfall_exec::{Accounts, Inventory, JoinToken, Labels, NodeError, NodeSettings, remove_tree, serve_node};
use windfall_server::client::{Code, Failure};

/// More than the tokens of any gang take.
const MOST_TOKENS: u64 = 4 << 20;

pub fn pilot(args: &PilotArgs) -> Result<Code, Failure> {
    let bad = |text: String| Failure::new(Code::BadInput, text).hint("pilots are begun by an engine, never by hand");
    let (token, of) = match &args.token_file {
        Some(file) => (token_in(file).map_err(bad)?, "pod".to_owned()),
        None => {
            let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
            let (Some(rank), Some(job)) = (number("SLURM_PROCID"), number("SLURM_JOB_ID")) else {
                return Err(bad("this is not a process of a job of Slurm's".to_owned()));
            };
            (own_token(rank).map_err(bad)?, format!("{job}-{rank}"))
        }
    };
    let state = args.scratch.join(format!("windfall-{}-{of}", rustix::process::geteuid().as_raw()));
    windfall_server::home::private();
    if args.token_file.is_some() {
        close_volume(&args.scratch).map_err(bad)?;
    }
    own_folder(&state).map_err(bad)?;
    windfall_agent::stay_when_memory_is_short();
    // What agents leave behind stays below this process, where Slurm finds it; in a container this is the first one anyway.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let settings = NodeSettings {
        state: state.clone(),
        server: Some(args.server.clone()),
        token: Some(token),
        name: None,
        accelerators: args.accelerators.iter().filter_map(|text| values::stated(text)).collect(),
        labels: Labels::new(),
        program: PathBuf::from("/proc/self/exe"),
        accounts: Accounts { run_as: None, allow_root: true, machine: String::new() },
        pilot: true,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let served = runtime.block_on(serve(settings));
    runtime.shutdown_timeout(Duration::from_secs(1));
    leave_nothing(&state);
    match served {
        // Its lease is over.
        Ok(()) | Err(NodeError::NotWelcome(_)) => Ok(Code::Done),
        Err(error) => Err(Failure::new(Code::Unreachable, with_causes(&error)).hint(error.hint())),
    }
}

/// Serves until the lease is over. Slurm and kubelets warn with a signal; the server sees what it means, and has the program save.
/// The next signal is the last.
async fn serve(settings: NodeSettings) -> Result<(), NodeError> {
    let path = settings.state.clone();
    let mut warned = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .map_err(|source| NodeError::State { path, source })?;
    let joined = |name: &str, inventory: &Inventory| println!("this process is node {name}: {inventory}");
    let twice = async {
        for _ in 0..2 {
            warned.recv().await;
        }
    };
    tokio::select! { served = serve_node(settings, joined) => served, () = twice => Ok(()) }
}

/// A pod's volume is open to everybody at first. Its owner makes it what `/tmp` is: others may not put something else in our place.
fn close_volume(scratch: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |error: std::io::Error| format!("{} cannot be used: {error}", scratch.display());
    let found = std::fs::metadata(scratch).map_err(failed)?;
    let is_open = found.mode() & 0o1002 == 0o002;
    if is_open && found.uid() == rustix::process::geteuid().as_raw() {
        std::fs::set_permissions(scratch, PermissionsExt::from_mode(0o1777)).map_err(failed)?;
    }
    Ok(())
}

/// Makes the folder that this process works in. Its name can be known beforehand, and anybody may write into the folder that it is
/// in: one that somebody else has made is not taken.
fn own_folder(path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{} cannot be made: {error}", path.display());
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(path).map_err(failed)?;
            let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
            match is_own && found.mode() & 0o077 == 0 {
                true => Ok(()),
                false => Err(format!("{} is there already, and somebody else may write into it", path.display())),
            }
        }
        made => made.map_err(failed),
    }
}

fn own_token(rank: usize) -> Result<JoinToken, String> {
    let mut text = String::new();
    let read = std::io::stdin().take(MOST_TOKENS).read_to_string(&mut text);
    read.map_err(|error| format!("no tokens on standard input: {error}"))?;
    let line = text.lines().nth(rank).ok_or_else(|| format!("there is no token for process {rank}"))?;
    line.trim().parse().map_err(|_| format!("the token for process {rank} is none"))
}

/// The token of a pilot that has a file of its own for it.
fn token_in(file: &Path) -> Result<JoinToken, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    text.trim().parse().map_err(|_| format!("{} holds no token", file.display()))
}

/// Puts this program into a folder, whole or not at all.
pub fn copy(folder: &Path) -> Result<Code, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let (new, place) = (folder.join("windfall.new"), folder.join("windfall"));
    let copied = std::fs::copy("/proc/self/exe", &new)
        .and_then(|_| std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)))
        .and_then(|()| std::fs::rename(&new, &place));
    let failed =
        |error: std::io::Error| Failure::new(Code::BadInput, format!("no program in {}: {error}", folder.display()));
    copied.map(|()| Code::Done).map_err(|error| failed(error).hint("is there room, and may it write there?"))
}

/// What could not be saved stays: that is somebody's last copy.
fn leave_nothing(state: &Path) {
    let jobs = std::fs::read_dir(state.join("jobs")).into_iter().flatten().flatten();
    let has_unsaved = jobs
        .flat_map(|job| std::fs::read_dir(job.path()))
        .flatten()
        .flatten()
        .any(|file| file.file_name().to_string_lossy().starts_with("unsaved"));
    if !has_unsaved {
        let _ = remove_tree(state, u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_volume_that_is_open_to_all_becomes_what_tmp_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = || std::fs::metadata(folder.path()).expect("it is there").permissions().mode() & 0o7777;
        for (before, after) in [(0o777, 0o1777), (0o1777, 0o1777), (0o750, 0o750)] {
            std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(before)).expect("changed");
            assert_eq!((close_volume(folder.path()), mode()), (Ok(()), after));
        }
    }

    #[test]
    fn a_program_is_put_where_another_container_finds_it_and_a_token_is_read_from_its_file() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(copy(folder.path()).is_ok() && copy(&folder.path().join("none")).is_err());
        let mode = std::fs::metadata(folder.path().join("windfall")).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let file = folder.path().join("token");
        std::fs::write(&file, "no token\n").expect("written");
        assert!(token_in(&file).is_err_and(|why| why.contains("holds no token")));
    }

    #[test]
    fn a_folder_that_others_may_write_into_is_not_taken() {
        let folder = tempfile::tempdir().expect("a folder");
        let own = folder.path().join("own");
        assert_eq!((own_folder(&own), own_folder(&own)), (Ok(()), Ok(())), "its own is");
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).expect("changed");
        assert!(own_folder(&own).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).expect("linked");
        assert!(own_folder(&link).is_err());
    }
}
