//! The engine without a cluster: what it does with pilots that have joined.

use super::*;
use crate::engine::LeaseState;
use crate::nodes::puppets::{LEASE, Puppets};

/// The processes of a gang join when they are begun, which may be minutes apart, and after hours in the queue.
#[tokio::test]
async fn a_pilot_that_has_joined_gives_up_none_that_has_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let puppets = Puppets::start(folder.path()).await;
    let settings = SlurmSettings {
        server: String::new(),
        program: PathBuf::new(),
        scratch: PathBuf::new(),
        partitions: Vec::new(),
        account: None,
        qos: None,
        wall_minutes: 60,
        rate: NanoUsd(0),
    };
    let clock = Arc::new(WorldClock::real(Time(0)));
    let (root, hub) = (folder.path().join("leases"), Arc::clone(&puppets.hub));
    let slurm = Slurm::open("slurm", root, settings, hub, clock, PathBuf::from("/bin/true")).expect("opened");
    let late = LeaseId { slot: 1, ..LEASE };
    let marks = |lease: LeaseId| Marks {
        host: Some(node_name(lease)),
        units: 2,
        sold_at: Some(Time(1_000)),
        ..Marks::default()
    };
    slurm.leases.give(LEASE.group, |_, _| Ok(vec![marks(LEASE), marks(late)])).expect("given");
    let _stream = puppets.comes(&node_name(LEASE), "n1", Vec::new()).await;
    slurm.begin(LEASE, &marks(LEASE), None);
    slurm.begin(late, &marks(late), None);
    tokio::time::sleep(Duration::from_millis(500)).await;
    for lease in [LEASE, late] {
        assert_eq!(slurm.leases.state_of(lease), Some(LeaseState::Pending), "{lease}");
    }
}
