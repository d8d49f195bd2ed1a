//! The report over a small ledger, word by word, and that it balances.

use super::by::{By, moment};
use super::show::{self, Asked};
use super::sums::Sums;
use proptest::prelude::*;
use std::sync::Arc;
use windfall_core::ledger::{
    Account, Beneficiary, Bought, Charge, Goods, HostShape, Meter, NodeMeter, PriceLine, Share, Split,
};
use windfall_core::{
    DecisionId, Installation, JobSpec, LeaseId, LedgerRow, Market, NanoUsd, NodeId, OfferId, Span, Time, WorkloadId,
};
use windfall_server::client::LedgerEnd;

const HOUR: Span = Span::hours(1);
/// A Sunday, 20:00.
const EVENING: Time = Time(1_794_772_800_000);

fn goods(market: Market, accelerator: &str, count: u32) -> Goods {
    Goods {
        engine: "simulated".into(),
        pool: Default::default(),
        market,
        cloud: "aws".into(),
        region: "us-west-2".into(),
        zone: "us-west-2a".into(),
        instance_type: "p3.2xlarge".into(),
        accelerator: accelerator.into(),
        count,
        shape: HostShape::default(),
    }
}

fn account(id: u64, team: &str, user: &str, tags: &[(&str, &str)]) -> Account {
    let mut spec = JobSpec::named(format!("train, run {id}"), vec!["./train".into()]);
    spec.tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Account { team: team.into(), user: user.into(), ..Account::of(WorkloadId(id), &spec) }
}

/// Rows of a lease that ran from the evening on.
fn rows(lease: u64, hours: i64, rate: f64, goods: Option<&Goods>, of: &[(&Account, Share)]) -> Vec<LedgerRow> {
    let id = LeaseId { group: DecisionId { installation: Installation(1), seq: lease }, slot: 0 };
    let offer = OfferId::new("an offer");
    let charged: Vec<Charge> =
        of.iter().map(|(account, share)| Charge::of(Beneficiary::Workload(account.workload), *share)).collect();
    let prices = PriceLine::starting(EVENING, NanoUsd::from_dollars(rate));
    let mut meter = Meter::start(EVENING, &prices);
    let goods = goods.cloned().map(Arc::new);
    let bought = Bought::lease(1, id, (&offer, &prices), goods.as_ref());
    let whose = |id| of.iter().map(|(account, _)| (*account).clone()).find(|account| account.workload == id);
    meter.close(EVENING + Span(hours * HOUR.0), bought, charged, whose)
}

/// Two teams, a shared machine, a machine without accelerators, an orphan, and a row of before rows stood alone.
fn ledger() -> Vec<LedgerRow> {
    let nlp = account(1, "nlp", "ada", &[("project", "search")]);
    let vision = account(2, "vision", "bob", &[]);
    let (spot, firm) = (goods(Market::Spot, "V100", 1), goods(Market::OnDemand, "A100", 8));
    let plain = goods(Market::OnDemand, "", 0);
    let mut all = rows(1, 30, 0.918, Some(&spot), &[(&nlp, Share::WHOLE)]);
    all.extend(rows(2, 6, 32.7726, Some(&firm), &[(&nlp, Share::new(3, 7)), (&vision, Share::new(2, 7))]));
    all.extend(rows(3, 2, 0.17, Some(&plain), &[(&vision, Share::WHOLE)]));
    let mut orphan = rows(4, 1, 3.06, Some(&goods(Market::OnDemand, "V100", 1)), &[]);
    orphan.iter_mut().for_each(|row| row.beneficiary = Beneficiary::Overhead);
    all.extend(orphan);
    let mut old = rows(5, 1, 3.06, None, &[(&account(7, "", "", &[]), Share::WHOLE)]);
    old.iter_mut().for_each(|row| (row.account, row.offer) = (None, None));
    all.extend(old);
    all
}

fn sums(by: &[&str], open: bool) -> Sums {
    let mut sums = Sums::new(by.iter().map(|word| By::read(word).expect("known")).collect());
    for row in ledger() {
        sums.add(&row, open && row.lease.is_some_and(|lease| lease.group.seq == 1));
    }
    sums
}

fn always() -> Asked {
    Asked { from: None, before: None }
}

fn end() -> LedgerEnd {
    LedgerEnd { now: EVENING + Span(30 * HOUR.0), replays: Some("v100-us-west-2".into()) }
}

fn table(by: &[&str], width: usize) -> String {
    show::table(&sums(by, true), &always(), &end(), width)
}

#[test]
fn the_table_reads_well_at_any_width() {
    insta::assert_snapshot!("by_team_and_market", table(&["team", "market"], 120));
    insta::assert_snapshot!("by_team_and_market_in_60_columns", table(&["team", "market"], 60));
    insta::assert_snapshot!("by_job", table(&["job"], 80));
    insta::assert_snapshot!("by_day_and_team", table(&["team", "day"], 80));
    insta::assert_snapshot!("by_tag_and_accelerator", table(&["tag:project", "accelerator"], 80));
}

#[test]
fn spreadsheets_and_programs_get_exact_amounts_under_stable_names() {
    insta::assert_snapshot!("csv", show::csv(&sums(&["job", "kind", "engine"], true)).expect("csv"));
    let json = show::json(&sums(&["user", "beneficiary"], true), &always(), Some(&end()));
    insta::assert_snapshot!("json", serde_json::to_string_pretty(&json).expect("json"));
}

#[test]
fn what_a_node_costs_is_shown_by_who_had_it() {
    let (nlp, id) = (account(1, "nlp", "ada", &[]), NodeId("slurm/gpu-07".into()));
    let lease = Some(LeaseId { group: DecisionId { installation: Installation(1), seq: 9 }, slot: 0 });
    let quarter = Charge { beneficiary: Beneficiary::Workload(nlp.workload), share: Share::new(1, 4), lease };
    let charged = vec![quarter, Charge::of(Beneficiary::Foreign, Share::new(1, 8))];
    let split = |spare| Split {
        rate: NanoUsd::from_dollars(8.0),
        goods: goods(Market::Owned, "H100", 8).into(),
        charged: charged.clone(),
        spare,
    };
    let mut meter = NodeMeter::start(EVENING, split(Beneficiary::Idle));
    let drained = split(Beneficiary::Drained);
    let mut rows = meter.split(EVENING + Span::hours(10), (1, &id), drained, |_| Some(nlp.clone()));
    let written = rows.len();
    rows.extend(meter.close(EVENING + Span::hours(12), (2, &id), |_| Some(nlp.clone())));
    let mut sums = Sums::new(vec![By::Beneficiary, By::Team]);
    rows.iter().enumerate().for_each(|(number, row)| sums.add(row, number >= written));
    insta::assert_snapshot!("by_beneficiary", show::table(&sums, &always(), &end(), 100));
}

#[test]
fn small_bills_have_four_decimals_and_all_alike() {
    let mut sums = Sums::new(vec![By::Team]);
    let (small, large) = (account(1, "a", "ada", &[]), account(2, "b", "ada", &[]));
    let spot = goods(Market::Spot, "V100", 1);
    for row in rows(1, 1, 0.0123, Some(&spot), &[(&small, Share::WHOLE)]) {
        sums.add(&row, false);
    }
    for row in rows(2, 1, 3.06, Some(&spot), &[(&large, Share::WHOLE)]) {
        sums.add(&row, false);
    }
    let text = show::table(&sums, &always(), &end(), 24);
    assert!(text.contains("b      $3.0600   99.6 %\na      $0.0123    0.4 %\ntotal  $3.0723  100.0 %"), "{text}");
}

#[test]
fn days_and_months_are_read_and_nonsense_is_not() {
    let at = |text: &str, after| moment("--from", text, after).ok().map(|time| time.0 / 86_400_000);
    assert_eq!((at("1970-01-02", false), at("1970-01-02", true)), (Some(1), Some(2)));
    assert_eq!((at("1970-02", false), at("1970-02", true)), (Some(31), Some(59)));
    for wrong in
        ["", "2026", "2026-13", "2026-02-30", "yesterday", "20261101", "2026-11-1", "+026-11-01", "2026-11-01T"]
    {
        assert!(moment("--from", wrong, false).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn every_way_to_split_comes_to_the_same_sum(words in proptest::sample::subsequence(
        vec!["team", "user", "job", "kind", "market", "engine", "accelerator", "day", "beneficiary", "tag:project"], 0..10,
    )) {
        let sums = sums(&words, true);
        let all: i128 = ledger().iter().map(|row| i128::from(row.amount.0)).sum();
        let parts = |of: &dyn Fn(&super::sums::Sum) -> i128| sums.lines().iter().map(|(_, sum)| of(sum)).sum::<i128>();
        prop_assert_eq!((parts(&|sum| sum.cost), sums.total.cost), (all, all));
        prop_assert_eq!(parts(&|sum| sum.gpu + sum.cpu + sum.memory + sum.unsplit), all);
        prop_assert_eq!(parts(&|sum| sum.lease.ns), sums.total.lease.ns);
    }
}
