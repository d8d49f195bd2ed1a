//! The server's loop as a state machine without I/O: it says what to do next, and is told what came of it. Batching,
//! what happens after an error, the repetition and acknowledgement of decisions, the merging of progress, sweeps and
//! answers to people are decided here. It has no clock, no store and no engine: the server's async shell and the
//! explorer drive this very code.
//!
//! A turn is hear → commit → answer, forget, snapshot, call → rest. Engines are looked at between turns, each at its own
//! pace: a look is asked for here and answered whenever the engine answers, and a job whose engine was not seen is left
//! alone meanwhile. Nothing is called that is not committed, and people get their answer after the commit. After a commit
//! that failed nothing is stepped and nothing is called until the server leads and has loaded again.

mod away;
mod engines;
mod missing;
mod requests;
mod step;
#[cfg(test)]
mod tests;
mod watch;

#[cfg(test)]
pub(crate) use tests::offer_of;

pub use away::Away;
pub use requests::{Answer, Refused, Ticket};
pub(crate) use requests::{continued_already, path_in_use};
pub use step::{Gone, Habits, Moment, Step};

use crate::dispatch::{self, Performed};
use crate::durable::Durable;
use crate::flights::Flights;
use crate::journal::Journal;
use crate::merge::ProgressMerge;
use crate::snapshots::SnapshotEnd;
use requests::Request;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use watch::Watch;
use windfall_core::brain::Config;
use windfall_core::{Brain, DecisionId, Event, LeaseId, codec};
use windfall_store::{Commit, Loaded, StoreError};

#[derive(Debug)]
enum Phase {
    /// May step and call.
    Leading,
    /// The store did not take a commit.
    Away(Away),
    /// Another server leads, or the state cannot be read any more.
    Ended(String),
}

#[derive(Debug)]
enum Stage {
    Resting,
    Looking,
    Committing(Box<Commit>),
    /// The store was given the commit.
    AwaitingStore,
    /// What follows from a commit is being handed out.
    HandingOut,
}

/// The server's loop.
pub struct Cycle {
    journal: Journal,
    habits: Habits,
    epoch: u64,
    phase: Phase,
    stage: Stage,
    /// What happened since the last turn.
    news: Vec<Event>,
    /// What people asked since the last turn.
    requests: Vec<Request>,
    /// What people asked and is in the commit that is on its way.
    in_commit: Vec<Request>,
    /// What people asked and nobody knows: its commit's answer was lost, and they were told so.
    given_up: Vec<Event>,
    /// Leases whose end is in the commit that is on its way.
    ending: Vec<Gone>,
    out: VecDeque<Step>,
    flights: Flights,
    progress: ProgressMerge,
    /// Every engine that is configured, or that the log knows, by name.
    watches: BTreeMap<String, Watch>,
    /// What this server was started with.
    config: Config,
    snapshot_not_before: u64,
    /// When what all agents said last was gone through; none when that is to be done.
    heard_all: Option<Duration>,
}

impl Cycle {
    /// Begins on a store that was led with `epoch` and then loaded. Only applies: nothing is decided again.
    pub fn start(
        habits: Habits,
        config: Config,
        engines: &[String],
        epoch: u64,
        loaded: Loaded,
        now: Moment,
    ) -> Result<Cycle, codec::CodecError> {
        let journal = Journal::load(loaded)?;
        let now = Moment { world: journal.brain().now().max(now.world), ..now };
        // Leases of an engine that is no longer configured are not forgotten: it counts as one that does not answer.
        let known = journal.brain().engines().into_iter().map(str::to_owned);
        let watches = known.chain(engines.iter().cloned()).map(|engine| (engine, Watch::new(now))).collect();
        Ok(Cycle {
            journal,
            habits,
            config,
            epoch,
            phase: Phase::Leading,
            stage: Stage::Looking,
            news: Vec::new(),
            requests: Vec::new(),
            in_commit: Vec::new(),
            given_up: Vec::new(),
            ending: Vec::new(),
            out: VecDeque::new(),
            flights: Flights::default(),
            progress: ProgressMerge::default(),
            watches,
            snapshot_not_before: 0,
            heard_all: None,
        })
    }

    /// The state that a server would begin with.
    pub fn state_of(loaded: Loaded) -> Result<Brain, codec::CodecError> {
        Journal::load(loaded).map(Journal::into_brain)
    }

    /// What this server goes by from its next turn on.
    pub fn configure(&mut self, config: Config) {
        self.config = config;
    }

    /// The state: what is durable, but for the moment between a commit that is made and its answer.
    pub fn brain(&self) -> &Brain {
        self.journal.brain()
    }

    /// The last row that is durable for sure.
    pub fn known_seq(&self) -> u64 {
        self.journal.known_seq()
    }

    /// The fencing epoch of its writes.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The last row that a stored snapshot covers.
    pub fn snapshot_seq(&self) -> u64 {
        self.journal.snapshot_seq()
    }

    /// The state that is durable, for readers. It stays the same one for as long as this loop lives.
    pub fn durable(&self) -> &Arc<Durable> {
        self.journal.durable()
    }

    /// Since when and why nothing can be written, if so.
    pub fn away(&self) -> Option<&Away> {
        match &self.phase {
            Phase::Away(away) => Some(away),
            Phase::Leading | Phase::Ended(_) => None,
        }
    }

    /// Whether it may step and call.
    pub fn leads(&self) -> bool {
        matches!(self.phase, Phase::Leading)
    }

    /// Takes in what happened, for the next turn.
    pub fn happened(&mut self, events: impl IntoIterator<Item = Event>) {
        if self.leads() {
            self.news.extend(events);
        }
    }

    /// A call that was asked for is over. While the store is away its news is not kept: engines are observed and
    /// called again after loading.
    pub fn performed(&mut self, now: Moment, id: DecisionId, performed: Performed) {
        self.flights.landed(id, now.real, performed.again);
        self.happened(performed.events);
    }

    /// Something happened, or the moment came that the loop rested for.
    pub fn turn(&mut self) {
        if let Stage::Resting = self.stage {
            self.stage = Stage::Looking;
        }
    }

    /// What to do next.
    pub fn next(&mut self, now: Moment) -> Step {
        self.give_up_on_old_requests(now);
        if let Some(step) = self.out.pop_front() {
            return step;
        }
        match &mut self.phase {
            Phase::Ended(why) => return Step::End(why.clone()),
            Phase::Away(away) => return away.next(now.real, || self.journal.known_seq()),
            Phase::Leading => {}
        }
        match std::mem::replace(&mut self.stage, Stage::Resting) {
            Stage::Resting => self.rest(now),
            Stage::Looking => {
                self.stage = Stage::Looking;
                match self.next_look(now) {
                    Some(look) => look,
                    None => {
                        let gone = self.news.iter().filter_map(ended_lease).collect();
                        let all = self.heard_all.is_none_or(|at| now.real >= at + self.habits.hear_all_every);
                        if all {
                            self.heard_all = Some(now.real);
                        }
                        Step::Hear { gone, all }
                    }
                }
            }
            Stage::Committing(commit) => {
                self.stage = Stage::AwaitingStore;
                Step::Commit(commit)
            }
            Stage::AwaitingStore => {
                self.stage = Stage::AwaitingStore;
                Step::Rest { world: None, real: None }
            }
            Stage::HandingOut => self.hand_out(now),
        }
    }

    fn rest(&self, now: Moment) -> Step {
        let missing = self.watches.values().filter_map(|watch| watch.next_missing(now.real, self.brain()));
        let world = self.brain().next_wakeup().into_iter().chain(missing).min();
        let looks = self.watches.values().filter_map(|watch| watch.next(now.real, &self.habits));
        let real = self.flights.next().into_iter().chain(looks).min();
        Step::Rest { world, real }
    }

    /// What agents said of their workers. Makes the commit of this turn.
    pub fn heard(&mut self, now: Moment, said: Vec<Event>) {
        if !self.leads() {
            return;
        }
        let mut news = std::mem::take(&mut self.news);
        for (engine, watch) in &self.watches {
            let silent = watch.silent_since(now.real, &self.habits).filter(|_| !watch.is_seen(now.real, &self.habits));
            news.extend(silent.map(|since| Event::EngineSilent { engine: engine.clone(), since }));
        }
        let events = dispatch::in_order(news, said);
        let brain = self.journal.brain();
        let events = self.progress.thin(brain, events, now.real, self.habits.progress_every);
        self.prepare(now, events);
    }

    fn prepare(&mut self, now: Moment, events: Vec<Event>) {
        let mut batch = self.journal.begin(now.world);
        self.ending.clear();
        // What the log says of the configuration may be of another server, or not have been written. A log begins with
        // it: what is usual changes from version to version.
        if *self.journal.brain().config() != self.config || self.journal.brain().last_seq() == 0 {
            self.journal.take(&mut batch, Event::Configured { config: Box::new(self.config.clone()) });
        }
        for event in events {
            let ends = ended_lease(&event).map(|lease| self.gone(lease, &event));
            if self.journal.take(&mut batch, event).is_some() {
                self.ending.extend(ends);
            }
        }
        self.in_commit.clear();
        for mut request in std::mem::take(&mut self.requests) {
            match requests::refusal(self.journal.brain(), self.journal.save_paths(), &request.event) {
                Some(refused) => self.out.push_back(Step::Answer(request.ticket, Err(refused))),
                None => {
                    let submitted = self.journal.brain().next_workload();
                    request.logged = self.journal.take(&mut batch, request.event.clone());
                    if request.logged.is_some() {
                        batch.note(submitted, request.notes.as_ref());
                    }
                    self.in_commit.push(request);
                }
            }
        }
        self.journal.decide(&mut batch, &self.unseen(now));
        match self.journal.finish(batch) {
            Some(commit) => self.stage = Stage::Committing(Box::new(commit)),
            None => self.done(),
        }
    }

    /// What came of the commit. After any error nothing of it counts until the log was read again.
    pub fn committed(&mut self, now: Moment, result: Result<(), StoreError>) {
        let error = match result {
            Ok(()) => {
                self.flights.decided(self.journal.confirm());
                return self.done();
            }
            Err(error) => error,
        };
        self.stage = Stage::Looking;
        self.heard_all = None;
        self.ending.clear();
        self.news.clear();
        self.journal.roll_back();
        if let Some(why) = away::final_word(&error, self.epoch) {
            return self.end(why);
        }
        let away = Away::new(now.real, &error);
        self.say(format!("the database is away, nothing is decided until it is back: {}", away.why()));
        let unsure = matches!(error, StoreError::Unsure { .. } | StoreError::Crashed);
        for request in std::mem::take(&mut self.in_commit) {
            if requests::is_in_log(self.journal.brain(), &request) {
                // It came before, and its first answer was lost: this commit was not about it.
                let answer = Ok(requests::number(self.journal.brain(), &request));
                self.out.push_back(Step::Answer(request.ticket, answer));
            } else if unsure {
                self.requests.push(Request { since: now.real, logged: None, held: true, ..request });
            } else {
                let refused = Refused::Away { why: away.why().to_owned() };
                self.out.push_back(Step::Answer(request.ticket, Err(refused)));
            }
        }
        self.phase = Phase::Away(away);
    }

    /// The turn's commit is durable, or there was nothing to write.
    fn done(&mut self) {
        for request in std::mem::take(&mut self.in_commit) {
            let answer = Ok(requests::number(self.journal.brain(), &request));
            self.out.push_back(Step::Answer(request.ticket, answer));
        }
        let gone = std::mem::take(&mut self.ending);
        for watch in self.watches.values_mut() {
            gone.iter().for_each(|gone| watch.is_over(gone.lease));
        }
        // What an engine has forgotten a late request would make again: those are left to the next sweep.
        let gone: Vec<Gone> = gone.into_iter().filter(|gone| !self.flights.is_on_its_way(gone.lease.group)).collect();
        if !gone.is_empty() {
            self.out.push_back(Step::Forget(gone));
        }
        self.stage = Stage::HandingOut;
    }

    fn hand_out(&mut self, now: Moment) -> Step {
        let due = self.flights.due(self.journal.brain(), now.real);
        self.out.extend(due.into_iter().map(Step::Call));
        let seq = self.brain().last_seq();
        let snapshot =
            (seq >= self.snapshot_not_before).then(|| self.journal.snapshot_after(self.habits.snapshot_rows));
        if let Some(snapshot) = snapshot.flatten() {
            self.out.push_back(Step::Snapshot(snapshot));
        }
        self.stage = Stage::Resting;
        self.out.pop_front().unwrap_or_else(|| self.rest(now))
    }

    /// The snapshot that was asked for is stored, or not.
    pub fn snapshot_ended(&mut self, end: SnapshotEnd) {
        if self.journal.snapshot_ended(end).is_err() {
            self.snapshot_not_before = self.brain().last_seq() + self.habits.snapshot_rows / 4 + 1;
        }
    }

    /// What came of [`Step::Lead`]: the epoch once the lead was taken, and what the log held then beyond what was known.
    pub fn led(&mut self, now: Moment, result: Result<(u64, Result<Loaded, StoreError>), StoreError>) {
        let Phase::Away(away) = &mut self.phase else { return };
        let error = match result {
            Ok((epoch, loaded)) => {
                if let Some(why) = away::led_meanwhile(epoch, self.epoch + away.unsure_leads()) {
                    return self.end(why);
                }
                self.epoch = epoch;
                away.forget_unsure_leads();
                match loaded {
                    Ok(loaded) => return self.loaded(now, loaded),
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        match away::final_word(&error, self.epoch + away.unsure_leads()) {
            Some(why) => self.end(why),
            None => away.try_later(now.real, &error),
        }
    }

    fn loaded(&mut self, now: Moment, loaded: Loaded) {
        if let Err(error) = self.journal.catch_up(loaded) {
            return self.end(format!("the state cannot be read: {error}"));
        }
        if let Phase::Away(away) = &self.phase {
            let seconds = now.real.saturating_sub(away.since()).as_secs_f64();
            self.say(format!("the database is back after {seconds:.1} s"));
        }
        self.phase = Phase::Leading;
        self.stage = Stage::Looking;
        self.flights.forget_answers();
        // What was let through may not have been written; agents say all of it again.
        self.progress = ProgressMerge::default();
        self.given_up.clear();
        self.watches.values_mut().for_each(|watch| watch.start_over(now));
        // What the lost answer was about is in the log now, or it is not and is tried once more.
        for request in std::mem::take(&mut self.requests) {
            if requests::is_in_log(self.journal.brain(), &request) {
                let answer = Ok(requests::number(self.journal.brain(), &request));
                self.out.push_back(Step::Answer(request.ticket, answer));
            } else {
                self.requests.push(Request { held: false, ..request });
            }
        }
    }

    fn end(&mut self, why: String) {
        let waiting = std::mem::take(&mut self.in_commit).into_iter().chain(std::mem::take(&mut self.requests));
        let refused = waiting.map(|request| (request.ticket, Err(Refused::Unknown { why: why.clone() })));
        self.out.extend(refused.map(|(ticket, answer)| Step::Answer(ticket, answer)));
        self.say(why.clone());
        self.phase = Phase::Ended(why);
    }

    fn say(&mut self, text: String) {
        self.out.push_back(Step::Say(text));
    }

    /// A lease whose end is being taken in.
    fn gone(&self, lease: LeaseId, event: &Event) -> Gone {
        let known = self.brain().lease(lease);
        let served = known.into_iter().flat_map(|known| {
            known.workload.into_iter().chain(known.sharers.iter().map(|sharer| sharer.stint.workload))
        });
        let key = |id| Some((id, self.brain().job(id)?.spec.run.environment.clone()));
        let keys = served.filter_map(key).collect();
        let found = match event {
            Event::LeaseFound { offer, .. } => Some(offer),
            _ => None,
        };
        let offer = known.map(|known| &known.offer).or(found);
        let engine = offer.map(|offer| offer.engine().to_owned()).unwrap_or_default();
        Gone { lease, engine, keys, address: known.and_then(|known| known.ready.clone()) }
    }
}

/// The lease whose end an event tells.
fn ended_lease(event: &Event) -> Option<LeaseId> {
    match event {
        Event::LeaseGone { lease, .. } | Event::LeaseFound { lease, until: Some(_), .. } => Some(*lease),
        _ => None,
    }
}
