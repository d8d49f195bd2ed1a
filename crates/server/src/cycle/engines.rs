//! What the loop knows of engines: when each is looked at, what its answers say, and which of them nobody can go by now.

use super::watch::Watch;
use super::{Cycle, Gone, Moment, Phase, Step};
use crate::dispatch::{self, Look};
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::record::Subject;
use windfall_core::{DecisionId, Event, OfferId};
use windfall_exec::Owned;

impl Cycle {
    /// What an engine shows may have changed.
    pub fn stirred(&mut self, now: Moment, engine: &str) {
        if let Some(watch) = self.watches.get_mut(engine) {
            watch.stir(now);
        }
    }

    /// With the next look at each engine it is looked for what nobody knows, however lately that was done.
    pub fn sweep_now(&mut self) {
        self.watches.values_mut().for_each(Watch::sweep_now);
    }

    /// An engine begins anew: nothing of what it showed before counts.
    pub fn began_anew(&mut self, now: Moment, engine: &str) {
        if let Some(watch) = self.watches.get_mut(engine) {
            watch.begin_anew(now);
        }
    }

    /// This server did not run for a while: nobody was silent meanwhile but itself.
    pub fn slept(&mut self, now: Moment) {
        self.watches.values_mut().for_each(|watch| watch.slept(now));
    }

    /// The next look that is due. Engines are seen before timers fire: after a gap, what was seen last is old.
    pub(super) fn next_look(&mut self, now: Moment) -> Option<Step> {
        if self.brain().due(now.world).is_some() {
            let old = self.watches.values_mut().filter(|watch| !watch.is_fresh(now.real, &self.habits));
            old.for_each(|watch| watch.stir(now));
        }
        for watch in self.watches.values_mut() {
            if watch.next_missing(now.real, self.journal.brain()).is_some_and(|at| at <= now.world) {
                watch.stir(now);
            }
        }
        let wants =
            |(engine, watch): (&String, &Watch)| Some((engine.clone(), watch.wants_look(now.real, &self.habits)?));
        let (engine, sweep) = self.watches.iter().find_map(wants)?;
        let at_engine = self.brain().leases().filter(|lease| lease.offer.engine() == engine);
        let groups: BTreeSet<DecisionId> = at_engine.map(|lease| lease.id.group).collect();
        let groups: Vec<DecisionId> = groups.into_iter().collect();
        let number = self.watches.get_mut(&engine)?.begin(now, groups.clone(), sweep);
        Some(Step::Look { engine, number, groups, sweep })
    }

    /// What came of a look at an engine. It counts in the next turn.
    pub fn saw(&mut self, now: Moment, engine: &str, number: u64, result: Result<Look, String>) {
        let Some(watch) = self.watches.get_mut(engine).filter(|watch| watch.awaits(number)) else { return };
        // While the store is away nothing is kept: everything is looked at again after loading.
        if !matches!(self.phase, Phase::Leading) {
            return watch.stir(now);
        }
        let look = match result {
            Ok(look) => look,
            Err(why) => {
                if watch.failed(now, &self.habits) {
                    self.say(format!("{engine} cannot be observed: {why}"));
                }
                return;
            }
        };
        let Some((asked, over)) = watch.answered(now) else { return };
        let brain = self.journal.brain();
        let seen = dispatch::observed(brain, engine, &asked, &look);
        let gone = watch.missing.gone(brain, &seen.not_found, now.world);
        self.news.extend(seen.events.into_iter().chain(gone));
        if brain.silent_since(engine).is_some() {
            self.say(format!("{engine} can be observed again"));
            self.news.push(Event::EngineAnswers { engine: engine.to_owned() });
        }
        match look.owned {
            None => {}
            Some(Ok(mut owned)) => {
                owned.retain(|owned| !over.contains(&owned.lease));
                // Whatever it is called, who holds it is who is to give it back.
                for strange in owned.iter_mut().filter(|owned| owned.offer.engine() != engine) {
                    strange.offer = OfferId::new(&format!("{engine}/{}", strange.offer));
                }
                let orphans = self.sweep(engine, &owned);
                self.news.extend(orphans);
            }
            Some(Err(why)) => self.say(format!("what {engine} holds cannot be listed: {why}")),
        }
    }

    /// Engines of which it is not known what they show by now.
    pub fn unseen(&self, now: Moment) -> BTreeSet<String> {
        let unseen = self
            .watches
            .iter()
            .filter(|(_, watch)| !watch.is_seen(now.real, &self.habits) && !watch.is_given_up(now.real, &self.habits));
        unseen.map(|(engine, _)| engine.clone()).collect()
    }

    /// Leases that nobody would ever give back: by themselves they cost money for ever.
    fn sweep(&mut self, engine: &str, owned: &[Owned]) -> Vec<Event> {
        let brain = self.journal.brain();
        let orphans = dispatch::orphans(brain, owned);
        // An earlier server may have ended between the log's knowing that a lease is gone and the engine's forgetting it.
        let booked = |owned: &&Owned| {
            let lease = owned.lease;
            brain.lease(lease).is_none() && !orphans.iter().any(|event| event.subject() == Subject::Lease(lease))
        };
        let gone = owned.iter().filter(|owned| owned.until.is_some()).filter(booked);
        let gone = gone.map(|owned| Gone {
            lease: owned.lease,
            engine: engine.to_owned(),
            keys: BTreeMap::new(),
            address: owned.address.clone(),
        });
        let gone: Vec<Gone> = gone.collect();
        if !gone.is_empty() {
            self.out.push_back(Step::Forget(gone));
        }
        for event in &orphans {
            self.say(format!("not in the log, to be given back: {event:?}"));
        }
        orphans
    }
}
