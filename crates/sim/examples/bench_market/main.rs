//! Every policy on the recorded markets, against the optimum of one who knew them beforehand.

mod data;
mod folds;

use data::{Data, ON_DEMAND, SPOT, hours, teach};
use std::sync::Arc;
use std::time::Instant;
use windfall_core::market;
use windfall_core::market::foresight::{Model, Plan, PlanTerms};
use windfall_core::{NanoUsd, Span};
use windfall_sim::{Lesson, Player, Scenario, compare, learn, mean, optima};

fn main() {
    let data = Data::open().expect("data");
    if std::env::args().any(|arg| arg == "choose") {
        return folds::choose(&folds::folds(&data));
    }
    let began = Instant::now();
    let scenarios = data.table();
    println!("{} scenarios read in {:?}", scenarios.len(), began.elapsed());
    let began = Instant::now();
    let opt = optima(&scenarios, 2, &|_| ());
    let best = mean(opt.iter().map(|c| c.map_or(f64::NAN, |c| c.dollars())));
    println!("optimum {best:.2} in {:?}", began.elapsed());
    let names =
        ["on-demand", "greedy", "time-sliced", "uniform-progress", "uniform-progress-no-hysteresis", "levi-safe"];
    let players: Vec<Player> =
        names.iter().map(|n| Player { name: n.to_string(), policy: market::policy(n).unwrap(), plan: None }).collect();
    let began = Instant::now();
    for s in compare(&scenarios, &players, 2, &|_| ()) {
        println!("{:32} {:8.2} late {}", s.name, s.mean_cost(), s.late());
    }
    println!("in {:?}", began.elapsed());
    let model = folds::without(&folds::folds(&data), "", &folds::Settings::default());
    let mut total = 0.0;
    for restart in [0.02, 0.05, 0.1] {
        let began = Instant::now();
        let terms = PlanTerms::of(
            Span::seconds(600),
            hours(restart),
            NanoUsd::from_dollars(SPOT),
            NanoUsd::from_dollars(ON_DEMAND),
            hours(70.0),
            hours(22.0),
        );
        let plan = Plan::solve(&model, terms);
        println!("solved {terms:?} in {:?}, {:.1} MB", began.elapsed(), plan.bytes() as f64 / 1e6);
        let player = Player { name: "foresight".into(), policy: market::foresight, plan: Some(Arc::new(plan)) };
        let mine: Vec<Scenario> = scenarios.iter().filter(|s| s.terms.restart == hours(restart)).cloned().collect();
        let began = Instant::now();
        let standing = &compare(&mine, &[player], 2, &|_| ())[0];
        for dl in [52.0, 70.0] {
            let v: Vec<f64> = mine
                .iter()
                .zip(&standing.played)
                .filter(|(s, _)| s.terms.deadline == hours(dl))
                .map(|(_, p)| p.cost.dollars())
                .collect();
            println!("   T={dl} {:.2}", mean(v.into_iter()));
        }
        println!("foresight {restart} {:.3} late {} in {:?}", standing.mean_cost(), standing.late(), began.elapsed());
        total += standing.mean_cost();
    }
    println!("foresight {:.3}", total / 3.0);
}
