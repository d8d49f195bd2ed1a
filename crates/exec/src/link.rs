//! Orders to the agents on leases, and what agents tell of their workers. The same for the leases of every engine: an
//! engine that does not answer keeps nobody from hearing of a worker.

use crate::agents::{Door, Doors};
use crate::clock::WorldClock;
use crate::engine::EngineError;
use crate::nodes::Hub;
use crate::tenants;
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use windfall_core::worker::{AgentRequest, AgentView, StartOrder, WorkerView};
use windfall_core::{Address, LeaseId, Span, StintId};

/// The first pause before an agent that cannot be reached is tried again; each is longer than the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The least time between two answers of one agent that are listened to: the program of a job can answer in its agent's place,
/// with something new each time, and everybody who hears of it does something about it.
const BETWEEN: Duration = Duration::from_millis(50);
/// The longest pause, in first ones.
const MOST_PAUSES: u32 = 20;

/// A worker on a lease, as its agent last told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenWorker {
    pub lease: LeaseId,
    pub worker: WorkerView,
}

/// How a worker is told to stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// How long the program may take to save.
    pub grace: Span,
    /// Ranks of its gang whose machines are gone: nobody waits for them.
    pub gone: BTreeSet<u32>,
    /// A person waits for nothing that is saved.
    pub gives_up: bool,
}

impl StopOrder {
    /// One for a worker whose gang is whole.
    pub fn within(grace: Span) -> StopOrder {
        StopOrder { grace, gone: BTreeSet::new(), gives_up: false }
    }
}

/// Speaks to agents, and remembers what they said last.
#[async_trait]
pub trait AgentLink: Send + Sync {
    /// Listens to the agent of a lease from now on, if it does not yet.
    fn follow(&self, lease: LeaseId, address: &Address);

    /// The lease is gone: takes in what its agent wrote down before it ended.
    fn last_words(&self, lease: LeaseId, address: &Address);

    /// What was last heard of the workers on these leases, of several workloads where they share one; those included
    /// whose lease is gone.
    fn workers(&self, leases: &[LeaseId]) -> Vec<SeenWorker>;

    /// Leases of which something was heard since this was last asked, each once.
    fn unheard(&self) -> Vec<LeaseId>;

    /// Nobody will ask for these leases again.
    fn forget(&self, leases: &[LeaseId]);

    /// Returns when something was heard since it last returned.
    async fn changed(&self);

    /// Starts one worker on a lease, beside those of other workloads. Idempotent by stint and rank; refuses an epoch
    /// that is over.
    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError>;

    /// Asks the worker to save; programs that do not listen go on. Requests are numbered, and one that is not
    /// newer than the last is nothing new.
    async fn save(&self, lease: LeaseId, stint: StintId, rank: u32, request: u64) -> Result<(), EngineError>;

    /// SIGTERM to the worker, SIGKILL after the grace. A stint that never started is then over, and a
    /// later start of it is refused.
    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, order: StopOrder) -> Result<(), EngineError>;
}

/// The link to agents on this computer and on the nodes that have joined.
pub struct LocalLink {
    clock: Arc<WorldClock>,
    doors: Doors,
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    followed: BTreeMap<LeaseId, Followed>,
    /// Those of which something was heard since somebody last asked.
    unheard: BTreeSet<LeaseId>,
}

impl Known {
    /// Takes in something of a lease; true when that was news.
    fn hear(&mut self, lease: LeaseId, hear: impl FnOnce(&mut Followed) -> bool) -> bool {
        let is_news = self.followed.get_mut(&lease).is_some_and(hear);
        if is_news {
            self.unheard.insert(lease);
        }
        is_news
    }
}

struct Followed {
    door: Door,
    /// What its agent said last.
    view: Option<AgentView>,
    listening: Option<AbortHandle>,
}

impl Followed {
    /// Takes in what its agent said or wrote down, unless more is known: answers may overtake each other, and only
    /// saves and ends are written down. True when it says something new.
    fn hear(&mut self, said: AgentView) -> bool {
        let is_news = self.view.as_ref().is_none_or(|known| known.pid != said.pid || known.version < said.version);
        if is_news {
            self.view = Some(said);
        }
        is_news
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.listening.iter().for_each(AbortHandle::abort);
    }
}

impl LocalLink {
    /// Spans of orders are of this clock's world.
    pub fn new(clock: Arc<WorldClock>) -> Arc<LocalLink> {
        LocalLink::to(Doors::default(), clock)
    }

    /// The same, also to agents on nodes.
    pub fn with_nodes(clock: Arc<WorldClock>, nodes: Arc<Hub>) -> Arc<LocalLink> {
        LocalLink::to(Doors { nodes: Some(nodes) }, clock)
    }

    fn to(doors: Doors, clock: Arc<WorldClock>) -> Arc<LocalLink> {
        Arc::new(LocalLink { clock, doors, known: Mutex::default(), changed: Notify::new() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heard(&self, lease: LeaseId, view: AgentView) {
        if self.known().hear(lease, |followed| followed.hear(view)) {
            self.changed.notify_one();
        }
    }

    /// Listens to one agent for as long as its lease is followed.
    async fn listen(self: Arc<Self>, lease: LeaseId, door: Door) {
        let (mut above, mut failed) = (0, 0);
        loop {
            match self.doors.ask(lease, &door, &AgentRequest::Watch { above }).await {
                Ok(view) => {
                    (above, failed) = (view.version, 0);
                    self.heard(lease, view);
                    tokio::time::sleep(BETWEEN).await;
                }
                Err(error) => {
                    // Nobody listens there: the agent has ended, or has not begun.
                    let ended = matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound);
                    let written = if ended { self.doors.last_view(lease, &door) } else { None };
                    written.into_iter().for_each(|written| self.heard(lease, written));
                    // One that begins anew counts from its start.
                    above = 0;
                    failed = (failed + 1).min(MOST_PAUSES);
                    tokio::time::sleep(FIRST_PAUSE * failed).await;
                }
            }
        }
    }

    async fn order(&self, lease: LeaseId, request: &AgentRequest) -> Result<(), EngineError> {
        let door = self.known().followed.get(&lease).map(|followed| followed.door.clone());
        let door = door.ok_or(EngineError::NoLease(lease))?;
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let view = self.doors.ask(lease, &door, request).await.map_err(why)?;
        self.heard(lease, view);
        Ok(())
    }
}

#[async_trait]
impl AgentLink for Arc<LocalLink> {
    fn follow(&self, lease: LeaseId, address: &Address) {
        let door = Door::of(address);
        let mut known = self.known();
        let all = &mut known.followed;
        if all.get(&lease).is_some_and(|known| known.listening.is_some() && known.door == door) {
            return;
        }
        let listening = tokio::spawn(Arc::clone(self).listen(lease, door.clone())).abort_handle();
        let view = all.get(&lease).and_then(|known| known.view.clone());
        // What it wrote down while nobody listened counts until it says more.
        let written = self.doors.last_view(lease, &door);
        let mut followed = Followed { door, view, listening: Some(listening) };
        if let Some(written) = written {
            followed.hear(written);
        }
        all.insert(lease, followed);
        known.unheard.insert(lease);
    }

    fn last_words(&self, lease: LeaseId, address: &Address) {
        let door = Door::of(address);
        let written = self.doors.last_view(lease, &door);
        let mut known = self.known();
        known.followed.entry(lease).or_insert(Followed { door, view: None, listening: None });
        known.hear(lease, |followed| written.is_some_and(|written| followed.hear(written)));
    }

    fn workers(&self, leases: &[LeaseId]) -> Vec<SeenWorker> {
        let followed = &self.known().followed;
        let views = leases.iter().filter_map(|lease| Some((*lease, followed.get(lease)?.view.as_ref()?)));
        let seen = |(lease, view): (LeaseId, &AgentView)| {
            let workers = view.workers.clone().into_iter();
            workers.map(move |worker| SeenWorker { lease, worker }).collect::<Vec<_>>()
        };
        views.flat_map(seen).collect()
    }

    fn unheard(&self) -> Vec<LeaseId> {
        std::mem::take(&mut self.known().unheard).into_iter().collect()
    }

    fn forget(&self, leases: &[LeaseId]) {
        let mut known = self.known();
        for lease in leases {
            known.followed.remove(lease);
            known.unheard.remove(lease);
        }
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn start(&self, lease: LeaseId, order: &StartOrder) -> Result<(), EngineError> {
        let door = self.known().followed.get(&lease).map(|followed| followed.door.clone());
        let why = |error: std::io::Error| EngineError::Unreachable { why: error.to_string() };
        let order = match &door {
            Some(Door::Folder(folder)) => tenants::prepared(lease, folder, order).map_err(why)?,
            _ => order.clone(),
        };
        self.order(lease, &AgentRequest::Start(Box::new(order))).await
    }

    async fn stop(&self, lease: LeaseId, stint: StintId, rank: u32, order: StopOrder) -> Result<(), EngineError> {
        let StopOrder { grace, gone, gives_up } = order;
        let (grace_ms, is_torn) = (self.clock.real_time(grace).as_millis() as u64, !gone.is_empty());
        self.order(lease, &AgentRequest::Stop { stint, rank, grace_ms, gone, is_torn, gives_up }).await
    }

    async fn save(&self, lease: LeaseId, stint: StintId, _rank: u32, request: u64) -> Result<(), EngineError> {
        self.order(lease, &AgentRequest::Save { stint, request }).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agents;
    use windfall_core::WorkloadId;

    fn said(version: u64, workloads: &[u64]) -> AgentView {
        let worker = |id: &u64| WorkerView::new(StintId::of_job(WorkloadId(*id), 1), 0);
        AgentView { version, pid: 7, workers: workloads.iter().map(worker).collect() }
    }

    #[test]
    fn neither_a_late_answer_nor_an_old_note_hides_what_an_agent_said_since() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut followed = Followed { door: Door::Folder(dir.path().to_owned()), view: None, listening: None };
        let write = |view: &AgentView| {
            let text = serde_json::to_string(view).expect("a view is JSON");
            std::fs::write(dir.path().join("view.json"), text).expect("written");
        };
        assert!(followed.hear(said(3, &[1, 2])));
        assert!(!followed.hear(said(2, &[1])), "a late answer");
        write(&said(2, &[1]));
        let recall = |followed: &mut Followed| followed.hear(agents::last_view(dir.path()).expect("a note"));
        assert!(!recall(&mut followed), "an old note");
        assert_eq!(followed.view, Some(said(3, &[1, 2])));
        write(&said(4, &[1, 2, 3]));
        assert!(recall(&mut followed), "what nobody heard before it ended");
        assert_eq!(followed.view, Some(said(4, &[1, 2, 3])));
    }

    #[tokio::test]
    async fn an_agent_that_always_has_news_is_not_asked_all_the_time() {
        use tokio::io::AsyncWriteExt;
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join(agents::SOCKET);
        let listener = tokio::net::UnixListener::bind(&socket).expect("bound");
        let asked = Arc::new(Mutex::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let version = {
                    let mut count = count.lock().expect("free");
                    *count += 1;
                    *count
                };
                let text = serde_json::to_string(&said(version, &[1])).expect("a view is JSON");
                let _ = stream.write_all(format!("{text}\n").as_bytes()).await;
            }
        });
        let link = LocalLink::new(Arc::new(WorldClock::real(windfall_core::Time(0))));
        let group = windfall_core::DecisionId { installation: windfall_core::Installation(1), seq: 1 };
        let began = std::time::Instant::now();
        link.follow(LeaseId { group, slot: 0 }, &Address(socket.display().to_string()));
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (asked, most) = (*asked.lock().expect("free"), began.elapsed().as_millis() / BETWEEN.as_millis() + 1);
        assert!((2..=most as u64).contains(&asked), "{asked} times, at most {most}");
    }

    #[tokio::test]
    async fn what_is_news_is_to_be_heard_once() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let link = LocalLink::new(Arc::new(WorldClock::real(windfall_core::Time(0))));
        let group = windfall_core::DecisionId { installation: windfall_core::Installation(1), seq: 1 };
        let [one, two] = [0, 1].map(|slot| LeaseId { group, slot });
        let address = |dir: &tempfile::TempDir| Address(dir.path().join("agent.sock").display().to_string());
        link.follow(one, &address(&dir));
        assert_eq!((link.unheard(), link.unheard()), (vec![one], vec![]), "whoever is new may have said something");
        link.heard(one, said(3, &[1]));
        link.heard(two, said(3, &[1]));
        assert_eq!((link.unheard(), link.unheard()), (vec![one], vec![]), "nobody listens to the other");
        link.heard(one, said(2, &[1]));
        assert_eq!(link.unheard(), [], "a late answer");
        let text = serde_json::to_string(&said(4, &[1])).expect("a view is JSON");
        std::fs::write(other.path().join("view.json"), text).expect("written");
        link.last_words(one, &address(&other));
        assert_eq!(link.unheard(), [one], "what it wrote down where it was last");
        link.heard(one, said(5, &[1]));
        link.forget(&[one]);
        assert_eq!(link.unheard(), []);
    }

    #[test]
    fn what_an_agent_from_before_leases_were_shared_wrote_down_is_read() {
        let dir = tempfile::tempdir().expect("a folder");
        let worker = serde_json::to_string(&said(1, &[5]).workers[0]).expect("a view is JSON");
        let text = format!(r#"{{"version":9,"pid":7,"worker":{worker}}}"#);
        std::fs::write(dir.path().join("view.json"), text).expect("written");
        assert_eq!(agents::last_view(dir.path()), Some(said(9, &[5])));
    }
}
