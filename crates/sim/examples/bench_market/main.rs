//! Every policy on the recorded markets, against the optimum of one who knew them beforehand.

mod data;
mod folds;

use data::Data;
use std::time::Instant;
use windfall_core::market;
use windfall_core::market::foresight::Shelf;
use windfall_sim::{Player, compare, mean, optima};

fn main() {
    let data = Data::open().expect("data");
    if std::env::args().any(|arg| arg == "choose") {
        return folds::choose(&folds::folds(&data));
    }
    if std::env::args().any(|arg| arg == "priors") {
        let text = serde_json::to_string(&folds::priors(&data)).expect("JSON");
        // One regime on a line: the file is read by people too.
        println!("{}", text.replace("{\"weight\"", "\n{\"weight\""));
        return;
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
    let players: Vec<Player> = names
        .iter()
        .map(|n| Player {
            name: n.to_string(),
            policy: market::policy(n).unwrap(),
            model: None,
            shelf: Shelf::default(),
        })
        .collect();
    let began = Instant::now();
    for s in compare(&scenarios, &players, 2, &|_| ()) {
        println!("{:32} {:8.2} late {}", s.name, s.mean_cost(), s.late());
    }
    println!("in {:?}", began.elapsed());
    let model = folds::without(&folds::folds(&data), None, &folds::Settings::default());
    let began = Instant::now();
    let player = folds::player(&model, &scenarios);
    println!("solved in {:?}", began.elapsed());
    let began = Instant::now();
    let standing = &compare(&scenarios, &[player], 2, &|_| ())[0];
    println!("foresight {:.3} late {} in {:?}", standing.mean_cost(), standing.late(), began.elapsed());
}
