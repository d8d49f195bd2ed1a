//! The list of jobs, page by page.

use super::*;
use crate::archive::Archive;
use crate::durable::Durable;
use crate::engines::Engines;
use crate::home::Home;
use crate::reader::Standing;
use futures::FutureExt;
use tokio::sync::watch;
use windfall_core::brain::Config;
use windfall_core::{Brain, Installation, Record, Time, Workload};
use windfall_exec::{LocalLink, WorldClock};
use windfall_store::{Commit, JobRow, MemoryStore, Store};

/// Jobs 1 to 250 have ended; of 240 to 260, which live, the list of the store knows some still.
async fn api(folder: &std::path::Path) -> ApiState {
    let mut brain = Brain::new(Installation(1), Config::default());
    for (number, seq) in (240..=260).zip(1..) {
        let spec = JobSpec::named(format!("job-{}", number % 2), vec!["run".to_owned()]);
        let (workload, id) = (Workload::from(spec), Some(WorkloadId(number)));
        let event = Event::Submitted { workload, key: number.to_string(), id };
        brain.apply(&Record { seq, batch: 1, at: Time(1_000), body: windfall_core::Body::Event(event) });
    }
    let view = brain.view(WorkloadId(240), Time(1_000)).expect("submitted");
    let row = |number: u64| {
        let view = JobView { id: WorkloadId(number), name: format!("job-{}", number % 2), ..view.clone() };
        JobRow {
            workload: number,
            name: view.name.clone(),
            owner: String::new(),
            state: "succeeded".to_owned(),
            live: false,
            submitted_at_ms: 0,
            ended_at_ms: Some(0),
            version: codec::VERSION,
            summary: codec::encode(&view).into(),
        }
    };
    let store = MemoryStore::new();
    let epoch = store.lead().await.expect("led");
    let commit = Commit { jobs: (1..=250).map(row).collect(), ..Commit::default() };
    store.commit(epoch, &commit).await.expect("written");
    over(folder, store, Durable::new(brain, 0), Time(2_000))
}

/// What handlers need, over a store and the state that is durable, at a time.
pub(super) fn over(folder: &std::path::Path, store: MemoryStore, durable: Durable, now: Time) -> ApiState {
    let archive = Archive {
        store: Arc::new(store),
        home: Arc::new(Home::open(folder).expect("a state directory")),
        engines: Engines::default(),
        seal: Arc::new(crate::seal::Seal::of(folder).expect("a key")),
    };
    let clock = Arc::new(WorldClock::replayed(now, 1));
    let link = Arc::new(LocalLink::new(Arc::clone(&clock)));
    let (_, standing) = watch::channel(Standing::default());
    let reader =
        Reader { durable: Arc::new(durable), standing, archive, clock, link, is_service: false, listens: None };
    let asked = Arc::new(Asked::new(std::time::Instant::now()));
    ApiState {
        asks: mpsc::channel(1).0,
        reader: Arc::new(reader),
        probes: Probes::default(),
        asked,
        nodes: None,
        machines: None,
        runs_as_submitters: false,
    }
}

async fn page(api: &ApiState, all: bool, name: Option<&str>, before: Option<u64>) -> Vec<u64> {
    let query = JobsQuery { all, name: name.map(str::to_owned), before, limit: Some(60) };
    let asker = ConnectInfo(Principal::of(1_000, 1_000));
    let Json(shown) = jobs(State(api.clone()), asker, Query(query)).await.expect("a page");
    shown.into_iter().map(|view| view.id.0).collect()
}

#[tokio::test]
async fn a_list_without_a_limit_is_a_page_and_lets_others_run_while_it_is_made() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut brain = Brain::new(Installation(1), Config::default());
    for number in 1..=u64::from(MOST_LISTED) + 50 {
        let spec = JobSpec::named("job", vec!["run".to_owned()]);
        let (workload, id) = (Workload::from(spec), Some(WorkloadId(number)));
        let event = Event::Submitted { workload, key: number.to_string(), id };
        let body = windfall_core::Body::Event(event);
        brain.apply(&Record { seq: number, batch: 1, at: Time(1_000), body });
    }
    let mut api = api(folder.path()).await;
    Arc::get_mut(&mut api.reader).expect("its own").durable = Arc::new(Durable::new(brain, 0));
    assert!(api.reader.live(None, None, 100).now_or_never().is_none(), "others run after a few jobs");
    let query = JobsQuery { all: false, name: None, before: None, limit: None };
    let asker = ConnectInfo(Principal::of(1_000, 1_000));
    let Json(shown) = jobs(State(api), asker, Query(query)).await.expect("a page");
    assert_eq!(shown.len(), MOST_LISTED as usize);
}

#[tokio::test]
async fn pages_show_every_job_once_newest_first_live_or_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let api = api(folder.path()).await;
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let shown = page(&api, true, None, before).await;
        before = shown.last().copied();
        seen.extend_from_slice(&shown);
        if shown.len() < 60 {
            break;
        }
    }
    assert_eq!(seen, (1..=260).rev().collect::<Vec<u64>>());
    assert_eq!(page(&api, false, None, Some(243)).await, [242, 241, 240]);
    assert_eq!(page(&api, true, Some("job-1"), Some(6)).await, [5, 3, 1]);
}
