//! Submitting a job and watching it until it ends, or until the watcher has seen enough.

use super::jobs::ask_about;
use super::luggage;
use crate::args::{AcceptArgs, JobArgs, ResumeArgs, RunArgs, SubmitArgs};
use crate::bill;
use crate::here::Here;
use crate::live::View;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use windfall_core::JobSpec;
use windfall_jobfile as jobfile;
use windfall_server::api_types::{Accepted, Hello, JobAnswer, Submission};
use windfall_server::client::{Client, environment, key};
use windfall_server::client::{Code, Failure};

/// A second Ctrl-C within this time cancels the job.
const AGAIN: Duration = Duration::from_secs(5);

pub async fn run(here: &Here, args: &RunArgs) -> Result<Code, Failure> {
    let client = here.client();
    let (hello, accepted) = send(here, &client, &args.file, args.accept).await?;
    if here.json {
        println!(
            "{}",
            serde_json::json!({ "type": "submitted", "id": accepted.id, "speed": hello.speed, "market": hello.replays(), "notes": accepted.notes })
        );
    } else {
        println!("job {} accepted; leave with Ctrl-C, come back with: windfall attach {}", accepted.id, accepted.id);
    }
    watch(here, &client, &hello, accepted.id, args.plain).await
}

pub async fn submit(here: &Here, args: &SubmitArgs) -> Result<Code, Failure> {
    let client = here.client();
    let (_, accepted) = send(here, &client, &args.file, args.accept).await?;
    say_accepted(here, &accepted);
    Ok(Code::Done)
}

fn say_accepted(here: &Here, accepted: &Accepted) {
    if here.json {
        println!("{}", serde_json::json!({ "type": "submitted", "id": accepted.id, "notes": accepted.notes }));
    } else {
        println!("job {} accepted; watch it with: windfall attach {}", accepted.id, accepted.id);
    }
}

/// Submits what goes on from an ended job's checkpoints: the same job, or one that a file changes.
pub async fn resume(here: &Here, args: &ResumeArgs) -> Result<Code, Failure> {
    let read = match &args.file {
        Some(file) => Some(read(here, file)?),
        None => None,
    };
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let mut env = environment();
    let (spec, deadline_in, notes) = match read {
        Some(mut read) => {
            luggage::find_secrets(&read, &mut env)?;
            read.notes.extend(pack(here, &client, &mut read.spec, read.workdir.as_deref(), &env).await?);
            (read.spec, read.deadline_in, read.notes)
        }
        None => {
            let before: JobAnswer = client.get(&format!("/v1/jobs/{id}")).await?;
            let spec: JobSpec = client.get(&format!("/v1/jobs/{id}/spec")).await?;
            // As much time as it had in the beginning.
            let deadline_in = spec.deadline.map(|deadline| deadline - before.job.submitted_at);
            luggage::check_secrets(&spec, &env)?;
            luggage::still_there(here, &spec, &env).await?;
            (spec, deadline_in, Vec::new())
        }
    };
    let submission = Submission {
        key: key(),
        spec,
        deadline_in,
        env,
        wait: args.accept.wait,
        with_files: args.accept.with_files,
        own_files: false,
        continues: Some(id),
    };
    let (_, accepted) = hand_in(here, &client, submission, notes).await?;
    say_accepted(here, &accepted);
    Ok(Code::Done)
}

pub async fn attach(here: &Here, args: &JobArgs) -> Result<Code, Failure> {
    let client = here.client();
    let id = ask_about(&client, &args.job).await?;
    let hello = client.ensure().await?;
    watch(here, &client, &hello, id, false).await
}

/// Reads the file before anything is started: a wrong one changes nothing.
fn read(here: &Here, file: &Path) -> Result<jobfile::Read, Failure> {
    let mut read = jobfile::read(file, &here.context()?).map_err(|error| here.bad_file(&error))?;
    super::work::any_kind(here, &mut read)?;
    super::work::with_memory(here, &mut read)?;
    super::work::work_out(here, &mut read, file)?;
    super::work::shrink(here, &mut read)?;
    Ok(read)
}

async fn send(here: &Here, client: &Client, file: &Path, accept: AcceptArgs) -> Result<(Hello, Accepted), Failure> {
    let mut read = read(here, file)?;
    let mut env = environment();
    luggage::find_secrets(&read, &mut env)?;
    read.notes.extend(pack(here, client, &mut read.spec, read.workdir.as_deref(), &env).await?);
    let (spec, deadline_in) = (read.spec, read.deadline_in);
    let AcceptArgs { wait, with_files } = accept;
    let submission =
        Submission { key: key(), spec, deadline_in, env, wait, with_files, own_files: false, continues: None };
    hand_in(here, client, submission, read.notes).await
}

/// Sends a job's folder along, if it says so.
async fn pack(
    here: &Here,
    client: &Client,
    spec: &mut JobSpec,
    workdir: Option<&Path>,
    env: &BTreeMap<String, String>,
) -> Result<Vec<String>, Failure> {
    let Some(workdir) = workdir else { return Ok(Vec::new()) };
    // The default store is in the state directory, which a server makes.
    let installation = client.ensure().await?.installation;
    luggage::send(here, workdir, spec, env, &installation).await
}

async fn hand_in(
    here: &Here,
    client: &Client,
    submission: Submission,
    notes: Vec<String>,
) -> Result<(Hello, Accepted), Failure> {
    let hello = client.ensure().await?;
    // Asked twice it is one job: the server knows it by its key.
    let mut accepted: Accepted = client.submit(&submission).await?;
    accepted.notes.splice(..0, notes);
    luggage::clear(here, client, &submission.spec, &submission.env).await;
    if !here.json {
        for note in &accepted.notes {
            eprintln!("note: {note}");
        }
    }
    Ok((hello, accepted))
}

/// A server that dies more often is not started again.
const GONE_A_MINUTE: usize = 20;

enum Ended {
    Over(Box<JobAnswer>),
    ServerGone,
}

/// Watches a job to its end. A server that dies meanwhile is started again: the job is in its log.
async fn watch(here: &Here, client: &Client, hello: &Hello, id: u64, plain: bool) -> Result<Code, Failure> {
    let mut view = View::new(hello, plain);
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let mut asked: Option<Instant> = None;
    let mut cancelled = false;
    let mut gone = Vec::new();
    let mut following = Box::pin(follow(client, id));
    let (send, mut answers) = tokio::sync::mpsc::unbounded_channel();
    let mut feed = send;
    loop {
        let leave_at = asked.filter(|_| !cancelled).map(|at| at + AGAIN);
        tokio::select! {
            ended = following.as_mut().run(&mut feed) => match ended? {
                Ended::Over(answer) => {
                    while let Ok(answer) = answers.try_recv() {
                        show(here, &mut view, &answer);
                    }
                    show(here, &mut view, &answer);
                    view.leave();
                    if here.json {
                        println!("{}", bill::json(&answer));
                    } else {
                        print!("\n{}", bill::text(&answer));
                    }
                    return Ok(bill::code(&answer.job));
                }
                Ended::ServerGone => {
                    gone.retain(|at: &Instant| at.elapsed() < Duration::from_secs(60));
                    gone.push(Instant::now());
                    if gone.len() > GONE_A_MINUTE {
                        view.leave();
                        return Err(Failure::new(Code::Unreachable, "the server does not stay up").hint(client.look_at_log()));
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    client.ensure().await?;
                    following = Box::pin(follow(client, id));
                }
            },
            Some(answer) = answers.recv() => show(here, &mut view, &answer),
            _ = interrupt.recv() => {
                if !std::io::stdin().is_terminal() && asked.is_none() {
                    return Ok(detach(here, &mut view, id));
                }
                if asked.is_some_and(|at| at.elapsed() < AGAIN) && !cancelled {
                    match client.insist::<_, ()>(&format!("/v1/jobs/{id}/cancel"), &()).await {
                        Ok(()) => {
                            cancelled = true;
                            view.say("cancelling: the program may save first");
                        }
                        Err(refused) if refused.code == Code::Unreachable => return Err(refused),
                        Err(refused) => {
                            let hint = refused.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                            view.say(&format!("{}{hint}", refused.message));
                        }
                    }
                } else if cancelled {
                    view.leave();
                    eprintln!("detached: the job is being cancelled. See it with: windfall attach {id}");
                    return Ok(Code::Detached);
                } else {
                    asked = Some(Instant::now());
                    view.say("the job goes on; press Ctrl-C again within five seconds to cancel it");
                }
            }
            _ = hangup.recv() => return Ok(detach(here, &mut view, id)),
            _ = terminate.recv() => return Ok(detach(here, &mut view, id)),
            () = sleep_until(leave_at), if leave_at.is_some() => return Ok(detach(here, &mut view, id)),
        }
    }
}

fn show(here: &Here, view: &mut View, answer: &JobAnswer) {
    if here.json {
        let job = &answer.job;
        println!("{}", serde_json::json!({ "type": "job", "job": job, "trouble": answer.trouble }));
    } else {
        view.show(answer);
    }
}

fn detach(here: &Here, view: &mut View, id: u64) -> Code {
    view.leave();
    if here.json {
        println!("{}", serde_json::json!({ "type": "detached", "id": id }));
    } else {
        view.say(&format!(
            "detached: the job goes on. Come back with: windfall attach {id}; end it with: windfall cancel {id}"
        ));
    }
    Code::Detached
}

struct Following<'a> {
    client: &'a Client,
    id: u64,
    lines: Option<windfall_server::client::Lines>,
}

fn follow(client: &Client, id: u64) -> Following<'_> {
    Following { client, id, lines: None }
}

impl Following<'_> {
    /// Sends each view of the job until its bill is settled. May be dropped between two answers and run again.
    async fn run(
        self: std::pin::Pin<&mut Self>,
        seen: &mut tokio::sync::mpsc::UnboundedSender<JobAnswer>,
    ) -> Result<Ended, Failure> {
        let this = self.get_mut();
        loop {
            let lines = match &mut this.lines {
                Some(lines) => lines,
                None => match this.client.stream(&format!("/v1/jobs/{}/watch", this.id)).await {
                    Ok(lines) => this.lines.insert(lines),
                    Err(failure) if failure.code == Code::Unreachable => return Ok(Ended::ServerGone),
                    Err(failure) => return Err(failure),
                },
            };
            match lines.next::<JobAnswer>().await {
                Some(answer) if answer.bill.is_some() => return Ok(Ended::Over(Box::new(answer))),
                Some(answer) => {
                    let _ = seen.send(answer);
                }
                None => return Ok(Ended::ServerGone),
            }
        }
    }
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => std::future::pending().await,
    }
}
