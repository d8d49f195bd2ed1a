//! The ledger, page by page. Nothing else is asked: a row stands alone.
//!
//! The pages together are the ledger as it stood at one moment, that of the last page: the loop says which rows are
//! durable and what is open besides, and only rows up to that one are read. So nothing is missing and nothing is there
//! twice, however often leases end between two pages.

use super::{ApiState, Asker};
use crate::api_types::{LedgerEntry, LedgerPage, Problem};
use crate::principal::Principal;
use crate::problem;
use axum::Json;
use axum::extract::{Query, State};
use serde::Deserialize;
use windfall_core::english::with_causes;
use windfall_core::{LedgerRow, Time, codec};
use windfall_store::LedgerQuery;

/// Rows in one answer, where nobody says.
const USUAL: u32 = 1_000;
/// And at most: some 10 MB.
const MOST: u32 = 10_000;

#[derive(Deserialize)]
pub(super) struct Wanted {
    /// Rows that begin at this moment of the world's clock or later.
    from: Option<i64>,
    /// Rows that begin before this moment.
    to: Option<i64>,
    #[serde(default)]
    after: u64,
    limit: Option<u32>,
}

pub(super) async fn ledger(
    State(api): State<ApiState>,
    asker: Asker,
    Query(wanted): Query<Wanted>,
) -> Result<Json<LedgerPage>, Problem> {
    let limit = wanted.limit.unwrap_or(USUAL).clamp(1, MOST);
    let (mut after, mut upto, mut stored) = (wanted.after, api.reader.last_ledger_row(), Vec::new());
    // What is open is added up for the last page only, and is of the moment of its last row: what became durable between a
    // look at the rows and one at the books is read as well.
    let books = loop {
        let left = limit - stored.len() as u32;
        let (from_ms, before_ms) = (wanted.from, wanted.to);
        let query = LedgerQuery { after, upto, from_ms, before_ms, workload: None, limit: left };
        let rows = api.reader.reading(api.reader.archive.store.ledger(&query)).await?;
        stored.extend(rows.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?);
        if stored.len() == limit as usize {
            break api.reader.books_without_open();
        }
        let books = api.reader.books();
        if books.last_row == upto {
            break books;
        }
        (after, upto) = (upto, books.last_row);
    };
    let next = stored.last().filter(|_| stored.len() == limit as usize).map(|row| row.seq);
    let mut rows = Vec::with_capacity(stored.len());
    for row in stored {
        // A row that is left out would be money that nobody sees.
        let read: LedgerRow = codec::decode(row.version, &row.payload).map_err(|error| {
            problem(500, "unreadable-ledger", &format!("row {} of the ledger: {}", row.seq, with_causes(&error)))
        })?;
        rows.push(LedgerEntry { number: Some(row.seq), open: false, row: read });
    }
    if next.is_none() {
        let open = books.open.into_iter().filter(|row| wanted.holds(row.begins()));
        rows.extend(open.map(|row| LedgerEntry { number: None, open: true, row }));
    }
    let rows = api.visible(&asker.0, rows).await?;
    Ok(Json(LedgerPage { rows, next, now: books.now, replays: books.replays }))
}

impl Wanted {
    fn holds(&self, begins: Time) -> bool {
        self.from.is_none_or(|from| begins.0 >= from) && self.to.is_none_or(|to| begins.0 < to)
    }
}

impl ApiState {
    /// Operators see all of the ledger, everybody else what is charged to workloads of their own.
    async fn visible(&self, asker: &Principal, mut rows: Vec<LedgerEntry>) -> Result<Vec<LedgerEntry>, Problem> {
        if asker.is_operator() {
            return Ok(rows);
        }
        let mut own = Vec::new();
        for entry in rows.drain(..) {
            let owner = match (&entry.row.account, entry.row.beneficiary.workload()) {
                (Some(account), _) => Some(account.user.clone()),
                // Rows of earlier versions name the workload only.
                (None, Some(id)) => {
                    let job = self.reader.archive.store.job(id.0).await;
                    job.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?.map(|job| job.owner)
                }
                (None, None) => None,
            };
            if owner.is_some_and(|owner| asker.may_touch(&owner)) {
                own.push(entry);
            }
        }
        Ok(own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::Durable;
    use axum::extract::ConnectInfo;
    use windfall_core::brain::Config;
    use windfall_core::ledger::{Account, Beneficiary, Bought, Charge, Meter, PriceLine, Share};
    use windfall_core::{
        Body, Brain, Decision, DecisionId, Event, Installation, JobSpec, LeaseId, NanoUsd, OfferId, Reason, Record,
        Want, Workload, WorkloadId,
    };
    use windfall_store::{Commit, MemoryStore, Store};

    /// The row of a minute, charged to a job of somebody.
    fn row(minute: i64, owner: &str) -> LedgerRow {
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq: 3 }, slot: 0 };
        let spec = JobSpec { owner: owner.to_owned(), ..JobSpec::named("job", vec!["run".to_owned()]) };
        let from = Time(minute * 60_000);
        let prices = PriceLine::starting(from, NanoUsd(60_000_000_000));
        let mut meter = Meter::start(from, &prices);
        let offer = OfferId::new("offer");
        let bought = Bought::lease(1, lease, (&offer, &prices), None);
        let charged = [Charge::of(Beneficiary::Workload(WorkloadId(1)), Share::WHOLE)];
        let to = Time((minute + 1) * 60_000);
        meter.close(to, bought, charged.to_vec(), |id| Some(Account::of(id, &spec))).remove(0)
    }

    /// A ledger of five rows, of which the loop knows four to be durable, and one lease still runs.
    async fn api(folder: &std::path::Path) -> ApiState {
        let store = MemoryStore::new();
        let epoch = store.lead().await.expect("led");
        let stored = |seq: u64| {
            let row = row(seq as i64, if seq == 2 { "uid-4242" } else { "ada" });
            windfall_store::LedgerRow {
                seq,
                lease: row.paid_for(),
                workload: Some(1),
                from_ms: row.from.0,
                to_ms: row.to.0,
                nanousd: row.amount.0,
                version: codec::VERSION,
                payload: codec::encode(&row).into(),
            }
        };
        let ledger = (1..=5).map(stored).collect();
        store.commit(epoch, &Commit { ledger, ..Commit::default() }).await.expect("written");
        crate::api::tests::over(folder, store, Durable::new(with_a_lease(), 4), Time(400_000))
    }

    /// A job of somebody whose lease is up since the fifth minute.
    fn with_a_lease() -> Brain {
        let mut spec = JobSpec::named("job", vec!["run".to_owned()]);
        spec.owner = "ada".to_owned();
        let (workload, seen) = (WorkloadId(1), crate::cycle::offer_of("here"));
        let offer = seen.id.clone();
        let lease = LeaseId { group: DecisionId { installation: Installation(1), seq: 3 }, slot: 0 };
        let submitted = Event::Submitted { workload: Workload::from(spec), key: "key".to_owned(), id: Some(workload) };
        let bodies = [
            Body::Event(Event::OfferSeen { offer: seen }),
            Body::Event(submitted),
            Body::Decision(Decision::Acquire { want: Want::of(workload, offer, 1) }, Reason::new("test", "test")),
            Body::Event(Event::LeaseUp { lease, at: Time(300_000), terms: Box::default(), ready: None }),
        ];
        let mut brain = Brain::new(Installation(1), Config::default());
        for (body, seq) in bodies.into_iter().zip(1..) {
            brain.apply(&Record { seq, batch: 1, at: Time(300_000), body });
        }
        brain
    }

    async fn page(api: &ApiState, uid: u32, wanted: Wanted) -> (Vec<Option<u64>>, Option<u64>) {
        let asker = ConnectInfo(Principal::of(uid, 1_000));
        let Json(page) = ledger(State(api.clone()), asker, Query(wanted)).await.expect("a page");
        assert!(page.rows.iter().all(|entry| entry.open == entry.number.is_none()));
        (page.rows.iter().map(|entry| entry.number).collect(), page.next)
    }

    fn from(after: u64, limit: u32) -> Wanted {
        Wanted { from: None, to: None, after, limit: Some(limit) }
    }

    #[tokio::test]
    async fn pages_hold_every_durable_row_once_and_the_last_one_what_is_open() {
        let folder = tempfile::tempdir().expect("a folder");
        let api = api(folder.path()).await;
        assert_eq!(page(&api, 1_000, from(0, 3)).await, (vec![Some(1), Some(2), Some(3)], Some(3)));
        assert_eq!(page(&api, 1_000, from(3, 3)).await, (vec![Some(4), None], None));
        assert_eq!(page(&api, 1_000, from(0, 4)).await, (vec![Some(1), Some(2), Some(3), Some(4)], Some(4)));
        assert_eq!(page(&api, 1_000, from(4, 4)).await, (vec![None], None));
        let early = Wanted { from: Some(120_000), to: Some(180_000), after: 0, limit: None };
        assert_eq!(page(&api, 1_000, early).await, (vec![Some(2)], None));
        let late = Wanted { from: Some(300_000), to: None, after: 0, limit: None };
        assert_eq!(page(&api, 1_000, late).await, (vec![None], None));
    }

    #[tokio::test]
    async fn a_guest_sees_what_is_charged_to_work_of_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let api = api(folder.path()).await;
        assert_eq!(page(&api, 4_242, from(0, 10)).await, (vec![Some(2)], None));
        assert_eq!(page(&api, 4_243, from(0, 2)).await, (vec![], Some(2)), "and is told where to go on");
        assert_eq!(page(&api, 0, from(0, 10)).await.0.len(), 5, "root sees all of it");
    }
}
