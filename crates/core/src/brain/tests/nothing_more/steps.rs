//! What happens in a random history: everything that engines, agents, markets and people can say.

use super::wishes::{Wish, any_wish, spec};
use super::*;
use crate::ids::NodeId;
use crate::pool::{Books, Habits, Health, Node, Placing, Pool, Shape, Supply};
use crate::record::{Trouble, TroubleKind};
use crate::want::{Address, GroupPhase, LeaseTerms};

/// Names of offers, how many accelerators they have, and which. The second engine has a pool of its own.
const OFFERS: [(&str, u32, &str); 7] = [
    (SPOT, 1, "V100"),
    (FIRM, 1, "V100"),
    ("test/a/large/spot", 4, "V100"),
    ("test/a/large/on-demand", 4, "V100"),
    ("other/b/box/spot", 1, "V100"),
    ("other/b/large/on-demand", 4, "V100"),
    ("other/b/new/spot", 4, "A100"),
];
const ENGINES: [&str; 2] = ["test", "other"];
const DEFAULTS: [&str; 3] = ["levi-safe", "greedy", "foresight"];

/// What happens next. Whom it happens to is counted around among those to whom it can.
#[derive(Clone, Debug)]
pub enum Step {
    Submit(Wish),
    /// An offer is there, at so many cents an hour, with so many instances; nine for as many as anybody wants.
    Offer {
        offer: usize,
        cents: u32,
        capacity: u32,
    },
    OfferGone {
        offer: usize,
    },
    /// Groups are granted, come up and are ready, and stints start.
    Serve,
    Queued {
        which: usize,
    },
    Granted {
        which: usize,
        units: u32,
    },
    Refused {
        which: usize,
        why: usize,
    },
    Up {
        which: usize,
        ready: bool,
        node: bool,
    },
    Ready {
        which: usize,
    },
    Noticed {
        which: usize,
        minutes: i64,
    },
    AtRisk {
        which: usize,
    },
    Gone {
        which: usize,
        end: usize,
    },
    Found {
        offer: usize,
    },
    Started {
        which: usize,
        rank: u32,
    },
    Progress {
        which: usize,
        percent: u64,
    },
    Saved {
        which: usize,
    },
    Ended {
        which: usize,
        rank: u32,
        end: usize,
        settled: bool,
    },
    Troubled {
        which: usize,
        trouble: bool,
    },
    StoreChecked {
        which: usize,
        away: bool,
    },
    Cancel {
        which: usize,
    },
    Budget {
        which: usize,
        cents: u32,
    },
    Silent {
        engine: usize,
    },
    Answers {
        engine: usize,
    },
    /// What some engines show is not known from now on.
    Unseen {
        first: bool,
        second: bool,
    },
    Configured {
        policy: usize,
        restart_minutes: i64,
        patience: u32,
    },
    Pool {
        engine: usize,
        tells_apart: bool,
        whole: bool,
        boot_minutes: i64,
    },
    Node {
        there: bool,
        ready: bool,
    },
    /// Time passes until the brain wants to be asked.
    Wake,
}

fn any_step() -> impl Strategy<Value = (i64, Step)> {
    const HOUR: i64 = 3_600_000;
    let after = prop_oneof![3 => Just(0_i64), 3 => 0..60_000_i64, 3 => 0..HOUR, 1 => 0..20 * HOUR];
    let which = || any::<usize>();
    let of_market = prop_oneof![
        4 => (0..OFFERS.len(), 5..400_u32, 0..10_u32)
            .prop_map(|(offer, cents, capacity)| Step::Offer { offer, cents, capacity }),
        1 => (0..OFFERS.len()).prop_map(|offer| Step::OfferGone { offer }),
        1 => (0..ENGINES.len()).prop_map(|engine| Step::Silent { engine }),
        1 => (0..ENGINES.len()).prop_map(|engine| Step::Answers { engine }),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(first, second)| Step::Unseen { first, second }),
        1 => Just(Step::Unseen { first: false, second: false }),
        1 => (0..ENGINES.len(), proptest::bool::weighted(0.8), any::<bool>(), 1..20_i64).prop_map(
            |(engine, tells_apart, whole, boot_minutes)| Step::Pool { engine, tells_apart, whole, boot_minutes }
        ),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(there, ready)| Step::Node { there, ready }),
        1 => (0..DEFAULTS.len(), 1..10_i64, 1..6_u32).prop_map(
            |(policy, restart_minutes, patience)| Step::Configured { policy, restart_minutes, patience }
        ),
    ];
    let of_leases = prop_oneof![
        1 => which().prop_map(|which| Step::Queued { which }),
        1 => (which(), 0..3_u32).prop_map(|(which, units)| Step::Granted { which, units }),
        2 => (which(), 0..6_usize).prop_map(|(which, why)| Step::Refused { which, why }),
        3 => (which(), any::<bool>(), any::<bool>()).prop_map(|(which, ready, node)| Step::Up { which, ready, node }),
        2 => which().prop_map(|which| Step::Ready { which }),
        2 => (which(), 0..5_i64).prop_map(|(which, minutes)| Step::Noticed { which, minutes }),
        1 => which().prop_map(|which| Step::AtRisk { which }),
        3 => (which(), 0..3_usize).prop_map(|(which, end)| Step::Gone { which, end }),
        1 => (0..OFFERS.len()).prop_map(|offer| Step::Found { offer }),
    ];
    let of_stints = prop_oneof![
        2 => (which(), 0..3_u32).prop_map(|(which, rank)| Step::Started { which, rank }),
        2 => (which(), 0..100_u64).prop_map(|(which, percent)| Step::Progress { which, percent }),
        2 => which().prop_map(|which| Step::Saved { which }),
        3 => (which(), 0..3_u32, 0..5_usize, any::<bool>())
            .prop_map(|(which, rank, end, settled)| Step::Ended { which, rank, end, settled }),
        1 => (which(), any::<bool>()).prop_map(|(which, trouble)| Step::Troubled { which, trouble }),
        1 => (which(), any::<bool>()).prop_map(|(which, away)| Step::StoreChecked { which, away }),
    ];
    let of_people = prop_oneof![
        4 => any_wish().prop_map(Step::Submit),
        1 => which().prop_map(|which| Step::Cancel { which }),
        1 => (which(), 0..900_u32).prop_map(|(which, cents)| Step::Budget { which, cents }),
    ];
    let step = prop_oneof![5 => of_market, 4 => of_leases, 4 => of_stints, 4 => of_people, 4 => Just(Step::Serve), 3 => Just(Step::Wake)];
    (after, step)
}

/// A history, which may begin with jobs of one person that each want one accelerator, or half of one.
pub fn any_history(length: std::ops::Range<usize>) -> impl Strategy<Value = Vec<(i64, Step)>> {
    let half = || {
        any_wish().prop_map(|wish| {
            let (deadline_hours, budget_cents, max_cents, owner) = (None, None, None, true);
            Step::Submit(Wish {
                deadline_hours,
                budget_cents,
                max_cents,
                owner,
                policy: 1,
                count: 1,
                half: true,
                gang: 1,
                ..wish
            })
        })
    };
    let pair = (half(), half()).prop_map(|(one, other)| {
        let steps = [one, Step::Serve, other, Step::Serve];
        steps.into_iter().map(|step| (60_000, step)).collect::<Vec<_>>()
    });
    // Many small jobs of one person, and few machines, so that they wait for one another.
    let few = (0..OFFERS.len()).map(|offer| Step::Offer { offer, cents: 100, capacity: 1 }).collect::<Vec<_>>();
    let crowd = proptest::collection::vec((half(), any::<bool>(), any::<bool>()), 4..14).prop_map(move |all| {
        let all = all.into_iter().map(|(step, half, either)| match step {
            Step::Submit(wish) => Step::Submit(Wish { half, either, ..wish }),
            other => other,
        });
        few.iter().cloned().chain(all).map(|step| (0, step)).collect::<Vec<_>>()
    });
    let beginning = prop_oneof![2 => Just(Vec::new()), 1 => pair, 1 => crowd];
    (beginning, proptest::collection::vec(any_step(), length))
        .prop_map(|(beginning, rest)| beginning.into_iter().chain(rest).collect())
}

/// A market of two engines on which everything can be had.
pub fn market() -> World {
    let mut world =
        World { brain: Brain::new(Installation(7), Config::default()), now: Time(1_000_000), decided: Vec::new() };
    let mut unseen = BTreeSet::new();
    let policy = Step::Configured { policy: 0, restart_minutes: 3, patience: 3 };
    let pools = (0..2).map(|engine| Step::Pool { engine, tells_apart: true, whole: false, boot_minutes: 10 });
    let cents = [90, 300, 250, 1_200, 80, 1_000, 260];
    let offers = cents.iter().enumerate().map(|(offer, cents)| Step::Offer { offer, cents: *cents, capacity: 3 });
    for step in std::iter::once(policy).chain(pools).chain(offers) {
        act(&mut world, step, &mut unseen);
    }
    world
}

fn pick<T: Clone>(all: Vec<T>, which: usize) -> Option<T> {
    all.get(which % all.len().max(1)).cloned()
}

fn some_job(world: &World, which: usize) -> Option<WorkloadId> {
    pick(world.brain.jobs().map(|job| job.id).collect(), which)
}

fn some_stint(world: &World, which: usize) -> Option<StintId> {
    pick(world.brain.jobs().filter_map(|job| Some(job.stint.as_ref()?.id)).collect(), which)
}

fn some_lease(world: &World, which: usize) -> Option<LeaseId> {
    pick(world.leases(), which)
}

fn some_group(world: &World, which: usize) -> Option<DecisionId> {
    pick(world.brain.groups().map(|group| group.id).collect(), which)
}

fn offer(number: usize, cents: u32, capacity: u32) -> Offer {
    let (name, accelerators, accelerator) = OFFERS[number];
    let id = OfferId::new(name);
    let market = if name.ends_with("spot") { Market::Spot } else { Market::OnDemand };
    Offer {
        engine: id.engine().to_owned(),
        pool: PoolId(format!("{}/pool", id.engine()).into()),
        cloud: "test".to_owned(),
        region: id.engine().to_owned(),
        zone: "a".to_owned(),
        instance_type: "box".to_owned(),
        market,
        accelerator: accelerator.to_owned(),
        accelerators,
        price_per_hour: NanoUsd(i64::from(cents) * 10_000_000),
        capacity: (capacity < 9).then_some(capacity),
        notice: Span::minutes(2),
        id,
    }
}

fn node() -> NodeId {
    NodeId("test/node".into())
}

fn serve(world: &mut World) {
    for lease in world.leases() {
        let is_up = world.brain.lease(lease).is_some_and(|lease| lease.up_at.is_some());
        let ready = Event::LeaseReady { lease, address: Address::default() };
        world.event(if is_up { ready } else { up(lease, world.now) });
    }
    come_to_rest(world, &BTreeSet::new());
    let stints: Vec<(StintId, u32)> =
        world.brain.jobs().filter_map(|job| job.stint.as_ref()).map(|stint| (stint.id, stint.size())).collect();
    for (stint, size) in stints {
        let restored = world.brain.job(stint.workload).and_then(|job| job.progress.checkpoint);
        for rank in 0..size {
            world.event(Event::WorkerStarted { stint, rank, restored, work: None });
        }
    }
}

/// What becomes of groups and leases.
fn act_on_leases(world: &mut World, step: Step) -> Option<Event> {
    let now = world.now;
    Some(match step {
        Step::Queued { which } => {
            Event::GroupQueued { group: some_group(world, which)?, since: now, eta: Some(now + Span::hours(1)) }
        }
        Step::Granted { which, units } => {
            let group = some_group(world, which)?;
            let asked = world.brain.groups().find(|known| known.id == group)?;
            // Engines never take back what they granted.
            let granted = matches!(asked.phase, GroupPhase::Granted { .. });
            Event::GroupGranted { group, at: now, units: if granted { asked.want.units } else { units } }
        }
        Step::Refused { which, why } => {
            let retry = Refusal::Retry { after: Span::minutes(2) };
            let all = [Refusal::NoCapacity, Refusal::Quota, retry, Refusal::Auth, Refusal::Invalid, Refusal::Bug];
            Event::GroupFailed { group: some_group(world, which)?, refusal: all[why] }
        }
        Step::Up { which, ready, node: on_node } => {
            // Some end by agreement, some of them before they are up.
            let ends_by = which.is_multiple_of(3).then_some(now + Span::minutes((which % 12) as i64 * 20 - 10));
            let terms = LeaseTerms { node: on_node.then(node), ends_by, ..LeaseTerms::default() };
            let ready = ready.then(Address::default);
            Event::LeaseUp { lease: some_lease(world, which)?, at: now, terms: Box::new(terms), ready }
        }
        Step::Ready { which } => {
            let lease = some_lease(world, which)?;
            world.brain.lease(lease)?.up_at?;
            Event::LeaseReady { lease, address: Address("there".to_owned()) }
        }
        Step::Noticed { which, minutes } => {
            Event::LeaseNoticed { lease: some_lease(world, which)?, ends_at: now + Span::minutes(minutes), why: None }
        }
        Step::AtRisk { which } => Event::LeaseAtRisk { lease: some_lease(world, which)? },
        Step::Gone { which, end } => {
            let end = [LeaseEnd::Released, LeaseEnd::Taken, LeaseEnd::Lost][end];
            Event::LeaseGone { lease: some_lease(world, which)?, at: now, end }
        }
        Step::Found { offer } => {
            let group = DecisionId { installation: Installation(7), seq: 1_000_000 + world.brain.last_seq() };
            let (lease, offer) = (LeaseId { group, slot: 0 }, OfferId::new(OFFERS[offer].0));
            Event::LeaseFound { lease, offer, since: Some(now), until: None }
        }
        _ => return None,
    })
}

/// What agents say of stints.
fn act_on_stints(world: &mut World, step: Step) -> Option<Event> {
    Some(match step {
        Step::Started { which, rank } => {
            let stint = some_stint(world, which)?;
            let restored = world.brain.job(stint.workload)?.progress.checkpoint;
            Event::WorkerStarted { stint, rank, restored, work: None }
        }
        Step::Progress { which, percent } => {
            let stint = some_stint(world, which)?;
            let total = world.brain.job(stint.workload)?.total()?;
            Event::Progress { stint, done: Work(total.0 / 100 * percent), total: Some(total) }
        }
        Step::Saved { which } => {
            let stint = some_stint(world, which)?;
            let checkpoint = CheckpointId { epoch: stint.epoch, seq: world.brain.last_seq() };
            Event::CheckpointDurable { stint, checkpoint, work: None, ran: Some(Span::minutes(10)) }
        }
        Step::Ended { which, rank, end, settled } => {
            let ends = [
                WorkerEnd::Exited { code: 0 },
                WorkerEnd::Exited { code: 3 },
                WorkerEnd::Killed { signal: 9 },
                WorkerEnd::Stopped,
                WorkerEnd::StoreAway { why: "no answer".to_owned() },
            ];
            Event::WorkerEnded { stint: some_stint(world, which)?, rank, end: ends[end].clone(), settled }
        }
        Step::Troubled { which, trouble } => {
            let trouble = trouble.then(|| Trouble { kind: TroubleKind::StoreAway, text: "no answer".to_owned() });
            Event::Troubled { stint: some_stint(world, which)?, trouble }
        }
        _ => return None,
    })
}

pub fn act(world: &mut World, step: Step, unseen: &mut BTreeSet<String>) {
    let engine = |number: usize| ENGINES[number].to_owned();
    let event = match step {
        Step::Serve => return serve(world),
        Step::Wake => {
            let wake = world.brain.next_wakeup().unwrap_or(world.now);
            // At most a day on: a world that only waits has no more to show.
            world.now = wake.clamp(world.now, world.now + Span::hours(24));
            return;
        }
        Step::Unseen { first, second } => {
            *unseen = [first, second].iter().zip(ENGINES).filter(|(out, _)| **out).map(|(_, e)| e.to_owned()).collect();
            return;
        }
        Step::Submit(wish) => {
            let spec = spec(world, &wish);
            world.submit(spec);
            return;
        }
        Step::Offer { offer: number, cents, capacity } => {
            Some(Event::OfferSeen { offer: offer(number, cents, capacity) })
        }
        Step::OfferGone { offer } => Some(Event::OfferGone { offer: OfferId::new(OFFERS[offer].0) }),
        Step::StoreChecked { which, away } => some_job(world, which).map(|workload| {
            let trouble = away.then(|| Trouble { kind: TroubleKind::StoreAway, text: "no answer".to_owned() });
            Event::StoreChecked { workload, trouble }
        }),
        Step::Cancel { which } => {
            let by = "ada".to_owned();
            some_job(world, which).map(|workload| match which / 7 % 3 {
                0 => Event::GiveUpRequested { workload, by },
                _ => Event::CancelRequested { workload, by },
            })
        }
        Step::Budget { which, cents } => some_job(world, which).map(|workload| {
            let budget = (cents > 0).then_some(NanoUsd(i64::from(cents) * 10_000_000));
            Event::BudgetSet { workload, budget, by: "ada".to_owned() }
        }),
        Step::Silent { engine: number } => Some(Event::EngineSilent { engine: engine(number), since: world.now }),
        Step::Answers { engine: number } => Some(Event::EngineAnswers { engine: engine(number) }),
        Step::Configured { policy, restart_minutes, patience } => {
            let restart_prior = Span::minutes(restart_minutes);
            let policy = DEFAULTS[policy].to_owned();
            let config = Config { policy, restart_prior, patience, ..Config::default() };
            Some(Event::Configured { config: Box::new(config) })
        }
        Step::Pool { engine: number, tells_apart, whole, boot_minutes } => Some(Event::PoolSeen {
            pool: Pool {
                id: PoolId(format!("{}/pool", ENGINES[number]).into()),
                engine: engine(number),
                placing: Placing::Theirs,
                supply: Supply::Elastic,
                books: if whole { Books::Whole } else { Books::Leased },
                habits: Habits { boot: Span::minutes(boot_minutes), ..Habits::USUAL },
                tells_apart,
            },
        }),
        Step::Node { there: false, .. } => Some(Event::NodeGone { node: node() }),
        Step::Node { there: true, ready } => Some(Event::NodeSeen {
            node: Box::new(Node {
                id: node(),
                pool: PoolId("test/pool".into()),
                accelerator: "V100".to_owned(),
                capacity: Shape { accelerators: 8, ..Shape::default() },
                foreign: Shape::default(),
                domains: BTreeMap::new(),
                symptoms: Vec::new(),
                mixed: false,
                drained_for: None,
                alone: false,
                health: if ready { Health::Ready } else { Health::NotReady },
                rate: NanoUsd(5_000_000_000),
            }),
        }),
        other => act_on_leases(world, other.clone()).or_else(|| act_on_stints(world, other)),
    };
    if let Some(event) = event {
        world.event(event);
    }
}
