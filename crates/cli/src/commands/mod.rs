//! Each command in a file of its own; here is only who does what.

mod agent;
mod bench;
mod catalog;
mod config;
mod cost;
mod doctor;
mod drill;
mod engine;
mod engines;
mod facts;
mod for_sale;
mod gpu;
mod init;
mod jobs;
mod k8s;
mod luggage;
mod node;
mod nodes;
mod offers;
mod pages;
mod pilot;
mod plan;
mod priced;
mod profile;
mod rehearse;
mod said_once;
mod sbatch;
mod servers;
mod service;
mod serving;
mod simulate;
mod slurm;
mod topology;
mod watch;
mod work;
mod worlds;

use crate::args::{Cli, Command, SimulateCommand, SlurmCommand};
use crate::here::Here;
use clap::Parser;
use clap::error::ErrorKind;
use std::io::Write;
use std::process::ExitCode;
use windfall_server::client::{Code, Failure};

/// Parses the command line and does it.
pub fn run() -> ExitCode {
    end_with_the_reader();
    // A server or an agent that was started through /proc/self/exe would be called `exe` in lists of processes.
    let _ = std::fs::write("/proc/self/comm", "windfall");
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return ExitCode::from(if asked { Code::Done } else { Code::BadInput } as u8);
        }
    };
    let json = cli.json;
    let code = match dispatch(cli) {
        Ok(code) => code,
        Err(failure) => {
            report(&failure, json);
            failure.code
        }
    };
    ExitCode::from(code as u8)
}

/// A reader that goes away (`| head`) ends this process as it ends any other tool, not with a panic. The
/// standard library ignores SIGPIPE and panics in `println!`; to handle the signal would need unsafe code.
fn end_with_the_reader() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload().downcast_ref::<String>();
        let because =
            |text: &str| said.is_some_and(|said| said.starts_with("failed printing to std") && said.contains(text));
        if because("Broken pipe") {
            std::process::exit(128 + rustix::process::Signal::PIPE.as_raw());
        }
        // The terminal was closed: whatever was watched goes on.
        if because("Input/output error") {
            std::process::exit(Code::Detached as i32);
        }
        // A full disk, a closed descriptor: nothing more can be said there, and that is no bug of ours.
        if because("") {
            let why = said.and_then(|said| said.split_once(": ")).map_or("", |(_, why)| why);
            let _ = writeln!(std::io::stderr(), "error: the output cannot be written: {why}");
            std::process::exit(Code::Bug as i32);
        }
        before(panic);
    }));
}

fn report(failure: &Failure, json: bool) {
    if failure.shown {
        return;
    }
    if json {
        let error = serde_json::json!({ "type": "error", "error": failure.message, "hint": failure.hint, "code": failure.code as u8 });
        println!("{error}");
    }
    eprintln!("{failure}");
}

fn dispatch(cli: Cli) -> Result<Code, Failure> {
    let Cli { home, json, command } = cli;
    // A program's environment need not name any directory.
    if let Command::Agent(command) = command {
        return agent::agent(command, json);
    }
    if let Command::Engine(args) = command {
        return engine::engine(args);
    }
    let here = Here::of(home, json)?;
    match command {
        Command::Serve(args) => serving::serve(&here, &args),
        Command::Up(args) if args.foreground => serving::foreground(&here, &args),
        Command::Config(args) => config::config(&here, &args.command),
        Command::Service(command) => service::service(&here, &command),
        Command::Schema { config, benchmark } => pages::schema(config, benchmark),
        Command::Words => pages::words(here.json),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { folder } => pages::man(&folder),
        Command::Init(args) => init::init(&here, &args),
        Command::Offers(args) => offers::offers(&here, &args),
        Command::Plan(args) => plan::plan(&here, &args),
        Command::Compare(args) => plan::compare(&here, &args),
        Command::Profile(args) => profile::profile(&here, &args),
        Command::Catalog(args) => catalog::catalog(&here, &args),
        Command::Simulate(SimulateCommand::Market(args)) => simulate::market(&here, &args),
        Command::Slurm(SlurmCommand::Report(args)) => slurm::report(&here, &args),
        Command::K8s(command) => k8s::k8s(&here, &command),
        command => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
            runtime.block_on(client_command(&here, command))
        }
    }
}

async fn client_command(here: &Here, command: Command) -> Result<Code, Failure> {
    match command {
        Command::Run(args) => watch::run(here, &args).await,
        Command::Submit(args) => watch::submit(here, &args).await,
        Command::Attach(args) => watch::attach(here, &args).await,
        Command::Jobs(args) => jobs::jobs(here, &args).await,
        Command::Logs(args) => jobs::logs(here, &args).await,
        Command::Get(args) => luggage::get(here, &args).await,
        Command::Cancel(args) => jobs::cancel(here, &args).await,
        Command::Resume(args) => watch::resume(here, &args).await,
        Command::Budget(args) => jobs::budget(here, &args).await,
        Command::Explain(args) => jobs::explain(here, &args).await,
        Command::Bench(command) => bench::bench(here, command).await,
        Command::Cost(args) => cost::cost(here, &args).await,
        Command::Gpu(args) => gpu::gpu(here, &args).await,
        Command::Sbatch(args) => sbatch::sbatch(here, args).await,
        Command::Nodes(args) => nodes::nodes(here, &args).await,
        Command::Node(args) => node::node(here, &args).await,
        Command::Engines(args) => engines::engines(here, &args).await,
        Command::Status => servers::status(here).await,
        Command::Doctor => doctor::doctor(here).await,
        Command::Up(args) => servers::up(here, &args).await,
        Command::Down(args) => servers::down(here, &args).await,
        Command::Rehearse(args) => rehearse::rehearse(here, &args).await,
        _ => Ok(Code::Done),
    }
}
