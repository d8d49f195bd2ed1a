//! Agents: the one by which a machine is a node, and those that stand on leases, which people never start.

use crate::args::AgentCommand;
use windfall_agent::AgentError;
use windfall_server::client::{Code, Failure};

pub fn agent(command: AgentCommand, json: bool) -> Result<Code, Failure> {
    let done = match command {
        AgentCommand::Join(args) => return super::nodes::join(args, json),
        AgentCommand::Accelerators { once } => {
            // Who does not listen any more needs no answer.
            let _ = windfall_exec::tell_readings(once);
            return Ok(Code::Done);
        }
        AgentCommand::Launch { folder } => windfall_agent::launch(&folder),
        AgentCommand::Guard { folder } => windfall_agent::guard(&folder),
        AgentCommand::Serve { folder } => windfall_agent::serve(&folder),
        AgentCommand::Sweep { lease } => windfall_agent::sweep(&lease),
        AgentCommand::Exec { command } => {
            let error = windfall_agent::exec_worker(&command);
            eprintln!("windfall: {}", cause(&error));
            // What a shell says when a command cannot be run.
            std::process::exit(127);
        }
    };
    done.map(|()| Code::Done).map_err(|error| Failure::new(Code::Bug, cause(&error)))
}

fn cause(error: &AgentError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
