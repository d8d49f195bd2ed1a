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

/// The order as the agent in this folder is to carry it out: as it is, unless programs run here as their submitters. Then a
/// lease takes its owner's orders alone, and one that runs as somebody else has the paths of that person's folders. Where it
/// cannot be read as whom a lease runs, nothing is started on it.
pub(crate) fn prepared(lease: LeaseId, of_agent: &Path, order: &StartOrder) -> io::Result<StartOrder> {
    let is_theirs = of_agent.ends_with(OWN);
    let missing = || io::Error::other(format!("not a folder of a lease: {}", of_agent.display()));
    // The folder above is the server's: nobody else can put anything there.
    let above = if is_theirs { of_agent.parent().ok_or_else(missing)? } else { of_agent };
    let unknown = || io::Error::other(format!("as whom lease {lease} runs is not written down"));
    let Some(marks) = (Folder { lease, path: above.to_owned() }).load_marks()? else {
        return if is_theirs { Err(unknown()) } else { Ok(order.clone()) };
    };
    let runs_as = match (&marks.runs_as, is_theirs) {
        (Some(runs_as), true) => runs_as,
        (None, false) => return Ok(judged(order.clone(), &marks.owner, None, marks.is_apart, THIS_COMPUTER)),
        // It was begun as somebody else than is written down.
        _ => return Err(unknown()),
    };
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
    let moved = carried_out_in(&place, order.clone(), &BTreeMap::new());
    Ok(judged(moved, &marks.owner, Some(runs_as), true, THIS_COMPUTER))
}

/// What refusals call the server's own computer.
const THIS_COMPUTER: &str = "the server's computer";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::RunsAs;
    use crate::directory::look_up;
    use crate::local::Marks;
    use windfall_core::{DecisionId, Installation, StintId, WorkloadId};

    fn lease() -> LeaseId {
        LeaseId { group: DecisionId { installation: Installation(1), seq: 1 }, slot: 0 }
    }

    fn order(of: &str) -> StartOrder {
        StartOrder { owner: of.to_owned(), ..StartOrder::of(StintId::of_job(WorkloadId(7), 1), 0, 1) }
    }

    #[test]
    fn a_lease_of_root_s_takes_nobody_else_s_order() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(dir.path(), lease()).expect("made");
        let refused = |of: &str| prepared(lease(), &folder.path, &order(of)).expect("readable").refused;
        assert_eq!(refused("ada"), None, "a folder without marks is of a market, where all run as whoever serves");
        folder.write_marks(&Marks { owner: "root".to_owned(), is_apart: true, ..Marks::default() });
        assert_eq!(refused("root"), None);
        for other in ["ada", ""] {
            assert!(refused(other).is_some_and(|why| why.contains("the server's computer")), "{other}");
        }
        folder.write_marks(&Marks { owner: "root".to_owned(), ..Marks::default() });
        assert_eq!(refused("ada"), None, "nobody is told apart there");
    }

    #[test]
    fn nothing_is_started_where_it_is_not_known_as_whom() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::create(dir.path(), lease()).expect("made");
        let own = folder.path.join(OWN);
        std::fs::create_dir(&own).expect("made");
        assert!(prepared(lease(), &own, &order("ada")).is_err(), "no marks");
        std::fs::write(folder.path.join("marks.json"), "{").expect("written");
        assert!(prepared(lease(), &own, &order("ada")).is_err(), "marks that broke off");
        assert!(prepared(lease(), &folder.path, &order("ada")).is_err(), "the same, as root");
        folder.write_marks(&Marks { owner: "ada".to_owned(), ..Marks::default() });
        assert!(prepared(lease(), &own, &order("ada")).is_err(), "it runs as ada, and that is not written down");
        let account = look_up("daemon").expect("every machine has one");
        let runs_as = Some(RunsAs { account, refused: None, is_alone: false });
        folder.write_marks(&Marks { owner: "ada".to_owned(), runs_as, ..Marks::default() });
        assert!(prepared(lease(), &folder.path, &order("ada")).is_err(), "it is written down, and runs as root");
    }
}
