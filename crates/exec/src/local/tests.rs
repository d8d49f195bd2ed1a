//! Leases on this computer, as far as no agent is needed for it.

use super::*;
use crate::nodes::LeaseOrder;
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

fn leases(dir: &Path) -> Arc<LocalLeases> {
    let clock = Arc::new(WorldClock::real(Time(1_000)));
    LocalLeases::open(dir.join("leases"), clock, program(dir)).expect("opened")
}

fn lease(seq: u64) -> LeaseId {
    LeaseId { group: DecisionId { installation: Installation(1), seq }, slot: 0 }
}

#[tokio::test]
async fn a_lease_whose_marks_cannot_be_read_is_not_one_that_never_began() {
    let dir = tempfile::tempdir().expect("a folder");
    let folder = |seq: u64| dir.path().join("leases").join(lease(seq).to_string());
    let [unbegun, unreadable, torn] = [1, 2, 3].map(folder);
    for folder in [&unbegun, &unreadable, &torn] {
        std::fs::create_dir_all(folder).expect("made");
        std::fs::write(folder.join("marks.json.new"), "").expect("written");
    }
    for folder in [&unreadable, &torn] {
        std::fs::write(folder.join("marks.json"), "").expect("written");
    }
    // Its agent, as far as one can be without a process.
    std::fs::write(unreadable.join("agent.sock"), "").expect("written");
    let leases = leases(dir.path());
    assert!(!torn.exists() && leases.state_of(lease(3)).is_none(), "no agent was ever in it");
    assert!(!unbegun.exists() && leases.state_of(lease(1)).is_none());
    assert!(matches!(leases.state_of(lease(2)), Some(LeaseState::Up { .. })), "{:?}", leases.state_of(lease(2)));
    std::fs::remove_file(unreadable.join("agent.sock")).expect("removed");
    for _ in 0..100 {
        if matches!(leases.state_of(lease(2)), Some(LeaseState::Gone { .. })) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("it is looked after as any other: {:?}", leases.state_of(lease(2)));
}

#[tokio::test]
async fn a_lease_whose_time_is_up_is_ended_by_one_at_a_time() {
    let dir = tempfile::tempdir().expect("a folder");
    let leases = leases(dir.path());
    leases.launch_one(lease(1), LeaseOrder::default()).await.expect("launched");
    leases.mark(lease(1), |marks| marks.ends_at = Some(Time(2_000)));
    assert_eq!((leases.overdue(Time(1_999)), leases.overdue(Time(2_000))), (vec![], vec![lease(1)]));
    assert_eq!(leases.overdue(Time(2_500)), [], "somebody is at it");
    // Whoever was at it did not succeed.
    leases.held().get_mut(&lease(1)).expect("held").is_ending = false;
    leases.carry_notices_out(Time(3_000));
    for _ in 0..100 {
        if leases.held()[&lease(1)].is_gone() {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("it is ended all the same");
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
    let marks = leases.folder_of(lease).and_then(|folder| folder.load_marks().expect("read")).expect("written");
    assert!(marks.is_apart && marks.runs_as.is_none() && marks.owner == "root", "{marks:?}");
}
