//! Every policy on the recorded markets, against the optimum of one who knew them beforehand.
//!
//! `bench_market [table] [zones] [regions] [gangs] [folds] [speed] [choose] [tried] [priors] [markets]`; without a
//! word, all but the last four. Reads the folder that WINDFALL_DATA names.

mod data;
mod folds;
mod markets;
mod regions;
mod speed;

use data::{Data, SPOT, alone, hours};
use folds::{Settings, windows};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;
use windfall_core::market::foresight::Model;
use windfall_core::{NanoUsd, Span, market};
use windfall_sim::{Player, Scenario, Terms, compare, mean, optima};

fn main() -> ExitCode {
    let data = match Data::open() {
        Ok(data) => data,
        Err(problem) => {
            eprintln!("error: {problem}\nhint: WINDFALL_DATA=/path/to/data");
            return ExitCode::from(2);
        }
    };
    let words: Vec<String> = std::env::args().skip(1).collect();
    let said = |word: &str| words.iter().any(|known| known == word);
    if said("priors") {
        println!("{}", folds::priors_file(&data));
        return ExitCode::SUCCESS;
    }
    if said("markets") {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("markets");
        return match markets::write(&data, &folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(problem) => {
                eprintln!("error: {problem}");
                ExitCode::FAILURE
            }
        };
    }
    if said("choose") {
        folds::choose(&folds::folds(&data));
        return ExitCode::SUCCESS;
    }
    let wanted = |word: &str| words.is_empty() || said(word);
    let mut good = true;
    if wanted("table") {
        good &= table(&data);
    }
    if wanted("zones") {
        good &= zones(&data);
    }
    if wanted("regions") {
        good &= regions::regions(&data);
    }
    if said("tried") {
        regions::tried(&data);
    }
    if wanted("gangs") {
        good &= gangs(&data);
    }
    if wanted("folds") {
        folds::report(&folds::folds(&data));
    }
    if wanted("speed") {
        good &= speed::speed(&data);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Every policy, foresight on a model of its own.
pub fn everyone(model: &Arc<Model>, scenarios: &[Scenario]) -> Vec<Player> {
    let player = |name: &&str| {
        let player = Player::named(name).expect("a policy has a name");
        Player { model: player.model.map(|_| Arc::clone(model)), ..player }
            .prepared(scenarios.iter().map(|scenario| (&scenario.course, &scenario.terms)))
    };
    market::names().iter().map(player).collect()
}

/// Prints how everyone did; true when foresight is cheapest and nobody was late.
pub fn report(word: &str, title: &str, taught_by: &str, scenarios: &[Scenario], model: Model) -> bool {
    println!("\n== {title}: {} scenarios", scenarios.len());
    println!("command: WINDFALL_DATA=… cargo xtask bench market {word}");
    println!("priors learnt from: {taught_by}");
    let model = Arc::new(model);
    let began = Instant::now();
    let players = everyone(&model, scenarios);
    let solved = began.elapsed();
    let per_instance = |cost: NanoUsd, scenario: &Scenario| cost.dollars() / f64::from(scenario.course.gang);
    let optimum: Vec<f64> = optima(scenarios, 2, &|_| ())
        .into_iter()
        .zip(scenarios)
        .map(|(cost, scenario)| per_instance(cost.unwrap_or_default(), scenario))
        .collect();
    let best = mean(optimum.iter().copied());
    println!(
        "{:32} {:>9} {:>5} {:>8} {:>6} {:>7} {:>7} {:>8}",
        "policy", "mean $", "late", "above", "taken", "spot h", "firm h", "ms each"
    );
    let mut rows = Vec::new();
    for player in players {
        let began = Instant::now();
        let standing = &compare(scenarios, std::slice::from_ref(&player), 1, &|_| ())[0];
        let each = 1e3 * began.elapsed().as_secs_f64() / scenarios.len() as f64;
        let costs: Vec<f64> = standing.played.iter().zip(scenarios).map(|(p, s)| per_instance(p.cost, s)).collect();
        let cost = mean(costs.iter().copied());
        let hours = |span: fn(&windfall_sim::Played) -> Span| {
            mean(standing.played.iter().map(move |p| span(p).0 as f64 / 3.6e6))
        };
        let taken = mean(standing.played.iter().map(|p| f64::from(p.interruptions)));
        println!(
            "{:32} {cost:9.2} {:5} {:7.2}% {taken:6.1} {:7.1} {:7.1} {each:8.3}",
            standing.name,
            standing.late(),
            100.0 * (cost / best - 1.0),
            hours(|p| p.spot),
            hours(|p| p.on_demand),
        );
        rows.push((standing.name.clone(), cost, standing.late()));
    }
    println!("{:32} {best:9.2}", "omniscient optimum");
    let peers = rows.iter().filter(|(name, ..)| name != "foresight");
    let peer = peers.fold(
        ("nobody", f64::INFINITY),
        |least, (name, cost, _)| {
            if *cost < least.1 { (name.as_str(), *cost) } else { least }
        },
    );
    let ours = rows.iter().find(|(name, ..)| name == "foresight").map_or(f64::INFINITY, |(_, cost, _)| *cost);
    let good = rows.iter().all(|(name, cost, late)| *late == 0 && (name == "foresight" || *cost > ours));
    println!(
        "foresight: {:.4} of the optimum, {:.4} of {} (the best peer); plans solved in {solved:.2?}; {}",
        ours / best,
        ours / peer.1,
        peer.0,
        if good { "foresight is cheapest, nobody late" } else { "NOT AS PROMISED" }
    );
    good
}

fn table(data: &Data) -> bool {
    let scenarios = data.table();
    let model = folds::without(&folds::folds(data), None, &Settings::default());
    report("table", "the public table", "2023 zones and counts only, nothing of 2022", &scenarios, model)
}

/// Nine V100 zones over 45 days, each alone.
fn zones(data: &Data) -> bool {
    let mut scenarios = Vec::new();
    for recording in data.zones_2023() {
        for ratio in [1.1, 1.5, 2.0] {
            for restart in [0.05, 0.2] {
                let terms = Terms { work: hours(48.0), deadline: hours(48.0 * ratio), restart: hours(restart) };
                scenarios.extend(windows(&recording, hours(96.0), 8).into_iter().map(|from| Scenario {
                    course: alone(&recording, from, SPOT, 1),
                    terms,
                    name: recording.name.clone(),
                }));
            }
        }
    }
    let (model, from) = folds::without_nine_zones(data);
    report("zones", "nine V100 zones of 2023, each alone", from, &scenarios, model)
}

/// Gangs on recordings that count instances.
fn gangs(data: &Data) -> bool {
    let counts = data.counts();
    let mut good = true;
    for (recording, gang) in [(&counts[0], 4), (&counts[0], 16), (&counts[1], 4)] {
        let mut scenarios = Vec::new();
        for ratio in [1.1, 1.5, 2.0] {
            for restart in [0.05, 0.2] {
                let terms = Terms { work: hours(48.0), deadline: hours(48.0 * ratio), restart: hours(restart) };
                scenarios.extend(windows(recording, hours(96.0), 16).into_iter().map(|from| Scenario {
                    course: alone(recording, from, SPOT, gang),
                    terms,
                    name: recording.name.clone(),
                }));
            }
        }
        let (model, from) = folds::without_counts(data);
        good &=
            report("gangs", &format!("gangs of {gang} on {}, an instance", recording.name), from, &scenarios, model);
    }
    good
}
