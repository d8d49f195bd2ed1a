//! The server at size, through its real socket: what it takes in a second, what people wait for meanwhile, how it starts
//! with very many live jobs, what it uses when nothing happens, and how its history is paged. The server is the release
//! binary in a process of its own, and so is every client.

mod client;
mod history;
mod nodes;
mod restart;
mod running;
mod server;
mod table;

use server::Server;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str =
    "bench_server [PART…] [--clients N] [--seconds S] [--live N] [--history N] [--nodes N] [--store ADDRESS] [--json]
parts: submit, live, restart, idle, running, history, nodes";

pub type Failure = Box<dyn std::error::Error>;

struct Arguments {
    parts: Vec<String>,
    clients: usize,
    seconds: u64,
    live: usize,
    history: u64,
    nodes: usize,
    /// Another store than a SQLite file in the state directory.
    store: Option<String>,
    json: bool,
}

impl Arguments {
    fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|wanted| wanted == part)
    }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments {
        parts: Vec::new(),
        clients: 64,
        seconds: 10,
        live: 100_000,
        history: 1_000_000,
        nodes: 2_000,
        store: None,
        json: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: expected a value\n{USAGE}"));
        let number = |text: String| text.replace(',', "").parse::<u64>().map_err(|_| format!("no number: {text}"));
        match word.as_str() {
            "--clients" => arguments.clients = number(value()?)? as usize,
            "--seconds" => arguments.seconds = number(value()?)?,
            "--live" => arguments.live = number(value()?)? as usize,
            "--history" => arguments.history = number(value()?)?,
            "--nodes" => arguments.nodes = number(value()?)? as usize,
            "--store" => arguments.store = Some(value()?),
            "--json" => arguments.json = true,
            part @ ("submit" | "live" | "restart" | "idle" | "running" | "history" | "nodes") => {
                arguments.parts.push(part.to_owned())
            }
            other => return Err(format!("unknown: {other}\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.first().map(String::as_str) {
        Some("client") => client::main(&words[1..]),
        Some("serve") => server::serve(&words[1..]),
        Some("nodes-of") => nodes::serve_nodes(&words[1..]),
        _ => match read(words.into_iter()) {
            Ok(arguments) => bench(&arguments),
            Err(text) => {
                eprintln!("{text}");
                return ExitCode::from(2);
            }
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench(arguments: &Arguments) -> Result<(), Failure> {
    let folder = std::env::temp_dir().join(format!("windfall-bench-server-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut figures = Vec::new();
    let measured = measure(arguments, &folder, &mut figures);
    let _ = std::fs::remove_dir_all(&folder);
    match arguments.json {
        true => println!("{}", table::json(&figures)),
        false => print!("{}", table::text(&figures)),
    }
    measured
}

fn measure(arguments: &Arguments, folder: &std::path::Path, figures: &mut Vec<table::Figure>) -> Result<(), Failure> {
    let store = arguments.store.as_deref();
    if arguments.wants("submit") {
        let server = Server::start(&folder.join("submit"), store)?;
        submissions(arguments, &server, figures)?;
        server.end()?;
    }
    if arguments.wants("live") {
        let server = Server::start(&folder.join("live"), store)?;
        live(arguments, server, store, figures)?;
    }
    if arguments.wants("restart") {
        figures.extend(restart::starts(&folder.join("restart"), arguments.live as u64)?);
    }
    if arguments.wants("idle") {
        let server = Server::start(&folder.join("idle"), store)?;
        idle(arguments, &server, figures)?;
        server.end()?;
    }
    if arguments.wants("running") {
        figures.extend(running::rows_a_second(folder)?);
    }
    if arguments.wants("history") {
        figures.extend(history::pages(&folder.join("history"), arguments.history)?);
    }
    if arguments.wants("nodes") {
        figures.extend(nodes::figures(&folder.join("nodes"), arguments.nodes)?);
    }
    Ok(())
}

fn submissions(arguments: &Arguments, server: &Server, figures: &mut Vec<table::Figure>) -> Result<(), Failure> {
    eprintln!("{} clients submit for {} s, on {} ...", arguments.clients, arguments.seconds, server.store_name());
    let submits = client::Kind::Submit { until: client::Until::After(Duration::from_secs(arguments.seconds)) };
    let readers = [client::Kind::Jobs, client::Kind::Status]
        .map(|kind| kind.until(client::Until::After(Duration::from_secs(arguments.seconds))));
    let kinds: Vec<client::Kind> = std::iter::repeat_n(submits, arguments.clients).chain(readers).collect();
    let fsync = server::seconds_of_fsync(&server.home)?;
    let before = (server.cpu()?, server::machine_busy()?);
    let answers = client::run(&server.home, &kinds)?;
    let (used, busy) = (server.cpu()? - before.0, server::machine_busy()? - before.1);
    let (readers, submits) = (answers[arguments.clients..].to_vec(), &answers[..arguments.clients]);
    let took = submits.iter().map(|answer| answer.seconds).fold(0.0, f64::max);
    let waits = client::waits(submits);
    let name = server.store_name();
    figures.push(table::Figure::rate(
        &format!("submissions accepted a second, {name}"),
        waits.len() as f64 / took,
        5_000.0,
    ));
    figures.push(table::Figure::wait(&format!("a submission, P99, {name}"), client::p99(&waits), 0.050));
    figures.push(table::Figure::said(&format!("a submission, median, {name}"), client::median(&waits), "s"));
    for (reader, what) in readers.iter().zip(["jobs", "status"]) {
        let waits = client::waits(std::slice::from_ref(reader));
        figures.push(table::Figure::wait(&format!("`{what}` meanwhile, P99, {name}"), client::p99(&waits), 0.050));
    }
    let (server, clients) = (used.as_secs_f64(), answers.iter().map(|answer| answer.on_processor).sum::<f64>());
    let of_one = |seconds: f64| seconds / waits.len() as f64 * 1e6;
    let others = busy.as_secs_f64() - server - clients;
    for (who, seconds) in [("server", server), ("clients", clients), ("rest of the machine (database, kernel)", others)]
    {
        figures.push(table::Figure::said(&format!("a submission: the {who}, {name}"), of_one(seconds), "µs of a core"));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let idle = (cores - busy.as_secs_f64() / took).max(0.0);
    figures.push(table::Figure::said(&format!("nobody needs meanwhile, {name}"), idle, "cores"));
    figures.push(table::Figure::said(&format!("an fsync of 4 KiB without load, {name}"), fsync * 1e6, "µs"));
    let limit = match idle < cores / 5.0 {
        true => "the cores, which clients, server and database share",
        false => "waiting, for the disk and for one another",
    };
    figures.push(table::Figure::said(&format!("{name} is limited by {limit}: in use"), cores - idle, "cores"));
    Ok(())
}

/// Fills a server with live jobs, then ends it without a word and starts it again.
fn live(
    arguments: &Arguments,
    server: Server,
    store: Option<&str>,
    figures: &mut Vec<table::Figure>,
) -> Result<(), Failure> {
    let each = arguments.live.div_ceil(arguments.clients);
    eprintln!("{} live jobs, on {} ...", each * arguments.clients, server.store_name());
    let kinds = vec![client::Kind::Submit { until: client::Until::Count(each) }; arguments.clients];
    let began = Instant::now();
    client::run(&server.home, &kinds)?;
    let name = server.store_name();
    let live = each * arguments.clients;
    figures.push(table::Figure::said(&format!("{live} jobs submitted, {name}"), began.elapsed().as_secs_f64(), "s"));
    figures.push(table::Figure::memory(&format!("memory with {live} live jobs, {name}"), server.memory()?, 1e9));
    let home = server.kill()?;
    let began = Instant::now();
    let server = Server::start_again(&home, store)?;
    let took = began.elapsed().as_secs_f64();
    let known = server.live_jobs()?;
    if known != live {
        return Err(format!("{live} jobs were accepted and {known} are known after a start").into());
    }
    figures.push(table::Figure::wait(&format!("start with {live} live jobs, killed before, {name}"), took, 3.0));
    figures.push(table::Figure::memory(&format!("memory after that start, {name}"), server.memory()?, 1e9));
    server.end()
}

fn idle(arguments: &Arguments, server: &Server, figures: &mut Vec<table::Figure>) -> Result<(), Failure> {
    let each = 10_000_usize.div_ceil(arguments.clients);
    let kinds = vec![client::Kind::Submit { until: client::Until::Count(each) }; arguments.clients];
    client::run(&server.home, &kinds)?;
    eprintln!("{} waiting jobs, nobody asks ...", each * arguments.clients);
    std::thread::sleep(Duration::from_secs(3));
    let (before, span) = (server.cpu()?, Duration::from_secs(20));
    std::thread::sleep(span);
    let share = (server.cpu()? - before).as_secs_f64() / span.as_secs_f64();
    figures.push(table::Figure::at_most("an idle server with 10,000 waiting jobs", share * 100.0, 1.0, "% of a core"));
    Ok(())
}

/// The program that is measured: beside this one, or another for comparison.
fn program() -> Result<PathBuf, Failure> {
    if let Some(named) = std::env::var_os("WINDFALL_PROGRAM") {
        return Ok(named.into());
    }
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(std::path::Path::parent).ok_or("this program stands nowhere")?;
    Ok(folder.join("windfall"))
}
