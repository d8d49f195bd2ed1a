//! Programs report progress all the time; the log takes a report of each stint once in a while and only if it is a
//! share of the whole, and always one that something else rests on: the end of a worker, a checkpoint, the loss of a lease.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windfall_core::{Brain, Event, StintId};

/// Rows of progress that all stints together may write a second: very many running jobs are told of less often.
const MOST_A_SECOND: u32 = 200;

/// When progress of each stint was last let through, in real time since the server began.
#[derive(Debug, Default)]
pub(crate) struct ProgressMerge(BTreeMap<StintId, Duration>);

impl ProgressMerge {
    /// Leaves out progress that came too soon after the last.
    pub fn thin(&mut self, brain: &Brain, events: Vec<Event>, now: Duration, every: Duration) -> Vec<Event> {
        if !events.iter().any(|event| matches!(event, Event::Progress { .. })) {
            return events;
        }
        let leant_on = stints_leant_on(brain, &events);
        let present = |stint: &StintId| brain.job(stint.workload)?.stint.as_ref().map(|stint| stint.id);
        self.0.retain(|stint, _| present(stint) == Some(*stint));
        let every = every.max(Duration::from_secs(1) * u32::try_from(self.0.len()).unwrap_or(u32::MAX) / MOST_A_SECOND);
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
            Body::Event(Event::Submitted { workload: Workload::from(spec), key: "key".to_owned(), id: None }),
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

    #[test]
    fn ten_thousand_running_jobs_write_a_few_hundred_rows_of_progress_a_second() {
        let mut brain = Brain::new(Installation(1), Config::default());
        let stint = |number: u64| StintId::of_job(WorkloadId(number), 1);
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq: 1 }, slot: 0 };
        for number in 1..=10_000 {
            let spec = JobSpec::named("job".to_owned(), vec!["train".to_owned()]);
            let key = number.to_string();
            let submitted = Event::Submitted { workload: Workload::from(spec), key, id: Some(WorkloadId(number)) };
            let allocations = vec![Allocation::whole(lease)];
            let start = Decision::Start { stint: stint(number), allocations, resume: Resume::Newest };
            for body in [Body::Event(submitted), Body::Decision(start, Reason::new("test", "test"))] {
                brain.apply(&Record { seq: number, batch: 1, at: Time(1), body });
            }
        }
        let mut merge = ProgressMerge::default();
        let mut rows_at = |second: u64, done: u64| {
            let news =
                (1..=10_000).map(|number| Event::Progress { stint: stint(number), done: Work(done), total: None });
            merge.thin(&brain, news.collect(), Duration::from_secs(second), Duration::from_secs(1)).len()
        };
        assert_eq!(rows_at(0, 1), 10_000, "what was never told of is told");
        let rows: usize = (1..=100).map(|second| rows_at(second, 1 + second * 1_000)).sum();
        assert!((10_000..=30_000).contains(&rows), "{rows} rows in 100 s");
    }
}
