//! The laws of DESIGN.md, after every step, from the world's truth. Those that a brain's state alone can
//! show are in `windfall_core::laws`.

use crate::driver::{SWEEP, WorldRun};
use crate::fault::FaultKind;
use crate::random;
use crate::scenario::JobPlan;
use crate::server::now;
use windfall_core::brain::{Open, put_together};
use windfall_core::record::Resume;
use windfall_core::{
    Allocation, Body, Brain, CheckpointId, Decision, DecisionId, Event, Installation, LeaseEnd, LeaseId, NanoUsd,
    OfferId, Outcome, Rate, Record, Refusal, Span, StintId, Time, Want, Work, WorkerEnd, WorkloadId, codec, laws,
    view::JobView,
};
use windfall_server::cycle::Cycle;
use windfall_store::{LedgerQuery, Row, Store};

/// How long a lease may go on without a purpose, or half of a gang alone, once faults have ceased.
const BOUND: Span = Span(SWEEP.0 + 15 * 60_000);
/// Delay by faults up to which a deadline stays a promise: the brain keeps a margin of half a minute.
const PROMISED_DELAY: Span = Span::seconds(20);

impl WorldRun {
    /// Everything that must hold now.
    pub fn check(&mut self) {
        self.read_log();
        if let Some(server) = &self.server {
            let violations = laws::check(server.cycle.brain(), &mut self.reached);
            if let Some(violation) = violations.into_iter().next() {
                self.fail(violation.law, violation.what);
            }
        }
        let wrong = self.shared.world().wrongs.pop();
        if let Some(wrong) = wrong {
            self.fail(wrong.law, wrong.what);
        }
        match self.audit.conduct.batch_over() {
            Ok(seen) => {
                *self.reached.entry(14).or_default() += 1 + seen;
                *self.reached.entry(15).or_default() += self.audit.conduct.cancelled();
                self.reached.insert(19, self.audit.conduct.neighbours);
            }
            Err((law, what)) => self.fail(law, what),
        }
        self.check_jobs();
        self.check_budgets();
        self.check_one_stint();
        self.check_gangs();
        self.check_leases();
        self.check_promises();
        self.check_asking();
        if self.steps.is_multiple_of(32) {
            self.check_overlooked();
        }
        // A long log is replayed less often, so that a step costs the same in every world.
        if self.steps.is_multiple_of(128 + self.audit.last_seq / 512 * 128) {
            self.check_nodes();
            self.check_replay();
            self.check_total();
        }
    }

    /// Law 6 over nodes, with what is not written yet.
    fn check_nodes(&mut self) {
        let Some(server) = self.server.as_ref().filter(|server| server.cycle.leads()) else { return };
        let open = server.cycle.brain().open_ledger(self.now);
        match self.audit.books.nodes.balance(&open, self.now) {
            Ok(nodes) => *self.reached.entry(6).or_default() += nodes,
            Err((law, what)) => self.fail(law, what),
        }
    }

    fn read_log(&mut self) {
        let memory = &self.store.memory;
        let ledger = now(memory.ledger(&LedgerQuery { after: self.audit.last_ledger, ..LedgerQuery::default() }))
            .unwrap_or_default();
        if let Err((law, what)) = ledger.iter().try_for_each(|row| self.audit.ledger_row(row)) {
            return self.fail(law, what);
        }
        let rows = now(memory.rows_after(self.audit.last_seq, u32::MAX)).unwrap_or_default();
        for row in rows {
            let before = self.audit.ends.len();
            let read = self.audit.row(&row, &self.shared.world());
            if let Err((law, what)) = read {
                return self.fail(law, what);
            }
            let payload = &row.payload;
            self.shared.world().say(|| format!("  log {:>4} {payload}", row.seq));
            if self.audit.ends.len() > before {
                self.check_outcome();
            }
        }
        match self.audit.books.check() {
            Ok(cut) => *self.reached.entry(17).or_default() += cut,
            Err((law, what)) => self.fail(law, what),
        }
    }

    /// Nothing is dispatched that the log does not hold.
    pub fn check_committed(&mut self, open: &Open) {
        *self.reached.entry(10).or_default() += 1;
        let rows = now(self.store.memory.rows_after(open.id.seq - 1, 1)).unwrap_or_default();
        let kind = open.decision.kind();
        if !rows.first().is_some_and(|row: &Row| row.seq == open.id.seq && row.kind == kind) {
            self.fail(10, format!("{kind} {} was dispatched and is not in the log", open.id.seq));
        }
    }

    /// Law 1 (an accepted job is there) and 9 (a bad one is not).
    fn check_jobs(&mut self) {
        let Some(server) = &self.server else { return };
        let brain = server.cycle.brain();
        let there = |number: usize| self.audit.ids.values().any(|known| *known == number);
        let lost = self.accepted.iter().copied().find(|number| !there(*number));
        let bad = brain.jobs().find(|job| job.spec.check().is_err()).map(|job| job.id);
        *self.reached.entry(1).or_default() += 1;
        if let Some(number) = lost {
            self.fail(1, format!("job {number} was accepted and is not in the log"));
        }
        if let Some(id) = bad {
            self.fail(9, format!("job {id} is in the state and must have been refused"));
        }
    }

    /// Law 16: what is spent beyond a budget is no more than what a stop, and the faults of this world, may cost.
    fn check_budgets(&mut self) {
        let (now, delay) = (self.now, self.shared.world().delay);
        let mut over = None;
        for (id, number) in &self.audit.ids {
            let Some(budget) = self.audit.budgets.get(id).copied().flatten() else { continue };
            let (spent, rate) = self.audit.spent(*id, now);
            *self.reached.entry(16).or_default() += u64::from(rate > 0);
            // A gang that gives back its leases one by one paid for all of them until then.
            let dearest = self.audit.dearest.entry(*id).or_default();
            *dearest = if rate == 0 { 0 } else { rate.max(*dearest) };
            let grace = self.scenario.jobs.get(*number).map_or(Span::ZERO, |plan| plan.spec.run.grace);
            let time = grace + Span::minutes(40) + delay;
            if spent > i128::from(budget.0) + *dearest * i128::from(time.0) / 3_600_000 && rate > 0 {
                over = Some(format!("job {number} has a budget of {budget} and has cost {}", NanoUsd(spent as i64)));
            }
        }
        if let Some(what) = over {
            self.fail(16, what);
        }
    }

    /// Law 1: the outcome that was decided is the one that happened.
    fn check_outcome(&mut self) {
        let Some((at, id, outcome)) = self.audit.ends.last().cloned() else { return };
        let Some(number) = self.audit.ids.get(&id).copied() else { return };
        let Some(spec) = self.scenario.jobs.get(number).map(|plan| plan.spec.clone()) else { return };
        let mut world = self.shared.world();
        let (delay, store_back) = (world.delay, world.store_away_until);
        let truth = &mut world.jobs[number];
        let right = match &outcome {
            Outcome::Succeeded => truth.completed,
            Outcome::Failed { code, .. } => truth.ends.iter().any(|end| match end {
                WorkerEnd::Exited { code: own } => own == code && *code != 0,
                WorkerEnd::Killed { .. } | WorkerEnd::OutOfMemory { .. } => end.killed_code() == *code,
                WorkerEnd::NeverRan { .. } | WorkerEnd::NoRoom { .. } => *code == 127,
                WorkerEnd::Stopped | WorkerEnd::StoreAway { .. } => false,
            }),
            Outcome::Cancelled { .. } => truth.cancel_sent,
            // Before the deadline it may stop as well, once that is lost; a deadline that was promised never is.
            Outcome::StoppedByRule { rule } => {
                let before = self.delay_before.get(&number).copied().unwrap_or_default();
                let plan = &self.scenario.jobs[number];
                let promised = plan.promised && delay - before <= PROMISED_DELAY && store_back <= plan.submit_at;
                rule == "late" && spec.deadline.is_some_and(|deadline| at >= deadline || !promised)
            }
        };
        truth.outcome = Some((at, outcome.clone()));
        drop(world);
        if !right {
            self.fail(1, format!("job {number} ended as {outcome:?}, which is not what happened"));
        }
    }

    /// Law 2: of all stints of a job that are not fenced off, one makes progress. Law 8: the brain never
    /// takes for safe what is not.
    fn check_one_stint(&mut self) {
        let mut world = self.shared.world();
        let mut wrongs = Vec::new();
        for (number, truth) in world.jobs.iter().enumerate() {
            let moving: Vec<u64> =
                truth.runs.values().filter(|run| run.since.is_some() && !run.limbo).map(|run| run.epoch).collect();
            if !moving.is_empty() {
                *self.reached.entry(2).or_default() += 1;
            }
            if moving.len() > 1 {
                wrongs.push((2, format!("stints {moving:?} of job {number} make progress at once")));
            }
        }
        if let Some(server) = &self.server {
            for job in server.cycle.brain().jobs() {
                let Some(number) = self.audit.ids.get(&job.id) else { continue };
                let Some(truth) = world.jobs.get(*number) else { continue };
                // Where the program does not count, running time stands in, and is an estimate.
                let by_time = job.spec.work.unit == windfall_core::spec::WorkUnit::Time;
                let counts = match by_time {
                    true => !truth.program.reports && truth.program.rate == Rate::REAL_TIME,
                    false => truth.program.reports,
                };
                if counts && job.progress.durable.0 > truth.best_work() {
                    let (said, best) = (job.progress.durable.0, truth.best_work());
                    wrongs.push((8, format!("job {number}: {said} is taken for durable, {best} is")));
                }
            }
        }
        wrongs.into_iter().for_each(|(law, what)| world.wrong(law, what));
    }

    /// Law 3: part of a gang is not left alone.
    fn check_gangs(&mut self) {
        let world = self.shared.world();
        let (now, calm_since) = (world.now, world.trouble_at);
        let mut alone = None;
        for (number, truth) in world.jobs.iter().enumerate() {
            for run in truth.runs.values().filter(|run| run.size > 1) {
                let Some(since) = run.half_since else { continue };
                *self.reached.entry(3).or_default() += 1;
                if now - since.max(calm_since) > BOUND {
                    alone = Some(format!("part of stint {} of job {number} runs alone for {}", run.epoch, now - since));
                }
            }
        }
        drop(world);
        if let Some(what) = alone {
            self.fail(3, what);
        }
    }

    /// Law 5: every machine has a purpose that the log knows, or goes soon.
    fn check_leases(&mut self) {
        let Some(server) = &self.server else { return };
        let brain = server.cycle.brain();
        let mut world = self.shared.world();
        let (now, calm_since) = (world.now, world.trouble_at);
        let mut useless = None;
        for (id, machine) in world.machines.iter_mut().filter(|(_, machine)| machine.gone.is_none()) {
            let lease = brain.lease(*id);
            let wanted = lease.is_some_and(|lease| {
                !lease.is_releasing()
                    && lease.workload.and_then(|id| brain.job(id)).is_some_and(|job| job.ended.is_none())
            });
            machine.unwanted_since = if wanted { None } else { machine.unwanted_since.or(Some(now)) };
            if let Some(since) = machine.unwanted_since {
                *self.reached.entry(5).or_default() += 1;
                if now - since.max(calm_since) > BOUND {
                    useless = Some(format!("{id} is held for nothing since {}", now - since));
                }
            }
        }
        drop(world);
        if let Some(what) = useless {
            self.fail(5, what);
        }
    }

    /// Law 7.
    fn check_promises(&mut self) {
        // Any bug makes jobs late; it is to be caught by the law that it breaks first.
        if self.how.bug.is_some() {
            return;
        }
        let delay = self.shared.world().delay;
        let store_back = self.shared.world().store_away_until;
        let mut late = None;
        for (id, number) in &self.audit.ids {
            let promised = |plan: &&JobPlan| plan.promised && store_back <= plan.submit_at;
            let Some(plan) = self.scenario.jobs.get(*number).filter(promised) else { continue };
            let before = self.delay_before.get(number).copied().unwrap_or_default();
            let Some(deadline) = plan.spec.deadline.filter(|_| delay - before <= PROMISED_DELAY) else { continue };
            let ended = self.audit.ends.iter().find(|(_, known, _)| known == id);
            if ended.is_some_and(|(at, ..)| *at == self.now) {
                *self.reached.entry(7).or_default() += 1;
            }
            let met = ended.map_or(self.now <= deadline, |(at, _, outcome)| {
                *at != self.now || (*at <= deadline && *outcome == Outcome::Succeeded)
            });
            if !met {
                late = Some(format!("job {number} could have met its deadline and did not: delay {}", delay - before));
            }
        }
        if let Some(what) = late {
            self.fail(7, what);
        }
    }

    /// A brain that is rebuilt from the log, or from a snapshot and what follows it, is the one that lives.
    fn check_replay(&mut self) {
        // While the store is away the log may hold a commit whose answer was lost.
        let Some(server) = self.server.as_ref().filter(|server| server.cycle.leads()) else { return };
        let brain = server.cycle.brain();
        let live = codec::encode(brain);
        let rows = now(self.store.memory.rows_after(0, u32::MAX)).unwrap_or_default();
        let fresh = Brain::new(brain.installation(), windfall_core::brain::Config::default());
        let mut differs = replayed(fresh, &rows) != live;
        if let Some((seq, text)) = self.kept.take() {
            let tail: Vec<Row> = rows.into_iter().filter(|row| row.seq > seq).collect();
            let kept = codec::decode::<Brain>(codec::VERSION, &text);
            differs |= kept.map_or(true, |kept| replayed(kept, &tail) != live);
        }
        // What is kept was taken apart and put together again, as snapshots are.
        let mut parts = Vec::new();
        brain.each_part(|name, text| parts.push((name, text)));
        let whole = put_together(parts.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        self.kept = whole.map(|whole| (brain.last_seq(), whole));
        // And what servers start from is what lives, however many snapshots it was put together from.
        let loaded = now(self.store.memory.load());
        differs |= loaded.is_ok_and(|loaded| match Cycle::state_of(loaded) {
            Ok(started) => codec::encode(&started) != live,
            Err(_) => true,
        });
        *self.reached.entry(11).or_default() += 1;
        if differs {
            self.fail(11, "a brain rebuilt from the log is not the one that lives".to_owned());
        }
    }

    /// Nonsense in any order leaves the brain standing; a panic here ends the world and is a violation.
    fn check_total(&mut self) {
        let Some(server) = &self.server else { return };
        let mut brain = server.cycle.brain().clone();
        let mut random = random::of(self.how.seed, &[50, self.steps]);
        *self.reached.entry(12).or_default() += 1;
        for _ in 0..40 {
            let body = junk(&brain, &mut random);
            let at = random.pick(&[Time(0), Time(i64::MAX), Time(i64::MIN), brain.now()]);
            let seq = random.pick(&[0, brain.last_seq(), brain.last_seq() + 1]);
            brain.apply(&Record { seq, batch: 0, at, body });
            brain.outbox();
            brain.take_ledger();
        }
    }

    /// The world has been calm for long, and something is still open.
    pub fn lost(&mut self) {
        let open: Vec<String> = match &self.server {
            Some(server) => {
                let brain = server.cycle.brain();
                let jobs = brain
                    .jobs()
                    .map(|job| format!("job {} {:?}", job.id, brain.view(job.id, self.now).map(|v| v.state)));
                let leases = brain.leases().map(|lease| format!("lease {} {:?}", lease.id, lease.phase));
                jobs.chain(leases).collect()
            }
            None => vec!["no server runs".to_owned()],
        };
        let ended = self.to_submit_is_empty() && self.audit.ids.len() == self.audit.ends.len();
        self.fail(if ended { 5 } else { 1 }, format!("a calm world does not come to its end: {}", open.join(", ")));
    }

    fn to_submit_is_empty(&self) -> bool {
        self.audit.ids.len() >= self.accepted.len()
    }

    /// Law 6 over everything, when all leases are gone.
    pub fn check_end(&mut self) {
        self.read_log();
        let mut bills: i64 = 0;
        for id in self.audit.ids.keys() {
            let row = now(self.store.memory.job(id.0)).ok().flatten();
            let view = row.and_then(|row| codec::decode::<JobView>(row.version, &row.summary).ok());
            match view {
                Some(view) if view.state.is_over() => {
                    let written = self.audit.written_for(*id);
                    if written != view.cost.0 {
                        return self
                            .fail(6, format!("job {id} is billed {}, and the ledger holds {written}", view.cost.0));
                    }
                    bills += view.cost.0;
                }
                _ => return self.fail(1, format!("job {id} ended and its last view does not say so")),
            }
        }
        *self.reached.entry(6).or_default() += 1 + self.audit.leases_billed;
        let total = now(self.store.memory.ledger_total()).map(|total| total.nanousd).unwrap_or_default();
        let accounted = bills + self.audit.overhead;
        if total != i128::from(accounted) || self.audit.ledger_sum() != accounted {
            self.fail(6, format!("the ledger holds {total} n$, {accounted} n$ were billed to jobs and to overhead"));
        }
        let hidden = self.audit.hidden(&self.shared.world());
        if let Some(hidden) = hidden {
            self.fail(5, format!("lease {hidden} was paid for and is not in the ledger"));
        }
        self.check_nodes();
        self.check_replay();
    }

    /// Faults that struck, by kind.
    pub fn faults(&self) -> Vec<FaultKind> {
        self.shared.world().faults.struck.iter().map(|struck| struck.kind).collect()
    }
}

fn replayed(mut brain: Brain, rows: &[Row]) -> String {
    for row in rows {
        if let Ok(body) = codec::decode::<Body>(row.version, &row.payload) {
            brain.apply(&Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body });
        }
    }
    codec::encode(&brain)
}

fn junk(brain: &Brain, random: &mut random::Random) -> Body {
    let ids: Vec<WorkloadId> = brain.jobs().map(|job| job.id).chain([WorkloadId(u64::MAX)]).collect();
    let leases: Vec<LeaseId> = brain.leases().map(|lease| lease.id).collect();
    let nowhere = LeaseId { group: DecisionId { installation: Installation(1), seq: 1 }, slot: 0 };
    let lease = if leases.is_empty() { nowhere } else { random.pick(&leases) };
    let workload = random.pick(&ids);
    let epoch = brain.job(workload).map_or(u64::MAX, |job| job.epoch + random.below(2));
    let stint = StintId { workload, member: random.pick(&[0, 0, 0, 7]), epoch };
    let at = random.pick(&[Time(i64::MIN), Time(0), Time(i64::MAX), brain.now()]);
    let work = random.pick(&[Work(0), Work(1), Work(u64::MAX), Work(1 << 40)]);
    let rank = random.pick(&[0, 0, 1, u32::MAX]);
    let checkpoint = CheckpointId { epoch, seq: random.pick(&[0, 1, u64::MAX]) };
    Body::Event(match random.below(23) {
        0 => match random.below(5) {
            3 => crate::nodes::junk(random),
            4 => Event::LeaseUp {
                lease,
                at,
                terms: Box::new(crate::market::place_of(0, crate::market::FIRST, lease)),
                ready: None,
            },
            0 => Event::LeaseReady { lease, address: Default::default() },
            1 => Event::GroupQueued { group: lease.group, since: at, eta: Some(at) },
            _ => Event::LeaseUp { lease, at, terms: Box::default(), ready: None },
        },
        1 if random.permille(500) => {
            Event::GroupGranted { group: lease.group, at, units: random.pick(&[0, 1, u32::MAX]) }
        }
        1 => Event::GroupFailed { group: lease.group, refusal: Refusal::Retry { after: Span(i64::MAX) } },
        2 => Event::LeaseNoticed { lease, ends_at: at, why: None },
        3 => Event::LeaseGone { lease, at, end: LeaseEnd::Lost },
        4 => Event::WorkerStarted { stint, rank, restored: Some(checkpoint), work: Some(work) },
        5 => Event::WorkerEnded {
            stint,
            rank,
            end: WorkerEnd::Killed { signal: i32::MAX },
            settled: random.permille(500),
        },
        6 => {
            Event::WorkerEnded { stint, rank, end: WorkerEnd::Exited { code: i32::MIN }, settled: random.permille(500) }
        }
        7 => Event::Progress { stint, done: work, total: Some(Work(random.next())) },
        8 => Event::CheckpointDurable { stint, checkpoint, work: Some(work), ran: Some(Span(i64::MAX)) },
        9 if random.permille(500) => Event::BudgetSet { workload, budget: Some(NanoUsd(-1)), by: String::new() },
        9 if random.permille(500) => Event::GiveUpRequested { workload, by: String::new() },
        9 => Event::CancelRequested { workload, by: String::new() },
        10 => {
            let group = DecisionId { installation: brain.installation(), seq: random.next() };
            let lease = LeaseId { group, slot: random.pick(&[0, u32::MAX]) };
            Event::LeaseFound { lease, offer: OfferId::new("nowhere"), since: Some(at), until: None }
        }
        11 => {
            let mut offers: Vec<_> = brain.offers().cloned().collect();
            match offers.pop() {
                Some(mut offer) => {
                    offer.price_per_hour = NanoUsd(random.pick(&[i64::MAX, i64::MIN, 0]));
                    Event::OfferSeen { offer }
                }
                None => Event::LeaseReady { lease, address: Default::default() },
            }
        }
        kind => {
            let outcome = Outcome::Cancelled { by: String::new() };
            let reason = windfall_core::Reason::new("junk", "junk");
            let group = DecisionId { installation: brain.installation(), seq: random.next() };
            let strange = LeaseId { group, slot: 3 };
            let decision = match kind {
                12 => Decision::Release { group: lease.group, slots: vec![lease.slot, u32::MAX] },
                13 => Decision::Stop { stint, grace: Span(i64::MAX) },
                14 => Decision::Start {
                    stint: StintId::of_job(workload, epoch.saturating_add(1).min(1 << 60)),
                    allocations: random
                        .pick(&[&[lease][..], &[lease, lease, strange], &[]])
                        .iter()
                        .map(|lease| Allocation::whole(*lease))
                        .collect(),
                    resume: Resume::Before(checkpoint),
                },
                15 => Decision::Checkpoint { stint },
                16 => Decision::Pause { workload },
                17 => Decision::CheckStore { workload },
                18 => Decision::Notify { workload, told: windfall_core::Told::Late },
                19 => Decision::HandOver { lease: random.pick(&[lease, strange]), to: workload },
                20 => {
                    let mut want = Want::of(workload, OfferId::new("nowhere"), random.pick(&[0, 1, 5]));
                    want.alternatives.truncate(random.below(2) as usize);
                    Decision::Acquire { want }
                }
                _ => Decision::End { workload, outcome },
            };
            return Body::Decision(decision, reason);
        }
    })
}
