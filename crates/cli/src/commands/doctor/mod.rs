//! What is missing on this machine, each with the command that mends it. It looks, and changes nothing: no server is
//! started and no file is kept. Each look is a function that gives findings; `doctor` is their list.

mod agent;
mod kernel;
mod machine;
mod state;

use crate::here::Here;
use std::path::Path;
use windfall_server::client::{Code, Failure};

pub async fn doctor(here: &Here) -> Result<Code, Failure> {
    let root = Path::new("/");
    let (server, runs) = state::server(here).await;
    let mut found = vec![machine::python(root)];
    found.extend(machine::driver(root));
    found.push(machine::clock(root));
    found.push(state::configuration(here));
    found.push(state::directory("state", &here.home));
    found.push(state::disk(&here.home));
    found.extend(apart(&here.home).map(|checkpoints| state::disk(&checkpoints)));
    found.push(server);
    found.extend(state::port(here, runs));
    found.push(kernel::control_groups(root));
    found.extend(kernel::limits());
    found.push(kernel::kernel(root));
    found.extend(agent::agents(here));
    Ok(crate::findings::tell(here, &found))
}

/// The folder of checkpoints, where it is on another disk.
fn apart(home: &Path) -> Option<std::path::PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let checkpoints = home.join("checkpoints");
    let [one, other] = [home, &checkpoints].map(|path| std::fs::metadata(path).map(|meta| meta.dev()).ok());
    (one? != other?).then_some(checkpoints)
}
