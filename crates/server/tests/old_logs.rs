//! Logs that were written by earlier versions are read: each file here is a state as a released binary left it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use windfall_core::brain::Config;
use windfall_core::spec::Late;
use windfall_core::view::{JobView, State};
use windfall_core::{Body, Brain, Decision, Event, Installation, Record, Span, Time, Told, Work, codec};
use windfall_server::cycle::{Cycle, Habits, Moment, Step};
use windfall_store::{JobQuery, LedgerQuery, LedgerRow, Store};

const LOGS: [&str; 6] = [
    "version-1-quickstart",
    "version-1-gang",
    "version-1-budget-pause",
    "version-1-restart",
    "version-3-late",
    "version-4-gang",
];

/// A copy of a recorded state, to be opened and changed.
async fn copy(name: &str, into: &Path) -> Arc<dyn Store> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs").join(format!("{name}.db"));
    let to = into.join("state.db");
    std::fs::copy(&from, &to).expect("the recorded state is there");
    windfall_store::open(&format!("sqlite:{}", to.display())).await.expect("it opens").into()
}

async fn ledger_of(store: &Arc<dyn Store>, workload: u64) -> Vec<LedgerRow> {
    store.ledger(&LedgerQuery { workload: Some(workload), ..LedgerQuery::default() }).await.expect("read")
}

fn job_as_listed(jobs: &[windfall_store::JobRow]) -> JobView {
    let row = jobs.first().expect("one job was run");
    codec::decode(row.version, &row.summary).expect("its last view is read")
}

#[tokio::test]
async fn a_server_starts_on_every_recorded_state_and_remembers_its_jobs() {
    for name in LOGS {
        let place = tempfile::tempdir().expect("a folder");
        let store = copy(name, place.path()).await;
        let (epoch, loaded) = (store.lead().await.expect("led"), store.load().await.expect("loaded"));
        let now = Moment { world: Time(loaded.tail.last().map_or(0, |row| row.at_ms)), real: Duration::ZERO };
        let mut cycle =
            Cycle::start(Habits::default(), Config::default(), &["simulated".to_owned()], epoch, loaded, now)
                .expect(name);
        assert_eq!(cycle.brain().jobs().count(), 0, "{name}: every job of it is over");
        let jobs = store.jobs(&JobQuery::default()).await.expect("listed");
        assert_eq!(job_as_listed(&jobs).state, State::Succeeded, "{name}");
        assert!(matches!(cycle.next(now), Step::Look { .. }), "{name}: and goes on");
        store.close().await;
    }
}

#[tokio::test]
async fn a_recorded_log_folds_to_what_its_own_binary_made_of_it() {
    for name in LOGS {
        let place = tempfile::tempdir().expect("a folder");
        let store = copy(name, place.path()).await;
        let known = job_as_listed(&store.jobs(&JobQuery::default()).await.expect("listed"));
        let ledger: i64 = ledger_of(&store, known.id.0).await.iter().map(|row| row.nanousd).sum();
        let installation = store.load().await.expect("loaded").installation;
        let installation = u64::from_str_radix(&installation, 16).expect("a number");
        let mut brain = Brain::new(Installation(installation), Config::default());
        for row in store.rows_after(0, u32::MAX).await.expect("read") {
            let body: Body = codec::decode(row.version, &row.payload).expect("a record is read");
            brain.apply(&Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body });
        }
        let view = brain.take_final_views().pop().expect("the job ended");
        let tell = |view: &JobView| {
            (
                view.id,
                view.state,
                view.cost,
                view.interruptions,
                view.stints,
                view.ended_at,
                view.ran,
                view.deadline_met(),
            )
        };
        assert_eq!(tell(&view), tell(&known), "{name}");
        let charged: i64 = brain.take_ledger().iter().map(|row| row.amount.0).sum();
        assert_eq!((charged, view.cost.0), (ledger, ledger), "{name}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_recorded_snapshot_is_gone_on_from() {
    let place = tempfile::tempdir().expect("a folder");
    let store = copy("version-1-gang", place.path()).await;
    let loaded = store.load().await.expect("loaded");
    let snapshot = loaded.snapshot.expect("this state has one");
    assert_eq!(snapshot.version, 1);
    let mut brain: Brain = codec::decode(snapshot.version, &snapshot.payload).expect("read");
    assert!(brain.jobs().next().is_some(), "the job was in the middle of its work");
    for row in &loaded.tail {
        let body: Body = codec::decode(row.version, &row.payload).expect("a record is read");
        brain.apply(&Record { seq: row.seq, batch: row.batch, at: Time(row.at_ms), body });
    }
    assert_eq!(brain.take_final_views().pop().map(|view| view.state), Some(State::Succeeded));
    store.close().await;
}

#[tokio::test]
async fn a_state_of_a_newer_version_is_refused_with_a_sentence() {
    let place = tempfile::tempdir().expect("a folder");
    let store = copy("version-1-restart", place.path()).await;
    let row = store.rows_after(0, 1).await.expect("read").remove(0);
    let error = codec::decode::<Body>(codec::VERSION + 1, &row.payload).expect_err("it is newer");
    assert!(error.to_string().contains("newer than this binary knows"), "{error}");
    store.close().await;
}

#[tokio::test]
async fn what_an_earlier_version_said_in_words_and_counted_in_thousands_is_the_same_today() {
    let place = tempfile::tempdir().expect("a folder");
    let store = copy("version-3-late", place.path()).await;
    let rows = store.rows_after(0, u32::MAX).await.expect("read");
    let bodies: Vec<Body> =
        rows.iter().map(|row| codec::decode(row.version, &row.payload).expect("a record is read")).collect();
    let told: Vec<&Told> = bodies
        .iter()
        .filter_map(|body| match body {
            Body::Decision(Decision::Notify { told, .. }, _) => Some(told),
            _ => None,
        })
        .collect();
    assert!(matches!(told[..], [Told::Infeasible { price: Some(_), then: Late::Soonest, .. }, Told::Late]), "{told:?}");
    let spec = bodies.iter().find_map(|body| match body {
        Body::Event(Event::Submitted { workload, .. }) => Some(workload.job()),
        _ => None,
    });
    // Two steps a minute: twenty take ten minutes, as far as thousandths of a step could say it.
    let rate = spec.expect("a submission").work.rates["V100"];
    assert!((rate.time_for(Work(20)) - Span::minutes(10)).0.abs() < 10_000, "{rate:?}");
    let view = job_as_listed(&store.jobs(&JobQuery::default()).await.expect("listed"));
    assert!(view.told.is_some_and(|told| told.is_about_the_deadline()), "as its bill said it");
    store.close().await;
}

#[tokio::test]
async fn ledger_rows_of_earlier_versions_are_read_to_the_nano_dollar() {
    for name in LOGS {
        let place = tempfile::tempdir().expect("a folder");
        let store = copy(name, place.path()).await;
        let rows = store.ledger(&LedgerQuery::default()).await.expect("read");
        assert!(!rows.is_empty(), "{name}");
        for row in rows {
            let read: windfall_core::LedgerRow = codec::decode(row.version, &row.payload).expect(name);
            let workload = read.beneficiary.workload().map(|id| id.0);
            assert_eq!(
                (read.amount.0, workload, read.from.0, read.to.0),
                (row.nanousd, row.workload, row.from_ms, row.to_ms)
            );
            assert_eq!((read.share, read.account, read.goods), (windfall_core::ledger::Share::WHOLE, None, None));
        }
        store.close().await;
    }
}

#[tokio::test]
async fn a_lease_of_a_recorded_snapshot_is_charged_with_what_it_was() {
    let place = tempfile::tempdir().expect("a folder");
    let store = copy("version-1-gang", place.path()).await;
    let loaded = store.load().await.expect("loaded");
    let snapshot = loaded.snapshot.expect("this state has one");
    let brain: Brain = codec::decode(snapshot.version, &snapshot.payload).expect("read");
    let rows = brain.open_ledger(brain.now() + Span::hours(1));
    assert!(!rows.is_empty(), "leases were up");
    for row in rows {
        assert!(row.goods.is_some_and(|goods| goods.count > 0 && !goods.accelerator.is_empty()));
        assert!(row.account.is_some_and(|account| !account.user.is_empty() && account.team == "default"));
    }
    store.close().await;
}
