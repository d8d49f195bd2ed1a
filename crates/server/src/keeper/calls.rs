//! What the keeper has done beside the loop: calls to engines and agents, and what they leave behind for people. Each
//! runs by itself, and its end comes back as a report; nothing in the loop waits for an engine.

use super::{Keeper, Report};
use crate::cycle::Gone;
use crate::dispatch::{self, Performed, Task};
use crate::home::Home;
use crate::probe::Probe;
use std::io::Write;
use std::sync::Arc;
use windfall_core::brain::Open;
use windfall_core::worker::WorkerView;
use windfall_core::{Event, LeaseId};
use windfall_exec::{AgentLink, Engine, Interrupt, SeenWorker};

impl Keeper {
    pub(super) fn call(&mut self, open: Open) {
        let Some(task) = dispatch::task(self.cycle.brain(), &self.folders, &open) else {
            let again = Performed { again: true, ..Performed::default() };
            return self.cycle.performed(self.moment(), open.id, again);
        };
        let (engine, sender) = (Arc::clone(&self.engine), self.report_sender.clone());
        let starts = match &task {
            Task::Start(orders) => orders.first().and_then(|(_, order)| self.cycle.brain().job(order.stint.workload)),
            _ => None,
        };
        let starts = starts.map(|job| (job.id, job.spec.run.environment.clone(), Arc::clone(&self.home)));
        tokio::spawn(async move {
            if let (Task::Start(orders), Some((id, key, home))) = (&task, starts) {
                // A lease shows its present worker only: how the last one ended is written down before the next begins.
                let leases: Vec<LeaseId> = orders.iter().map(|(lease, _)| *lease).collect();
                let workers = engine.workers(&leases).await.unwrap_or_default().into_iter().map(|seen| seen.worker);
                for worker in workers.filter(|worker| worker.end.is_some() && worker.stint.workload == id) {
                    write_evidence(&home, &key, &worker);
                }
            }
            let performed = dispatch::perform(&engine, &engine, &Probe, &task).await;
            let _ = sender.send(Report::Performed(open.id, performed));
        });
    }

    /// Writes down how the workers of gone leases ended, then lets the engine forget them. Whoever asks next finds it
    /// written: what agents last said is at hand, and only the engine is not waited for.
    pub(super) async fn forget(&self, gone: Vec<Gone>) {
        let leases: Vec<LeaseId> = gone.iter().map(|gone| gone.lease).collect();
        for SeenWorker { lease, worker } in self.engine.workers(&leases).await.unwrap_or_default() {
            match gone.iter().find(|gone| gone.lease == lease).and_then(|gone| gone.key.as_ref()) {
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
        let engine = Arc::clone(&self.engine);
        tokio::spawn(async move { engine.forget(&leases).await });
    }

    /// Ends every job and takes every lease: nobody is there any more who wants them. True when none is left.
    pub(super) fn abandon(&mut self) -> bool {
        let brain = self.cycle.brain();
        let live = brain.jobs().filter(|job| job.ended.is_none() && job.cancelled_by.is_none());
        let by = || "the end of its client".to_owned();
        let cancels: Vec<Event> = live.map(|job| Event::CancelRequested { workload: job.id, by: by() }).collect();
        let leases: Vec<LeaseId> = brain.leases().map(|lease| lease.id).collect();
        let nothing_left = leases.is_empty() && brain.jobs().next().is_none();
        for lease in leases {
            let engine = Arc::clone(&self.engine);
            tokio::spawn(async move { engine.interrupt(lease, Interrupt::Without).await });
        }
        self.cycle.happened(cancels);
        nothing_left
    }
}

/// Evidence for people; nothing depends on it.
fn write_evidence(home: &Home, key: &str, worker: &WorkerView) {
    let line = serde_json::to_string(worker).expect("a view has string keys");
    let file = std::fs::File::options().create(true).append(true).open(home.job(key).join("stints.jsonl"));
    let _ = file.and_then(|mut file| writeln!(file, "{line}"));
}
