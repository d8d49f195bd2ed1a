//! How long a start takes with a long history: 100,000 ended jobs in the store, and a log to replay.

use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::brain::Config;
use windfall_core::{Event, JobSpec, Time, Workload, WorkloadId};
use windfall_server::cycle::{Cycle, Habits, Moment, Step};
use windfall_server::dispatch::Look;
use windfall_store::Store;

const JOBS: u64 = 100_000;
const AT_ONCE: u64 = 500;

type Failure = Box<dyn std::error::Error>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let file = std::env::temp_dir().join(format!("windfall-bench-restart-{}.db", std::process::id()));
    let address = format!("sqlite:{}", file.display());
    let store: Arc<dyn Store> = Arc::from(windfall_store::open(&address).await?);
    let mut cycle = start(&store).await?;
    let began = Instant::now();
    for batch in 0..JOBS / AT_ONCE {
        let now = Moment { world: Time(1_000 + batch as i64 * 1_000), real: Duration::from_secs(batch) };
        cycle.happened((0..AT_ONCE).map(|number| submission(batch * AT_ONCE + number)));
        turn(&mut cycle, &store, now).await?;
        let live: Vec<WorkloadId> = cycle.brain().jobs().map(|job| job.id).collect();
        cycle.happened(live.into_iter().map(|workload| Event::CancelRequested { workload, by: "bench".into() }));
        turn(&mut cycle, &store, now).await?;
    }
    let records = cycle.brain().last_seq();
    println!("wrote {JOBS} jobs, {records} records in {:.1} s", began.elapsed().as_secs_f64());
    drop((cycle, store));
    let began = Instant::now();
    let store: Arc<dyn Store> = Arc::from(windfall_store::open(&address).await?);
    let cycle = start(&store).await?;
    println!("start with {JOBS} jobs in history, last snapshot and tail: {:.3} s", began.elapsed().as_secs_f64());
    println!("live jobs after the start: {}", cycle.brain().jobs().count());
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    Ok(())
}

async fn start(store: &Arc<dyn Store>) -> Result<Cycle, Failure> {
    let (epoch, loaded) = (store.lead().await?, store.load().await?);
    let now = Moment { world: Time(0), real: Duration::ZERO };
    Ok(Cycle::start(Habits::default(), Config::default(), &["bench".to_owned()], epoch, loaded, now)?)
}

/// One turn without an engine.
async fn turn(cycle: &mut Cycle, store: &Arc<dyn Store>, now: Moment) -> Result<(), Failure> {
    cycle.turn();
    loop {
        match cycle.next(now) {
            Step::Look { engine, number, .. } => cycle.saw(now, &engine, number, Ok(Look::default())),
            Step::Hear { .. } => cycle.heard(now, Vec::new()),
            Step::Commit(commit) => {
                store.commit(cycle.epoch(), &commit).await?;
                cycle.committed(now, Ok(()));
            }
            Step::Snapshot(task) => {
                let end = task.run(&**store, cycle.epoch()).await;
                cycle.snapshot_ended(end);
            }
            Step::Rest { .. } => return Ok(()),
            _ => {}
        }
    }
}

fn submission(number: u64) -> Event {
    let mut spec = JobSpec::named(format!("job-{number}"), vec!["true".into()]);
    spec.run.environment = format!("key-{number}");
    Event::Submitted { workload: Workload::from(spec), key: format!("key-{number}"), id: None }
}
