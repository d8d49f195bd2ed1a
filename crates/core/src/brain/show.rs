//! A job as people see it, from what the brain knows of it. Nothing is changed.

use super::{Brain, Job, Lease, LeasePhase, StintPhase};
use crate::english::counted;
use crate::health::Symptom;
use crate::ids::{LeaseId, NodeId, WorkloadId};
use crate::ledger::Goods;
use crate::market::Sight;
use crate::offer::Market;
use crate::pool::{Health, Node};
use crate::record::Outcome;
use crate::spec::JobSpec;
use crate::units::{NanoUsd, Span, Time};
use crate::view::{JobView, LeaseView, State};
use crate::want::GroupPhase;

impl Brain {
    /// Jobs below a number, the newest first.
    pub fn jobs_below(&self, before: WorkloadId) -> impl Iterator<Item = &Job> {
        self.jobs.range(..before).rev().map(|(_, job)| job.as_ref())
    }

    /// A job as shown at `now`; none when the brain has forgotten it (the store has not).
    pub fn view(&self, id: WorkloadId, now: Time) -> Option<JobView> {
        let job = self.job(id)?;
        let now = self.now().max(now);
        let now = job.ended.as_ref().map_or(now, |(at, _)| if self.used_by(id).next().is_none() { *at } else { now });
        let mut view = blank(job, now);
        view.state = self.state_of(job);
        let mut sight = self.sight(job, now);
        view.slack = if view.state.is_over() { None } else { sight.slack() };
        if let Some((stint, StintPhase::Running { since })) = job.stint.as_ref().map(|stint| (stint, stint.phase)) {
            view.ran += stint.as_whole(now - since, job.spec.gang);
        }
        for (lease, since) in self.used_by(id) {
            let held = since.map_or(Span::ZERO, |since| now - since);
            view.count(lease.market, held, self.owed(lease, id, now));
        }
        view.lease = self.lease_view(job);
        if view.state == State::Waiting {
            self.without_what_is_held(job, &mut sight);
        }
        view.waits_for = match view.state {
            State::Waiting => Some(self.why_waiting(job, &sight, now)),
            State::Acquiring => self
                .rest_of(job, now)
                .or_else(|| self.queue_of(job))
                .or_else(|| self.leases_of(job.id).find_map(|lease| self.silence(lease.offer.engine(), now))),
            _ => None,
        };
        view.restart = job.seen_restart(self.config());
        let firm = sight.offers.iter().filter(|seen| seen.market == Market::OnDemand).map(|seen| seen.price);
        view.on_demand_price = firm.min().map(|price| NanoUsd(price.0.saturating_mul(i64::from(job.spec.gang))));
        Some(view)
    }

    pub(super) fn state_of(&self, job: &Job) -> State {
        if let Some((_, outcome)) = &job.ended {
            return over(outcome);
        }
        let noticed = self.used_by(job.id).any(|(lease, _)| matches!(lease.phase, LeasePhase::Noticed { .. }));
        match &job.stint {
            Some(stint) if stint.stopping.is_some() || noticed => State::Draining,
            Some(stint) if stint.phase == StintPhase::Starting => State::Starting,
            Some(_) => State::Running,
            None if self.leases_of(job.id).any(|lease| !lease.is_releasing()) => State::Acquiring,
            None if job.paused => State::Paused,
            None => State::Waiting,
        }
    }

    /// What others hold cannot be had: so a job sees it that holds nothing.
    pub(super) fn without_what_is_held(&self, job: &Job, sight: &mut Sight) {
        for seen in sight.offers.iter_mut().filter(|seen| seen.available) {
            let capacity = self.offers.get(&seen.id).and_then(|offer| offer.capacity);
            let left = capacity.map(|capacity| capacity.saturating_sub(self.leases.count_of(&seen.id)));
            seen.available = left.is_none_or(|left| left >= job.spec.least());
        }
    }

    fn why_waiting(&self, job: &Job, sight: &Sight, now: Time) -> String {
        match &job.store_away {
            Some(away) => format!("the store of its checkpoints: {}", away.trouble.text),
            None => {
                if let Some(rest) = self.rest_of(job, now) {
                    return rest;
                }
                if let Some(no_room) = job.no_room.as_ref().filter(|no_room| no_room.until > now) {
                    return format!("{}: it is tried again in {}", no_room.why, no_room.until - now);
                }
                if let Some(holder) = self.waits_for_room_of(job) {
                    return format!("room on the machine that job {holder} gets, if some is left");
                }
                let silent = sight.offers.iter().find_map(|seen| self.silence(seen.id.engine(), now));
                let text = self.choose(job, sight).1.text;
                let obstacle = self.obstacle(job, sight);
                let text = obstacle.map_or(text.clone(), |obstacle| format!("{text} ({obstacle})"));
                let text = silent.map_or(text.clone(), |silent| format!("{text}; {silent}"));
                self.not_well(job).map_or(text.clone(), |drained| format!("{text}; {drained}"))
            }
        }
    }

    /// A node that might have what a job asks for, and was drained: by somebody, or because it is not well.
    fn not_well(&self, job: &Job) -> Option<String> {
        let asks = &job.spec.resources;
        let may_fit = |node: &&Node| {
            node.accelerator.is_empty() || asks.is_empty() || asks.iter().any(|ask| ask.accelerator == node.accelerator)
        };
        let is_drained = |node: &&Node| node.health == Health::Drained || !node.symptoms.is_empty();
        let first = self.nodes.values().filter(is_drained).find(may_fit)?;
        let of_operator = || first.drained_for.clone().unwrap_or_else(|| "by its operator".to_owned());
        let why = first.symptoms.first().map_or_else(of_operator, ToString::to_string);
        Some(format!("{} is drained: {why}", first.id.name()))
    }

    fn silence(&self, engine: &str, now: Time) -> Option<String> {
        self.silent_since(engine).map(|since| format!("{engine} has not answered for {}", now - since))
    }

    /// Its program brought nothing, and is tried again a little later.
    fn rest_of(&self, job: &Job, now: Time) -> Option<String> {
        let at = job.rests_until(now)?;
        let times = counted(job.fruitless.into(), "time");
        Some(format!("its program brought nothing {times} in a row: it is tried again in {}", at - now))
    }

    /// The queue of an engine in which its group waits.
    fn queue_of(&self, job: &Job) -> Option<String> {
        let group = self.leases_of(job.id).find_map(|lease| self.group_of(lease))?;
        let GroupPhase::Queued { eta, .. } = group.phase else { return None };
        let engine = group.want.alternatives.first().and_then(|first| self.offer(&first.offer)).map(|o| &o.engine);
        let expected = eta.map_or(String::new(), |eta| format!(", expected in {}", eta - self.now()));
        Some(format!("the queue of {}{expected}", engine.map_or("its engine", |engine| engine.as_str())))
    }

    fn lease_view(&self, job: &Job) -> Option<LeaseView> {
        let held: Vec<_> = self.used_by(job.id).map(|(lease, _)| lease).filter(|lease| !lease.is_releasing()).collect();
        let first = held.first()?;
        // An offer may be gone by now: the same machine is sold otherwise.
        let offer = self.offer(&first.offer);
        let goods = first.goods.as_deref().cloned().or_else(|| offer.map(Goods::of))?;
        let ends_at = held.iter().filter_map(|lease| match lease.phase {
            LeasePhase::Noticed { ends_at } => Some(ends_at),
            _ => None,
        });
        let in_part = |lease: &&Lease| {
            self.node_meter(lease).is_some() || lease.workload != Some(job.id) || !lease.sharers.is_empty()
        };
        let price_per_hour = match offer.filter(|_| !held.iter().any(in_part)) {
            Some(offer) => NanoUsd(offer.price_per_hour.0.saturating_mul(held.len() as i64)),
            // The price of an offer is what it is chosen by; what is paid is a part of a node, or of a shared lease.
            None => held.iter().fold(NanoUsd(0), |sum, lease| sum + self.hourly(lease, job.id)),
        };
        // Which of its machines an owner has given is worth more than what kind it is.
        let node = first.terms.node.as_ref().filter(|_| first.market == Market::Owned);
        let node = node.map(NodeId::name);
        Some(LeaseView {
            id: LeaseId::to_string(&first.id),
            zone: node.map_or(goods.zone, str::to_owned),
            instance_type: goods.instance_type,
            market: first.market,
            price_per_hour,
            ends_at: ends_at.min(),
            not_well: held
                .iter()
                .find_map(|lease| self.nodes.get(lease.terms.node.as_ref()?)?.symptoms.first())
                .map(Symptom::to_string),
        })
    }
}

fn over(outcome: &Outcome) -> State {
    match outcome {
        Outcome::Succeeded => State::Succeeded,
        Outcome::Failed { .. } => State::Failed,
        Outcome::Cancelled { .. } => State::Cancelled,
        Outcome::StoppedByRule { .. } => State::Stopped,
    }
}

fn blank(job: &Job, now: Time) -> JobView {
    let JobSpec { name, owner, deadline, budget, gang, work, run, .. } = &*job.spec;
    let mut view = JobView {
        id: job.id,
        name: name.clone(),
        key: run.environment.clone(),
        owner: owner.clone(),
        state: State::Waiting,
        outcome: job.ended.as_ref().map(|(_, outcome)| outcome.clone()),
        at: now,
        submitted_at: job.submitted_at,
        began_at: job.began_at,
        ended_at: job.ended.as_ref().map(|(at, _)| *at),
        deadline: *deadline,
        budget: *budget,
        done: job.done_at(now),
        durable: job.progress.durable,
        total: job.total(),
        unit: work.unit,
        slack: None,
        lease: None,
        stints: job.epoch,
        interruptions: job.interruptions,
        lost: job.lost,
        ran: job.ran,
        cost: NanoUsd(0),
        spot: Span::ZERO,
        firm: Span::ZERO,
        owned: Span::ZERO,
        spot_cost: NanoUsd(0),
        firm_cost: NanoUsd(0),
        owned_cost: NanoUsd(0),
        on_demand_price: None,
        restart: Span::ZERO,
        restarts: job.restarts.0,
        trouble: job.trouble(),
        waits_for: None,
        told: job.told.clone(),
        gang: *gang,
        exit_code: match &job.ended {
            Some((_, Outcome::Failed { code, .. })) => Some(*code),
            _ => None,
        },
    };
    for (market, held) in &job.held {
        view.count(*market, *held, NanoUsd(0));
    }
    for (market, paid) in &job.paid_by {
        view.count(*market, Span::ZERO, *paid);
    }
    view
}
