//! What the simulated engine sells and takes back, by the recording alone: no agent runs.

use super::*;
use windfall_core::{Installation, Refusal, Span, WorkloadId};

const MARKET: &str = "aws-v100-4-nodes-2023";

fn group(seq: u64) -> DecisionId {
    DecisionId { installation: Installation(7), seq }
}

fn lease(seq: u64) -> LeaseId {
    LeaseId { group: group(seq), slot: 0 }
}

/// The first offset of the recording at which a zone is like this.
fn offset_where(like: impl Fn(&windfall_sim::Tape, &str, Span) -> bool) -> (String, Span) {
    let tape = windfall_sim::embedded(MARKET).expect("embedded");
    // Shortly before a tick too: that is when a notice comes.
    for offset in (1..5_000).flat_map(|tick| [tape.tick.0 * tick - 20_000, tape.tick.0 * tick].map(Span)) {
        if let Some(zone) = tape.zones().find(|zone| like(&tape, zone, offset)) {
            return (zone.to_owned(), offset);
        }
    }
    panic!("the recording has no such place");
}

async fn engine_at(root: &std::path::Path, zone: &str, from: Span) -> (Arc<Simulated>, Offer) {
    let replay = Replay { market: MARKET.to_owned(), zones: vec![zone.to_owned()], from };
    let clock = Arc::new(WorldClock::replayed(Time(1_000_000), 1));
    let program = PathBuf::from("/bin/true");
    let engine = Simulated::open("simulated", root.to_owned(), replay, clock, program, true).await.expect("opened");
    engine.position.begin_anew();
    let offers = engine.offers().await.expect("offers");
    let spot = offers.into_iter().find(|offer| offer.market == Market::Spot).expect("spot is sold");
    (engine, spot)
}

#[tokio::test]
async fn a_zone_sells_no_more_than_it_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let (zone, from) = offset_where(|tape, zone, offset| {
        let capacity = tape.quote(zone, offset).map_or(0, |quote| quote.capacity);
        capacity > 0 && tape.falls_below(zone, capacity, offset, tape.notice).is_none()
    });
    let (engine, spot) = engine_at(folder.path(), &zone, from).await;
    let capacity = u64::from(spot.capacity.expect("known"));
    let want = Want::of(WorkloadId(1), spot.id, 1);
    for seq in 1..=capacity {
        engine.sell(group(seq), &want).expect("there is room");
    }
    let refused = engine.sell(group(capacity + 1), &want);
    assert!(matches!(refused, Err(EngineError::Refused(Refusal::NoCapacity))), "{refused:?}");
    // What is given back can be sold again.
    engine.leases.mark(lease(1), |marks| marks.gone = Some((Time(1_000_000), LeaseEnd::Released)));
    engine.sell(group(capacity + 1), &want).expect("there is room again");
}

#[tokio::test]
async fn when_capacity_shrinks_the_oldest_leases_stay() {
    let folder = tempfile::tempdir().expect("a folder");
    let (zone, from) = offset_where(|tape, zone, offset| {
        let falls = |count| tape.falls_below(zone, count, offset, tape.notice).is_some();
        tape.quote(zone, offset).is_some_and(|quote| quote.capacity >= 2) && falls(2) && !falls(1)
    });
    let (engine, spot) = engine_at(folder.path(), &zone, from).await;
    let want = Want::of(WorkloadId(1), spot.id, 1);
    for seq in 1..=2 {
        engine.sell(group(seq), &want).expect("there is room");
        engine.leases.mark(lease(seq), |marks| marks.up_at = Some(Time(1_000_000)));
    }
    let doomed: Vec<LeaseId> = engine.doomed(engine.leases.clock.now()).into_iter().map(|(lease, _)| lease).collect();
    assert_eq!(doomed, [lease(2)]);
}
