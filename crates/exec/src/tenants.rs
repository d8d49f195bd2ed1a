//! An order to an agent on this computer that runs as somebody else than the server: its files are in folders of that
//! person, and what only the server may read it reaches through the server.

use crate::local::{Folder, OWN};
use crate::nodes::{Place, carried_out_in, judged};
use crate::owned;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use windfall_core::LeaseId;
use windfall_core::worker::StartOrder;

/// The socket on which agents of this computer reach the server's own stores.
pub fn relay_socket(state: &Path) -> PathBuf {
    state.join("relay.sock")
}

/// The folder in a job's that belongs to whoever it runs as, where the job runs as somebody else than the server.
pub fn folder_of_submitter(job: &Path) -> PathBuf {
    job.join(OWN)
}

/// The order as the agent in this folder is to carry it out: as it is, unless the agent runs as somebody else.
pub(crate) fn prepared(lease: LeaseId, of_agent: &Path, order: &StartOrder) -> io::Result<StartOrder> {
    // The folder above is the server's: nobody else can put anything there.
    let above = of_agent.parent().filter(|_| of_agent.ends_with(OWN));
    let marks = above.and_then(|above| Folder { lease, path: above.to_owned() }.read_marks());
    let Some((above, marks)) = above.zip(marks) else { return Ok(order.clone()) };
    let Some(runs_as) = &marks.runs_as else { return Ok(order.clone()) };
    let missing = || io::Error::other(format!("not a folder of a lease: {}", above.display()));
    let state = above.parent().and_then(Path::parent).ok_or_else(missing)?;
    let output = Path::new(&order.output);
    let (job, name) = output.parent().zip(output.file_name()).ok_or_else(missing)?;
    let place = Place {
        job: folder_of_submitter(job),
        output: name.to_string_lossy().into_owned(),
        folders: state.join("folders").join(runs_as.account.uid.to_string()),
        relay: relay_socket(state),
        servers: state.to_owned(),
    };
    if runs_as.refused.is_none() {
        job.parent().map_or(Ok(()), owned::make_passage)?;
        place.make(Some(&runs_as.account))?;
    }
    Ok(judged(carried_out_in(&place, order.clone(), &BTreeMap::new()), &marks.owner, Some(runs_as), true))
}
