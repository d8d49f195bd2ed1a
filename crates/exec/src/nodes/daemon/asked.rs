//! What a node does when its server asks: starts and ends leases, and passes orders on to their agents.

use super::super::orders::{self, Place};
use super::super::output;
use super::super::protocol::{Heard, InStore, LeaseOrder, ToNode};
use super::{Daemon, LAST_WORDS, TIDY};
use crate::agents;
use crate::local::Held;
use crate::net::Message;
use crate::removal;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use windfall_core::worker::{AgentRequest, AgentView};
use windfall_core::{LeaseId, StintId, WorkloadId};

impl Daemon {
    pub(super) async fn answer(self: &Arc<Self>, request: ToNode) -> io::Result<Message> {
        match request {
            ToNode::Launch { lease, devices, owner, limits } => {
                self.has_state()?;
                // Beats that are made from here on show it.
                let not_in = self.beats.load(Ordering::Relaxed);
                let order = LeaseOrder { devices, owner, limits };
                self.leases.launch_one(lease, order).await.map_err(io::Error::other)?;
                let not_in = not_in.max(self.beats.load(Ordering::Relaxed));
                Ok(Message::of(&not_in))
            }
            ToNode::End { lease, gently } => Ok(Message::of(&self.end(lease, gently).await?)),
            ToNode::Ask { lease, request } => Ok(Message::of(&self.ask(lease, &request).await?)),
            ToNode::Forget { leases } => {
                self.leases.forget(&leases);
                self.send_what_is_left().await;
                self.clear_jobs().await;
                Ok(Message::of(&()))
            }
        }
    }

    /// Removes what jobs left here that no lease needs, again and again: it could not be removed when its lease was forgotten,
    /// or whoever was about to was killed.
    pub(super) async fn tidy(self: &Arc<Self>) {
        loop {
            self.send_what_is_left().await;
            self.clear_jobs().await;
            tokio::time::sleep(TIDY).await;
        }
    }

    async fn end(&self, lease: LeaseId, gently: bool) -> io::Result<Option<AgentView>> {
        self.leases.end_one(lease, gently).await.map_err(io::Error::other)?;
        let last = self.leases.folder_of(lease).and_then(|folder| agents::last_view(&folder.of_agent()));
        if let Some(last) = &last {
            self.send_last_words(&last.workers).await;
        }
        Ok(last)
    }

    /// Removes the folders of jobs that no lease here was ever started for. What could not be saved stays: that is somebody's
    /// last copy. A thread of its own does it: beats and orders go on however long it takes.
    async fn clear_jobs(self: &Arc<Self>) {
        let (daemon, alone) = (Arc::clone(self), Arc::clone(&self.jobs_gate).lock_owned().await);
        let clear = move || {
            let _alone = alone;
            daemon.remove_unneeded();
        };
        // What was not removed now is removed later.
        let _ = tokio::task::spawn_blocking(clear).await;
    }

    /// Sends what jobs have printed that no lease here was started for: it is removed next, and after a long cut nobody has
    /// it yet.
    async fn send_what_is_left(&self) {
        let Some(peer) = self.peer.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return };
        // What cannot be told now is told next time.
        let Ok(needed) = self.needed() else { return };
        let jobs = orders::jobs(&self.state);
        let is_left = |stint: StintId| !needed.contains(&stint.workload);
        let _ = tokio::time::timeout(LAST_WORDS, self.outputs.send_all_of(&peer, &jobs, is_left)).await;
    }

    /// The jobs that leases here were started for.
    fn needed(&self) -> io::Result<BTreeSet<WorkloadId>> {
        let folders: Vec<PathBuf> = self.leases.held().values().map(|held| held.folder.path.clone()).collect();
        let mut needed = BTreeSet::new();
        for folder in folders {
            needed.extend(orders::noted(&folder)?);
        }
        Ok(needed)
    }

    fn remove_unneeded(&self) {
        let Ok(needed) = self.needed() else { return };
        for folder in std::fs::read_dir(orders::jobs(&self.state)).into_iter().flatten().flatten() {
            let name = folder.file_name().to_string_lossy().into_owned();
            let is_needed = output::job_of(&name).is_some_and(|job| needed.contains(&job));
            if !is_needed {
                self.outputs.keep_unsent(&folder.path());
                remove_saved(&folder.path());
            }
        }
    }

    /// Nothing, or why a user of this machine gets nothing of a job: it is not theirs, or does not run here.
    pub(super) fn may_have(&self, what: InStore, uid: u32) -> Result<(), String> {
        if !self.leases.runs_as_submitters() {
            return Ok(());
        }
        let has_noted = |lease: &Path| orders::noted(lease).is_ok_and(|jobs| jobs.contains(&what.workload));
        let is_theirs = |held: &Held| {
            let runs_as = held.marks.runs_as.as_ref().map_or(0, |runs_as| runs_as.account.uid);
            runs_as == uid && !held.is_gone() && has_noted(&held.folder.path)
        };
        let may = self.leases.held().values().any(is_theirs);
        let why = || format!("job {} is not one of user {uid} on {}", what.workload.0, self.called());
        may.then_some(()).ok_or_else(why)
    }

    /// What refusals call this machine.
    fn called(&self) -> String {
        self.leases.machine().unwrap_or_else(|| "this machine".to_owned())
    }

    async fn ask(&self, lease: LeaseId, request: &AgentRequest) -> io::Result<Heard> {
        let Some((folder, marks)) = self.leases.marks_of(lease) else { return Ok(Heard::Nobody(None)) };
        let request = match request {
            AgentRequest::Start(order) => {
                let account = marks.runs_as.as_ref().map(|runs_as| &runs_as.account);
                let place = Place::on_node(&self.state, order, account.map(|account| account.uid));
                {
                    let _alone = self.jobs_gate.lock().await;
                    if marks.runs_as.as_ref().is_none_or(|runs_as| runs_as.refused.is_none()) {
                        place.make(account)?;
                    }
                    orders::note(&folder.path, order.stint.workload)?;
                }
                let mut order = orders::carried_out_in(&place, (**order).clone(), &orders::of_machine(account));
                if let Some(host) = *self.address.lock().unwrap_or_else(PoisonError::into_inner) {
                    order.master.0 = host.to_string();
                }
                let (apart, machine) = (self.leases.runs_as_submitters(), self.called());
                let order = orders::judged(order, &marks.owner, marks.runs_as.as_ref(), apart, &machine);
                &AgentRequest::Start(Box::new(order))
            }
            other => other,
        };
        match agents::ask(&folder.of_agent(), request).await {
            Ok(view) => {
                self.send_last_words(&view.workers).await;
                Ok(Heard::Said(view))
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
                Ok(Heard::Nobody(agents::last_view(&folder.of_agent())))
            }
            Err(error) => Err(error),
        }
    }
}

/// Removes all of a job's folder but files that reached no store: stints leave whole copies of what they began from.
fn remove_saved(folder: &Path) {
    let listed = || std::fs::read_dir(folder)?.take(output::MOST_NAMES).collect::<io::Result<Vec<_>>>();
    let keep = |entry: &std::fs::DirEntry| keep_owed(folder, &entry.file_name().to_string_lossy());
    // What cannot be looked at or put aside now is left alone until it can.
    let kept = listed().and_then(|entries| entries.iter().try_for_each(keep));
    let Ok(entries) = kept.and_then(|()| listed()) else { return };
    let is_unsaved = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(output::UNSAVED);
    // What cannot be removed now, or is left of something very large, goes next time.
    if !entries.iter().any(is_unsaved) {
        let _ = removal::remove_tree(folder, removal::AT_ONCE);
        return;
    }
    for entry in entries.iter().filter(|entry| !is_unsaved(entry)) {
        let _ = removal::remove_tree(&entry.path(), removal::AT_ONCE);
    }
}

/// Where this name in a job's folder says that an agent was killed while it sent what a stint left: the only copy of it is in
/// there, and is called from now on as what could not be sent.
fn keep_owed(folder: &Path, name: &str) -> io::Result<()> {
    let of_stint = name.strip_prefix(output::UNSAVED_OUTPUTS).and_then(|name| name.strip_suffix(output::PENDING));
    let Some(epoch) = of_stint.and_then(|epoch| epoch.parse::<u64>().ok()) else { return Ok(()) };
    let (saves, outputs) = (format!("{}{epoch}", output::UNSAVED), format!("{}{epoch}", output::UNSAVED_OUTPUTS));
    for (left, kept) in [(format!("saves-{epoch}"), saves), (format!("folder-{epoch}"), outputs)] {
        let left = folder.join(left);
        let has_something = match std::fs::read_dir(&left) {
            Ok(mut entries) => entries.next().is_some(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if has_something {
            let mut names = std::iter::once(kept.clone()).chain((2..100).map(|number| format!("{kept}.{number}")));
            let free = names.find(|name| !folder.join(name).exists()).ok_or(io::ErrorKind::AlreadyExists)?;
            std::fs::rename(left, folder.join(free))?;
        }
    }
    std::fs::remove_file(folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_could_not_be_saved_stays_of_a_job() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = |name: &str| std::fs::create_dir_all(folder.path().join("3").join(name)).expect("made");
        ["saves-1", "saves-2/deep", "unsaved-2"].into_iter().for_each(made);
        std::fs::write(folder.path().join("3/output-3-0-1-0.log"), "said").expect("written");
        remove_saved(&folder.path().join("3"));
        let left: Vec<_> = std::fs::read_dir(folder.path().join("3")).expect("there").flatten().collect();
        assert!(left.len() == 1 && left[0].file_name() == "unsaved-2", "{left:?}");
        std::fs::remove_dir(left[0].path()).expect("removed");
        remove_saved(&folder.path().join("3"));
        assert!(!folder.path().join("3").exists());
        // Nobody knows what of the third stint was sent; the others have sent theirs.
        ["folder-3/results", "saves-3/last", "saves-4/last", "saves-2"].into_iter().for_each(made);
        std::fs::write(folder.path().join("3/unsaved-outputs-3.pending"), "").expect("written");
        remove_saved(&folder.path().join("3"));
        let left = std::fs::read_dir(folder.path().join("3")).expect("there").flatten();
        let mut left: Vec<String> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        left.sort();
        assert_eq!(left, ["unsaved-3", "unsaved-outputs-3"]);
        assert!(
            folder.path().join("3/unsaved-outputs-3/results").exists()
                && folder.path().join("3/unsaved-3/last").exists()
        );
    }
}
