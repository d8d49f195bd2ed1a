//! What was asked: markets, jobs and policies, checked before anything is played.

use crate::args::SimulateMarketArgs;
use std::path::Path;
use std::sync::Arc;
use windfall_core::market;
use windfall_core::market::foresight::{Model, Priors};
use windfall_core::nearest::nearest;
use windfall_core::{NanoUsd, Span};
use windfall_jobfile as jobfile;
use windfall_server::client::{Code, Failure};
use windfall_sim::{Course, Player, Reading, Recording, RecordingError, Scenario, Tape, Terms, Zone, read_recordings};

/// The spot price where neither the recording nor the user gives one: AWS V100 in 2023.
const SPOT_PRICE: f64 = 0.9731;
/// The on-demand price where nobody gives one: the same.
const ON_DEMAND_PRICE: f64 = 3.06;

/// What is to be played.
pub struct Asked {
    pub scenarios: Vec<Scenario>,
    pub players: Vec<Player>,
    /// In words.
    pub what: String,
    /// What foresight and skynomad knew beforehand.
    pub priors: Known,
}

/// Where priors come from.
pub struct Known {
    pub file: Option<String>,
    pub source: String,
    pub learnt: String,
}

pub fn asked(args: &SimulateMarketArgs) -> Result<Asked, Failure> {
    let work = time("--work", &args.work)?;
    let deadlines = times("--deadline", &args.deadline)?;
    let restarts = times("--restart", &args.restart)?;
    let spot = args.spot_price.map(|spot| price("--spot-price", spot)).transpose()?;
    for deadline in &deadlines {
        feasible(work, *deadline, &restarts)?;
    }
    let names = names(&args.policy)?;
    let tick = args.tick.as_deref().map(|tick| time("--tick", tick)).transpose()?;
    let reading = Reading { unavailable_is_one: args.unavailable_is_one, tick };
    let mut recordings = Vec::new();
    let mut listed = None;
    for path in &args.paths {
        if let Some(tape) = embedded(path)? {
            listed = listed.or(Some(tape.on_demand));
            recordings.extend(tape.recordings());
            continue;
        }
        recordings.extend(read_recordings(path, reading).map_err(|error| unreadable(&error))?);
    }
    let on_demand = match (args.on_demand_price, listed) {
        (None, Some(listed)) => listed,
        (given, _) => price("--on-demand-price", given.unwrap_or(ON_DEMAND_PRICE))?,
    };
    let longest = deadlines.iter().copied().max().unwrap_or_default();
    let markets: Vec<Vec<Recording>> = match args.together {
        true => vec![recordings],
        false => recordings.into_iter().map(|recording| vec![recording]).collect(),
    };
    let mut scenarios = Vec::new();
    for zones in &markets {
        for from in windows(zones, longest, args)? {
            let course = course(zones, from, (spot, on_demand), args.gang);
            for deadline in &deadlines {
                for restart in &restarts {
                    let terms = Terms { work, deadline: *deadline, restart: *restart };
                    let name = format!("{} from tick {from}", zones[0].name);
                    scenarios.push(Scenario { course: course.clone(), terms, name });
                }
            }
        }
    }
    let given = args.priors.as_deref().map(priors).transpose()?;
    let model = given.as_ref().map(|priors| Arc::new(Model::new(priors)));
    let known = given.unwrap_or_else(Priors::embedded);
    let file = args.priors.as_ref().map(|file| file.display().to_string());
    let priors = Known { file, source: known.source, learnt: known.learnt };
    let player = |name: &&str| {
        let player = Player::named(name)?;
        let model = model.clone().filter(|_| player.model.is_some()).or(player.model.clone());
        Some(Player { model, ..player }.prepared(scenarios.iter().map(|s| (&s.course, &s.terms))))
    };
    let players = names.iter().filter_map(player).collect();
    let starts = if args.starts == 1 { "start" } else { "starts" };
    let what = format!(
        "{} {} × {} {starts} × {} × {}, {work} of work",
        markets.len(),
        if markets.len() == 1 { "market" } else { "markets" },
        args.starts,
        args.deadline.join(", "),
        args.restart.join(", "),
    );
    Ok(Asked { scenarios, players, what, priors })
}

fn bad(message: impl Into<String>, hint: impl Into<String>) -> Failure {
    Failure::new(Code::BadInput, message).hint(hint)
}

fn unreadable(error: &RecordingError) -> Failure {
    bad(error.to_string(), error.hint.clone())
}

fn time(flag: &str, text: &str) -> Result<Span, Failure> {
    let none = text == "0" || text == "0s";
    let span = if none && flag == "--restart" { Some(Span::ZERO) } else { jobfile::duration(text) };
    span.ok_or_else(|| bad(format!("{flag} {text}: not a length of time"), "expected such as 48h, 90m or 72s"))
}

fn times(flag: &str, texts: &[String]) -> Result<Vec<Span>, Failure> {
    texts.iter().map(|text| time(flag, text)).collect()
}

fn price(flag: &str, dollars: f64) -> Result<NanoUsd, Failure> {
    match dollars > 0.0 && dollars < 1e6 {
        true => Ok(NanoUsd::from_dollars(dollars)),
        false => Err(bad(format!("{flag} {dollars}: not a price"), "expected dollars an hour above 0")),
    }
}

fn feasible(work: Span, deadline: Span, restarts: &[Span]) -> Result<(), Failure> {
    let restart = restarts.iter().copied().max().unwrap_or_default();
    let earliest = Terms { work, deadline, restart }.earliest();
    if earliest <= deadline {
        return Ok(());
    }
    let message = format!(
        "--deadline {}: the work takes {} and a start {}, so the earliest finish is after {}",
        exact(deadline),
        exact(work),
        exact(restart),
        exact(earliest)
    );
    Err(bad(message, format!("give at least {}, or less work", exact(earliest))))
}

/// A length of time to the second: `48h 1m 12s`.
fn exact(span: Span) -> String {
    let seconds = (span.0 + 999) / 1_000;
    let parts = [(seconds / 3_600, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let shown: Vec<String> = parts.iter().filter(|(n, _)| *n > 0).map(|(n, unit)| format!("{n}{unit}")).collect();
    if shown.is_empty() { "0s".to_owned() } else { shown.join(" ") }
}

fn names(wanted: &[String]) -> Result<Vec<&'static str>, Failure> {
    let known = market::names();
    if wanted.iter().any(|name| name == "all") {
        return Ok(known);
    }
    let find = |name: &String| {
        let hint = format!("expected all, or some of {}", known.join(", "));
        known.iter().copied().find(|known| known == name).ok_or_else(|| bad(format!("--policy {name}: unknown"), hint))
    };
    wanted.iter().map(find).collect()
}

/// Where windows begin.
fn windows(zones: &[Recording], longest: Span, args: &SimulateMarketArgs) -> Result<Vec<usize>, Failure> {
    let Some(first) = zones.first() else { return Ok(Vec::new()) };
    if let Some(other) = zones.iter().find(|zone| zone.tick != first.tick) {
        let message = format!("{} has ticks of {}, {} of {}", first.name, first.tick, other.name, other.tick);
        return Err(bad(message, "zones that are played together need the same tick"));
    }
    let ticks = zones.iter().map(|zone| zone.counts.len()).min().unwrap_or(0);
    let needed = usize::try_from((longest.0 + first.tick.0 - 1) / first.tick.0).unwrap_or(usize::MAX);
    let Some(room) = ticks.checked_sub(needed) else {
        let lasts = Span(first.tick.0 * ticks as i64);
        let message = format!("{}: it lasts {lasts}, the longest deadline is {longest}", first.name);
        return Err(bad(message, "give shorter deadlines, or leave this recording out"));
    };
    let starts = usize::try_from(args.starts).unwrap_or(1);
    let gap = room / starts.max(2).saturating_sub(1).max(1);
    let mut random = args.seed;
    let place = |number: usize| {
        let even = if starts == 1 { 0 } else { room * number / (starts - 1) };
        // Steele and Vigna's SplitMix64: small, and the same everywhere.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let moved = usize::try_from((mixed ^ (mixed >> 31)) % (gap as u64 + 1)).unwrap_or(0);
        if args.seed == 0 { even } else { (even + moved).min(room) }
    };
    Ok((0..starts).map(place).collect())
}

fn course(zones: &[Recording], from: usize, (spot, on_demand): (Option<NanoUsd>, NanoUsd), gang: u32) -> Course {
    let zone = |(number, recording): (usize, &Recording)| {
        let up = recording.counts[from..].iter().map(|count| *count >= gang).collect();
        let recorded = recording.prices.as_ref().filter(|_| spot.is_none()).map(|prices| prices[from..].to_vec());
        let price = recorded.unwrap_or_else(|| vec![spot.unwrap_or(NanoUsd::from_dollars(SPOT_PRICE))]);
        // Files in different folders may share a name; offers may not.
        let id = windfall_core::OfferId::new(&format!("{number}/{}/spot", recording.name));
        Zone { name: recording.name.clone(), spot: id, up, price }
    };
    let tick = zones.first().map(|recording| recording.tick).unwrap_or_default();
    Course { tick, zones: zones.iter().enumerate().map(zone).collect(), on_demand, gang, egress: Vec::new() }
}

fn known(names: &[&str]) -> String {
    format!("embedded are: {}", names.join(", "))
}

/// The embedded market of that name, or one zone of it; none where a file has that name.
fn embedded(path: &Path) -> Result<Option<Tape>, Failure> {
    let text = path.to_string_lossy();
    let (name, zone) = text.split_once('/').map_or((&*text, None), |(name, zone)| (name, Some(zone.to_owned())));
    if path.exists() {
        return Ok(None);
    }
    let names = windfall_sim::embedded_names();
    if name == windfall_sim::STEADY {
        return Err(bad(format!("{name} never takes anything away, so there is nothing to play"), known(&names)));
    }
    if !names.contains(&name) {
        let near =
            nearest(name, names.iter().copied()).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
        let problem = format!("{text}: neither a file nor an embedded market");
        return Err(bad(problem, format!("{near}{}", known(&names))));
    }
    let zones: Vec<String> = zone.into_iter().collect();
    let tape = windfall_sim::embedded(name).and_then(|tape| tape.with_zones(&zones));
    tape.map(Some).map_err(|error| bad(error.to_string(), "name one of its zones, or none for all of them"))
}

fn priors(file: &Path) -> Result<Priors, Failure> {
    let failed = |problem: String| {
        bad(format!("{}: {problem}", file.display()), "expected JSON with regimes, as the embedded priors have it")
    };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let priors: Priors = serde_json::from_str(&text).map_err(|error| failed(error.to_string()))?;
    priors.check().map_err(failed)?;
    Ok(priors)
}
