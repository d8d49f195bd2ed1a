//! Zones to choose between: the public windows of nine zones, and the nine zones side by side with their own
//! prices and what it costs to take a checkpoint from one region to another.

use crate::data::{Data, ON_DEMAND, hours};
use crate::folds;
use crate::report;
use windfall_core::NanoUsd;
use windfall_sim::{Course, Recording, Scenario, Terms, Zone};

/// A checkpoint of this size moves with the job.
const CHECKPOINT_GB: f64 = 50.0;

pub fn regions(data: &Data) -> bool {
    let (model, from) = folds::without_nine_zones(data);
    let public: Vec<Scenario> = data
        .multi()
        .iter()
        .enumerate()
        .flat_map(|(number, zones)| {
            let deadlines = [52.0];
            deadlines.map(|deadline| Scenario {
                course: together(zones, 0, Vec::new()),
                terms: Terms { work: hours(48.0), deadline: hours(deadline), restart: hours(0.2) },
                name: format!("window {number}"),
            })
        })
        .collect();
    let mut good = report("regions", "the public windows of nine zones", from, &public, model.clone());
    let zones = data.zones_2023();
    let egress = data.egress(&zones, CHECKPOINT_GB);
    let mut scenarios = Vec::new();
    for ratio in [1.1, 1.5, 2.0] {
        for restart in [0.05, 0.2] {
            let terms = Terms { work: hours(48.0), deadline: hours(48.0 * ratio), restart: hours(restart) };
            scenarios.extend(folds::windows(&zones[0], hours(96.0), 6).into_iter().map(|from| Scenario {
                course: together(&zones, from, egress.clone()),
                terms,
                name: format!("from tick {from}"),
            }));
        }
    }
    good &= report("regions", "nine zones with real prices and egress of 50 GB", from, &scenarios, model);
    good
}

/// Eight zones of 2022 side by side at invented prices: what several zones ask of foresight was tried here.
pub fn tried(data: &Data) {
    const CENTS: [i64; 8] = [97, 105, 120, 92, 110, 100, 130, 95];
    let mut zones = data.zones_2022();
    let ticks = zones.iter().map(|zone| zone.counts.len()).min().unwrap_or(0);
    for (zone, cents) in zones.iter_mut().zip(CENTS) {
        zone.counts.truncate(ticks);
        zone.prices = Some(vec![NanoUsd(cents * 10_000_000); ticks]);
    }
    // Few zones, or down together they would hardly ever be.
    for few in [&zones[..2], &zones[2..5], &zones[4..8], &zones[..]] {
        let mut scenarios = Vec::new();
        for ratio in [1.1, 1.5] {
            for restart in [0.05, 0.2] {
                let terms = Terms { work: hours(48.0), deadline: hours(48.0 * ratio), restart: hours(restart) };
                scenarios.extend(folds::windows(&few[0], hours(72.0), 12).into_iter().map(|from| Scenario {
                    course: together(few, from, Vec::new()),
                    terms,
                    name: format!("from tick {from}"),
                }));
            }
        }
        let model = folds::without(&folds::folds(data), None, &folds::Settings::default());
        report("tried", &format!("{} zones of 2022 side by side", few.len()), "2023", &scenarios, model);
    }
}

fn together(zones: &[Recording], from: usize, egress: Vec<Vec<NanoUsd>>) -> Course {
    let zone = |recording: &Recording| {
        let up = recording.counts[from..].iter().map(|count| *count >= 1).collect();
        let prices = recording.prices.as_ref().map(|prices| prices[from..].to_vec()).unwrap_or_default();
        Zone { price: prices, ..Zone::new(&recording.name, up, NanoUsd(0)) }
    };
    Course {
        tick: zones[0].tick,
        zones: zones.iter().map(zone).collect(),
        on_demand: NanoUsd::from_dollars(ON_DEMAND),
        gang: 1,
        egress,
    }
}
