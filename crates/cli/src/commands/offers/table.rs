//! Offers for people: an overview of accelerators, or a line for each kind of offer with its cheapest place.

use crate::age::{self, Today};
use crate::args::OffersArgs;
use crate::fitted::{Column, fitted, wrapped};
use crate::sparkline::sparkline;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use windfall_catalog::{Catalog, Count, Offer, Query, Sort, Source, Term};
use windfall_core::NanoUsd;

/// Lines that people read before they ask for less.
const LINES: usize = 20;

/// An overview: one line for each accelerator.
pub fn families(catalog: &Catalog, found: &[Offer<'_>]) -> String {
    let mut by_family: BTreeMap<&str, Vec<&Offer<'_>>> = BTreeMap::new();
    for offer in found {
        by_family.entry(offer.kind.accelerator.unwrap_or_default()).or_default().push(offer);
    }
    let mut lines: Vec<(&str, Vec<&Offer<'_>>)> = by_family.into_iter().collect();
    lines.sort_by_key(|(name, offers)| {
        let year = offers.iter().filter_map(|offer| offer.kind.sheet).map(|sheet| sheet.year).max();
        (std::cmp::Reverse(year), *name)
    });
    let (today, width) = (Today::now(), crate::live::width());
    let mut heads: Vec<&Source> = Vec::new();
    let mut prices = |term: Term| -> Vec<String> {
        let best: Vec<Option<(NanoUsd, &Source)>> =
            lines.iter().map(|(_, offers)| cheapest(offers, term, today)).collect();
        heads.extend(best.iter().flatten().map(|(_, source)| *source));
        best.into_iter()
            .map(|best| best.map_or(String::new(), |(price, source)| today.marked(dollars(price), source)))
            .collect()
    };
    let [spot, on_demand, one_year, three_years] = Term::ALL.map(&mut prices);
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
            Column::figures("SPOT", 0, spot),
            Column::figures("ON-DEMAND", 0, on_demand),
            Column::figures("1 YEAR", 5, one_year),
            Column::figures("3 YEARS", 4, three_years),
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
        width,
    );
    let mut note =
        "The cheapest dollars an hour for one accelerator. The newest first, by the year of the data sheet; then \
                    those without a data sheet, by name. `windfall offers H100` shows its offers."
            .to_owned();
    note.extend(age::note(today, heads).map(|old| format!(" {old}")));
    format!("{table}\n{}", wrapped(&note, width))
}

/// The cheapest price of one accelerator on a term, and who says so: of equal prices one that is not old.
fn cheapest<'c>(offers: &[&Offer<'c>], term: Term, today: Today) -> Option<(NanoUsd, &'c Source)> {
    let priced = offers.iter().filter(|offer| offer.term == term);
    let priced = priced.filter_map(|offer| Some((offer.price_per_accelerator()?, offer.source)));
    priced.min_by_key(|(price, source)| (*price, today.is_old(source)))
}

/// One line for people.
struct Line<'c> {
    offer: Offer<'c>,
    /// In how many more places the same can be had.
    more: usize,
    /// Numbers of accelerators that cost the same each.
    counts: Vec<Count>,
}

/// One line for each kind of offer, or each offer.
pub fn listing(catalog: &Catalog, query: &Query, args: &OffersArgs, found: &[Offer<'_>]) -> String {
    let mut lines = if args.all { each(found) } else { by_kind(found) };
    if !args.all && query.accelerators.iter().all(|wanted| wanted.count.is_none()) {
        lines = by_price(lines);
    }
    let kinds = lines.len();
    lines.truncate(args.limit.map_or(if args.all { usize::MAX } else { LINES }, |limit| limit as usize));
    let (today, width) = (Today::now(), crate::live::width());
    let table = fitted(columns(catalog, query, &lines, today), width);
    let mut notes = String::new();
    if lines.len() < kinds {
        notes.push_str(&format!("{} of {kinds} kinds of offer; --limit {kinds} shows all of them. ", lines.len()));
    }
    if lines.iter().any(|line| line.counts.len() > 1) {
        let word = if lines.iter().all(|line| is_counted_in_chips(&line.offer)) { "chips" } else { "GPUs" };
        notes.push_str(&format!("Several numbers of {word} cost the same each; the smallest instance is named. "));
    }
    if table.lines().next().is_some_and(|head| head.ends_with("MORE")) {
        notes.push_str("MORE: in so many more places, not cheaper; --all shows each. ");
    }
    if lines.iter().any(|line| line.offer.band.is_some()) {
        let said: BTreeSet<String> = lines
            .iter()
            .filter_map(|line| line.offer.band_source)
            .map(|source| format!("{} of {}", source.name, source.as_of))
            .collect();
        let said = said.into_iter().collect::<Vec<_>>().join(", ");
        notes.push_str(&format!("A share after `spot` is how many such instances AWS took back in a month ({said}). "));
    }
    let sources = lines.iter().flat_map(|line| [Some(line.offer.source), line.offer.band_source]).flatten();
    notes.extend(age::note(today, sources).map(|old| format!("{old} ")));
    let sources: BTreeSet<String> =
        lines.iter().map(|Line { offer, .. }| format!("{} of {}", offer.source.name, offer.source.as_of)).collect();
    notes.push_str(&format!("Prices: {}.", sources.into_iter().collect::<Vec<_>>().join(", ")));
    format!("{table}\n{}", wrapped(&notes, width))
}

fn line<'c>(offer: &Offer<'c>) -> Line<'c> {
    Line { offer: *offer, more: 0, counts: vec![offer.kind.count] }
}

fn each<'c>(found: &[Offer<'c>]) -> Vec<Line<'c>> {
    found.iter().map(line).collect()
}

/// Of each instance type and market its first place.
fn by_kind<'c>(found: &[Offer<'c>]) -> Vec<Line<'c>> {
    let mut lines: Vec<Line<'c>> = Vec::new();
    let mut seen: BTreeMap<(&str, &str, Option<&str>, Count, Term), usize> = BTreeMap::new();
    for offer in found {
        let kind = &offer.kind;
        match seen.entry((kind.cloud, kind.name, kind.accelerator, kind.count, offer.term)) {
            Entry::Occupied(at) => lines[*at.get()].more += 1,
            Entry::Vacant(free) => {
                free.insert(lines.len());
                lines.push(line(offer));
            }
        }
    }
    lines
}

/// Instances that differ in nothing but how many accelerators they have, at one price for each, are one line.
fn by_price(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut merged: Vec<Line<'_>> = Vec::new();
    for line in lines {
        let alike = merged.iter_mut().find(|known| likeness(known) == likeness(&line));
        match alike.filter(|known| !known.counts.contains(&line.offer.kind.count)) {
            Some(known) => known.counts.push(line.offer.kind.count),
            None => merged.push(line),
        }
    }
    merged
}

/// Cloud, accelerator, model, term, and the price of one to the hundredth of a cent: sources round.
fn likeness<'c>(line: &Line<'c>) -> (&'c str, Option<&'c str>, Option<&'c str>, Term, Option<i64>) {
    let kind = &line.offer.kind;
    let each = line.offer.price_per_accelerator().map(|price| (price.0 + 50_000) / 100_000);
    (kind.cloud, kind.accelerator, kind.sheet.map(|sheet| sheet.model.as_str()), line.offer.term, each)
}

/// `8`, `1-8` for many, `1,2,4` for a few.
fn counts(counts: &[Count]) -> String {
    let mut sorted = counts.to_vec();
    sorted.sort_unstable();
    match sorted.as_slice() {
        [first, .., last] if sorted.len() > 4 => format!("{first}-{last}"),
        few => few.iter().map(Count::to_string).collect::<Vec<_>>().join(","),
    }
}

/// TPUs and AWS's own accelerators are counted in chips.
fn is_counted_in_chips(offer: &Offer<'_>) -> bool {
    let family = offer.kind.accelerator.unwrap_or_default();
    ["TPU", "Trainium", "Inferentia"].iter().any(|maker| family.starts_with(maker))
}

/// `us-east-1 use1-az4`: a zone says its region where its name does not.
fn place(offer: &Offer<'_>) -> String {
    match offer.zone {
        Some(zone) if zone.starts_with(offer.region) => zone.to_owned(),
        Some(zone) => format!("{} {zone}", offer.region),
        None => offer.region.to_owned(),
    }
}

fn columns(catalog: &Catalog, query: &Query, lines: &[Line<'_>], today: Today) -> Vec<Column> {
    let column = |cell: &dyn Fn(&Offer<'_>) -> Option<String>| -> Vec<String> {
        lines.iter().map(|line| cell(&line.offer).unwrap_or_default()).collect()
    };
    // What the lines are sorted by stays.
    let unless = |sort: Sort, leaves: u8| if query.sort == sort { 0 } else { leaves };
    // Where all lines have the same accelerator, its number says enough.
    let first = lines.first().and_then(|line| line.offer.kind.accelerator);
    let alike = lines.iter().all(|line| line.offer.kind.accelerator == first);
    let in_chips = !lines.is_empty() && lines.iter().all(|line| is_counted_in_chips(&line.offer));
    let price = |offer: &Offer<'_>, price: NanoUsd| today.marked(dollars(price), offer.source);
    let chips = |line: &Line<'_>| match line.offer.kind.accelerator {
        None => String::new(),
        Some(_) if alike => counts(&line.counts),
        Some(family) => format!("{family}:{}", counts(&line.counts)),
    };
    vec![
        Column::words("CLOUD", 0, column(&|offer| Some(offer.kind.cloud.to_owned()))),
        Column::words("INSTANCE TYPE", 0, column(&|offer| Some(offer.kind.name.to_owned()))).least(14),
        Column::words(
            match (alike, in_chips) {
                (true, true) => "CHIPS",
                (false, true) => "CHIP",
                (true, false) => "GPUS",
                (false, false) => "GPU",
            },
            1,
            lines.iter().map(chips),
        ),
        Column::figures(
            if in_chips { "CHIP GB" } else { "GPU GB" },
            4,
            column(&|offer| offer.kind.accelerator_memory_gb.map(|gb| format!("{gb:.0}"))),
        ),
        Column::words(
            "MARKET",
            0,
            column(&|offer| {
                let band = offer.band.map_or(String::new(), |band| {
                    today.marked(format!(" {band}"), offer.band_source.unwrap_or(offer.source))
                });
                Some(format!("{}{band}", offer.term))
            }),
        ),
        Column::figures("$/HOUR", unless(Sort::Price, 3), column(&|offer| Some(price(offer, offer.price)))),
        Column::figures(
            if in_chips { "$/CHIP-H" } else { "$/GPU-H" },
            unless(Sort::PricePerAccelerator, 2),
            column(&|offer| offer.price_per_accelerator().map(|each| price(offer, each))),
        ),
        Column::figures(
            "$/PFLOPS-H",
            unless(Sort::PricePerTflop, 10),
            column(&|offer| offer.price_per_tflop().map(|each| price(offer, NanoUsd(each.0 * 1_000)))),
        ),
        Column::figures(
            "$/TB-H",
            unless(Sort::PricePerGb, 11),
            column(&|offer| offer.price_per_gb().map(|each| price(offer, NanoUsd(each.0 * 1_000)))),
        ),
        Column::figures("VCPUS", 7, column(&|offer| offer.kind.vcpus.map(|cores| format!("{cores}")))),
        Column::figures("GIB", 6, column(&|offer| offer.kind.memory_gib.map(|gib| format!("{gib:.0}")))),
        Column::figures(
            "GB/S NET",
            12,
            column(&|offer| offer.kind.network_gbps.map(|gbps| format!("{:.1}", gbps / 8.0))),
        ),
        Column::words(
            "LAST YEAR",
            8,
            column(&|offer| {
                let until = catalog
                    .histories(offer.kind)
                    .iter()
                    .filter_map(|(.., history)| history.last().map(|(day, _)| *day))
                    .max()?;
                sparkline(&catalog.history(offer)?, until, 10)
            }),
        ),
        Column::words("AS OF", 9, column(&|offer| Some(offer.source.as_of.clone()))),
        Column::words("WHERE", 0, column(&|offer| Some(place(offer)))).least(14),
        Column::figures(
            "MORE",
            5,
            lines.iter().map(|line| if line.more > 0 { format!("+{}", line.more) } else { String::new() }),
        ),
    ]
}

fn dollars(price: NanoUsd) -> String {
    let text = price.to_string();
    text.trim_start_matches('$').to_owned()
}
