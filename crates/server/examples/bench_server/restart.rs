//! A start with very many live jobs. Their submissions are put into the log as a server would have written them, so that
//! filling takes seconds; the first start replays that log, and the next one begins with the snapshot that the first made.

use crate::server::Server;
use crate::table::Figure;
use crate::{Failure, client};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::brain::Config;
use windfall_core::{Body, Event, Workload, WorkloadId, codec};
use windfall_store::{Commit, Notes, Row, Store};

const AT_ONCE: u64 = 2_000;
/// A first snapshot of everything takes seconds.
const SNAPSHOT_WITHIN: Duration = Duration::from_secs(120);

pub fn starts(home: &Path, live: u64) -> Result<Vec<Figure>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Server::start(home, None)?.end()?;
    eprintln!("{live} live jobs in the log ...");
    runtime.block_on(fill(home, live))?;
    let (replayed, server) = start(home, live)?;
    runtime.block_on(wait_for_snapshot(home, live))?;
    let home = server.kill()?;
    let (from_snapshot, server) = start(&home, live)?;
    let memory = server.memory()?;
    server.kill()?;
    Ok(vec![
        Figure::said(&format!("start with {live} live jobs, from the log alone, SQLite"), replayed, "s"),
        Figure::wait(&format!("start with {live} live jobs, from a snapshot, SQLite"), from_snapshot, 3.0),
        Figure::memory(&format!("memory with {live} live jobs after that, SQLite"), memory, 1e9),
    ])
}

/// How long it takes until a server answers that knows all of them.
fn start(home: &Path, live: u64) -> Result<(f64, Server), Failure> {
    let began = Instant::now();
    let server = Server::start_again(home, None)?;
    let took = began.elapsed().as_secs_f64();
    match server.live_jobs()? as u64 {
        known if known == live => Ok((took, server)),
        known => Err(format!("{known} of {live} jobs are known after a start").into()),
    }
}

async fn open(home: &Path) -> Result<Arc<dyn Store>, Failure> {
    Ok(Arc::from(windfall_store::open(&format!("sqlite:{}", home.join("state.db").display())).await?))
}

async fn fill(home: &Path, live: u64) -> Result<(), Failure> {
    let store = open(home).await?;
    let epoch = store.lead().await?;
    let loaded = store.load().await?;
    let (mut seq, mut batch) = (loaded.next_seq, loaded.next_batch);
    let at_ms = loaded.tail.last().map_or(1_000, |row| row.at_ms);
    if loaded.next_seq == 1 {
        let body = Body::Event(Event::Configured { config: Box::new(Config::default()) });
        store.commit(epoch, &Commit { rows: vec![row(seq, batch, at_ms, None, &body)], ..Commit::default() }).await?;
        (seq, batch) = (seq + 1, batch + 1);
    }
    let environment = windfall_server::client::environment();
    let secret: Arc<[u8]> = serde_json::to_vec(&environment)?.into();
    for first in (1..=live).step_by(AT_ONCE as usize) {
        let (mut rows, mut notes) = (Vec::new(), Vec::new());
        for number in first..=(first + AT_ONCE - 1).min(live) {
            let submission = client::submission(&environment);
            let mut spec = submission.spec;
            (spec.owner, spec.run.environment) = ("bench".to_owned(), submission.key.clone());
            let (workload, id) = (Workload::from(spec), Some(WorkloadId(number)));
            let body = Body::Event(Event::Submitted { workload, key: submission.key, id });
            rows.push(row(seq, batch, at_ms, id, &body));
            notes.push(Notes { workload: number, secret: Some(secret.clone()), text: "{\"foreign\":[]}".into() });
            seq += 1;
        }
        batch += 1;
        store.commit(epoch, &Commit { rows, notes, ..Commit::default() }).await?;
    }
    store.close().await;
    Ok(())
}

fn row(seq: u64, batch: u64, at_ms: i64, workload: Option<WorkloadId>, body: &Body) -> Row {
    let workload = workload.map(|id| id.0);
    let (kind, payload) = (body.kind().into(), codec::encode(body).into());
    Row { seq, batch, at_ms, workload, kind, version: codec::VERSION, payload }
}

/// Waits until the server has made a snapshot that covers all of them.
async fn wait_for_snapshot(home: &Path, live: u64) -> Result<(), Failure> {
    let (store, until) = (open(home).await?, Instant::now() + SNAPSHOT_WITHIN);
    while Instant::now() < until {
        let loaded = store.load().await?;
        if loaded.snapshot.is_some_and(|snapshot| snapshot.seq > live) {
            store.close().await;
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err("the server made no snapshot".into())
}
