//! What can be bought: one line for each kind of offer with its cheapest place, or every offer for programs.

mod record;
mod table;

use super::facts::catalog;
use crate::args::{OfferSort, OffersArgs, PlaceArgs};
use crate::here::Here;
use windfall_catalog::{BadRequest, Catalog, Query, Sort, Term};
use windfall_core::NanoUsd;
use windfall_server::client::{Code, Failure};

pub fn offers(here: &Here, args: &OffersArgs) -> Result<Code, Failure> {
    let catalog = catalog(here)?;
    let query = query(&catalog, args, here.json || args.csv)?;
    let unasked = query.accelerators.is_empty() && !query.without_accelerators && query.instance_types.is_empty();
    let found = catalog.search(&query);
    if found.is_empty() {
        return Err(nothing(&catalog, &query));
    }
    if here.json {
        record::print_json(&found)?;
    } else if args.csv {
        record::print_csv(&found)?;
    } else if unasked && !args.all {
        print!("{}", table::families(&catalog, &found));
    } else {
        print!("{}", table::listing(&catalog, &query, args, &found));
    }
    Ok(Code::Done)
}

fn query(catalog: &Catalog, args: &OffersArgs, for_programs: bool) -> Result<Query, Failure> {
    let typed = args.gpus.iter().chain(&args.gpu).flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
    let accelerators = typed.map(|name| catalog.wanted(name)).collect::<Result<Vec<_>, _>>();
    let accelerators =
        accelerators.map_err(|request| instance_type(catalog, &request).unwrap_or_else(|| bad(request)))?;
    let Within { clouds, regions, terms } = Within::of(catalog, &args.places)?;
    let counted = accelerators.iter().any(|wanted| wanted.count.is_some());
    Ok(Query {
        without_accelerators: args.cpu,
        accelerators,
        clouds,
        regions,
        instance_types: args.instance_type.clone(),
        terms,
        min_memory_gib: args.min_memory.as_deref().map(|text| memory("--min-memory", text)).transpose()?,
        min_accelerator_memory_gb: args
            .min_gpu_memory
            .as_deref()
            .map(|text| memory("--min-gpu-memory", text))
            .transpose()?,
        min_vcpus: None,
        max_price: args.max_price.map(max_price).transpose()?,
        by_zone: for_programs,
        sort: match args.sort {
            Some(OfferSort::Price) => Sort::Price,
            Some(OfferSort::PricePerGpu) => Sort::PricePerAccelerator,
            Some(OfferSort::PricePerTflop) => Sort::PricePerTflop,
            Some(OfferSort::PricePerGb) => Sort::PricePerGb,
            // Instances of one and of eight cannot be compared by their price.
            None if counted || args.cpu => Sort::Price,
            None => Sort::PricePerAccelerator,
        },
        limit: args.limit.filter(|_| for_programs).map(|limit| limit as usize),
    })
}

/// Where and how things are bought, as a command line says.
pub struct Within {
    pub clouds: Vec<String>,
    pub regions: Vec<String>,
    pub terms: Vec<Term>,
}

impl Within {
    /// Fails if a cloud, region or market does not exist.
    pub fn of(catalog: &Catalog, args: &PlaceArgs) -> Result<Within, Failure> {
        let clouds: Vec<String> = args.cloud.iter().map(|cloud| cloud.to_ascii_lowercase()).collect();
        clouds.iter().try_for_each(|cloud| catalog.known_cloud(cloud)).map_err(bad)?;
        let regions: Vec<String> = args.region.iter().flat_map(|typed| regions(catalog, typed)).collect();
        regions.iter().try_for_each(|region| catalog.known_region(region)).map_err(bad)?;
        let terms = args.market.iter().map(|word| {
            Term::named(word).ok_or_else(|| {
                Failure::new(Code::BadInput, format!("no market is called `{word}`"))
                    .hint("markets: spot, on-demand, reserved, reserved-1y, reserved-3y")
            })
        });
        let terms = terms.collect::<Result<Vec<_>, _>>()?.concat();
        Ok(Within { clouds, regions, terms })
    }
}

/// Regions with commas between them, of which some have commas in their names: `us-east-1,Florida, US, NA`.
fn regions(catalog: &Catalog, typed: &str) -> Vec<String> {
    let pieces: Vec<&str> = typed.split(',').collect();
    let mut regions = Vec::new();
    let mut at = 0;
    while at < pieces.len() {
        let joined = |end: usize| pieces[at..end].join(",").trim().to_owned();
        let known = (at + 1..=pieces.len()).rev().find(|end| catalog.known_region(&joined(*end)).is_ok());
        let end = known.unwrap_or(at + 1);
        regions.extend(Some(joined(end)).filter(|region| !region.is_empty()));
        at = end;
    }
    regions
}

fn memory(flag: &str, text: &str) -> Result<f64, Failure> {
    let number = text.trim().trim_end_matches('+').trim_end_matches("GiB").trim_end_matches("GB").trim();
    let value: Option<f64> = number.parse().ok();
    value.filter(|value| (0.0..=1e6).contains(value)).ok_or_else(|| {
        Failure::new(Code::BadInput, format!("{flag}: `{text}` is not an amount of memory"))
            .hint("say gigabytes, such as 200 or 200GB")
    })
}

fn max_price(dollars: f64) -> Result<NanoUsd, Failure> {
    if dollars.is_finite() && dollars > 0.0 && dollars <= 1e6 {
        return Ok(NanoUsd::from_dollars(dollars));
    }
    Err(Failure::new(Code::BadInput, format!("--max-price: {dollars} is not a price"))
        .hint("say dollars an hour, such as 20.5"))
}

/// An instance type in the place of an accelerator is a slip that has a flag.
fn instance_type(catalog: &Catalog, request: &BadRequest) -> Option<Failure> {
    let BadRequest::UnknownAccelerator { typed, .. } = request else { return None };
    let kind = catalog.instance_types().find(|kind| kind.name == typed)?;
    let message = format!("`{typed}` is an instance type of {}, not an accelerator", kind.cloud);
    Some(Failure::new(Code::BadInput, message).hint(format!("say --instance-type {typed}")))
}

/// A request that cannot be understood, and what may have been meant.
pub fn bad(request: BadRequest) -> Failure {
    let (nearest, otherwise) = match &request {
        BadRequest::UnknownAccelerator { nearest, .. } => (nearest.clone(), "`windfall offers` lists all accelerators"),
        BadRequest::UnknownCloud { nearest, .. } => (nearest.clone(), "`windfall catalog` lists all clouds"),
        BadRequest::UnknownRegion { nearest, .. } => {
            (nearest.clone(), "name a region as its cloud does, such as us-east-1")
        }
        BadRequest::BadCount { .. } => (None, "write the number after a colon, such as H100:8"),
    };
    let hint = nearest.map_or_else(|| otherwise.to_owned(), |name| format!("did you mean {name}?"));
    Failure::new(Code::BadInput, request.to_string()).hint(hint)
}

/// Says which part of the request nothing meets.
fn nothing(catalog: &Catalog, query: &Query) -> Failure {
    let obstacles = catalog.obstacles(query);
    let words: Vec<&str> = obstacles.iter().map(|obstacle| obstacle.constraint.as_str()).collect();
    let unpriced = obstacles.iter().all(|obstacle| obstacle.instead.is_none());
    let message = match words.as_slice() {
        _ if unpriced => format!("no price is known for {}", words.join(", ")),
        [one] => format!("nothing meets the request: {one} rules out every offer"),
        several => format!("nothing meets the request: each of {} rules out every offer", several.join(", ")),
    };
    let mut failure = Failure::new(Code::BadInput, message);
    let hints: Vec<String> = obstacles
        .iter()
        .filter_map(|obstacle| Some(format!("without `{}`: {}", obstacle.constraint, obstacle.instead.as_ref()?)))
        .collect();
    if hints.is_empty() {
        failure = failure.hint("it is known, but no cloud of the catalogue sells it at a known price");
    } else {
        failure = failure.hint(hints.join("\nhint: "));
    }
    failure
}
