//! The machines that have joined, and joining.

use super::config::settled_join;
use super::said_once::SaidOnce;
use super::topology;
use super::worlds::{bad_accelerators, bad_rate};
use crate::args::{JoinArgs, NodesArgs, NodesCommand};
use crate::config::{Wrong, values};
use crate::fitted::{Column, fitted, wrapped};
use crate::here::{Here, agent_state};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::time::Duration;
use windfall_core::Span;
use windfall_core::english::{counted, with_causes};
use windfall_exec::{
    Accounts, Inventory, JoinToken, LabelChange, Labels, NODE_NAME, NodeError, NodeSettings, NotALabel, NotWelcome,
    is_node_name, serve_node,
};
use windfall_server::api_types::{DrainRequest, LabelsRequest, NodeView, RemoveRequest, TokenAnswer, TokenRequest};
use windfall_server::client::{Client, Code, Failure};

pub async fn nodes(here: &Here, args: &NodesArgs) -> Result<Code, Failure> {
    args.command.as_ref().and_then(NodesCommand::name).map_or(Ok(()), bad_name)?;
    let labels = labels_of(here, args.command.as_ref())?;
    let client = server(here).await?;
    match args.command.as_ref().unwrap_or(&NodesCommand::List) {
        NodesCommand::List => list(here, &client).await,
        NodesCommand::Token { name, rate } => {
            rate.map_or(Ok(()), bad_rate)?;
            let asked = TokenRequest { rate: values::nano_usd(rate.unwrap_or(0.0)) };
            let answer: TokenAnswer = client.post(&format!("/v1/nodes/{name}/token"), &asked).await?;
            if here.json {
                println!("{}", serde_json::to_string(&answer).expect("an answer has string keys"));
                return Ok(Code::Done);
            }
            println!("{}", answer.token);
            let lives = Span(i64::try_from(answer.lives_s * 1_000).unwrap_or(i64::MAX));
            eprintln!(
                "good once, for {lives}: windfall agent join HOST:PORT --token TOKEN on the machine that becomes {name}"
            );
            Ok(Code::Done)
        }
        NodesCommand::Drain { name, why } => {
            let asked = DrainRequest { why: why.clone() };
            change(here, &client, name, "drain", &asked, "takes nothing new; what runs there goes on").await
        }
        NodesCommand::Resume { name } => change(here, &client, name, "resume", &(), "takes work again").await,
        NodesCommand::Label { .. } | NodesCommand::Topology { .. } => label(here, &client, labels).await,
        NodesCommand::Remove { name, lost } => {
            let asked = RemoveRequest { lost: *lost };
            change(here, &client, name, "remove", &asked, "is no node of this server any more").await
        }
    }
}

/// Fails where this cannot be a node's name.
pub(super) fn bad_name(name: &str) -> Result<(), Failure> {
    if is_node_name(name) {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, format!("`{name}` cannot be a node's name"));
    Err(failure.hint(NODE_NAME))
}

/// The server, which must run.
pub(super) async fn server(here: &Here) -> Result<Client, Failure> {
    let client = here.client();
    if client.greet().await?.is_none() {
        client.cannot_start().map_or(Ok(()), Err)?;
        let none = Failure::new(Code::Unreachable, format!("no server runs on {}", here.home.display()));
        return Err(none.hint(
            "`windfall up` starts it; the first time with --local or --listen HOST:PORT, so that it has machines",
        ));
    }
    Ok(client)
}

type LabelChanges = BTreeMap<String, Vec<LabelChange>>;

/// The labels that a command changes, checked before anybody is asked.
fn labels_of(here: &Here, command: Option<&NodesCommand>) -> Result<LabelChanges, Failure> {
    match command {
        Some(NodesCommand::Label { name, labels }) => {
            let changes = labels.iter().map(|text| text.parse()).collect::<Result<_, NotALabel>>();
            let changes = changes.map_err(not_a_label)?;
            Ok(BTreeMap::from([(name.clone(), changes)]))
        }
        Some(NodesCommand::Topology { file }) => {
            topology::read(file).map_err(|error| here.bad_configuration(&Wrong::File(error)))
        }
        _ => Ok(LabelChanges::new()),
    }
}

fn not_a_label(error: NotALabel) -> Failure {
    Failure::new(Code::BadInput, error.to_string()).hint(NotALabel::HINT)
}

async fn label(here: &Here, client: &Client, nodes: LabelChanges) -> Result<Code, Failure> {
    let () = client.post("/v1/nodes/labels", &LabelsRequest { nodes: nodes.clone() }).await?;
    if here.json {
        println!("{}", serde_json::json!({ "nodes": nodes.keys().collect::<Vec<_>>(), "done": "label" }));
        return Ok(Code::Done);
    }
    for (name, changes) in nodes {
        let changes: Vec<String> = changes.iter().map(LabelChange::to_string).collect();
        println!("{name} {}", changes.join(" "));
    }
    Ok(Code::Done)
}

async fn change(
    here: &Here,
    client: &Client,
    name: &str,
    what: &str,
    asked: &impl serde::Serialize,
    said: &str,
) -> Result<Code, Failure> {
    let () = client.post(&format!("/v1/nodes/{name}/{what}"), asked).await?;
    if here.json {
        println!("{}", serde_json::json!({ "node": name, "done": what }));
    } else {
        println!("{name} {said}");
    }
    Ok(Code::Done)
}

async fn list(here: &Here, client: &Client) -> Result<Code, Failure> {
    let nodes: Vec<NodeView> = client.get("/v1/nodes").await?;
    if here.json {
        println!("{}", serde_json::to_string(&nodes).expect("nodes have string keys"));
        return Ok(Code::Done);
    }
    if nodes.is_empty() {
        println!("no machine has joined");
        eprintln!("hint: windfall nodes token NAME makes a token to join by");
        return Ok(Code::Done);
    }
    print!("{}", table(&nodes, crate::live::width()));
    Ok(Code::Done)
}

/// A line for each node, and below it what somebody should know of it.
fn table(nodes: &[NodeView], width: usize) -> String {
    let cells = |cell: fn(&NodeView) -> String| nodes.iter().map(cell).collect::<Vec<String>>();
    let as_whom = |node: &NodeView| node.programs.as_ref().map(ToString::to_string).unwrap_or_default();
    let columns = vec![
        Column::words("NODE", 0, cells(|node| node.name.clone())),
        Column::words("STATE", 0, cells(|node| node.state.word().to_owned())),
        Column::figures("ACCELERATORS", 1, cells(accelerators)),
        Column::figures("CPUS", 3, cells(|node| node.cpus.to_string())),
        Column::words("RUNS AS", 4, cells(as_whom)),
        Column::words("JOBS", 2, cells(jobs)),
    ];
    let table = fitted(columns, width);
    let mut lines = table.lines();
    let head = lines.next().into_iter().map(str::to_owned);
    let indent = |line: &str| format!("  {line}");
    let of_nodes = nodes.iter().zip(lines).flat_map(|(node, line)| {
        let remark = remark(node).map(|remark| wrapped(&remark, width.saturating_sub(2))).unwrap_or_default();
        std::iter::once(line.to_owned()).chain(remark.lines().map(indent).collect::<Vec<_>>())
    });
    head.chain(of_nodes).map(|line| line + "\n").collect()
}

/// How many are in use, of how many of what.
fn accelerators(node: &NodeView) -> String {
    let models = node.accelerators.iter().map(|(model, count)| format!("{model}:{count}"));
    let models: Vec<String> = models.collect();
    if models.is_empty() { "-".to_owned() } else { format!("{} of {}", node.accelerators_used, models.join(",")) }
}

fn jobs(node: &NodeView) -> String {
    let numbers: Vec<String> = node.jobs.iter().take(8).map(u64::to_string).collect();
    let more = node.jobs.len().saturating_sub(numbers.len());
    let more = if more > 0 { format!(" and {}", counted(more as u64, "more")) } else { String::new() };
    if numbers.is_empty() { "-".to_owned() } else { format!("{}{more}", numbers.join(", ")) }
}

/// What somebody should know of a node that is not simply there.
pub(super) fn remark(node: &NodeView) -> Option<String> {
    let dead_man = Span(i64::try_from(node.dead_man_ms).unwrap_or(i64::MAX));
    let away = || {
        let is_over = node.heard_ms.is_some_and(|heard| heard >= node.dead_man_ms);
        let heard = match node.heard_ms {
            Some(heard) => format!("not heard for {}", Span(i64::try_from(heard).unwrap_or(i64::MAX))),
            None => "not heard since the server began".to_owned(),
        };
        match (node.jobs.is_empty(), is_over) {
            (true, _) => heard,
            (false, true) => format!("{heard}: what ran there has ended by itself by now, and is begun elsewhere"),
            (false, false) => {
                format!("{heard}: what runs there ends by itself after {dead_man}, and is begun elsewhere then")
            }
        }
    };
    let is_away = node.state == windfall_server::api_types::NodeState::Away;
    is_away.then(away).or_else(|| node.drained.clone())
}

/// Joins a server with this machine and serves it.
pub fn join(args: JoinArgs, json: bool) -> Result<Code, Failure> {
    let once = args.once;
    let said = args.clone();
    let args = settled_join(args, json)?;
    bad_accelerators(&args.accelerators)?;
    check_run_as(args.run_as.as_deref())?;
    let state = agent_state(args.state)?;
    let token = token(args.token, args.token_file)?;
    // What is said of a machine as it joins holds until it is said again.
    let said = (once || token.is_some()).then_some(said);
    let settings = NodeSettings {
        state: state.clone(),
        server: args.server.as_deref().map(address).transpose()?,
        token,
        name: args.name,
        accelerators: args.accelerators.iter().filter_map(|text| values::stated(text)).collect(),
        labels: own_labels(&args.labels)?,
        program: PathBuf::from("/proc/self/exe"),
        accounts: Accounts { run_as: args.run_as, allow_root: args.as_root, machine: String::new() },
        pilot: false,
    };
    windfall_server::home::private();
    windfall_agent::stay_when_memory_is_short();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let (has_joined, kept) = (tokio::sync::Notify::new(), std::cell::RefCell::new(Ok(())));
    let joined = |name: &str, inventory: &Inventory| {
        println!("this machine is node {name}: {inventory}");
        let _ = std::io::stdout().flush();
        let keep = |said: &JoinArgs| SaidOnce::of(&state)?.and(said).write(&state);
        *kept.borrow_mut() = said.as_ref().map_or(Ok(()), keep);
        has_joined.notify_one();
    };
    let served = runtime.block_on(async {
        let mut ends = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
        tokio::select! {
            served = serve_node(settings, joined) => served.map_err(failure),
            _ = ends.recv() => Ok(()),
            _ = tokio::signal::ctrl_c() => Ok(()),
            () = has_joined.notified(), if once => Ok(()),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    served?;
    kept.into_inner().map(|()| Code::Done)
}

/// What somebody says of this machine.
fn own_labels(texts: &[String]) -> Result<Labels, Failure> {
    let mut labels = Labels::new();
    for text in texts {
        match text.parse() {
            Ok(LabelChange::Set { key, value }) => _ = labels.insert(key, value),
            Ok(LabelChange::Remove { .. }) => return Err(not_a_label(NotALabel { text: text.clone() })),
            Err(error) => return Err(not_a_label(error)),
        }
    }
    Ok(labels)
}

/// Refuses an account that could never run anything.
fn check_run_as(name: Option<&str>) -> Result<(), Failure> {
    let Some(name) = name else { return Ok(()) };
    let refused = |text: String, hint: &str| Err(Failure::new(Code::BadInput, text).hint(hint));
    if !rustix::process::geteuid().is_root() {
        return refused("--run-as: only root can run programs as others".to_owned(), "join as root, or leave it out");
    }
    match windfall_exec::look_up(name) {
        None => {
            refused(format!("--run-as: no account of this machine: {name}"), "useradd --create-home NAME makes one")
        }
        Some(account) if account.uid == 0 => {
            refused(format!("--run-as: that is root: {name}"), "--as-root lets root's own jobs run as root")
        }
        Some(_) => Ok(()),
    }
}

fn failure(error: NodeError) -> Failure {
    let code = match &error {
        NodeError::Unreachable { .. } => Code::Unreachable,
        NodeError::NotWelcome(NotWelcome::Trouble { .. } | NotWelcome::Twice) => Code::Unreachable,
        _ => Code::BadInput,
    };
    Failure::new(code, with_causes(&error)).hint(error.hint())
}

/// HOST:PORT of what somebody wrote.
fn address(text: &str) -> Result<String, Failure> {
    let none = || Failure::new(Code::BadInput, format!("not the address of a server: {text}"));
    values::server_address(text).ok_or_else(|| none().hint("HOST:PORT, as `windfall up --listen` was told"))
}

fn token(given: Option<String>, file: Option<PathBuf>) -> Result<Option<JoinToken>, Failure> {
    let text = match file {
        Some(file) if file.as_os_str() == "-" => {
            let mut text = String::new();
            let read = std::io::stdin().take(1 << 10).read_to_string(&mut text);
            read.map_err(|error| Failure::new(Code::BadInput, format!("no token on standard input: {error}")))?;
            Some(text)
        }
        Some(file) => {
            let unread = |error| Failure::new(Code::BadInput, format!("{} cannot be read: {error}", file.display()));
            Some(std::fs::read_to_string(&file).map_err(unread)?)
        }
        None => given.or_else(|| std::env::var("WINDFALL_JOIN_TOKEN").ok()),
    };
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(|why: String| {
        Failure::new(Code::BadInput, why).hint("`windfall nodes token NAME` on the server makes one")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away(heard_ms: Option<u64>, jobs: &[u64]) -> NodeView {
        let node = serde_json::json!({
            "name": "m-a", "state": "away", "drained": null, "heard_ms": heard_ms, "accelerators": {"H200": 8},
            "accelerators_used": 0, "jobs": jobs, "cpus": 4, "memory_bytes": 1, "rate_nanousd": 0, "version": null,
            "dead_man_ms": 120_000,
        });
        serde_json::from_value(node).expect("it works")
    }

    #[test]
    fn nodes_fit_into_a_narrow_terminal() {
        let nodes = [away(Some(60_000), &[7]), NodeView { name: "a-rather-long-name".to_owned(), ..away(None, &[]) }];
        let [wide, narrow] = [100, 40].map(|width| table(&nodes, width));
        assert!(wide.starts_with("NODE") && wide.contains("CPUS") && wide.contains("JOBS"), "{wide}");
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("a-rather-long-name") && !narrow.contains("CPUS"), "{narrow}");
        assert!(narrow.lines().count() > wide.lines().count(), "remarks go on in the next line: {narrow}");
    }

    #[test]
    fn a_node_that_is_away_ends_only_what_it_runs_and_only_once() {
        let remark_of = |heard_ms, jobs: &[u64]| remark(&away(heard_ms, jobs)).expect("it works");
        assert_eq!(remark_of(Some(60_000), &[]), "not heard for 1m 0s");
        assert!(remark_of(Some(60_000), &[7]).contains("ends by itself after 2m 0s"));
        assert!(remark_of(Some(180_000), &[7]).contains("has ended by itself by now"));
        assert!(remark_of(None, &[7]).contains("ends by itself after 2m 0s"));
    }
}
