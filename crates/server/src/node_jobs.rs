//! What nodes may have of the jobs that run on them: where their output goes, and what the store has of them.

use crate::dispatch::JobFolders;
use crate::durable::Durable;
use crate::folders::{self, Folders};
use crate::home::log;
use crate::submitters;
use async_trait::async_trait;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use windfall_agent::{Access, outputs_key};
use windfall_core::brain::Job;
use windfall_core::{Brain, StintId, WorkloadId};
use windfall_exec::{Directory, InStore, JobsOfNodes, NodeStream, StorePart, listen_relay, node_of, relay_socket};

/// How often it is looked whether a job still runs on the node that has its checkpoints open.
const LOOK: Duration = Duration::from_secs(2);

/// The ending of the file beside an output that says which node it comes from: what the node could not send while the stint ran
/// there is taken later.
const FROM: &str = "from";

/// Bytes on their way between an agent of this computer and the store.
const PIPE: usize = 256 << 10;

/// The jobs of a server, as its nodes see them.
pub(crate) struct NodeJobs {
    pub durable: Arc<Durable>,
    pub folders: Folders,
}

/// Notes that what a worker prints comes from a node, before the worker begins there. What the node has of it is taken also when
/// the stint is over: all of it may come after a long cut.
pub(crate) fn note_node(output: &Path, node: &str) {
    // Where it cannot be written, what comes after the stint is not taken.
    let _ = std::fs::write(output.with_extension(FROM), node);
}

/// The job, if a worker of its present stint is on a node.
fn job_on<'a>(brain: &'a Brain, node: &str, id: WorkloadId) -> Option<&'a Job> {
    let job = brain.job(id)?;
    let is_there = |lease| brain.lease(lease).and_then(|lease| node_of(lease.ready.as_ref()?)) == Some(node);
    job.stint.as_ref()?.leases().any(is_there).then_some(job)
}

#[async_trait]
impl JobsOfNodes for NodeJobs {
    fn output_of(&self, node: &str, stint: StintId, rank: u32) -> Option<PathBuf> {
        let (folder, is_its) = self.durable.read(|brain| {
            let job = brain.job(stint.workload)?;
            let on_node = job_on(brain, node, stint.workload).and_then(|job| job.stint.as_ref());
            let is_its = on_node.is_some_and(|known| known.id == stint && rank < known.size());
            Some((self.folders.home.job(&job.spec.run.environment), is_its))
        })?;
        let file = folders::output_file(&folder, stint.epoch, rank);
        let was_its = || std::fs::read_to_string(file.with_extension(FROM)).is_ok_and(|known| known == node);
        (is_its || was_its()).then_some(file)
    }

    fn has_store_of(&self, node: &str, job: WorkloadId) -> bool {
        self.durable.read(|brain| job_on(brain, node, job).is_some())
    }

    async fn serve_store(&self, node: &str, what: InStore, stream: NodeStream) {
        self.serve(what, stream, || self.has_store_of(node, what.workload)).await;
    }
}

impl NodeJobs {
    /// Serves what the store has of a job until the stream ends, or nobody may have it any more.
    async fn serve<S>(&self, what: InStore, stream: S, may_have: impl Fn() -> bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let job = what.workload;
        let Some((mut access, folder, outputs)) = self.durable.read(|brain| {
            let run = &brain.job(job)?.spec.run;
            let parcel = run.luggage().parcel.as_ref().map(|parcel| parcel.key.clone());
            Some((self.folders.store_access(brain, job)?, parcel, outputs_key(&run.environment)))
        }) else {
            return;
        };
        // What a guest names is not touched as root.
        if submitters::is_guest(&access.owner) && Path::new(&access.address) != self.folders.home.checkpoints() {
            return;
        }
        let rights = match what.part {
            StorePart::Checkpoints => Access::ReadAndWrite,
            // Others' folders are in the server's own store, too.
            StorePart::Folder if submitters::is_guest(&access.owner) => return,
            StorePart::Folder => {
                let Some(key) = folder else { return };
                (access.key, access.saved_before) = (key, true);
                Access::ReadOnly
            }
            StorePart::Outputs => {
                (access.key, access.saved_before) = (outputs, false);
                Access::ReadAndWrite
            }
        };
        let gone = async {
            while may_have() {
                tokio::time::sleep(LOOK).await;
            }
        };
        let served = windfall_agent::serve_relay(stream, &access.address, &access.key, access.saved_before, rights);
        let served = tokio::select! { served = served => served, () = gone => Ok(()) };
        // A node that is gone, or was cut off, says no goodbye.
        let is_news = |error: &std::io::Error| error.kind() != std::io::ErrorKind::UnexpectedEof;
        if let Some(error) = served.err().filter(is_news) {
            log(&format!("what the store has of job {job}, over the network: {error}"));
        }
    }

    /// Who submitted a job that runs on this computer.
    fn owner_here(&self, id: WorkloadId) -> Option<String> {
        self.durable.read(|brain| {
            let job = brain.job(id)?;
            let is_here = |lease| {
                let ready = brain.lease(lease).and_then(|lease| lease.ready.as_ref());
                ready.is_some_and(|address| node_of(address).is_none())
            };
            job.stint.as_ref()?.leases().any(is_here).then(|| job.spec.owner.clone())
        })
    }

    /// Who submitted a job that runs on this computer, where that is this user; why not, in words, where it is not.
    async fn owner_as(&self, uid: u32, job: WorkloadId, directory: &Directory) -> Result<String, String> {
        let not_theirs = || format!("job {job} is not one of user {uid} on this computer");
        let owner = self.owner_here(job).ok_or_else(not_theirs)?;
        let account = directory.account(&owner).await.map_err(|silent| silent.to_string())?;
        if account.is_some_and(|account| account.uid == uid) { Ok(owner) } else { Err(not_theirs()) }
    }

    /// Lets agents of this computer that run as somebody else reach what the server's own store has of their jobs.
    pub fn listen_here(self: Arc<Self>) -> std::io::Result<tokio::task::JoinHandle<()>> {
        let socket = relay_socket(&self.folders.home.path);
        let open = move |what: InStore, uid| {
            let jobs = Arc::clone(&self);
            async move {
                let job = what.workload;
                let owner = jobs.owner_as(uid, job, Directory::of_this_machine()).await?;
                let (near, far) = tokio::io::duplex(PIPE);
                // As whom it was opened holds for as long as it is open: only the job is looked at again.
                let is_still = move |jobs: &NodeJobs| jobs.owner_here(job).is_some_and(|now| now == owner);
                tokio::spawn(async move { jobs.serve(what, far, || is_still(&jobs)).await });
                Ok(near)
            }
        };
        listen_relay(&socket, true, open)
    }
}
