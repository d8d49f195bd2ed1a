//! How long a start takes with a long history: 100,000 ended jobs in the store, and a log to replay.

use std::sync::Arc;
use std::time::Instant;
use windfall_core::brain::Config;
use windfall_core::{Event, JobSpec, Time, Workload, WorkloadId};
use windfall_server::cycle::{Cycle, CycleError};

const JOBS: u64 = 100_000;
const AT_ONCE: u64 = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), CycleError> {
    let file = std::env::temp_dir().join(format!("windfall-bench-restart-{}.db", std::process::id()));
    let address = format!("sqlite:{}", file.display());
    let store = Arc::from(windfall_store::open(&address).await?);
    let mut cycle = Cycle::open(store, Config::default()).await?;
    let began = Instant::now();
    let mut records = 0;
    for batch in 0..JOBS / AT_ONCE {
        let now = Time(1_000 + batch as i64 * 1_000);
        let submitted = (0..AT_ONCE).map(|number| submission(batch * AT_ONCE + number)).collect();
        let stepped = cycle.step(now, submitted).await?;
        let cancels = stepped
            .logged
            .iter()
            .flatten()
            .map(|id| Event::CancelRequested { workload: WorkloadId(*id), by: "bench".into() });
        let cancels: Vec<Event> = cancels.collect();
        cycle.step(now, cancels).await?;
        records = cycle.brain().last_seq();
    }
    println!("wrote {JOBS} jobs, {records} records in {:.1} s", began.elapsed().as_secs_f64());
    drop(cycle);
    let began = Instant::now();
    let store = Arc::from(windfall_store::open(&address).await?);
    let cycle = Cycle::open(store, Config::default()).await?;
    println!("start with {JOBS} jobs in history, last snapshot and tail: {:.3} s", began.elapsed().as_secs_f64());
    println!("live jobs after the start: {}", cycle.brain().jobs().count());
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    Ok(())
}

fn submission(number: u64) -> Event {
    let mut spec = JobSpec::named(format!("job-{number}"), vec!["true".into()]);
    spec.run.environment = format!("key-{number}");
    Event::Submitted { workload: Box::new(Workload::Job(spec)), key: format!("key-{number}") }
}
