//! Servers: the one in the foreground, and starting, asking and ending those in the background.

use crate::args::{DownArgs, UpArgs};
use crate::here::Here;
use crate::show;
use std::io::Write;
use std::time::Duration;
use windfall_core::english::{counted, with_causes};
use windfall_core::view::JobView;
use windfall_core::{NanoUsd, Span, WorkloadId};
use windfall_server::api_types::{Hello, JobAnswer, Problem};
use windfall_server::client::{Client, STATUS_JOBS, STORE_VARIABLE, startup_failure};
use windfall_server::client::{Code, Failure};
use windfall_server::home::{HereSettings, HomeError, MachineSettings, RemoteSettings, Stated, World, WorldSettings};
use windfall_server::{ServeError, Settings};
use windfall_store::StoreError;

/// Hours; every recording is shorter.
const LONGEST_RECORDING: f64 = 100_000.0;
/// Dollars an hour; no computer costs more.
const MOST_RATE: f64 = 1e6;
/// Without jobs and clients for so long, a server ends itself.
const IDLE: Duration = Duration::from_secs(600);
/// How long nodes go on without the server, where nobody says otherwise: its outage must not end the work of a cluster.
const DEAD_MAN: Duration = Duration::from_secs(4 * 3_600);

fn world(args: &UpArgs) -> Option<WorldSettings> {
    let UpArgs {
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
        fresh_folder,
        bound_to: _,
    } = args;
    let machines = *local || listen.is_some();
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
                accelerators: accelerators.iter().filter_map(|text| stated(text)).collect(),
                rate: nano_usd(rate.unwrap_or(0.0)),
            };
            let dead_man_s = dead_man.as_deref().and_then(seconds).unwrap_or(DEAD_MAN.as_secs());
            WorldSettings::machines(MachineSettings { here: local.then(here), listen: *listen, dead_man_s })
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

/// Dollars as they are counted.
pub(super) fn nano_usd(dollars: f64) -> NanoUsd {
    NanoUsd((dollars * 1e9).round() as i64)
}

/// A dead-man time that somebody wrote, such as `4h`, in seconds.
fn seconds(text: &str) -> Option<u64> {
    let span = windfall_jobfile::duration(text)?;
    u64::try_from(span.0 / 1_000).ok().filter(|seconds| (5..=30 * 86_400).contains(seconds))
}

/// Fails where accelerators are not stated as they have to be.
pub(super) fn bad_accelerators(stated_ones: &[String]) -> Result<(), Failure> {
    let Some(unknown) = stated_ones.iter().find(|text| stated(text).is_none()) else { return Ok(()) };
    let failure = Failure::new(Code::BadInput, format!("--accelerators: not NAME:COUNT: {unknown}"));
    Err(failure.hint("such as MI300X:8"))
}

/// Fails where a rate is none.
pub(super) fn bad_rate(rate: f64) -> Result<(), Failure> {
    if (0.0..=MOST_RATE).contains(&rate) {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, format!("--rate: not a price of an hour: {rate}"));
    Err(failure.hint("dollars, such as 2.50"))
}

/// What somebody states of this computer: a name and how many of it, such as `MI300X:8`.
pub(super) fn stated(text: &str) -> Option<Stated> {
    let (model, count) = text.split_once(':')?;
    let count = count.parse().ok().filter(|count| (1..=1_024).contains(count))?;
    let names = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_' | '.');
    (!model.is_empty() && model.chars().all(names)).then(|| Stated { model: model.to_owned(), count })
}

/// A server in this process. Its first line of output says whether it could start; then output is closed.
pub fn serve(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    // Its own session: nothing that happens to a terminal reaches it. Fails only if it leads one already.
    let _ = rustix::process::setsid();
    close_inherited();
    let idle_after =
        std::env::var("WINDFALL_IDLE").ok().and_then(|text| text.parse().ok()).map_or(IDLE, Duration::from_secs);
    let store = args.store.clone().or_else(|| std::env::var(STORE_VARIABLE).ok());
    let settings = Settings {
        home: here.home.clone(),
        world: world(&UpArgs { store, ..args.clone() }),
        idle_after,
        policy: std::env::var("WINDFALL_POLICY").ok(),
        bound: args.bound_to.map(windfall_server::Bound::to),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let ready = || {
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready");
        let _ = out.flush();
    };
    match runtime.block_on(windfall_server::serve(settings, ready)) {
        Ok(()) => Ok(Code::Done),
        Err(error) => {
            let problem = startup_problem(&error);
            // Whoever started it may be gone long since.
            let _ = writeln!(std::io::stdout(), "{}", serde_json::to_string(&problem).unwrap_or_default());
            Err(startup_failure(problem))
        }
    }
}

/// Whatever else the terminal had open is not ours to keep open.
#[expect(unsafe_code, reason = "closing descriptors that nothing in this process owns has no safe form")]
fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let still_open = |fd: &i32| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    for fd in open.into_iter().filter(|fd| *fd > 2).filter(still_open) {
        // SAFETY: called first thing in the process, before it opened anything but the directory above,
        // which is closed by now.
        unsafe { rustix::io::close(fd) };
    }
}

fn startup_problem(error: &ServeError) -> Problem {
    let title = with_causes(error);
    let elsewhere = "choose another directory with --home or WINDFALL_HOME";
    let hint = match error {
        ServeError::Store(error) => store_hint(error),
        ServeError::Home(HomeError::OtherWorld { .. }) => "use another state directory for another world: --home DIR",
        ServeError::Home(_) => elsewhere,
        ServeError::Engine(_) => "see the names above, or leave --market and --zones out",
        ServeError::World(_) => "see `windfall up --help`",
        ServeError::Port { .. } => "choose an address of this machine, and a port that nobody has",
        ServeError::Ended(_) => "the other server goes on with every job; `windfall up` starts this one again",
        _ => "its log is server.log in the state directory",
    };
    let status = if error.is_bad_input() { 422 } else { 503 };
    Problem { code: "cannot-start".to_owned(), title, status, detail: None, hint: Some(hint.to_owned()) }
}

fn store_hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Newer { .. } => "this state was written by a newer windfall: use that one",
        StoreError::NetworkFilesystem { .. } => {
            "choose a local directory with --home, or keep the state in PostgreSQL: windfall up --store postgres://…"
        }
        StoreError::Full { .. } => "free some space, then try again: nothing was changed",
        StoreError::ReadOnly { .. } => "choose a directory that can be written, with --home or WINDFALL_HOME",
        _ => "its log is server.log in the state directory",
    }
}

pub async fn up(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    if let Some(hours) = args.from_hours.filter(|hours| !(0.0..=LONGEST_RECORDING).contains(hours)) {
        let failure = Failure::new(Code::BadInput, format!("--from-hours: no place on a recording: {hours}"));
        return Err(failure.hint("hours from its beginning, such as 12.5"));
    }
    bad_accelerators(&args.accelerators)?;
    args.rate.map_or(Ok(()), bad_rate)?;
    if let Some(text) = args.dead_man.as_deref().filter(|text| seconds(text).is_none()) {
        let failure = Failure::new(Code::BadInput, format!("--dead-man: not a time from 5 s to 30 days: {text}"));
        return Err(failure.hint("such as 4h: without the server, work on its nodes goes on for so long"));
    }
    let mut serve_args = Vec::new();
    if args.local {
        serve_args.push("--local".to_owned());
    }
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            serve_args.extend([format!("--{name}"), value]);
        }
    };
    add("listen", args.listen.map(|address| address.to_string()));
    add("dead-man", args.dead_man.clone());
    add("accelerators", (!args.accelerators.is_empty()).then(|| args.accelerators.join(",")));
    add("rate", args.rate.map(|rate| rate.to_string()));
    add("market", args.market.clone());
    add("zones", (!args.zones.is_empty()).then(|| args.zones.join(",")));
    add("from-hours", args.from_hours.map(|hours| hours.to_string()));
    add("speed", args.speed.map(|speed| speed.to_string()));
    for engine in &args.engine {
        if !engine.split_once('=').is_some_and(|(name, socket)| !name.is_empty() && socket.starts_with('/')) {
            let failure = Failure::new(Code::BadInput, format!("--engine: not NAME=SOCKET: {engine}"));
            return Err(failure.hint("such as far=/run/far.sock"));
        }
        serve_args.extend(["--engine".to_owned(), engine.clone()]);
    }
    if args.fresh_folder {
        serve_args.push("--fresh-folder".to_owned());
    }
    let wanted = world(args);
    if let Some(wanted) = &wanted {
        check(here, wanted).await?;
    }
    let hello = Client::new(&here.home, serve_args).with_store(args.store.clone()).ensure().await?;
    // The server that answers may be one that somebody else started at the same moment.
    standing(here, wanted.as_ref())?;
    tell(here, &hello, "a server runs");
    Ok(Code::Done)
}

/// Fails, before anything is written, if the world is not possible or is not the one of this state directory.
async fn check(here: &Here, wanted: &WorldSettings) -> Result<(), Failure> {
    if standing(here, Some(wanted))?.is_some() {
        return Ok(());
    }
    windfall_server::check_world(wanted).await.map_err(|error| {
        let problem = startup_problem(&error);
        // The reason does not matter: the world that was asked for is not possible.
        startup_failure(Problem { status: 422, ..problem })
    })
}

fn standing(here: &Here, wanted: Option<&WorldSettings>) -> Result<Option<WorldSettings>, Failure> {
    WorldSettings::standing(&here.home, wanted).map_err(|error| match error {
        HomeError::OtherWorld { .. } => Failure::new(Code::BadInput, error.to_string())
            .hint("use another state directory for another world: --home DIR"),
        other => windfall_server::client::home_failure(other),
    })
}

pub async fn status(here: &Here) -> Result<Code, Failure> {
    let client = here.client();
    let Some(hello) = client.greet().await? else {
        let waiting = windfall_server::live_jobs(&here.home).await;
        if here.json {
            let answer = serde_json::json!({ "running": false, "home": here.home, "live_jobs": waiting });
            println!("{answer}");
            return Ok(Code::Done);
        }
        println!("no server runs on {}", here.home.display());
        if let Some(waiting @ 1..) = waiting {
            println!("{} not ended: nothing is decided until `windfall up` starts a server", has_not_ended(waiting));
        }
        print!("{}", full_disk(&here.home).unwrap_or_default());
        return Ok(Code::Done);
    };
    let jobs: Vec<JobView> = client.get(STATUS_JOBS).await?;
    if here.json {
        println!("{}", serde_json::json!({ "running": true, "home": here.home, "server": hello, "jobs": jobs }));
        return Ok(Code::Done);
    }
    tell(here, &hello, "a server runs");
    for job in &jobs {
        println!(
            "  job {:<5} {:<20} {:<9} {:>5}  {}",
            job.id,
            job.name,
            job.state.word(),
            show::percent(job),
            show::lease(job)
        );
    }
    if hello.live_jobs > jobs.len() {
        println!("  and {} more: `windfall jobs` shows them", hello.live_jobs - jobs.len());
    }
    print!("{}", show::troubles(&jobs));
    print!("{}", full_disk(&here.home).unwrap_or_default());
    Ok(Code::Done)
}

fn has_not_ended(jobs: u64) -> String {
    format!("{} {}", counted(jobs, "job"), if jobs == 1 { "has" } else { "have" })
}

/// With less free space than this a server may soon be unable to write its log.
const ROOM: u64 = 256 << 20;

/// A sentence for a state directory that is nearly full.
fn full_disk(home: &std::path::Path) -> Option<String> {
    let disk = rustix::fs::statvfs(home).ok()?;
    let left = disk.f_bavail.saturating_mul(disk.f_frsize);
    (left < ROOM).then(|| {
        let megabytes = left >> 20;
        format!("the disk of {} has {megabytes} MB left: make room, or nothing more can be decided\n", home.display())
    })
}

fn tell(here: &Here, hello: &Hello, what: &str) {
    if here.json {
        println!("{}", serde_json::json!({ "running": true, "home": here.home, "server": hello }));
        return;
    }
    println!("{what}: version {}, pid {}, on {}", hello.version, hello.pid, here.home.display());
    let zones: Vec<&str> = hello.engines.iter().flat_map(|engine| &engine.zones).map(String::as_str).collect();
    let zones = if zones.is_empty() { String::new() } else { format!(" in {}", zones.join(", ")) };
    let article = if hello.replays().is_some() { "a " } else { "" };
    println!("its world: {article}{}{zones}", hello.world());
    for engine in &hello.engines {
        if let Some(since) = engine.silent_since {
            println!(
                "{} has not answered for {}: nothing new is asked of it until it does",
                engine.name,
                hello.now - since
            );
        }
    }
    println!("{}, {}", counted(hello.live_jobs as u64, "live job"), counted(hello.leases as u64, "lease"));
    if let Some(away) = &hello.database_away {
        let second = away.since_unix_ms / 1_000 % 86_400;
        let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
        let lasts = Span(i64::try_from(away.for_ms).unwrap_or(i64::MAX));
        println!(
            "the database is away since {hours:02}:{minutes:02}:{seconds:02} UTC ({lasts}): nothing is decided until it is back: {}",
            away.why
        );
    }
}

/// Looks, 200 ms apart, until an engine that does not answer is not waited for any more.
const GIVEN_UP: u64 = 75;

/// The engines that do not answer.
fn silent(hello: &Hello) -> Vec<String> {
    let silent = hello.engines.iter().filter(|engine| engine.silent_since.is_some());
    silent.map(|engine| engine.name.clone()).collect()
}

/// Live jobs that are asked for at once.
const LIVE_PAGE: u32 = 1_000;

/// Cancels every live job, page by page.
async fn cancel_all(client: &Client) -> Result<(), Failure> {
    let mut before = None;
    loop {
        let jobs = page(client, before, LIVE_PAGE).await?;
        for job in jobs.iter().filter(|job| !job.state.is_over()) {
            if let Err(failure) = client.post::<_, ()>(&format!("/v1/jobs/{}/cancel", job.id), &()).await {
                // One that ended meanwhile needs no cancelling.
                let now: JobAnswer = client.get(&format!("/v1/jobs/{}", job.id)).await?;
                if !now.job.state.is_over() {
                    return Err(failure);
                }
            }
        }
        before = jobs.last().map(|job| job.id);
        if jobs.len() < LIVE_PAGE as usize {
            return Ok(());
        }
    }
}

/// The newest live jobs below a number.
async fn page(client: &Client, before: Option<WorkloadId>, limit: u32) -> Result<Vec<JobView>, Failure> {
    let before = before.map_or(String::new(), |before| format!("&before={before}"));
    client.get(&format!("/v1/jobs?limit={limit}{before}")).await
}

pub async fn down(here: &Here, args: &DownArgs) -> Result<Code, Failure> {
    let client = here.client();
    let Some(hello) = client.greet().await? else {
        if here.json {
            println!("{}", serde_json::json!({ "running": false, "home": here.home, "live_jobs": null }));
        } else {
            println!("no server runs on {}", here.home.display());
        }
        return Ok(Code::Done);
    };
    let (mut left, mut owing) = (hello.live_jobs, Vec::new());
    if args.cancel {
        cancel_all(&client).await?;
        for round in 0_u64.. {
            let jobs = page(&client, None, LIVE_PAGE).await?;
            left = jobs.len();
            // A full page may not be all of them.
            let are_over = left < LIVE_PAGE as usize && jobs.iter().all(|job| job.state.is_over());
            // Machines of an engine that does not answer are given back when it does: that is not waited for.
            let unanswered = match round >= GIVEN_UP && are_over {
                true => client.hello().await?.map(|hello| silent(&hello)).unwrap_or_default(),
                false => Vec::new(),
            };
            if jobs.is_empty() || !unanswered.is_empty() {
                owing = unanswered;
                break;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    // Its last answer may be lost with it: gone is what counts.
    let asked = client.post::<_, ()>("/v1/shutdown", &()).await;
    let asked = match asked {
        // It was refused, and will not end.
        Err(failure) if failure.code == Code::BadInput => return Err(failure),
        asked => asked,
    };
    client.wait_until_ended(hello.pid).await;
    if client.hello().await?.is_some_and(|now| now.pid == hello.pid) {
        asked?;
    }
    if here.json {
        println!("{}", serde_json::json!({ "running": false, "home": here.home, "live_jobs": left }));
    } else if left == 0 {
        println!("the server has ended");
    } else if !owing.is_empty() {
        println!("the server has ended; machines of {} are not given back yet", counted(left as u64, "job"));
        println!("hint: {} did not answer: `windfall up` gives them back when it does", owing.join(", "));
    } else {
        println!("the server has ended; {} stay, and what runs goes on", counted(left as u64, "job"));
        let until = if hello.replays().is_some() { "; the replayed market stands still until then" } else { "" };
        println!("hint: `windfall up` goes on with them{until}");
    }
    Ok(Code::Done)
}
