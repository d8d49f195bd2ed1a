//! An order as it is carried out on a node: what it names on the server's disk is elsewhere here.

use super::output;
use super::protocol::{InStore, StorePart};
use crate::accounts::RunsAs;
use crate::directory::Account;
use crate::owned;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use windfall_core::worker::{OutputsOrder, ParcelOrder, Provision, StartOrder};
use windfall_core::{StintId, WorkloadId};

/// Variables that a program has from the machine that it runs on, unless its job names them.
const OF_MACHINE: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "SHELL", "TZ"];

/// Where programs are on a machine that does not say so.
const USUAL_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// The folder of a job on this node: what it prints, and what its ranks share. It belongs to whoever the job runs as, and
/// one of the same number of another server, or another time, may be somebody else's.
pub(super) fn job_folder(state: &Path, workload: WorkloadId, uid: Option<u32>) -> PathBuf {
    let number = workload.0;
    jobs(state).join(uid.map_or(number.to_string(), |uid| format!("{number}-{uid}")))
}

/// The folder of those folders.
pub(super) fn jobs(state: &Path) -> PathBuf {
    state.join("jobs")
}

/// The file in a lease's folder that says for which jobs it was started: a line each.
const JOBS_OF_LEASE: &str = "jobs";

/// Writes down that a lease has a job from now on, before the job begins.
pub(super) fn note(lease: &Path, workload: WorkloadId) -> io::Result<()> {
    if noted(lease)?.contains(&workload) {
        return Ok(());
    }
    let mut file = File::options().create(true).append(true).open(lease.join(JOBS_OF_LEASE))?;
    writeln!(file, "{}", workload.0)
}

/// The jobs that a lease was started for. What cannot be read now is not none: folders of its jobs would be removed.
pub(super) fn noted(lease: &Path) -> io::Result<Vec<WorkloadId>> {
    let text = match std::fs::read_to_string(lease.join(JOBS_OF_LEASE)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text?,
    };
    Ok(text.lines().filter_map(|line| line.parse().ok().map(WorkloadId)).collect())
}

/// The socket on which agents here reach stores that only the server can.
pub(super) fn relay_socket(state: &Path) -> PathBuf {
    state.join("relay.sock")
}

/// Where an order is carried out.
pub(crate) struct Place {
    /// The folder of its job.
    pub job: PathBuf,
    /// The file that takes what it prints, in there.
    pub output: String,
    /// Where parcels are unpacked.
    pub folders: PathBuf,
    /// The socket on which its agent reaches stores that only the server can.
    pub relay: PathBuf,
    /// Directories below this are stores that only the server can reach.
    pub servers: PathBuf,
}

impl Place {
    /// A job's on this node, of whose directories none is the server's.
    pub(super) fn on_node(state: &Path, order: &StartOrder, uid: Option<u32>) -> Place {
        let folders = state.join("folders");
        Place {
            job: job_folder(state, order.stint.workload, uid),
            output: output::name_of(order.stint, order.rank),
            folders: uid.map_or(folders.clone(), |uid| folders.join(uid.to_string())),
            relay: relay_socket(state),
            servers: PathBuf::from("/"),
        }
    }

    /// Makes its folders, for whoever the job runs as.
    pub fn make(&self, account: Option<&Account>) -> io::Result<()> {
        let Some(account) = account else { return std::fs::create_dir_all(&self.job) };
        for folder in [&self.job, &self.folders] {
            folder.parent().map_or(Ok(()), owned::make_passage)?;
            owned::make(folder, account.uid, account.gid)?;
        }
        Ok(())
    }

    /// A directory of the server's is reached through it; other stores are reached from everywhere.
    fn store(&self, address: String, stint: StintId, part: StorePart) -> String {
        let path = address.strip_prefix("file://").or_else(|| address.strip_prefix("file:")).unwrap_or(&address);
        match path.starts_with('/') && Path::new(path).starts_with(&self.servers) {
            true => format!("relay:{}#{}", self.relay.display(), InStore { workload: stint.workload, part }),
            false => address,
        }
    }
}

/// The order with the paths of a place, and with these variables where its job names no others.
pub(crate) fn carried_out_in(place: &Place, order: StartOrder, machine: &BTreeMap<String, String>) -> StartOrder {
    let servers = Path::new(&order.output).parent().map(Path::to_owned);
    // What the server keeps for the ranks of a gang lies in the job's folder there.
    let moved = |path: String| match servers.as_ref().and_then(|servers| Path::new(&path).strip_prefix(servers).ok()) {
        Some(inside) => place.job.join(inside).to_string_lossy().into_owned(),
        None => path,
    };
    let mut env = order.env;
    for (name, value) in machine {
        env.entry(name.to_owned()).or_insert_with(|| value.clone());
    }
    StartOrder {
        output: place.job.join(&place.output).to_string_lossy().into_owned(),
        checkpoint_dir: order.checkpoint_dir.map(moved),
        checkpoint_store: place.store(order.checkpoint_store, order.stint, StorePart::Checkpoints),
        provision: order.provision.map(|provision| Provision {
            place: place.folders.to_string_lossy().into_owned(),
            parcel: ParcelOrder {
                store: place.store(provision.parcel.store, order.stint, StorePart::Folder),
                ..provision.parcel
            },
            ..provision
        }),
        outputs: order.outputs.map(|outputs| OutputsOrder {
            store: place.store(outputs.store, order.stint, StorePart::Outputs),
            ..outputs
        }),
        env,
        ..order
    }
}

/// The variables that a program has from its machine, or from its account there.
pub(super) fn of_machine(account: Option<&Account>) -> BTreeMap<String, String> {
    let own = OF_MACHINE.iter().filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
    let mut machine: BTreeMap<String, String> = own.collect();
    // What a process was begun with may lack it, a pilot of Slurm's for one.
    machine.entry("PATH".to_owned()).or_insert_with(|| USUAL_PATH.to_owned());
    if let Some(account) = account {
        let of_account =
            [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name), ("SHELL", &account.shell)];
        machine.extend(of_account.map(|(name, value)| (name.to_owned(), value.clone())));
    }
    machine
}

/// The order as a lease may carry it out: refused where it is somebody else's, or where nothing of its owner's may run.
/// `tells_apart`: programs run as whoever submitted them, also where that is whoever serves. `machine` is what the refusal
/// calls it.
pub(crate) fn judged(
    order: StartOrder,
    owner: &str,
    runs_as: Option<&RunsAs>,
    tells_apart: bool,
    machine: &str,
) -> StartOrder {
    if !tells_apart {
        return order;
    }
    let other = || {
        (order.owner != owner)
            .then(|| format!("on {machine} its lease is {}'s, and the job is {}'s", named(owner), named(&order.owner)))
    };
    let refused = runs_as.and_then(|runs_as| runs_as.refused.clone()).or_else(other);
    StartOrder { refused, ..order }
}

/// A person in a sentence.
fn named(owner: &str) -> &str {
    if owner.is_empty() { "nobody" } else { owner }
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
        assert_eq!(noted(lease.path()).expect("read"), [WorkloadId(3), WorkloadId(5)]);
        let other = tempfile::tempdir().expect("a folder");
        assert_eq!(noted(other.path()).expect("none is none"), []);
        std::fs::create_dir(other.path().join(JOBS_OF_LEASE)).expect("made");
        assert!(noted(other.path()).is_err(), "what cannot be read is not none");
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
        let machine = [("PATH", "/bin"), ("LANG", "C")];
        let machine = machine.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let place = Place::on_node(Path::new("/node"), &order, None);
        let here = carried_out_in(&place, order.clone(), &machine);
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
        let far = carried_out_in(&place, far, &BTreeMap::new());
        assert_eq!((far.checkpoint_store.as_str(), far.checkpoint_dir.as_deref()), ("s3://bucket", Some("/x")));
    }

    #[test]
    fn what_belongs_to_one_person_is_apart_from_what_belongs_to_another() {
        let order = StartOrder {
            checkpoint_store: "/home/ada/saves".to_owned(),
            ..StartOrder::of(StintId::of_job(WorkloadId(7), 2), 0, 1)
        };
        let [one, two] = [1_001, 1_002].map(|uid| Place::on_node(Path::new("/node"), &order, Some(uid)));
        assert!(one.job != two.job && one.folders != two.folders);
        assert_eq!(one.job.file_name().and_then(|name| output::job_of(name.to_str()?)), Some(WorkloadId(7)));
        assert_eq!((output::job_of("7"), output::job_of("x-7"), output::job_of("")), (Some(WorkloadId(7)), None, None));
        // On the server's own computer only what is in its state directory is its alone.
        let here = Place { servers: PathBuf::from("/srv"), ..one };
        let store = |address: &str| here.store(address.to_owned(), order.stint, StorePart::Checkpoints);
        assert!(
            store("/srv/checkpoints").starts_with("relay:") && store("file:///srv/checkpoints").starts_with("relay:")
        );
        assert_eq!(store("/home/ada/saves"), "/home/ada/saves");
        assert_eq!(store("/srv2/x"), "/srv2/x");
    }

    #[test]
    fn a_lease_runs_what_its_owner_submitted_and_nothing_else() {
        let account = crate::directory::look_up("daemon").expect("every machine has one");
        let runs_as = |refused: Option<&str>| RunsAs {
            account: account.clone(),
            refused: refused.map(str::to_owned),
            is_alone: false,
        };
        let order = |owner: &str| StartOrder {
            owner: owner.to_owned(),
            ..StartOrder::of(StintId::of_job(WorkloadId(7), 2), 0, 1)
        };
        let refused = |owner: &str, of: &RunsAs| judged(order(owner), "ada", Some(of), true, "node lab-1").refused;
        assert_eq!(refused("ada", &runs_as(None)), None);
        assert!(refused("bob", &runs_as(None)).is_some_and(|why| why.contains("node lab-1")));
        assert!(refused("", &runs_as(None)).is_some());
        assert_eq!(refused("ada", &runs_as(Some("no account"))).as_deref(), Some("no account"));
        // Where all is run as whoever serves, nobody is told apart.
        assert_eq!(judged(order("bob"), "ada", None, false, "it").refused, None);
        assert!(judged(order("bob"), "root", None, true, "it").refused.is_some(), "what runs as root is root's");
    }
}
