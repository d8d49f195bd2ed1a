//! An engine in a process of its own: a recorded market that a server on this machine leases from.

use crate::args::EngineArgs;
use windfall_core::Span;
use windfall_core::english::with_causes;
use windfall_server::EngineProcess;
use windfall_server::client::{Code, Failure};
use windfall_server::home::Replay;

pub fn engine(args: EngineArgs) -> Result<Code, Failure> {
    let EngineArgs { name, socket, leases, market, zones, speed } = args;
    let replay = Replay { market, zones, from: Span::ZERO };
    let process = EngineProcess { name, socket, leases, replay, speed };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let served = runtime.block_on(process.serve(|| println!("ready")));
    served.map(|()| Code::Done).map_err(|error| Failure::new(Code::BadInput, with_causes(&error)))
}
