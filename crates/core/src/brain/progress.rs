//! How far a job is, how fast it goes, and what its checkpoints hold.

use crate::ids::CheckpointId;
use crate::units::{Span, Work};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// How far a job is, and how fast it goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Work done in the present stint and before; falls back to `durable` when a stint is interrupted.
    pub done: Work,
    /// Work in the newest durable checkpoint.
    pub durable: Work,
    /// That checkpoint.
    pub checkpoint: Option<CheckpointId>,
    /// The total as the program said it.
    pub total: Option<Work>,
    /// Work and time of recent reports by accelerator: the measured speeds.
    #[serde(default)]
    pub measured: BTreeMap<String, (Work, Span)>,
    /// What the last few checkpoints hold: a stint may resume from an older one.
    #[serde(default)]
    pub held: VecDeque<(CheckpointId, Work)>,
}

impl Progress {
    /// Notes what a checkpoint holds; the fence of a stint holds what it resumed from.
    pub(super) fn note_held(&mut self, checkpoint: CheckpointId, work: Work) {
        const REMEMBERED: usize = 32;
        self.held.retain(|(known, _)| *known != checkpoint);
        self.held.push_back((checkpoint, work));
        while self.held.len() > REMEMBERED {
            self.held.pop_front();
        }
    }

    /// What a checkpoint holds, as far as that was ever known. A fence that nobody told of is a copy of the newest.
    pub(super) fn held_by(&self, checkpoint: CheckpointId) -> Work {
        let known = self.held.iter().find(|(known, _)| *known == checkpoint).map(|(_, work)| *work);
        let newest = Some(self.durable).filter(|_| Some(checkpoint) >= self.checkpoint);
        known.or(newest).unwrap_or_default()
    }

    /// Keeps a decayed average of the speed: old reports fade over about twenty minutes of running.
    pub(super) fn learn_speed(&mut self, accelerator: &str, work: Work, span: Span) {
        const MEMORY: Span = Span::minutes(20);
        let (done, took) = self.measured.entry(accelerator.to_owned()).or_default();
        done.0 = done.0.saturating_add(work.0);
        *took += Span(span.0.max(0));
        if *took > MEMORY {
            done.0 /= 2;
            took.0 /= 2;
        }
    }
}
