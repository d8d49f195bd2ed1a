//! Worlds in one line, and what the brain makes of them.

mod books;
mod edges;
mod elastic;
mod engines;
mod full_disks;
mod groups;
mod last_saves;
mod leases;
mod nodes;
mod nothing_more;
mod owned;
mod programs;
mod promises;
mod rules;
mod sharing;
mod terms;

use super::*;
use crate::ids::{CheckpointId, StintId};
use crate::market;
use crate::offer::Market;
use crate::record::{Body, Event, LeaseEnd, Outcome, Record, Refusal, Resume, WorkerEnd};
use crate::spec::{CheckpointSpec, JobSpec, Late, Priority, WorkSpec, WorkUnit, Workload};
use crate::units::{NanoUsd, Work};

/// A brain and the world around it, driven by hand.
struct World {
    brain: Brain,
    now: Time,
    decided: Vec<Decided>,
}

const SPOT: &str = "test/a/box/spot";
const FIRM: &str = "test/a/box/on-demand";

fn world() -> World {
    let mut world =
        World { brain: Brain::new(Installation(7), Config::default()), now: Time(1_000_000), decided: Vec::new() };
    world.offer(SPOT, 0.9, Some(8));
    world.offer(FIRM, 3.0, None);
    world
}

/// A lease that can be used from the first moment.
fn up(lease: LeaseId, at: Time) -> Event {
    Event::LeaseUp { lease, at, terms: Box::default(), ready: Some(crate::Address::default()) }
}

fn job(hours: i64, deadline_hours: Option<i64>) -> JobSpec {
    let total = Some(Work(Span::hours(hours).0 as u64));
    JobSpec {
        work: WorkSpec { total, unit: WorkUnit::Time, ..WorkSpec::default() },
        deadline: deadline_hours.map(|hours| Time(1_000_000) + Span::hours(hours)),
        checkpoint: CheckpointSpec { restart: Some(Span::minutes(2)), ..CheckpointSpec::default() },
        ..JobSpec::named("test", vec!["true".into()])
    }
}

impl World {
    fn offer(&mut self, id: &str, price: f64, capacity: Option<u32>) {
        self.offer_of("V100", id, price, capacity);
    }

    fn offer_of(&mut self, accelerator: &str, id: &str, price: f64, capacity: Option<u32>) {
        let market = if id.ends_with("spot") { Market::Spot } else { Market::OnDemand };
        let offer = Offer {
            id: OfferId::new(id),
            engine: OfferId::new(id).engine().into(),
            pool: PoolId::default(),
            cloud: "test".into(),
            region: String::new(),
            zone: "a".into(),
            instance_type: "box".into(),
            market,
            accelerator: accelerator.into(),
            accelerators: 1,
            price_per_hour: NanoUsd::from_dollars(price),
            capacity,
            notice: Span::minutes(2),
        };
        self.event(Event::OfferSeen { offer });
    }

    fn event(&mut self, event: Event) -> u64 {
        self.record(Body::Event(event))
    }

    fn record(&mut self, body: Body) -> u64 {
        let seq = self.brain.last_seq() + 1;
        self.brain.apply(&Record { seq, batch: 1, at: self.now, body });
        seq
    }

    /// Decides until nothing more is decided; returns the decisions of this moment.
    fn decide(&mut self) -> Vec<Decision> {
        let mut all = Vec::new();
        for _ in 0..10 {
            let decided = self.brain.decide(self.now);
            if decided.is_empty() {
                return all;
            }
            for decided in decided {
                all.push(decided.decision.clone());
                self.record(Body::Decision(decided.decision.clone(), decided.reason.clone()));
                self.decided.push(decided);
            }
        }
        panic!("the brain does not come to rest: {all:?}");
    }

    fn submit(&mut self, spec: JobSpec) -> WorkloadId {
        let key = format!("key-{}", self.brain.last_seq());
        WorkloadId(self.event(Event::Submitted { workload: Workload::from(spec), key, id: None }))
    }

    fn pass(&mut self, span: Span) {
        self.now = self.now + span;
    }

    fn leases(&self) -> Vec<LeaseId> {
        self.brain.leases().map(|lease| lease.id).collect()
    }

    fn up_all(&mut self) {
        for lease in self.leases() {
            self.event(up(lease, self.now));
        }
    }

    fn stint(&self, job: WorkloadId) -> StintId {
        self.brain.job(job).and_then(|job| job.stint.as_ref()).expect("a stint").id
    }

    fn started(&mut self, job: WorkloadId) -> StintId {
        let stint = self.stint(job);
        for rank in 0..self.brain.job(job).expect("known").spec.gang {
            let restored = self.brain.job(job).and_then(|job| job.progress.checkpoint);
            self.event(Event::WorkerStarted { stint, rank, restored, work: None });
        }
        stint
    }

    /// A job that runs on whatever the policy took.
    fn running(&mut self, spec: JobSpec) -> (WorkloadId, StintId) {
        let id = self.submit(spec);
        self.decide();
        self.up_all();
        self.decide();
        let stint = self.started(id);
        self.decide();
        (id, stint)
    }

    /// A save of the present stint is durable that was written after so long of running.
    fn saved(&mut self, stint: StintId, seq: u64, ran: Span) {
        let checkpoint = CheckpointId { epoch: stint.epoch, seq };
        self.event(Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(ran) });
    }

    fn ended(&mut self, stint: StintId, end: WorkerEnd) {
        self.event(Event::WorkerEnded { stint, rank: 0, end, settled: true });
    }

    fn market(&self) -> Market {
        self.brain.leases().next().expect("a lease").market
    }

    fn gone(&mut self, end: LeaseEnd) {
        for lease in self.leases() {
            self.event(Event::LeaseGone { lease, at: self.now, end });
        }
    }

    fn view(&self, id: WorkloadId) -> crate::view::JobView {
        self.brain.view(id, self.now).expect("known")
    }
}

#[test]
fn a_job_takes_the_cheapest_spot_starts_and_ends() {
    let mut world = world();
    let (id, stint) = world.running(job(1, None));
    assert_eq!(world.market(), Market::Spot);
    world.pass(Span::hours(1));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: true });
    let decisions = world.decide();
    assert!(decisions.iter().any(|d| matches!(d, Decision::End { outcome: Outcome::Succeeded, .. })), "{decisions:?}");
    assert!(decisions.iter().any(|d| matches!(d, Decision::Release { .. })));
    world.gone(LeaseEnd::Released);
    assert!(world.brain.job(id).is_none());
    let last = world.brain.take_final_views().pop().expect("a last view");
    assert_eq!(last.cost, NanoUsd::from_dollars(0.9));
    let paid = world.brain.take_ledger().iter().fold(NanoUsd(0), |sum, row| sum + row.amount);
    assert_eq!(paid, last.cost);
}

#[test]
fn an_interrupted_job_resumes_from_its_checkpoint_and_counts_what_it_lost() {
    let mut world = world();
    let (id, stint) = world.running(job(2, None));
    world.pass(Span::minutes(30));
    world.saved(stint, 1, Span::minutes(30));
    world.pass(Span::minutes(10));
    world.gone(LeaseEnd::Taken);
    let view = world.view(id);
    assert_eq!((view.interruptions, view.lost, view.done), (1, Span::minutes(10), Work(30 * 60_000)));
    world.decide();
    world.up_all();
    let decisions = world.decide();
    let started = decisions.iter().find(|d| matches!(d, Decision::Start { .. }));
    assert!(
        matches!(started, Some(Decision::Start { stint, resume: Resume::Newest, .. }) if stint.epoch == 2),
        "{decisions:?}"
    );
}

#[test]
fn no_spot_and_too_little_slack_means_on_demand() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(0));
    world.submit(job(10, Some(11)));
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
}

#[test]
fn no_spot_and_much_slack_means_waiting_but_not_beyond_the_net() {
    let mut world = world();
    world.offer(SPOT, 0.9, Some(0));
    world.submit(job(10, Some(20)));
    assert!(world.decide().is_empty());
    let last = world.now + Span::hours(10);
    while world.leases().is_empty() {
        let wake = world.brain.next_wakeup().expect("a wake-up");
        assert!(wake > world.now && wake < last, "{wake:?}");
        world.now = wake;
        world.decide();
    }
    assert_eq!(world.market(), Market::OnDemand);
}

#[test]
fn unknown_work_with_a_deadline_runs_on_demand() {
    let mut world = world();
    let mut spec = job(1, Some(5));
    spec.work = WorkSpec { unit: WorkUnit::Steps, ..WorkSpec::default() };
    world.submit(spec);
    world.decide();
    assert_eq!(world.market(), Market::OnDemand);
    assert_eq!(world.decided[0].reason.rule, "unknown-work");
}

#[test]
fn a_gang_never_starts_half() {
    let mut world = world();
    let id = world.submit(JobSpec { gang: 3, ..job(1, None) });
    world.decide();
    let leases = world.leases();
    assert_eq!(leases.len(), 3);
    world.event(up(leases[0], world.now));
    world.event(up(leases[1], world.now));
    assert!(world.decide().is_empty());
    world.event(Event::LeaseGone { lease: leases[2], at: world.now, end: LeaseEnd::Lost });
    let decisions = world.decide();
    assert!(matches!(decisions.as_slice(), [Decision::Release { slots, .. }] if *slots == [0, 1]), "{decisions:?}");
    assert!(world.brain.job(id).expect("known").stint.is_none());
}

#[test]
fn a_gang_with_one_noticed_lease_saves_as_a_whole() {
    let mut world = world();
    let (_, stint) = world.running(JobSpec { gang: 2, ..job(1, None) });
    let lease = world.leases()[1];
    world.event(Event::LeaseNoticed { lease, ends_at: world.now + Span::minutes(2), why: None });
    let decisions = world.decide();
    assert!(
        matches!(decisions.as_slice(), [Decision::Stop { stint: stopped, .. }] if *stopped == stint),
        "{decisions:?}"
    );
}

#[test]
fn the_same_submission_twice_is_one_job() {
    let mut world = world();
    let event = Event::Submitted { workload: Workload::from(job(1, None)), key: "once".into(), id: None };
    world.event(event.clone());
    assert!(!world.brain.is_news(&event));
    world.event(event);
    assert_eq!(world.brain.jobs().count(), 1);
}

#[test]
fn stale_and_repeated_reports_change_nothing() {
    let mut world = world();
    let (id, stint) = world.running(job(1, None));
    let old = StintId::of_job(id, stint.epoch + 5);
    for event in [
        Event::WorkerEnded { stint: old, rank: 0, end: WorkerEnd::Exited { code: 0 }, settled: true },
        Event::WorkerEnded { stint, rank: 9, end: WorkerEnd::Exited { code: 0 }, settled: true },
        Event::Progress { stint: old, done: Work(5), total: None },
        Event::CheckpointDurable { stint: old, checkpoint: CheckpointId { epoch: 9, seq: 9 }, work: None, ran: None },
        Event::WorkerStarted { stint, rank: 0, restored: None, work: None },
    ] {
        assert!(!world.brain.is_news(&event), "{event:?}");
    }
}

#[test]
fn a_stopped_program_needs_a_whole_start_on_a_lease_that_has_long_been_there() {
    let mut world = world();
    let (id, stint) = world.running(job(10, Some(40)));
    world.pass(Span::hours(2));
    world.event(Event::WorkerEnded { stint, rank: 0, end: WorkerEnd::Killed { signal: 9 }, settled: true });
    let sight = world.brain.sight(world.brain.job(id).expect("known"), world.now);
    assert_eq!(sight.starting(), sight.restart);
}

#[test]
fn the_outbox_holds_a_decision_until_its_effect_is_seen() {
    let mut world = world();
    world.submit(job(1, None));
    world.decide();
    assert!(matches!(world.brain.outbox().as_slice(), [Open { decision: Decision::Acquire { .. }, .. }]));
    world.up_all();
    world.decide();
    assert!(matches!(world.brain.outbox().as_slice(), [Open { decision: Decision::Start { .. }, .. }]));
    let id = world.brain.jobs().next().expect("a job").id;
    world.started(id);
    assert!(world.brain.outbox().is_empty());
}

#[test]
fn a_snapshot_is_the_whole_state() {
    let mut world = world();
    let (_, stint) = world.running(job(2, Some(5)));
    world.pass(Span::minutes(5));
    world.event(Event::CheckpointDurable {
        stint,
        checkpoint: CheckpointId { epoch: 1, seq: 1 },
        work: None,
        ran: None,
    });
    let text = crate::codec::encode(&world.brain);
    let mut copy: Brain = crate::codec::decode(crate::codec::VERSION, &text).expect("read back");
    assert_eq!(crate::codec::encode(&copy), text);
    world.pass(Span::hours(4));
    assert_eq!(copy.decide(world.now), world.brain.decide(world.now));
}

#[test]
fn the_parts_of_a_state_put_together_are_the_state() {
    let mut world = world();
    world.running(job(2, Some(5)));
    world.submit(job(3, None));
    world.gone(LeaseEnd::Taken);
    world.decide();
    let mut parts = BTreeMap::new();
    world.brain.each_part(|name, text| assert_eq!(parts.insert(name, text), None, "a name is one part's"));
    let tables: BTreeSet<&str> = parts.keys().filter_map(|name| Some(name.split_once('/')?.0)).collect();
    assert_eq!(tables, ["closed", "groups", "jobs", "keys", "leases", "offers", "prices"].into());
    let whole = |parts: &BTreeMap<String, String>| {
        put_together(parts.iter().map(|(name, text)| (name.as_str(), text.as_str())))
    };
    let text = whole(&parts).expect("whole");
    let copy: Brain = crate::codec::decode(crate::codec::VERSION, &text).expect("read back");
    assert_eq!(crate::codec::encode(&copy), crate::codec::encode(&world.brain));
    let ids: Vec<WorkloadId> = world.brain.jobs().map(|job| job.id).collect();
    assert_eq!(ids.len(), 2);
    parts.remove(&format!("jobs/{}", ids[1]));
    let less: Brain = crate::codec::decode(crate::codec::VERSION, &whole(&parts).expect("whole")).expect("read back");
    assert_eq!(less.jobs().map(|job| job.id).collect::<Vec<_>>(), ids[..1]);
    parts.remove(REST);
    assert_eq!(whole(&parts), None);
}

#[test]
fn hours_and_reported_steps_are_brought_together() {
    let mut world = world();
    let (id, stint) = world.running(job(2, None));
    world.pass(Span::minutes(10));
    world.event(Event::Progress { stint, done: Work(25), total: Some(Work(100)) });
    assert_eq!(world.view(id).done, Work(Span::minutes(30).0 as u64));
    world.pass(Span::minutes(10));
    world.event(Event::Progress { stint, done: Work(50), total: Some(Work(100)) });
    // Thirty minutes of work in ten: the job is three times faster than was said.
    assert_eq!(world.brain.job(id).expect("known").rate("V100"), Some(crate::Rate(3 * crate::Rate::REAL_TIME.0)));
}

#[test]
fn every_policy_has_a_name_and_every_name_a_policy() {
    for name in market::names() {
        assert!(market::policy(name).is_some());
    }
    assert!(market::policy(market::DEFAULT).is_some());
    assert!(market::policy("nonsense").is_none());
}
