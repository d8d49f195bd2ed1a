//! Where prices come from and how old they are, and a catalogue of one's own.

use super::facts::{catalog as in_use, default_catalog, own_catalog};
use crate::age::{self, Today};
use crate::args::{CatalogArgs, CatalogCommand};
use crate::fitted::{Column, fitted, wrapped};
use crate::here::Here;
use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal;
use std::path::Path;
use windfall_catalog::build::folder::Built;
use windfall_catalog::{BuildError, Catalog, Source, build};
use windfall_core::english::grouped;
use windfall_server::client::home_failure;
use windfall_server::client::{Code, Failure};
use windfall_server::home::Home;

pub fn catalog(here: &Here, args: &CatalogArgs) -> Result<Code, Failure> {
    match &args.command {
        Some(CatalogCommand::Build { from, out }) => build_one(here, from, out.as_deref()),
        None => show(here),
    }
}

fn show(here: &Here) -> Result<Code, Failure> {
    let catalog = in_use(here)?;
    let origin = own_catalog(here).map_or_else(|| "embedded".to_owned(), |path| path.display().to_string());
    let mut prices: BTreeMap<&Source, usize> = BTreeMap::new();
    for kind in catalog.instance_types() {
        catalog.offers_of(kind, false, |offer| *prices.entry(offer.source).or_default() += 1);
    }
    let today = Today::now();
    if here.json {
        println!("{}", as_json(&catalog, &origin, &prices, today));
    } else {
        print!("{}", as_text(&catalog, &origin, &prices, today));
    }
    Ok(Code::Done)
}

fn as_json(catalog: &Catalog, origin: &str, prices: &BTreeMap<&Source, usize>, today: Today) -> serde_json::Value {
    let sources: Vec<serde_json::Value> = catalog
        .sources()
        .iter()
        .map(|source| {
            serde_json::json!({
                "name": source.name,
                "what": source.what,
                "licence": source.licence,
                "as_of": source.as_of,
                "age_days": today.age_days(&source.as_of),
                "prices": prices.get(source).copied().unwrap_or(0),
            })
        })
        .collect();
    serde_json::json!({
        "catalog": origin,
        "format": build::FORMAT,
        "digest": catalog.digest(),
        "bytes": catalog.size(),
        "instance_types": catalog.instance_types().count(),
        "accelerators": catalog.families(),
        "clouds": clouds(catalog),
        "prices": prices.values().sum::<usize>(),
        "sources": sources,
    })
}

fn clouds(catalog: &Catalog) -> Vec<&str> {
    catalog.regions().map(|(cloud, _)| cloud).collect::<BTreeSet<_>>().into_iter().collect()
}

fn as_text(catalog: &Catalog, origin: &str, prices: &BTreeMap<&Source, usize>, today: Today) -> String {
    let mut sources: Vec<&Source> = catalog.sources().iter().collect();
    sources.sort_by_key(|source| (!prices.contains_key(*source), &source.name));
    let column =
        |cell: &dyn Fn(&Source) -> String| -> Vec<String> { sources.iter().map(|source| cell(source)).collect() };
    let age = |source: &Source| {
        today.age_days(&source.as_of).map_or(String::new(), |days| today.marked(format!("{days} days"), source))
    };
    let table = fitted(
        vec![
            Column::words("SOURCE", 0, column(&|source| source.name.clone())).least(24),
            Column::words("AS OF", 0, column(&|source| source.as_of.clone())),
            Column::figures("AGE", 0, column(&age)),
            Column::figures(
                "PRICES",
                0,
                column(&|source| prices.get(source).map_or(String::new(), |count| grouped(*count as u128))),
            ),
            Column::words("WHAT", 1, column(&|source| source.what.clone())).least(20),
            Column::words("LICENCE", 2, column(&|source| source.licence.clone())),
        ],
        crate::live::width(),
    );
    let total: usize = prices.values().sum();
    let about = format!(
        "{origin} catalogue, format {}, {:.2} MB, digest {}: {} prices of {} instance types with {} kinds of accelerator \
         on {}",
        build::FORMAT,
        catalog.size() as f64 / 1e6,
        catalog.digest(),
        grouped(total as u128),
        grouped(catalog.instance_types().count() as u128),
        catalog.families().len(),
        clouds(catalog).join(", "),
    );
    let old = age::note(today, catalog.sources())
        .map_or(String::new(), |note| format!("\n{}", wrapped(&note, crate::live::width())));
    format!("{}\n{table}{old}", wrapped(&about, crate::live::width()))
}

fn build_one(here: &Here, from: &Path, out: Option<&Path>) -> Result<Code, Failure> {
    let mut said = String::new();
    let terminal = std::io::stderr().is_terminal();
    let mut began = std::time::Instant::now();
    let mut watcher = |file: &str, read: u64, total: u64| {
        let fresh = said != file;
        if fresh {
            began = std::time::Instant::now();
        }
        if terminal {
            let left = (read > 0 && total > read)
                .then(|| began.elapsed().as_secs_f64() * (total - read) as f64 / read as f64)
                .map_or(String::new(), |seconds| format!(", about {seconds:.0} s left"));
            eprint!("\r\x1b[K{file}: {:.0} of {:.0} MB{left}", read as f64 / 1e6, total as f64 / 1e6);
        } else if fresh {
            eprintln!("reading {file} ({:.1} MB)", total as f64 / 1e6);
        }
        if fresh {
            file.clone_into(&mut said);
        }
    };
    let built = build::folder::build(Catalog::embedded(), from, &mut watcher);
    if terminal && !said.is_empty() {
        eprint!("\r\x1b[K");
    }
    let Built { bytes, files, skipped, dropped } = built.map_err(|error| failed(&error))?;
    let out = match out {
        Some(out) => out.to_owned(),
        None => {
            // Made the way a server would make it: private, and refused where it cannot be used.
            Home::open(&here.home).map_err(home_failure)?;
            default_catalog(here)
        }
    };
    build::write(&out, &bytes).map_err(|error| failed(&error))?;
    if here.json {
        let read: Vec<_> = files.iter().map(|file| serde_json::json!({ "file": file.name, "format": file.format, "prices": file.prices, "as_of": file.as_of })).collect();
        let left_out: Vec<_> = dropped.iter().map(|line| serde_json::json!({ "cloud": line.cloud, "instance_types": line.types, "regions": line.regions, "prices": line.prices, "why": line.why.to_string() })).collect();
        println!(
            "{}",
            serde_json::json!({ "catalog": out, "bytes": bytes.len(), "read": read, "skipped": skipped, "left_out": left_out })
        );
        return Ok(Code::Done);
    }
    for file in &files {
        println!("{}: {}, {} prices of {}", file.name, file.format, grouped(file.prices as u128), file.as_of);
    }
    for name in &skipped {
        println!("{name}: skipped, not in a known format");
    }
    for line in &dropped {
        println!("left out {}: {line}", several(line.prices, "price"));
    }
    println!("{}: {:.2} MB", out.display(), bytes.len() as f64 / 1e6);
    Ok(Code::Done)
}

fn several(count: usize, word: &str) -> String {
    format!("{} {word}{}", grouped(count as u128), if count == 1 { "" } else { "s" })
}

fn failed(error: &BuildError) -> Failure {
    let hint = match error {
        BuildError::Bad { .. } => "nothing was changed; mend or remove the file and build again",
        BuildError::Empty { .. } => "`windfall catalog --help` names the formats",
        BuildError::Read { .. } | BuildError::Write { .. } => "nothing was changed",
        BuildError::Catalog(_) => "build it again with `windfall catalog build`, or remove it",
    };
    Failure::new(Code::BadInput, error.to_string()).hint(hint)
}
