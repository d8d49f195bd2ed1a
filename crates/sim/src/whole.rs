//! The same job with the whole brain: a world that is looked at once a tick hands it records and does what it
//! decides, as the server and its engines do, in virtual time. Slower than `play`, and the measure of it.

use crate::course::{Course, Terms};
use crate::play::{Played, Player, Use, margins, most_ticks};
use std::collections::BTreeMap;
use windfall_core::brain::Config;
use windfall_core::pool::{Books, Habits, Placing, Supply};
use windfall_core::record::{Body, Event, LeaseEnd, Record, WorkerEnd};
use windfall_core::spec::{CheckpointSpec, JobSpec, RunSpec, WorkSpec, WorkUnit, Workload};
use windfall_core::{
    Address, Brain, CheckpointId, Decision, DecisionId, Installation, LeaseId, Market, NanoUsd, Offer, OfferId, Place,
    Pool, PoolId, Span, StintId, Time, Way, Work, WorkloadId,
};

/// Decisions in a row at one moment: a move between markets takes five.
const MOST_ROUNDS: u32 = 50;

/// Plays a job with the whole brain.
pub fn play_whole(player: &Player, course: &Course, terms: &Terms) -> Played {
    let mut run = BrainRun::new(player, course, terms);
    let enough = most_ticks(course, terms);
    for tick in 0..=enough {
        run.look(tick);
        run.settle();
        if run.ended() {
            break;
        }
        run.note();
    }
    run.played
}

/// A stint that runs: when its program begins to make progress, and from what.
struct RunningStint {
    stint: StintId,
    since: Time,
    base: Work,
    started: bool,
}

struct BrainRun<'a> {
    brain: Brain,
    course: &'a Course,
    terms: Terms,
    job: WorkloadId,
    now: Time,
    batch: u64,
    leases: BTreeMap<LeaseId, OfferId>,
    running: Option<RunningStint>,
    done: Work,
    checkpoint: Option<CheckpointId>,
    /// Where that lies, and what it cost to get it from place to place.
    home: Option<usize>,
    moved: NanoUsd,
    played: Played,
}

impl<'a> BrainRun<'a> {
    fn new(player: &Player, course: &'a Course, terms: &Terms) -> BrainRun<'a> {
        let config = Config {
            margins: margins(course.tick),
            look_every: course.tick,
            restart_prior: terms.restart,
            ways: ways(course),
            ..Config::default()
        };
        let mut brain = Brain::new(Installation(1), config);
        if let Some(model) = &player.model {
            brain.foresee(model.clone(), player.plan_cache.plans());
        }
        let mut run = BrainRun {
            brain,
            course,
            terms: *terms,
            job: WorkloadId(0),
            now: Time(0),
            batch: 0,
            leases: BTreeMap::new(),
            running: None,
            done: Work(0),
            checkpoint: None,
            home: None,
            moved: NanoUsd(0),
            played: Played::default(),
        };
        run.tell(Event::PoolSeen { pool: pool() });
        run.show_offers(0);
        run.tell(Event::OfferSeen { offer: offer(&Course::firm(), "", Market::OnDemand, course.on_demand, None) });
        let workload = Workload::from(run.spec(&player.name));
        run.job = WorkloadId(run.tell(Event::Submitted { workload, key: "job".to_owned(), id: None }));
        run
    }

    /// The job. It names its policy: nothing else rules in its place.
    fn spec(&self, policy: &str) -> JobSpec {
        let total = Work(u64::try_from(self.terms.work.0).unwrap_or(0));
        let blank = JobSpec::named("job", vec!["true".to_owned()]);
        JobSpec {
            gang: self.course.gang,
            work: WorkSpec { total: Some(total), unit: WorkUnit::Time, ..WorkSpec::default() },
            deadline: Some(Time(0) + self.terms.deadline),
            policy: Some(policy.to_owned()),
            checkpoint: CheckpointSpec {
                size_bytes: Some(1 << 30),
                restart: Some(self.terms.restart),
                ..CheckpointSpec::default()
            },
            run: RunSpec { grace: Span::ZERO, ..blank.run.clone() },
            ..blank
        }
    }

    fn tell(&mut self, event: Event) -> u64 {
        self.write(Body::Event(event))
    }

    fn write(&mut self, body: Body) -> u64 {
        let seq = self.brain.last_seq() + 1;
        self.brain.apply(&Record { seq, batch: self.batch, at: self.now, body });
        seq
    }

    fn show_offers(&mut self, tick: usize) {
        for zone in &self.course.zones {
            let capacity = if zone.is_up(tick) { self.course.gang } else { 0 };
            let offer = offer(&zone.spot, &zone.name, Market::Spot, zone.price_at(tick), Some(capacity));
            let event = Event::OfferSeen { offer };
            if self.brain.is_news(&event) {
                self.tell(event);
            }
        }
    }

    /// The beginning of a tick: what the program did until now, what the market has, and what it has taken.
    fn look(&mut self, tick: usize) {
        self.batch += 1;
        let now = Time(self.course.tick.0 * tick as i64);
        self.progress(now);
        self.now = now;
        if tick > 0 {
            self.show_offers(tick);
        }
        if self.is_done() {
            return;
        }
        let taken: Vec<LeaseId> =
            self.leases.iter().filter(|(_, offer)| !self.is_up(offer, tick)).map(|(id, _)| *id).collect();
        if !taken.is_empty() {
            self.played.interruptions += 1;
            self.running = None;
        }
        for lease in taken {
            self.leases.remove(&lease);
            self.tell(Event::LeaseGone { lease, at: self.now, end: LeaseEnd::Taken });
        }
    }

    fn is_done(&self) -> bool {
        i64::try_from(self.done.0).is_ok_and(|done| done >= self.terms.work.0)
    }

    fn is_up(&self, offer: &OfferId, tick: usize) -> bool {
        self.course.zones.iter().find(|zone| zone.spot == *offer).is_none_or(|zone| zone.is_up(tick))
    }

    /// What the program says up to a moment; each word at its own time.
    fn progress(&mut self, until: Time) {
        let Some(running) = &mut self.running else { return };
        let (stint, since, base) = (running.stint, running.since, running.base);
        if since > until {
            return;
        }
        let total = Some(Work(u64::try_from(self.terms.work.0).unwrap_or(0)));
        if !running.started {
            running.started = true;
            self.now = since;
            let restored = self.checkpoint;
            for rank in 0..self.course.gang {
                self.tell(Event::WorkerStarted { stint, rank, restored, work: restored.map(|_| base) });
            }
            self.tell(Event::Progress { stint, done: base, total });
        }
        self.now = until;
        let ran = u64::try_from((until - since).0).unwrap_or(0);
        let done = Work((base.0 + ran).min(total.map_or(0, |total| total.0)));
        if done > self.done {
            self.done = done;
            let checkpoint = CheckpointId { epoch: stint.epoch, seq: self.batch };
            self.checkpoint = Some(checkpoint);
            self.home = self.held().or(self.home);
            self.tell(Event::Progress { stint, done, total });
            self.tell(Event::CheckpointDurable { stint, checkpoint, work: Some(done), ran: None });
        }
        if Some(done) == total {
            self.played.finished = (since - Time(0)) + Span((self.terms.work.0 - base.0 as i64).max(0));
            self.played.late = self.played.finished > self.terms.deadline;
            for rank in 0..self.course.gang {
                self.tell(Event::WorkerEnded { stint, rank, end: WorkerEnd::Exited { code: 0 }, settled: true });
            }
            self.running = None;
        }
    }

    /// Decides and does until nothing more is decided at this moment.
    fn settle(&mut self) {
        for round in 0.. {
            let decided = self.brain.decide(self.now);
            if decided.is_empty() {
                return;
            }
            assert!(round < MOST_ROUNDS, "the brain does not come to rest at {:?}: {decided:?}", self.now);
            for decided in decided {
                let seq = self.write(Body::Decision(decided.decision.clone(), decided.reason));
                self.obey(DecisionId { installation: self.brain.installation(), seq }, decided.decision);
            }
        }
    }

    fn obey(&mut self, id: DecisionId, decision: Decision) {
        match decision {
            Decision::Acquire { want } => {
                let Some(first) = want.alternatives.first() else { return };
                if let Some(zone) = self.zone(&first.offer).filter(|_| self.leases.is_empty()) {
                    self.moved += self.course.egress(self.home, zone);
                }
                self.played.starts += u32::from(self.leases.is_empty());
                for slot in 0..want.units {
                    let lease = LeaseId { group: id, slot };
                    self.leases.insert(lease, first.offer.clone());
                    let ready = Some(Address::default());
                    self.tell(Event::LeaseUp { lease, at: self.now, terms: Box::default(), ready });
                }
            }
            Decision::Release { group, slots } => {
                for slot in slots {
                    let lease = LeaseId { group, slot };
                    self.leases.remove(&lease);
                    self.tell(Event::LeaseGone { lease, at: self.now, end: LeaseEnd::Released });
                }
            }
            Decision::Start { stint, .. } => {
                let since = self.now + self.terms.restart;
                self.running = Some(RunningStint { stint, since, base: self.done, started: false });
                self.progress(self.now);
            }
            Decision::Stop { stint, .. } => {
                self.running = None;
                for rank in 0..self.course.gang {
                    self.tell(Event::WorkerEnded { stint, rank, end: WorkerEnd::Stopped, settled: true });
                }
            }
            // This program saves all the time, and these jobs have no budget.
            Decision::Checkpoint { .. } | Decision::CheckStore { .. } | Decision::Pause { .. } => {}
            // There is one job.
            Decision::HandOver { .. } | Decision::End { .. } | Decision::Notify { .. } => {}
        }
    }

    /// Whether the job is over; the bill is then the brain's own.
    fn ended(&mut self) -> bool {
        let views = self.brain.take_final_views();
        if let Some(view) = views.first() {
            self.played.cost = view.cost + self.moved;
        }
        !views.is_empty()
    }

    /// The zone of a spot offer.
    fn zone(&self, offer: &OfferId) -> Option<usize> {
        self.course.zones.iter().position(|zone| zone.spot == *offer)
    }

    /// The zone in which a spot lease is held.
    fn held(&self) -> Option<usize> {
        self.leases.values().next().and_then(|offer| self.zone(offer))
    }

    /// What this tick is used for.
    fn note(&mut self) {
        let used = match self.leases.is_empty() {
            true => Use::Idle,
            false => self.held().map_or(Use::OnDemand, Use::Spot),
        };
        match used {
            Use::Idle => {}
            Use::Spot(_) => self.played.spot += self.course.tick,
            Use::OnDemand => self.played.on_demand += self.course.tick,
        }
        self.played.uses.push(used);
    }
}

/// What moving the job costs, as a checkpoint of one GiB between places of that name.
fn ways(course: &Course) -> Vec<Way> {
    let place = |zone: usize| Place { cloud: "recorded".to_owned(), region: course.zones[zone].name.clone() };
    let zones = 0..course.zones.len();
    let pairs = zones.clone().flat_map(|from| zones.clone().map(move |to| (from, to)));
    let way = |(from, to)| Way { from: place(from), to: place(to), per_gib: course.egress(Some(from), to) };
    pairs.filter(|(from, to)| from != to).map(way).collect()
}

/// Nothing is given back because it boots for too long: the changeover is part of what is played.
fn pool() -> Pool {
    Pool {
        id: PoolId("recorded".into()),
        engine: "recorded".to_owned(),
        placing: Placing::Theirs,
        supply: Supply::Elastic,
        books: Books::Leased,
        habits: Habits { boot: Span::FOREVER, ..Habits::USUAL },
        tells_apart: false,
    }
}

fn offer(id: &OfferId, zone: &str, market: Market, price: NanoUsd, capacity: Option<u32>) -> Offer {
    Offer {
        id: id.clone(),
        engine: "recorded".to_owned(),
        pool: PoolId("recorded".into()),
        cloud: "recorded".to_owned(),
        region: zone.to_owned(),
        zone: zone.to_owned(),
        instance_type: "recorded".to_owned(),
        market,
        accelerator: String::new(),
        accelerators: 0,
        price_per_hour: price,
        capacity,
        notice: Span::ZERO,
    }
}
