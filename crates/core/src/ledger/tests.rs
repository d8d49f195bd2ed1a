//! Law 6 over random meters: prices that change, days, shares and corrections in any order.

use super::*;
use crate::ids::{DecisionId, Installation};
use crate::units::Span;
use proptest::prelude::*;

const DAY: i64 = 86_400_000;

fn lease() -> LeaseId {
    LeaseId { group: DecisionId { installation: Installation(1), seq: 7 }, slot: 0 }
}

fn goods(accelerators: u32, shape: HostShape) -> Goods {
    Goods {
        engine: "simulated".into(),
        pool: PoolId::default(),
        market: Market::Spot,
        cloud: "aws".into(),
        region: "us-west-2".into(),
        zone: "us-west-2a".into(),
        instance_type: "p3.2xlarge".into(),
        accelerator: "V100".into(),
        count: accelerators,
        shape,
    }
}

fn account(id: u64) -> Account {
    Account { user: "ada".into(), ..Account::of(WorkloadId(id), &JobSpec::named("bert", vec!["./train".into()])) }
}

/// A lease, and the prices of what it is of.
struct Running {
    meter: Meter,
    prices: PriceLine,
}

fn start(at: i64, rate: i64) -> Running {
    let prices = PriceLine::starting(Time(at), NanoUsd(rate));
    Running { meter: Meter::start(Time(at), &prices), prices }
}

/// Closes a stretch for the given shares.
fn close(lease: &mut Running, at: i64, goods: Option<&Arc<Goods>>, charged: &[(Beneficiary, Share)]) -> Vec<LedgerRow> {
    let charged: Vec<Charge> = charged.iter().map(|(beneficiary, share)| Charge::of(*beneficiary, *share)).collect();
    let offer = OfferId::new("simulated/us-west-2a/p3.2xlarge/spot");
    let bought = Bought::lease(1, self::lease(), (&offer, &lease.prices), goods);
    lease.meter.close(Time(at), bought, charged, |id| Some(account(id.0)))
}

fn sum(rows: &[LedgerRow]) -> i128 {
    rows.iter().map(|row| i128::from(row.amount.0)).sum()
}

const UNSAID: HostShape = HostShape { cpu_millis: 0, memory_bytes: 0 };
const JOB: Beneficiary = Beneficiary::Workload(WorkloadId(3));
const OTHER: Beneficiary = Beneficiary::Workload(WorkloadId(4));

fn any_beneficiary() -> impl Strategy<Value = Beneficiary> {
    prop_oneof![
        (1..5_u64).prop_map(|id| Beneficiary::Workload(WorkloadId(id))),
        Just(Beneficiary::Idle),
        Just(Beneficiary::Foreign),
        Just(Beneficiary::NotReady),
        Just(Beneficiary::Drained),
        Just(Beneficiary::Overhead),
    ]
}

/// Shares that add up to less than the whole, to the whole, and to more.
fn any_charge() -> impl Strategy<Value = Vec<(Beneficiary, Share)>> {
    let share = (0..9_u64, prop_oneof![1..12_u64, Just(0), Just(1_000_003)]);
    proptest::collection::vec((any_beneficiary(), share.prop_map(|(part, of)| Share { part, of })), 0..5)
}

/// One thing that happens to a lease: how long after the last one, how late the news of it is, prices in the time before it,
/// and who had it until then.
type Step = (i64, i64, Vec<i64>, Vec<(Beneficiary, Share)>);

fn any_step() -> impl Strategy<Value = Step> {
    let span = || prop_oneof![0..DAY, 0..9 * DAY, (0..9_i64).prop_map(|days| days * DAY)];
    let late = prop_oneof![Just(0), span()];
    (span(), late, proptest::collection::vec(0..90_000_000_000_i64, 0..5), any_charge())
}

proptest! {
    #[test]
    fn all_rows_of_a_lease_add_up_to_what_it_cost(
        start in -3 * DAY..3 * DAY,
        steps in proptest::collection::vec(any_step(), 1..12),
        accelerators in 0..9_u32,
        shape in prop_oneof![Just((0, 0)), (0..200_000_u64, 0..1_u64 << 42), any::<(u64, u64)>()],
        known in any::<bool>(),
    ) {
        let shape = HostShape { cpu_millis: shape.0, memory_bytes: shape.1 };
        let goods = known.then(|| Arc::new(goods(accelerators, shape)));
        let mut lease = self::start(start, 3_060_000_000);
        let mut rows = Vec::new();
        // Prices from moments on, by which the cost is counted a second time and in one go.
        let mut prices = vec![(start, 3_060_000_000_i128)];
        let (mut now, mut end) = (start, start);
        for (after, late, moves, charged) in steps {
            let count = moves.len() as i64;
            for (number, rate) in moves.into_iter().enumerate() {
                let at = now + after * (number as i64 + 1) / (count + 1);
                lease.prices.push(Time(at), NanoUsd(rate));
                prices.push((at, i128::from(rate)));
            }
            now += after;
            end = (now - late).max(start);
            rows.extend(close(&mut lease, end, goods.as_ref(), &charged));
        }
        let ends = prices.iter().skip(1).map(|(from, _)| *from).chain([i64::MAX]);
        let spans = prices.iter().zip(ends).map(|((from, price), to)| (i128::from((to.min(end) - from).max(0)), price));
        let cost: i128 = spans.map(|(span, price)| span * price).sum();
        prop_assert_eq!(sum(&rows), cost.div_euclid(3_600_000));
        prop_assert_eq!(sum(&rows), i128::from(lease.meter.cost_at(Time(end), &lease.prices).0));
        for row in &rows {
            let (first, last) = (row.from.min(row.to).0, row.from.max(row.to).0);
            prop_assert_eq!(first.div_euclid(DAY), (last - 1).div_euclid(DAY), "a row crosses midnight: {:?}", row);
            prop_assert_eq!(row.parts.is_some(), known);
            if let Some(parts) = row.parts {
                prop_assert_eq!(parts.total(), row.amount);
            }
            prop_assert_eq!(row.account.as_ref().map(|account| account.workload), row.beneficiary.workload());
            prop_assert!(row.share.part > 0 && row.share.part <= row.share.of);
            // The price that a row names is that of its time, or the mean: rounded once, for each hour of the row.
            let exact = row.rate.0 as f64 * (row.to - row.from).0 as f64 / 3.6e6 * row.share.part as f64 / row.share.of as f64;
            let rounding = 3.0 + (last - first) as f64 / 3.6e6 + exact.abs() * 1e-12;
            prop_assert!((row.amount.0 as f64 - exact).abs() <= rounding, "{:?} is not {}", row, exact);
        }
    }

    #[test]
    fn a_meter_without_shares_charges_what_one_row_would(
        rates in proptest::collection::vec((1..DAY, 0..90_000_000_000_i64), 1..10),
    ) {
        let mut lease = start(0, 1);
        let mut accrued = crate::units::Accrued::default();
        let (mut rows, mut at, mut rate) = (Vec::new(), 0, 1);
        for (span, next) in rates {
            at += span;
            accrued.add(NanoUsd(rate), Span(span));
            rows.extend(close(&mut lease, at, None, &[(JOB, Share::WHOLE)]));
            lease.prices.push(Time(at), NanoUsd(next));
            rate = next;
        }
        prop_assert_eq!(sum(&rows), i128::from(accrued.total().0));
    }
}

#[test]
fn sevenths_are_exact_and_the_rest_is_idle() {
    let mut lease = start(0, 7_000_000_001);
    let charged = [(JOB, Share::new(3, 7)), (OTHER, Share::new(2, 7))];
    let rows = close(&mut lease, 3_600_000, Some(&Arc::new(goods(1, UNSAID))), &charged);
    let shares: Vec<(Beneficiary, Share, i64)> =
        rows.iter().map(|row| (row.beneficiary, row.share, row.amount.0)).collect();
    let expected = [
        (JOB, Share { part: 3, of: 7 }, 3_000_000_000),
        (OTHER, Share { part: 2, of: 7 }, 2_000_000_000),
        (Beneficiary::Idle, Share { part: 2, of: 7 }, 2_000_000_001),
    ];
    assert_eq!(shares, expected);
    assert!(rows[0].account.is_some() && rows[2].account.is_none());
}

#[test]
fn more_than_there_is_is_divided_in_proportion() {
    let mut lease = start(0, 4_000_000_000);
    let charged = [(JOB, Share::WHOLE), (OTHER, Share::new(1, 3))];
    let amounts: Vec<i64> = close(&mut lease, 3_600_000, None, &charged).iter().map(|row| row.amount.0).collect();
    assert_eq!(amounts, [3_000_000_000, 1_000_000_000]);
}

#[test]
fn shares_without_a_common_denominator_lose_no_money() {
    let mut lease = start(0, 4_000_000_000);
    let odd = [(JOB, Share { part: 1, of: u64::MAX }), (OTHER, Share { part: 1, of: u64::MAX - 1 })];
    let rows = close(&mut lease, 3_600_000, None, &odd);
    assert_eq!((rows.len(), rows[0].beneficiary, rows[0].amount), (1, JOB, NanoUsd(4_000_000_000)));
}

#[test]
fn what_is_taken_back_is_taken_from_those_who_were_charged_on_the_day_that_they_were() {
    let mut lease = start(DAY / 2, 1_000_000_000);
    let charged = close(&mut lease, DAY + DAY / 2, None, &[(JOB, Share::WHOLE)]);
    lease.prices.push(Time(DAY + DAY / 2), NanoUsd(2_000_000_000));
    let later = close(&mut lease, 2 * DAY, None, &[(OTHER, Share::WHOLE)]);
    // The news that it ended on the first day comes last, when nobody has it any more.
    let back = close(&mut lease, DAY / 2 + 3_600_000, None, &[]);
    let told: Vec<(Beneficiary, i64, i64, i64)> =
        back.iter().map(|row| (row.beneficiary, row.from.0, row.to.0, row.amount.0)).collect();
    let expected = [
        (OTHER, 2 * DAY, DAY + DAY / 2, -24_000_000_000),
        (JOB, DAY + DAY / 2, DAY, -12_000_000_000),
        (JOB, DAY, DAY / 2 + 3_600_000, -11_000_000_000),
    ];
    assert_eq!(told, expected);
    assert!(back.iter().all(|row| row.account.is_some()), "accounts are remembered");
    assert_eq!(back.iter().map(|row| row.begins().0 / DAY).collect::<Vec<_>>(), [1, 1, 0]);
    assert_eq!(sum(&charged) + sum(&later) + sum(&back), 1_000_000_000);
}

#[test]
fn a_meter_that_runs_for_years_remembers_a_bounded_past() {
    let mut lease = start(0, 3_600_000);
    let mut rows = Vec::new();
    for guest in 1..=2_000 {
        let charged = [(Beneficiary::Workload(WorkloadId(guest)), Share::new(1, 2)), (JOB, Share::new(1, 2))];
        rows.extend(close(&mut lease, guest as i64 * 1_000, None, &charged));
    }
    let stored = serde_json::to_value(&lease.meter).expect("a value");
    let length = |part: &str| stored[part].as_array().map(Vec::len);
    let kept = length("earlier").unwrap_or(0);
    assert!((256..512).contains(&kept), "{kept} stretches");
    assert_eq!(length("accounts"), Some(kept + 1));
    let read: Meter = serde_json::from_value(stored).expect("a meter");
    assert_eq!(read, lease.meter);
    // News of an end that is longer ago than that takes back what is known of, and no more.
    rows.extend(close(&mut lease, 5_000, None, &[]));
    let first = 2_000 - kept as i64;
    assert_eq!((lease.meter.upto, sum(&rows)), (Time(first * 1_000), i128::from(first) * 1_000));
}

#[test]
fn a_stretch_that_goes_on_is_one() {
    let mut lease = start(0, 3_600_000);
    for second in 1..=50 {
        close(&mut lease, second * 1_000, None, &[(JOB, Share::WHOLE)]);
    }
    let back = close(&mut lease, 10_000, None, &[]);
    assert_eq!((back.len(), sum(&back)), (1, -40_000));
}

#[test]
fn news_that_comes_after_a_thousand_years_makes_few_rows() {
    let mut lease = start(5, 1_000);
    let rows = close(&mut lease, 365_000 * DAY, None, &[(JOB, Share::WHOLE)]);
    assert_eq!(rows.len(), MOST_DAYS);
    assert_eq!(sum(&rows), (365_000_i128 * i128::from(DAY) - 5) * 1_000 / 3_600_000);
}

#[test]
fn parts_follow_the_machine() {
    let amount = NanoUsd(3_060_000_001);
    let parts = |count, cpus: u64, gib: u64| {
        Parts::of(amount, &goods(count, HostShape { cpu_millis: cpus * 1_000, memory_bytes: gib << 30 }))
    };
    assert_eq!(parts(0, 0, 0).gpu, NanoUsd(0), "no accelerators, no part for them");
    // Of 0.95 for the accelerator, 8 · 0.031611 for cores and 61 · 0.004237 for memory.
    let one = parts(1, 0, 0);
    assert_eq!((one.gpu.0 / 1_000_000, one.cpu.0 / 1_000_000, one.memory.0 / 1_000_000), (1_989, 529, 541));
    assert_eq!((parts(8, 0, 0), parts(1, 8, 61)), (one, one), "eight of them have eight times as much beside them");
    assert_eq!((parts(1, 8, 0), parts(1, 0, 61)), (one, one), "what is not said is what is usual");
    assert!(parts(1, 96, 61).cpu > one.cpu, "what is said counts");
    let plain = parts(0, 0, 0);
    assert_eq!((parts(0, 2, 8), parts(0, 2, 0), parts(0, 0, 8)), (plain, plain, plain), "4 GiB a core");
    assert_eq!(parts(0, 2, 0).total(), amount);
}

proptest! {
    #[test]
    fn late_news_of_one_lease_changes_nobody_elses_bill(
        rate in 1i64..90_000_000_000,
        of in 7u64..9_000,
        news in proptest::collection::vec(1i64..4_000_000, 1..12),
    ) {
        let named = |slot| LeaseId { slot, ..lease() };
        let part = |slot: u32| Charge {
            lease: Some(named(slot)),
            ..Charge::of(Beneficiary::Workload(WorkloadId(u64::from(slot))), Share::new(1, of))
        };
        let (seller, node) = (Arc::new(goods(8, HostShape::default())), NodeId("node".into()));
        let charged: Vec<Charge> = (0..7).map(part).collect();
        let split = Split { rate: NanoUsd(rate), goods: seller, charged, spare: Beneficiary::Idle };
        let mut meter = NodeMeter::start(Time(0), split);
        let mut rows = meter.close(Time(4_000_000), (1, &node), |id| Some(account(id.0)));
        let bill = |rows: &[LedgerRow]| sum(&rows.iter().filter(|row| row.lease == Some(named(3))).cloned().collect::<Vec<_>>());
        let (before, whole) = (bill(&rows), sum(&rows));
        // Others were gone earlier than it seemed, and some of them earlier still.
        for (at, slot) in news.into_iter().zip([0, 1, 2, 4, 5, 6].into_iter().cycle()) {
            let corrections = meter.left(Time(at), (2, &node), named(slot));
            let of_others = corrections.iter().any(|row| row.lease.is_some_and(|lease| lease != named(slot)));
            prop_assert!(!of_others, "nothing is written for those whose bill stays the same");
            rows.extend(corrections);
        }
        prop_assert_eq!((bill(&rows), sum(&rows)), (before, whole));
    }
}
