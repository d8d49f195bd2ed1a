//! Servers: starting, asking and ending those in the background.

use super::config::settled;
use super::serving::{check, known, standing};
use super::worlds::{changes, check_flags, leaves_something, serve_args, world};
use crate::args::{DownArgs, UpArgs};
use crate::fitted::folded;
use crate::here::Here;
use crate::live::width;
use crate::show;
use std::time::Duration;
use windfall_core::english::counted;
use windfall_core::view::JobView;
use windfall_core::{Span, WorkloadId};
use windfall_server::api_types::{Hello, JobAnswer};
use windfall_server::client::{Client, Code, Failure, STATUS_JOBS};
use windfall_server::home::WorldSettings;

/// Starts a server with what the flags and the configuration file say.
pub async fn up(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    let args = settled(here, args)?;
    check_flags(&args)?;
    let known = known(here);
    leaves_something(&args, known.as_ref())?;
    let wanted = world(&args);
    if let Some(wanted) = &wanted {
        check(here, wanted).await?;
    }
    let client = Client::new(&here.home, serve_args(&args)).with_store(args.store.clone());
    let before = client.greet().await?.map(|hello| hello.pid);
    let hello = client.ensure().await?;
    // The server that answers may be one that somebody else started at the same moment.
    let standing = standing(here, wanted.as_ref())?;
    tell(here, &hello, "a server runs");
    if before == Some(hello.pid) && standing.is_some() && standing != WorldSettings::of(&here.home).ok().flatten() {
        eprintln!("hint: it keeps what it was started with: `windfall down`, then `windfall up` again; jobs go on");
    } else if before != Some(hello.pid) {
        changes(known.as_ref(), wanted.as_ref()).iter().for_each(|line| eprintln!("note: {line}"));
    }
    Ok(Code::Done)
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
        let (state, percent) = (job.state.word(), show::percent(job));
        let line = format!("{:<5} {:<20} {state:<9} {percent:>5}  {}", job.id, job.name, show::lease(job));
        print!("{}", folded("  job ", &line, width()));
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
    let say = |text: String| print!("{}", folded("", &text, width()));
    say(format!("{what}: version {}, pid {}, on {}", hello.version, hello.pid, here.home.display()));
    let zones: Vec<&str> = hello.engines.iter().flat_map(|engine| &engine.zones).map(String::as_str).collect();
    let zones = if zones.is_empty() { String::new() } else { format!(" in {}", zones.join(", ")) };
    let article = if hello.replays().is_some() { "a " } else { "" };
    say(format!("its world: {article}{}{zones}", hello.world()));
    for engine in &hello.engines {
        if let Some(since) = engine.silent_since {
            let silent = hello.now - since;
            say(format!("{} has not answered for {silent}: nothing new is asked of it until it does", engine.name));
        }
    }
    if let Some(address) = hello.listens {
        say(format!("it takes nodes in on {address}: `windfall nodes token NAME` makes a token to join by"));
    }
    say(format!("{}, {}", counted(hello.live_jobs as u64, "live job"), counted(hello.leases as u64, "lease")));
    if let Some(away) = &hello.database_away {
        let second = away.since_unix_ms / 1_000 % 86_400;
        let (hours, minutes, seconds) = (second / 3_600, second / 60 % 60, second % 60);
        let lasts = Span(i64::try_from(away.for_ms).unwrap_or(i64::MAX));
        let since = format!("{hours:02}:{minutes:02}:{seconds:02} UTC ({lasts})");
        say(format!("the database is away since {since}: nothing is decided until it is back: {}", away.why));
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
        let stay = if left == 1 { "stays" } else { "stay" };
        println!("the server has ended; {} {stay}, and what runs goes on", counted(left as u64, "job"));
        let until = if hello.replays().is_some() { "; the replayed market stands still until then" } else { "" };
        println!("hint: `windfall up` goes on with them{until}");
    }
    Ok(Code::Done)
}
