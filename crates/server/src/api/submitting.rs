//! A job is submitted: who may, and what is looked at before the loop sees it.

use super::said::Said;
use super::{ApiState, store_refusal};
use crate::api_types::{Accepted, Problem, Submission};
use crate::dispatch::StoreProbe;
use crate::keeper::Ask;
use crate::principal::Principal;
use crate::problem;
use crate::submitters::{self, Probe};
use axum::Json;
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::request::Parts;
use windfall_exec::{Account, Directory};

/// Somebody who may submit. Judged before the body of a request is read.
pub(super) struct Submitter(Principal);

impl FromRequestParts<ApiState> for Submitter {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Submitter, Problem> {
        let asker = parts.extensions.get::<ConnectInfo<Principal>>();
        let asker = asker.map(|asker| asker.0.clone()).ok_or_else(|| problem(403, "not-allowed", "nobody asks"))?;
        if !api.runs_as_submitters {
            // Programs run as the user of the server: nobody else runs any here.
            asker.must_operate(&format!("{} {}", parts.method, parts.uri.path()))?;
        } else if !asker.is_operator() && account_of(&asker).await?.is_none() {
            let text =
                format!("not allowed to `{}`: programs run as their submitters, and this is no account", asker.user);
            return Err(problem(403, "not-allowed", &text));
        }
        // What it submits is written down as somebody's.
        asker.must_be_named()?;
        Ok(Submitter(asker))
    }
}

async fn account_of(asker: &Principal) -> Result<Option<Account>, Problem> {
    asker.must_be_named()?;
    let found = Directory::of_this_machine().account(&asker.user).await;
    found.map_err(|silent| problem(503, "directory-silent", &silent.to_string()))
}

/// Checks the checkpoint store before the first lease is paid for, then hands the job over.
pub(super) async fn submit(
    State(api): State<ApiState>,
    Submitter(asker): Submitter,
    Said(mut submission, said): Said<Submission>,
) -> Result<Json<Accepted>, Problem> {
    submission.spec.owner.clone_from(&asker.user);
    // What it goes on from is found by its number: nobody names another's checkpoints.
    submission.spec.continues = None;
    let plain =
        |key: &str| !key.is_empty() && key.len() <= 64 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if !plain(&submission.key) {
        return Err(problem(422, "bad-key", "a submission's key is letters, digits and dashes"));
    }
    let own = api.reader.archive.home.checkpoints();
    submitters::names_nothing_of_others(&asker, &mut submission, &own)?;
    if let Some(id) = submission.continues {
        api.go_on_from(&asker, id, &mut submission).await?;
        // It goes on in the store of that one.
        submitters::names_nothing_of_others(&asker, &mut submission, &own)?;
    }
    if let Some(path) = &submission.spec.checkpoint.path
        && let Some(other) = api.reader.saver_at(path)
    {
        api.settled(other).await?;
    }
    if submission.spec.checkpoint.store.starts_with("relay:") {
        // Only servers name such stores, to agents of their own nodes.
        return Err(problem(422, "checkpoint-store", "checkpoints cannot be kept in a relay"));
    }
    check_store(&api, &submission).await?;
    let known = api.reader.durable.read(|brain| brain.submitted_as(&submission.key));
    if let Some(known) = known {
        return Ok(Json(Accepted { id: known.0, notes: Vec::new() }));
    }
    if api.reader.must_knock() {
        api.ask(|reply| Ask::Knock(submission.key.clone(), reply)).await?;
    }
    let prepared = api.reader.prepare(submission, said).await?;
    api.ask(|reply| Ask::Submit(Box::new(prepared), reply)).await.map(Json)
}

/// Whether the store can hold the job's checkpoints.
async fn check_store(api: &ApiState, submission: &Submission) -> Result<(), Problem> {
    let access = || api.store_access(submission, &submission.key);
    if submitters::is_seen_as_owner(&submission.spec.owner, &submission.spec.checkpoint.store) {
        let trouble = Probe.probe(&access()).await;
        return trouble.map_or(Ok(()), |trouble| Err(problem(422, "checkpoint-store", &trouble.text)));
    }
    let environments = [&submission.env, &submission.spec.run.env];
    let looked = api.probes.check(&submission.spec.checkpoint.store, environments, access).await;
    looked.map_err(|error| store_refusal(&error))
}
