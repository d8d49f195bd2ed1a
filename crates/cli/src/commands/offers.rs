//! What can be bought: one line for each kind of offer with its cheapest place, or every offer for programs.

use super::Here;
use super::facts::catalog;
use crate::args::{OfferSort, OffersArgs};
use crate::exit::{Code, Failure};
use crate::fitted::{Column, fitted, wrapped};
use crate::sparkline::sparkline;
use std::collections::{BTreeMap, BTreeSet};
use windfall_catalog::{BadRequest, Catalog, Count, Offer, Query, Sort, Term};
use windfall_core::{Market, NanoUsd};

/// Lines that people read before they ask for less.
const LINES: usize = 20;

pub fn offers(here: &Here, args: &OffersArgs) -> Result<Code, Failure> {
    let catalog = catalog(here)?;
    let query = query(&catalog, args, here.json || args.csv)?;
    let unasked = query.accelerators.is_empty() && !query.without_accelerators && query.instance_types.is_empty();
    let found = catalog.search(&query);
    if found.is_empty() {
        return Err(nothing(&catalog, &query));
    }
    if here.json {
        print_json(&found)?;
    } else if args.csv {
        print_csv(&found)?;
    } else if unasked && !args.all {
        print!("{}", families(&catalog, &found));
    } else {
        print!("{}", listing(&catalog, &query, args, &found));
    }
    Ok(Code::Done)
}

fn query(catalog: &Catalog, args: &OffersArgs, for_programs: bool) -> Result<Query, Failure> {
    let typed = args.gpus.iter().chain(&args.gpu).flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
    let accelerators = typed.map(|name| catalog.wanted(name)).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    let clouds: Vec<String> = args.cloud.iter().map(|cloud| cloud.to_ascii_lowercase()).collect();
    clouds.iter().try_for_each(|cloud| catalog.known_cloud(cloud)).map_err(bad)?;
    args.region.iter().try_for_each(|region| catalog.known_region(region)).map_err(bad)?;
    let counted = accelerators.iter().any(|wanted| wanted.count.is_some());
    Ok(Query {
        without_accelerators: args.cpu,
        accelerators,
        clouds,
        regions: args.region.clone(),
        instance_types: args.instance_type.clone(),
        terms: terms(&args.market)?,
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
        limit: args.limit.filter(|_| for_programs),
    })
}

/// The terms that words of a command line stand for.
pub fn terms(words: &[String]) -> Result<Vec<Term>, Failure> {
    let named = words.iter().map(|word| {
        Term::named(word).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("no market is called `{word}`"))
                .hint("markets: spot, on-demand, reserved, reserved-1y, reserved-3y")
        })
    });
    Ok(named.collect::<Result<Vec<_>, _>>()?.concat())
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
    if !hints.is_empty() {
        failure = failure.hint(hints.join("\nhint: "));
    }
    failure
}

/// An overview: one line for each accelerator.
fn families(catalog: &Catalog, found: &[Offer<'_>]) -> String {
    let mut by_family: BTreeMap<&str, Vec<&Offer<'_>>> = BTreeMap::new();
    for offer in found {
        by_family.entry(offer.kind.accelerator.unwrap_or_default()).or_default().push(offer);
    }
    let mut lines: Vec<(&str, Vec<&Offer<'_>>)> = by_family.into_iter().collect();
    lines.sort_by_key(|(name, offers)| {
        let year = offers.iter().filter_map(|offer| offer.kind.sheet).map(|sheet| sheet.year).max();
        (std::cmp::Reverse(year), *name)
    });
    let cheapest = |offers: &[&Offer<'_>], term: Term| {
        let prices = offers.iter().filter(|offer| offer.term == term).filter_map(|offer| offer.price_per_accelerator());
        prices.min().map_or(String::new(), dollars)
    };
    let column = |cell: &dyn Fn(&str, &[&Offer<'_>]) -> String| -> Vec<String> {
        lines.iter().map(|(name, offers)| cell(name, offers)).collect()
    };
    let table = fitted(
        vec![
            Column::words("ACCELERATOR", 0, column(&|name, _| name.to_owned())),
            Column::figures(
                "GB",
                1,
                column(&|name, offers| {
                    let sheet = catalog.accelerator(name).map(|sheet| f64::from(sheet.memory_gb));
                    let named = || windfall_catalog::names::memory_gb(name).map(f64::from);
                    let told = || offers.iter().find_map(|offer| offer.kind.accelerator_memory_gb);
                    sheet.or_else(named).or_else(told).map_or(String::new(), |memory| format!("{memory:.0}"))
                }),
            ),
            Column::figures(
                "TFLOP/S",
                2,
                column(&|name, _| {
                    let peak = catalog.accelerator(name).and_then(|sheet| sheet.training_tflops());
                    peak.map_or(String::new(), |peak| format!("{peak:.0}"))
                }),
            ),
            Column::figures("SPOT", 0, column(&|_, offers| cheapest(offers, Term::Spot))),
            Column::figures("ON-DEMAND", 0, column(&|_, offers| cheapest(offers, Term::OnDemand))),
            Column::figures("1 YEAR", 5, column(&|_, offers| cheapest(offers, Term::Reserved1y))),
            Column::figures("3 YEARS", 4, column(&|_, offers| cheapest(offers, Term::Reserved3y))),
            Column::words(
                "CLOUDS",
                3,
                column(&|_, offers| {
                    let clouds: BTreeSet<&str> = offers.iter().map(|offer| offer.kind.cloud).collect();
                    clouds.into_iter().collect::<Vec<_>>().join(" ")
                }),
            )
            .least(14),
        ],
        crate::live::size().0,
    );
    let note = "The cheapest dollars an hour for one accelerator. `windfall offers H100` shows its offers.";
    format!("{table}\n{}", wrapped(note, crate::live::size().0))
}

/// One line for each kind of offer, or each offer.
fn listing(catalog: &Catalog, query: &Query, args: &OffersArgs, found: &[Offer<'_>]) -> String {
    let mut lines: Vec<(Offer<'_>, usize)> = Vec::new();
    let mut seen: BTreeMap<(&str, &str, Count, Term), usize> = BTreeMap::new();
    for offer in found {
        let key = (offer.kind.cloud, offer.kind.name, offer.kind.count, offer.term);
        match seen.get(&key).filter(|_| !args.all) {
            Some(at) => lines[*at].1 += 1,
            None => {
                seen.insert(key, lines.len());
                lines.push((*offer, 0));
            }
        }
    }
    let kinds = lines.len();
    lines.truncate(args.limit.unwrap_or(if args.all { usize::MAX } else { LINES }));
    let width = crate::live::size().0;
    let table = fitted(columns(catalog, query, &lines), width);
    let mut notes = String::new();
    if lines.len() < kinds {
        notes.push_str(&format!("{} of {kinds} kinds of offer; --limit {kinds} shows all of them. ", lines.len()));
    }
    if table.lines().next().is_some_and(|head| head.ends_with("MORE")) {
        notes.push_str("MORE: in so many more places, not cheaper; --all shows each. ");
    }
    if lines.iter().any(|(offer, _)| offer.band.is_some()) {
        notes.push_str("A share after `spot` is how many such instances AWS takes back in a month. ");
    }
    let sources: BTreeSet<String> =
        lines.iter().map(|(offer, _)| format!("{} of {}", offer.source.name, offer.source.as_of)).collect();
    notes.push_str(&format!("Prices: {}.", sources.into_iter().collect::<Vec<_>>().join(", ")));
    format!("{table}\n{}", wrapped(&notes, width))
}

fn columns(catalog: &Catalog, query: &Query, lines: &[(Offer<'_>, usize)]) -> Vec<Column> {
    let column = |cell: &dyn Fn(&Offer<'_>) -> Option<String>| -> Vec<String> {
        lines.iter().map(|(offer, _)| cell(offer).unwrap_or_default()).collect()
    };
    // What the lines are sorted by stays.
    let unless = |sort: Sort, leaves: u8| if query.sort == sort { 0 } else { leaves };
    // Where all lines have the same accelerator, its number says enough.
    let first = lines.first().and_then(|(offer, _)| offer.kind.accelerator);
    let alike = lines.iter().all(|(offer, _)| offer.kind.accelerator == first);
    let chips = |offer: &Offer<'_>| {
        let family = offer.kind.accelerator?;
        Some(if alike { offer.kind.count.to_string() } else { format!("{family}:{}", offer.kind.count) })
    };
    vec![
        Column::words("CLOUD", 0, column(&|offer| Some(offer.kind.cloud.to_owned()))),
        Column::words("INSTANCE TYPE", 0, column(&|offer| Some(offer.kind.name.to_owned()))).least(14),
        Column::words(if alike { "GPUS" } else { "GPU" }, 1, column(&chips)),
        Column::words(
            "MARKET",
            0,
            column(&|offer| {
                let band = offer.band.map_or(String::new(), |band| format!(" {band}"));
                Some(format!("{}{band}", offer.term))
            }),
        ),
        Column::figures("$/HOUR", unless(Sort::Price, 3), column(&|offer| Some(dollars(offer.price)))),
        Column::figures(
            "$/GPU-H",
            unless(Sort::PricePerAccelerator, 2),
            column(&|offer| offer.price_per_accelerator().map(dollars)),
        ),
        Column::figures(
            "$/PFLOPS-H",
            unless(Sort::PricePerTflop, 8),
            column(&|offer| offer.price_per_tflop().map(|price| dollars(NanoUsd(price.0 * 1_000)))),
        ),
        Column::figures(
            "$/TB-H",
            unless(Sort::PricePerGb, 9),
            column(&|offer| offer.price_per_gb().map(|price| dollars(NanoUsd(price.0 * 1_000)))),
        ),
        Column::figures("GIB", 10, column(&|offer| offer.kind.memory_gib.map(|gib| format!("{gib:.0}")))),
        Column::figures(
            "GB/S NET",
            11,
            column(&|offer| offer.kind.network_gbps.map(|gbps| format!("{:.1}", gbps / 8.0))),
        ),
        Column::words(
            "LAST YEAR",
            5,
            column(&|offer| {
                let until = catalog
                    .histories(offer.kind)
                    .iter()
                    .filter_map(|(.., history)| history.last().map(|(day, _)| *day))
                    .max()?;
                sparkline(&catalog.history(offer)?, until, 10)
            }),
        ),
        Column::words("AS OF", 7, column(&|offer| Some(offer.source.as_of.clone()))),
        Column::words("WHERE", 0, column(&|offer| Some(offer.zone.unwrap_or(offer.region).to_owned()))).least(14),
        Column::figures(
            "MORE",
            4,
            lines.iter().map(|(_, more)| if *more > 0 { format!("+{more}") } else { String::new() }),
        ),
    ]
}

fn dollars(price: NanoUsd) -> String {
    let text = price.to_string();
    text.trim_start_matches('$').to_owned()
}

/// An offer for programs; the names are a promise.
#[derive(serde::Serialize)]
struct Record<'o> {
    cloud: &'o str,
    region: &'o str,
    zone: Option<&'o str>,
    instance_type: &'o str,
    accelerator: Option<&'o str>,
    model: Option<&'o str>,
    count: serde_json::Number,
    market: Market,
    commitment: Option<&'static str>,
    price_usd_per_hour: f64,
    price_usd_per_gpu_hour: Option<f64>,
    price_usd_per_tflop_hour: Option<f64>,
    price_usd_per_gb_hour: Option<f64>,
    vcpus: Option<f64>,
    memory_gib: Option<f64>,
    gpu_memory_gb: Option<f64>,
    network_gbps: Option<f64>,
    fabric: Option<&'o str>,
    interruption_band: Option<&'static str>,
    source: &'o str,
    as_of: &'o str,
}

impl<'o> Record<'o> {
    fn of(offer: &Offer<'o>) -> Record<'o> {
        let usd = |price: Option<NanoUsd>| price.map(NanoUsd::dollars);
        let commitment = match offer.term {
            Term::Reserved1y => Some("1y"),
            Term::Reserved3y => Some("3y"),
            Term::Spot | Term::OnDemand => None,
        };
        Record {
            cloud: offer.kind.cloud,
            region: offer.region,
            zone: offer.zone,
            instance_type: offer.kind.name,
            accelerator: offer.kind.accelerator,
            model: offer.kind.sheet.map(|sheet| sheet.model.as_str()),
            count: number(offer.kind.count),
            market: offer.term.market(),
            commitment,
            price_usd_per_hour: offer.price.dollars(),
            price_usd_per_gpu_hour: usd(offer.price_per_accelerator()),
            price_usd_per_tflop_hour: usd(offer.price_per_tflop()),
            price_usd_per_gb_hour: usd(offer.price_per_gb()),
            vcpus: offer.kind.vcpus,
            memory_gib: offer.kind.memory_gib,
            gpu_memory_gb: offer.kind.accelerator_memory_gb,
            network_gbps: offer.kind.network_gbps,
            fabric: offer.kind.fabric,
            interruption_band: offer.band.map(|band| band.label()),
            source: &offer.source.name,
            as_of: &offer.source.as_of,
        }
    }
}

/// Whole where it can be: `8`, `0.125`.
fn number(count: Count) -> serde_json::Number {
    let share = || serde_json::Number::from_f64(count.as_f64());
    if count.0.is_multiple_of(1_000) { (count.0 / 1_000).into() } else { share().unwrap_or_else(|| 0.into()) }
}

fn print_json(found: &[Offer<'_>]) -> Result<(), Failure> {
    let mut text = b"[\n".to_vec();
    for (at, offer) in found.iter().enumerate() {
        text.extend_from_slice(b"  ");
        serde_json::to_writer(&mut text, &Record::of(offer)).map_err(unprintable)?;
        text.extend_from_slice(if at + 1 < found.len() { b",\n" } else { b"\n" });
    }
    text.extend_from_slice(b"]\n");
    print!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

fn print_csv(found: &[Offer<'_>]) -> Result<(), Failure> {
    let mut text = csv::Writer::from_writer(Vec::new());
    for offer in found {
        text.serialize(Record::of(offer)).map_err(unprintable)?;
    }
    print!("{}", String::from_utf8_lossy(&text.into_inner().map_err(unprintable)?));
    Ok(())
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Bug, error.to_string())
}
