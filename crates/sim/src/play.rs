//! One job under one policy over a recorded market, by the rules of the public harness: a choice at the
//! beginning of every tick, whole ticks paid, a changeover on every start, deadlines enforced. This is the
//! fast path: it shows the policy the same `Sight` as the brain does, without leases, engines and a log.

use crate::course::{Course, Terms};
use std::sync::Arc;
use windfall_core::market::foresight::{Model, Plan, PlanCache, PlanTerms};
use windfall_core::market::{self, Choice, Margins, Policy, Present, Seen, Sight};
use windfall_core::{Market, NanoUsd, OfferId, Span, Time};

/// What a tick was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing was held.
    Idle,
    /// Spot in the zone of that number.
    Spot(usize),
    OnDemand,
}

/// A policy and what it is given.
#[derive(Clone, Debug)]
pub struct Player {
    pub name: String,
    pub policy: Policy,
    /// The model by which it watches markets, where it does.
    pub model: Option<Arc<Model>>,
    /// Plans that it may follow.
    pub plan_cache: PlanCache,
}

impl Player {
    /// A policy that needs no model; none of that name, or one that does, is none.
    pub fn named(name: &str) -> Option<Player> {
        let policy = market::policy(name)?;
        let model = market::watches(name).then(Model::embedded);
        Some(Player { name: name.to_owned(), policy, model, plan_cache: PlanCache::default() })
    }

    /// The same with every plan that these jobs will want, whichever way they are played: a live brain would solve
    /// them when prices move, within seconds, and nobody waits for that here.
    pub fn prepared<'a>(mut self, jobs: impl Iterator<Item = (&'a Course, &'a Terms)>) -> Player {
        let Some(model) = self.model.clone().filter(|_| market::plans(&self.name)) else { return self };
        let (mut at_first, mut later) = (Vec::new(), Vec::new());
        for (course, terms) in jobs {
            let mut wanted = Game::new(&self, course, terms).plans_wanted().into_iter();
            wanted.next().into_iter().for_each(|terms| add_or_widen(&mut at_first, terms));
            wanted.for_each(|terms| add_or_widen(&mut later, terms));
        }
        self.plan_cache = PlanCache::default();
        // Jobs begin with plans for their very prices; later on one that is near enough will do, as in the brain.
        for terms in at_first {
            self.plan_cache.put_beside(Arc::new(Plan::solve(&model, terms)));
        }
        self.plan_cache.solve_all(&model, &later);
        self
    }

    /// Foresight on a model of its own.
    pub fn foreseeing<'a>(model: Arc<Model>, jobs: impl Iterator<Item = (&'a Course, &'a Terms)>) -> Player {
        let name = "foresight".to_owned();
        Player { name, policy: market::foresight, model: Some(model), plan_cache: PlanCache::default() }.prepared(jobs)
    }
}

/// One plan for the longest and slackest of jobs that differ in nothing else.
fn add_or_widen(all: &mut Vec<PlanTerms>, terms: PlanTerms) {
    match all.iter_mut().find(|known| known.like(&terms)) {
        Some(known) => *known = known.wider(&terms),
        None => all.push(terms),
    }
}

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// What was paid.
    pub cost: NanoUsd,
    /// When the work was done, from the start.
    pub finished: Span,
    /// Done after the deadline.
    pub late: bool,
    /// Spot leases that the market took.
    pub interruptions: u32,
    /// Changeovers paid for.
    pub starts: u32,
    /// Time on spot.
    pub spot: Span,
    /// Time on on-demand.
    pub on_demand: Span,
    /// What each tick was used for.
    pub uses: Vec<Use>,
}

/// What the rules of the public harness keep before a deadline: nothing fails there, and a look is a tick.
pub fn margins(tick: Span) -> Margins {
    Margins { always: Span::ZERO, spare_percent: 0, changeovers: 1, tick }
}

/// Ticks after which any job is over: at its deadline on-demand is all that is left.
pub(crate) fn most_ticks(course: &Course, terms: &Terms) -> usize {
    let ticks = |span: Span| usize::try_from(span.0 / course.tick.0.max(1)).unwrap_or(0) + 1;
    ticks(terms.deadline) + ticks(terms.earliest()) + 1
}

/// Plays a job.
pub fn play(player: &Player, course: &Course, terms: &Terms) -> Played {
    let mut game = Game::new(player, course, terms);
    let enough = most_ticks(course, terms);
    for tick in 0..enough {
        if game.done() {
            break;
        }
        game.step(tick);
    }
    game.played
}

struct Game<'a> {
    course: &'a Course,
    terms: Terms,
    player: &'a Player,
    sight: Sight,
    /// The zone of each offer in sight; none of the one that nothing takes away.
    zone_of: Vec<Option<usize>>,
    held: Use,
    /// Where the checkpoint lies: the zone in which progress was last made.
    home: Option<usize>,
    paid: i128,
    played: Played,
}

impl<'a> Game<'a> {
    fn new(player: &'a Player, course: &'a Course, terms: &Terms) -> Game<'a> {
        let seen = |id: OfferId, market, price| Seen {
            id,
            market,
            price,
            entry: NanoUsd(0),
            available: true,
            refused_until: None,
            belief: None,
        };
        let spot = course.zones.iter().map(|zone| Seen {
            belief: player.model.as_ref().map(|model| Arc::new(model.belief(zone.is_up(0)))),
            ..seen(zone.spot.clone(), Market::Spot, zone.price_at(0))
        });
        let any_up = course.zones.iter().any(|zone| zone.is_up(0));
        let firm = (seen(Course::firm(), Market::OnDemand, course.on_demand), None);
        let spot = spot.enumerate().map(|(number, seen)| (seen, Some(number)));
        let mut offers: Vec<(Seen, Option<usize>)> = spot.chain([firm]).collect();
        // As in the brain: of two that are equally good, policies take the first.
        offers.sort_by(|(a, _), (b, _)| a.id.cmp(&b.id));
        let (offers, zone_of) = offers.into_iter().unzip();
        let anywhere = player.model.as_ref().filter(|_| course.zones.len() > 1);
        let sight = Sight {
            anywhere: anywhere.map(|model| Arc::new(model.belief(any_up))),
            model: player.model.clone(),
            ..Sight::at_the_start(terms.work, terms.deadline, terms.restart, margins(course.tick), offers)
        };
        let (held, played) = (Use::Idle, Played::default());
        Game { course, terms: *terms, player, sight, zone_of, held, home: None, paid: 0, played }
    }

    /// Terms of every plan that will be asked for, in the order of time: they change with prices only.
    fn plans_wanted(mut self) -> Vec<PlanTerms> {
        let mut wanted: Vec<PlanTerms> = Vec::new();
        for tick in 0..most_ticks(self.course, &self.terms) {
            self.show_prices(tick);
            wanted.extend(self.sight.plan_terms().filter(|terms| wanted.last() != Some(terms)));
        }
        wanted
    }

    fn show_prices(&mut self, tick: usize) {
        for (seen, zone) in self.sight.offers.iter_mut().zip(&self.zone_of) {
            if let Some(zone) = zone {
                seen.price = self.course.zones[*zone].price_at(tick);
            }
        }
    }

    fn need(&self) -> Span {
        self.sight.need.unwrap_or_default()
    }

    fn done(&self) -> bool {
        self.need().0 <= 0
    }

    fn step(&mut self, tick: usize) {
        self.look(tick);
        self.choose();
        self.run(tick);
    }

    /// The beginning of a tick: what the market has, and what it has taken.
    fn look(&mut self, tick: usize) {
        self.sight.now = Time(self.course.tick.0 * tick as i64);
        self.show_prices(tick);
        for (seen, zone) in self.sight.offers.iter_mut().zip(&self.zone_of) {
            if let Some(zone) = *zone {
                seen.available = self.course.zones[zone].is_up(tick);
                seen.entry = self.course.egress(self.home, zone);
            }
        }
        if tick > 0 {
            self.learn();
        }
        if self.player.model.is_some() {
            let terms = self.sight.plan_terms();
            self.sight.plan = terms.and_then(|terms| self.player.plan_cache.find(&terms)).cloned();
        }
        if let Use::Spot(zone) = self.held
            && !self.course.zones[zone].is_up(tick)
        {
            self.played.interruptions += 1;
            self.hold(Use::Idle);
        }
        if let Some(present) = &mut self.sight.present {
            present.running = self.sight.now - present.since >= self.terms.restart;
        }
    }

    fn learn(&mut self) {
        let Some(model) = &self.sight.model else { return };
        let (every, mut any_up) = (self.course.tick, false);
        for seen in self.sight.offers.iter_mut().filter(|seen| seen.market == Market::Spot) {
            any_up |= seen.available;
            if let Some(belief) = &mut seen.belief {
                model.observe(Arc::make_mut(belief), every, every, seen.available);
            }
        }
        if let Some(anywhere) = &mut self.sight.anywhere {
            model.observe(Arc::make_mut(anywhere), every, every, any_up);
        }
    }

    fn choose(&mut self) {
        let late = self.sight.deadline.is_some_and(|deadline| self.sight.now >= deadline);
        let policy = if late { market::on_demand } else { self.player.policy };
        match market::choose(policy, &self.sight).0 {
            Choice::Stay { .. } => {}
            Choice::Wait { .. } => self.hold(Use::Idle),
            Choice::Take(offer) => {
                let zone = self.course.zones.iter().position(|zone| zone.spot == offer);
                self.hold(zone.map_or(Use::OnDemand, Use::Spot));
            }
        }
    }

    fn hold(&mut self, held: Use) {
        self.held = held;
        let present =
            |offer, market| Present { offer, market, running: self.terms.restart.0 == 0, since: self.sight.now };
        self.sight.present = match held {
            Use::Idle => None,
            Use::Spot(zone) => {
                self.paid += i128::from(self.course.egress(self.home, zone).0) * 3_600_000;
                Some(present(self.course.zones[zone].spot.clone(), Market::Spot))
            }
            Use::OnDemand => Some(present(Course::firm(), Market::OnDemand)),
        };
        self.played.starts += u32::from(held != Use::Idle);
    }

    /// The tick itself: it is paid for whole, and what is left of a changeover brings nothing.
    fn run(&mut self, tick: usize) {
        let length = self.course.tick;
        let price = match self.held {
            Use::Idle => NanoUsd(0),
            Use::Spot(zone) => {
                self.played.spot += length;
                self.course.zones[zone].price_at(tick)
            }
            Use::OnDemand => {
                self.played.on_demand += length;
                self.course.on_demand
            }
        };
        self.played.uses.push(self.held);
        if self.held == Use::Idle {
            return;
        }
        self.paid += i128::from(price.0) * i128::from(self.course.gang) * i128::from(length.0);
        let (starting, need) = (self.sight.starting(), self.need());
        let ran = Span((length - starting).0.max(0));
        if let Use::Spot(zone) = self.held
            && ran.0 > 0
        {
            self.home = Some(zone);
        }
        if ran >= need {
            self.played.finished = (self.sight.now - Time(0)) + starting + need;
            self.played.late = self.played.finished > self.terms.deadline;
            self.played.cost = NanoUsd(i64::try_from(self.paid / 3_600_000).unwrap_or(i64::MAX));
        }
        self.sight.need = Some(Span((need - ran).0.max(0)));
    }
}
