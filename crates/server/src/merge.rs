//! Programs report progress all the time; the log takes a report of each stint once in a while and only if it is a
//! share of the whole, and always one that something else rests on: the end of a worker, a checkpoint, the loss of a lease.

use std::collections::{BTreeMap, BTreeSet};
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
fn stints_leant_on(brain: &Brain, events: &[Event]) -> BTreeSet<StintId> {
    let mut leant_on = BTreeSet::new();
    for event in events.iter().filter(|event| brain.is_news(event)) {
        match event {
            Event::WorkerEnded { stint, .. } | Event::CheckpointDurable { stint, .. } => {
                leant_on.insert(*stint);
            }
            Event::LeaseGone { lease, .. } => {
                leant_on.extend(brain.stints_on(*lease));
            }
            _ => {}
        }
    }
    leant_on
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::brain::Config;
    use windfall_core::record::Resume;
    use windfall_core::{
        Address, Allocation, Body, Decision, DecisionId, Installation, JobSpec, LeaseEnd, LeaseId, OfferId, Reason,
        Record, Time, Want, Work, Workload, WorkloadId,
    };

    #[test]
    fn the_last_progress_before_a_lease_is_lost_is_never_left_out() {
        let (workload, every) = (WorkloadId(1), Duration::from_secs(1));
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq: 2 }, slot: 0 };
        let stint = StintId::of_job(workload, 1);
        let offer = OfferId::new("here");
        let mut spec = JobSpec::named("job".to_owned(), vec!["train".to_owned()]);
        spec.work.unit = windfall_core::spec::WorkUnit::Steps;
        let decided = |decision| Body::Decision(decision, Reason::new("test", "test"));
        let mut brain = Brain::new(Installation(1), Config::default());
        let bodies = [
            Body::Event(Event::Submitted { workload: Box::new(Workload::Job(spec)), key: "key".to_owned(), id: None }),
            decided(Decision::Acquire { want: Want::of(workload, offer, 1) }),
            Body::Event(Event::LeaseUp { lease, at: Time(1), terms: Box::default(), ready: Some(Address::default()) }),
            decided(Decision::Start { stint, allocations: vec![Allocation::whole(lease)], resume: Resume::Newest }),
            Body::Event(Event::WorkerStarted { stint, rank: 0, restored: None, work: None }),
        ];
        for (body, seq) in bodies.into_iter().zip(1..) {
            brain.apply(&Record { seq, batch: 1, at: Time(1), body });
        }
        let progress = |done| Event::Progress { stint, done: Work(done), total: None };
        let mut merge = ProgressMerge::default();
        assert_eq!(merge.thin(&brain, vec![progress(1)], Duration::ZERO, every).len(), 1);
        let soon = Duration::from_millis(300);
        assert_eq!(merge.thin(&brain, vec![progress(2)], soon, every).len(), 0, "too soon");
        // Later, but no share of the whole.
        brain.apply(&Record { seq: 6, batch: 2, at: Time(1), body: Body::Event(progress(1_000)) });
        assert_eq!(
            merge.thin(&brain, vec![progress(1_001)], Duration::from_secs(9), every).len(),
            0,
            "it tells nothing"
        );
        let gone = Event::LeaseGone { lease, at: Time(2), end: LeaseEnd::Taken };
        assert_eq!(merge.thin(&brain, vec![progress(1_003), gone], soon, every).len(), 2, "what was done counts now");
    }
}
