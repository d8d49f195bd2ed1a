//! The invented world: machines, what runs on them, and the market, in virtual time. It knows the truth that
//! engines only report; it decides nothing.

mod groups;
mod workers;

use crate::fault::{FaultKind, Faults};
use crate::market::{self, InventedOffer};
use crate::planted::Bug;
use crate::program::{Plot, Run, Truth};
use crate::random;
use groups::Group;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::pool::Device;
use windfall_core::{DecisionId, LeaseEnd, LeaseId, OfferId, Span, StintId, Time, WorkerEnd, WorkloadId};

/// A worker on a machine.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub stint: StintId,
    pub rank: u32,
    pub job: usize,
    /// What it has of the machine; none for all of it.
    pub devices: Option<Vec<Device>>,
    /// Runs from then on.
    pub ready_at: Time,
    pub running: bool,
    pub asked: bool,
    /// Ends then, like that.
    pub doom: Option<(Time, WorkerEnd)>,
    pub end: Option<WorkerEnd>,
    /// SIGKILL ended it before it was done with what SIGTERM made it do.
    pub killed: bool,
    /// What it saved last is stored then.
    pub settles_at: Time,
}

impl Worker {
    /// Whether its end is known and nothing of it is on its way any more.
    pub fn is_settled(&self, now: Time) -> bool {
        self.end.is_some() && self.settles_at <= now
    }
}

/// One machine, from asked for until forgotten.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub offer: usize,
    /// Comes up then; never when none.
    pub up_at: Option<Time>,
    /// Is usable then, if it is up; never when none.
    pub ready_at: Option<Time>,
    pub ready: bool,
    /// The engine does not find it until then.
    pub unfound_until: Option<Time>,
    pub since: Option<Time>,
    pub notice_at: Option<Time>,
    pub ends_at: Option<Time>,
    /// By agreement.
    pub ends_by: Option<Time>,
    pub taken_at: Option<Time>,
    pub gone: Option<(Time, LeaseEnd)>,
    /// Its processes really end then, after it was reported gone.
    pub limbo_until: Option<Time>,
    /// The last worker of each workload that ran something here.
    pub workers: Vec<Worker>,
    /// How often it was made: more than once only with a planted bug.
    pub copies: i64,
    pub unwanted_since: Option<Time>,
}

impl Machine {
    /// One of which nothing is known but what was asked for.
    pub fn asked(offer: usize) -> Machine {
        Machine {
            offer,
            up_at: None,
            ready_at: None,
            ready: false,
            unfound_until: None,
            since: None,
            notice_at: None,
            ends_at: None,
            ends_by: None,
            taken_at: None,
            gone: None,
            limbo_until: None,
            workers: Vec::new(),
            copies: 1,
            unwanted_since: None,
        }
    }

    pub fn is_alive(&self) -> bool {
        self.gone.is_none() || self.limbo_until.is_some()
    }

    /// The last worker of a workload here.
    pub fn worker(&self, workload: WorkloadId) -> Option<&Worker> {
        self.workers.iter().find(|worker| worker.stint.workload == workload)
    }

    fn worker_mut(&mut self, workload: WorkloadId) -> Option<&mut Worker> {
        self.workers.iter_mut().find(|worker| worker.stint.workload == workload)
    }

    /// Workloads of which a worker here has not ended.
    fn busy_with(&self) -> Vec<WorkloadId> {
        let busy = self.workers.iter().filter(|worker| worker.end.is_none());
        busy.map(|worker| worker.stint.workload).collect()
    }

    /// A worker comes in the place of the last one of its workload.
    pub fn put(&mut self, worker: Worker) {
        self.workers.retain(|last| last.stint.workload != worker.stint.workload);
        self.workers.push(worker);
    }
}

/// What broke a law inside the world itself.
#[derive(Clone, Debug)]
pub(crate) struct Wrong {
    pub law: u8,
    pub what: String,
}

/// The world.
pub(crate) struct World {
    pub seed: u64,
    pub now: Time,
    pub offers: Vec<InventedOffer>,
    pub engines: Vec<String>,
    pub groups: BTreeMap<DecisionId, Group>,
    pub machines: BTreeMap<LeaseId, Machine>,
    /// Machines that the engine has forgotten.
    pub past: BTreeMap<LeaseId, Machine>,
    /// Machines that were listed, and since when each was paid for: a late request may make one of the same name again.
    pub shown: BTreeSet<(LeaseId, Time)>,
    pub jobs: Vec<Truth>,
    pub faults: Faults,
    pub bug: Option<Bug>,
    pub calm: bool,
    /// How long a machine takes to come up.
    pub boot: Span,
    /// Something that can be observed has changed since it was last observed.
    pub dirty_since: Option<Time>,
    /// Time that faults have cost so far, at most.
    pub delay: Span,
    /// The last moment at which a fault was felt.
    pub trouble_at: Time,
    /// Checkpoint stores do not answer until then.
    pub store_away_until: Time,
    pub interruptions: u64,
    /// Until then an engine refuses to answer, or hangs.
    pub silent_until: BTreeMap<String, Time>,
    pub hangs_until: BTreeMap<String, Time>,
    /// An offer that is not shown until then.
    pub hidden: Option<(usize, Time)>,
    pub wrongs: Vec<Wrong>,
    pub trace: Option<Vec<String>>,
}

impl World {
    pub fn new(seed: u64, now: Time, boot: Span, moody: bool, faults: Faults, bug: Option<Bug>) -> World {
        World {
            seed,
            now,
            offers: market::offers(seed, now, moody),
            engines: market::engines(seed),
            groups: BTreeMap::new(),
            machines: BTreeMap::new(),
            past: BTreeMap::new(),
            shown: BTreeSet::new(),
            jobs: Vec::new(),
            faults,
            bug,
            calm: false,
            boot,
            dirty_since: None,
            delay: Span::ZERO,
            trouble_at: now,
            store_away_until: now,
            interruptions: 0,
            silent_until: BTreeMap::new(),
            hangs_until: BTreeMap::new(),
            hidden: None,
            wrongs: Vec::new(),
            trace: None,
        }
    }

    pub fn say(&mut self, text: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.1}s  {}", (now - crate::driver::BEGIN).0 as f64 / 1e3, text()));
        }
    }

    pub fn strike(&mut self, kind: FaultKind) -> bool {
        let strikes = self.faults.strike(kind, self.now);
        if strikes {
            self.trouble_at = self.now;
            self.say(|| format!("FAULT {}", kind.name()));
        }
        strikes
    }

    pub fn wrong(&mut self, law: u8, what: String) {
        self.wrongs.push(Wrong { law, what });
    }

    fn touch(&mut self) {
        let now = self.now;
        self.dirty_since.get_or_insert(now);
    }

    pub fn invented(&self, id: &OfferId) -> Option<usize> {
        self.offers.iter().position(|invented| invented.offer.id == *id)
    }

    /// Instances of an offer that are held.
    pub fn held(&self, offer: usize) -> u32 {
        self.machines.values().filter(|machine| machine.offer == offer && machine.gone.is_none()).count() as u32
    }

    /// When something happens by itself.
    pub fn next_change(&self) -> Option<Time> {
        let mut next: Option<Time> = None;
        let mut at = |time: Option<Time>| {
            if let Some(time) = time {
                next = Some(next.map_or(time, |known| known.min(time)));
            }
        };
        self.offers.iter().for_each(|invented| at(invented.next_change));
        self.groups.values().for_each(|group| at(group.queued_until));
        for machine in self.machines.values().filter(|machine| machine.is_alive()) {
            if machine.gone.is_none() {
                at(machine.up_at.filter(|_| machine.since.is_none()));
                at(machine.ready_at.filter(|_| machine.since.is_some() && !machine.ready));
                at(machine.unfound_until);
                at(machine.notice_at.filter(|_| machine.ends_at.is_none()));
                at(machine.taken_at);
            }
            at(machine.limbo_until);
            for worker in &machine.workers {
                match worker.end {
                    None => {
                        at((!worker.running).then_some(worker.ready_at));
                        at(worker.doom.as_ref().map(|(time, _)| *time));
                    }
                    Some(_) => at(Some(worker.settles_at).filter(|settles| *settles > self.now)),
                }
            }
        }
        for truth in &self.jobs {
            for run in truth.runs.values().filter(|run| run.since.is_some() || run.saving.is_some()) {
                at(run.next_save);
                at(run.saving.map(|(time, _)| time));
                at(climax_at(truth, run));
            }
        }
        next
    }

    /// Lives through everything up to `to`.
    pub fn advance(&mut self, to: Time) {
        let mut idle = 0;
        while let Some(at) = self.next_change().filter(|at| *at <= to) {
            idle = if at > self.now { 0 } else { idle + 1 };
            assert!(idle < 1_000, "the invented world stands still at {at:?}: {:?} {:?}", self.machines, self.jobs);
            self.now = self.now.max(at);
            self.happen();
        }
        self.now = self.now.max(to);
    }

    fn happen(&mut self) {
        let now = self.now;
        for offer in 0..self.offers.len() {
            if self.offers[offer].next_change.is_some_and(|at| at <= now) {
                self.offers[offer].change(self.seed, now, self.calm);
                self.evict(offer);
                self.touch();
            }
        }
        let due = |group: &Group| group.queued_until.is_some_and(|until| until <= now);
        let due: Vec<DecisionId> = self.groups.iter().filter(|(_, group)| due(group)).map(|(id, _)| *id).collect();
        due.into_iter().for_each(|group| self.grant(group));
        let ids: Vec<LeaseId> = self.machines.iter().filter(|(_, m)| m.is_alive()).map(|(id, _)| *id).collect();
        for id in ids {
            self.happen_to_machine(id);
            let workloads = self.machines.get(&id).map(Machine::busy_with).unwrap_or_default();
            workloads.into_iter().for_each(|workload| self.happen_to_worker(id, workload));
        }
        for job in 0..self.jobs.len() {
            self.happen_to_runs(job);
        }
    }

    /// Takes machines that the market has no more room for.
    fn evict(&mut self, offer: usize) {
        let Some(capacity) = self.offers[offer].capacity else { return };
        let notice = self.offers[offer].offer.notice;
        let mut held = self.held(offer);
        let ids: Vec<LeaseId> = self.machines.keys().copied().collect();
        for id in ids {
            let Some(machine) = self.machines.get(&id) else { continue };
            if held <= capacity || machine.offer != offer || machine.gone.is_some() || machine.taken_at.is_some() {
                continue;
            }
            held -= 1;
            let sudden = self.strike(FaultKind::NoticeMissing);
            let now = self.now;
            if let Some(machine) = self.machines.get_mut(&id) {
                machine.taken_at = Some(if sudden { now } else { now + notice });
                machine.notice_at = (!sudden).then_some(now);
            }
        }
    }

    fn happen_to_machine(&mut self, id: LeaseId) {
        let now = self.now;
        let Some(machine) = self.machines.get(&id).cloned() else { return };
        if machine.gone.is_some() {
            if machine.limbo_until.is_some_and(|at| at <= now) {
                self.bury_workers(id);
            }
            return;
        }
        if machine.since.is_none() && machine.up_at.is_some_and(|at| at <= now) {
            self.come_up(id, &machine);
        }
        self.become_ready(id);
        let Some(machine) = self.machines.get_mut(&id) else { return };
        let notice = self.offers[machine.offer].offer.notice;
        if machine.ends_at.is_none() && machine.notice_at.is_some_and(|at| at <= now) {
            let ends_at = machine.taken_at.unwrap_or(now + notice);
            machine.ends_at = Some(ends_at);
            self.say(|| format!("notice for {id}: ends in {}", ends_at - now));
            self.ask_all_to_stop(id, ends_at);
            self.touch();
        }
        if self.machines.get(&id).and_then(|machine| machine.taken_at).is_some_and(|at| at <= now) {
            let lost = random::of(self.seed, &[11, id.group.seq, id.slot.into()]).permille(200);
            self.interruptions += 1;
            let expired = self.machines.get(&id).is_some_and(|machine| machine.ends_by.is_some_and(|at| at <= now));
            self.end_machine(
                id,
                match () {
                    () if expired => LeaseEnd::Expired,
                    () if lost => LeaseEnd::Lost,
                    () => LeaseEnd::Taken,
                },
            );
        }
    }

    fn become_ready(&mut self, id: LeaseId) {
        let now = self.now;
        let Some(machine) = self.machines.get_mut(&id).filter(|machine| machine.since.is_some()) else { return };
        let found = machine.unfound_until.take_if(|until| *until <= now).is_some();
        let ready = !machine.ready && machine.ready_at.is_some_and(|at| at <= now);
        machine.ready |= ready;
        if ready || found {
            self.touch();
        }
    }

    fn come_up(&mut self, id: LeaseId, machine: &Machine) {
        let now = self.now;
        let spot = self.offers[machine.offer].capacity.is_some();
        let notice = self.offers[machine.offer].offer.notice;
        let mut random = random::of(self.seed, &[3, id.group.seq, id.slot.into()]);
        // Young machines die more often: what was just freed by the market is soon wanted back.
        let life = match random.below(100) {
            0..45 => Some(Span::seconds(random.between(40, 900))),
            45..85 => Some(Span::seconds(random.between(900, 7_200))),
            _ => None,
        };
        let life = life.filter(|_| spot && !self.calm && machine.taken_at.is_none());
        let term = self.term_of(id).filter(|_| spot && !self.calm);
        let falsely = spot && life.is_none() && machine.taken_at.is_none() && self.strike(FaultKind::NoticeFalse);
        let sudden = life.is_some() && self.strike(FaultKind::NoticeMissing);
        self.say(|| format!("{id} is up"));
        if let Some(machine) = self.machines.get_mut(&id) {
            machine.since = Some(now);
            if let Some(life) = life {
                machine.taken_at = Some(now + life);
                machine.notice_at = (!sudden).then_some((now + life - notice).max(now));
            } else if falsely {
                machine.notice_at = Some(now + Span::seconds(random.between(10, 3_000)));
            }
            machine.ends_by = term.map(|term| now + term);
            machine.taken_at = machine.taken_at.into_iter().chain(machine.ends_by).min();
        }
        self.touch();
    }

    /// How long a machine lasts by agreement; in most worlds for as long as it is wanted.
    fn term_of(&self, id: LeaseId) -> Option<Span> {
        let mut random = random::of(self.seed, &[23, id.group.seq]);
        let lasts = Span::seconds(random.spread(40, 3_600));
        (self.seed % 5 == 4 && random.permille(600)).then_some(lasts)
    }

    /// The machine is gone for the engine, and its processes with it, unless they linger.
    pub fn end_machine(&mut self, id: LeaseId, end: LeaseEnd) {
        let now = self.now;
        let forgotten = self.bug == Some(Bug::GoneRunsOn) && end != LeaseEnd::Released;
        let lingers = forgotten || (end != LeaseEnd::Released && self.strike(FaultKind::Limbo));
        let minutes = random::of(self.seed, &[4, id.group.seq, id.slot.into()]).between(1, 30);
        self.say(|| format!("{id} is gone: {end:?}"));
        let Some(machine) = self.machines.get_mut(&id) else { return };
        machine.gone = Some((now, end));
        let stints: Vec<(usize, u64)> =
            machine.workers.iter().filter(|worker| worker.end.is_none()).map(|w| (w.job, w.stint.epoch)).collect();
        if lingers && !stints.is_empty() {
            machine.limbo_until = Some(now + Span::minutes(minutes));
            for (job, epoch) in stints {
                if let Some(run) = self.jobs[job].runs.get_mut(&epoch) {
                    run.limbo = !forgotten;
                }
            }
        } else {
            self.bury_workers(id);
        }
        self.touch();
    }

    /// Checkpoint stores do not answer for so long from now; whoever waits for them waits longer.
    pub fn lose_store(&mut self, away: Span) {
        self.store_is_away_until(self.store_away_until.max(self.now + away));
    }

    fn store_is_away_until(&mut self, until: Time) {
        let (now, before) = (self.now, self.store_away_until);
        self.store_away_until = until;
        let workers = self.machines.values_mut().flat_map(|machine| &mut machine.workers);
        for worker in workers.filter(|worker| !worker.running && before > now && worker.ready_at == before) {
            worker.ready_at = until;
        }
    }

    /// From now on nothing goes wrong, and there is room for everybody.
    pub fn calm_down(&mut self) {
        self.calm = true;
        self.hidden = None;
        self.silent_until.clear();
        self.hangs_until.clear();
        self.store_is_away_until(self.now);
        self.faults.over = true;
        self.trouble_at = self.now;
        let now = self.now;
        for machine in self.machines.values_mut() {
            machine.unfound_until = machine.unfound_until.map(|_| now);
        }
        for invented in &mut self.offers {
            invented.moody = false;
            if invented.capacity.is_some() {
                invented.next_change = Some(now);
            }
        }
    }
}

/// When a run's program ends or fails by itself, if it goes on like this.
fn climax_at(truth: &Truth, run: &Run) -> Option<Time> {
    let since = run.since?;
    let program = &truth.program;
    let reach = |work: u64| since + program.rate.time_for(windfall_core::Work(work.saturating_sub(run.work)));
    if run.restored.and_then(|id| truth.saves.get(&id)).is_some_and(|saved| saved.bad) && run.work < program.total {
        return Some(since + Span::seconds(1));
    }
    Some(match program.plot {
        Plot::Fails { at, times, .. } | Plot::Killed { at, times, .. } if truth.strikes < times => {
            reach(at.min(program.total))
        }
        _ => reach(program.total),
    })
}
