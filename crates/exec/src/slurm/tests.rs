//! The engine without a cluster: what it does with pilots that have joined.

use super::commands::Job;
use super::*;
use crate::engine::LeaseState;
use crate::nodes::OnNode;
use crate::nodes::puppets::{LEASE, Puppets};
use windfall_core::GroupPhase;

/// An engine whose clock shows that time now, and the nodes that may join it.
async fn engine(folder: &std::path::Path, now: Time) -> (Puppets, Arc<Slurm>) {
    let puppets = Puppets::start(folder).await;
    let settings = SlurmSettings {
        server: String::new(),
        program: PathBuf::new(),
        scratch: PathBuf::new(),
        partitions: Vec::new(),
        accelerators: BTreeMap::new(),
        account: None,
        qos: None,
        wall_minutes: 60,
        rate: NanoUsd(0),
    };
    let (root, hub) = (folder.join("leases"), Arc::clone(&puppets.hub));
    let clock = Arc::new(WorldClock::real(now));
    let slurm = Slurm::open("slurm", root, settings, hub, clock, PathBuf::from("/bin/true")).expect("opened");
    (puppets, slurm)
}

fn job(state: JobState, asked: Time, began: Time) -> Job {
    Job {
        id: "7".to_owned(),
        name: job_name(LEASE.group),
        user: "ada".to_owned(),
        state,
        submitted: Some(asked),
        started: Some(began),
        ends: Some(began + Span::hours(1)),
    }
}

/// A job that waited for three hours has been on its way since it was begun, not since it was asked for: else it would be given
/// back as late in the moment in which it comes.
#[tokio::test]
async fn what_waited_in_the_queue_is_on_its_way_since_slurm_began_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, slurm) = engine(folder.path(), Time(0)).await;
    let now = slurm.leases.clock.now();
    let (asked, began) = (now - Span::hours(3), now - Span::seconds(1));
    let marks = Marks { host: Some(node_name(LEASE)), units: 1, sold_at: Some(asked), ..Marks::default() };
    slurm.leases.give(LEASE.group, |_, _| Ok(vec![marks])).expect("given");
    let phase = |state: JobState| slurm.seen(LEASE.group, Some(&job(state, asked, began))).expect("known").phase;
    assert_eq!(phase(JobState::Waits), GroupPhase::Queued { since: asked, eta: None });
    assert_eq!(phase(JobState::Runs), GroupPhase::Granted { at: began, units: 1 });
}

/// The programs of a group end before its job does. Whoever takes its leases for gone forgets whose the job is.
#[tokio::test]
async fn the_last_lease_of_a_group_is_gone_when_its_job_is_over() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_puppets, slurm) = engine(folder.path(), Time(0)).await;
    let now = slurm.leases.clock.now();
    let other = LeaseId { slot: 1, ..LEASE };
    let gone = Some((now, LeaseEnd::Released));
    let marks = |gone| Marks { host: Some(node_name(LEASE)), units: 2, up_at: Some(now), gone, ..Marks::default() };
    slurm.leases.give(LEASE.group, |_, _| Ok(vec![marks(gone), marks(None)])).expect("given");
    let states = |state: JobState| {
        let seen = slurm.seen(LEASE.group, Some(&job(state, now, now))).expect("known").leases;
        seen.iter().map(|seen| matches!(seen.state, LeaseState::Gone { .. })).collect::<Vec<bool>>()
    };
    assert_eq!(states(JobState::Runs), [true, false], "one of two was given back");
    slurm.leases.mark(other, |marks| marks.gone = gone);
    assert_eq!(states(JobState::Ends), [false, false], "what holds both is not over");
    assert_eq!(states(JobState::Over(LeaseEnd::Released)), [true, true]);
}

/// The processes of a gang join when they are begun, which may be minutes apart, and after hours in the queue.
#[tokio::test]
async fn a_pilot_that_has_joined_gives_up_none_that_has_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let (puppets, slurm) = engine(folder.path(), Time(0)).await;
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

/// Slurm gives a machine up that it does not hear. What runs there may run on, and must not run twice.
#[tokio::test]
async fn what_slurm_has_given_up_ends_before_it_goes_on_elsewhere_where_it_is_reached() {
    let folder = tempfile::tempdir().expect("a folder");
    let (puppets, slurm) = engine(folder.path(), Time(0)).await;
    let now = slurm.leases.clock.now();
    let name = node_name(LEASE);
    let marks = Marks { host: Some(name.clone()), units: 1, up_at: Some(now), ..Marks::default() };
    slurm.leases.give(LEASE.group, |_, _| Ok(vec![marks])).expect("given");
    let runs = OnNode { lease: LEASE, is_alive: true, last: None };
    let stream = puppets.comes(&name, "n1", vec![runs]).await;
    let job = job(JobState::NodeLost, now, now);
    slurm.seen(LEASE.group, Some(&job));
    let state = || slurm.leases.state_of(LEASE);
    assert!(matches!(state(), Some(LeaseState::Up { ends_at: Some(_), .. })), "it is told to save: {:?}", state());
    drop(stream);
    puppets.until_gone(&name).await;
    slurm.seen(LEASE.group, Some(&job));
    assert!(matches!(state(), Some(LeaseState::Up { .. })), "it may come back: {:?}", state());
    let before = Instant::now().checked_sub(seen::COMES_BACK * 2).expect("this computer has run for longer");
    slurm.unheard().insert(LEASE, before);
    slurm.seen(LEASE.group, Some(&job));
    assert!(matches!(state(), Some(LeaseState::Gone { .. })), "nobody reaches it: {:?}", state());
}
