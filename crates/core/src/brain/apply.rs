//! The fold: one function for each thing that can happen. Stale, repeated and impossible records leave
//! the state as it is; nothing here decides.

use super::job::{SaveAsked, Stopping};
use super::job_table::FitClass;
use super::{Brain, Job, RECENT_KEYS};
use crate::ids::{DecisionId, WorkloadId};
use crate::offer::{Offer, OfferId};
use crate::record::{Body, Decision, Event, LeaseEnd, Outcome, Record};
use crate::spec::Workload;
use crate::told::Told;
use crate::units::NanoUsd;
use std::sync::Arc;

/// No machine costs this much an hour. Sums of what costs no more do not overflow within a year.
const HIGHEST: i64 = 1_000_000_000_000_000;

impl Brain {
    /// Takes a record in. Total: any record, in any order, without panic.
    pub fn apply(&mut self, record: &Record) {
        self.now = self.now.max(record.at);
        self.last_seq = self.last_seq.max(record.seq);
        self.last_batch = self.last_batch.max(record.batch);
        self.undecided = true;
        match &record.body {
            Body::Event(event) => self.on_event(record.seq, event),
            Body::Decision(decision, _) => self.on_decision(record.seq, decision),
        }
        self.settle();
    }

    fn on_event(&mut self, seq: u64, event: &Event) {
        if !self.is_news(event) {
            return;
        }
        match event {
            Event::Configured { config } => {
                self.config = (**config).clone();
                self.awake.everyone();
            }
            Event::Submitted { workload, key, id } => self.on_submitted(id.unwrap_or(WorkloadId(seq)), workload, key),
            Event::CancelRequested { workload, by } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.cancelled_by = Some(by.clone());
                }
            }
            Event::GiveUpRequested { workload, .. } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.given_up = true;
                }
            }
            Event::BudgetSet { workload, budget, .. } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    Arc::make_mut(&mut job.spec).budget = *budget;
                    job.paused = false;
                }
            }
            Event::OfferSeen { offer } => self.on_offer_seen(seq, offer),
            Event::OfferGone { offer } => self.on_offer_gone(offer),
            Event::EngineSilent { engine, since } => {
                self.silent_engines.insert(engine.clone(), *since);
                self.on_engine_silence(engine);
            }
            Event::EngineAnswers { engine } => {
                self.silent_engines.remove(engine);
                self.on_engine_silence(engine);
            }
            Event::PoolSeen { pool } => self.on_pool_seen(seq, pool),
            Event::NodeSeen { node } => self.on_node_seen(seq, node),
            Event::NodeGone { node } => self.on_node_gone(seq, node),
            Event::GroupQueued { group, since, eta } => self.on_group_queued(*group, *since, *eta),
            Event::GroupGranted { group, at, units } => self.on_group_granted(*group, *at, *units),
            Event::GroupFailed { group, refusal } => self.on_group_failed(*group, *refusal),
            Event::LeaseUp { lease, at, terms, ready } => self.on_lease_up(*lease, *at, terms, ready.as_ref()),
            Event::LeaseReady { lease, address } => self.on_lease_ready(*lease, address),
            Event::LeaseNoticed { lease, ends_at, .. } => self.on_lease_noticed(*lease, *ends_at),
            Event::LeaseAtRisk { lease } => {
                if let Some(lease) = self.leases.get_mut(lease) {
                    lease.at_risk_since = Some(self.now);
                }
            }
            Event::LeaseGone { lease, at, end } => self.on_lease_gone(seq, *lease, *at, *end),
            Event::LeaseFound { lease, offer, since, until } => {
                self.on_lease_found(*lease, offer, *since);
                until.iter().for_each(|until| self.on_lease_gone(seq, *lease, *until, LeaseEnd::Lost));
            }
            Event::WorkerStarted { stint, rank, restored, work } => {
                self.on_worker_started(*stint, *rank, *restored, *work)
            }
            Event::WorkerEnded { stint, rank, end, settled } => self.on_worker_ended(*stint, *rank, end, *settled),
            Event::Troubled { stint, trouble } => self.on_troubled(*stint, trouble.as_ref()),
            Event::StoreChecked { workload, trouble } => self.on_store_checked(*workload, trouble.as_ref()),
            Event::Progress { stint, done, total } => self.on_progress(*stint, *done, *total),
            Event::CheckpointDurable { stint, checkpoint, work, ran } => {
                self.on_checkpoint(*stint, *checkpoint, *work, *ran)
            }
        }
    }

    fn on_submitted(&mut self, id: WorkloadId, workload: &Workload, key: &str) {
        self.last_workload = self.last_workload.max(id);
        let spec = workload.job();
        let (wanted, is_used) =
            ((spec.least(), spec.resources.as_slice()), |class: &FitClass| self.jobs.has_class(class));
        self.lookouts.watch(&self.model, wanted, self.offers.values(), is_used, self.now);
        let job = Job::new(id, spec.clone(), self.now);
        // What there is room for is noted by what is asked for: this was asked for by nobody of these people before.
        let person = job.person();
        if !self.jobs.singles(&person).any(|(asks, _)| *asks == spec.resources) {
            self.leases.offers_with_room(&person).for_each(|offer| self.awake.room(&person, offer));
        }
        self.jobs.insert(job);
        let jobs = &self.jobs;
        self.keys.add(key, id, RECENT_KEYS.max(jobs.len()), |id| jobs.contains_key(&id));
    }

    fn on_offer_seen(&mut self, seq: u64, offer: &Offer) {
        let before = self.offers.insert(offer.clone());
        self.awake.offer(&offer.id);
        self.lookouts.saw(&self.model, self.config.look_every, offer, self.now);
        let more = before.as_ref().is_none_or(|before| offer.capacity > before.capacity);
        if more {
            self.refused.remove(&offer.id);
        }
        self.withdrawn.remove(&offer.id);
        self.on_price(offer);
        if before.is_none_or(|before| before.pool != offer.pool) {
            self.leases.ids_of_offer(&offer.id).into_iter().for_each(|lease| self.reprice(lease, seq));
        }
    }

    /// Leases of an offer cost what it costs. That is news to those whose budget may end sooner than they look at it.
    fn on_price(&mut self, offer: &Offer) {
        let line = self.prices.entry(offer.id.clone()).or_default();
        let before = line.rate();
        line.push(self.now, NanoUsd(offer.price_per_hour.0.clamp(-HIGHEST, HIGHEST)));
        if self.leases.count_of(&offer.id) == 0 {
            line.forget_days();
        }
        if line.rate() > before {
            self.awake.price(&offer.id, line.rate());
        }
    }

    /// What is no longer shown cannot be bought; leases of it go on at their last price.
    fn on_offer_gone(&mut self, id: &OfferId) {
        self.heard(id, false);
        self.awake.offer(id);
        self.withdrawn.extend(self.offers.remove(id).map(|offer| (id.clone(), offer)));
        self.refused.remove(id);
    }

    /// A market's answer is all that is known of an offer whose capacity nobody tells.
    pub(super) fn heard(&mut self, offer: &OfferId, up: bool) {
        let silent = self.offers.get(offer).is_some_and(|o| o.market.can_be_taken() && o.capacity.is_none());
        if silent {
            self.lookouts.heard(&self.model, self.config.look_every, offer, up, self.now);
        }
    }

    fn on_decision(&mut self, seq: u64, decision: &Decision) {
        let by = DecisionId { installation: self.installation, seq };
        match decision {
            Decision::Acquire { want } => self.on_acquire(by, want),
            Decision::Release { group, slots } => self.on_release(by, *group, slots),
            Decision::HandOver { lease, to } => self.on_hand_over(seq, *lease, *to),
            Decision::Start { stint, allocations, resume } => self.on_start(by, *stint, allocations, *resume),
            Decision::Stop { stint: id, grace } => {
                let (now, Some(job)) = (self.now, self.jobs.get_mut(&id.workload)) else { return };
                let done = job.done_at(now);
                if let Some(stint) = job.stint.as_mut().filter(|stint| stint.id == *id) {
                    let stopping = Stopping { by, grace: *grace, at: now, done };
                    // Told once more: there is less time than was said, never more.
                    if stint.stopping.is_none_or(|known| stopping.ends() < known.ends()) {
                        stint.stopping = Some(stopping);
                    }
                }
            }
            Decision::Checkpoint { stint: id } => {
                let now = self.now;
                if let Some(stint) = self.jobs.get_mut(&id.workload).and_then(|job| job.stint.as_mut())
                    && stint.id == *id
                {
                    stint.save_asked = Some(SaveAsked { by, at: now });
                    stint.unanswered = stint.unanswered.saturating_add(1);
                }
            }
            Decision::CheckStore { workload } => {
                if let Some(away) = self.jobs.get_mut(workload).and_then(|job| job.store_away.as_mut()) {
                    away.asked = Some(by);
                    away.checks = away.checks.saturating_add(1);
                }
            }
            Decision::Pause { workload } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.paused = true;
                }
            }
            Decision::End { workload, outcome } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.ended.get_or_insert((self.now, outcome.clone()));
                    // Of one that has succeeded it is said when its stint is over.
                    job.told = job.left_behind.take().filter(|_| *outcome != Outcome::Succeeded).or(job.told.take());
                }
                self.forget_if_over(*workload);
            }
            Decision::Notify { workload, told } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.told_late |= *told == Told::Late;
                    job.told_infeasible |= matches!(told, Told::Infeasible { .. });
                    job.told = Some(told.clone());
                }
            }
        }
    }

    /// A job is forgotten here once it is over and nothing of it is paid for; the read model keeps it.
    pub(super) fn forget_if_over(&mut self, workload: WorkloadId) {
        let over = self.jobs.get(&workload).is_some_and(|job| job.ended.is_some() && job.stint.is_none());
        if over && self.leases_of(workload).next().is_none() {
            self.depart(workload);
            self.jobs.get(&workload).into_iter().for_each(|job| self.awake.forget(job));
            self.jobs.remove(workload);
            self.keys.forget(workload);
            self.following.forget(workload);
        }
    }
}
