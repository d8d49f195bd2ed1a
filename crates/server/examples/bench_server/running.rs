//! Ten thousand jobs that run and say every second how far they are: what the loop writes of that. The loop is the
//! server's own and its store a SQLite file; only engines and agents are made up, since no machine runs so many programs.

use crate::Failure;
use crate::table::Figure;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::brain::Config;
use windfall_core::spec::WorkUnit;
use windfall_core::{
    Address, DecisionId, Event, GroupPhase, JobSpec, LeaseId, Market, NanoUsd, Offer, OfferId, Span, StintId, Time,
    Work, Workload,
};
use windfall_exec::{LeaseState, SeenGroup, SeenLease};
use windfall_server::cycle::{Cycle, Habits, Moment, Step};
use windfall_server::dispatch::Look;
use windfall_store::Store;

const JOBS: u64 = 10_000;
const SECONDS: u64 = 60;
const ENGINE: &str = "bench";

struct Stage {
    cycle: Cycle,
    store: Arc<dyn Store>,
    now: Moment,
    /// What agents say at the next turn.
    said: Vec<Event>,
    rows: usize,
}

pub fn rows_a_second(folder: &std::path::Path) -> Result<Vec<Figure>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure(folder))
}

async fn measure(folder: &std::path::Path) -> Result<Vec<Figure>, Failure> {
    eprintln!("{JOBS} running jobs for {SECONDS} s of their world ...");
    let file = folder.join("running.db");
    let store: Arc<dyn Store> = Arc::from(windfall_store::open(&format!("sqlite:{}", file.display())).await?);
    let (epoch, loaded) = (store.lead().await?, store.load().await?);
    let now = Moment { world: Time(1_000_000), real: Duration::ZERO };
    let cycle = Cycle::start(Habits::default(), Config::default(), &[ENGINE.to_owned()], epoch, loaded, now)?;
    let mut stage = Stage { cycle, store, now, said: Vec::new(), rows: 0 };
    stage.turn().await?;
    stage.cycle.happened((0..JOBS).map(submission));
    stage.pass(1);
    stage.turn().await?;
    stage.pass(1);
    stage.turn().await?;
    stage.start_workers().await?;
    let running = stage.cycle.brain().jobs().filter(|job| job.stint.is_some()).count();
    if running as u64 != JOBS {
        return Err(format!("{running} of {JOBS} jobs run").into());
    }
    // Every first report is written: the next ones count.
    stage.say_progress(1);
    stage.turn().await?;
    let (before, began) = (stage.rows, Instant::now());
    for second in 1..=SECONDS {
        stage.pass(1);
        stage.say_progress(1 + second * 1_000);
        stage.turn().await?;
    }
    let rows = (stage.rows - before) as f64 / SECONDS as f64;
    let share = began.elapsed().as_secs_f64() / SECONDS as f64;
    Ok(vec![
        Figure::at_most("rows a second of 10,000 running jobs", rows, 300.0, "rows/s"),
        Figure::said("the loop's time for a second of them", share, "s"),
    ])
}

impl Stage {
    fn pass(&mut self, seconds: u64) {
        self.now.real += Duration::from_secs(seconds);
        self.now.world = self.now.world + Span::seconds(seconds as i64);
    }

    fn say_progress(&mut self, done: u64) {
        let stints = self.cycle.brain().jobs().filter_map(|job| Some(job.stint.as_ref()?.id));
        self.said.extend(stints.map(|stint| Event::Progress { stint, done: Work(done), total: None }));
    }

    /// Leases come up and agents start what they are told to.
    async fn start_workers(&mut self) -> Result<(), Failure> {
        for _ in 0..4 {
            let up = self.cycle.brain().leases().filter(|lease| lease.up_at.is_none());
            let (at, ready) = (self.now.world, Some(Address::default()));
            let up: Vec<Event> = up
                .map(|lease| Event::LeaseUp { lease: lease.id, at, terms: Box::default(), ready: ready.clone() })
                .collect();
            self.cycle.happened(up);
            let started = self.cycle.brain().jobs().filter_map(|job| Some(job.stint.as_ref()?.id));
            let worker = |stint: StintId| Event::WorkerStarted { stint, rank: 0, restored: None, work: None };
            self.said.extend(started.map(worker));
            self.pass(1);
            self.turn().await?;
        }
        Ok(())
    }

    async fn turn(&mut self) -> Result<(), Failure> {
        self.cycle.turn();
        loop {
            match self.cycle.next(self.now) {
                Step::Rest { .. } => return Ok(()),
                Step::End(why) => return Err(why.into()),
                Step::Look { engine, number, groups, .. } => {
                    let look = self.look(&groups);
                    self.cycle.saw(self.now, &engine, number, Ok(look));
                }
                Step::Hear { .. } => {
                    let said = std::mem::take(&mut self.said);
                    self.cycle.heard(self.now, said);
                }
                Step::Commit(commit) => {
                    self.rows += commit.rows.len();
                    let result = self.store.commit(self.cycle.epoch(), &commit).await;
                    self.cycle.committed(self.now, result);
                }
                Step::Snapshot(task) => {
                    let end = task.run(&*self.store, self.cycle.epoch()).await;
                    self.cycle.snapshot_ended(end);
                }
                _ => {}
            }
        }
    }

    fn look(&self, groups: &[DecisionId]) -> Look {
        let mut leases: BTreeMap<DecisionId, Vec<SeenLease>> = BTreeMap::new();
        for lease in self.cycle.brain().leases() {
            leases.entry(lease.id.group).or_default().push(seen(lease.id, lease.up_at));
        }
        let group = |group: &DecisionId| SeenGroup {
            group: *group,
            phase: GroupPhase::Asked,
            leases: leases.get(group).cloned().unwrap_or_default(),
        };
        Look { offers: vec![offer()], groups: groups.iter().map(group).collect(), ..Look::default() }
    }
}

fn seen(lease: LeaseId, up_at: Option<Time>) -> SeenLease {
    let state = up_at.map_or(LeaseState::Pending, |since| LeaseState::Up {
        since,
        terms: Default::default(),
        ready: Some(Address::default()),
        ends_at: None,
        at_risk: false,
        why: None,
    });
    SeenLease { lease, state }
}

fn offer() -> Offer {
    Offer {
        id: OfferId::new(&format!("{ENGINE}/zone/type/on-demand")),
        engine: ENGINE.to_owned(),
        pool: Default::default(),
        cloud: String::new(),
        region: String::new(),
        zone: "zone".to_owned(),
        instance_type: "type".to_owned(),
        market: Market::OnDemand,
        accelerator: "V100".to_owned(),
        accelerators: 1,
        price_per_hour: NanoUsd(1_000_000_000),
        capacity: None,
        notice: Span::seconds(120),
    }
}

fn submission(number: u64) -> Event {
    let mut spec = JobSpec::named(format!("job-{number}"), vec!["train".to_owned()]);
    (spec.work.unit, spec.work.total) = (WorkUnit::Steps, Some(Work(1_000_000)));
    spec.run.environment = format!("key-{number}");
    spec.policy = Some("on-demand".to_owned());
    Event::Submitted { workload: Workload::from(spec), key: format!("key-{number}"), id: None }
}
