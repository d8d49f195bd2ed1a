//! Programs report progress all the time; the log takes a report of each stint once in a while and only if it is a
//! share of the whole, and always one that something else rests on: the end of a worker, a checkpoint, the loss of a lease.
//! What is held back is kept: agents say a thing once.

use crate::rounds::{Rounds, WITH_EACH};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use windfall_core::{Brain, Event, StintId};

/// Rows of progress that all stints together may write a second: very many running jobs are told of less often.
const MOST_A_SECOND: u32 = 200;

/// Progress of stints: what the log was told of, and what waits.
#[derive(Debug, Default)]
pub(crate) struct ProgressMerge {
    stints: BTreeMap<StintId, Told>,
    /// Those whose last word waits only for its time, by when they were last told of.
    waiting: BTreeSet<(Duration, StintId)>,
    rounds: Rounds<StintId>,
}

#[derive(Debug)]
struct Told {
    /// When progress of it was last let through, in real time since the server began.
    at: Duration,
    /// What it said since, and was held back.
    held: Option<Event>,
}

impl ProgressMerge {
    /// Holds progress back that came too soon after the last, and lets go what was held back for long enough.
    pub fn thin(&mut self, brain: &Brain, events: Vec<Event>, now: Duration, every: Duration) -> Vec<Event> {
        self.drop_some_that_are_over(brain, events.len() + 1);
        let every =
            every.max(Duration::from_secs(1) * u32::try_from(self.stints.len()).unwrap_or(u32::MAX) / MOST_A_SECOND);
        let leant_on = stints_leant_on(brain, &events);
        for event in &events {
            if let Event::Progress { stint, .. } = event {
                // What it says now is newer.
                self.let_go(*stint);
            }
        }
        let mut due: Vec<StintId> = leant_on.iter().copied().collect();
        due.extend(self.waiting.iter().take_while(|(at, _)| now >= *at + every).map(|(_, stint)| *stint));
        // What was said in earlier turns comes before what is said in this one.
        let mut kept = Vec::with_capacity(events.len());
        for stint in due {
            if let Some(event) = self.let_go(stint) {
                self.tell(stint, now);
                kept.push(event);
            }
        }
        for event in events {
            let Event::Progress { stint, .. } = event else {
                kept.push(event);
                continue;
            };
            let last = self.stints.get(&stint).map(|told| told.at);
            let (tells, soon) = (brain.is_telling(&event), last.is_some_and(|at| now < at + every));
            if leant_on.contains(&stint) || (tells && !soon) {
                self.tell(stint, now);
                kept.push(event);
                continue;
            }
            let at = last.unwrap_or(now);
            self.stints.insert(stint, Told { at, held: Some(event) });
            if tells {
                self.waiting.insert((at, stint));
            }
        }
        kept
    }

    fn tell(&mut self, stint: StintId, now: Duration) {
        self.stints.insert(stint, Told { at: now, held: None });
    }

    /// What was held back of a stint.
    fn let_go(&mut self, stint: StintId) -> Option<Event> {
        let told = self.stints.get_mut(&stint)?;
        self.waiting.remove(&(told.at, stint));
        told.held.take()
    }

    /// Looks at some stints, each in its turn, and drops those that are over.
    fn drop_some_that_are_over(&mut self, brain: &Brain, news: usize) {
        let present = |stint: &StintId| brain.job(stint.workload)?.stint.as_ref().map(|stint| stint.id);
        let next = self.rounds.next(&self.stints, news * WITH_EACH);
        for stint in next.iter().filter(|stint| present(stint) != Some(**stint)) {
            self.let_go(*stint);
            self.stints.remove(stint);
        }
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
        let later = Duration::from_secs(10);
        assert_eq!(merge.thin(&brain, Vec::new(), later, every), [], "it still tells nothing");
        // Nobody says it again, and what was done counts now.
        let told = merge.thin(&brain, vec![gone.clone()], later, every);
        assert_eq!(told, [progress(1_001), gone.clone()]);
        assert_eq!(merge.thin(&brain, vec![progress(1_003), gone.clone()], later, every), [progress(1_003), gone]);
    }

    #[test]
    fn what_came_too_soon_is_told_of_once_its_time_has_come_and_only_if_nothing_newer_was_said() {
        let (mut brain, stint, every) =
            (Brain::new(Installation(1), Config::default()), StintId::of_job(WorkloadId(1), 1), Duration::from_secs(1));
        let spec = JobSpec::named("job".to_owned(), vec!["train".to_owned()]);
        let submitted = Event::Submitted { workload: Workload::from(spec), key: "key".to_owned(), id: None };
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq: 1 }, slot: 0 };
        let start = Decision::Start { stint, allocations: vec![Allocation::whole(lease)], resume: Resume::Newest };
        for (body, seq) in
            [Body::Event(submitted), Body::Decision(start, Reason::new("test", "test"))].into_iter().zip(1..)
        {
            brain.apply(&Record { seq, batch: 1, at: Time(1), body });
        }
        let progress = |done| Event::Progress { stint, done: Work(done), total: None };
        let mut merge = ProgressMerge::default();
        let mut at = |ms, events| merge.thin(&brain, events, Duration::from_millis(ms), every);
        assert_eq!(at(0, vec![progress(1)]), [progress(1)]);
        assert_eq!(at(300, vec![progress(1_000)]), []);
        assert_eq!(at(600, vec![progress(2_000)]), []);
        assert_eq!(at(900, Vec::new()), []);
        assert_eq!(at(1_000, Vec::new()), [progress(2_000)]);
        assert_eq!(at(5_000, Vec::new()), []);
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
