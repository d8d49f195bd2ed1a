//! Nodes: which have joined and what they do, and what their operator says of them.

use super::ApiState;
use crate::api_types::{DrainRequest, NodeState, NodeView, Problem, RemoveRequest, TokenAnswer, TokenRequest};
use crate::principal::Operator;
use crate::problem;
use axum::Json;
use axum::extract::{Path, State};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use windfall_exec::{Hub, NodeStanding, TOKEN_LIVES, is_on_node};

impl ApiState {
    fn hub(&self) -> Result<&Arc<Hub>, Problem> {
        let none = || Problem {
            hint: Some("`windfall up --listen HOST:PORT` starts one that does".to_owned()),
            ..problem(409, "no-nodes", "this server takes no nodes in")
        };
        self.nodes.as_ref().ok_or_else(none)
    }

    /// The leases on each node, as the log has them: whose they are, and how many accelerators they have.
    fn on_nodes(&self) -> BTreeMap<String, Vec<(Option<u64>, u32)>> {
        let mut on_nodes: BTreeMap<String, Vec<(Option<u64>, u32)>> = BTreeMap::new();
        self.reader.durable.read(|brain| {
            for lease in brain.leases().filter(|lease| lease.ready.as_ref().is_some_and(is_on_node)) {
                let node = lease.terms.node.as_ref().and_then(|node| node.0.split_once('/'));
                let has = (lease.workload.map(|job| job.0), lease.terms.size.accelerators);
                node.into_iter().for_each(|(_, name)| on_nodes.entry(name.to_owned()).or_default().push(has));
            }
        });
        on_nodes
    }
}

/// Every node, for everybody who may ask.
pub(super) async fn list(State(api): State<ApiState>) -> Result<Json<Vec<NodeView>>, Problem> {
    let mut on_nodes = api.on_nodes();
    let view = |node: NodeStanding| {
        let record = node.record;
        let used = on_nodes.remove(&record.name).unwrap_or_default();
        NodeView {
            state: match (&record.drained, node.is_connected) {
                (_, false) => NodeState::Away,
                (Some(_), true) => NodeState::Drained,
                (None, true) => NodeState::Ready,
            },
            drained: record.drained,
            heard_ms: node.heard.map(|heard| heard.as_millis() as u64),
            accelerators: record.inventory.models().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            accelerators_used: used.iter().map(|(_, accelerators)| *accelerators).sum(),
            jobs: used.iter().filter_map(|(job, _)| *job).collect::<BTreeSet<u64>>().into_iter().collect(),
            cpus: record.inventory.cpus,
            memory_bytes: record.inventory.memory_bytes,
            rate: record.rate,
            version: node.build,
            dead_man_ms: record.dead_man_ms,
            name: record.name,
        }
    };
    Ok(Json(api.hub()?.nodes().into_iter().map(view).collect()))
}

/// A token by which a machine can join under this name.
pub(super) async fn token(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<TokenRequest>,
) -> Result<Json<TokenAnswer>, Problem> {
    let token = api.hub()?.new_token(&name, asked.rate).map_err(|why| problem(422, "no-token", &why))?;
    Ok(Json(TokenAnswer { token: token.to_string(), lives_s: TOKEN_LIVES.as_secs() }))
}

/// A node takes nothing new.
pub(super) async fn drain(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<DrainRequest>,
) -> Result<Json<()>, Problem> {
    done(&name, api.hub()?.drain(&name, Some(asked.why)))
}

/// It does again.
pub(super) async fn resume(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<()>, Problem> {
    done(&name, api.hub()?.drain(&name, None))
}

/// A node is none of ours any more. One that has leases stays, unless somebody knows that the machine is gone.
pub(super) async fn remove(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<RemoveRequest>,
) -> Result<Json<()>, Problem> {
    let hub = api.hub()?;
    let leases = api.on_nodes().remove(&name).unwrap_or_default().len();
    let is_connected = hub.nodes().iter().any(|node| node.record.name == name && node.is_connected);
    if leases > 0 && asked.lost && is_connected {
        let text = format!("node {name} is not lost: it is connected, and runs what it has");
        let hint = "drain it and wait, or stop its agent first";
        return Err(Problem { hint: Some(hint.to_owned()), ..problem(409, "in-use", &text) });
    }
    if leases > 0 && !asked.lost {
        let text =
            format!("node {name} is in use: it holds {}", windfall_core::english::counted(leases as u64, "lease"));
        let hint =
            "drain it and wait, or say --lost where the machine is off for good: what runs there is begun elsewhere";
        return Err(Problem { hint: Some(hint.to_owned()), ..problem(409, "in-use", &text) });
    }
    done(&name, hub.remove(&name))
}

fn done(name: &str, known: io::Result<bool>) -> Result<Json<()>, Problem> {
    match known {
        Ok(true) => Ok(Json(())),
        Ok(false) => {
            let unknown = problem(404, "no-such-node", &format!("no node called {name} has joined"));
            Err(Problem { hint: Some("`windfall nodes` lists them".to_owned()), ..unknown })
        }
        Err(error) => Err(problem(503, "not-written", &format!("node {name} cannot be changed: {error}"))),
    }
}
