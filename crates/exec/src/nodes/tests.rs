//! A server and a node that has joined it, over the network, with agents that are files: what one lease's folder holds, or what
//! one disk refuses, is no other lease's trouble.

use super::daemon::{NodeSettings, serve_node};
use super::hub::{Hub, JobsOfNodes, NodeStream};
use super::life::Life;
use super::output;
use super::protocol::{InStore, LeaseOrder, OnNode};
use crate::accounts::Accounts;
use crate::clock::WorldClock;
use crate::engine::{Engine, EngineError, LeaseState};
use crate::machines::{Machines, Stated};
use async_trait::async_trait;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use windfall_core::worker::{AgentView, WorkerView};
use windfall_core::{DecisionId, Installation, LeaseId, NanoUsd, OfferId, Refusal, StintId, Time, Want, WorkloadId};

/// A binary whose agents are a socket's name in their folder: whoever removes that has ended one.
fn program(dir: &Path) -> PathBuf {
    let program = dir.join("program");
    let text = "#!/bin/sh\nfor last; do :; done\n[ \"$2\" = launch ] && touch \"$last/agent.sock\"\nexit 0\n";
    std::fs::write(&program, text).expect("written");
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
    program
}

/// Every worker's output goes to one file.
struct OneFile(PathBuf);

#[async_trait]
impl JobsOfNodes for OneFile {
    fn output_of(&self, _: &str, _: StintId, _: u32) -> Option<PathBuf> {
        Some(self.0.clone())
    }

    fn has_store_of(&self, _: &str, _: WorkloadId) -> bool {
        false
    }

    async fn serve_store(&self, _: &str, _: InStore, _: NodeStream) {}
}

struct Joined {
    hub: Arc<Hub>,
    leases: PathBuf,
    dir: tempfile::TempDir,
}

impl Joined {
    /// A server and its node `lab`, once that has said what it holds.
    async fn start() -> Joined {
        Joined::start_with(|_| {}).await
    }

    /// The same, with what an earlier agent has left in the node's state directory.
    async fn start_with(leave: impl FnOnce(&Path)) -> Joined {
        let dir = tempfile::tempdir().expect("a folder");
        leave(&dir.path().join("node"));
        let hub = Hub::open(&dir.path().join("server"), Duration::from_secs(60), true).expect("opened");
        hub.set_jobs(Arc::new(OneFile(dir.path().join("copy"))));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let server = listener.local_addr().expect("bound").to_string();
        tokio::spawn(Arc::clone(&hub).listen(listener));
        let state = dir.path().join("node");
        let settings = NodeSettings {
            state: state.clone(),
            server: Some(server),
            token: Some(hub.new_token("lab", NanoUsd(0)).expect("a token")),
            name: None,
            accelerators: vec![Stated { model: "H200".to_owned(), count: 1 }],
            labels: Default::default(),
            program: program(dir.path()),
            accounts: Accounts { allow_root: true, ..Accounts::default() },
            pilot: false,
        };
        tokio::spawn(async move { serve_node(settings, |_, _| {}).await.map_err(|error| println!("{error}")) });
        let joined = Joined { hub, leases: state.join("leases"), dir };
        joined.until("it is there", |hub| hub.nodes().iter().any(|node| node.is_connected)).await;
        joined
    }

    async fn until(&self, what: &str, mut is_so: impl FnMut(&Hub) -> bool) {
        for _ in 0..2_000 {
            if is_so(&self.hub) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("not in time: {what}");
    }

    async fn launch(&self, seq: u64) -> LeaseId {
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq }, slot: 0 };
        let order = LeaseOrder { owner: "root".to_owned(), ..LeaseOrder::default() };
        self.hub.launch("lab", lease, order).await.expect("launched");
        lease
    }

    /// What the agent of a lease is said to have written down, and its end.
    fn end_agent(&self, lease: LeaseId, text: &str) {
        let folder = self.leases.join(lease.to_string());
        std::fs::write(folder.join("view.json"), text).expect("written");
        std::fs::remove_file(folder.join("agent.sock")).expect("removed");
    }
}

/// A view with one worker, whose trouble has this many bytes.
fn view(bytes: usize) -> String {
    let mut worker = WorkerView::new(StintId::of_job(WorkloadId(1), 1), 0);
    worker.evidence.skipped = vec!["x".repeat(bytes)];
    serde_json::to_string(&AgentView { version: 3, pid: 7, workers: vec![worker] }).expect("a view is JSON")
}

#[tokio::test]
async fn what_one_lease_wrote_down_keeps_nobody_from_hearing_of_the_others() {
    let joined = Joined::start().await;
    let (long, short, alive) = (joined.launch(1).await, joined.launch(2).await, joined.launch(3).await);
    let mut many = Vec::new();
    for seq in 4..10 {
        many.push(joined.launch(seq).await);
    }
    joined.end_agent(long, &view(5 << 20));
    // Each can be told, and all of them together are more than one message.
    many.iter().for_each(|lease| joined.end_agent(*lease, &view(900 << 10)));
    joined.end_agent(short, &view(10));
    let over = |hub: &Hub| many.iter().chain([&long, &short]).all(|lease| hub.life("lab", *lease) == Life::Over);
    joined.until("their ends are told", over).await;
    assert_eq!(joined.hub.life("lab", alive), Life::Alive);
    let shown = joined.hub.shown();
    let last = |lease: LeaseId| {
        let seen: Option<&OnNode> = shown.iter().map(|(_, seen)| seen).find(|seen| seen.lease == lease);
        seen.and_then(|seen| seen.last.clone())
    };
    assert!(last(long).is_none() && last(short).is_some());
    joined.hub.end("lab", alive, false).await.expect("the node is there");
    assert_eq!(joined.hub.life("lab", alive), Life::Over);
    let told = joined.hub.end("lab", many[0], false).await;
    assert!(told.is_ok() && joined.hub.last_view("lab", many[0]).is_some(), "told by itself when it is asked for");
    drop(joined.dir);
}

#[tokio::test]
async fn an_output_that_the_server_s_disk_refused_is_there_once_it_takes_it() {
    let joined = Joined::start().await;
    let (copy, jobs) = (joined.dir.path().join("copy"), joined.dir.path().join("node/jobs"));
    // What a full disk does, too: nothing can be written.
    std::fs::create_dir(&copy).expect("in the way");
    std::fs::create_dir_all(jobs.join("7")).expect("made");
    std::fs::write(jobs.join("7").join(output::name_of(StintId::of_job(WorkloadId(7), 1), 0)), "said")
        .expect("written");
    tokio::time::sleep(Duration::from_secs(1)).await;
    std::fs::remove_dir(&copy).expect("out of the way");
    joined.until("all of it was taken over", |_| std::fs::read(&copy).is_ok_and(|text| text == b"said")).await;
}

#[tokio::test]
async fn what_an_agent_was_killed_before_it_removed_is_removed_by_the_next() {
    let joined = Joined::start_with(|state| {
        for folder in ["jobs/7/saves-1/deep", "jobs/8/saves-1", "jobs/8/unsaved-2"] {
            std::fs::create_dir_all(state.join(folder)).expect("made");
        }
    })
    .await;
    let jobs = joined.dir.path().join("node/jobs");
    joined.until("it is removed", |_| !jobs.join("7").exists() && !jobs.join("8/saves-1").exists()).await;
    assert!(jobs.join("8/unsaved-2").exists(), "it may be somebody's last copy");
}

#[tokio::test(flavor = "current_thread")]
async fn a_node_goes_on_while_it_removes_what_jobs_left() {
    let joined = Joined::start().await;
    let lease = joined.launch(1).await;
    joined.hub.end("lab", lease, false).await.expect("ended");
    let folder = joined.dir.path().join("node/jobs/7");
    std::fs::create_dir_all(&folder).expect("made");
    (0..15_000).for_each(|n| drop(std::fs::File::create(folder.join(n.to_string())).expect("made")));
    joined.hub.forget("lab", lease);
    let mut in_between = 0;
    // All of this is on one thread, which sees half of it only if that is not what removes it.
    joined
        .until("it is removed", |_| {
            let left = std::fs::read_dir(&folder).map_or(0, Iterator::count);
            in_between += usize::from((1..15_000).contains(&left));
            left == 0
        })
        .await;
    assert!(in_between > 0);
}

/// Machines of a server that finds an empty file where the marks of this lease were.
fn after_a_power_cut(root: &Path, hub: &Arc<Hub>, lease: LeaseId) -> Arc<Machines> {
    let folder = root.join("machines").join(lease.to_string());
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("marks.json"), "").expect("written");
    let (clock, program) = (Arc::new(WorldClock::real(Time(1_000))), PathBuf::from("/bin/true"));
    Machines::open("machines", root.join("machines"), None, Arc::clone(hub), clock, program, None).expect("opened")
}

#[tokio::test]
async fn a_lease_whose_marks_are_lost_is_taken_back_from_its_node_and_not_ended_as_a_stray() {
    let joined = Joined::start().await;
    let lease = joined.launch(1).await;
    joined.until("it is shown", |hub| hub.shown().iter().any(|(_, seen)| seen.lease == lease)).await;
    let machines = after_a_power_cut(joined.dir.path(), &joined.hub, lease);
    for _ in 0..3 {
        let owned = machines.list_owned().await.expect("listed");
        assert_eq!(owned.iter().map(|owned| owned.lease).collect::<Vec<_>>(), [lease]);
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(joined.hub.life("lab", lease), Life::Alive);
    let seen = machines.observe(&[lease.group]).await.expect("observed");
    assert!(matches!(seen[0].leases[0].state, LeaseState::Up { .. }), "{seen:?}");
    let offers = machines.offers().await.expect("offers");
    let offer = offers.iter().find(|offer| offer.accelerators == 1).expect("its accelerator");
    let (want, other) = (Want::of(WorkloadId(2), offer.id.clone(), 1), DecisionId { seq: 2, ..lease.group });
    let refused = machines.acquire(other, &want).await;
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::NoCapacity))), "{refused:?}");
    machines.release(lease.group, &[0]).await.expect("released");
    assert_eq!(joined.hub.life("lab", lease), Life::Over);
}

#[tokio::test]
async fn a_lease_whose_marks_are_lost_is_unknown_while_a_node_is_away_that_may_have_it() {
    let joined = Joined::start().await;
    let lease = joined.launch(1).await;
    // The server begins anew, and the node has not come back yet.
    let hub = Hub::open(&joined.dir.path().join("server"), Duration::from_secs(60), true).expect("opened");
    let machines = after_a_power_cut(joined.dir.path(), &hub, lease);
    machines.list_owned().await.expect("listed");
    let seen = machines.observe(&[lease.group]).await.expect("observed");
    assert_eq!(seen[0].leases[0].state, LeaseState::Pending, "neither there nor gone");
    assert!(machines.release(lease.group, &[0]).await.is_err(), "it may run all the same");
    let want = Want::of(WorkloadId(1), OfferId::new("machines/x"), 1);
    let asked = machines.acquire(lease.group, &want).await;
    assert!(matches!(asked, Err(EngineError::Unreachable { .. })), "and nothing is begun in its place: {asked:?}");
    hub.remove("lab").expect("removed");
    assert_eq!(machines.observe(&[lease.group]).await.expect("observed"), [], "nobody can have it");
}
