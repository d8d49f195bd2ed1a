//! An order as it is carried out on a node: what it names on the server's disk is elsewhere here.

use super::output;
use super::protocol::{InStore, StorePart};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use windfall_core::worker::{OutputsOrder, ParcelOrder, Provision, StartOrder};
use windfall_core::{StintId, WorkloadId};

/// Variables that a program has from the machine that it runs on, unless its job names them.
const OF_MACHINE: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "SHELL", "TZ"];

/// The folder of a job on this node: what it prints, and what its ranks share.
pub(super) fn job_folder(state: &Path, workload: WorkloadId) -> PathBuf {
    jobs(state).join(workload.0.to_string())
}

/// The folder of those folders.
pub(super) fn jobs(state: &Path) -> PathBuf {
    state.join("jobs")
}

/// The file in a lease's folder that says for which jobs it was started: a line each.
const JOBS_OF_LEASE: &str = "jobs";

/// Writes down that a lease has a job from now on, before the job begins.
pub(super) fn note(lease: &Path, workload: WorkloadId) -> io::Result<()> {
    if noted(lease).contains(&workload.0.to_string()) {
        return Ok(());
    }
    let mut file = File::options().create(true).append(true).open(lease.join(JOBS_OF_LEASE))?;
    writeln!(file, "{}", workload.0)
}

/// The jobs that a lease was started for.
pub(super) fn noted(lease: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(lease.join(JOBS_OF_LEASE)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The socket on which agents here reach stores that only the server can.
pub(super) fn relay_socket(state: &Path) -> PathBuf {
    state.join("relay.sock")
}

/// The order with paths of this node; others reach it as `host`.
pub(super) fn here(
    order: StartOrder,
    state: &Path,
    machine: &BTreeMap<String, String>,
    host: Option<IpAddr>,
) -> StartOrder {
    let folder = job_folder(state, order.stint.workload);
    let servers = Path::new(&order.output).parent().map(Path::to_owned);
    // What the server keeps for the ranks of a gang lies in the job's folder there.
    let moved = |path: String| match servers.as_ref().and_then(|servers| Path::new(&path).strip_prefix(servers).ok()) {
        Some(inside) => folder.join(inside).to_string_lossy().into_owned(),
        None => path,
    };
    let mut env = order.env;
    for name in OF_MACHINE {
        if let Some(value) = machine.get(name) {
            env.entry(name.to_owned()).or_insert_with(|| value.clone());
        }
    }
    StartOrder {
        master: (host.map_or(order.master.0, |host| host.to_string()), order.master.1),
        output: folder.join(output::name_of(order.stint, order.rank)).to_string_lossy().into_owned(),
        checkpoint_dir: order.checkpoint_dir.map(moved),
        checkpoint_store: store(order.checkpoint_store, state, order.stint, StorePart::Checkpoints),
        provision: order.provision.map(|provision| Provision {
            place: state.join("folders").to_string_lossy().into_owned(),
            parcel: ParcelOrder {
                store: store(provision.parcel.store, state, order.stint, StorePart::Folder),
                ..provision.parcel
            },
            ..provision
        }),
        outputs: order.outputs.map(|outputs| OutputsOrder {
            store: store(outputs.store, state, order.stint, StorePart::Outputs),
            ..outputs
        }),
        env,
        ..order
    }
}

/// A directory is on the server; other stores are reached from everywhere.
fn store(address: String, state: &Path, stint: StintId, part: StorePart) -> String {
    let is_directory = address.starts_with('/') || address.starts_with("file:");
    match is_directory {
        true => format!("relay:{}#{}", relay_socket(state).display(), InStore { workload: stint.workload, part }),
        false => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::CheckpointId;

    #[test]
    fn a_lease_says_for_which_jobs_it_was_started() {
        let lease = tempfile::tempdir().expect("a folder");
        for job in [3, 5, 3] {
            note(lease.path(), WorkloadId(job)).expect("written");
        }
        assert_eq!(noted(lease.path()), ["3", "5"]);
    }

    #[test]
    fn what_an_order_names_on_the_server_is_elsewhere_on_a_node() {
        let stint = StintId::of_job(WorkloadId(7), 2);
        let order = StartOrder {
            output: "/srv/jobs/abc/stint-00002-1.log".to_owned(),
            checkpoint_dir: Some("/srv/jobs/abc/saves-2".to_owned()),
            checkpoint_store: "/srv/checkpoints".to_owned(),
            folder: "/home/ada/work".to_owned(),
            env: [("LANG".to_owned(), "de".to_owned())].into(),
            provision: Some(Provision {
                place: "/srv/folders".to_owned(),
                parcel: ParcelOrder {
                    store: "/srv/checkpoints".to_owned(),
                    key: "folders/a".to_owned(),
                    name: CheckpointId { epoch: 1, seq: 4 },
                    content: "c".to_owned(),
                },
                setup: Some("make".to_owned()),
                variant: String::new(),
            }),
            outputs: Some(OutputsOrder {
                store: "/srv/checkpoints".to_owned(),
                key: "abc.outputs".to_owned(),
                paths: vec!["out".to_owned()],
            }),
            ..StartOrder::of(stint, 1, 2)
        };
        let machine = [("PATH", "/bin"), ("LANG", "C"), ("SECRET", "x")];
        let machine = machine.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let here = here(order.clone(), Path::new("/node"), &machine, Some([10, 0, 0, 7].into()));
        assert_eq!(here.master, ("10.0.0.7".to_owned(), 0));
        assert_eq!(here.output, "/node/jobs/7/output-7-0-2-1.log");
        assert_eq!(here.checkpoint_dir.as_deref(), Some("/node/jobs/7/saves-2"));
        assert_eq!(here.checkpoint_store, "relay:/node/relay.sock#7");
        let provision = here.provision.expect("as ordered");
        assert_eq!((provision.place.as_str(), provision.setup.as_deref()), ("/node/folders", Some("make")));
        assert_eq!(provision.parcel.store, "relay:/node/relay.sock#7/folder");
        assert_eq!(here.outputs.expect("as ordered").store, "relay:/node/relay.sock#7/outputs");
        for text in ["7", "7/folder", "7/outputs"] {
            assert_eq!(text.parse::<InStore>().map(|what| what.to_string()).as_deref(), Ok(text));
        }
        assert!(["", "x", "7/", "7/other", "/folder"].iter().all(|text| text.parse::<InStore>().is_err()));
        assert_eq!(here.folder, "/home/ada/work");
        let env: Vec<(&str, &str)> = here.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(env, [("LANG", "de"), ("PATH", "/bin")], "and nothing else of the machine");
        let far =
            StartOrder { checkpoint_store: "s3://bucket".to_owned(), checkpoint_dir: Some("/x".to_owned()), ..order };
        let far = super::here(far, Path::new("/node"), &BTreeMap::new(), None);
        assert_eq!((far.checkpoint_store.as_str(), far.checkpoint_dir.as_deref()), ("s3://bucket", Some("/x")));
    }
}
