//! The HTTP API on the state directory's socket. Handlers translate; the keeper answers.

mod engines;
mod ledger;
mod nodes;
mod said;
mod submitting;
#[cfg(test)]
mod tests;

use crate::api_types::{ExplainAnswer, Hello, InterruptRequest, JobAnswer, OutputsAt, Problem, Submission};
use crate::dispatch::StoreAccess;
use crate::keeper::{Ask, Asked};
use crate::principal::{Operator, Principal, name_asker};
use crate::probe::Probes;
use crate::reader::Reader;
use crate::{JOB_IS_OVER, JOB_IS_SAVING, logs, probe, problem, submitters};
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::stream;
use said::Said;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use windfall_agent::checkpoint::CheckpointError;
use windfall_core::english::with_causes;
use windfall_core::spec::Continued;
use windfall_core::view::{self, JobView};
use windfall_core::worker::WorkerView;
use windfall_core::{CheckpointId, Event, JobSpec, NanoUsd, Outcome, WorkloadId, codec};
use windfall_exec::{Hub, Machines};
use windfall_store::JobQuery;

/// How often a watched job is looked at: what it costs and has done moves with the clock.
const LOOK: Duration = Duration::from_millis(200);
/// And one that holds nothing, where nothing is committed.
const SECOND: Duration = Duration::from_secs(1);
/// Time without a change before a watcher is told that somebody is there.
const BEAT: Duration = Duration::from_secs(3);
/// How long a request waits for a job that has ended to give back its machines.
const SETTLING: Duration = Duration::from_secs(20);
/// Jobs in one answer, live or ended: whoever wants more asks for the next page.
const MOST_LISTED: u32 = 10_000;
/// A job file and an environment fit many times into this.
const LARGEST_BODY: usize = 8 << 20;

/// What handlers need.
#[derive(Clone)]
pub struct ApiState {
    pub(crate) asks: mpsc::Sender<Ask>,
    pub(crate) reader: Arc<Reader>,
    pub(crate) probes: Probes,
    pub(crate) asked: Arc<Asked>,
    /// Who takes nodes in, where the server takes any.
    pub(crate) nodes: Option<Arc<Hub>>,
    /// Owned machines, where the server has any.
    pub(crate) machines: Option<Arc<Machines>>,
    /// Programs run as whoever submitted them, so everybody of this machine may submit.
    pub(crate) runs_as_submitters: bool,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_string(&self).expect("a problem has string keys");
        (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response()
    }
}

/// All routes.
pub fn routes(api: ApiState) -> Router {
    Router::new()
        .route("/v1/hello", get(hello))
        .route("/v1/shutdown", post(shutdown))
        .route("/v1/interrupt", post(interrupt))
        .route("/v1/ledger", get(ledger::ledger))
        .route("/v1/engines", get(engines::list))
        .route("/v1/engines/check", get(engines::check))
        .route("/v1/engines/strays", get(engines::strays))
        .route("/v1/engines/sweep", post(engines::sweep))
        .route("/v1/engines/{name}/leases", get(engines::leases))
        .route("/v1/engines/{name}/calls", get(engines::calls))
        .route("/v1/engines/{name}/offers", get(engines::offers))
        .route("/v1/nodes", get(nodes::list))
        .route("/v1/nodes/labels", post(nodes::label))
        .route("/v1/nodes/{name}", get(nodes::one))
        .route("/v1/nodes/{name}/token", post(nodes::token))
        .route("/v1/nodes/{name}/drain", post(nodes::drain))
        .route("/v1/nodes/{name}/resume", post(nodes::resume))
        .route("/v1/nodes/{name}/remove", post(nodes::remove))
        .route("/v1/jobs", get(jobs).post(submitting::submit))
        .route("/v1/jobs/{id}", get(job))
        .route("/v1/jobs/{id}/spec", get(spec))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/jobs/{id}/budget", post(budget))
        .route("/v1/jobs/{id}/explain", get(explain))
        .route("/v1/jobs/{id}/stints", get(stints))
        .route("/v1/jobs/{id}/outputs", get(outputs))
        .route("/v1/folders/{name}", get(folders_used))
        .route("/v1/jobs/{id}/watch", get(watch))
        .route("/v1/jobs/{id}/logs", get(output))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .layer(from_fn(name_asker))
        .layer(from_fn_with_state(Arc::clone(&api.asked), note))
        .with_state(api)
}

/// Notes that somebody asks: a server that is asked does not end itself.
async fn note(State(asked): State<Arc<Asked>>, request: Request, next: Next) -> Response {
    asked.now();
    next.run(request).await
}

impl ApiState {
    async fn ask<T>(&self, ask: impl FnOnce(oneshot::Sender<Result<T, Problem>>) -> Ask) -> Result<T, Problem> {
        let gone = || problem(503, "server-ending", "the server is ending");
        let (reply, answer) = oneshot::channel();
        self.asks.send(ask(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

impl ApiState {
    /// A job that the asker may see all of and change.
    async fn owned(&self, asker: &Principal, id: u64) -> Result<JobAnswer, Problem> {
        let answer = self.reader.job(WorkloadId(id)).await?;
        asker.must_own(id, &answer.job.owner)?;
        Ok(answer)
    }

    /// A job as the asker may see it: everybody sees the queue, and only its owner what a program printed.
    async fn shown(&self, asker: &Principal, id: u64) -> Result<JobAnswer, Problem> {
        let mut answer = self.reader.job(WorkloadId(id)).await?;
        if !asker.may_touch(&answer.job.owner) {
            (answer.last_words, answer.evidence, answer.trouble) = (Vec::new(), None, None);
            answer.pids.clear();
            answer.job = for_guests(answer.job);
        }
        Ok(answer)
    }

    /// What was asked for when a job was submitted.
    async fn spec_of(&self, id: u64) -> Result<JobSpec, Problem> {
        let rows = self.reader.archive.store.rows_of(id, 0, 1).await;
        let rows = rows.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
        let first = rows.first().and_then(|row| codec::decode::<windfall_core::Body>(row.version, &row.payload).ok());
        match first {
            Some(windfall_core::Body::Event(Event::Submitted { workload, .. })) => Ok(JobSpec::clone(workload.job())),
            _ => Err(problem(404, "no-such-job", &format!("the log holds no submission of a job {id} any more"))),
        }
    }

    /// Lets a job begin with what an ended one of the asker's has saved.
    async fn go_on_from(&self, asker: &Principal, id: u64, submission: &mut Submission) -> Result<(), Problem> {
        self.owned(asker, id).await?;
        let answer = self.settled(WorkloadId(id)).await?;
        if !answer.job.state.is_over() || answer.bill.is_none() {
            return Err(not_over(&answer.job));
        }
        let before = self.spec_of(id).await?;
        submission.own_files = before.checkpoint.path == submission.spec.checkpoint.path;
        let key = before.continues.map_or(before.run.environment, |continued| continued.key);
        if let Some(other) = self.reader.saver_in(&key) {
            self.settled(other).await?;
        }
        submission.spec.checkpoint.store = before.checkpoint.store;
        let access = self.store_access(submission, &key);
        let last = match submitters::is_seen_as_owner(&access.owner, &access.address) {
            true => submitters::last_epoch(&access).await?,
            false => probe::last_epoch(&access).await.map_err(|error| store_refusal(&error))?,
        };
        let JobView { stints, durable, .. } = answer.job;
        if last.is_none() && durable.0 > 0 {
            let text = format!("what job {id} saved is not in its store any more: {}", access.address);
            let mut refusal = problem(409, "checkpoints-are-gone", &text);
            refusal.hint = Some("mount or restore what was there; to begin anew, submit the job file".to_owned());
            return Err(refusal);
        }
        // Another job may have gone on from there since: stints count on from the last that wrote.
        let epoch = last.unwrap_or(0).max(stints);
        submission.spec.continues = Some(Continued { job: WorkloadId(id), key, epoch, durable });
        Ok(())
    }
}

fn not_over(job: &JobView) -> Problem {
    let (id, word) = (job.id, job.state.word());
    let (text, hint) = match job.state {
        view::State::Paused => {
            (format!("job {id} is {word}"), format!("it goes on with a higher budget: windfall budget {id} DOLLARS"))
        }
        state if state.is_over() => (
            format!("job {id} is {word}, but its last save or its machine is still on the way"),
            format!("try again when its bill is there: windfall attach {id}"),
        ),
        _ => (format!("job {id} is {word}"), format!("it goes on by itself; watch it with: windfall attach {id}")),
    };
    Problem { hint: Some(hint), ..problem(409, "job-is-not-over", &text) }
}

impl ApiState {
    /// A job as it is, or, where it has ended, as it is once it has given back its machines: that takes a moment.
    async fn settled(&self, id: WorkloadId) -> Result<JobAnswer, Problem> {
        let patience = tokio::time::Instant::now() + SETTLING;
        loop {
            let stands = self.reader.stands();
            let answer = self.reader.job(id).await?;
            let on_the_way = answer.job.state.is_over() && answer.bill.is_none();
            if !on_the_way || tokio::time::Instant::now() >= patience {
                return Ok(answer);
            }
            Reader::changed(stands, LOOK).await;
        }
    }

    /// The checkpoint store of a submission, under a job's key.
    fn store_access(&self, submission: &Submission, key: &str) -> StoreAccess {
        let named = &submission.spec.checkpoint.store;
        let own = || self.reader.archive.home.checkpoints().to_string_lossy().into_owned();
        let env = submission.env.iter().chain(&submission.spec.run.env);
        StoreAccess {
            address: if named.is_empty() { own() } else { named.clone() },
            key: key.to_owned(),
            env: env.map(|(name, value)| (name.clone(), value.clone())).collect(),
            secrets: BTreeMap::new(),
            owner: submission.spec.owner.clone(),
            saved_before: false,
        }
    }
}

fn store_refusal(error: &CheckpointError) -> Problem {
    // A full disk is not the submitter's mistake.
    let status = if probe::is_full(error) { 507 } else { 422 };
    let mut refusal = problem(status, "checkpoint-store", &with_causes(error));
    refusal.hint = error.hint().map(str::to_owned);
    refusal
}

/// What everybody sees of a job: its place in the queue and what it costs, and nothing that a program, a store or a folder
/// of its owner said.
fn for_guests(mut job: JobView) -> JobView {
    job.key.clear();
    (job.trouble, job.told, job.waits_for) = (None, None, None);
    if let Some(Outcome::Failed { why, .. }) = &mut job.outcome {
        why.clear();
    }
    job
}

/// Who asks.
type Asker = ConnectInfo<Principal>;

async fn spec(State(api): State<ApiState>, asker: Asker, Path(id): Path<u64>) -> Result<Json<JobSpec>, Problem> {
    let spec = api.spec_of(id).await?;
    asker.0.must_own(id, &spec.owner)?;
    Ok(Json(spec))
}

async fn hello(State(api): State<ApiState>) -> Result<Json<Hello>, Problem> {
    Ok(Json(api.reader.hello()))
}

async fn shutdown(State(api): State<ApiState>, _: Operator) -> Result<(), Problem> {
    api.ask(Ask::Shutdown).await
}

async fn interrupt(
    State(api): State<ApiState>,
    _: Operator,
    Said(request, _): Said<InterruptRequest>,
) -> Result<(), Problem> {
    api.ask(|reply| Ask::Interrupt(request, reply)).await
}

#[derive(Deserialize)]
struct JobsQuery {
    #[serde(default)]
    all: bool,
    name: Option<String>,
    /// Only jobs below this number: the last one of the page before.
    before: Option<u64>,
    limit: Option<u32>,
}

async fn jobs(
    State(api): State<ApiState>,
    asker: Asker,
    Query(query): Query<JobsQuery>,
) -> Result<Json<Vec<JobView>>, Problem> {
    let most = query.limit.unwrap_or(MOST_LISTED).min(MOST_LISTED);
    let (limit, before) = (most as usize, query.before);
    let mut live = api.reader.live(query.name.as_deref(), before, limit).await;
    if query.all {
        let limit = query.limit.map_or(100, |_| most);
        let wanted = JobQuery { name: query.name, limit, before, ..JobQuery::default() };
        let rows = api.reader.reading(api.reader.archive.store.jobs(&wanted)).await?;
        let rows = rows.map_err(|error| problem(503, "store-refused", &error.to_string()))?;
        let known: BTreeSet<u64> = live.iter().map(|view| view.id.0).collect();
        let ended = rows.into_iter().filter(|row| !known.contains(&row.workload));
        let ended: Vec<JobView> = ended.filter_map(|row| codec::decode(row.version, &row.summary).ok()).collect();
        live.extend(ended);
        live.sort_by_key(|view| std::cmp::Reverse(view.id));
    }
    live.truncate(limit);
    let seen = live.into_iter().map(|job| if asker.0.may_touch(&job.owner) { job } else { for_guests(job) });
    Ok(Json(seen.collect()))
}

async fn job(State(api): State<ApiState>, asker: Asker, Path(id): Path<u64>) -> Result<Json<JobAnswer>, Problem> {
    api.shown(&asker.0, id).await.map(Json)
}

#[derive(Deserialize)]
struct CancelQuery {
    /// Without time to save, and without waiting for what is saved already.
    #[serde(default)]
    now: bool,
}

async fn cancel(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
    Query(query): Query<CancelQuery>,
) -> Result<(), Problem> {
    api.owned(&asker.0, id).await?;
    let (workload, by) = (WorkloadId(id), asker.0.user);
    let cancel = Event::CancelRequested { workload, by: by.clone() };
    let cancelled = api.ask(|reply| Ask::Tell(cancel, reply)).await;
    // One whose program has ended cannot be cancelled, but given up.
    let is_ended = |refused: &Problem| refused.code == JOB_IS_SAVING || refused.code == JOB_IS_OVER;
    if !query.now || cancelled.as_ref().is_err_and(|refused| !is_ended(refused)) {
        return cancelled;
    }
    match api.ask(|reply| Ask::Tell(Event::GiveUpRequested { workload, by }, reply)).await {
        // One that held nothing was over with the cancel.
        Err(refused) if refused.code == JOB_IS_OVER => cancelled,
        given_up => given_up,
    }
}

#[derive(Deserialize)]
struct BudgetBody {
    #[serde(rename = "budget_nanousd")]
    budget: Option<NanoUsd>,
}

async fn budget(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
    Said(body, _): Said<BudgetBody>,
) -> Result<(), Problem> {
    api.owned(&asker.0, id).await?;
    let event = Event::BudgetSet { workload: WorkloadId(id), budget: body.budget, by: asker.0.user };
    api.ask(|reply| Ask::Tell(event, reply)).await
}

async fn explain(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
) -> Result<Json<ExplainAnswer>, Problem> {
    api.owned(&asker.0, id).await?;
    // When it is looked at again only the loop knows. While a database hangs the loop does not answer, and that is not
    // waited for.
    let asked = api.ask(|reply| Ask::Explain(WorkloadId(id), reply));
    let present = tokio::time::timeout(SECOND, asked).await.ok().and_then(Result::ok).flatten();
    api.reader.explain(WorkloadId(id), present).await.map(Json)
}

async fn stints(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
) -> Result<Json<Vec<WorkerView>>, Problem> {
    api.owned(&asker.0, id).await?;
    api.reader.stints(WorkloadId(id)).await.map(Json)
}

/// Where what a job left is to be had.
async fn outputs(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
) -> Result<Json<Option<OutputsAt>>, Problem> {
    let key = api.owned(&asker.0, id).await?.job.key;
    Ok(Json(api.reader.archive.lasting_notes(WorkloadId(id), &key).await?.outputs))
}

/// The parcels of a folder that live jobs need.
async fn folders_used(
    State(api): State<ApiState>,
    _: Operator,
    Path(name): Path<String>,
) -> Result<Json<Vec<CheckpointId>>, Problem> {
    let key = format!("folders/{name}");
    let used = api.reader.durable.read(|brain| {
        let parcels = brain.jobs().filter_map(|job| job.spec.run.luggage().parcel.as_ref());
        parcels.filter(|parcel| parcel.key == key).map(|parcel| parcel.name).collect()
    });
    Ok(Json(used))
}

/// One JSON object a line whenever the job changes, until its bill is settled; an empty line now and then says that
/// somebody is there.
async fn watch(State(api): State<ApiState>, asker: Asker, Path(id): Path<u64>) -> Result<Response, Problem> {
    let first = api.shown(&asker.0, id).await?;
    let lines = stream::unfold((api, Some(first), true), move |(api, known, first)| {
        let asker = asker.0.clone();
        async move {
            let mut known = known?;
            if !first {
                let beat = tokio::time::Instant::now() + BEAT;
                let mut stands = api.reader.stands();
                let changed = loop {
                    if tokio::time::Instant::now() >= beat {
                        break None;
                    }
                    tokio::time::sleep(LOOK).await;
                    // Of a job that holds nothing only a commit tells news, and the clock.
                    if known.job.lease.is_none() && !known.job.state.is_over() {
                        Reader::changed(stands, SECOND.saturating_sub(LOOK)).await;
                    }
                    stands = api.reader.stands();
                    let next = api.shown(&asker, id).await.ok()?;
                    if next != known {
                        break Some(next);
                    }
                };
                let Some(next) = changed else {
                    return Some((Ok(Bytes::from_static(b"\n")), (api, Some(known), false)));
                };
                known = next;
            }
            let mut line = serde_json::to_vec(&known).ok()?;
            line.push(b'\n');
            let next = known.bill.is_none().then_some(known);
            Some((Ok::<_, std::io::Error>(Bytes::from(line)), (api, next, false)))
        }
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

#[derive(Deserialize)]
struct LogsQuery {
    #[serde(default)]
    follow: bool,
    rank: Option<u32>,
}

async fn output(
    State(api): State<ApiState>,
    asker: Asker,
    Path(id): Path<u64>,
    Query(query): Query<LogsQuery>,
) -> Result<Response, Problem> {
    let answer = api.owned(&asker.0, id).await?;
    let rank = query.rank.unwrap_or(0);
    if let Some(last) = answer.job.gang.checked_sub(1).filter(|last| rank > *last) {
        let known = if last == 0 { "one rank, 0".to_owned() } else { format!("ranks 0 to {last}") };
        return Err(problem(422, "no-such-rank", &format!("job {id} has no rank {rank}: it has {known}")));
    }
    let folder = api.reader.archive.home.job(&answer.job.key);
    let over = move || {
        let api = api.clone();
        async move {
            let answer = api.reader.job(WorkloadId(id)).await;
            answer.map_or(true, |answer| answer.bill.is_some())
        }
    };
    let body = Body::from_stream(logs::follow(folder, rank, query.follow, over));
    Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
}
