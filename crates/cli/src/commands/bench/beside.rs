//! `windfall bench compare` and `extrapolate`: what results say beside each other, and what they say of more nodes.

use super::json;
use super::show::value;
use crate::args::{BenchCompareArgs, BenchExtrapolateArgs, ScalingWord};
use crate::commands::{facts, priced};
use crate::fitted::{Column, fitted, wrapped};
use crate::here::Here;
use windfall_insight::bench::{self, Estimate, Kept, Run, Scaling, compare_screen};
use windfall_insight::roofline::sheet;
use windfall_insight::text::dollars;
use windfall_server::client::{Code, Failure};

pub fn compare(here: &Here, args: &BenchCompareArgs) -> Result<Code, Failure> {
    let mut runs: Vec<(String, Run)> = Vec::new();
    for file in &args.files {
        let file = file.to_string_lossy().into_owned();
        runs.extend(super::read(&file)?.into_iter().map(|run| (file.clone(), run)));
    }
    let compared = bench::compare(&runs);
    if here.json {
        for one in &compared {
            println!("{}", json(one)?);
        }
    } else {
        print!("{}", compare_screen(&compared, crate::live::width().min(110)));
    }
    Ok(Code::Done)
}

pub fn extrapolate(here: &Here, args: &BenchExtrapolateArgs) -> Result<Code, Failure> {
    let catalog = facts::catalog(here)?;
    let (usd, said) = priced::each(&catalog, args.price, args.instance.as_deref())?;
    let runs = super::read(&args.file)?;
    let run =
        match runs.as_slice() {
            [one] => one,
            several => {
                let names: Vec<String> = several.iter().map(Run::label).collect();
                return Err(Failure::new(Code::BadInput, format!("{}: several runs: which?", args.file))
                    .hint(format!("pick one with `{}#…`: {}", args.file, names.join(", "))));
            }
        };
    if run.steps_per_second.is_none() {
        return Err(Failure::new(Code::BadInput, format!("{}: {} has no speed", args.file, run.label())));
    }
    let family = run.accelerator.as_deref().and_then(|named| sheet(&catalog, named)).map(|sheet| sheet.family.as_str());
    let family = family.or(run.accelerator.as_deref()).unwrap_or_default();
    let scaling = match args.scaling {
        ScalingWord::Weak => Scaling::Weak,
        ScalingWord::Strong => Scaling::Strong,
    };
    let kept = bench::kept(&catalog, family, scaling)
        .ok_or_else(|| Failure::new(Code::BadInput, "the catalogue has no measurements of scaling"))?;
    let per_node = args.per_node.unwrap_or(run.count);
    // A price of the file's own holds for what was measured.
    let own = run.usd_per_1000_steps.zip(run.steps_per_second);
    let usd = usd.or_else(|| own.map(|(usd, speed)| usd * speed * 3.6 / f64::from(run.count)));
    let estimates = bench::extrapolate(run, &kept, args.steps, &args.nodes, per_node, usd);
    let rests_on = rests_on(&kept, scaling);
    if here.json {
        let label = run.label();
        println!(
            "{}",
            serde_json::json!({ "run": label, "steps": args.steps, "scaling": scaling, "kept_per_doubling": kept, "estimates": estimates })
        );
        return Ok(Code::Done);
    }
    let width = crate::live::width().min(100);
    print!("{}", table(&estimates, width));
    let unrepeated = run.steps_per_second_low.is_none();
    let mut notes = vec![rests_on];
    notes.extend(unrepeated.then(|| "the run was not repeated: its speed is taken as known to 5 %".to_owned()));
    notes.extend(said);
    notes.iter().for_each(|note| println!("{}", wrapped(&format!("note: {note}"), width).trim_end()));
    Ok(Code::Done)
}

fn rests_on(kept: &Kept, scaling: Scaling) -> String {
    let whose = kept.accelerator.as_deref().unwrap_or("all accelerators");
    let what = match scaling {
        Scaling::Weak => "models whose batch grew with the accelerators",
        Scaling::Strong => "MLPerf benchmarks",
    };
    format!(
        "each doubling keeps {:.1} % of the speed ({:.1} to {:.1} %): {} pairs of {} {what} on {whose}; bands made without a model held {:.0} % of that model's pairs",
        kept.middle * 100.0,
        kept.low * 100.0,
        kept.high * 100.0,
        kept.pairs,
        kept.groups,
        kept.covered * 100.0
    )
}

fn table(estimates: &[Estimate], width: usize) -> String {
    let span = |hours: f64| windfall_core::Span((hours * 3.6e6).min(1e15) as i64).to_string();
    let band = |low: Option<f64>, high: Option<f64>| match (low, high) {
        (Some(low), Some(high)) => format!("{}-{}", dollars(low), dollars(high).trim_start_matches('$')),
        _ => String::new(),
    };
    let columns = vec![
        Column::figures("nodes", 0, estimates.iter().map(|one| one.nodes.to_string())),
        Column::figures("accelerators", 3, estimates.iter().map(|one| one.accelerators.to_string())),
        Column::figures("efficiency", 2, estimates.iter().map(|one| format!("{} %", value(one.efficiency * 100.0)))),
        Column::figures("time", 0, estimates.iter().map(|one| span(one.hours))),
        Column::words(
            "between",
            1,
            estimates.iter().map(|one| format!("{} and {}", span(one.hours_low), span(one.hours_high))),
        ),
        Column::figures("cost", 1, estimates.iter().map(|one| one.usd.map_or(String::new(), dollars))),
        Column::words("between", 4, estimates.iter().map(|one| band(one.usd_low, one.usd_high))),
    ];
    fitted(columns, width)
}
