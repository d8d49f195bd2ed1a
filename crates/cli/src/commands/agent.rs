//! Agents: the one by which a machine is a node, and those that stand on leases, which people never start.

use crate::args::AgentCommand;
use windfall_agent::{Account, AgentError, Limits, Whose};
use windfall_server::client::{Code, Failure};

pub fn agent(command: AgentCommand, json: bool) -> Result<Code, Failure> {
    let done = match command {
        AgentCommand::Join(args) => return super::nodes::join(args, json),
        AgentCommand::Pilot(args) => return super::pilot::pilot(&args),
        AgentCommand::Copy { folder } => return super::pilot::copy(&folder),
        AgentCommand::Accelerators { once } => {
            // Who does not listen any more needs no answer.
            let _ = windfall_exec::tell_readings(once);
            return Ok(Code::Done);
        }
        AgentCommand::Telemetry { every_ms, times } => {
            let _ = windfall_exec::tell_telemetry(std::time::Duration::from_millis(every_ms), times);
            return Ok(Code::Done);
        }
        AgentCommand::Launch { folder, account, cpu_millis, memory_bytes } => {
            windfall_agent::launch(&folder, account.as_ref(), Limits { cpu_millis, memory_bytes })
        }
        AgentCommand::Guard { folder } => windfall_agent::guard(&folder),
        AgentCommand::Serve { folder } => windfall_agent::serve(&folder),
        AgentCommand::Sweep { lease, uid, alone } => {
            windfall_agent::sweep(&lease, uid.map(|uid| Whose { uid, is_alone: alone }))
        }
        AgentCommand::Look { account } => return look(&account),
        AgentCommand::Exec { command } => {
            let error = windfall_agent::exec_worker(&command);
            eprintln!("windfall: {}", cause(&error));
            // What a shell says when a command cannot be run.
            std::process::exit(127);
        }
    };
    done.map(|()| Code::Done).map_err(|error| Failure::new(Code::Bug, cause(&error)))
}

/// Becomes somebody, then looks at what they name. Nothing that was said is read before.
fn look(account: &Account) -> Result<Code, Failure> {
    let failed = |why: String| Failure::new(Code::Bug, why);
    account.assume().map_err(|error| failed(cause(&error)))?;
    let asked = serde_json::from_reader(std::io::stdin()).map_err(|error| failed(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let seen = runtime.map_err(|error| failed(error.to_string()))?.block_on(windfall_server::look(asked));
    println!("{}", serde_json::to_string(&seen).map_err(|error| failed(error.to_string()))?);
    Ok(Code::Done)
}

fn cause(error: &AgentError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
