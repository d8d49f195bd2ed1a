//! Calls and observations against an engine that is scripted.

use super::*;
use futures::FutureExt;
use std::sync::Mutex;
use windfall_core::Address;
use windfall_core::brain::Config;
use windfall_core::record::Resume;
use windfall_core::{Allocation, Body, Installation, JobSpec, Market, NanoUsd, Offer, Reason, Record, Time, Workload};
use windfall_exec::{Capabilities, SeenWorker};

/// Shows these offers; its first lease's agent hangs.
#[derive(Default)]
struct Scripted {
    offers: Vec<Offer>,
    stopped: Mutex<Vec<LeaseId>>,
}

fn lease(seq: u64) -> LeaseId {
    LeaseId { group: DecisionId { installation: Installation(1), seq }, slot: 0 }
}

fn offer(zone: &str) -> Offer {
    Offer {
        id: OfferId::new(&format!("scripted/{zone}")),
        engine: "scripted".to_owned(),
        pool: Default::default(),
        cloud: String::new(),
        region: String::new(),
        zone: zone.to_owned(),
        instance_type: "type".to_owned(),
        market: Market::Spot,
        accelerator: "V100".to_owned(),
        accelerators: 1,
        price_per_hour: NanoUsd(1),
        capacity: Some(1),
        notice: Span::seconds(30),
    }
}

#[async_trait]
impl Engine for Scripted {
    fn describe(&self) -> Capabilities {
        Capabilities { name: "scripted".to_owned(), ..Capabilities::default() }
    }
    async fn offers(&self) -> Result<Vec<Offer>, EngineError> {
        Ok(self.offers.clone())
    }
    async fn pools(&self) -> Result<Vec<windfall_core::Pool>, EngineError> {
        Ok(Vec::new())
    }
    async fn acquire(&self, group: DecisionId, _want: &Want) -> Result<SeenGroup, EngineError> {
        Err(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }
    async fn observe(&self, _groups: &[DecisionId]) -> Result<Vec<SeenGroup>, EngineError> {
        Ok(Vec::new())
    }
    async fn list_owned(&self) -> Result<Vec<Owned>, EngineError> {
        Ok(Vec::new())
    }
    async fn release(&self, group: DecisionId, _slots: &[u32]) -> Result<Vec<SeenLease>, EngineError> {
        Err(EngineError::NoLease(LeaseId { group, slot: 0 }))
    }
    async fn forget(&self, _leases: &[LeaseId]) -> Result<(), EngineError> {
        Ok(())
    }
}

#[async_trait]
impl AgentLink for Scripted {
    fn follow(&self, _lease: LeaseId, _address: &Address) {}
    fn last_words(&self, _lease: LeaseId, _address: &Address) {}
    fn workers(&self, _leases: &[LeaseId]) -> Vec<SeenWorker> {
        Vec::new()
    }
    fn unheard(&self) -> Vec<LeaseId> {
        Vec::new()
    }
    fn forget(&self, _leases: &[LeaseId]) {}
    async fn changed(&self) {}
    async fn start(&self, _lease: LeaseId, _order: &StartOrder) -> Result<(), EngineError> {
        Ok(())
    }
    async fn save(&self, _lease: LeaseId, _stint: StintId, _rank: u32, _request: u64) -> Result<(), EngineError> {
        Ok(())
    }
    async fn stop(&self, id: LeaseId, _stint: StintId, _rank: u32, _order: StopOrder) -> Result<(), EngineError> {
        if id == lease(1) {
            std::future::pending::<()>().await;
        }
        self.stopped.lock().expect("one thread").push(id);
        Ok(())
    }
}

#[async_trait]
impl StoreProbe for Scripted {
    async fn probe(&self, access: &StoreAccess) -> Option<Trouble> {
        let kind = windfall_core::TroubleKind::StoreAway;
        Some(Trouble { kind, text: format!("{} does not answer", access.address) })
    }
}

#[test]
fn an_agent_that_hangs_does_not_delay_the_stop_of_its_gang() {
    let engine = Scripted::default();
    let stint = StintId::of_job(WorkloadId(1), 1);
    let task =
        Task::Stop(stint, vec![(lease(1), 0), (lease(2), 1), (lease(3), 2)], StopOrder::within(Span::seconds(30)));
    assert!(perform(Some(&engine), &engine, &engine, &task).now_or_never().is_none(), "the first agent hangs");
    assert_eq!(*engine.stopped.lock().expect("one thread"), [lease(2), lease(3)]);
}

#[test]
fn an_offer_that_the_engine_no_longer_shows_is_gone() {
    let mut brain = Brain::new(Installation(1), Config::default());
    for (seq, zone) in [(1, "kept"), (2, "gone")] {
        let body = Body::Event(Event::OfferSeen { offer: offer(zone) });
        brain.apply(&Record { seq, batch: 1, at: Time(1), body });
    }
    let engine = Scripted { offers: vec![offer("kept")], ..Scripted::default() };
    let look = look(&engine, &[], false).now_or_never().expect("it never waits").expect("seen");
    let seen = observed(&brain, "scripted", &[], &look);
    let news: Vec<&Event> = seen.events.iter().filter(|event| brain.is_news(event)).collect();
    assert_eq!(news, [&Event::OfferGone { offer: offer("gone").id }]);
}

#[test]
fn what_one_engine_shows_says_nothing_of_another() {
    let mut brain = Brain::new(Installation(1), Config::default());
    let body = Body::Event(Event::OfferSeen { offer: offer("kept") });
    brain.apply(&Record { seq: 1, batch: 1, at: Time(1), body });
    let seen = observed(&brain, "another", &[], &Look::default());
    assert_eq!(seen.events, []);
}

#[test]
fn a_task_without_its_engine_is_done_later() {
    let engine = Scripted::default();
    let task = Task::Release("another".to_owned(), lease(1).group, vec![0]);
    let performed = perform(None, &engine, &engine, &task).now_or_never().expect("at once");
    assert!(performed.again && task.engine() == Some("another"));
}

#[test]
fn last_words_come_before_the_end_of_a_machine() {
    let gone = Event::LeaseGone { lease: lease(1), at: Time(2), end: windfall_core::LeaseEnd::Taken };
    let (at, terms) = (Time(1), Box::default());
    let up = Event::LeaseUp { lease: lease(2), at, terms, ready: None };
    let stint = StintId::of_job(WorkloadId(1), 1);
    let word = Event::Progress { stint, done: Work(1), total: None };
    let ordered = in_order(vec![gone.clone(), up.clone()], vec![word.clone()]);
    assert_eq!(ordered, [up, word, gone]);
}

#[test]
fn a_look_at_a_store_says_what_is_wrong_with_it() {
    let (engine, workload) = (Scripted::default(), WorkloadId(7));
    let access = StoreAccess { address: "s3://bucket".to_owned(), ..StoreAccess::default() };
    let performed =
        perform(None, &engine, &engine, &Task::CheckStore(workload, access)).now_or_never().expect("at once");
    let [Event::StoreChecked { workload: asked, trouble: Some(trouble) }] = &performed.events[..] else {
        panic!("{performed:?}")
    };
    assert_eq!((*asked, trouble.text.as_str()), (workload, "s3://bucket does not answer"));
    assert!(!performed.again);
}

/// A gang of two, of which the first lease is up.
fn gang() -> (Brain, [LeaseId; 2], StintId) {
    let mut brain = Brain::new(Installation(1), Config::default());
    let group = lease(2).group;
    let (workload, leases) = (WorkloadId(1), [0, 1].map(|slot| LeaseId { group, slot }));
    let stint = StintId::of_job(workload, 1);
    let spec = JobSpec { gang: 2, ..JobSpec::named("job".to_owned(), vec!["train".to_owned()]) };
    let decided = |decision| Body::Decision(decision, Reason::new("test", "test"));
    let allocations = leases.map(Allocation::whole).to_vec();
    let bodies = [
        Body::Event(Event::Submitted { workload: Workload::from(spec), key: "key".to_owned(), id: None }),
        decided(Decision::Acquire { want: Want::of(workload, OfferId::new("here"), 2) }),
        Body::Event(Event::LeaseUp { lease: leases[0], at: Time(1), terms: Box::default(), ready: None }),
        decided(Decision::Start { stint, allocations, resume: Resume::Newest }),
    ];
    for (body, seq) in bodies.into_iter().zip(1..) {
        brain.apply(&Record { seq, batch: 1, at: Time(1), body });
    }
    (brain, leases, stint)
}

#[test]
fn only_what_was_up_is_missed() {
    let (brain, leases, _) = gang();
    let not_found = |asked: &[DecisionId]| observed(&brain, "here", asked, &Look::default()).not_found;
    assert_eq!(not_found(&[leases[0].group]), [leases[0]], "the other may be on its way");
    assert_eq!(not_found(&[]), [], "a look that began before it was asked for does not miss it");
}

#[test]
fn all_workers_of_a_gang_are_told() {
    let (brain, leases, stint) = gang();
    assert_eq!(workers(&brain, stint), Some(vec![(leases[0], 0), (leases[1], 1)]));
}

#[test]
fn an_agent_tells_of_workers_on_its_own_lease_and_of_no_others() {
    let (brain, leases, stint) = gang();
    let placed = |lease: LeaseId, stint: StintId, rank: u32| {
        is_placed(&brain, &SeenWorker { lease, worker: WorkerView::new(stint, rank) })
    };
    assert!(placed(leases[0], stint, 0) && placed(leases[1], stint, 1));
    assert!(!placed(leases[0], stint, 1) && !placed(leases[1], stint, 0), "the rank of another machine");
    assert!(!placed(lease(9), stint, 0) && !placed(leases[0], stint, 2));
    assert!(placed(lease(9), StintId { epoch: 0, ..stint }, 0), "a stint that is over: its end may be written down");
}

#[test]
fn one_call_of_several_that_failed_is_made_again() {
    let failed = |good: [bool; 2]| {
        let error = || EngineError::Unreachable { why: "silent".to_owned() };
        let calls = good.map(|good| std::future::ready(if good { Ok(()) } else { Err(error()) }));
        any_failed(calls.into_iter()).now_or_never().expect("it waits for nothing")
    };
    assert!(!failed([true, true]));
    assert!(failed([true, false]) && failed([false, false]));
}

#[test]
fn a_real_second_is_as_long_as_the_world_is_fast() {
    assert_eq!(super::world_time(1_500, 60), Span::seconds(90));
    assert_eq!(super::world_time(u64::MAX, 2), Span(i64::MAX));
}

/// Makes orders that name nothing.
struct NoFolders;

impl JobFolders for NoFolders {
    fn start_order(&self, _brain: &Brain, stint: StintId, rank: u32) -> Option<StartOrder> {
        let env = serde_json::json!({});
        let order = serde_json::json!({
            "stint": stint, "rank": rank, "world_size": 1, "master": ["host", 0], "command": [], "folder": "",
            "fresh_folder": false, "env": env, "output": "", "progress": null, "checkpoint_dir": null,
            "checkpoint_store": "", "checkpoint_key": "", "keep": 1, "settle_ms": 0, "resume": Resume::Newest,
            "foreign": [],
        });
        Some(serde_json::from_value(order).expect("what older servers wrote is read: it has no devices"))
    }
    fn store_access(&self, _brain: &Brain, _workload: WorkloadId) -> Option<StoreAccess> {
        None
    }
}

/// Two jobs that share one lease, each with these devices, and the orders that start them.
fn orders_on_one_lease(workloads: [u64; 2], devices: [Option<Vec<u32>>; 2]) -> Vec<StartOrder> {
    let mut brain = Brain::new(Installation(1), Config::default());
    let shared = LeaseId { group: DecisionId { installation: Installation(1), seq: 3 }, slot: 0 };
    let decided = |decision| Body::Decision(decision, Reason::new("test", "test"));
    let mut bodies: Vec<Body> = workloads
        .iter()
        .map(|id| {
            let spec = JobSpec::named(format!("job-{id}"), vec!["train".to_owned()]);
            let workload = Workload::from(spec);
            Body::Event(Event::Submitted { workload, key: format!("key-{id}"), id: Some(WorkloadId(*id)) })
        })
        .collect();
    bodies.push(decided(Decision::Acquire { want: Want::of(WorkloadId(workloads[0]), OfferId::new("here"), 1) }));
    bodies.push(Body::Event(Event::LeaseUp { lease: shared, at: Time(1), terms: Box::default(), ready: None }));
    for (id, devices) in workloads.into_iter().zip(devices) {
        let device = |number| windfall_core::pool::Device { number, part: windfall_core::pool::DevicePart::Whole };
        let devices = devices.map(|numbers| numbers.into_iter().map(device).collect());
        let allocations = vec![Allocation { devices, ..Allocation::whole(shared) }];
        let stint = StintId::of_job(WorkloadId(id), 1);
        bodies.push(decided(Decision::Start { stint, allocations, resume: Resume::Newest }));
    }
    for (body, seq) in bodies.into_iter().zip(1..) {
        brain.apply(&Record { seq, batch: 1, at: Time(1), body });
    }
    let starts = brain.outbox().into_iter().filter(|open| matches!(open.decision, Decision::Start { .. }));
    let tasks: Vec<Task> = starts.filter_map(|open| task(&brain, &NoFolders, &open)).collect();
    let orders = tasks.into_iter().flat_map(|task| match task {
        Task::Start(orders) => orders,
        _ => Vec::new(),
    });
    orders.map(|(_, order)| order).collect()
}

#[test]
fn a_worker_gets_the_devices_of_its_allocation() {
    let orders = orders_on_one_lease([1, 2], [Some(vec![2, 3]), Some(Vec::new())]);
    let devices: Vec<_> = orders.into_iter().map(|order| order.devices).collect();
    assert_eq!(devices, [Some(vec![2, 3]), Some(Vec::new())]);
    let whole = orders_on_one_lease([1, 2], [None, None]);
    assert!(whole.iter().all(|order| order.devices.is_none()), "all that the lease has");
}

#[test]
fn secrets_reach_every_machine_and_nothing_else_of_the_terminal_leaves_this_one() {
    let order = StartOrder {
        secrets: [("TOKEN".to_owned(), SecretFrom::Submission), ("OFFERED".to_owned(), SecretFrom::Server)].into(),
        env: [("NAMED".to_owned(), "job file".to_owned())].into(),
        ..StartOrder::of(StintId::of_job(WorkloadId(1), 1), 0, 1)
    };
    let terminal = [("TOKEN", "hush"), ("PATH", "/bin"), ("NAMED", "terminal"), ("OFFERED", "terminal's own")];
    let env = terminal.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let notes = JobNotes { env, ..JobNotes::default() };
    let (here, there) = (lease(1), lease(2));
    let offered = |name: &str| (name == "OFFERED").then(|| "of the operator".to_owned());
    let mut task = Task::Start(vec![(here, order.clone()), (there, order.clone())]);
    task.equip(&notes, |lease| lease == there, offered).expect("all are there");
    let Task::Start(orders) = &task else { panic!("{task:?}") };
    let env = |n: usize| orders[n].1.env.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    assert_eq!(env(0), ["NAMED=job file", "OFFERED=of the operator", "PATH=/bin", "TOKEN=hush"]);
    assert_eq!(env(1), ["NAMED=job file", "OFFERED=of the operator", "TOKEN=hush"]);

    let secrets = order.secrets.clone();
    let check = Task::CheckStore(WorkloadId(1), StoreAccess { secrets, ..StoreAccess::default() });
    for mut task in [Task::Start(vec![(here, order.clone())]), check] {
        let why = task.equip(&notes, |_| false, |_| None).expect_err("nobody offers it");
        assert!(why.contains("WINDFALL_SECRET_OFFERED") && !why.contains("hush"), "{why}");
        // It is waited for as for a store that is away: nothing is held, and it is looked at again.
        let waits = task.unequipped(&why);
        assert!(!waits.again, "{waits:?}");
        match &waits.events[..] {
            [Event::WorkerEnded { end: WorkerEnd::StoreAway { .. }, settled: true, .. }] => {}
            [Event::StoreChecked { trouble: Some(trouble), .. }] => assert!(trouble.kind.is_of_the_store()),
            other => panic!("{other:?}"),
        }
    }
    let why =
        Task::Start(vec![(here, order)]).equip(&JobNotes::default(), |_| false, offered).expect_err("not submitted");
    assert!(why.contains("TOKEN was not submitted"), "{why}");
}

#[test]
fn every_rank_tells_what_it_could_not_bring_back_and_the_first_alone_of_checkpoints() {
    let told = |rank: u32, kind: TroubleKind| {
        let trouble = Some(Trouble { kind, text: String::new() });
        let worker = WorkerView { trouble, ..WorkerView::new(StintId::of_job(WorkloadId(1), 1), rank) };
        worker_events(&worker, 1).iter().any(|event| matches!(event, Event::Troubled { trouble: Some(_), .. }))
    };
    assert!(told(0, TroubleKind::NotReturned) && told(1, TroubleKind::NotReturned));
    assert!(told(0, TroubleKind::StoreAway) && !told(1, TroubleKind::StoreAway));
    // Whoever has nothing to tell takes back nothing that another rank has told.
    let silent = WorkerView::new(StintId::of_job(WorkloadId(1), 1), 1);
    assert_eq!(worker_events(&silent, 1), []);
}
