//! From settings to a world: what `windfall up` asks for, and what it refuses.

use crate::args::UpArgs;
use crate::config::values;
use std::time::Duration;
use windfall_core::Span;
use windfall_server::client::{Code, Failure};
use windfall_server::home::{HereSettings, MachineSettings, RemoteSettings, World, WorldSettings};

/// How long nodes go on without the server, where nobody says otherwise: its outage must not end the work of a cluster.
const DEAD_MAN: Duration = Duration::from_secs(4 * 3_600);

/// The world that the settings ask for; none where they leave it to the state directory.
pub(super) fn world(args: &UpArgs) -> Option<WorldSettings> {
    let UpArgs {
        config: _,
        foreground: _,
        idle: _,
        policy: _,
        settled: _,
        local,
        listen,
        dead_man,
        accelerators,
        rate,
        market,
        zones,
        from_hours,
        speed,
        store,
        engine,
        slurm,
        kubernetes,
        fresh_folder,
        bound_to: _,
    } = args;
    let local = local.unwrap_or(false);
    let machines = local || listen.is_some();
    let asked = machines
        || market.is_some()
        || !zones.is_empty()
        || from_hours.is_some()
        || speed.is_some()
        || store.is_some()
        || !engine.is_empty()
        || *fresh_folder;
    if !asked {
        return None;
    }
    let mut world = match machines {
        true => {
            let here = || HereSettings {
                accelerators: accelerators.iter().filter_map(|text| values::stated(text)).collect(),
                rate: values::nano_usd(rate.unwrap_or(0.0)),
            };
            let dead_man_s = dead_man.as_deref().and_then(values::dead_man).unwrap_or(DEAD_MAN.as_secs());
            let slurm = slurm.as_deref().and_then(|text| serde_json::from_str(text).ok());
            let kubernetes = kubernetes.as_deref().and_then(|text| serde_json::from_str(text).ok());
            let here = local.then(here);
            WorldSettings::machines(MachineSettings { here, listen: *listen, dead_man_s, slurm, kubernetes })
        }
        false => WorldSettings::default(),
    };
    if let World::Replay(replay) = &mut world.world {
        if let Some(market) = market {
            replay.market.clone_from(market);
            replay.zones = Vec::new();
            replay.from = Span::ZERO;
        }
        if !zones.is_empty() {
            replay.zones.clone_from(zones);
        }
        if let Some(hours) = from_hours {
            replay.from = Span((hours * 3_600_000.0) as i64);
        }
    }
    if let Some(speed) = speed {
        world.speed = *speed;
    }
    let remote = |text: &String| {
        let (name, socket) = text.split_once('=')?;
        Some(RemoteSettings { name: name.to_owned(), socket: socket.into() })
    };
    world.engines = engine.iter().filter_map(remote).collect();
    world.store.clone_from(store);
    world.fresh_folder = *fresh_folder;
    Some(world)
}

/// Which machines a state directory's world is about to have otherwise than before, in lines.
pub(super) fn changes(before: Option<&WorldSettings>, now: Option<&WorldSettings>) -> Vec<String> {
    let of = |world: Option<&WorldSettings>| match world.map(|world| &world.world) {
        Some(World::Machines(machines)) => Some(told(machines)),
        _ => None,
    };
    let (Some(before), Some(now)) = (of(before), of(now)) else { return Vec::new() };
    let pairs = before.into_iter().zip(now).filter(|((_, before), (_, now))| before != now);
    pairs.map(|((what, before), (_, now))| format!("{what}: {now}; it was {before}")).collect()
}

/// What people know of its machines, each under the flag that says it.
fn told(machines: &MachineSettings) -> Vec<(&'static str, String)> {
    let MachineSettings { here, listen, dead_man_s, slurm, kubernetes } = machines;
    let stated = |here: &HereSettings| {
        let all: Vec<String> = here.accelerators.iter().map(|one| format!("{}:{}", one.model, one.count)).collect();
        if all.is_empty() { "those that are found".to_owned() } else { all.join(",") }
    };
    let rate = |here: &HereSettings| format!("{} an hour", here.rate);
    let none = || "none".to_owned();
    let yes = |is: bool| if is { "true" } else { "false" }.to_owned();
    vec![
        ("--local", yes(here.is_some())),
        ("--accelerators", here.as_ref().map_or_else(none, stated)),
        ("--rate", here.as_ref().map_or_else(none, rate)),
        ("--listen", listen.map_or_else(none, |address| address.to_string())),
        ("--dead-man", Span::seconds(i64::try_from(*dead_man_s).unwrap_or(i64::MAX / 1_000)).to_string()),
        ("slurm", slurm.as_ref().and_then(|slurm| serde_json::to_string(slurm).ok()).unwrap_or_else(none)),
        ("kubernetes", kubernetes.as_ref().and_then(|said| serde_json::to_string(said).ok()).unwrap_or_else(none)),
    ]
}

/// Fails where a state directory's server is told to leave its own computer alone, and nothing else is left to it.
pub(super) fn leaves_something(args: &UpArgs, known: Option<&WorldSettings>) -> Result<(), Failure> {
    let is_local =
        matches!(known.map(|known| &known.world), Some(World::Machines(machines)) if machines.here.is_some());
    if args.local != Some(false) || args.listen.is_some() || !is_local {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, "--local=false leaves this server without machines");
    Err(failure.hint("let machines join: --local=false --listen HOST:PORT"))
}

/// Fails where accelerators are not stated as they have to be.
pub(super) fn bad_accelerators(stated_ones: &[String]) -> Result<(), Failure> {
    let Some(unknown) = stated_ones.iter().find(|text| values::stated(text).is_none()) else { return Ok(()) };
    let failure = Failure::new(Code::BadInput, format!("--accelerators: not NAME:COUNT: {unknown}"));
    Err(failure.hint("such as MI300X:8"))
}

/// Fails where a rate is none.
pub(super) fn bad_rate(rate: f64) -> Result<(), Failure> {
    if values::is_rate(rate) {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, format!("--rate: not a price of an hour: {rate:?}"));
    Err(failure.hint("dollars, such as 2.50"))
}

/// Fails where a flag says what it cannot; what a file says was checked as it was read.
pub(super) fn check_flags(args: &UpArgs) -> Result<(), Failure> {
    let bad = |message: String, hint: &str| Err(Failure::new(Code::BadInput, message).hint(hint));
    if let Some(hours) = args.from_hours.filter(|hours| !(0.0..=values::LONGEST_RECORDING).contains(hours)) {
        let message = format!("--from-hours: no place on a recording: {hours}");
        return bad(message, "hours from its beginning, such as 12.5");
    }
    bad_accelerators(&args.accelerators)?;
    args.rate.map_or(Ok(()), bad_rate)?;
    if let Some(text) = args.dead_man.as_deref().filter(|text| values::dead_man(text).is_none()) {
        let message = format!("--dead-man: not a time from 5 s to 30 days: {text}");
        return bad(message, "such as 4h: without the server, work on its nodes goes on for so long");
    }
    if let Some(text) = args.idle.as_deref().filter(|text| values::idle(text).is_none()) {
        return bad(format!("--idle: not a length of time: {text}"), "such as 10m, or never");
    }
    let is_engine =
        |text: &str| text.split_once('=').is_some_and(|(name, socket)| !name.is_empty() && socket.starts_with('/'));
    if let Some(text) = args.engine.iter().find(|text| !is_engine(text)) {
        return bad(format!("--engine: not NAME=SOCKET: {text}"), "such as far=/run/far.sock");
    }
    Ok(())
}

/// The same settings as flags of `serve`, but where the state is kept: everybody sees a program's arguments.
pub(super) fn serve_args(args: &UpArgs) -> Vec<String> {
    let mut all = vec!["--settled".to_owned()];
    if args.local == Some(true) {
        all.push("--local".to_owned());
    }
    let listed = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
    let values = [
        ("listen", args.listen.map(|address| address.to_string())),
        ("dead-man", args.dead_man.clone()),
        ("accelerators", listed(&args.accelerators)),
        ("rate", args.rate.map(|rate| rate.to_string())),
        ("market", args.market.clone()),
        ("zones", listed(&args.zones)),
        ("from-hours", args.from_hours.map(|hours| hours.to_string())),
        ("speed", args.speed.map(|speed| speed.to_string())),
        ("idle", args.idle.clone()),
        ("policy", args.policy.clone()),
        ("slurm", args.slurm.clone()),
        ("kubernetes", args.kubernetes.clone()),
    ];
    for (name, value) in values {
        all.extend(value.into_iter().flat_map(|value| [format!("--{name}"), value]));
    }
    all.extend(args.engine.iter().flat_map(|engine| ["--engine".to_owned(), engine.clone()]));
    if args.fresh_folder {
        all.push("--fresh-folder".to_owned());
    }
    all
}
