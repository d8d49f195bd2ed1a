//! Programs report progress all the time; the log takes a report of each stint once in a while and only if it is a
//! share of the whole, and always one that something else rests on: the end of a worker, a checkpoint, the loss of a lease.

use std::collections::BTreeMap;
use std::time::Duration;
use windfall_core::{Brain, Event, StintId};

/// When progress of each stint was last let through, in real time since the server began.
#[derive(Debug, Default)]
pub(crate) struct ProgressMerge(BTreeMap<StintId, Duration>);

impl ProgressMerge {
    /// Leaves out progress that came too soon after the last.
    pub fn thin(&mut self, brain: &Brain, events: Vec<Event>, now: Duration, every: Duration) -> Vec<Event> {
        let leant_on = stints_leant_on(brain, &events);
        self.0.retain(|stint, _| brain.job(stint.workload).is_some());
        let mut kept = Vec::with_capacity(events.len());
        for event in events {
            if let Event::Progress { stint, .. } = &event {
                let recent = self.0.get(stint).is_some_and(|at| now < *at + every);
                if (recent || !brain.is_telling(&event)) && !leant_on.contains(stint) {
                    continue;
                }
                self.0.insert(*stint, now);
            }
            kept.push(event);
        }
        kept
    }
}

/// Stints of which these events say something that counts what was done by now.
fn stints_leant_on(brain: &Brain, events: &[Event]) -> Vec<StintId> {
    let stint_on = |lease| {
        let workload = brain.lease(lease)?.workload?;
        let stint = brain.job(workload)?.stint.as_ref()?;
        stint.leases.contains(&lease).then_some(stint.id)
    };
    let leant_on = events.iter().filter_map(|event| match event {
        Event::WorkerEnded { stint, .. } | Event::CheckpointDurable { stint, .. } if brain.is_news(event) => {
            Some(*stint)
        }
        Event::LeaseGone { lease, .. } => stint_on(*lease),
        _ => None,
    });
    leant_on.collect()
}
