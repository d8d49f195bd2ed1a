//! What the brain writes into the ledger, and what it would write now.

use super::*;
use crate::ledger::Beneficiary;

fn tagged(tag: &str) -> JobSpec {
    let tags = BTreeMap::from([("project".to_owned(), tag.to_owned())]);
    JobSpec { tags, team: "nlp".to_owned(), owner: "ada".to_owned(), ..job(1, None) }
}

#[test]
fn a_row_tells_team_user_tags_and_machine_also_when_offer_and_job_are_gone() {
    // The offer may be withdrawn before or after the lease of it comes up.
    for withdrawn_first in [true, false] {
        let mut world = world();
        let id = world.submit(tagged("search"));
        world.decide();
        let lease = world.leases()[0];
        let offer = world.brain.lease(lease).expect("asked for").offer.clone();
        if withdrawn_first {
            world.event(Event::OfferGone { offer: offer.clone() });
        }
        world.up_all();
        world.event(Event::OfferGone { offer: offer.clone() });
        world.pass(Span::hours(1));
        world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Taken });
        let rows = world.brain.take_ledger();
        assert!(!rows.is_empty());
        for row in rows {
            let account = row.account.expect("whose money it is");
            assert_eq!((account.workload, account.team.as_str(), account.user.as_str()), (id, "nlp", "ada"));
            assert_eq!(account.tags["project"], "search");
            let goods = row.goods.expect("what was paid for");
            assert_eq!((row.offer, goods.market, goods.count), (Some(offer.clone()), Market::Spot, 1));
            assert_eq!(row.parts.map(|parts| parts.total()), Some(row.amount));
        }
    }
}

#[test]
fn what_runs_over_midnight_is_shown_open_by_the_day_and_written_the_same() {
    let mut world = world();
    let (id, _) = world.running(tagged("search"));
    let began = world.now;
    world.pass(Span::hours(50));
    let before = crate::codec::encode(&world.brain);
    let open = world.brain.open_ledger(world.now);
    assert_eq!(crate::codec::encode(&world.brain), before, "a look changes nothing");
    assert!(open.len() >= 3, "days of their own: {open:?}");
    assert_eq!((open[0].from, open[open.len() - 1].to), (began, world.now));
    assert!(open.iter().all(|row| row.beneficiary == Beneficiary::Workload(id)));
    let lease = world.leases()[0];
    world.event(Event::LeaseGone { lease, at: world.now, end: LeaseEnd::Taken });
    let told = |rows: &[crate::LedgerRow]| rows.iter().map(|row| (row.from, row.to, row.amount)).collect::<Vec<_>>();
    assert_eq!(told(&world.brain.take_ledger()), told(&open));
    assert_eq!(world.brain.open_ledger(world.now + Span::hours(1)), [], "nothing runs any more");
}
