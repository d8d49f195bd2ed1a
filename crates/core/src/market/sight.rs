//! What a policy sees: the time left, the work left as time, the offers, and what is held now.

use crate::offer::{Market, OfferId};
use crate::reason::Reason;
use crate::units::{NanoUsd, Span, Time};

/// An offer as a policy sees it: acceptable to the job, with its price now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which.
    pub id: OfferId,
    /// How it is bought.
    pub market: Market,
    /// Price an hour of one instance.
    pub price: NanoUsd,
    /// The whole gang could be had now, as far as is known.
    pub available: bool,
    /// It refused, and is left alone until then.
    pub refused_until: Option<Time>,
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
}

/// All that a policy may look at.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Kept on top before a deadline.
    pub margin: Span,
    /// What is held.
    pub present: Option<Present>,
    /// What could be bought.
    pub offers: Vec<Seen>,
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
    /// Time to the deadline.
    pub fn left(&self) -> Option<Span> {
        self.deadline.map(|deadline| deadline - self.now)
    }

    /// Time to the deadline minus the time that the rest of the work needs from where it stands.
    pub fn slack(&self) -> Option<Span> {
        let starting = if self.present.as_ref().is_some_and(|p| p.running) { Span::ZERO } else { self.restart };
        Some(self.left()? - self.need? - starting)
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

    /// Whether the present lease is one that the market cannot take away.
    pub fn on_firm(&self) -> bool {
        self.present.as_ref().is_some_and(|present| !present.market.can_be_taken())
    }

    /// When the first refused offer may be asked again.
    pub fn retry_at(&self) -> Option<Time> {
        self.offers.iter().filter_map(|seen| seen.refused_until).filter(|until| *until > self.now).min()
    }

    fn cheapest(&self, wanted: impl Fn(&Seen) -> bool) -> Option<&Seen> {
        let held = self.present.as_ref().map(|present| &present.offer);
        self.offers
            .iter()
            .filter(|seen| wanted(seen))
            // What is held already needs no capacity.
            .filter(|seen| {
                held == Some(&seen.id) || (seen.available && seen.refused_until.is_none_or(|t| t <= self.now))
            })
            .min_by_key(|seen| (seen.price, held != Some(&seen.id), seen.id.clone()))
    }

    /// The slack below which only a firm lease keeps the promise. On a spot lease, all that is at risk,
    /// a stop, and two changeovers must still fit: the one after a loss, and one that fails.
    fn least_slack(&self) -> Span {
        match &self.present {
            Some(present) if present.market.can_be_taken() => self.least_slack_on_spot(),
            _ => self.spare(),
        }
    }

    fn spare(&self) -> Span {
        self.margin + self.need.unwrap_or_default().scaled(2, 100)
    }

    fn least_slack_on_spot(&self) -> Span {
        self.spare() + self.at_risk + self.grace + self.restart + self.restart
    }

    /// Holds a policy back from a spot lease on which the net would act before it runs: else the two take
    /// turns, and ask for leases and give them back without end. A changeover lowers the slack for as long
    /// as it takes, and leaving a lease that runs puts what is not saved at risk.
    pub(super) fn too_late_for(&self, choice: &Choice) -> Option<(Choice, Reason)> {
        let Choice::Take(id) = choice else { return None };
        let (slack, firm) = (self.slack()?, self.firm()?);
        let wanted = self.offers.iter().find(|seen| seen.id == *id)?;
        if !wanted.market.can_be_taken() {
            return None;
        }
        let running = self.present.as_ref().is_some_and(|present| present.running);
        let stop = if running { self.restart + self.at_risk } else { Span::ZERO };
        let least = self.least_slack_on_spot() + self.restart + stop;
        if slack > least {
            return None;
        }
        let reason = Reason::new("too-late-for-spot", "the deadline leaves no room to move to spot")
            .span("slack", slack)
            .span("least slack", least);
        Some(match self.on_firm() {
            true => (Choice::Stay { until: self.retry_at() }, reason),
            false => (Choice::Take(firm.id.clone()), reason.money("price", firm.price)),
        })
    }

    /// When the safety net will act if nothing changes.
    pub(super) fn net_at(&self) -> Option<Time> {
        if self.on_firm() || self.firm().is_none() {
            return None;
        }
        let at = self.now + (self.slack()? - self.least_slack());
        (at > self.now).then_some(at)
    }

    /// Forces a firm lease when the deadline leaves no other choice. Says nothing when there is no
    /// deadline, when a firm lease is held, or when none can be had.
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
        let least = self.least_slack();
        if slack > least {
            return None;
        }
        // Saving now may be all that is missing: the same lease is then safe again.
        let (rule, text) = if slack > least - self.at_risk {
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
