//! Leases on this computer, as far as no agent is needed for it.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use windfall_core::{Installation, Time};

/// A binary that starts no agent, and leaves a file to say that it was asked to.
fn program(dir: &Path) -> PathBuf {
    let (program, asked) = (dir.join("program"), dir.join("asked"));
    std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", asked.display())).expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
    program
}

#[tokio::test]
async fn nothing_is_begun_while_it_cannot_be_written_down_as_whom() {
    let dir = tempfile::tempdir().expect("a folder");
    let asked = dir.path().join("asked");
    let accounts = Accounts { allow_root: true, ..Accounts::default() };
    let clock = Arc::new(WorldClock::real(Time(0)));
    let root = dir.path().join("leases");
    let leases = LocalLeases::of_machines(root.clone(), clock, program(dir.path()), None, Some(accounts));
    let leases = leases.expect("opened");
    let group = DecisionId { installation: Installation(1), seq: 1 };
    let lease = LeaseId { group, slot: 0 };
    let order = || LeaseOrder { owner: "root".to_owned(), ..LeaseOrder::default() };
    // What a full disk does, too: nothing can be put in the place of the marks.
    let in_the_way = root.join(lease.to_string()).join("marks.json.new");
    std::fs::create_dir_all(&in_the_way).expect("made");
    assert!(leases.launch_one(lease, order()).await.is_err());
    assert!(!asked.exists(), "nothing was begun");
    std::fs::remove_dir(&in_the_way).expect("out of the way");
    leases.launch_one(lease, order()).await.expect("begun");
    assert!(asked.exists());
    let marks = leases.folder_of(lease).and_then(|folder| folder.read_marks()).expect("written");
    assert!(marks.is_apart && marks.runs_as.is_none() && marks.owner == "root", "{marks:?}");
}
