//! Ended jobs by the million, and a person who pages through them.

use crate::server::Server;
use crate::table::Figure;
use crate::{Failure, client};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use windfall_core::brain::Config;
use windfall_core::view::{JobView, State};
use windfall_core::{Body, Brain, Event, Installation, JobSpec, Outcome, Record, Time, Workload, WorkloadId, codec};
use windfall_server::client::Client;
use windfall_store::{Commit, JobRow, Store};

const AT_ONCE: u64 = 5_000;
/// Jobs on a page.
const PAGE: u64 = 100;
/// Pages that are looked at, over all of the history.
const PAGES: u64 = 300;

pub fn pages(home: &Path, jobs: u64) -> Result<Vec<Figure>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // A first start makes the world; what ended there is then put into its store.
    Server::start(home, None)?.end()?;
    eprintln!("{jobs} ended jobs ...");
    runtime.block_on(fill(home, jobs))?;
    let server = Server::start_again(home, None)?;
    let client = Client::new(home, Vec::new());
    let mut waits = Vec::new();
    for page in 0..PAGES {
        let before = jobs - page * (jobs / PAGES);
        let asked = Instant::now();
        let path = format!("/v1/jobs?all=true&limit={PAGE}&before={}", before + 1);
        let shown: Vec<JobView> = runtime.block_on(client.get(&path)).map_err(|failure| failure.message)?;
        waits.push(asked.elapsed().as_secs_f64());
        let expected: Vec<u64> = (0..PAGE.min(before)).map(|back| before - back).collect();
        if shown.iter().map(|view| view.id.0).ne(expected.iter().copied()) {
            return Err(format!("a page before job {before} shows other jobs").into());
        }
    }
    server.end()?;
    waits.sort_by(f64::total_cmp);
    let what = format!("a page of {PAGE} of {jobs} ended jobs, P99, SQLite");
    Ok(vec![Figure::wait(&what, client::p99(&waits), 0.100)])
}

async fn fill(home: &Path, jobs: u64) -> Result<(), Failure> {
    let store: Arc<dyn Store> =
        Arc::from(windfall_store::open(&format!("sqlite:{}", home.join("state.db").display())).await?);
    let epoch = store.lead().await?;
    let view = ended();
    for first in (1..=jobs).step_by(AT_ONCE as usize) {
        let last = (first + AT_ONCE - 1).min(jobs);
        let commit = Commit { jobs: (first..=last).map(|number| row(&view, number)).collect(), ..Commit::default() };
        store.commit(epoch, &commit).await?;
    }
    store.close().await;
    Ok(())
}

/// A job as the brain shows it, ended.
fn ended() -> JobView {
    let mut brain = Brain::new(Installation(1), Config::default());
    let spec = JobSpec::named("bench", vec!["python".to_owned(), "train.py".to_owned()]);
    let event = Event::Submitted { workload: Workload::from(spec), key: "key".to_owned(), id: Some(WorkloadId(1)) };
    brain.apply(&Record { seq: 1, batch: 1, at: Time(1_000), body: Body::Event(event) });
    let mut view = brain.view(WorkloadId(1), Time(1_000)).expect("it was submitted");
    (view.state, view.outcome, view.ended_at) = (State::Succeeded, Some(Outcome::Succeeded), Some(Time(2_000)));
    view
}

fn row(view: &JobView, number: u64) -> JobRow {
    let view = JobView { id: WorkloadId(number), key: format!("key-{number}"), ..view.clone() };
    JobRow {
        workload: number,
        name: view.name.clone(),
        owner: view.owner.clone(),
        state: view.state.word().to_owned(),
        live: false,
        submitted_at_ms: view.submitted_at.0,
        ended_at_ms: view.ended_at.map(|at| at.0),
        version: codec::VERSION,
        summary: codec::encode(&view).into(),
    }
}
