//! A crowd: a brain with very many jobs at once, made by records alone as a log could hold them. A tenth of the jobs run on
//! leases, every market is full, and the rest wait for a price, a machine or a moment. What happens to it next is in
//! `life.rs`, what it is made of in `mix.rs`.

mod life;
mod mix;

pub use life::{Happening, Step};

use mix::{Dice, Mix, NodeRoom};
use std::collections::BTreeMap;
use windfall_core::brain::Config;
use windfall_core::record::Resume;
use windfall_core::{
    Address, Allocation, Body, Brain, CheckpointId, Decision, DecisionId, Event, Installation, LeaseId, LeaseTerms,
    NodeId, Offer, OfferId, Reason, Record, Span, StintId, Time, Want, Work, Workload, WorkloadId,
};

/// How large a crowd is.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Live jobs, of which a tenth run.
    pub jobs: u64,
    pub teams: u64,
    pub nodes: u64,
}

impl Size {
    /// So many jobs in 1,000 teams on 10,000 nodes.
    pub fn of(jobs: u64) -> Size {
        Size { jobs, teams: 1_000, nodes: 10_000 }
    }
}

/// Of so many jobs one runs.
const ONE_RUNS_OF: u64 = 10;
/// Jobs that run began within this long.
const BEGAN_WITHIN: Span = Span::hours(1);
const INSTALLATION: Installation = Installation(11);
const BEGIN: Time = Time(1_700_000_000_000);

/// A brain with many jobs, and the world around it.
pub struct Crowd {
    pub brain: Brain,
    pub now: Time,
    size: Size,
    dice: Dice,
    mix: Mix,
    /// Offers as they were last shown.
    offers: BTreeMap<OfferId, Offer>,
    rooms: BTreeMap<(String, String), Vec<NodeRoom>>,
    /// Leases that came up on each node; some of them may be gone.
    on_nodes: BTreeMap<NodeId, Vec<LeaseId>>,
    /// Nodes that are away.
    lost_nodes: Vec<NodeId>,
    /// Stints that began; some of them may be over.
    begun: Vec<StintId>,
    /// Decisions that engines and agents have not answered yet.
    unanswered: Vec<(DecisionId, Decision)>,
    submitted: u64,
    batch: u64,
}

impl Crowd {
    /// An installation without jobs: pools, nodes, and offers of which nothing can be had.
    pub fn empty(size: Size) -> Crowd {
        let mut crowd = Crowd {
            brain: Brain::new(INSTALLATION, Config::default()),
            now: BEGIN,
            size,
            dice: Dice::new(size.jobs),
            mix: Mix::new(),
            offers: BTreeMap::new(),
            rooms: BTreeMap::new(),
            on_nodes: BTreeMap::new(),
            lost_nodes: Vec::new(),
            begun: Vec::new(),
            unanswered: Vec::new(),
            submitted: 0,
            batch: 1,
        };
        for pool in mix::pools() {
            crowd.record(Body::Event(Event::PoolSeen { pool }));
        }
        for number in 0..size.nodes {
            let node = mix::node(number);
            let rooms = crowd.rooms.entry(mix::kind_of_node(&node)).or_default();
            rooms.push(NodeRoom { node: node.id.clone(), free: node.capacity.accelerators });
            crowd.record(Body::Event(Event::NodeSeen { node: Box::new(node) }));
        }
        for offer in crowd.mix.offers() {
            crowd.show(offer);
        }
        crowd
    }

    /// Submits all jobs and lets a tenth of them run.
    pub fn fill(&mut self) {
        let running: Vec<WorkloadId> =
            (0..self.size.jobs).map(|_| self.submit()).filter(|id| id.0 % ONE_RUNS_OF == 0).collect();
        let apart = Span(BEGAN_WITHIN.0 / (running.len() as i64).max(1));
        for id in running {
            self.now = self.now + apart;
            self.run(id);
        }
        self.shut();
    }

    /// Every market is full: what is held is all that there is.
    fn shut(&mut self) {
        let mut held: BTreeMap<OfferId, u32> = BTreeMap::new();
        self.brain.leases().for_each(|lease| *held.entry(lease.offer.clone()).or_default() += 1);
        let offers: Vec<Offer> = self.offers.values().cloned().collect();
        for offer in offers {
            let capacity = Some(held.get(&offer.id).copied().unwrap_or(0));
            self.show(Offer { capacity, ..offer });
        }
    }

    /// Jobs that are not over.
    pub fn live(&self) -> usize {
        self.brain.jobs().filter(|job| job.ended.is_none()).count()
    }

    /// Jobs whose program runs or is about to.
    pub fn running(&self) -> usize {
        self.brain.jobs().filter(|job| job.stint.is_some()).count()
    }

    fn record(&mut self, body: Body) -> DecisionId {
        let seq = self.brain.last_seq() + 1;
        self.brain.apply(&Record { seq, batch: self.batch, at: self.now, body });
        DecisionId { installation: INSTALLATION, seq }
    }

    fn event(&mut self, event: Event) {
        self.record(Body::Event(event));
    }

    fn show(&mut self, offer: Offer) {
        self.offers.insert(offer.id.clone(), offer.clone());
        self.event(Event::OfferSeen { offer });
    }

    fn submission(&mut self) -> (WorkloadId, Event) {
        self.submitted += 1;
        let id = WorkloadId(self.submitted);
        let spec = self.mix.job(&mut self.dice, id.0, self.size.teams, self.now);
        let key = format!("key-{id}");
        (id, Event::Submitted { workload: Workload::from(spec), key, id: Some(id) })
    }

    fn submit(&mut self) -> WorkloadId {
        let (id, event) = self.submission();
        self.event(event);
        id
    }

    /// A job gets its machines, starts, saves and reports.
    fn run(&mut self, id: WorkloadId) {
        let Some(spec) = self.brain.job(id).map(|job| job.spec.clone()) else { return };
        let Some(offer) = self.mix.bought(&mut self.dice, &spec, &self.offers) else { return };
        let crafted = |decision| Body::Decision(decision, Reason::new("crowd", "as a log could hold it"));
        let group = self.record(crafted(Decision::Acquire { want: Want::of(id, offer, spec.gang) }));
        let leases: Vec<LeaseId> = (0..spec.gang).map(|slot| LeaseId { group, slot }).collect();
        for event in self.come_up(group) {
            self.event(event);
        }
        let stint = StintId::of_job(id, 1);
        let allocations = leases.into_iter().map(Allocation::whole).collect();
        self.record(crafted(Decision::Start { stint, allocations, resume: Resume::Newest }));
        for event in self.start_all(stint) {
            self.event(event);
        }
        let total = spec.work.total.unwrap_or_default().0;
        let done = Work(total * self.dice.between(1, 60) / 100);
        let checkpoint = CheckpointId { epoch: 1, seq: 1 };
        self.event(Event::Progress { stint, done, total: None });
        self.event(Event::CheckpointDurable { stint, checkpoint, work: Some(done), ran: None });
    }

    /// The leases of a group are there and usable, on nodes with room where there are such.
    fn come_up(&mut self, group: DecisionId) -> Vec<Event> {
        let asked: Vec<(LeaseId, OfferId)> =
            self.brain.leases_in(group).map(|lease| (lease.id, lease.offer.clone())).collect();
        let mut events = Vec::new();
        for (lease, offer) in asked {
            let node = self.place(lease, &offer);
            let terms = Box::new(LeaseTerms { node, ..LeaseTerms::default() });
            let ready = Some(Address(format!("10.0.0.1:{}", lease.group.seq)));
            events.push(Event::LeaseUp { lease, at: self.now, terms, ready });
        }
        events
    }

    fn place(&mut self, lease: LeaseId, offer: &OfferId) -> Option<NodeId> {
        let offer = self.offers.get(offer)?;
        let rooms = self.rooms.get_mut(&(offer.engine.clone(), offer.accelerator.clone()))?;
        // A few looks: where a crowd is larger than its nodes, the rest is on machines that nobody shows.
        let looks = (0..4).map(|_| self.dice.below(rooms.len() as u64) as usize);
        let number = looks.into_iter().find(|number| rooms[*number].free >= offer.accelerators)?;
        let room = &mut rooms[number];
        room.free -= offer.accelerators;
        self.on_nodes.entry(room.node.clone()).or_default().push(lease);
        Some(room.node.clone())
    }

    fn start_all(&mut self, stint: StintId) -> Vec<Event> {
        let job = self.brain.job(stint.workload);
        let Some(known) = job.and_then(|job| job.stint.as_ref()).filter(|known| known.id == stint) else {
            return Vec::new();
        };
        let (ranks, restored) = (known.size(), job.and_then(|job| job.progress.checkpoint));
        self.begun.push(stint);
        (0..ranks).map(|rank| Event::WorkerStarted { stint, rank, restored, work: None }).collect()
    }
}

#[cfg(test)]
mod tests;
