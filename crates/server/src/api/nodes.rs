//! Nodes: which have joined and what they do, and what their operator says of them.

use super::ApiState;
use crate::api_types::{
    DeviceView, DrainRequest, LabelsRequest, NodeDetail, NodeState, NodeView, Problem, RemoveRequest, SymptomView,
    TokenAnswer, TokenRequest, UserView,
};
use crate::logs::plain;
use crate::principal::Operator;
use crate::problem;
use crate::serve::MACHINES;
use axum::Json;
use axum::extract::{Path, State};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use windfall_core::english::with_causes;
use windfall_core::health::draining;
use windfall_core::nearest::nearest;
use windfall_core::{LeaseId, WorkloadId};
use windfall_exec::{Accelerator, Hub, NodeStanding, NotALabel, NotLabelled, TOKEN_LIVES, node_of};

/// A lease on a node: whose it is, and how many accelerators it has.
struct OnNode {
    id: LeaseId,
    users: Vec<UserView>,
    accelerators: u32,
}

impl ApiState {
    fn hub(&self) -> Result<&Arc<Hub>, Problem> {
        let none = || Problem {
            hint: Some(
                "`windfall up --local` or `windfall up --listen HOST:PORT` starts one that has machines".to_owned(),
            ),
            ..problem(409, "no-nodes", "this server replays a recorded market and has no machines")
        };
        self.nodes.as_ref().ok_or_else(none)
    }

    /// The leases on each machine, as the log has them.
    fn on_nodes(&self) -> BTreeMap<String, Vec<OnNode>> {
        let own = self.nodes.as_ref().and_then(|hub| hub.own_name());
        let mut on_nodes: BTreeMap<String, Vec<OnNode>> = BTreeMap::new();
        self.reader.durable.read(|brain| {
            for lease in brain.leases() {
                // One that is on no node may be on the server's own computer; other engines have machines as well.
                let of_machines =
                    lease.terms.node.as_ref().and_then(|id| id.0.strip_prefix(MACHINES)?.strip_prefix('/'));
                let own = own.filter(|own| of_machines == Some(*own));
                let Some(node) = lease.ready.as_ref().and_then(|at| node_of(at).or(own)) else { continue };
                let user = |id: WorkloadId| {
                    // What is over does not run there, though its lease be not given back yet.
                    let job = brain.job(id).filter(|job| job.ended.is_none())?;
                    Some(UserView { job: id.0, name: job.spec.name.clone(), owner: job.spec.owner.clone() })
                };
                let users = lease.workloads().filter_map(user).collect();
                let has = OnNode { id: lease.id, users, accelerators: lease.terms.size.accelerators };
                on_nodes.entry(node.to_owned()).or_default().push(has);
            }
        });
        on_nodes
    }
}

/// Every node, for everybody who may ask.
pub(super) async fn list(State(api): State<ApiState>) -> Result<Json<Vec<NodeView>>, Problem> {
    let mut on_nodes = api.on_nodes();
    let view = |node: NodeStanding| {
        let used = on_nodes.remove(&node.record.name).unwrap_or_default();
        view(&node, &used)
    };
    Ok(Json(api.hub()?.all_nodes().into_iter().map(view).collect()))
}

fn view(node: &NodeStanding, used: &[OnNode]) -> NodeView {
    let record = &node.record;
    let worst = draining(&record.symptoms).into_iter().next();
    let drained = record.drained.as_deref().map(plain).or_else(|| worst.map(|worst| worst.to_string()));
    NodeView {
        state: match (&drained, node.is_connected) {
            (_, false) => NodeState::Away,
            (Some(_), true) => NodeState::Drained,
            (None, true) => NodeState::Ready,
        },
        drained,
        labels: record.all_labels(),
        domains: record.domains(),
        symptoms: record.symptoms.iter().cloned().map(SymptomView::from).collect(),
        heard_ms: node.heard.map(|heard| heard.as_millis() as u64),
        accelerators: record.inventory.models().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        accelerators_used: used.iter().map(|lease| lease.accelerators).sum(),
        jobs: used
            .iter()
            .flat_map(|lease| &lease.users)
            .map(|user| user.job)
            .collect::<BTreeSet<u64>>()
            .into_iter()
            .collect(),
        cpus: record.inventory.cpus,
        memory_bytes: record.inventory.memory_bytes,
        rate: record.rate,
        version: node.build.clone(),
        dead_man_ms: record.dead_man_ms,
        programs: record.programs.clone(),
        is_server: record.is_server,
        name: record.name.clone(),
    }
}

/// One node with all that is known of it.
pub(super) async fn one(State(api): State<ApiState>, Path(name): Path<String>) -> Result<Json<NodeDetail>, Problem> {
    let hub = api.hub()?;
    let Some(node) = hub.all_nodes().into_iter().find(|node| node.record.name == name) else {
        return Err(no_such_node(hub, &name));
    };
    let used = api.on_nodes().remove(&name).unwrap_or_default();
    let devices_of = api.machines.as_ref().map(|machines| machines.devices_on(&name)).unwrap_or_default();
    let has = |lease: &OnNode, device: &str| {
        devices_of.get(&lease.id).is_some_and(|devices| devices.iter().any(|one| one == device))
    };
    let users = |device: &str| -> Vec<UserView> {
        used.iter().filter(|lease| has(lease, device)).flat_map(|lease| lease.users.iter().cloned()).collect()
    };
    let health = node.health.clone().unwrap_or_default();
    let here = node.record.present().accelerators;
    let lost = node.record.inventory.accelerators.iter().filter(|one| !here.contains(one));
    let lost: Vec<_> = lost.chain(&node.record.missing).cloned().collect();
    let device = |(accelerator, is_gone): (Accelerator, bool)| DeviceView {
        celsius: health.devices.iter().find(|one| one.device == accelerator.device).and_then(|one| one.celsius),
        users: users(&accelerator.device),
        is_gone,
        accelerator,
    };
    let all = here.into_iter().map(|one| (one, false)).chain(lost.into_iter().map(|one| (one, true)));
    Ok(Json(NodeDetail {
        devices: all.map(device).collect(),
        others: used.iter().filter(|lease| lease.accelerators == 0).flat_map(|lease| lease.users.clone()).collect(),
        disk: health.disk,
        server_ahead_ms: health.server_ahead_ms,
        node: view(&node, &used),
    }))
}

/// What is said of nodes changes: of all that are named, or of none.
pub(super) async fn label(
    Operator: Operator,
    State(api): State<ApiState>,
    Json(asked): Json<LabelsRequest>,
) -> Result<Json<()>, Problem> {
    let hub = api.hub()?;
    hub.label(&asked.nodes).map(Json).map_err(|error| match &error {
        NotLabelled::NoNode { name } => no_such_node(hub, name),
        NotLabelled::Bad { .. } => {
            Problem { hint: Some(NotALabel::HINT.to_owned()), ..problem(422, "bad-label", &error.to_string()) }
        }
        NotLabelled::Twice { .. } => {
            Problem { hint: Some("say it once".to_owned()), ..problem(422, "bad-label", &error.to_string()) }
        }
        NotLabelled::NotThere { name, .. } => Problem {
            hint: Some(format!(
                "`windfall node {name}` shows what it has; what its agent says of itself is changed there: agent join --label"
            )),
            ..problem(422, "no-such-label", &error.to_string())
        },
        NotLabelled::NotWritten(_) => problem(503, "not-written", &with_causes(&error)),
    })
}

/// The error for a node that is not there, with the name that may have been meant.
fn no_such_node(hub: &Hub, name: &str) -> Problem {
    let names: Vec<String> = hub.all_nodes().into_iter().map(|node| node.record.name).collect();
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean {meant}? `windfall nodes` lists them"),
        None => "`windfall nodes` lists them".to_owned(),
    };
    Problem { hint: Some(hint), ..problem(404, "no-such-node", &format!("there is no node called {name}")) }
}

/// A token by which a machine can join under this name.
pub(super) async fn token(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<TokenRequest>,
) -> Result<Json<TokenAnswer>, Problem> {
    let hub = api.hub()?;
    if !hub.takes_nodes() {
        return Err(Problem {
            hint: Some("`windfall up --listen HOST:PORT` starts one that does".to_owned()),
            ..problem(409, "no-nodes", "this server takes no nodes in")
        });
    }
    if hub.nodes().iter().any(|node| node.record.name == name) {
        let hint = format!(
            "that machine needs no other token: `windfall agent join` there; for another one choose another name, or \
             `windfall nodes remove {name}` first"
        );
        let text = format!("a node called {name} has joined already");
        return Err(Problem { hint: Some(hint), ..problem(409, "no-token", &text) });
    }
    let token = hub.new_token(&name, asked.rate).map_err(|why| problem(422, "no-token", &why))?;
    Ok(Json(TokenAnswer { token: token.to_string(), lives_s: TOKEN_LIVES.as_secs() }))
}

/// A node takes nothing new.
pub(super) async fn drain(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<DrainRequest>,
) -> Result<Json<()>, Problem> {
    let hub = api.hub()?;
    done(hub, &name, hub.drain(&name, reason_of(&asked.why)))
}

/// The longest reason for people.
const LONGEST_REASON: usize = 200;

/// A reason in one line: it is printed on everybody's terminal.
fn reason_of(text: &str) -> String {
    let text: String = plain(text).trim().chars().take(LONGEST_REASON).collect();
    if text.is_empty() { "by its operator".to_owned() } else { text }
}

/// It does again.
pub(super) async fn resume(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
) -> Result<Json<()>, Problem> {
    let hub = api.hub()?;
    if hub.is_leaving(&name) {
        let text = format!("{name} is this server's own computer, which is for jobs no more (--local=false)");
        let hint = Some("start the server with it again: `windfall down`, then `windfall up --local`".to_owned());
        return Err(Problem { hint, ..problem(409, "node-leaves", &text) });
    }
    done(hub, &name, hub.resume(&name))
}

/// A node is none of ours any more. One that has leases stays, unless somebody knows that the machine is gone.
pub(super) async fn remove(
    _: Operator,
    State(api): State<ApiState>,
    Path(name): Path<String>,
    Json(asked): Json<RemoveRequest>,
) -> Result<Json<()>, Problem> {
    let hub = api.hub()?;
    if hub.own_name() == Some(name.as_str()) {
        let hint = format!("`windfall nodes drain {name}` keeps work from it");
        let text = format!("{name} is the computer that this server runs on");
        return Err(Problem { hint: Some(hint), ..problem(409, "own-computer", &text) });
    }
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
    done(hub, &name, hub.remove(&name))
}

fn done(hub: &Hub, name: &str, known: io::Result<bool>) -> Result<Json<()>, Problem> {
    match known {
        Ok(true) => Ok(Json(())),
        Ok(false) => Err(no_such_node(hub, name)),
        Err(error) => Err(problem(503, "not-written", &format!("node {name} cannot be changed: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_that_no_terminal_obeys() {
        assert_eq!(reason_of("a\nb \x1b[31mred\x1b[0m\x07"), "a b red");
        assert_eq!(reason_of(" \x1b[2J "), "by its operator");
        assert_eq!(reason_of(&"x".repeat(1_000)).len(), LONGEST_REASON);
    }
}
