//! `windfall bench precision`: the same program in several number formats, with several seeds each: what a format gains in speed and
//! memory, and whether the quality stays. A format that gains nothing is not recommended.

use super::json;
use super::meter::Eyes;
use super::program::{Ended, Repetition};
use super::run::{Asked, good, known_format, once, pattern, put_together, write};
use super::show::value;
use crate::args::BenchPrecisionArgs;
use crate::fitted::{Column, fitted, wrapped};
use crate::here::Here;
use serde::Serialize;
use windfall_catalog::{Catalog, Precision, Query, Term};
use windfall_insight::bench::{Difference, Run, difference};
use windfall_server::client::{Code, Failure};

/// A gain below this is not worth another number format.
const WORTH: f64 = 1.05;
/// A gain is real where chance would make one as large less often than this.
const SURE: f64 = 0.05;
/// The largest batch is looked for by doubling so often at most.
const DOUBLINGS: u32 = 10;
/// What of a GPU's memory programs can have.
const USABLE: f64 = 0.92;

/// What was measured of one number format.
#[derive(Clone, Debug, Serialize)]
struct Format {
    precision: String,
    /// Why it was not measured.
    refused: Option<String>,
    run: Option<Run>,
    metrics: Vec<f64>,
    /// Against the first format.
    speed: Option<Difference>,
    memory_ratio: Option<f64>,
    energy_ratio: Option<f64>,
    metric_change: Option<f64>,
    /// Whether the metric stayed within the tolerance; null without a metric.
    within_tolerance: Option<bool>,
    /// The largest batch that fits, and its items a second.
    largest_batch: Option<u64>,
    largest_units_per_second: Option<f64>,
}

/// What is recommended.
#[derive(Clone, Debug, Serialize)]
struct Advice {
    precision: String,
    because: String,
    /// The cheapest GPU that has the memory, as the catalogue prices it, on demand.
    cheapest: Option<String>,
    cheapest_usd_an_hour: Option<f64>,
}

pub async fn precision(here: &Here, args: &BenchPrecisionArgs) -> Result<Code, Failure> {
    let asked = Asked::of(here, &args.measured)?;
    for format in &args.formats {
        known_format(format)?;
    }
    if !(args.tolerance.is_finite() && (0.0..10.0).contains(&args.tolerance)) {
        return Err(Failure::new(Code::BadInput, "--tolerance: not a share").hint("0.01 is one percent"));
    }
    let mut eyes = Eyes::open();
    let mut formats: Vec<Format> = Vec::new();
    let mut steps = None;
    for name in &args.formats {
        let Some(format) = one(&asked, args, (name, &mut steps), &mut eyes).await? else { return Ok(Code::Detached) };
        formats.push(format);
    }
    against_first(&mut formats, args);
    if formats.iter().all(|format| format.run.is_none()) {
        let why = formats.first().and_then(|format| format.refused.clone()).unwrap_or_default();
        return Err(Failure::new(Code::BadInput, format!("no number format could be measured: {why}")));
    }
    let advice = advise(&formats, &asked.catalog);
    let runs: Vec<Run> = formats.iter().filter_map(|format| format.run.clone()).collect();
    write(args.measured.out.as_deref(), &runs)?;
    if here.json {
        for run in &runs {
            println!("{}", json(run)?);
        }
        println!(
            "{}",
            serde_json::json!({ "type": "precision", "tolerance": args.tolerance, "formats": formats, "advice": advice })
        );
    } else {
        print!("{}", screen(&formats, &advice, crate::live::width().min(100)));
    }
    Ok(Code::Done)
}

/// All seeds of one format, each for as many steps as the first that was measured; none where the person at the terminal ended it.
async fn one(
    asked: &Asked<'_>,
    args: &BenchPrecisionArgs,
    (name, steps): (&str, &mut Option<u64>),
    eyes: &mut Eyes,
) -> Result<Option<Format>, Failure> {
    let metric = args.metric.as_deref().map(|text| pattern("--metric", text)).transpose()?;
    let mut format = Format {
        precision: name.to_owned(),
        refused: None,
        run: None,
        metrics: Vec::new(),
        speed: None,
        memory_ratio: None,
        energy_ratio: None,
        metric_change: None,
        within_tolerance: None,
        largest_batch: None,
        largest_units_per_second: None,
    };
    let mut all: Vec<Repetition> = Vec::new();
    for seed in 1..=u64::from(args.seeds) {
        let mut program = asked.program(Some(name), seed, None, *steps)?;
        program.metric.clone_from(&metric);
        let repetition = once(&program, eyes).await?;
        match &repetition.ended {
            Ended::Interrupted => return Ok(None),
            Ended::Refused(why) => {
                eprintln!("{name}: {why}");
                format.refused = Some(why.clone());
                return Ok(Some(format));
            }
            Ended::OutOfMemory => {
                format.refused = Some("it does not fit into the memory".to_owned());
                return Ok(Some(format));
            }
            _ => good(&repetition)?,
        }
        if repetition.pace.is_none() {
            return Err(Failure::new(Code::BadInput, format!("no speed: no two lines match `{}`", args.measured.step))
                .hint("say with --step what a line about progress looks like"));
        }
        // Suites compare losses after as many steps.
        *steps = steps.or(repetition.pace.as_ref().map(|pace| pace.steps));
        let speed = repetition.pace.as_ref().map_or(0.0, windfall_insight::bench::Pace::steps_per_second);
        eprintln!(
            "{name}, seed {seed}: {speed:.4} steps/s{}",
            repetition.said.metric.map_or(String::new(), |metric| format!(", metric {}", value(metric)))
        );
        format.metrics.extend(repetition.said.metric);
        all.push(repetition);
    }
    let run = put_together(asked, &all, Some(name));
    if args.largest {
        (format.largest_batch, format.largest_units_per_second) = largest(asked, name, &run, eyes).await?;
    }
    format.run = Some(run);
    Ok(Some(format))
}

/// The largest batch that fits, by doubling, and how fast it is.
async fn largest(
    asked: &Asked<'_>,
    name: &str,
    run: &Run,
    eyes: &mut Eyes,
) -> Result<(Option<u64>, Option<f64>), Failure> {
    let Some(first) = run.batch.filter(|batch| *batch > 0) else { return Ok((None, None)) };
    let (mut best, mut speed) = (Some(first), run.units_per_second);
    for doubling in 1..=DOUBLINGS {
        let batch = first << doubling;
        let repetition = once(&asked.program(Some(name), 1, Some(batch), Some(24))?, eyes).await?;
        if repetition.ended != Ended::Well {
            break;
        }
        let each =
            run.units_per_second.zip(run.steps_per_second).map_or(1.0, |(units, steps)| units / steps / first as f64);
        let Some(pace) = repetition.pace else { break };
        (best, speed) = (Some(batch), Some(pace.steps_per_second() * batch as f64 * each));
        eprintln!("{name}, batch {batch}: {:.1} items/s", pace.steps_per_second() * batch as f64 * each);
    }
    Ok((best, speed))
}

fn against_first(formats: &mut [Format], args: &BenchPrecisionArgs) {
    let Some(first) = formats.iter().find(|format| format.run.is_some()).cloned() else { return };
    let Some(base) = first.run else { return };
    let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    let base_metric = mean(&first.metrics);
    for format in formats {
        let Some(run) = &format.run else { continue };
        let ratio =
            |one: Option<f64>, two: Option<f64>| one.zip(two).filter(|(_, two)| *two > 0.0).map(|(one, two)| one / two);
        let bytes = |run: &Run| run.peak_memory_bytes.map(|bytes| bytes as f64);
        let energy =
            |run: &Run| run.energy_joules.filter(|_| run.measured_steps > 0).map(|all| all / run.measured_steps as f64);
        format.speed =
            (format.precision != first.precision).then(|| difference(&base.repetitions, &run.repetitions)).flatten();
        format.memory_ratio = ratio(bytes(run), bytes(&base));
        format.energy_ratio = ratio(energy(run), energy(&base));
        let change = mean(&format.metrics).zip(base_metric).filter(|(_, base)| *base != 0.0);
        format.metric_change = change.map(|(own, base)| (own - base) / base.abs());
        let worse = |change: f64| if args.larger { -change } else { change };
        format.within_tolerance = format.metric_change.map(|change| worse(change) <= args.tolerance);
    }
}

/// The fastest format whose quality stays and whose gain is more than chance; else the first, or what saves memory.
fn advise(formats: &[Format], catalog: &Catalog) -> Advice {
    let measured: Vec<&Format> = formats.iter().filter(|format| format.run.is_some()).collect();
    let first = measured.first().map_or("fp32", |format| format.precision.as_str());
    let stays = |format: &&&Format| format.within_tolerance != Some(false);
    let gains = |format: &&&Format| format.speed.is_some_and(|speed| speed.ratio >= WORTH && speed.p < SURE);
    let ratio = |format: &&Format| format.speed.map_or(1.0, |speed| speed.ratio);
    let fastest = measured.iter().filter(stays).filter(gains).max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let (best, because) = match fastest {
        Some(best) => {
            let quality = if best.within_tolerance.is_some() {
                ", and the metric stays within the tolerance"
            } else {
                ", and no metric was compared"
            };
            (best.precision.clone(), format!("{:.2} times as fast as {first}{quality}", ratio(best)))
        }
        None => {
            let worse: Vec<&str> = measured
                .iter()
                .filter(|format| format.within_tolerance == Some(false))
                .map(|format| format.precision.as_str())
                .collect();
            let worse = if worse.is_empty() {
                String::new()
            } else {
                format!("; {} made the metric worse than the tolerance", worse.join(", "))
            };
            (
                first.to_owned(),
                format!(
                    "no gain: no other format is {:.0} % faster than {first} beyond chance{worse}",
                    (WORTH - 1.0) * 100.0
                ),
            )
        }
    };
    let run = measured.iter().find(|format| format.precision == best).and_then(|format| format.run.as_ref());
    let on_cpu = run.is_none_or(|run| run.accelerator.as_deref() == Some("cpu"));
    let cheapest = run.filter(|_| !on_cpu).and_then(|run| cheapest(catalog, run));
    Advice {
        precision: best,
        because,
        cheapest: cheapest.as_ref().map(|(name, _)| name.clone()),
        cheapest_usd_an_hour: cheapest.map(|(_, usd)| usd),
    }
}

/// The cheapest offer of one accelerator that has the memory which the run took.
fn cheapest(catalog: &Catalog, run: &Run) -> Option<(String, f64)> {
    let needed = run.peak_memory_bytes? as f64 / 1e9;
    let precision = run.precision.as_deref().and_then(Precision::named)?;
    let query = Query { terms: vec![Term::OnDemand], ..Query::default() };
    let offers = catalog.search(&query);
    let fits = offers.iter().filter(|offer| {
        let memory = offer.kind.accelerator_memory_gb.unwrap_or(0.0);
        let own = offer.kind.count.as_f64() == 1.0;
        let nvidia = offer.kind.sheet.filter(|sheet| sheet.vendor.eq_ignore_ascii_case("nvidia"));
        let has_format = nvidia.is_some_and(|sheet| sheet.peak_tflops(precision).is_some());
        own && has_format && memory * USABLE >= needed
    });
    let best = fits.min_by_key(|offer| offer.price)?;
    let name = best.kind.accelerator.unwrap_or_default();
    Some((format!("{name} ({} {} {})", best.kind.cloud, best.region, best.kind.name), best.price.dollars()))
}

fn screen(formats: &[Format], advice: &Advice, width: usize) -> String {
    let of = |said: &dyn Fn(&Format, &Run) -> String| -> Vec<String> {
        formats.iter().map(|format| format.run.as_ref().map_or(String::new(), |run| said(format, run))).collect()
    };
    let percent = |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{:+.1} %", (ratio - 1.0) * 100.0));
    let columns = vec![
        Column::words("format", 0, formats.iter().map(|format| format.precision.clone())),
        Column::figures("steps/s", 0, of(&|_, run| run.steps_per_second.map_or(String::new(), value))),
        Column::figures("gain", 0, of(&|format, _| percent(format.speed.map(|speed| speed.ratio)))),
        Column::figures("p", 3, of(&|format, _| format.speed.map_or(String::new(), |speed| format!("{:.3}", speed.p)))),
        Column::figures(
            "memory",
            1,
            of(&|_, run| {
                run.peak_memory_bytes
                    .map_or(String::new(), |bytes| format!("{:.2} GiB", bytes as f64 / 1_073_741_824.0))
            }),
        ),
        Column::figures("energy", 4, of(&|format, _| percent(format.energy_ratio))),
        Column::figures("metric", 1, of(&|_, run| run.metric.map_or(String::new(), value))),
        Column::words(
            "stays",
            2,
            of(&|format, _| match format.within_tolerance {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => String::new(),
            }),
        ),
        Column::figures(
            "largest batch",
            3,
            of(&|format, _| format.largest_batch.map_or(String::new(), |batch| batch.to_string())),
        ),
        Column::figures(
            "items/s there",
            4,
            of(&|format, _| format.largest_units_per_second.map_or(String::new(), value)),
        ),
    ];
    let mut text = fitted(columns, width);
    for format in formats.iter().filter(|format| format.refused.is_some()) {
        let why = format.refused.as_deref().unwrap_or_default();
        text.push_str(&wrapped(&format!("{}: not measured: {why}", format.precision), width));
    }
    text.push_str(&wrapped(&format!("take {}: {}", advice.precision, advice.because), width));
    if let (Some(name), Some(usd)) = (&advice.cheapest, advice.cheapest_usd_an_hour) {
        let said =
            format!("the cheapest GPU whose memory holds it: {name} at {} an hour, on demand", crate::show::usd(usd));
        text.push_str(&wrapped(&said, width));
    }
    text
}
