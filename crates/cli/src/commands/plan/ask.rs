//! From a job file and flags to a request.

use crate::args::PlanChange;
use crate::commands::for_sale::ForSale;
use crate::commands::offers::{Within, bad};
use crate::commands::work::{self, wanted};
use crate::here::Here;
use std::path::Path;
use windfall_agent::checkpoint::{Located, located};
use windfall_catalog::plan::{Holdings, JobData, Request, Saves, StoreLocation, Tuning, Work};
use windfall_catalog::{Catalog, Count, Precision, Wanted};
use windfall_core::Span;
use windfall_jobfile::{self as jobfile, Problem, Read};
use windfall_server::client::{Code, Failure};

/// What is planned, and what it is called.
pub struct Asked {
    pub name: String,
    pub request: Request,
    pub deadline: Option<Span>,
    /// The replayed market, when the plan is about that and not about all that is for sale.
    pub market: Option<String>,
    /// What was assumed about the job's own things, one line each.
    pub notes: Vec<String>,
}

/// The request of a job file, changed by flags.
pub fn asked(here: &Here, sold: &ForSale, file: Option<&Path>, args: &PlanChange) -> Result<Asked, Failure> {
    let catalog = &sold.catalog;
    let (mut store, mut any) = (None, None);
    let mut asked = match file {
        Some(file) => {
            let read = jobfile::read(file, &here.context()?).map_err(|error| here.bad_file(&error))?;
            any = read.wishes.any_gpus;
            store = Some(read.spec.checkpoint.store.clone());
            of_file(catalog, &read, file)?
        }
        None => Asked {
            name: "job".to_owned(),
            request: Request::default(),
            deadline: None,
            market: None,
            notes: Vec::new(),
        },
    };
    let named = !asked.request.accelerators.is_empty();
    flags(here, catalog, args, &mut asked)?;
    if let Some(store) = store.filter(|_| args.store_at.is_none()) {
        let (at, note) = store_location(&store);
        asked.request.saves.at = at;
        asked.notes.extend(note);
    }
    let request = &mut asked.request;
    if let Some(Work::Hours { hours, on: None }) = &request.work
        && request.accelerators.is_empty()
        && !args.here
    {
        let message = format!("{} hours on what?", hours.0 as f64 / 3.6e6);
        let hint = match any {
            // A limit says nothing while the speed of what it was meant for is not known.
            Some(count) => format!("the script names no kind of accelerator: say --gpu A100:{count}"),
            None => {
                "say `work: { hours: 40, accelerator: A100:8 }` or `resources: { accelerators: A100:8 }`".to_owned()
            }
        };
        return Err(Failure::new(Code::BadInput, message).hint(hint));
    }
    if request.work.is_none() {
        let hint = if file.is_some() {
            "say `work: { hours: 40, accelerator: A100:8 }` in the job file, or give --hours and --on"
        } else {
            "give a job file, or --hours 8 --on A100"
        };
        return Err(Failure::new(Code::BadInput, "the work is not known, so nothing can be planned").hint(hint));
    }
    request.most_spot = sold.most_spot;
    request.recorded = recorded();
    // Accelerators that were named are taken as they are; those of `--on` only say how fast the job is.
    request.equivalents = args.by.is_some() && !named && args.gpu.is_empty();
    asked.deadline = asked.request.deadline;
    asked.market.clone_from(&sold.market);
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
    let work = work::stated(catalog, read, file)?;
    // The first is what the program runs in; a fallback to something smaller brings its own.
    let mut precision = precisions(&wishes.precisions)?;
    let stated_precision = (!precision.is_empty()).then(|| precision.remove(0));
    let steps = spec.fallback.iter().flat_map(|fallback| &fallback.to).filter(|step| step.starts_with("smaller"));
    let smaller: Vec<String> =
        steps.map(|step| step.split_once('+').map_or("bf16", |(_, word)| word).to_owned()).collect();
    precision.extend(precisions(&smaller)?);
    let request = Request {
        stated_nodes: Some(spec.gang),
        stated_precision,
        smaller: !smaller.is_empty(),
        work,
        accelerators,
        nodes: vec![spec.gang],
        deadline: read.deadline_in,
        restart: spec.checkpoint.restart,
        saves: Saves {
            bytes: spec.checkpoint.size_bytes,
            every: spec.checkpoint.every,
            keep: spec.checkpoint.keep,
            at: StoreLocation::Here,
        },
        data: wishes.data_bytes.map(|bytes| JobData { bytes, at: None }),
        precision,
        min_memory_gib: wishes.memory_gb,
        min_accelerator_memory_gb: wishes.accelerator_memory_gb,
        min_vcpus: wishes.cpus,
        max_price: spec.max_price,
        budget: spec.budget,
        ..Request::default()
    };
    let mut asked = Asked { name: spec.name.clone(), request, deadline: None, market: None, notes: Vec::new() };
    if let Some(most) = wishes.at_most {
        asked.notes.push(format!(
            "the work is taken to be {most}, the longest that the script may run: less than that costs less; --hours says what it is"
        ));
    }
    if let (Some(at), Some(data)) = (&wishes.data_at, &mut asked.request.data) {
        data.at = Some(site(catalog, "data.at", at)?);
    }
    Ok(asked)
}

/// Where a store is, and what of that was assumed. A bucket is asked, for a few seconds at most.
fn store_location(store: &str) -> (StoreLocation, Option<String>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let located = runtime.ok().and_then(|runtime| runtime.block_on(located(store, std::env::vars())));
    let unsure = "say where the bucket is with --store-at";
    match located {
        None | Some(Located::Folder) => (StoreLocation::Here, None),
        Some(Located::Said { cloud, region }) => {
            let note = format!("checkpoints are kept in {cloud} {region}, where the bucket says it is");
            (StoreLocation::At { cloud: cloud.to_owned(), region }, Some(note))
        }
        Some(Located::Set { cloud, region }) => {
            let note = format!("checkpoints are kept in {cloud} {region}, as AWS_REGION says: {unsure}");
            (StoreLocation::At { cloud: cloud.to_owned(), region }, Some(note))
        }
        Some(Located::Within { cloud }) => {
            let note = format!(
                "the region of the bucket is not known: inside {cloud} it is taken to be that of the job, which costs \
                 nothing; from elsewhere its traffic is paid: {unsure}"
            );
            (StoreLocation::Within { cloud: cloud.to_owned() }, Some(note))
        }
        Some(Located::Elsewhere) => {
            let note =
                format!("the store has an address of its own: traffic to it is paid as to the internet: {unsure}");
            (StoreLocation::Within { cloud: String::new() }, Some(note))
        }
    }
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
    if let Some(typed) = &args.hours {
        let hours = jobfile::hours(typed).map_err(|problem| refused("--hours", problem))?;
        let on = args.on.as_deref().map(|typed| catalog.wanted(typed).map_err(bad)).transpose()?;
        if on.is_none() && request.accelerators.len() != 1 {
            return Err(Failure::new(Code::BadInput, format!("{typed} hours on what?"))
                .hint("say what they were counted on: --hours 40 --on A100:8"));
        }
        request.work = Some(Work::Hours { hours, on });
        request.stated_nodes = None;
        asked.name = format!("{} h on {}", typed.trim(), args.on.as_deref().unwrap_or("anything"));
    }
    if let (Some(parameters), Some(tokens)) = (&args.parameters, &args.tokens) {
        let amount = |flag: &str, typed: &str| {
            jobfile::amount(typed).map(|amount| amount as f64).map_err(|problem| refused(flag, problem))
        };
        let (parameters, tokens) = (amount("--parameters", parameters)?, amount("--tokens", tokens)?);
        let tuning = if args.lora { Tuning::Lora } else { Tuning::Full };
        request.work = Some(Work::Tokens { parameters, tokens, tuning });
        asked.name = format!(
            "{} parameters, {} tokens",
            args.parameters.as_deref().unwrap_or_default().trim(),
            args.tokens.as_deref().unwrap_or_default().trim()
        );
    }
    Within { clouds: request.clouds, regions: request.regions, terms: request.terms } =
        Within::of(catalog, &args.places)?;
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
        request.nodes.sort_unstable();
        request.nodes.dedup();
    }
    for pair in &args.scaling {
        let parsed = pair.split_once('=').and_then(|(n, share)| Some((n.parse().ok()?, share.parse().ok()?)));
        let sensible = |(nodes, share): &(u32, f64)| (2..=4_096).contains(nodes) && (0.01..=1.2).contains(share);
        let (nodes, share): (u32, f64) = parsed.filter(sensible).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("--scaling: `{pair}` is not a measurement"))
                .hint("say nodes=share of perfect, such as 2=0.95,4=0.9: 1 is twice as fast on twice the nodes")
        })?;
        request.scaling.insert(nodes, share);
    }
    if !args.precision.is_empty() {
        request.precision = precisions(&args.precision)?;
    }
    if let Some(at) = &args.store_at {
        let (cloud, region) = site(catalog, "--store-at", at)?;
        request.saves.at = StoreLocation::At { cloud, region };
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

fn refused(flag: &str, problem: Problem) -> Failure {
    let mut failure = Failure::new(Code::BadInput, format!("{flag}: {}", problem.message));
    failure.hint = problem.hint.or(problem.expected.map(|expected| format!("expected {expected}")));
    failure
}

fn precisions(words: &[String]) -> Result<Vec<Precision>, Failure> {
    let read = |word: &String| {
        let trains = |precision: &Precision| !matches!(precision, Precision::Fp4 | Precision::Int8 | Precision::Fp64);
        Precision::named(word).filter(trains).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("`{word}` is no precision that models are trained in"))
                .hint("say bf16, fp16, tf32 or fp8")
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
