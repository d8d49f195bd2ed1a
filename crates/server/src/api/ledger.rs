//! The ledger, page by page. Nothing else is asked: a row stands alone.
//!
//! The pages together are the ledger as it stood at one moment, that of the last page: the loop says which rows are
//! durable and what is open besides, and only rows up to that one are read. So nothing is missing and nothing is there
//! twice, however often leases end between two pages.

use super::{Asker, Desk, LOOK};
use crate::api_types::{LedgerEntry, LedgerPage, Problem};
use crate::keeper::{Ask, Books};
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
/// Looks at a loop whose commit is on its way, before the asker is told to come again.
const LOOKS: u32 = 50;

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
    State(desk): State<Desk>,
    asker: Asker,
    Query(wanted): Query<Wanted>,
) -> Result<Json<LedgerPage>, Problem> {
    let books = desk.books().await?;
    let limit = wanted.limit.unwrap_or(USUAL).clamp(1, MOST);
    let query = LedgerQuery {
        after: wanted.after,
        upto: books.last_row,
        from_ms: wanted.from,
        before_ms: wanted.to,
        workload: None,
        limit,
    };
    let stored = desk.store.ledger(&query).await;
    let stored = stored.map_err(|error| problem(503, "store-refused", &with_causes(&error)))?;
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
    let rows = desk.visible(&asker.0, rows).await?;
    Ok(Json(LedgerPage { rows, next, now: books.now, market: books.market }))
}

impl Wanted {
    fn holds(&self, begins: Time) -> bool {
        self.from.is_none_or(|from| begins.0 >= from) && self.to.is_none_or(|to| begins.0 < to)
    }
}

impl Desk {
    async fn books(&self) -> Result<Books, Problem> {
        for _ in 0..LOOKS {
            if let Some(books) = self.ask(Ask::Books).await? {
                return Ok(books);
            }
            tokio::time::sleep(LOOK / 10).await;
        }
        Err(problem(503, "commit-on-its-way", "the store takes long to take what was decided: ask again"))
    }

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
                    let job = self.store.job(id.0).await;
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
