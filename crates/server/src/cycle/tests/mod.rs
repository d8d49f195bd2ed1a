//! The loop against a scripted store and engine: what it asks for, in which order, and what it does after an error.

mod engines;
mod leading;
mod notes;

use super::*;
use crate::dispatch::Look;
use futures::FutureExt;
use std::time::Duration;
use windfall_core::spec::CheckpointSpec;
use windfall_core::{Address, GroupPhase, JobSpec, Market, NanoUsd, Offer, Span, Time, Workload, WorkloadId};
use windfall_exec::{LeaseState, Owned, SeenGroup, SeenLease};
use windfall_store::{MemoryStore, Store};

/// A loop on a store in memory. Time stands still unless it is moved.
struct Stage {
    cycle: Cycle,
    store: MemoryStore,
    now: Moment,
    /// What the loop asked for since it was last looked at.
    calls: Vec<&'static str>,
    answers: Vec<(Ticket, Answer)>,
    said: Vec<String>,
    commits: u64,
    leads: u64,
    ended: Option<String>,
    /// Leases that the engine does not find.
    not_found: Vec<LeaseId>,
    /// Looks that hang, by engine.
    hanging: Vec<String>,
    /// The number of the last look at each engine.
    looks: BTreeMap<String, u64>,
    /// Whether all agents were to be heard, of each time that some were.
    heard_all: Vec<bool>,
}

const ENGINE: &str = "stage";
const OTHER: &str = "other";

fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("a store in memory never waits")
}

impl Stage {
    fn new() -> Stage {
        Stage::on(MemoryStore::new(), Config::default())
    }

    /// A server that starts on what another left.
    fn on(store: MemoryStore, config: Config) -> Stage {
        Stage::with(store, config, &[ENGINE])
    }

    fn with(store: MemoryStore, config: Config, engines: &[&str]) -> Stage {
        let (epoch, loaded) = (at_once(store.lead()).expect("led"), at_once(store.load()).expect("loaded"));
        let now = Moment { world: Time(1_000_000), real: Duration::ZERO };
        let engines: Vec<String> = engines.iter().map(|engine| (*engine).to_owned()).collect();
        let cycle = Cycle::start(Habits::default(), config, &engines, epoch, loaded, now);
        let cycle = cycle.expect("a log that can be read");
        let (calls, answers, said) = Default::default();
        let (not_found, hanging) = Default::default();
        Stage {
            cycle,
            store,
            now,
            calls,
            answers,
            said,
            commits: 0,
            leads: 0,
            ended: None,
            not_found,
            hanging,
            looks: BTreeMap::new(),
            heard_all: Vec::new(),
        }
    }

    /// What its log says by itself.
    fn replayed(&self) -> Brain {
        Journal::load(at_once(self.store.load()).expect("loaded")).expect("read").brain().clone()
    }

    fn wait(&mut self, seconds: f64) {
        self.now.real += Duration::from_secs_f64(seconds);
        self.now.world = self.now.world + Span((seconds * 1e3) as i64);
    }

    /// One turn in which the engine shows an on-demand offer, or nothing at all.
    fn turn(&mut self, sees: bool) {
        self.turn_with(sees, &mut |store, commit, epoch| at_once(store.commit(epoch, commit)), true);
    }

    fn turn_with(
        &mut self,
        sees: bool,
        commit: &mut dyn FnMut(&MemoryStore, &Commit, u64) -> Result<(), StoreError>,
        loads: bool,
    ) {
        self.cycle.stirred(self.now, ENGINE);
        self.cycle.turn();
        loop {
            match self.cycle.next(self.now) {
                Step::Rest { .. } => return,
                Step::End(why) => {
                    self.ended = Some(why);
                    return;
                }
                Step::Look { engine, number, .. } if self.hanging.contains(&engine) => {
                    self.looks.insert(engine, number);
                }
                Step::Look { engine, number, groups, sweep } => {
                    let look = self.look(&engine, &groups, sweep);
                    self.looks.insert(engine.clone(), number);
                    self.cycle.saw(self.now, &engine, number, if sees { Ok(look) } else { Err("silent".into()) });
                }
                Step::Hear { all, .. } => {
                    self.heard_all.push(all);
                    self.cycle.heard(self.now, Vec::new());
                }
                Step::Commit(rows) => {
                    self.commits += 1;
                    let result = commit(&self.store, &rows, self.cycle.epoch());
                    self.cycle.committed(self.now, result);
                }
                Step::Lead { known } => {
                    self.leads += 1;
                    let epoch = at_once(self.store.lead()).expect("led");
                    let loaded = if loads { at_once(self.store.load_after(known)) } else { Err(StoreError::Refused) };
                    self.cycle.led(self.now, Ok((epoch, loaded)));
                }
                Step::Call(open) => self.calls.push(open.decision.kind()),
                Step::Answer(ticket, answer) => self.answers.push((ticket, answer)),
                Step::Say(text) => self.said.push(text),
                Step::Forget(_) | Step::Snapshot(_) => {}
            }
        }
    }

    /// What an engine shows: an on-demand offer, and the leases that the loop asks for.
    fn look(&self, engine: &str, groups: &[DecisionId], sweep: bool) -> Look {
        let seen = |lease: &windfall_core::brain::Lease| {
            let state = lease.up_at.map_or(LeaseState::Pending, |since| LeaseState::Up {
                since,
                terms: Default::default(),
                ready: None,
                ends_at: None,
                at_risk: false,
                why: None,
            });
            SeenLease { lease: lease.id, state }
        };
        let group = |group: &DecisionId| {
            let leases = self.cycle.brain().leases().filter(|lease| lease.id.group == *group);
            let leases = leases.filter(|lease| !self.not_found.contains(&lease.id)).map(seen).collect();
            SeenGroup { group: *group, phase: GroupPhase::Asked, leases }
        };
        let groups = groups.iter().map(group).collect();
        let owned = sweep.then(|| Ok(Vec::new()));
        Look { offers: vec![offer_of(engine)], groups, owned, ..Look::default() }
    }

    /// A job that has a lease which is up.
    fn with_a_lease(ready: Option<Address>) -> (Stage, LeaseId) {
        let mut stage = Stage::new();
        stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
        stage.turn(true);
        let group = stage.cycle.brain().groups().next().expect("asked for").id;
        let (lease, at) = (LeaseId { group, slot: 0 }, stage.now.world);
        stage.cycle.happened([Event::LeaseUp { lease, at, terms: Box::default(), ready }]);
        stage.turn(true);
        (stage, lease)
    }

    fn rows(&self) -> u64 {
        at_once(self.store.load()).expect("loaded").next_seq - 1
    }
}

/// Something of an engine that can be had at any time.
pub fn offer_of(engine: &str) -> Offer {
    Offer {
        id: windfall_core::OfferId::new(&format!("{engine}/zone/type/on-demand")),
        engine: engine.to_owned(),
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

fn submission(key: &str, path: Option<&str>) -> Event {
    let mut spec = JobSpec::named(key.to_owned(), vec!["train".to_owned()]);
    spec.run.environment = key.to_owned();
    spec.checkpoint = CheckpointSpec { path: path.map(str::to_owned), ..CheckpointSpec::default() };
    Event::Submitted { workload: Workload::from(spec), key: key.to_owned(), id: None }
}

#[test]
fn a_configuration_is_in_the_log_and_the_past_keeps_the_one_it_had() {
    let mut first = Stage::new();
    first.turn(true);
    assert_eq!(first.rows(), 2, "a log begins with it");
    let other = Config { restart_prior: Span::minutes(7), ..Config::default() };
    let mut second = Stage::on(first.store.clone(), other.clone());
    assert_eq!(*second.cycle.brain().config(), Config::default(), "the past is not replayed with it");
    second.turn(true);
    second.turn(true);
    assert_eq!((second.rows(), second.cycle.brain().config()), (3, &other), "said once");
    assert_eq!(*second.replayed().config(), other);
    // A commit that fails takes the configuration back with all the rest; it is said again.
    let mut third = Stage::on(first.store.clone(), Config::default());
    third.turn_with(true, &mut |_, _, _| Err(StoreError::Refused), true);
    assert_eq!(*third.cycle.brain().config(), other);
    third.wait(20.0);
    third.turn(true);
    third.turn(true);
    assert_eq!((*third.cycle.brain().config() == Config::default(), third.rows()), (true, 4));
}

#[test]
fn an_answer_comes_after_the_commit_and_a_call_after_the_answer() {
    let mut stage = Stage::new();
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.cycle.turn();
    let mut order = Vec::new();
    loop {
        match stage.cycle.next(stage.now) {
            Step::Rest { .. } => break,
            Step::Look { engine, number, groups, sweep } => {
                order.push("look");
                let look = stage.look(&engine, &groups, sweep);
                stage.cycle.saw(stage.now, &engine, number, Ok(look));
            }
            Step::Hear { .. } => stage.cycle.heard(stage.now, Vec::new()),
            Step::Commit(rows) => {
                order.push("commit");
                let result = at_once(stage.store.commit(stage.cycle.epoch(), &rows));
                stage.cycle.committed(stage.now, result);
            }
            Step::Answer(_, answer) => {
                order.push("answer");
                assert_eq!(answer, Ok(Some(1)), "jobs are counted for people");
            }
            Step::Call(_) => order.push("call"),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(order, ["look", "commit", "answer", "call"]);
}

#[test]
fn after_a_failed_commit_nothing_is_called_until_the_state_was_loaded() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.wait(3.0);
    let lost_at = stage.now.real;
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Refused), false);
    assert!(matches!(stage.answers[..], [(Ticket(1), Err(Refused::Away { .. }))]), "{:?}", stage.answers);
    assert_eq!(stage.cycle.brain().last_seq(), stage.rows(), "the brain is not ahead of the log");
    let (commits, mut tries) = (stage.commits, Vec::new());
    for _ in 0..200 {
        stage.wait(0.1);
        let before = stage.leads;
        stage.turn_with(true, &mut |_, _, _| panic!("nothing is stepped"), false);
        tries.extend((stage.leads > before).then_some(stage.now.real.as_secs_f64()));
    }
    assert_eq!((stage.commits, stage.calls.len()), (commits, 0));
    let pauses: Vec<f64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longer = |pair: &[f64]| pair[1] > pair[0] * 1.5 || (pair[1] - 3.0).abs() < 0.11;
    assert!(pauses.windows(2).all(longer), "the pauses double, up to three seconds: {pauses:?}");
    assert!(pauses[0] < 0.5 && pauses.last() > Some(&2.8), "{pauses:?}");
    let away = stage.cycle.away().expect("it is away");
    assert_eq!((away.since(), away.why()), (lost_at, StoreError::Refused.to_string().as_str()));
    // Asked meanwhile: refused at once, and nothing of it is kept.
    stage.cycle.ask(stage.now, Ticket(2), submission("b", None));
    stage.wait(30.0);
    stage.turn(true);
    assert!(stage.cycle.leads());
    assert!(matches!(stage.answers[1], (Ticket(2), Err(Refused::Away { .. }))));
    assert_eq!(stage.cycle.brain().jobs().count(), 0);
    let told = |word: &str| stage.said.iter().filter(|text| text.contains(word)).count();
    assert_eq!((told("database is away"), told("database is back")), (1, 1), "said once each: {:?}", stage.said);
}

#[test]
fn a_request_whose_commit_is_unsure_is_answered_once_the_log_tells() {
    for written in [true, false] {
        let mut stage = Stage::new();
        stage.turn(true);
        stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
        let mut unsure = |store: &MemoryStore, rows: &Commit, epoch| {
            if written {
                at_once(store.commit(epoch, rows)).expect("written");
            }
            Err(StoreError::Unsure { source: None })
        };
        stage.turn_with(true, &mut unsure, true);
        assert_eq!((stage.answers.len(), stage.calls.len()), (0, 0), "nobody knows yet");
        stage.wait(1.0);
        stage.turn(true);
        assert_eq!(stage.answers, [(Ticket(1), Ok(Some(1)))], "written: {written}");
        assert_eq!(stage.cycle.brain().jobs().count(), 1);
        assert_eq!(stage.calls, ["acquire"], "what was decided is called once it is durable");
    }
}

#[test]
fn what_came_before_is_answered_with_its_number_also_while_nothing_can_be_written() {
    let mut stage = Stage::new();
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn(true);
    // Sent again, in a commit that the store refuses for the sake of something else.
    stage.cycle.ask(stage.now, Ticket(2), submission("a", None));
    stage.cycle.ask(stage.now, Ticket(3), submission("b", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Refused), false);
    stage.cycle.ask(stage.now, Ticket(4), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| panic!("nothing is stepped"), false);
    let answer = |ticket| stage.answers.iter().find(|(known, _)| *known == Ticket(ticket)).map(|(_, answer)| answer);
    assert_eq!((answer(2), answer(4)), (Some(&Ok(Some(1))), Some(&Ok(Some(1)))), "{:?}", stage.answers);
    assert!(matches!(answer(3), Some(Err(Refused::Away { .. }))), "{:?}", stage.answers);
}

#[test]
fn a_lease_that_is_not_found_is_gone_only_when_its_pool_has_settled() {
    let (mut stage, lease) = Stage::with_a_lease(None);
    let look = |stage: &mut Stage, seconds: f64, not_found: &[LeaseId]| {
        stage.wait(seconds);
        stage.not_found = not_found.to_vec();
        stage.turn(true);
        stage.cycle.brain().lease(lease).is_some()
    };
    let settle = windfall_core::pool::Habits::USUAL.settle.0 as f64 / 1_000.0;
    assert!(look(&mut stage, 1.0, &[lease]) && look(&mut stage, settle - 1.0, &[lease]), "not yet");
    assert!(look(&mut stage, 0.5, &[]), "found again");
    assert!(look(&mut stage, 1.0, &[lease]) && look(&mut stage, settle - 1.0, &[lease]), "counted anew");
    assert!(!look(&mut stage, 2.0, &[lease]));
}

#[test]
fn once_the_log_was_read_nobody_doubts_whether_a_request_was_taken() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Unsure { source: None }), true);
    assert!(stage.cycle.may_have_taken(&submission("a", None)) && !stage.cycle.may_have_taken(&submission("b", None)));
    stage.wait(1.0);
    while !matches!(stage.cycle.next(stage.now), Step::Lead { .. }) {}
    let led = (at_once(stage.store.lead()).expect("led"), at_once(stage.store.load()));
    stage.cycle.led(stage.now, Ok(led));
    assert!(stage.cycle.leads() && !stage.cycle.may_have_taken(&submission("a", None)));
}

#[test]
fn a_request_does_not_wait_for_ever_for_a_store_that_lost_its_answer() {
    let mut stage = Stage::new();
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Unsure { source: None }), false);
    for _ in 0..20 {
        stage.wait(1.0);
        stage.turn_with(true, &mut |_, _, _| panic!("nothing is stepped"), false);
    }
    assert!(matches!(stage.answers[..], [(Ticket(1), Err(Refused::Unknown { .. }))]), "{:?}", stage.answers);
    stage.cycle.ask(stage.now, Ticket(2), submission("a", None));
    stage.turn_with(true, &mut |_, _, _| panic!("nothing is stepped"), false);
    assert!(matches!(stage.answers[1], (Ticket(2), Err(Refused::Unknown { .. }))), "{:?}", stage.answers);
}

#[test]
fn of_two_submissions_with_one_checkpoint_path_in_one_batch_the_second_is_refused() {
    let mut stage = Stage::new();
    stage.cycle.ask(stage.now, Ticket(1), submission("a", Some("/out")));
    stage.cycle.ask(stage.now, Ticket(2), submission("b", Some("/out")));
    stage.cycle.ask(stage.now, Ticket(3), submission("c", Some("/elsewhere")));
    stage.turn(true);
    let refused = Refused::PathInUse { path: "/out".to_owned(), by: WorkloadId(1) };
    assert!(stage.answers.contains(&(Ticket(2), Err(refused))), "{:?}", stage.answers);
    assert!(stage.answers.contains(&(Ticket(1), Ok(Some(1)))) && stage.answers.contains(&(Ticket(3), Ok(Some(2)))));
    assert_eq!(stage.cycle.brain().jobs().count(), 2);
}

#[test]
fn a_call_without_effect_is_made_again_more_and_more_seldom() {
    let mut stage = Stage::new();
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    let mut made = Vec::new();
    for _ in 0..1_000 {
        stage.turn(true);
        for open in stage.cycle.brain().outbox() {
            if !stage.calls.is_empty() {
                stage.calls.clear();
                made.push(stage.now.real.as_secs());
                stage.cycle.performed(stage.now, open.id, Performed::default());
            }
        }
        stage.wait(0.5);
    }
    assert!(made.len() >= 5 && made.len() < 20, "{made:?}");
    assert!(made.windows(2).all(|pair| pair[1] - pair[0] <= 61), "{made:?}");
}

#[test]
fn batches_have_numbers_of_their_own_and_a_snapshot_names_its_last_row() {
    let mut stage = Stage::new();
    let mut commits: Vec<Commit> = Vec::new();
    for key in ["a", "b", "c"] {
        stage.cycle.ask(stage.now, Ticket(1), submission(key, None));
        let mut keep = |store: &MemoryStore, commit: &Commit, epoch: u64| {
            commits.push(commit.clone());
            at_once(store.commit(epoch, commit))
        };
        stage.turn_with(true, &mut keep, true);
        stage.wait(1.0);
    }
    let batches: Vec<u64> = commits.iter().filter_map(|commit| Some(commit.rows.first()?.batch)).collect();
    assert!(batches.len() >= 3 && batches.is_sorted_by(|before, after| before < after), "{batches:?}");
    let task = stage.cycle.journal.snapshot_after(1).expect("rows were written");
    let (_, seq) = at_once(task.run_here(&stage.store, stage.cycle.epoch())).into_parts();
    assert_eq!(seq.expect("stored"), stage.rows());
}

#[test]
fn people_see_what_is_durable_and_a_failed_commit_is_never_seen() {
    let mut stage = Stage::new();
    stage.turn(true);
    let durable = Arc::clone(stage.cycle.durable());
    let jobs = || durable.read(|brain| brain.jobs().count());
    stage.cycle.ask(stage.now, Ticket(1), submission("a", None));
    stage.turn_with(
        true,
        &mut |store, commit, epoch| {
            assert_eq!(jobs(), 0, "the commit is on its way");
            at_once(store.commit(epoch, commit))
        },
        true,
    );
    assert_eq!(jobs(), 1);
    stage.cycle.ask(stage.now, Ticket(2), submission("b", None));
    stage.turn_with(true, &mut |_, _, _| Err(StoreError::Refused), true);
    assert_eq!((jobs(), stage.cycle.brain().jobs().count()), (1, 1));
    // Written, but its answer was lost: it is seen once the log was read again, by the readers of before.
    stage.wait(1.0);
    stage.turn(true);
    stage.cycle.ask(stage.now, Ticket(3), submission("c", None));
    stage.turn_with(
        true,
        &mut |store, commit, epoch| {
            at_once(store.commit(epoch, commit)).expect("written");
            Err(StoreError::Unsure { source: None })
        },
        true,
    );
    assert_eq!(jobs(), 1);
    stage.wait(1.0);
    stage.turn(true);
    assert_eq!((jobs(), stage.cycle.known_seq()), (2, stage.rows()));
    assert_eq!(durable.live_jobs(), 2);
    let cancel = Event::CancelRequested { workload: WorkloadId(1), by: "ada".to_owned() };
    stage.cycle.ask(stage.now, Ticket(4), cancel);
    stage.turn(true);
    stage.turn(true);
    let live = |brain: &Brain| brain.jobs().filter(|job| job.ended.is_none()).count();
    assert_eq!((durable.live_jobs(), durable.read(live)), (1, 1));
}
