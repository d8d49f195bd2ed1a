//! Answers to people's questions, beside the loop: from the state that is durable, from what agents said last, and from
//! the store where the state has forgotten a job. Nobody who only asks enters the loop, and nobody waits for a commit.

use crate::api_types::{DatabaseAway, EngineView, ExplainAnswer, Hello, JobAnswer, Problem};
use crate::archive::Archive;
use crate::cycle::{Refused, path_in_use};
use crate::durable::Durable;
use crate::refusals::refusal;
use crate::{history, problem};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;
use windfall_core::brain::Explanation;
use windfall_core::english::with_causes;
use windfall_core::view::{JobView, State};
use windfall_core::worker::WorkerView;
use windfall_core::{Brain, LeaseId, LedgerRow, Time, WorkloadId};
use windfall_exec::{AgentLink, Recording, WorldClock};
use windfall_store::{LedgerQuery, StoreError};

/// How long a store that is away may take to answer a question.
const WHILE_AWAY: Duration = Duration::from_secs(2);

/// Jobs that are shown in one go: the loop waits for whoever reads, for a fraction of a millisecond.
const AT_ONCE: usize = 32;

/// What the loop says of itself whenever that has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The last row that is durable.
    pub seq: u64,
    /// Since when and why nothing can be written, if so.
    pub away: Option<(Instant, String)>,
}

/// Answers questions.
#[derive(Clone)]
pub(crate) struct Reader {
    pub durable: Arc<Durable>,
    pub standing: watch::Receiver<Standing>,
    pub archive: Archive,
    pub clock: Arc<WorldClock>,
    pub link: Arc<dyn AgentLink>,
    /// Whether this server is a service: no client may put another in its place.
    pub is_service: bool,
    /// Where it takes nodes in, if it does.
    pub listens: Option<SocketAddr>,
}

/// Where the ledger stands.
pub(crate) struct LedgerState {
    /// The last row that is durable.
    pub last_row: u64,
    /// What those rows do not show yet.
    pub open: Vec<LedgerRow>,
    /// The world's clock.
    pub now: Time,
    /// The recording that this world replays, if it does: its days are not those of the calendar on the wall.
    pub replays: Option<String>,
}

impl Reader {
    pub fn hello(&self) -> Hello {
        let away = self.standing.borrow().away.clone().map(|(since, why)| {
            let at = SystemTime::now().checked_sub(since.elapsed()).and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            DatabaseAway {
                since_unix_ms: at.map_or(0, |at| at.as_millis() as u64),
                for_ms: since.elapsed().as_millis() as u64,
                why,
            }
        });
        let live_jobs = self.durable.live_jobs();
        let shown =
            |brain: &Brain| (brain.installation().to_string(), brain.leases().count(), self.engine_views(brain));
        let (installation, leases, engines) = self.durable.read(shown);
        Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            installation,
            speed: self.clock.speed(),
            engines,
            now: self.clock.now(),
            live_jobs,
            leases,
            database_away: away,
            is_service: self.is_service,
            listens: self.listens,
        }
    }

    fn engine_views(&self, brain: &Brain) -> Vec<EngineView> {
        let engines = &self.archive.engines;
        let view = |name: String| {
            let recording = engines.recordings().find(|(engine, _)| **engine == name).map(|(_, known)| known);
            EngineView {
                machines: engines.get(&name).map(|engine| engine.describe().machines).unwrap_or_default(),
                zones: recording.map(Recording::zones).unwrap_or_default(),
                replays: recording.map(|recording| recording.name().to_owned()),
                silent_since: brain.silent_since(&name),
                name,
            }
        };
        engines.names().into_iter().map(view).collect()
    }

    /// The newest live jobs below a number, newest first, so many of them. Others run between a few jobs and the next.
    pub async fn live(&self, name: Option<&str>, before: Option<u64>, limit: usize) -> Vec<JobView> {
        let wanted = |brain: &Brain| {
            let below = brain.jobs_below(WorkloadId(before.unwrap_or(u64::MAX)));
            let named = below.filter(|job| name.is_none_or(|name| name == job.spec.name));
            named.take(limit).map(|job| job.id).collect::<Vec<WorkloadId>>()
        };
        let (ids, now) = (self.durable.read(wanted), self.clock.now());
        let mut shown: Vec<JobView> = Vec::with_capacity(ids.len());
        for some in ids.chunks(AT_ONCE) {
            self.durable.read(|brain| shown.extend(some.iter().filter_map(|id| brain.view(*id, now))));
            tokio::task::yield_now().await;
        }
        shown
    }

    /// The last ledger row that is durable.
    pub fn last_ledger_row(&self) -> u64 {
        self.durable.read_books(|_, last_row| last_row)
    }

    /// Where the ledger stands: the durable rows, and what leases that still run have cost since.
    pub fn books(&self) -> LedgerState {
        let now = self.clock.now();
        let (last_row, open) = self.durable.read_books(|brain, last_row| (last_row, brain.open_ledger(now)));
        LedgerState { last_row, open, now, ..self.books_without_open() }
    }

    /// The same for a page that is not the last: what is open is a walk over all leases.
    pub fn books_without_open(&self) -> LedgerState {
        let (last_row, open, now) = (self.last_ledger_row(), Vec::new(), self.clock.now());
        let replays = self.archive.engines.recordings().map(|(_, recording)| recording.name().to_owned()).next();
        LedgerState { last_row, open, now, replays }
    }

    /// The job, live or hardly ended, whose checkpoints lie under a key.
    pub fn saver_in(&self, key: &str) -> Option<WorkloadId> {
        self.durable.read_paths(|brain, paths| paths.savers_in(brain, key).next().map(|job| job.id))
    }

    /// The same for a checkpoint path.
    pub fn saver_at(&self, path: &str) -> Option<WorkloadId> {
        match self.durable.read_paths(|brain, paths| path_in_use(brain, paths, path)) {
            Some(Refused::PathInUse { by, .. }) => Some(by),
            _ => None,
        }
    }

    /// Reads from the store. One that takes no commits may still be read, as on a full disk; while it is away, an answer is not
    /// waited for as long as it would be otherwise.
    pub async fn reading<T>(&self, read: impl Future<Output = T>) -> Result<T, Problem> {
        let away = self.standing.borrow().away.as_ref().map(|(_, why)| why.clone());
        let Some(why) = away else { return Ok(read.await) };
        tokio::time::timeout(WHILE_AWAY, read).await.map_err(|_| refusal(&Refused::Away { why }))
    }

    async fn find(&self, id: WorkloadId) -> Result<JobView, Problem> {
        self.reading(self.archive.find(id)).await?
    }

    /// One job, live or ended.
    pub async fn job(&self, id: WorkloadId) -> Result<JobAnswer, Problem> {
        let known = self.durable.read(|brain| {
            let job = brain.view(id, self.clock.now())?;
            // Not over for good before its leases are gone: then the bill would still change.
            let settled = job.state == State::Paused && brain.leases_of(id).next().is_none();
            Some((job, settled, leases_under(brain, id)))
        });
        let Some((job, settled, leases)) = known else {
            return Ok(self.archive.ended_job(self.find(id).await?).await);
        };
        let workers = self.workers_of(id, &leases);
        let away = self.standing.borrow().away.as_ref().map(|(_, why)| format!("the database is away: {why}"));
        let trouble = workers.iter().find_map(|worker| worker.trouble.as_ref()).or(job.trouble.as_ref());
        let trouble = trouble.map(|trouble| trouble.text.clone());
        let bill = match settled {
            true => Some(self.archive.bill(&job).await),
            false => None,
        };
        Ok(JobAnswer {
            bill,
            pids: workers.iter().filter(|worker| worker.end.is_none()).filter_map(|worker| worker.pid).collect(),
            last_words: Vec::new(),
            trouble: away.or(trouble),
            evidence: workers.into_iter().next().map(|worker| worker.evidence),
            job,
        })
    }

    /// Workers of ended stints as they were last seen, then those of the present one.
    pub async fn stints(&self, id: WorkloadId) -> Result<Vec<WorkerView>, Problem> {
        let now = self.clock.now();
        let (known, leases) = self.durable.read(|brain| (brain.view(id, now), leases_under(brain, id)));
        let present = self.workers_of(id, &leases);
        let job = match known {
            Some(view) => view,
            None => self.find(id).await?,
        };
        Ok(self.archive.ended_workers(&job).into_iter().chain(present).collect())
    }

    fn workers_of(&self, id: WorkloadId, leases: &[LeaseId]) -> Vec<WorkerView> {
        // Others may run on the same lease.
        let workers = self.link.workers(leases).into_iter().map(|seen| seen.worker);
        workers.filter(|worker| worker.stint.workload == id).collect()
    }

    /// Where the loop stands, for whoever looks next and then waits until that is over ([`Reader::changed`]): what happens
    /// between look and wait is not missed.
    pub fn stands(&self) -> watch::Receiver<Standing> {
        let mut standing = self.standing.clone();
        standing.mark_unchanged();
        standing
    }

    /// Waits until something was committed or the loop says something else of itself, but no longer than this.
    pub async fn changed(mut standing: watch::Receiver<Standing>, within: Duration) {
        let _ = tokio::time::timeout(within, standing.changed()).await;
    }

    /// Why a job stands where it stands. `present` is what the loop says of it; where it does not answer, what is durable
    /// does.
    pub async fn explain(&self, id: WorkloadId, present: Option<Explanation>) -> Result<ExplainAnswer, Problem> {
        let now = self.clock.now();
        let (known, durable) = self.durable.read(|brain| (brain.view(id, now), brain.explain(id, now)));
        let job = match known {
            Some(view) => view,
            None => self.find(id).await?,
        };
        let refused = |error: StoreError| problem(503, "store-refused", &with_causes(&error));
        let rows = self.reading(self.archive.store.rows_of(id.0, 0, 100_000)).await?.map_err(refused)?;
        let of_job = LedgerQuery { workload: Some(id.0), ..LedgerQuery::default() };
        let ledger = self.reading(self.archive.store.ledger(&of_job)).await?.map_err(refused)?;
        let present = present.or(durable);
        Ok(ExplainAnswer {
            lines: history::lines(&rows, &ledger, job.submitted_at),
            policy: present.as_ref().map(|present| present.policy.clone()),
            next_wakeup: present.as_ref().and_then(|present| present.next_wakeup),
            present: present.map(|present| present.reason),
            job,
        })
    }
}

/// Its leases, or others' on which it runs.
fn leases_under(brain: &Brain, id: WorkloadId) -> Vec<LeaseId> {
    let shared = brain.job(id).and_then(|job| job.stint.as_ref()).into_iter().flat_map(|stint| stint.leases());
    let shared = shared.filter(|lease| brain.lease(*lease).is_some());
    let leases: BTreeSet<LeaseId> = brain.leases_of(id).map(|lease| lease.id).chain(shared).collect();
    leases.into_iter().collect()
}
