//! What a seed stands for: the jobs of a world, their programs, and how rough the world is.

use crate::driver::BEGIN;
use crate::fault::FaultKind;
use crate::market;
use crate::program::{OnTerm, Plot, Program};
use crate::random::{self, Random};
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::brain::Config;
use windfall_core::pool::DevicePart;
use windfall_core::spec::{Ask, CheckpointSpec, Late, RunSpec, WorkSpec, WorkUnit};
use windfall_core::{JobSpec, NanoUsd, Rate, Span, Time, Work};

/// A job to be.
#[derive(Clone, Debug)]
pub(crate) struct JobPlan {
    pub submit_at: Time,
    pub cancel_at: Option<Time>,
    pub spec: JobSpec,
    pub program: Program,
    /// As far as the job itself goes, its deadline is a promise: law 7.
    pub promised: bool,
}

/// A world to be.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub jobs: Vec<JobPlan>,
    pub config: Config,
    pub boot: Span,
    /// On-demand is refused now and then: law 7 promises nothing.
    pub moody: bool,
    /// Outages are short and clocks go evenly.
    pub gentle: bool,
    pub without: BTreeSet<FaultKind>,
    pub poll: Span,
    pub forgets: bool,
}

impl Scenario {
    pub fn of(seed: u64) -> Scenario {
        let mut random = random::of(seed, &[0]);
        let gentle = random.permille(600);
        let moody = !gentle && random.permille(300);
        let mut without = BTreeSet::new();
        if gentle {
            without.extend([FaultKind::ClockJump]);
        }
        // Plans are solved anew in every world, which takes longer than all the rest: few worlds follow one.
        let policy = if random.permille(100) { "foresight" } else { "levi-safe" }.to_owned();
        let config = Config { policy, restart_prior: Span::seconds(random.between(120, 400)), ..Config::default() };
        let boot = Span::seconds(random.spread(5, 60));
        let poll = Span::seconds(random.pick(&[30, 180, 300, 600, 900, 900]));
        let jobs = (0..market::Size::of(seed).jobs).map(|i| job(seed, i, gentle, boot, &config)).collect();
        let forgets = random.permille(700);
        Scenario { jobs, config, boot, moody, gentle, without, poll, forgets }
    }
}

/// Programs of every kind that a rehearsal knows: deaf ones, slow to save, saving only at the end or never, silent.
/// An honest one is only as fast and as long as its job file says, and gets through.
fn program(random: &mut Random, honest: bool, said: Rate, length: Span, restore: Span) -> Program {
    let rate = if honest { said } else { Rate((said.0 * random.between(50, 150) as u64 / 100).max(1)) };
    let total = said.work_in(length).0.max(1);
    let half = total * random.between(5, 95) as u64 / 100;
    let code = random.pick(&[1, 2, 42, 137]);
    let times = random.pick(&[1, 2, 1_000]);
    let plot = match random.below(20) {
        _ if honest => Plot::Succeeds,
        0..3 => Plot::Fails { at: half, code, times },
        3..5 => Plot::Killed { at: half, signal: 9, times },
        5..7 => Plot::RankFails { code },
        7 => Plot::NeverRuns,
        _ => Plot::Succeeds,
    };
    let on_term = match random.below(10) {
        0..4 => OnTerm::Saves(Span::seconds(random.between(1, 20))),
        // Slow to save: often longer than it is given.
        4..6 => OnTerm::Saves(Span::seconds(random.between(20, 400))),
        6..8 => OnTerm::Stops(Span(random.between(10, 5_000))),
        _ => OnTerm::Ignores,
    };
    // Where time stands in for progress, a program may say nothing at all.
    let reports = (honest && said != Rate::REAL_TIME) || random.permille(700);
    Program {
        total,
        rate,
        // At most some eighty saves in all, so that steps are not spent on them alone.
        saves_every: random.permille(800).then(|| Span(random.spread(40_000, 2_400_000).max(length.0 / 80))),
        listens: random.permille(500),
        save_takes: Span::seconds(random.pick(&[1, 5, 30, 30, 240])),
        restore,
        upload: Span::seconds(random.pick(&[0, 0, 1, 20, 90])),
        plot,
        on_term,
        reports,
        says_total: reports && random.permille(500),
        wavers: !honest && random.permille(200),
        bad_saves: if !honest && random.permille(300) { 300 } else { 0 },
    }
}

fn job(seed: u64, number: u64, gentle: bool, boot: Span, config: &Config) -> JobPlan {
    let mut random = random::of(seed, &[20, number]);
    let honest = gentle && random.permille(750);
    let submit_at = BEGIN + Span::seconds(random.between(1, 3_600));
    let length = Span::seconds(random.spread(300, 30_000));
    let in_time = random.permille(250);
    let said = if in_time { Rate::REAL_TIME } else { Rate(random.spread(100, 40_000) as u64 * 1_000_000) };
    let total = said.work_in(length).0.max(1);
    let need = said.time_for(Work(total));
    let told_restart = random.permille(500).then(|| boot + Span::seconds(random.between(40, 300)));
    let restart = told_restart.unwrap_or(config.restart_prior);
    let restore = Span((restart - boot - Span::seconds(15)).0.clamp(1_000, random.between(1_000, 90_000)));
    let program = program(&mut random, honest, said, length, restore);
    let grace = Span::seconds(random.pick(&[5, 30, 30, 60, 600]));
    let tight = Span(need.0 * random.pick(&[0, 5, 20, 50, 150, 400]) / 100);
    let feasible = honest || random.permille(700);
    let lead = if feasible { restart + Span::seconds(20) + tight } else { Span(-need.0 / 3) };
    let shared = market::is_shared(seed);
    let deadline = random.permille(if honest { 950 } else { 500 }).then_some(submit_at + need + lead);
    // Whoever counts on a machine that stays to keep a deadline shares it with nobody.
    let deadline = deadline.filter(|_| !shared || number.is_multiple_of(2));
    let budget = (!honest && random.permille(150)).then(|| NanoUsd(random.between(50_000_000, 8_000_000_000)));
    let max_price = random.permille(300).then(|| NanoUsd(random.between(200_000_000, 3_000_000_000)));
    let cancelled = random.permille(if honest { 50 } else { 150 });
    let gang = random.pick(&[1, 1, 1, 2, 3, 4]);
    // Gangs share nothing.
    let gang = if shared && number < 2 { 1 } else { gang };
    let policy = random.pick(&[
        None,
        None,
        Some("on-demand"),
        Some("greedy"),
        Some("uniform-progress"),
        Some("levi-safe"),
        Some("skynomad"),
    ]);
    let spec = JobSpec {
        gang,
        least_gang: (!honest && random.permille(300)).then(|| random.between(1, i64::from(gang)) as u32),
        resources: if random.permille(500) || shared {
            // Drawn from nothing, as all that follows from it: what other worlds are made of stays as it was.
            vec![if shared { part_of_a_machine(seed, number, gang) } else { Ask::of("V100", 1) }]
        } else {
            Vec::new()
        },
        work: WorkSpec {
            total: (honest || random.permille(800)).then_some(Work(total)),
            unit: if in_time { WorkUnit::Time } else { WorkUnit::Steps },
            rates: if in_time || (!honest && random.permille(300)) {
                BTreeMap::new()
            } else {
                BTreeMap::from([("V100".to_owned(), said)])
            },
        },
        deadline,
        late: random.pick(&[Late::Cheapest, Late::Soonest, Late::Stop]),
        max_price,
        budget,
        checkpoint: CheckpointSpec {
            every: program.saves_every.filter(|_| !program.listens),
            restart: told_restart,
            ..CheckpointSpec::default()
        },
        policy: policy.map(str::to_owned),
        retries: random.pick(&[0, 0, 1, 3]),
        // Machines are shared by jobs of one person only.
        team: format!("team-{}", if shared { 0 } else { number % 3 }),
        owner: format!("user-{}", if shared { 0 } else { number % 2 }),
        tags: (0..number % 3).map(|tag| (format!("tag-{tag}"), number.to_string())).collect(),
        run: RunSpec { environment: number.to_string(), grace, ..RunSpec::of(vec!["train".to_owned()]) },
        ..JobSpec::named(format!("job-{number}"), Vec::new())
    };
    JobPlan {
        submit_at,
        cancel_at: cancelled.then(|| submit_at + Span::seconds(random.spread(1, 20_000))),
        promised: honest && deadline.is_some() && !cancelled,
        spec,
        program,
    }
}

/// Some of the accelerators of a machine, or a share of one.
fn part_of_a_machine(seed: u64, number: u64, gang: u32) -> Ask {
    let share = |part, of| Ask { part: DevicePart::Share { part, of }, ..Ask::of("V100", 1) };
    let large = market::accelerators(seed) > 1;
    match number % 4 {
        1 if large => Ask::of("V100", 2),
        3 if large => Ask::of("V100", 3),
        0 if large => Ask::of("V100", 1),
        // Gangs have whole accelerators.
        _ if gang > 1 => Ask::of("V100", 1),
        1 => share(1, 3),
        3 => share(2, 7),
        _ => share(1, 2),
    }
}

/// A spec that must be refused, made from a good one.
pub(crate) fn spoiled(spec: &JobSpec, random: &mut Random) -> JobSpec {
    let mut bad = spec.clone();
    bad.run.environment = "spoiled".to_owned();
    match random.below(8) {
        0 => bad.name = String::new(),
        1 => bad.run.command = Vec::new(),
        2 => bad.gang = 0,
        3 => bad.tier = 9,
        4 => bad.checkpoint.keep = 0,
        5 => bad.budget = Some(NanoUsd(0)),
        6 => bad.work.total = Some(Work(0)),
        _ => bad.policy = Some("clairvoyant".to_owned()),
    }
    bad
}
