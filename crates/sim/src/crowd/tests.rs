//! A crowd is what it says it is.

use super::*;
use std::collections::BTreeSet;

fn small() -> Crowd {
    let mut crowd = Crowd::empty(Size { jobs: 200, teams: 10, nodes: 150 });
    crowd.fill();
    crowd
}

#[test]
fn a_tenth_of_a_crowd_runs_and_the_rest_comes_to_rest() {
    let mut crowd = small();
    assert_eq!((crowd.live(), crowd.running()), (200, 20));
    assert!(crowd.rest(10).is_some(), "the brain does not come to rest");
    assert!(crowd.running() < 50, "{} of 200 run: nobody is left to wait", crowd.running());
    assert_eq!(windfall_core::laws::check(&crowd.brain, &mut BTreeMap::new()), []);
}

#[test]
fn everything_that_is_measured_happens_and_leads_to_decisions() {
    let mut crowd = small();
    crowd.rest(10);
    let (mut decided, mut happened) = (BTreeMap::new(), BTreeSet::new());
    for _ in 0..5 {
        for happening in Happening::ROUND {
            let events = crowd.prepare(happening);
            happened.extend((!events.is_empty()).then_some(happening));
            let step = crowd.step(events);
            *decided.entry(happening).or_insert(0) += step.decided.len();
            crowd.hear(step);
            crowd.rest(10);
            assert_eq!(windfall_core::laws::check(&crowd.brain, &mut BTreeMap::new()), []);
        }
    }
    assert_eq!(happened, Happening::ROUND.into_iter().collect());
    for happening in
        [Happening::End, Happening::LeaseLost, Happening::PriceFalls, Happening::NodeLost, Happening::Answers]
    {
        assert!(decided[&happening] > 0, "{}: nothing follows from it", happening.name());
    }
    assert!((185..=215).contains(&crowd.live()), "{} jobs are live", crowd.live());
    assert!((10..50).contains(&crowd.running()), "{} jobs run", crowd.running());
}

#[test]
fn jobs_of_a_crowd_are_of_many_kinds() {
    let mut crowd = small();
    crowd.rest(10);
    let fit = |job: &windfall_core::brain::Job| format!("{:?} {}", job.spec.resources, job.spec.gang);
    let classes: BTreeSet<String> = crowd.brain.jobs().map(fit).collect();
    let deadlines: BTreeSet<Option<Time>> = crowd.brain.jobs().map(|job| job.spec.deadline).collect();
    assert!(classes.len() > 60 && deadlines.len() > 100, "{} classes, {} deadlines", classes.len(), deadlines.len());
    assert_eq!(crowd.brain.offers().count(), 200);
}
