//! What a worker's life makes known: how far it is, how it saves, and what became durable.

use super::Life;
use crate::checkpoint::{Mover, MoverEvent};
use crate::progress::Reader;
use std::time::Instant;
use tokio::sync::mpsc;
use windfall_core::{CheckpointId, Trouble, TroubleKind};

fn trouble(kind: TroubleKind, text: String) -> Trouble {
    Trouble { kind, text }
}

impl Life {
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
        self.change(|worker| {
            let evidence = &mut worker.evidence;
            evidence.renamed_saves = habits.renames;
            evidence.in_place_saves = habits.in_place_rewrites;
            evidence.saves = habits.saves;
            evidence.longest_save_ms = habits.longest_save_ms;
            evidence.first_save_ms = habits.first_save_after_ms;
            evidence.saving_now = habits.mid_write_now;
        });
    }

    pub(super) fn on_mover_event(&self, event: MoverEvent) {
        self.change(|worker| match event {
            MoverEvent::Durable { epoch, seq, work, elapsed_ms, .. } => {
                worker.durable = Some(CheckpointId { epoch, seq });
                worker.durable_work = work;
                worker.evidence.upload_ms = elapsed_ms;
                worker.trouble = None;
            }
            MoverEvent::Failed { why, retry_in } => {
                let _ = retry_in;
                worker.trouble =
                    Some(trouble(TroubleKind::NotSaved, format!("a checkpoint could not be saved: {why}")));
            }
            MoverEvent::Fenced { by } => {
                worker.trouble = Some(trouble(TroubleKind::Remark, format!("fenced off: stint {by} has begun")));
            }
            MoverEvent::NotPruned { why } => {
                worker.trouble = Some(trouble(TroubleKind::Remark, format!("old checkpoints stay: {why}")));
            }
            MoverEvent::Abandoned => {}
        });
    }

    pub(super) async fn last_save(
        &self,
        mover: Mover,
        events: Option<mpsc::UnboundedReceiver<MoverEvent>>,
        deadline: Instant,
    ) {
        self.report_habits(&mover).await;
        let finished = mover.finish(deadline).await;
        if let Some(mut events) = events {
            while let Ok(event) = events.try_recv() {
                self.on_mover_event(event);
            }
        }
        if let Some(error) = finished.error {
            let text = format!("the last save is not durable: {error}");
            self.change(|worker| worker.trouble = Some(trouble(TroubleKind::NotSaved, text)));
        }
    }
}
