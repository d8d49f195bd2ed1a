//! Bills of those who left a machine before the news came that it was gone long ago.

use super::*;
use crate::laws;
use crate::ledger::LedgerRow;
use crate::view::JobView;

/// What is stored outside of the brain: every ledger row, and the last view of each job that is over.
#[derive(Default)]
struct Stored {
    ledger: Vec<LedgerRow>,
    views: BTreeMap<WorkloadId, JobView>,
}

impl Stored {
    /// Takes in what the brain has to write; gives the jobs whose views it wrote.
    fn take(&mut self, world: &mut World) -> Vec<WorkloadId> {
        self.ledger.extend(world.brain.take_ledger());
        let views = world.brain.take_final_views();
        let written = views.iter().map(|view| view.id).collect();
        self.views.extend(views.into_iter().map(|view| (view.id, view)));
        written
    }

    /// A job's bill, which is what the ledger holds for it, and its time on spot.
    #[track_caller]
    fn bill(&self, id: WorkloadId) -> (NanoUsd, Span) {
        let view = &self.views[&id];
        let own = self.ledger.iter().filter(|row| row.beneficiary.workload() == Some(id));
        assert_eq!(view.cost.0, own.map(|row| row.amount.0).sum::<i64>(), "job {id}");
        assert_eq!((view.spot_cost, view.firm, view.owned), (view.cost, Span::ZERO, Span::ZERO));
        (view.cost, view.spot)
    }
}

impl World {
    /// The server is started anew from parts of a snapshot.
    fn reload(&mut self) {
        let mut parts = Vec::new();
        self.brain.each_part(|name, text| parts.push((name, text)));
        let text = put_together(parts.iter().map(|(name, text)| (name.as_str(), text.as_str()))).expect("whole");
        let copy: Brain = crate::codec::decode(crate::codec::VERSION, &text).expect("read back");
        assert_eq!(crate::codec::encode(&copy), crate::codec::encode(&self.brain));
        self.brain = copy;
    }

    fn lawful(&self) {
        assert_eq!(laws::check(&self.brain, &mut laws::Reached::default()), []);
    }

    fn end(&mut self, workload: WorkloadId) {
        let end = Decision::End { workload, outcome: Outcome::Succeeded };
        self.record(Body::Decision(end, Reason::new("test", "test")));
    }
}

const DONE: WorkerEnd = WorkerEnd::Exited { code: 0 };

#[test]
fn a_guest_that_left_gets_back_what_late_news_takes_back_also_after_a_restart() {
    for restarted in [false, true] {
        let (mut world, _, second, lease) = roomy();
        let (mut stored, began) = (Stored::default(), world.now);
        let stint = start_on(&mut world, second, lease, vec![whole(6), whole(7)]);
        world.pass(Span::hours(4));
        world.ended(stint, DONE);
        world.decide();
        assert_eq!(stored.take(&mut world), [second]);
        assert_eq!(stored.bill(second), (NanoUsd::from_dollars(0.9), Span::hours(4)), "a quarter of the machine");
        world.lawful();
        if restarted {
            world.reload();
        }
        world.pass(Span::seconds(1));
        world.event(Event::LeaseGone { lease, at: began + Span::hours(1), end: LeaseEnd::Lost });
        assert_eq!(stored.take(&mut world), [second]);
        assert_eq!(stored.bill(second), (NanoUsd::from_dollars(0.225), Span::hours(1)));
        assert_eq!(stored.views[&second].ended_at, Some(began + Span::hours(4)), "all else is as it was");
        assert_eq!(world.brain.tenures().count(), 0, "nothing can change it any more");
        world.lawful();
    }
}

#[test]
fn a_bill_that_no_news_changes_is_written_once() {
    let (mut world, _, second, lease) = roomy();
    let stint = start_on(&mut world, second, lease, vec![whole(7)]);
    world.pass(Span::hours(1));
    world.ended(stint, DONE);
    world.decide();
    let mut stored = Stored::default();
    assert_eq!(stored.take(&mut world), [second]);
    let left = world.now;
    world.pass(Span::hours(5));
    world.event(Event::LeaseGone { lease, at: left, end: LeaseEnd::Lost });
    assert_eq!(stored.take(&mut world), []);
    assert_eq!(stored.bill(second).1, Span::hours(1));
    assert_eq!(world.brain.tenures().count(), 0);
}

#[test]
fn a_guest_on_two_leases_is_corrected_by_the_news_of_each() {
    let (mut world, _, _, one) = roomy();
    let (_, _) = world.running(job(8, None));
    let other = world.leases().into_iter().find(|lease| *lease != one).expect("a machine of its own");
    let guest = world.submit(JobSpec { gang: 2, ..job(8, None) });
    let stint = StintId::of_job(guest, 1);
    let part = |lease| Allocation { devices: Some(vec![whole(6), whole(7)]), ..Allocation::whole(lease) };
    let start = Decision::Start { stint, allocations: vec![part(one), part(other)], resume: Resume::Newest };
    world.record(Body::Decision(start, Reason::new("test", "test")));
    let (mut stored, began) = (Stored::default(), world.now);
    world.pass(Span::hours(4));
    for rank in 0..2 {
        world.event(Event::WorkerEnded { stint, rank, end: DONE, settled: true });
    }
    world.end(guest);
    assert_eq!(stored.take(&mut world), [guest]);
    assert_eq!(stored.bill(guest), (NanoUsd::from_dollars(1.8), Span::hours(8)));
    world.lawful();
    for (lease, hours, dollars, held) in [(other, 2, 1.35, 6), (one, 1, 0.675, 3)] {
        world.reload();
        world.event(Event::LeaseGone { lease, at: began + Span::hours(hours), end: LeaseEnd::Lost });
        assert_eq!(stored.take(&mut world), [guest]);
        assert_eq!(stored.bill(guest), (NanoUsd::from_dollars(dollars), Span::hours(held)));
        world.lawful();
    }
    assert_eq!(world.brain.tenures().count(), 0);
}

#[test]
fn who_handed_a_machine_over_and_who_has_it_now_had_it_until_its_end_and_no_longer() {
    let (mut world, first, second, lease) = roomy();
    let (mut stored, began) = (Stored::default(), world.now);
    start_on(&mut world, second, lease, vec![whole(6), whole(7)]);
    world.pass(Span::hours(4));
    world.ended(world.stint(first), DONE);
    world.end(first);
    world.record(Body::Decision(Decision::HandOver { lease, to: second }, Reason::new("test", "test")));
    assert_eq!(stored.take(&mut world), [first]);
    assert_eq!(stored.bill(first), (NanoUsd::from_dollars(0.9 + 2.7), Span::hours(5)));
    world.lawful();
    world.pass(Span::hours(4));
    assert_eq!(world.view(second).spot, Span::hours(8));
    world.event(Event::LeaseGone { lease, at: began + Span::hours(2), end: LeaseEnd::Lost });
    assert_eq!(stored.take(&mut world), [first]);
    assert_eq!(stored.bill(first), (NanoUsd::from_dollars(0.9 + 1.35), Span::hours(3)));
    let view = world.view(second);
    assert_eq!((view.cost, view.spot), (NanoUsd::from_dollars(0.45), Span::hours(2)), "it goes on elsewhere");
    world.lawful();
}

#[test]
fn of_thousands_who_left_a_machine_only_those_are_kept_whose_bills_can_change() {
    let (mut world, _, _, lease) = roomy();
    let mut stored = Stored::default();
    for _ in 0..700 {
        let guest = world.submit(job(8, None));
        let stint = start_on(&mut world, guest, lease, vec![whole(7)]);
        world.pass(Span::minutes(1));
        world.ended(stint, DONE);
        world.end(guest);
        world.pass(Span::minutes(1));
    }
    world.lawful();
    assert!((128..=256).contains(&world.brain.tenures().count()), "{}", world.brain.tenures().count());
    let written = stored.take(&mut world);
    // As far back as can be, and everybody's bill is what the ledger holds.
    world.event(Event::LeaseGone { lease, at: Time(0), end: LeaseEnd::Lost });
    stored.take(&mut world);
    written.iter().for_each(|guest| assert!(stored.bill(*guest).1 <= Span::minutes(1)));
    assert_eq!(stored.bill(written[699]), (NanoUsd(0), Span::ZERO));
    assert_eq!(world.brain.tenures().count(), 0);
}

#[test]
fn a_state_of_before_such_bills_were_kept_is_read() {
    let (world, ..) = roomy();
    let text = crate::codec::encode(&world.brain);
    let mut former: serde_json::Value = serde_json::from_str(&text).expect("text");
    let without = |what: &mut serde_json::Value, field: &str| what.as_object_mut().expect("an object").remove(field);
    assert!(without(&mut former, "departed").is_some());
    for job in former["jobs"].as_object_mut().expect("jobs").values_mut() {
        assert!(without(job, "tenures").is_some());
    }
    for lease in former["leases"].as_array_mut().expect("leases") {
        assert!(without(lease, "tenures").is_some());
    }
    let read: Brain = crate::codec::decode(crate::codec::VERSION, &former.to_string()).expect("read");
    assert_eq!(crate::codec::encode(&read), text);
}
