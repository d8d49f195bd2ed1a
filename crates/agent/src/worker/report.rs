//! What a worker's run makes known: how far it is, how it saves, and what became durable.

use super::state::WorkerRun;
use crate::checkpoint::{Habits, Mover, MoverEvent};
use crate::progress::Reader;
use std::time::Instant;
use windfall_core::worker::WorkerView;
use windfall_core::{CheckpointId, Trouble, TroubleKind};

impl WorkerRun {
    pub(super) fn report_progress(&self, reader: &mut Reader, began: Instant) {
        if let Some((done, total)) = reader.poll() {
            self.change(|worker| {
                worker.done = Some(done);
                worker.total = total;
                worker.evidence.first_progress_ms.get_or_insert(began.elapsed().as_millis() as u64);
            });
        }
    }

    pub(super) async fn report_habits(&self, mover: &Mover) {
        let habits = mover.habits().await;
        let never = self.never_settles();
        self.change(|worker| {
            let evidence = &mut worker.evidence;
            evidence.renamed_saves = habits.renames;
            evidence.in_place_saves = habits.in_place_rewrites;
            evidence.saves = habits.saves;
            evidence.longest_save_ms = habits.longest_save_ms;
            evidence.first_save_ms = habits.first_save_after_ms;
            evidence.saving_now = habits.mid_write_now;
            show_restlessness(worker, &habits, never);
        });
    }

    fn never_settles(&self) -> Trouble {
        let seconds = self.order.settle_ms as f64 / 1000.0;
        let text = format!(
            "nothing that it saves is a checkpoint: its files are never left alone for {seconds} s (hint: write each \
             save into a new folder and rename that into place, name the file that is written last in \
             `checkpoint.complete`, or call windfall.saved())"
        );
        Trouble { kind: TroubleKind::NeverSettles, text }
    }

    pub(super) fn on_mover_event(&self, event: MoverEvent) {
        let began_ms = self.began_ms;
        self.change(|worker| match event {
            MoverEvent::Durable { epoch, seq, work, written_ms, elapsed_ms, .. } => {
                worker.durable = Some(CheckpointId { epoch, seq });
                worker.durable_work = work;
                worker.durable_ran_ms = Some(written_ms.saturating_sub(began_ms));
                worker.evidence.upload_ms = elapsed_ms;
                worker.trouble = None;
            }
            MoverEvent::Unchanged => worker.trouble = None,
            MoverEvent::Failed { trouble } => worker.trouble = Some(trouble),
            MoverEvent::Fenced { by } => worker.trouble = Some(remark(format!("fenced off: stint {by} has begun"))),
            MoverEvent::NotPruned { why } => worker.trouble = Some(remark(format!("old checkpoints stay: {why}"))),
            MoverEvent::Abandoned => {}
        });
    }
}

/// A program that never settles is told so, unless something worse is known.
fn show_restlessness(worker: &mut WorkerView, habits: &Habits, never: Trouble) {
    let known = worker.trouble.as_ref().map(|trouble| trouble.kind);
    match (habits.never_settles, known) {
        (true, None | Some(TroubleKind::Remark)) => worker.trouble = Some(never),
        (false, Some(TroubleKind::NeverSettles)) => worker.trouble = None,
        _ => {}
    }
}

fn remark(text: String) -> Trouble {
    Trouble { kind: TroubleKind::Remark, text }
}
