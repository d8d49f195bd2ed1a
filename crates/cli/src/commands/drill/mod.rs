//! `windfall engines drill`: a small job of one's own goes the whole way through one engine, by the server's own path. It is asked for,
//! comes up, runs and saves; then its machine is taken away with a notice, it goes on elsewhere from what it saved, and ends. What
//! the engine was asked meanwhile is told, and what is left of it there. Nothing of anybody else's is touched.

mod report;
mod steps;
mod walk;

use crate::args::DrillArgs;
use crate::config::values;
use crate::here::Here;
use report::Report;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use walk::Walk;
use windfall_core::spec::{Ask, CheckpointSpec, RunSpec, WorkSpec};
use windfall_core::{JobSpec, LeaseId, Offer, Span, Work};
use windfall_exec::Stated;
use windfall_server::api_types::{EngineCalls, JobAnswer, Stray, Submission};
use windfall_server::client::{Client, Code, Failure, key};

/// Its work for those who plan with it, so that no queue takes it for a long job.
const WORK: Span = Span::minutes(5);
/// How long what it held may take to be given back after it was cancelled.
const GONE: Duration = Duration::from_secs(180);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// It saves one file and then waits to be interrupted, for ten minutes at most: whoever began the drill may be gone. Where the file is
/// there at its start, it has gone on from what was saved, and is done.
const PROGRAM: &str = "\
cd \"$WINDFALL_CHECKPOINT_DIR\" || exit 4
if [ -e drill ]; then echo 'it goes on from what was saved'; exit 0; fi
echo saved > drill
i=0
while [ \"$i\" -lt 1200 ]; do sleep 0.5; i=$((i + 1)); done
echo 'nobody has interrupted it'
exit 3
";

pub async fn drill(here: &Here, client: &Client, args: &DrillArgs) -> Result<Code, Failure> {
    let offers: Vec<Offer> = client.get(&format!("/v1/engines/{}/offers", letters(&args.name))).await?;
    let offer = chosen(args, &offers)?.clone();
    let hello = client.ensure().await?;
    let calls: EngineCalls = client.get(&calls_after(&args.name, 0)).await?;
    let mut signals = Signals::new()?;
    let submission = Submission {
        key: key(),
        spec: job(here, &args.name, &offer)?,
        deadline_in: None,
        env: std::env::vars().filter(|(name, _)| name == "PATH").collect(),
        wait: true,
        with_files: false,
        own_files: false,
        continues: None,
    };
    let id = client.submit(&submission).await?.id;
    let mut report = Report::new(here, args.name.clone(), id, &offer, &hello);
    let mut walk = Walk { client, id, report: &mut report, notice: Span::seconds(args.notice.into()) };
    let within = Duration::from_secs(u64::from(args.within) * 60);
    let walked = tokio::select! {
        walked = tokio::time::timeout(within, walk.run()) => walked.unwrap_or_else(|_| Err(report.stuck(args.within))),
        () = signals.any() => Err(Failure::new(Code::Detached, "the drill was interrupted")),
    };
    if walked.is_err() {
        eprintln!("ending job {id}: what it holds is given back first");
        let ended = tokio::select! {
            ended = end(client, id) => ended,
            () = signals.any() => Err(Failure::new(Code::Detached, "it is left to the server")),
        };
        if let Err(failure) = ended {
            return Err(
                failure.hint(format!("the server gives back what it holds; see it with: windfall explain {id}"))
            );
        }
    }
    let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
    let since: EngineCalls = client.get(&calls_after(&args.name, calls.next)).await?;
    report.calls(since.calls);
    report.left = left(client, args, &report.groups()).await?;
    report.show(&answer);
    walked?;
    Ok(report.code(&answer))
}

fn calls_after(engine: &str, number: u64) -> String {
    format!("/v1/engines/{}/calls?after={number}", letters(engine))
}

/// A name as a part of an address.
pub(super) fn letters(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

/// What to ask for: what was named, or else the least and cheapest.
fn chosen<'a>(args: &DrillArgs, offers: &'a [Offer]) -> Result<&'a Offer, Failure> {
    let wanted = match &args.accelerators {
        None => None,
        Some(text) => {
            let wrong = || Failure::new(Code::BadInput, format!("--accelerators: not NAME:COUNT: {text}"));
            Some(values::stated(text).ok_or_else(|| wrong().hint("such as H100:1"))?)
        }
    };
    let fits = |offer: &&Offer| {
        let is_it = |wanted: &Stated| wanted.model == offer.accelerator && wanted.count == offer.accelerators;
        wanted.as_ref().is_none_or(is_it)
    };
    let can_be_had = |offer: &&Offer| offer.capacity != Some(0);
    let cheapest = offers.iter().filter(fits).filter(can_be_had);
    let cheapest = cheapest.min_by_key(|offer| (offer.price_per_hour, offer.accelerators, offer.id.clone()));
    cheapest.ok_or_else(|| {
        let asked = args.accelerators.as_ref().map_or(String::new(), |asked| format!(" of {asked}"));
        Failure::new(Code::BadInput, format!("{} sells nothing{asked} now", args.name))
            .hint("`windfall engines check` may say why")
    })
}

/// The job of a drill.
fn job(here: &Here, engine: &str, offer: &Offer) -> Result<JobSpec, Failure> {
    let context = here.context()?;
    let command = ["/bin/sh", "-c", PROGRAM].map(str::to_owned).to_vec();
    let ask = Ask { engine: Some(engine.to_owned()), ..Ask::of(offer.accelerator.clone(), offer.accelerators) };
    Ok(JobSpec {
        owner: context.owner,
        tags: [("drill".to_owned(), engine.to_owned())].into(),
        resources: vec![ask],
        work: WorkSpec { total: Some(Work(WORK.0.unsigned_abs())), ..WorkSpec::default() },
        checkpoint: CheckpointSpec { store: context.store, keep: 1, settle_ms: 500, ..CheckpointSpec::default() },
        // Whatever the market does, it is to come up now.
        policy: Some("greedy".to_owned()),
        run: RunSpec { folder: "/".to_owned(), grace: Span::seconds(5), ..RunSpec::of(command.clone()) },
        ..JobSpec::named("drill", command)
    })
}

/// Cancels it, and waits until everything that it held is given back.
async fn end(client: &Client, id: u64) -> Result<(), Failure> {
    let until = Instant::now() + GONE;
    // It may have ended by itself meanwhile.
    let _ = client.insist::<_, ()>(&format!("/v1/jobs/{id}/cancel"), &()).await;
    loop {
        let answer: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
        if answer.bill.is_some() {
            return Ok(());
        }
        if Instant::now() > until {
            let text = format!("job {id} still holds something after {} s", GONE.as_secs());
            return Err(Failure::new(Code::Unreachable, text));
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// What the engine still has of the drill's groups.
async fn left(client: &Client, args: &DrillArgs, groups: &[String]) -> Result<Vec<Stray>, Failure> {
    let all: Vec<Stray> = client.get(&format!("/v1/engines/strays?engine={}", letters(&args.name))).await?;
    let group = |stray: &Stray| stray.lease.parse::<LeaseId>().map(|lease| lease.group.to_string()).ok();
    Ok(all.into_iter().filter(|stray| group(stray).is_some_and(|group| groups.contains(&group))).collect())
}

/// What ends a drill early.
struct Signals([tokio::signal::unix::Signal; 3]);

impl Signals {
    fn new() -> Result<Signals, Failure> {
        let of = |kind| signal(kind).map_err(|error| Failure::new(Code::Bug, error.to_string()));
        Ok(Signals([of(SignalKind::interrupt())?, of(SignalKind::terminate())?, of(SignalKind::hangup())?]))
    }

    async fn any(&mut self) {
        let Signals([interrupt, terminate, hangup]) = self;
        tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {}, _ = hangup.recv() => {} }
    }
}
