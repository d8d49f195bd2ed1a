//! `windfall slurm report`: what a Slurm cluster's accounting says. Answered here, from files or from sacct and sshare.

mod ask;
mod show;
#[cfg(test)]
mod tests;

use crate::args::SlurmReportArgs;
use crate::commands::facts;
use crate::here::Here;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use windfall_catalog::{Catalog, Query, Sort, Term};
use windfall_insight::slurm::{self, Options, Prices, ReadError, Reading, Report, Shares, fields};
use windfall_server::client::{Code, Failure};

/// Bytes that are read at once.
const BLOCK: usize = 1 << 18;

/// Rows of a table for people, where nobody says how many.
const ROWS: usize = 10;

/// Reads accounting and reports on it.
pub fn report(here: &Here, args: &SlurmReportArgs) -> Result<Code, Failure> {
    let moment = |flag: &str, text: &Option<String>| text.as_deref().map(|text| when(flag, text)).transpose();
    let (since, until) = (moment("--since", &args.since)?, moment("--until", &args.until)?);
    let split = moment("--split", &args.split)?;
    if let (Some(since), Some(until)) = (since, until)
        && since >= until
    {
        return Err(Failure::new(Code::BadInput, "--since is not before --until").hint("name the earlier moment first"));
    }
    let each = price(args.price_per_gpu_hour)?;
    let mut notes = Vec::new();
    let (mut reading, mut since) = (Reading::new(), since);
    if args.files.is_empty() {
        since = Some(ask::sacct(&mut reading, since, until, &mut notes)?);
    }
    for path in &args.files {
        read(&mut reading, path)?;
    }
    if reading.lines == 0 {
        return Err(Failure::new(Code::BadInput, "there is no job in it")
            .hint("sacct shows jobs of all users with -a, since a day with -S"));
    }
    let shares = match &args.sshare {
        Some(path) => Some(shares(path)?),
        None if args.files.is_empty() => ask::sshare(&mut notes),
        None => None,
    };
    let prices = match each {
        Some(usd) => Prices { each: Some(usd), ..Prices::default() },
        None => known_prices(&facts::catalog(here)?, &reading.jobs.gpu_types(), &mut notes),
    };
    let top = args.top.map_or(ROWS, |top| top as usize);
    let options = Options { prices, since, until, split, shares, starved: top };
    let mut report = slurm::report(reading, &options);
    notes.extend(remarks(&report));
    report.notes = notes;
    if let Some(path) = &args.html {
        std::fs::write(path, slurm::page(&report, args.top.map_or(25, |top| top as usize)))
            .map_err(|error| Failure::new(Code::BadInput, format!("{} cannot be written: {error}", path.display())))?;
    }
    match here.json {
        true => println!("{}", show::json(&mut report, args.top, &args.by)?),
        false => print!("{}", show::screen(&report, &args.by, top, crate::live::width())),
    }
    Ok(Code::Done)
}

fn read(reading: &mut Reading, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return reading.take("standard input", std::io::stdin().lock()).map_err(|error| failure(&error));
    }
    let name = path.display().to_string();
    let file = File::open(path).and_then(|file| match file.metadata()?.is_dir() {
        true => Err(std::io::Error::new(std::io::ErrorKind::IsADirectory, "is a folder")),
        false => Ok(file),
    });
    let file = file.map_err(|source| failure(&ReadError::Io { name: name.clone(), source }))?;
    reading.take(&name, BufReader::with_capacity(BLOCK, file)).map_err(|error| failure(&error))
}

fn failure(error: &ReadError) -> Failure {
    let message = windfall_core::english::with_causes(error);
    let hint = match error {
        ReadError::Io { .. } => "name a file that sacct printed, or `-` for standard input",
        ReadError::NotATable { .. } => {
            "print it with `sacct -a -P`, without -n: `windfall slurm report --help` has the fields"
        }
        ReadError::NotJson { .. } => "print it with `sacct -a --json`; a file that ends early has no report",
    };
    Failure::new(Code::BadInput, message).hint(hint)
}

fn when(flag: &str, text: &str) -> Result<u32, Failure> {
    // Seconds are how Slurm may write a time, but nobody means 2026 seconds by it.
    fields::time(text).filter(|_| text.contains('-')).ok_or_else(|| {
        Failure::new(Code::BadInput, format!("{flag} {}: no such moment", text.escape_debug()))
            .hint("write a day as 2026-11-30, or a moment as 2026-11-30T12:00:00")
    })
}

fn price(usd: Option<f64>) -> Result<Option<f64>, Failure> {
    match usd {
        Some(usd) if !(usd.is_finite() && usd > 0.0 && usd < 1e6) => {
            Err(Failure::new(Code::BadInput, format!("--price-per-gpu-hour: {usd} is not a price"))
                .hint("say dollars an hour of one GPU, such as 2.5"))
        }
        usd => Ok(usd),
    }
}

fn shares(path: &Path) -> Result<Shares, Failure> {
    let bytes = std::fs::read(path)
        .map_err(|error| Failure::new(Code::BadInput, format!("{} cannot be read: {error}", path.display())))?;
    Shares::read(&String::from_utf8_lossy(&bytes)).ok_or_else(|| {
        let what = format!(
            "{} is no table of sshare's: its first line does not name Account, User and RawShares",
            path.display()
        );
        Failure::new(Code::BadInput, what).hint("print it with `sshare -a -P`")
    })
}

/// The cheapest on-demand price of every type that the catalogue knows, and where it comes from.
fn known_prices(catalog: &Catalog, types: &[&str], notes: &mut Vec<String>) -> Prices {
    let mut prices = Prices::default();
    for kind in types {
        // Types are called such things as h100, nvidia_a100-sxm4-80gb or tesla_v100.
        let words = std::iter::once(*kind).chain(kind.split(['_', '-', '.']));
        let Some(wanted) = words.filter(|word| word.len() > 1).find_map(|word| catalog.wanted(word).ok()) else {
            continue;
        };
        let query = Query {
            accelerators: vec![wanted],
            terms: vec![Term::OnDemand],
            sort: Sort::PricePerAccelerator,
            limit: Some(1),
            ..Query::default()
        };
        let Some(offer) = catalog.search(&query).into_iter().next() else { continue };
        let each = offer.price.dollars() / offer.kind.count.as_f64().max(1e-3);
        notes.push(format!(
            "{kind} is priced at {} an hour: {} on demand in {} {} ({}), the cheapest; --price-per-gpu-hour says another",
            crate::show::usd(each), offer.kind.name, offer.kind.cloud, offer.region, offer.source.as_of
        ));
        prices.by_type.insert((*kind).to_owned(), each);
    }
    prices
}

/// What a reader of the figures must know.
fn remarks(report: &Report) -> Vec<String> {
    let (read, total) = (&report.read, &report.whole.total);
    let mut notes = Vec::new();
    if read.refused > 0 {
        let named: Vec<String> =
            read.examples.iter().map(|bad| format!("{} line {}: {}", bad.file, bad.line, bad.why)).collect();
        let more = if read.refused as usize > named.len() { "; …" } else { "" };
        notes.push(format!(
            "lines that cannot be read are left out, {} of {}: {}{more}",
            read.refused,
            read.lines,
            named.join("; ")
        ));
    }
    if !read.missing.is_empty() {
        notes.push(format!("without the fields {} of sacct some figures are left out", read.missing.join(", ")));
    }
    if total.gpu_hours > 0.0 && total.unpriced_gpu_hours > 0.0 {
        let hours = slurm::figure(total.unpriced_gpu_hours);
        notes.push(format!("{hours} GPU-hours have no price: Slurm names no type of GPU that the catalogue knows; --price-per-gpu-hour says one"));
    }
    if total.gpu_hours > 0.0 && total.gpu_idle_percent.is_none() {
        notes.push("how busy GPUs were is not recorded: it is with AccountingStorageTRES=gres/gpuutil and the field TRESUsageInTot".to_owned());
    }
    notes
}
