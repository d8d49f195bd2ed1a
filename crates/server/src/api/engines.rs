//! Engines: what each sells and holds, whether it can be used, and what it has of ours that no log knows.

use super::ApiState;
use crate::api_types::{EngineCalls, EngineChecks, EngineReport, Problem, Stray};
use crate::engines::in_time;
use crate::keeper::Ask;
use crate::principal::Operator;
use crate::problem;
use axum::Json;
use axum::extract::{Path, Query, State};
use serde::Deserialize;
use std::sync::Arc;
use windfall_core::Offer;
use windfall_exec::{Engine, Finding, Owned};

/// Every engine, as it was last seen.
pub(super) async fn list(State(api): State<ApiState>) -> Json<Vec<EngineReport>> {
    let reports = api.reader.durable.read(|brain| {
        let up = brain.up_by_engine();
        let report = |name: String| {
            let offers = brain.offers().filter(|offer| offer.engine == name);
            let (mut markets, mut count) = (std::collections::BTreeSet::new(), 0);
            for offer in offers {
                markets.insert(offer.market);
                count += 1;
            }
            let (leases, hourly) = up.get(&name).copied().unwrap_or_default();
            EngineReport {
                silent_since: brain.silent_since(&name),
                markets: markets.into_iter().collect(),
                offers: count,
                leases,
                hourly,
                limits: api.reader.archive.engines.get(&name).map(|engine| engine.limits()).unwrap_or_default(),
                name,
            }
        };
        api.reader.archive.engines.names().into_iter().map(report).collect::<Vec<_>>()
    });
    Json(reports)
}

/// What each engine needs, looked at now. Nothing is changed.
pub(super) async fn check(_: Operator, State(api): State<ApiState>) -> Json<Vec<EngineChecks>> {
    let check = |engine: Arc<dyn Engine>| async move {
        let name = engine.describe().name;
        let silent = || vec![Finding::missing(&name, "it does not answer", "see what its operator says of it")];
        let checks = in_time(engine.check()).await.unwrap_or_else(silent);
        EngineChecks { name, checks }
    };
    let engines = api.reader.archive.engines.all().cloned();
    Json(futures::future::join_all(engines.map(check)).await)
}

#[derive(Deserialize)]
pub(super) struct CallsQuery {
    #[serde(default)]
    after: u64,
}

/// What an engine was asked lately.
pub(super) async fn calls(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Query(query): Query<CallsQuery>,
) -> Result<Json<EngineCalls>, Problem> {
    let calls = api.reader.archive.engines.calls(&name);
    Ok(Json(calls.ok_or_else(|| no_such(&name))?.after(query.after)))
}

/// What an engine sells at this moment, as it says itself.
pub(super) async fn offers(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<Offer>>, Problem> {
    let engine = api.reader.archive.engines.get(&name).ok_or_else(|| no_such(&name))?;
    let offers = in_time(engine.offers()).await.ok_or_else(|| away(&name, "it does not answer"))?;
    offers.map(Json).map_err(|error| away(&name, &error.to_string()))
}

/// What an engine holds at this moment, as it says itself.
pub(super) async fn leases(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<Vec<String>>, Problem> {
    let engine = api.reader.archive.engines.get(&name).ok_or_else(|| no_such(&name))?;
    let owned = in_time(engine.list_owned()).await.ok_or_else(|| away(&name, "it does not answer"))?;
    let owned = owned.map_err(|error| away(&name, &error.to_string()))?;
    let held = owned.iter().filter(|owned| owned.until.is_none());
    Ok(Json(held.map(|owned| owned.lease.to_string()).collect()))
}

/// Has the server look for strays now, and end those that it finds.
pub(super) async fn sweep(_: Operator, State(api): State<ApiState>) -> Result<(), Problem> {
    api.ask(Ask::Sweep).await
}

fn no_such(name: &str) -> Problem {
    let hint = Some("`windfall engines` lists them".to_owned());
    Problem { hint, ..problem(404, "no-such-engine", &format!("there is no engine {name}")) }
}

fn away(name: &str, why: &str) -> Problem {
    problem(502, "engine-silent", &format!("{name}: {why}"))
}

#[derive(Deserialize)]
pub(super) struct StraysQuery {
    /// Only those of this one: another one may not answer.
    engine: Option<String>,
}

/// What engines hold with our mark that the log does not know. The server ends such leases by itself, a while after it has seen them.
pub(super) async fn strays(
    _: Operator,
    State(api): State<ApiState>,
    Query(query): Query<StraysQuery>,
) -> Result<Json<Vec<Stray>>, Problem> {
    let mut strays = Vec::new();
    for engine in api.reader.archive.engines.all() {
        let name = engine.describe().name;
        if query.engine.as_ref().is_some_and(|asked| *asked != name) {
            continue;
        }
        let owned = in_time(engine.list_owned()).await;
        let owned = owned.ok_or_else(|| away(&name, "it does not answer"))?;
        let owned = owned.map_err(|error| away(&name, &error.to_string()))?;
        api.reader.durable.read(|brain| {
            // What another server has in the same place is that one's.
            let is_ours = |owned: &&Owned| owned.lease.group.installation == brain.installation();
            let is_stray = |owned: &&Owned| owned.until.is_none() && brain.lease(owned.lease).is_none();
            let unknown = owned.iter().filter(is_ours).filter(is_stray);
            strays.extend(unknown.map(|owned| Stray {
                engine: name.clone(),
                lease: owned.lease.to_string(),
                offer: owned.offer.to_string(),
                since: owned.since,
            }));
        });
    }
    Ok(Json(strays))
}
