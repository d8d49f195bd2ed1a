//! Recorded markets re-encoded in the format of the embedded ones: runs of equal capacity and of equal price.

use crate::data::{Data, SPOT};
use serde_json::{Value, json};
use std::path::Path;
use windfall_core::NanoUsd;
use windfall_sim::Recording;

/// What a market is called, and what is known of it as a whole.
struct About {
    name: &'static str,
    source: &'static str,
    recorded: &'static str,
    instance_type: &'static str,
    accelerator: &'static str,
    on_demand_usd: f64,
    /// Dollars an hour on spot where no price was recorded.
    spot_usd: f64,
}

const V100: About = About {
    name: "",
    source: "",
    recorded: "",
    instance_type: "p3.2xlarge",
    accelerator: "V100",
    on_demand_usd: 3.06,
    spot_usd: SPOT,
};
const PROBES: &str = "capacity: skypilot-org/spot-traces, availability probes of aws-02-15-2023; spot prices: \
                      andylizf/skynomad-artifact; on-demand price: AWS list price of p3.2xlarge";
const PING: &str = "capacity: mert-cemri/autoevolve (Can't Be Late), probes of eight zones; no spot price was \
                    recorded: an assumed one stands still";

/// Writes every market into a folder.
pub fn write(data: &Data, folder: &Path) -> Result<(), String> {
    let nine = data.zones_2023();
    let of = |zones: &[Recording], prefix: &str| -> Vec<Recording> {
        zones.iter().filter(|zone| zone.name.contains(prefix)).cloned().collect()
    };
    let (kept, counts, early) = (data.kept_2023(), data.counts(), data.zones_2022());
    let kept_from = "capacity: skypilot-org/spot-traces, instances kept of aws-04-22-2023; spot price: of the same, \
                     it stands still";
    let counted = |what: &str| match what {
        "16" => {
            "capacity: skypilot-org/spot-traces, availability of up to 16 nodes; no spot price was recorded: an assumed one stands still"
        }
        _ => {
            "capacity: skypilot-org/spot-traces, nodes kept of up to 4; no spot price was recorded: an assumed one stands still"
        }
    };
    let spring = "2023-02-15 to 2023-04-01";
    let markets = [
        (About { name: "aws-v100-us-west-2-2023", source: PROBES, recorded: spring, ..V100 }, of(&nine, "us-west-2")),
        (About { name: "aws-v100-us-east-1-2023", source: PROBES, recorded: spring, ..V100 }, of(&nine, "us-east-1")),
        (About { name: "aws-v100-us-east-2-2023", source: PROBES, recorded: spring, ..V100 }, of(&nine, "us-east-2")),
        (About { name: "aws-v100-kept-2023", source: kept_from, recorded: "from 2023-04-22", ..V100 }, kept),
        (
            About { name: "aws-v100-16-nodes-2023", source: counted("16"), recorded: "2023", ..V100 },
            counts[..1].to_vec(),
        ),
        (About { name: "aws-v100-4-nodes-2023", source: counted("4"), recorded: "2023", ..V100 }, counts[1..].to_vec()),
        (
            About { name: "aws-v100-us-west-2-2022", source: PING, recorded: "from 2022-10-26", ..V100 },
            of(&early, "v100_1"),
        ),
        (
            About {
                name: "aws-k80-us-west-2-2022",
                source: PING,
                recorded: "from 2022-10-26",
                instance_type: "p2.xlarge",
                accelerator: "K80",
                on_demand_usd: 0.9,
                spot_usd: 0.27,
            },
            of(&early, "k80_1"),
        ),
    ];
    for (about, zones) in markets {
        let file = folder.join(format!("{}.json", about.name));
        std::fs::write(&file, text(&about, &zones)).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{}: {} zones", about.name, zones.len());
    }
    Ok(())
}

fn text(about: &About, zones: &[Recording]) -> String {
    let micro = |dollars: f64| (dollars * 1e6).round() as i64;
    let zone = |zone: &Recording| {
        let ticks = zone.counts.len();
        let still = vec![NanoUsd::from_dollars(about.spot_usd); ticks];
        let prices = zone.prices.as_ref().unwrap_or(&still);
        let name = zone.name.split('_').next().unwrap_or(&zone.name);
        json!({
            "zone": name,
            "capacity_runs": runs(&zone.counts),
            "price_runs_microusd": runs(&prices.iter().map(|price| price.0 / 1_000).collect::<Vec<_>>()),
        })
    };
    let head = json!({
        "format": 1,
        "name": about.name,
        "source": about.source,
        "recorded": about.recorded,
        "cloud": "aws",
        "instance_type": about.instance_type,
        "accelerator": about.accelerator,
        "accelerators": 1,
        "on_demand_microusd": micro(about.on_demand_usd),
        "notice_seconds": 120,
        "tick_seconds": zones.first().map_or(0, |zone| zone.tick.0 / 1_000),
    });
    let zones: Vec<String> = zones.iter().map(|recording| zone(recording).to_string()).collect();
    // One zone on a line: differences between versions stay readable.
    let head = head.to_string();
    format!("{},\n\"zones\":[\n{}\n]}}\n", head.trim_end_matches('}'), zones.join(",\n"))
}

/// Equal values in a row as (how many, which).
fn runs<T: Copy + PartialEq + serde::Serialize>(values: &[T]) -> Vec<Value> {
    let run = |run: &[T]| json!([run.len(), run[0]]);
    values.chunk_by(|a, b| a == b).map(run).collect()
}
