//! Engines: what each sells and holds, whether it can be used, and what it has of ours that no log knows.

use super::ApiState;
use crate::api_types::{EngineChecks, EngineReport, Problem, Stray};
use crate::engines::in_time;
use crate::principal::Operator;
use axum::Json;
use axum::extract::State;
use std::sync::Arc;
use windfall_exec::{Engine, Finding};

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

/// What engines hold with our mark that the log does not know. The server ends such leases by itself, a while after it has seen them.
pub(super) async fn strays(_: Operator, State(api): State<ApiState>) -> Result<Json<Vec<Stray>>, Problem> {
    let mut strays = Vec::new();
    for engine in api.reader.archive.engines.all() {
        let name = engine.describe().name;
        let owned = in_time(engine.list_owned()).await;
        let away = |why: &str| crate::problem(502, "engine-silent", &format!("{name}: {why}"));
        let owned = owned.ok_or_else(|| away("it does not answer"))?.map_err(|error| away(&error.to_string()))?;
        api.reader.durable.read(|brain| {
            let unknown = owned.iter().filter(|owned| owned.until.is_none() && brain.lease(owned.lease).is_none());
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
