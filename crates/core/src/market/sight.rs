//! What a policy sees: the time left, the work left as time, the offers, and what is held now.

use super::foresight::{Belief, Model, Plan, PlanTerms};
use crate::offer::{Market, OfferId};
use crate::reason::Reason;
use crate::units::{NanoUsd, Span, Time};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// While spot can be had, a job waits only for a saving of at least this many thousandths of what its next hour of work
/// costs (or the rest of its work, if that is shorter). A job may say otherwise.
pub const WORTH_WAITING_PERMILLE: u32 = 20;

/// What a world asks to be kept before a deadline. A live world is looked at often and keeps room for what
/// goes wrong; a replayed one is looked at once a tick, and nothing goes wrong in it but what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Margins {
    /// Kept on top of everything else.
    pub always: Span,
    /// Hundredths of the work left that are kept as well: speed is never known exactly.
    pub spare_percent: i64,
    /// Changeovers that must still fit while a lease is held that can be taken: the one after a loss, and
    /// one for each that may fail.
    pub changeovers: i64,
    /// How often the world is looked at: a wait lasts at least this long.
    pub tick: Span,
}

impl Default for Margins {
    fn default() -> Margins {
        Margins { always: Span::seconds(30), spare_percent: 2, changeovers: 2, tick: Span::seconds(30) }
    }
}

/// An offer as a policy sees it: acceptable to the job, with its price now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub id: OfferId,
    /// How it is bought.
    pub market: Market,
    /// Price an hour of one instance; where offers are not equally fast, of an hour's work at one speed.
    pub price: NanoUsd,
    /// What it costs to bring the job there: its checkpoint's way out of the region where it lies.
    pub entry: NanoUsd,
    /// The whole gang could be had now, as far as is known.
    pub available: bool,
    /// It refused, and is left alone until then.
    pub refused_until: Option<Time>,
    /// What is believed about its market, where it is watched.
    pub belief: Option<Arc<Belief>>,
}

/// What the job holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    /// Which offer.
    pub offer: OfferId,
    /// How it was bought.
    pub market: Market,
    /// The program runs on it.
    pub running: bool,
    /// Since when it is wanted: a changeover that has begun needs only the rest of its time.
    pub since: Time,
}

/// All that a policy may look at.
#[derive(Clone, Debug)]
pub struct Sight {
    /// The world's clock.
    pub now: Time,
    /// When the job began.
    pub began: Time,
    /// When it must be done.
    pub deadline: Option<Time>,
    /// Running time that the rest of the work needs; none while it is unknown.
    pub need: Option<Span>,
    /// Running time of the whole work.
    pub whole: Option<Span>,
    /// Changeover: from asking for a lease to progress.
    pub restart: Span,
    /// Longest that the program may take to stop before it moves: it may use all of it and save nothing.
    pub grace: Span,
    /// Running time that would be lost if the lease vanished now.
    pub at_risk: Span,
    /// The program was seen to save when it is told to stop: only then can a stop bring what is at risk to safety.
    pub saves_when_told: bool,
    /// How much longer than `restart` a changeover was seen to take.
    pub slow_restart: Span,
    /// How long the running program has said nothing of its progress: it may have made some.
    pub silent: Span,
    /// How long a lease that nobody takes away may have to be waited for, by refusals of late and by waits in its engine's queue.
    pub firm_wait: Span,
    /// What it costs until the work is done that leases end by agreement: a changeover, and a wait, for each that follows.
    pub renewals: Span,
    /// While spot can be had, it is put off only for an expected saving above this share of what the next hour costs, in
    /// thousandths.
    pub worth_waiting_permille: u32,
    /// Kept on top before a deadline.
    pub margins: Margins,
    /// What is held.
    pub present: Option<Present>,
    /// What could be bought, in the order of names: of two that are equally good, policies take the first.
    pub offers: Vec<Seen>,
    /// What is believed about all spot offers taken as one market; none where there is one only.
    pub anywhere: Option<Arc<Belief>>,
    /// The model behind beliefs.
    pub model: Option<Arc<Model>>,
    /// The plan for jobs like this one, once it is solved.
    pub plan: Option<Arc<Plan>>,
    /// There is none yet, and it is being solved or will be.
    pub plan_is_coming: bool,
}

/// What a policy wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Keep what is held; look again at that time at the latest.
    Stay {
        /// When to look again.
        until: Option<Time>,
    },
    /// Move to this offer, or take it when nothing is held.
    Take(OfferId),
    /// Hold nothing.
    Wait {
        /// When to look again.
        until: Option<Time>,
    },
}

impl Choice {
    /// What would be held then; nothing while waiting, and none for whatever is held already.
    pub(super) fn goal(&self) -> Option<Option<&OfferId>> {
        match self {
            Choice::Stay { .. } => None,
            Choice::Wait { .. } => Some(None),
            Choice::Take(offer) => Some(Some(offer)),
        }
    }

    pub(super) fn no_later_than(self, net: Time) -> Choice {
        let sooner = |until: Option<Time>| Some(until.map_or(net, |until| until.min(net)));
        match self {
            Choice::Stay { until } => Choice::Stay { until: sooner(until) },
            Choice::Wait { until } => Choice::Wait { until: sooner(until) },
            take @ Choice::Take(_) => take,
        }
    }
}

impl Sight {
    /// A job that begins now, holds nothing and has so much to do in so much time: what a replay starts from.
    pub fn at_the_start(need: Span, left: Span, restart: Span, margins: Margins, offers: Vec<Seen>) -> Sight {
        Sight {
            now: Time(0),
            began: Time(0),
            deadline: Some(Time(0) + left),
            need: Some(need),
            whole: Some(need),
            restart,
            grace: Span::ZERO,
            at_risk: Span::ZERO,
            saves_when_told: true,
            slow_restart: Span::ZERO,
            silent: Span::ZERO,
            firm_wait: Span::ZERO,
            renewals: Span::ZERO,
            worth_waiting_permille: WORTH_WAITING_PERMILLE,
            margins,
            present: None,
            offers,
            anywhere: None,
            model: None,
            plan: None,
            plan_is_coming: false,
        }
    }

    /// Time to the deadline.
    pub fn left(&self) -> Option<Span> {
        self.deadline.map(|deadline| deadline - self.now)
    }

    /// What will be seen on the way to a choice that gives up what is held.
    pub(super) fn empty_handed_before(&self, choice: &Choice) -> Option<Sight> {
        let leaves = self.present.is_some() && choice.goal().is_some();
        leaves.then(|| Sight { present: None, at_risk: Span::ZERO, ..self.clone() })
    }

    /// Time to the deadline minus the time that the rest of the work needs from where it stands.
    pub fn slack(&self) -> Option<Span> {
        Some(self.left()? - self.need? - self.starting() - self.renewals)
    }

    /// Time until what is held makes progress; a whole changeover when nothing is held.
    pub fn starting(&self) -> Span {
        match &self.present {
            Some(present) if present.running => Span::ZERO,
            Some(present) => Span((self.restart - (self.now - present.since)).0.max(0)),
            None => self.restart,
        }
    }

    /// Slack as it would be with nothing held.
    fn slack_without(&self) -> Option<Span> {
        Some(self.left()? - self.need? - self.restart - self.renewals - self.unsaved())
    }

    /// Running time lost by leaving what runs: what is not saved.
    fn unsaved(&self) -> Span {
        if self.present.as_ref().is_some_and(|present| present.running) { self.at_risk } else { Span::ZERO }
    }

    /// The cheapest spot offer that can be had now and is worth having.
    pub fn spot(&self) -> Option<&Seen> {
        let ceiling = self.firm().map_or(NanoUsd(i64::MAX), |firm| firm.price);
        self.cheapest(|seen| seen.market == Market::Spot && seen.price < ceiling)
    }

    /// The cheapest offer that the market cannot take away and that can be had now.
    pub fn firm(&self) -> Option<&Seen> {
        self.cheapest(|seen| !seen.market.can_be_taken())
    }

    /// Whether no spot offer, to be had now or later, is cheaper than what cannot be taken away.
    pub(super) fn firm_is_cheapest(&self) -> bool {
        let spot = self.offers.iter().filter(|seen| seen.market.can_be_taken()).map(|seen| seen.price).min();
        self.firm().is_some_and(|firm| spot.is_none_or(|spot| firm.price <= spot))
    }

    /// Whether the present lease is one that the market cannot take away.
    pub fn on_firm(&self) -> bool {
        self.present.as_ref().is_some_and(|present| !present.market.can_be_taken())
    }

    /// The plan that would serve this job: the same from its beginning to its end, while prices stay.
    pub fn plan_terms(&self) -> Option<PlanTerms> {
        let (whole, deadline, firm) = (self.whole?, self.deadline?, self.firm()?);
        let spot = self.offers.iter().filter(|seen| seen.market == Market::Spot).map(|seen| seen.price).min()?;
        let time = deadline - self.began;
        Some(PlanTerms::of(self.margins.tick, self.restart, [spot, firm.price], time, time - whole))
    }

    /// Spot offers that can be had now and are worth having.
    pub(super) fn spots(&self) -> impl Iterator<Item = &Seen> {
        let ceiling = self.firm().map_or(NanoUsd(i64::MAX), |firm| firm.price);
        self.offers
            .iter()
            .filter(move |seen| seen.market == Market::Spot && seen.price < ceiling && self.can_have(seen))
    }

    /// Whether an offer can be had now; what is held already needs no capacity.
    pub(super) fn can_have(&self, seen: &Seen) -> bool {
        let held = self.present.as_ref().is_some_and(|present| present.offer == seen.id);
        held || (seen.available && seen.refused_until.is_none_or(|until| until <= self.now))
    }

    fn cheapest(&self, wanted: impl Fn(&Seen) -> bool) -> Option<&Seen> {
        let held = self.present.as_ref().map(|present| &present.offer);
        self.offers
            .iter()
            .filter(|seen| wanted(seen) && self.can_have(seen))
            .min_by_key(|seen| (seen.price, held != Some(&seen.id), seen.id.clone()))
    }

    /// The slack below which only a firm lease keeps the promise. On a spot lease, all that is at risk,
    /// a stop, and the world's changeovers must still fit; with nothing held, the wait until the next look.
    fn least_slack(&self) -> Span {
        match &self.present {
            Some(present) if present.market.can_be_taken() => self.least_slack_on_spot(),
            _ => self.least_slack_idle(),
        }
    }

    fn least_slack_idle(&self) -> Span {
        self.spare() + self.margins.tick
    }

    fn spare(&self) -> Span {
        self.firm_wait + self.slow_restart + self.doubt()
    }

    /// The program runs, and by all that is known it has nothing left to do: it may end at any moment.
    pub(super) fn is_about_to_end(&self) -> bool {
        self.need.is_some_and(|need| need.0 <= 0) && self.present.as_ref().is_some_and(|present| present.running)
    }

    /// What the estimates may be off by.
    fn doubt(&self) -> Span {
        self.margins.always + self.need.unwrap_or_default().scaled(self.margins.spare_percent, 100)
    }

    /// By how much the deadline will be missed even if everything goes well from now on, beyond all doubt.
    pub fn late_by(&self) -> Option<Span> {
        let unsaid = self.silent.min(self.need?);
        // What machines that end by agreement will cost is a guess.
        let late = Span(-(self.slack()? + self.renewals).0) - unsaid;
        (late > self.doubt()).then_some(late)
    }

    /// When the deadline will be lost by so much beyond all doubt, for somebody who makes no progress until then. What is
    /// held and not ready uses up no slack until a changeover is over.
    pub fn lost_at(&self, by: Span) -> Option<Time> {
        let within = match &self.present {
            Some(present) if present.running => return None,
            Some(_) => self.starting(),
            None => Span::ZERO,
        };
        let at = self.now + within + self.slack()? + self.renewals + self.doubt().max(by) + Span(1);
        (at > self.now).then_some(at)
    }

    pub(super) fn least_slack_on_spot(&self) -> Span {
        self.spare() + self.at_risk + self.grace + self.restart.scaled(self.margins.changeovers, 1)
    }

    /// Holds a policy back from what the net would undo at once: else the two take turns, and ask for leases
    /// and give them back without end.
    pub(super) fn too_late_for(&self, choice: &Choice) -> Option<(Choice, Reason)> {
        let firm = self.firm()?;
        let (have, least, rule, text) = match choice {
            Choice::Take(id) if self.offers.iter().any(|seen| seen.id == *id && seen.market.can_be_taken()) => {
                // What will be at risk once it runs is not known yet: worlds in which changeovers fail keep more.
                let room = self.least_slack_on_spot() + self.restart.scaled(self.margins.changeovers - 1, 1);
                (self.slack_without()?, room, "too-late-for-spot", "the deadline leaves no room to move to spot")
            }
            Choice::Wait { .. } => {
                (self.slack_without()?, self.least_slack_idle(), "safety-net", "the deadline leaves no room to wait")
            }
            _ => return None,
        };
        if have >= least {
            return None;
        }
        let reason = Reason::new(rule, text).span("slack", have).span("least slack", least);
        Some(match self.on_firm() {
            true => (Choice::Stay { until: None }, reason),
            false => (Choice::Take(firm.id.clone()), reason.money("price", firm.price)),
        })
    }

    /// When the safety net will act if nothing changes.
    pub(super) fn net_at(&self) -> Option<Time> {
        if self.on_firm() || self.firm().is_none() {
            return None;
        }
        let at = self.now + (self.slack()? - self.least_slack()) + Span(1);
        (at > self.now).then_some(at)
    }

    /// Forces a firm lease in place of one that can be taken, when the deadline leaves no other choice. Says
    /// nothing when there is no deadline, when a firm lease is held, or when none can be had.
    pub(super) fn safety_net(&self) -> Option<(Choice, Reason)> {
        self.deadline?;
        if self.on_firm() {
            return None;
        }
        let firm = self.firm()?;
        let Some(slack) = self.slack() else {
            let why = "the work left is not known, so only a lease that stays can promise the deadline";
            return Some((Choice::Take(firm.id.clone()), Reason::new("unknown-work", why).money("price", firm.price)));
        };
        let least = self.least_slack_on_spot();
        if self.present.is_none() || slack >= least {
            return None;
        }
        // Saving now may be all that is missing: the same lease is then safe again.
        let (rule, text) = if slack >= least - self.at_risk && self.saves_when_told {
            ("save-now", "too much unsaved work for the slack that is left: the program saves now")
        } else {
            ("safety-net", "the deadline leaves no more room for spot")
        };
        let reason = Reason::new(rule, text)
            .span("slack", slack)
            .span("least slack", least)
            .span("work left", self.need.unwrap_or_default())
            .span("restart", self.restart)
            .money("price", firm.price);
        Some((Choice::Take(firm.id.clone()), reason))
    }
}
