//! What the keeper has done beside the loop: looks at engines, calls to engines and agents, and what they leave behind
//! for people. Each runs by itself, and its end comes back as a report; nothing in the loop waits for an engine.

use super::{Keeper, Report};
use crate::archive::Archive;
use crate::cycle::Gone;
use crate::dispatch::{self, Performed, Task};
use crate::engines::{Engines, in_time};
use crate::folders;
use crate::home::{Home, log};
use crate::node_jobs::note_node;
use crate::notes::NotesError;
use crate::submitters::Probe;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use windfall_core::brain::Open;
use windfall_core::english::with_causes;
use windfall_core::worker::WorkerView;
use windfall_core::{DecisionId, Event, LeaseId, WorkloadId};
use windfall_exec::{Interrupt, SeenWorker, node_of};

impl Keeper {
    pub(super) fn look(&self, name: String, number: u64, groups: Vec<DecisionId>, sweep: bool) {
        let (engine, sender) = (self.engines.get(&name), self.report_sender.clone());
        tokio::spawn(async move {
            let seen = Engines::look(engine, &groups, sweep).await;
            let _ = sender.send(Report::Saw(name, number, seen));
        });
    }

    /// What agents on leases have said since they were last heard, or what all of them said last.
    pub(super) fn hear(&self, gone: &[LeaseId], all: bool) -> Vec<Event> {
        let brain = self.cycle.brain();
        let address = |lease: LeaseId| brain.lease(lease)?.ready.as_ref();
        if all {
            self.follow(brain.leases().map(|lease| lease.id));
        }
        for lease in gone {
            address(*lease).into_iter().for_each(|address| self.link.last_words(*lease, address));
        }
        let mut leases: BTreeSet<LeaseId> = self.link.unheard().into_iter().chain(gone.iter().copied()).collect();
        if all {
            leases.extend(brain.leases().map(|lease| lease.id));
        }
        let leases: Vec<LeaseId> = leases.into_iter().filter(|lease| address(*lease).is_some()).collect();
        let workers = self.link.workers(&leases).into_iter().filter(|seen| dispatch::is_placed(brain, seen));
        workers.flat_map(|seen| dispatch::worker_events(&seen.worker, self.clock.speed())).collect()
    }

    /// Listens to the agents of these leases, where they can be reached.
    fn follow(&self, leases: impl Iterator<Item = LeaseId>) {
        for lease in leases.filter_map(|lease| self.cycle.brain().lease(lease)) {
            lease.ready.iter().for_each(|address| self.link.follow(lease.id, address));
        }
    }

    pub(super) fn call(&mut self, open: Open) {
        let Some(task) = dispatch::task(self.cycle.brain(), &self.folders, &open) else {
            let again = Performed { again: true, ..Performed::default() };
            return self.cycle.performed(self.moment(), open.id, again);
        };
        self.follow(task.leases());
        let engine = task.engine().and_then(|engine| self.engines.get(engine));
        let (link, sender) = (Arc::clone(&self.link), self.report_sender.clone());
        let job = task.needs_notes_of().and_then(|id| self.cycle.brain().job(id));
        let job = job.map(|job| (job.id, job.spec.run.environment.clone()));
        let archive = self.archive();
        let brain = self.cycle.brain();
        let on_node = |lease| Some((lease, node_of(brain.lease(lease)?.ready.as_ref()?)?.to_owned()));
        let elsewhere: BTreeMap<LeaseId, String> = task.leases().filter_map(on_node).collect();
        tokio::spawn(async move {
            let equipped = in_time(equipped(task, job.as_ref(), &archive, &elsewhere)).await;
            let task = match equipped.unwrap_or_else(|| Err(Performed { again: true, ..Performed::default() })) {
                Ok(task) => task,
                Err(performed) => return drop(sender.send(Report::Performed(open.id, performed))),
            };
            let home = &archive.home;
            if let (Task::Start(orders), Some((id, key))) = (&task, job) {
                if let Err(error) = folders::make(&home.job(&key)) {
                    log(&format!("the folder of job {id} cannot be made: {error}"));
                }
                for (order, node) in orders.iter().filter_map(|(lease, order)| Some((order, elsewhere.get(lease)?))) {
                    note_node(Path::new(&order.output), node);
                }
                // A lease shows a job's present worker only: how the last one ended is written down before the next begins.
                let leases: Vec<LeaseId> = orders.iter().map(|(lease, _)| *lease).collect();
                let workers = link.workers(&leases).into_iter().map(|seen| seen.worker);
                for worker in workers.filter(|worker| worker.end.is_some() && worker.stint.workload == id) {
                    write_evidence(home, &key, &worker);
                }
            }
            let performed = in_time(dispatch::perform(engine.as_deref(), &*link, &Probe, &task)).await;
            let performed = performed.unwrap_or(Performed { again: true, ..Performed::default() });
            let _ = sender.send(Report::Performed(open.id, performed));
        });
    }

    /// Writes down how the workers of gone leases ended, then lets engines forget them. Whoever asks next finds it
    /// written: what agents last said is at hand, and only the engines are not waited for.
    pub(super) fn forget(&mut self, gone: Vec<Gone>) {
        let leases: Vec<LeaseId> = gone.iter().map(|gone| gone.lease).collect();
        for Gone { lease, address, .. } in &gone {
            address.iter().for_each(|address| self.link.last_words(*lease, address));
        }
        let workers = self.link.workers(&leases);
        for SeenWorker { lease, worker } in
            workers.into_iter().filter(|seen| dispatch::is_placed(self.cycle.brain(), seen))
        {
            let gone = gone.iter().find(|gone| gone.lease == lease);
            match gone.and_then(|gone| gone.keys.get(&worker.stint.workload)) {
                Some(key) => write_evidence(&self.home, key, &worker),
                None => {
                    let archive = self.archive();
                    tokio::spawn(async move {
                        if let Ok(view) = archive.find(worker.stint.workload).await {
                            write_evidence(&archive.home, &view.key, &worker);
                        }
                    });
                }
            }
        }
        self.link.forget(&leases);
        let mut of_engines: BTreeMap<String, Vec<LeaseId>> = BTreeMap::new();
        gone.into_iter().for_each(|gone| of_engines.entry(gone.engine).or_default().push(gone.lease));
        for (engine, leases) in of_engines {
            let Some(engine) = self.engines.get(&engine) else { continue };
            self.tidying.spawn(async move {
                // What it does not forget is shown by the next sweep.
                let _ = in_time(engine.forget(&leases)).await;
            });
        }
        while self.tidying.try_join_next().is_some() {}
    }

    /// Ends every job and takes every lease: nobody is there any more who wants them. True when none is left.
    pub(super) fn abandon(&mut self) -> bool {
        let brain = self.cycle.brain();
        let live = brain.jobs().filter(|job| job.ended.is_none() && job.cancelled_by.is_none());
        let by = || "the end of its client".to_owned();
        let cancels: Vec<Event> = live.map(|job| Event::CancelRequested { workload: job.id, by: by() }).collect();
        let leases: Vec<(LeaseId, String)> =
            brain.leases().map(|lease| (lease.id, lease.offer.engine().to_owned())).collect();
        let nothing_left = leases.is_empty() && brain.jobs().next().is_none();
        for (lease, engine) in leases {
            if !self.taken_away.insert(lease) {
                continue;
            }
            let engines = self.engines.clone();
            tokio::spawn(async move { engines.interrupt(&engine, lease, Interrupt::Without).await });
        }
        self.cycle.happened(cancels);
        nothing_left
    }
}

/// A task with what the notes of its job say, or what comes of it without them.
async fn equipped(
    mut task: Task,
    job: Option<&(WorkloadId, String)>,
    archive: &Archive,
    elsewhere: &BTreeMap<LeaseId, String>,
) -> Result<Task, Performed> {
    let Some((id, key)) = job else { return Ok(task) };
    match archive.notes(*id, key).await {
        Ok(notes) => match task.equip(&notes, |lease| elsewhere.contains_key(&lease), dispatch::offered) {
            Ok(()) => Ok(task),
            Err(why) => {
                log(&format!("job {id} waits for its secrets: {why}"));
                Err(task.unequipped(&why))
            }
        },
        Err(NotesError::StoreAway(error)) => {
            log(&format!("job {id} waits for its notes: {}", with_causes(&error)));
            Err(Performed { again: true, ..Performed::default() })
        }
        Err(why) => {
            log(&format!("job {id} cannot be started: {why}"));
            Err(task.never_equipped(&why.to_string()))
        }
    }
}

/// Evidence for people; nothing depends on it.
fn write_evidence(home: &Home, key: &str, worker: &WorkerView) {
    let line = serde_json::to_string(worker).expect("a view has string keys");
    let file = std::fs::File::options().create(true).append(true).open(home.job(key).join("stints.jsonl"));
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::Engines;
    use crate::notes::JobNotes;
    use crate::seal::Seal;
    use windfall_core::worker::StartOrder;
    use windfall_core::{StintId, WorkerEnd};
    use windfall_store::{Commit, MemoryStore, Notes, Store};

    /// An archive whose store has notes of job 1 that were sealed with a key of another folder, and none of job 2.
    async fn archive(home: &std::path::Path, sealed_in: &std::path::Path) -> Archive {
        let seal = Seal::of(sealed_in).expect("a key");
        let notes = Notes { workload: 1, ..JobNotes::default().to_store(&seal, "key") };
        let store = MemoryStore::new();
        let epoch = store.lead().await.expect("led");
        store.commit(epoch, &Commit { notes: vec![notes], ..Commit::default() }).await.expect("written");
        Archive {
            store: Arc::new(store),
            home: Arc::new(Home::open(home).expect("a state directory")),
            engines: Engines::default(),
            seal: Arc::new(Seal::of(home).expect("a key")),
        }
    }

    fn start(job: u64) -> Task {
        let lease = |slot| LeaseId { group: DecisionId { installation: windfall_core::Installation(1), seq: 3 }, slot };
        let order = |rank| StartOrder::of(StintId::of_job(WorkloadId(job), 1), rank, 2);
        Task::Start(vec![(lease(0), order(0)), (lease(1), order(1))])
    }

    /// Why each rank never ran.
    fn reasons(performed: &Performed) -> Vec<&str> {
        let reason = |event| match event {
            &Event::WorkerEnded { end: WorkerEnd::NeverRan { ref why }, settled: true, .. } => Some(why.as_str()),
            _ => None,
        };
        performed.events.iter().filter_map(reason).collect()
    }

    #[tokio::test]
    async fn a_job_whose_environment_no_key_opens_ends_instead_of_waiting_on_a_paid_lease() {
        let [home, other] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let archive = archive(home.path(), other.path()).await;
        for (job, says) in [(1, "`secrets.key`"), (2, "not in the store")] {
            let performed =
                equipped(start(job), Some(&(WorkloadId(job), "key".to_owned())), &archive, &BTreeMap::new()).await;
            let performed = performed.expect_err("it cannot be started");
            assert!(!performed.again);
            assert_eq!(reasons(&performed).iter().filter(|why| why.contains(says)).count(), 2, "{performed:?}");
        }
    }

    #[tokio::test]
    async fn a_job_whose_environment_opens_is_started() {
        let home = tempfile::tempdir().expect("a folder");
        let archive = archive(home.path(), home.path()).await;
        let equipped = equipped(start(1), Some(&(WorkloadId(1), "key".to_owned())), &archive, &BTreeMap::new()).await;
        assert!(equipped.is_ok());
    }
}
