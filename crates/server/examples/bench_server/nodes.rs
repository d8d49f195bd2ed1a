//! Very many machines that have joined: each is the agent of a node as it is, with a key and a connection of its own; only
//! the machines are not there. Half of them fall silent at once, and come back at once.

use crate::Failure;
use crate::server::Server;
use crate::table::Figure;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windfall_core::NanoUsd;
use windfall_exec::{Accounts, NodeSettings, Stated, serve_node};
use windfall_server::api_types::{NodeState, NodeView, TokenAnswer, TokenRequest};
use windfall_server::client::Client;

/// How long the server is looked at while nothing happens.
const STEADY: Duration = Duration::from_secs(20);
/// Nobody waits longer for anything here.
const LIMIT: Duration = Duration::from_secs(180);
/// A node that is silent is noticed within this.
const NOTICED: f64 = 30.0;

/// Half of the nodes, in a process of their own.
struct Half {
    child: Child,
}

impl Half {
    fn start(folder: &Path, server: &str, tokens: &[String]) -> Result<Half, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["nodes-of", &folder.display().to_string(), server])
            .stdin(Stdio::piped())
            .spawn()?;
        let mut input = child.stdin.take().ok_or("a process without input")?;
        input.write_all(tokens.join("\n").as_bytes())?;
        Ok(Half { child })
    }

    fn signal(&self, signal: rustix::process::Signal) -> Result<(), Failure> {
        Ok(rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)?)
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where nodes keep what they have. Two thousand machines have two thousand disks; one disk for all of them would be what is
/// measured, so it is memory where that can be had.
struct Disks {
    at: PathBuf,
}

impl Disks {
    fn new(folder: &Path) -> Disks {
        let memory = Path::new("/dev/shm");
        let at = match memory.is_dir() {
            true => memory.join(format!("windfall-bench-{}", std::process::id())),
            false => folder.to_owned(),
        };
        Disks { at }
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.at);
    }
}

/// The nodes of one process: a token a line on standard input.
pub fn serve_nodes(words: &[String]) -> Result<(), Failure> {
    let [folder, server] = words else { return Err("nodes-of FOLDER HOST:PORT".into()) };
    let tokens: Vec<String> = BufReader::new(std::io::stdin()).lines().collect::<Result<_, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let nodes = tokens.iter().enumerate().map(|(number, token)| {
            let settings = NodeSettings {
                state: PathBuf::from(folder).join(number.to_string()),
                server: Some(server.clone()),
                token: token.parse().ok(),
                name: None,
                accelerators: vec![Stated { model: "H100".to_owned(), count: 8 }],
                labels: Default::default(),
                program: PathBuf::from("/bin/false"),
                accounts: Accounts { allow_root: true, ..Accounts::default() },
                pilot: false,
            };
            tokio::spawn(async move {
                if let Err(error) = serve_node(settings, |_, _| ()).await {
                    eprintln!("a node ended: {error}");
                }
            })
        });
        futures::future::join_all(nodes.collect::<Vec<_>>()).await;
    });
    Ok(())
}

pub fn figures(folder: &Path, count: usize) -> Result<Vec<Figure>, Failure> {
    eprintln!("{count} nodes ...");
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let server = Server::start_listening(&folder.join("server"), &address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let client = Client::new(&server.home, Vec::new());
    let mut tokens = Vec::new();
    for number in 0..count {
        let asked = TokenRequest { rate: NanoUsd(0) };
        let answer: Result<TokenAnswer, _> =
            runtime.block_on(client.post(&format!("/v1/nodes/node-{number}/token"), &asked));
        tokens.push(answer.map_err(|failure| failure.message)?.token);
    }
    let of_state = |state: NodeState| -> Result<usize, Failure> {
        let nodes: Vec<NodeView> = runtime.block_on(client.get("/v1/nodes")).map_err(|failure| failure.message)?;
        Ok(nodes.iter().filter(|node| node.state == state).count())
    };
    let until = |state: NodeState, wanted: usize| -> Result<f64, Failure> {
        let began = Instant::now();
        while of_state(state)? < wanted {
            if began.elapsed() > LIMIT {
                return Err(
                    format!("{} of {wanted} nodes are {} after {LIMIT:?}", of_state(state)?, state.word()).into()
                );
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(began.elapsed().as_secs_f64())
    };
    let began = (Instant::now(), server.cpu()?);
    let half = count / 2;
    let disks = Disks::new(folder);
    let first = Half::start(&disks.at.join("first"), &address, &tokens[..half])?;
    let second = Half::start(&disks.at.join("second"), &address, &tokens[half..])?;
    let joined = until(NodeState::Ready, count)?;
    let joining = (server.cpu()? - began.1).as_secs_f64() / began.0.elapsed().as_secs_f64();
    let core = |seconds: Duration, over: Duration| {
        let before = server.cpu()?;
        std::thread::sleep(seconds);
        Ok::<f64, Failure>((server.cpu()? - before).as_secs_f64() / over.as_secs_f64())
    };
    let steady = core(STEADY, STEADY)?;
    second.signal(rustix::process::Signal::STOP)?;
    let noticed = until(NodeState::Away, count - half)?;
    let before = (Instant::now(), server.cpu()?);
    second.signal(rustix::process::Signal::CONT)?;
    let back = until(NodeState::Ready, count)?;
    let storm = (server.cpu()? - before.1).as_secs_f64() / before.0.elapsed().as_secs_f64();
    let memory = server.memory()?;
    drop((first, second));
    server.end()?;
    Ok(vec![
        Figure::said(&format!("{count} nodes have joined after"), joined, "s"),
        Figure::at_most(&format!("the server while {count} nodes join"), joining, 1.0, "cores"),
        Figure::at_most(&format!("the server with {count} nodes"), steady, 1.0, "cores"),
        Figure::wait(&format!("{} nodes that fall silent are all noticed after", count - half), noticed, NOTICED),
        Figure::said(&format!("{} nodes that come back at once are all ready after", count - half), back, "s"),
        Figure::at_most("the server meanwhile", storm, 1.0, "cores"),
        Figure::memory(&format!("memory with {count} nodes, after all that"), memory, 500e6),
    ])
}
