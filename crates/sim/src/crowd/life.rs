//! What happens to a crowd, one thing at a time, and what engines and agents answer to what was decided.

use super::mix::{self, NodeRoom};
use super::{Crowd, INSTALLATION};
use windfall_core::brain::{Lease, Stint, StintPhase};
use windfall_core::{
    Body, CheckpointId, Decision, DecisionId, Event, LeaseEnd, LeaseId, NodeId, Offer, OfferId, Record, Span, StintId,
    Work, WorkerEnd,
};

/// Between two steps: a busy server takes a hundred a second.
const STEP: Span = Span(10);
/// Hundredths of the price on demand that a few jobs would pay for spot.
const FALLEN: u64 = 58;

/// What a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    Submit,
    /// The program of a running job exits with 0.
    End,
    LeaseLost,
    /// The price of a spot offer moves by a hundredth.
    PriceMoves,
    /// The price of a spot offer falls below what somebody would pay, and one machine can be had.
    PriceFalls,
    /// It rises again.
    PriceRises,
    /// A node is gone with all leases on it.
    NodeLost,
    /// It is there again.
    NodeBack,
    /// A program reports how far it is.
    Progress,
    /// Engines and agents answer what was decided since they last did.
    Answers,
    /// Nothing happens: what is decided after a step that decided something.
    SecondLook,
}

impl Happening {
    /// All that is played in one round; a second look follows whatever decides something.
    pub const ROUND: [Happening; 10] = [
        Happening::Submit,
        Happening::End,
        Happening::LeaseLost,
        Happening::PriceMoves,
        Happening::PriceFalls,
        Happening::NodeLost,
        Happening::Answers,
        Happening::Progress,
        Happening::PriceRises,
        Happening::NodeBack,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Happening::Submit => "a submit",
            Happening::End => "an end",
            Happening::LeaseLost => "a lease lost",
            Happening::PriceMoves => "a price moves",
            Happening::PriceFalls => "a price falls below a limit",
            Happening::PriceRises => "it rises again",
            Happening::NodeLost => "a node lost",
            Happening::NodeBack => "it is back",
            Happening::Progress => "a report of progress",
            Happening::Answers => "answers to decisions",
            Happening::SecondLook => "a second look",
        }
    }
}

/// What one step decided, as it was applied.
pub struct Step {
    pub decided: Vec<Record>,
}

impl Crowd {
    /// The events of the next happening of a kind; none where there is nothing that it could happen to.
    pub fn prepare(&mut self, happening: Happening) -> Vec<Event> {
        self.now = self.now + STEP;
        match happening {
            Happening::Submit => vec![self.submission().1],
            Happening::End => self.end_one(),
            Happening::LeaseLost => {
                let lease = self.some_running().and_then(|stint| self.stint(stint)?.leases().next());
                lease.into_iter().map(|lease| self.lease_gone(lease, LeaseEnd::Lost)).collect()
            }
            Happening::PriceMoves => self.move_a_price(),
            Happening::PriceFalls => self.drop_a_price(),
            Happening::PriceRises => self.raise_prices(),
            Happening::NodeLost => self.lose_a_node(),
            Happening::NodeBack => self.bring_nodes_back(),
            Happening::Progress => self.report(),
            Happening::Answers => {
                let unanswered = std::mem::take(&mut self.unanswered);
                unanswered.into_iter().flat_map(|(id, decision)| self.answer(id, decision)).collect()
            }
            Happening::SecondLook => Vec::new(),
        }
    }

    /// One step as a server takes it: the events are applied, then it is decided, and decisions are applied.
    pub fn step(&mut self, events: Vec<Event>) -> Step {
        self.batch += 1;
        for event in events {
            self.record(Body::Event(event));
        }
        let decided = self.brain.decide(self.now);
        let mut records = Vec::with_capacity(decided.len());
        for decided in decided {
            let body = Body::Decision(decided.decision, decided.reason);
            let record = Record { seq: self.brain.last_seq() + 1, batch: self.batch, at: self.now, body };
            self.brain.apply(&record);
            records.push(record);
        }
        self.brain.take_ledger();
        self.brain.take_final_views();
        Step { decided: records }
    }

    /// Engines and agents hear what a step decided; they answer when `Answers` is next prepared.
    pub fn hear(&mut self, step: Step) {
        for record in step.decided {
            if let Body::Decision(decision, _) = record.body {
                let id = DecisionId { installation: INSTALLATION, seq: record.seq };
                self.unanswered.push((id, decision));
            }
        }
    }

    /// Decides until nothing more is decided, in so many steps at most; the steps that it took, or none.
    pub fn rest(&mut self, most: usize) -> Option<usize> {
        (0..most).find(|_| {
            let step = self.step(Vec::new());
            let quiet = step.decided.is_empty();
            self.hear(step);
            quiet
        })
    }

    fn stint(&self, id: StintId) -> Option<&Stint> {
        self.brain.job(id.workload)?.stint.as_deref().filter(|stint| stint.id == id)
    }

    /// A stint whose program runs and was not told to stop.
    fn some_running(&mut self) -> Option<StintId> {
        for _ in 0..self.begun.len().min(1_000) {
            let number = self.dice.below(self.begun.len() as u64) as usize;
            let id = self.begun[number];
            match self.stint(id) {
                Some(stint) if matches!(stint.phase, StintPhase::Running { .. }) => {
                    if stint.stopping.is_none() && stint.workers.iter().all(|worker| worker.end.is_none()) {
                        return Some(id);
                    }
                }
                Some(_) => {}
                None => {
                    self.begun.swap_remove(number);
                }
            }
        }
        None
    }

    fn end_one(&mut self) -> Vec<Event> {
        let Some(stint) = self.some_running() else { return Vec::new() };
        self.workers_end(stint, &WorkerEnd::Exited { code: 0 })
    }

    fn workers_end(&self, stint: StintId, end: &WorkerEnd) -> Vec<Event> {
        let workers = self.stint(stint).map(|known| known.workers.as_slice()).unwrap_or_default();
        let ranks = workers.iter().enumerate().filter(|(_, worker)| worker.end.is_none());
        ranks
            .map(|(rank, _)| Event::WorkerEnded { stint, rank: rank as u32, end: end.clone(), settled: true })
            .collect()
    }

    fn lease_gone(&mut self, lease: LeaseId, end: LeaseEnd) -> Event {
        if let Some((node, size)) = self.brain.lease(lease).and_then(on_node)
            && let Some(room) = self.room(&node)
        {
            room.free += size;
        }
        Event::LeaseGone { lease, at: self.now, end }
    }

    fn room(&mut self, node: &NodeId) -> Option<&mut NodeRoom> {
        self.rooms.values_mut().flatten().find(|room| room.node == *node)
    }

    fn seen(&mut self, offer: Offer) -> Vec<Event> {
        self.offers.insert(offer.id.clone(), offer.clone());
        vec![Event::OfferSeen { offer }]
    }

    fn move_a_price(&mut self) -> Vec<Event> {
        let number = self.dice.below(self.mix.spot.len() as u64) as usize;
        let Some(offer) = self.mix.spot.get(number).and_then(|id| self.offers.get(id)).cloned() else {
            return Vec::new();
        };
        let moved = offer.price_per_hour.0 / 100 * [99, 101][self.dice.below(2) as usize];
        self.seen(Offer { price_per_hour: windfall_core::NanoUsd(moved), ..offer })
    }

    fn held(&self, offer: &OfferId) -> u32 {
        self.brain.leases().filter(|lease| lease.offer == *offer).count() as u32
    }

    fn drop_a_price(&mut self) -> Vec<Event> {
        let number = self.dice.below(self.mix.dear.len() as u64) as usize;
        let Some(offer) = self.mix.dear.get(number).and_then(|id| self.offers.get(id)).cloned() else {
            return Vec::new();
        };
        let capacity = Some(self.held(&offer.id) + 1);
        self.seen(Offer { capacity, ..self.mix.at_percent(&offer, FALLEN) })
    }

    fn raise_prices(&mut self) -> Vec<Event> {
        let fallen = self.mix.dear.iter().filter_map(|id| self.offers.get(id)).cloned();
        let changed: Vec<Offer> = fallen
            .map(|offer| (self.mix.dear_again(&offer), offer))
            .filter(|(dear, offer)| dear != offer)
            .map(|(dear, _)| dear)
            .collect();
        changed.into_iter().flat_map(|offer| self.seen(offer)).collect()
    }

    fn lose_a_node(&mut self) -> Vec<Event> {
        let node = (0..100).find_map(|_| {
            let stint = self.some_running()?;
            let leases: Vec<LeaseId> = self.stint(stint)?.leases().collect();
            leases.iter().find_map(|lease| Some(on_node(self.brain.lease(*lease)?)?.0))
        });
        let Some(node) = node else { return Vec::new() };
        let on_it = self.on_nodes.remove(&node).unwrap_or_default();
        let mut events = vec![Event::NodeGone { node: node.clone() }];
        for lease in on_it {
            if self.brain.lease(lease).is_some() {
                events.push(self.lease_gone(lease, LeaseEnd::Lost));
            }
        }
        // Nothing is put on it while it is away.
        if let Some(room) = self.room(&node) {
            room.free = 0;
        }
        self.lost_nodes.push(node);
        events
    }

    fn bring_nodes_back(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        for id in std::mem::take(&mut self.lost_nodes) {
            let number = id.0.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(0);
            let node = mix::node(number);
            if let Some(room) = self.room(&id) {
                room.free = node.capacity.accelerators;
            }
            events.push(Event::NodeSeen { node: Box::new(node) });
        }
        events
    }

    fn report(&mut self) -> Vec<Event> {
        let stint = self.some_running();
        let job = stint.and_then(|stint| self.brain.job(stint.workload));
        let Some((stint, job)) = stint.zip(job) else { return Vec::new() };
        let (done, total) = (job.progress.done, job.total().unwrap_or_default());
        // It never says that it is done: that is an end, which comes by itself.
        let done = Work((done.0 + 1 + total.0 / 1_000).min(total.0.saturating_sub(1)));
        vec![Event::Progress { stint, done, total: None }]
    }

    fn answer(&mut self, id: DecisionId, decision: Decision) -> Vec<Event> {
        match decision {
            Decision::Acquire { .. } => self.come_up(id),
            Decision::Start { stint, .. } => self.start_all(stint),
            Decision::Stop { stint, .. } => self.workers_end(stint, &WorkerEnd::Stopped),
            Decision::Release { group, slots } => {
                let leases = slots.into_iter().map(|slot| LeaseId { group, slot });
                leases.map(|lease| self.lease_gone(lease, LeaseEnd::Released)).collect()
            }
            Decision::Checkpoint { stint } => {
                let Some(job) = self.brain.job(stint.workload) else { return Vec::new() };
                let newest = job.progress.checkpoint.filter(|newest| newest.epoch == stint.epoch);
                let checkpoint = CheckpointId { epoch: stint.epoch, seq: newest.map_or(1, |newest| newest.seq + 1) };
                let work = Some(job.progress.done);
                vec![Event::CheckpointDurable { stint, checkpoint, work, ran: None }]
            }
            Decision::CheckStore { workload } => vec![Event::StoreChecked { workload, trouble: None }],
            Decision::HandOver { .. } | Decision::Pause { .. } | Decision::End { .. } | Decision::Notify { .. } => {
                Vec::new()
            }
        }
    }
}

/// The node that a lease is on, and how many of its accelerators it has.
fn on_node(lease: &Lease) -> Option<(NodeId, u32)> {
    let size = lease.goods.as_ref().map_or(0, |goods| goods.count);
    Some((lease.terms.node.clone()?, size))
}
