//! From a job file and flags to a request.

use crate::args::PlanChange;
use crate::commands::Here;
use crate::commands::offers::{bad, terms};
use crate::exit::{Code, Failure};
use crate::jobfile::{self, Read};
use std::path::Path;
use windfall_catalog::plan::{Holdings, Request, Saves, Stored, Work};
use windfall_catalog::{Catalog, Count, Precision, Wanted};
use windfall_core::spec::{Ask, WorkUnit};
use windfall_core::{NanoUsd, Span};

/// What is planned, and what it is called.
pub struct Asked {
    pub name: String,
    pub request: Request,
    pub deadline: Option<Span>,
}

/// The request of a job file, changed by flags.
pub fn asked(here: &Here, catalog: &Catalog, file: Option<&Path>, args: &PlanChange) -> Result<Asked, Failure> {
    let mut asked = match file {
        Some(file) => {
            let read = jobfile::read(file, &here.context()?).map_err(|error| here.bad_file(&error))?;
            of_file(catalog, &read, file)?
        }
        None => Asked { name: "job".to_owned(), request: Request::default(), deadline: None },
    };
    flags(here, catalog, args, &mut asked)?;
    let request = &mut asked.request;
    if request.work.is_none() {
        let hint = if file.is_some() {
            "say `work: { hours: 40, on: A100:8 }` in the job file, or give --hours and --on"
        } else {
            "give a job file, or --hours 8 --on A100"
        };
        return Err(Failure::new(Code::BadInput, "the work is not known, so nothing can be planned").hint(hint));
    }
    request.recorded = recorded();
    request.equivalents = args.by.is_some();
    asked.deadline = asked.request.deadline;
    Ok(asked)
}

/// Offers whose market is in this program.
fn recorded() -> Vec<(String, String, String)> {
    windfall_sim::recorded()
        .into_iter()
        .map(|(cloud, region, kind)| (cloud.into(), region.into(), kind.into()))
        .collect()
}

fn of_file(catalog: &Catalog, read: &Read, file: &Path) -> Result<Asked, Failure> {
    let (spec, wishes) = (&read.spec, &read.wishes);
    let accelerators = spec.resources.iter().map(|ask| wanted(catalog, ask)).collect::<Result<Vec<_>, _>>()?;
    let work = match (&wishes.benchmark, wishes.parameters, wishes.tokens, spec.work.total) {
        (Some(name), _, _, total) => Some(measured(catalog, name, file, total.map(|work| work.0))?),
        (None, Some(parameters), Some(tokens), _) => {
            Some(Work::Tokens { parameters: parameters as f64, tokens: tokens as f64 })
        }
        (None, Some(_), None, _) | (None, None, Some(_), _) => {
            return Err(Failure::new(Code::BadInput, "work: parameters and tokens go together")
                .hint("write { parameters: 7e9, tokens: 3e10 }"));
        }
        (None, None, None, Some(total)) => Some(match spec.work.unit {
            WorkUnit::Time => Work::Hours {
                hours: Span(total.0 as i64),
                on: wishes.on.as_ref().map(|ask| wanted(catalog, ask)).transpose()?,
            },
            WorkUnit::Steps => {
                let mut per_second = std::collections::BTreeMap::new();
                for (name, rate) in &spec.work.rates {
                    let family = catalog.wanted(name).map_err(bad)?.family;
                    let thousand = rate.time_for(windfall_core::Work(1_000)).0.max(1);
                    per_second.insert(family, 1e6 / thousand as f64);
                }
                if per_second.is_empty() {
                    return Err(Failure::new(Code::BadInput, "work: steps without a throughput cannot be planned")
                        .hint("write { steps: 40000, throughput: { A100: 3.1/s } }"));
                }
                Work::Steps { steps: total.0, per_second }
            }
        }),
        (None, None, None, None) => None,
    };
    let precision = precisions(&wishes.precisions)?;
    let request = Request {
        work,
        accelerators,
        nodes: vec![spec.gang],
        deadline: read.deadline_in,
        restart: spec.checkpoint.restart,
        saves: Saves {
            bytes: spec.checkpoint.size_bytes,
            every: spec.checkpoint.every,
            keep: spec.checkpoint.keep,
            at: None,
        },
        data: wishes.data_bytes.map(|bytes| Stored { bytes, at: None }),
        precision,
        min_memory_gib: wishes.memory_gb,
        min_vcpus: wishes.cpus,
        max_price: spec.max_price,
        budget: spec.budget,
        ..Request::default()
    };
    let mut asked = Asked { name: spec.name.clone(), request, deadline: None };
    if let (Some(at), Some(data)) = (&wishes.data_at, &mut asked.request.data) {
        data.at = Some(site(catalog, "data.at", at)?);
    }
    Ok(asked)
}

fn flags(here: &Here, catalog: &Catalog, args: &PlanChange, asked: &mut Asked) -> Result<(), Failure> {
    let request = &mut asked.request;
    let list = |typed: &[String]| {
        let names = typed.iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
        names.map(|name| catalog.wanted(name)).collect::<Result<Vec<_>, _>>().map_err(bad)
    };
    if !args.gpu.is_empty() {
        request.accelerators = list(&args.gpu)?;
    }
    if let Some(hours) = args.hours {
        let hours = positive("--hours", hours)?;
        let on = args.on.as_deref().map(|typed| catalog.wanted(typed).map_err(bad)).transpose()?;
        request.work = Some(Work::Hours { hours: Span((hours * 3.6e6) as i64), on });
        asked.name = on_words(args);
    }
    if let (Some(parameters), Some(tokens)) = (args.parameters, args.tokens) {
        let (parameters, tokens) = (positive("--parameters", parameters)?, positive("--tokens", tokens)?);
        request.work = Some(Work::Tokens { parameters, tokens });
    }
    args.cloud.iter().try_for_each(|cloud| catalog.known_cloud(cloud)).map_err(bad)?;
    args.region.iter().try_for_each(|region| catalog.known_region(region)).map_err(bad)?;
    request.clouds.clone_from(&args.cloud);
    request.regions.clone_from(&args.region);
    request.terms = terms(&args.market)?;
    if let Some(text) = &args.deadline {
        let deadline = jobfile::duration(text).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("--deadline: `{text}` is not a length of time")).hint("say 36h or 2d")
        })?;
        request.deadline = Some(deadline);
    }
    if !args.nodes.is_empty() {
        if let Some(wrong) = args.nodes.iter().find(|nodes| !(1..=4_096).contains(*nodes)) {
            return Err(Failure::new(Code::BadInput, format!("--nodes: {wrong} nodes")).hint("expected 1 to 4096"));
        }
        request.nodes.clone_from(&args.nodes);
    }
    for pair in &args.scaling {
        let parsed = pair.split_once('=').and_then(|(n, share)| Some((n.parse().ok()?, share.parse().ok()?)));
        let (nodes, share): (u32, f64) = parsed.filter(|(_, share)| (0.01..=1.5).contains(share)).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("--scaling: `{pair}` is not a measurement"))
                .hint("say nodes=share of perfect, such as 2=0.95,4=0.9")
        })?;
        request.scaling.insert(nodes, share);
    }
    if !args.precision.is_empty() {
        request.precision = precisions(&args.precision)?;
    }
    if let Some(at) = &args.store_at {
        request.saves.at = Some(site(catalog, "--store-at", at)?);
    }
    if let Some(file) = &args.holdings {
        request.holdings = holdings(file, here)?;
    }
    // Without anything else to go by, what the hours were counted on is what is wanted, on every cloud.
    if request.accelerators.is_empty()
        && let Some(Work::Hours { on: Some(on), .. }) = &request.work
    {
        let count = on.count.or(Some(Count::whole(1)));
        request.accelerators = vec![Wanted { count, ..on.clone() }];
    }
    Ok(())
}

fn on_words(args: &PlanChange) -> String {
    format!("{} h on {}", args.hours.unwrap_or_default(), args.on.as_deref().unwrap_or("anything"))
}

fn wanted(catalog: &Catalog, ask: &Ask) -> Result<Wanted, Failure> {
    let wanted = catalog.wanted(&ask.accelerator).map_err(bad)?;
    Ok(Wanted { count: wanted.count.or(Some(Count::whole(ask.count))), ..wanted })
}

fn positive(flag: &str, number: f64) -> Result<f64, Failure> {
    if number.is_finite() && number > 0.0 && number <= 1e18 {
        return Ok(number);
    }
    Err(Failure::new(Code::BadInput, format!("{flag}: {number} is not an amount")).hint("expected a number above 0"))
}

fn precisions(words: &[String]) -> Result<Vec<Precision>, Failure> {
    let read = |word: &String| {
        Precision::named(word).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("no precision is called `{word}`")).hint("say bf16, fp16, tf32 or fp8")
        })
    };
    words.iter().map(read).collect()
}

fn site(catalog: &Catalog, what: &str, text: &str) -> Result<(String, String), Failure> {
    let (cloud, region) = text.split_once('/').ok_or_else(|| {
        Failure::new(Code::BadInput, format!("{what}: `{text}` is not a place")).hint("say cloud/region: aws/us-east-1")
    })?;
    catalog.known_cloud(cloud).map_err(bad)?;
    catalog.known_region(region).map_err(bad)?;
    Ok((cloud.to_owned(), region.to_owned()))
}

fn holdings(file: &Path, here: &Here) -> Result<Holdings, Failure> {
    let wrong = |why: String| {
        Failure::new(Code::BadInput, format!("{}: {why}", file.display()))
            .hint("see `windfall plan --help` for what a holdings file says")
    };
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let mut held: Holdings = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    held.check().map_err(wrong)?;
    let context = here.context()?;
    let now = jiff::Timestamp::from_millisecond(context.now_ms).unwrap_or_default();
    for commitment in &held.commitments {
        let day: jiff::civil::Date =
            commitment.until.parse().map_err(|_| wrong(format!("`{}` is not a day", commitment.until)))?;
        let end = day.at(23, 59, 59, 0).to_zoned(context.zone.clone()).map_err(|error| wrong(error.to_string()))?;
        held.left.push(Span(end.timestamp().as_millisecond() - now.as_millisecond()));
    }
    Ok(held)
}

/// A measured speed: one figure, or several of which `#model` or `#model/precision` picks one.
fn measured(catalog: &Catalog, name: &str, job: &Path, steps: Option<u64>) -> Result<Work, Failure> {
    let (name, pick) = name.split_once('#').map_or((name, None), |(name, pick)| (name, Some(pick)));
    let path = job.parent().unwrap_or(Path::new(".")).join(name);
    let wrong = |why: &str| Failure::new(Code::BadInput, format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error.to_string()))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let runs = json["runs"].as_array().cloned().unwrap_or_else(|| vec![json.clone()]);
    let label = |run: &serde_json::Value| {
        let part = |key: &str| run[key].as_str().unwrap_or_default().to_owned();
        (part("model"), format!("{}/{}", part("model"), part("precision")))
    };
    let fits = |run: &&serde_json::Value| pick.is_none_or(|pick| label(run).0 == pick || label(run).1 == pick);
    let fitting: Vec<&serde_json::Value> = runs.iter().filter(fits).collect();
    let run = match fitting.as_slice() {
        [one] => *one,
        [] => return Err(wrong("no such run").hint(labels(&runs, &label))),
        _ => return Err(wrong("several runs: which?").hint(labels(&runs, &label))),
    };
    let device = ["accelerator", "device"].iter().find_map(|key| run[key].as_str().or(json[key].as_str()));
    let device = device.ok_or_else(|| wrong("does not say on what it was measured").hint("add \"accelerator\""))?;
    let on = catalog.wanted(device.trim_start_matches("NVIDIA ")).map_err(bad)?;
    let count = run["count"].as_u64().or(json["count"].as_u64()).unwrap_or(1) as u32;
    let speed = run["steps_per_second"].as_f64().or_else(|| run["step_ms"].as_f64().map(|ms| 1e3 / ms));
    let per_second = speed.filter(|speed| speed.is_finite() && *speed > 0.0);
    let per_second = per_second.ok_or_else(|| wrong("no speed").hint("add \"steps_per_second\" or \"step_ms\""))?;
    let steps = steps.or(run["steps"].as_u64());
    let steps = steps.ok_or_else(|| wrong("says how fast, not how much").hint("add `steps` to the job's work"))?;
    let precision = run["precision"].as_str().and_then(Precision::named);
    Ok(Work::Measured { steps, on: Wanted { count: Some(Count::whole(count)), ..on }, per_second, precision })
}

fn labels(runs: &[serde_json::Value], label: &dyn Fn(&serde_json::Value) -> (String, String)) -> String {
    let names: Vec<String> = runs.iter().map(|run| label(run).1).collect();
    format!("pick one with `benchmark: file.json#…`: {}", names.join(", "))
}

/// A price for people.
pub fn dollars(price: NanoUsd) -> String {
    format!("${:.2}", price.dollars())
}
