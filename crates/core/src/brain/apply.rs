//! The fold: one function for each thing that can happen. Stale, repeated and impossible records leave
//! the state as it is; nothing here decides.

use super::job::{SaveAsked, Stopping, Worker};
use super::{Brain, Job, Lease, LeasePhase, RECENT_KEYS, SHOWN_AFTER_END, Stint, StintPhase};
use crate::ids::{DecisionId, LeaseId, WorkloadId};
use crate::ledger::{Goods, Meter};
use crate::offer::{Market, Offer, OfferId};
use crate::record::{Body, Decision, Event, LeaseEnd, Record, Refusal, WorkerEnd};
use crate::spec::{Ask, Workload};
use crate::told::Told;
use crate::units::{Span, Time};

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
    }

    fn on_event(&mut self, seq: u64, event: &Event) {
        if !self.is_news(event) {
            return;
        }
        match event {
            Event::Configured { config } => self.config = (**config).clone(),
            Event::Submitted { workload, key, id } => self.on_submitted(id.unwrap_or(WorkloadId(seq)), workload, key),
            Event::CancelRequested { workload, by } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.cancelled_by = Some(by.clone());
                }
            }
            Event::BudgetSet { workload, budget, .. } => {
                if let Some(job) = self.jobs.get_mut(workload) {
                    job.spec.budget = *budget;
                    job.paused = false;
                }
            }
            Event::OfferSeen { offer } => self.on_offer_seen(seq, offer),
            Event::OfferGone { offer } => self.on_offer_gone(offer),
            Event::LeaseUp { lease, at } => self.on_lease_up(*lease, *at),
            Event::LeaseFailed { lease, refusal } => self.on_lease_failed(*lease, *refusal),
            Event::LeaseNoticed { lease, ends_at } => self.on_lease_noticed(*lease, *ends_at),
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
        let live = self.jobs.values().filter(|job| job.ended.is_none());
        let used: Vec<(u32, &[Ask])> = live.map(|job| (job.spec.least(), job.spec.resources.as_slice())).collect();
        self.lookouts.watch(&self.model, (spec.least(), &spec.resources), self.offers.values(), &used, self.now);
        self.jobs.insert(id, Job::new(id, spec.clone(), self.now));
        self.keys.push_back((key.to_owned(), id));
        while self.keys.len() > RECENT_KEYS.max(self.jobs.len()) {
            self.keys.pop_front();
        }
    }

    fn on_offer_seen(&mut self, seq: u64, offer: &Offer) {
        let before = self.offers.insert(offer.id.clone(), offer.clone());
        self.gone_prices.remove(&offer.id);
        self.lookouts.saw(&self.model, self.config.look_every, offer, self.now);
        let more = before.as_ref().is_none_or(|before| offer.capacity > before.capacity);
        if more {
            self.refused.remove(&offer.id);
        }
        if before.is_some_and(|before| before.price_per_hour == offer.price_per_hour) {
            return;
        }
        let now = self.now;
        for lease in self.leases.values_mut().filter(|lease| lease.offer == offer.id) {
            self.fresh_ledger.extend(lease.charge(now, seq, &self.jobs));
            if let Some(meter) = &mut lease.meter {
                meter.rate = offer.price_per_hour;
            }
        }
    }

    /// What is no longer shown cannot be bought; leases of it go on at their last price.
    fn on_offer_gone(&mut self, id: &OfferId) {
        self.heard(id, false);
        if let Some(offer) = self.offers.remove(id) {
            self.gone_prices.insert(offer.id, offer.price_per_hour);
        }
        self.refused.remove(id);
    }

    fn on_lease_up(&mut self, id: LeaseId, at: Time) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let at = at.clamp(lease.asked_at, self.now);
        lease.goods = self.offers.get(&lease.offer).map(Goods::of).or(lease.goods.take());
        let shown = self.offers.get(&lease.offer).map(|offer| offer.price_per_hour);
        let rate = shown.or(self.gone_prices.get(&lease.offer).copied()).unwrap_or_default();
        lease.up_at = Some(at);
        let offer = lease.offer.clone();
        lease.meter = Some(Meter::start(at, rate));
        if lease.phase == LeasePhase::Asked {
            lease.phase = LeasePhase::Up;
        }
        if !lease.market.can_be_taken() {
            self.droughts.given(&offer, self.now);
        }
        self.heard(&offer, true);
    }

    /// A market's answer is all that is known of an offer whose capacity nobody tells.
    fn heard(&mut self, offer: &OfferId, up: bool) {
        let silent = self.offers.get(offer).is_some_and(|o| o.market.can_be_taken() && o.capacity.is_none());
        if silent {
            self.lookouts.heard(&self.model, self.config.look_every, offer, up, self.now);
        }
    }

    fn on_lease_failed(&mut self, id: LeaseId, refusal: Refusal) {
        let Some(lease) = self.leases.remove(&id) else { return };
        if refusal == Refusal::NoCapacity {
            self.heard(&lease.offer, false);
        }
        let pause = match refusal {
            Refusal::NoCapacity => self.config.refusal_pause,
            Refusal::Retry { after } => after,
            Refusal::Quota | Refusal::Auth | Refusal::Invalid | Refusal::Bug => Span(self.config.refusal_pause.0 * 10),
        };
        let until = self.now + Span(pause.0.clamp(1_000, Span::hours(1).0));
        if !lease.market.can_be_taken() {
            self.droughts.refused(&lease.offer, self.now, until);
        }
        let known = self.refused.entry(lease.offer).or_insert(until);
        *known = (*known).max(until);
        lease.workload.into_iter().for_each(|workload| self.forget_if_over(workload));
    }

    /// Whether a life of a lease that began at `since` is in the books to its end.
    pub(super) fn is_booked(&self, id: LeaseId, since: Time) -> bool {
        self.closed.iter().any(|(closed, end)| *closed == id && *end >= since)
    }

    fn note_closed(&mut self, id: LeaseId, at: Time) {
        self.closed.push_back((id, at));
        let now = self.now;
        self.closed.retain(|(_, end)| now - *end <= SHOWN_AFTER_END);
    }

    /// Takes a lease into the books that nobody asked for as far as the log knows.
    fn on_lease_found(&mut self, id: LeaseId, offer: &OfferId, since: Option<Time>) {
        let market = self.offers.get(offer).map_or(Market::OnDemand, |offer| offer.market);
        self.leases.insert(
            id,
            Lease {
                id,
                workload: None,
                offer: offer.clone(),
                goods: self.offers.get(offer).map(Goods::of),
                market,
                max_price: None,
                // Nobody knows when it was asked for; it may come up before this news of it arrives.
                asked_at: Time(0),
                phase: LeasePhase::Asked,
                meter: None,
                up_at: None,
                at_risk_since: None,
            },
        );
        since.into_iter().for_each(|since| self.on_lease_up(id, since));
    }

    fn on_lease_noticed(&mut self, id: LeaseId, ends_at: Time) {
        let Some(lease) = self.leases.get_mut(&id) else { return };
        lease.phase = LeasePhase::Noticed { ends_at };
        let job = lease.workload.and_then(|workload| self.jobs.get_mut(&workload));
        if let Some(stint) = job.and_then(|job| job.stint.as_mut())
            && stint.leases.contains(&id)
        {
            stint.interrupted = true;
        }
    }

    fn on_lease_gone(&mut self, seq: u64, id: LeaseId, at: Time, end: LeaseEnd) {
        let Some(mut lease) = self.leases.remove(&id) else { return };
        if end == LeaseEnd::Taken {
            self.heard(&lease.offer, false);
        }
        let end_at = lease.up_at.map_or(at, |up_at| at.clamp(up_at, self.now));
        self.fresh_ledger.extend(lease.charge(end_at, seq, &self.jobs));
        self.note_closed(id, end_at);
        let Some(workload) = lease.workload else { return };
        let Some(job) = self.jobs.get_mut(&workload) else { return };
        if lease.up_at.is_some() {
            let paid = lease.cost_at(end_at);
            job.paid += paid;
            *job.paid_by.entry(lease.market).or_default() += paid;
            *job.held.entry(lease.market).or_default() += lease.held_at(end_at);
        }
        if let Some(stint) = &mut job.stint
            && let Some(rank) = stint.leases.iter().position(|lease| *lease == id)
        {
            // Whatever ran on it is dead, and did not end by itself as far as anyone knows.
            let worker = &mut stint.workers[rank];
            stint.interrupted |= worker.end.is_none() && (end != LeaseEnd::Released || stint.stopping.is_none());
            worker.end.get_or_insert(WorkerEnd::Stopped);
            worker.settled = true;
            if stint.is_ended() {
                stint.ended_at.get_or_insert(self.now);
            }
        }
        self.close_stint_if_over(workload);
        self.forget_if_over(workload);
    }

    fn on_decision(&mut self, seq: u64, decision: &Decision) {
        let by = DecisionId { installation: self.installation, seq };
        match decision {
            Decision::Acquire { lease, workload, offer, market, max_price } => {
                let (now, Some(job)) = (self.now, self.jobs.get_mut(workload)) else { return };
                job.began_at.get_or_insert(now);
                self.leases.entry(*lease).or_insert_with(|| Lease {
                    id: *lease,
                    workload: Some(*workload),
                    offer: offer.clone(),
                    goods: self.offers.get(offer).map(Goods::of),
                    market: *market,
                    max_price: *max_price,
                    asked_at: now,
                    phase: LeasePhase::Asked,
                    meter: None,
                    up_at: None,
                    at_risk_since: None,
                });
            }
            Decision::Release { lease } => {
                if let Some(lease) = self.leases.get_mut(lease)
                    && !lease.is_releasing()
                {
                    lease.phase = LeasePhase::Releasing { by };
                }
            }
            Decision::Start { stint, leases, resume } => {
                let (now, Some(job)) = (self.now, self.jobs.get_mut(&stint.workload)) else { return };
                if job.stint.is_some() || stint.epoch <= job.epoch || leases.is_empty() {
                    return;
                }
                job.epoch = stint.epoch;
                let asked_at = leases.iter().filter_map(|id| self.leases.get(id)).map(|lease| lease.asked_at).min();
                let wanted_at = asked_at.max(job.stint_over_at).unwrap_or(now);
                job.stint = Some(Stint {
                    id: *stint,
                    by,
                    leases: leases.clone(),
                    resume: *resume,
                    phase: StintPhase::Starting,
                    wanted_at,
                    workers: vec![Worker::default(); leases.len()],
                    restored: None,
                    base: job.progress.durable,
                    resumed_with: job.progress.durable,
                    reported: None,
                    fruitful: false,
                    saved: false,
                    interrupted: false,
                    stopping: None,
                    save_asked: None,
                    unanswered: 0,
                    saved_at: None,
                    ended_at: None,
                    trouble: None,
                    troubled_at: None,
                });
            }
            Decision::Stop { stint: id, grace } => {
                let (now, Some(job)) = (self.now, self.jobs.get_mut(&id.workload)) else { return };
                let done = job.done_at(now);
                if let Some(stint) = job.stint.as_mut().filter(|stint| stint.id == *id) {
                    stint.stopping.get_or_insert(Stopping { by, grace: *grace, at: now, done });
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
    fn forget_if_over(&mut self, workload: WorkloadId) {
        let over = self.jobs.get(&workload).is_some_and(|job| job.ended.is_some() && job.stint.is_none());
        if over && !self.leases.values().any(|lease| lease.workload == Some(workload)) {
            self.final_views.extend(self.view(workload, self.now));
            self.jobs.remove(&workload);
            self.wake_at.remove(&workload);
        }
    }
}
