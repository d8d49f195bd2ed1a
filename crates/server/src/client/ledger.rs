//! Reads the ledger, however long it is.

use super::{Client, Failure};
use crate::api_types::{LedgerEntry, LedgerPage};
use windfall_core::Time;

/// Rows that are asked for at once.
const PAGE: u32 = 5_000;

/// The world that a ledger is of.
#[derive(Clone, Debug)]
pub struct LedgerEnd {
    /// Its clock, until which leases that still run are counted.
    pub now: Time,
    /// The recording that it replays, if it does.
    pub replays: Option<String>,
}

impl Client {
    /// Hands every row of stretches that begin in `from..to` to `each`, page by page.
    pub async fn ledger(
        &self,
        from: Option<Time>,
        to: Option<Time>,
        mut each: impl FnMut(LedgerEntry),
    ) -> Result<LedgerEnd, Failure> {
        let range =
            [("from", from), ("to", to)].map(|(name, at)| at.map_or(String::new(), |at| format!("&{name}={}", at.0)));
        let mut after = 0;
        loop {
            let page: LedgerPage =
                self.get(&format!("/v1/ledger?after={after}&limit={PAGE}{}", range.concat())).await?;
            page.rows.into_iter().for_each(&mut each);
            match page.next {
                Some(next) => after = next,
                None => return Ok(LedgerEnd { now: page.now, replays: page.replays }),
            }
        }
    }
}
