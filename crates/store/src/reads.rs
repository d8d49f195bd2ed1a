//! What both databases answer alike. The statements are the same text (`$1` is understood by both); only the types
//! of the drivers differ, so one macro writes the functions once for each.

macro_rules! reads {
    ($module:ident, $database:ty, $row:ty, $begin:literal, $lock:literal) => {
        pub(crate) mod $module {
            use sqlx::{Connection, Pool, QueryBuilder, Result, Row as _};

            use crate::{
                JobQuery, JobRow, LedgerQuery, LedgerRow, LedgerTotal, Notes, Part, Row, Snapshot,
                sequence::{Heads, bound},
                statements::COVERED,
            };

            type Conn = <$database as sqlx::Database>::Connection;

            const LOG: &str = "SELECT seq, batch, at_ms, workload, kind, version, payload FROM log ";
            const JOBS: &str = "SELECT workload, name, owner, state, live, submitted_at_ms, ended_at_ms, version, \
                                summary FROM jobs WHERE ";
            const LEDGER: &str =
                "SELECT seq, lease, workload, from_ms, to_ms, nanousd, version, payload FROM ledger WHERE ";

            const HEADS: &str = "SELECT epoch, next_seq, next_batch, next_ledger_seq, installation FROM meta";
            const LOCKED_HEADS: &str =
                concat!("SELECT epoch, next_seq, next_batch, next_ledger_seq, installation FROM meta", $lock);

            fn unsigned(row: &$row, column: usize) -> Result<u64> {
                Ok(row.try_get::<i64, _>(column)?.cast_unsigned())
            }

            fn version(row: &$row, column: usize) -> Result<u16> {
                // Only numbers that came from a u16 are ever written there.
                Ok(row.try_get::<i32, _>(column)? as u16)
            }

            fn workload(row: &$row, column: usize) -> Result<Option<u64>> {
                Ok(row.try_get::<Option<i64>, _>(column)?.map(i64::cast_unsigned))
            }

            fn log_row(row: &$row) -> Result<Row> {
                Ok(Row {
                    seq: unsigned(row, 0)?,
                    batch: unsigned(row, 1)?,
                    at_ms: row.try_get(2)?,
                    workload: workload(row, 3)?,
                    kind: row.try_get::<String, _>(4)?.into(),
                    version: version(row, 5)?,
                    payload: row.try_get::<&str, _>(6)?.into(),
                })
            }

            fn job_row(row: &$row) -> Result<JobRow> {
                Ok(JobRow {
                    workload: unsigned(row, 0)?,
                    name: row.try_get(1)?,
                    owner: row.try_get(2)?,
                    state: row.try_get(3)?,
                    live: row.try_get::<i32, _>(4)? != 0,
                    submitted_at_ms: row.try_get(5)?,
                    ended_at_ms: row.try_get(6)?,
                    version: version(row, 7)?,
                    summary: row.try_get::<&str, _>(8)?.into(),
                })
            }

            fn ledger_row(row: &$row) -> Result<LedgerRow> {
                Ok(LedgerRow {
                    seq: unsigned(row, 0)?,
                    lease: row.try_get(1)?,
                    workload: workload(row, 2)?,
                    from_ms: row.try_get(3)?,
                    to_ms: row.try_get(4)?,
                    nanousd: row.try_get(5)?,
                    version: version(row, 6)?,
                    payload: row.try_get::<&str, _>(7)?.into(),
                })
            }

            fn all<T>(rows: Vec<$row>, decode: fn(&$row) -> Result<T>) -> Result<Vec<T>> {
                rows.iter().map(decode).collect()
            }

            async fn heads(connection: &mut Conn) -> Result<(Heads, String)> {
                read_heads(connection, HEADS).await
            }

            /// Where the log stands, and nobody moves it until this transaction ends.
            pub(crate) async fn locked_heads(connection: &mut Conn) -> Result<Heads> {
                Ok(read_heads(connection, LOCKED_HEADS).await?.0)
            }

            async fn read_heads(connection: &mut Conn, statement: &'static str) -> Result<(Heads, String)> {
                let row = sqlx::query(statement).fetch_one(connection).await?;
                let heads = Heads {
                    epoch: unsigned(&row, 0)?,
                    next_seq: unsigned(&row, 1)?,
                    next_batch: unsigned(&row, 2)?,
                    next_ledger_seq: unsigned(&row, 3)?,
                };
                Ok((heads, row.try_get(4)?))
            }

            /// Heads, installation, snapshot and tail, all of one moment.
            pub(crate) async fn load(
                pool: &Pool<$database>,
                before_seq: u64,
            ) -> Result<(Heads, String, Option<Snapshot>, Vec<Part>, Vec<Row>)> {
                let mut connection = pool.acquire().await?;
                let mut moment = connection.begin_with($begin).await?;
                let (heads, installation) = heads(&mut moment).await?;
                let newest =
                    "SELECT seq, at_ms, version, payload FROM snapshots WHERE seq < $1 ORDER BY seq DESC LIMIT 1";
                let snapshot = match sqlx::query(newest).bind(bound(before_seq)).fetch_optional(&mut *moment).await? {
                    None => None,
                    Some(row) => Some(Snapshot {
                        seq: unsigned(&row, 0)?,
                        at_ms: row.try_get(1)?,
                        version: version(&row, 2)?,
                        payload: row.try_get::<&str, _>(3)?.into(),
                    }),
                };
                let covered = snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
                let parts = parts(&mut moment, covered).await?;
                let tail = tail(&mut moment, covered).await?;
                moment.commit().await?;
                Ok((heads, installation, snapshot, parts, tail))
            }

            /// The newest writing of every part up to a row, in pages.
            async fn parts(connection: &mut Conn, covered: u64) -> Result<Vec<Part>> {
                const PAGE: i64 = 4_096;
                let (mut parts, mut last): (Vec<Part>, (String, i64)) = (Vec::new(), (String::new(), 0));
                loop {
                    let mut query =
                        QueryBuilder::<$database>::new("SELECT name, seq, text FROM parts WHERE (name, seq) > (");
                    query.push_bind(last.0.clone()).push(", ").push_bind(last.1).push(") AND seq <= ");
                    query.push_bind(bound(covered)).push(" ORDER BY name, seq LIMIT ").push_bind(PAGE);
                    let page = query.build().fetch_all(&mut *connection).await?;
                    for row in &page {
                        let part =
                            Part { name: row.try_get(0)?, text: row.try_get::<Option<&str>, _>(2)?.map(Into::into) };
                        last = (part.name.clone(), row.try_get(1)?);
                        match parts.last_mut().filter(|known| known.name == part.name) {
                            Some(known) => *known = part,
                            None => parts.push(part),
                        }
                    }
                    if (page.len() as i64) < PAGE {
                        parts.retain(|part| part.text.is_some());
                        return Ok(parts);
                    }
                }
            }

            /// The last row that every kept snapshot covers: that of the oldest.
            pub(crate) async fn covered(pool: &Pool<$database>) -> Result<Option<i64>> {
                sqlx::query_scalar(COVERED).fetch_one(pool).await
            }

            /// Parts that no snapshot has any more, as one of [`crate::statements::NEEDLESS_PARTS`] finds them.
            pub(crate) async fn needless_parts(
                pool: &Pool<$database>,
                statement: &'static str,
                oldest: i64,
            ) -> Result<Vec<(String, i64)>> {
                sqlx::query_as(statement).bind(oldest).fetch_all(pool).await
            }

            /// Heads, installation and every row after one, all of one moment.
            pub(crate) async fn load_after(pool: &Pool<$database>, seq: u64) -> Result<(Heads, String, Vec<Row>)> {
                let mut connection = pool.acquire().await?;
                let mut moment = connection.begin_with($begin).await?;
                let (heads, installation) = heads(&mut moment).await?;
                let tail = tail(&mut moment, seq).await?;
                moment.commit().await?;
                Ok((heads, installation, tail))
            }

            /// In pages: of a long tail, only one page is held twice (as the driver's rows and as ours).
            async fn tail(connection: &mut Conn, covered: u64) -> Result<Vec<Row>> {
                const PAGE: i64 = 4_096;
                let mut tail: Vec<Row> = Vec::new();
                loop {
                    let last = tail.last().map_or(covered, |row| row.seq);
                    let mut query = QueryBuilder::<$database>::new(LOG);
                    query.push("WHERE seq > ").push_bind(bound(last));
                    query.push(" ORDER BY seq LIMIT ").push_bind(PAGE);
                    let page = query.build().fetch_all(&mut *connection).await?;
                    for row in &page {
                        tail.push(log_row(row)?);
                    }
                    if (page.len() as i64) < PAGE {
                        return Ok(tail);
                    }
                }
            }

            pub(crate) async fn rows_after(pool: &Pool<$database>, after_seq: u64, limit: u32) -> Result<Vec<Row>> {
                let mut query = QueryBuilder::<$database>::new(LOG);
                query.push("WHERE seq > ").push_bind(bound(after_seq));
                query.push(" ORDER BY seq LIMIT ").push_bind(i64::from(limit));
                all(query.build().fetch_all(pool).await?, log_row)
            }

            pub(crate) async fn rows_of(
                pool: &Pool<$database>,
                workload: u64,
                after_seq: u64,
                limit: u32,
            ) -> Result<Vec<Row>> {
                let mut query = QueryBuilder::<$database>::new(LOG);
                query.push("WHERE workload = ").push_bind(bound(workload));
                query.push(" AND seq > ").push_bind(bound(after_seq));
                query.push(" ORDER BY seq LIMIT ").push_bind(i64::from(limit));
                all(query.build().fetch_all(pool).await?, log_row)
            }

            pub(crate) async fn jobs(pool: &Pool<$database>, wanted: &JobQuery) -> Result<Vec<JobRow>> {
                let mut query = QueryBuilder::<$database>::new(JOBS);
                query.push("workload < ").push_bind(bound(wanted.before.unwrap_or(u64::MAX)));
                if wanted.live_only {
                    query.push(" AND live = 1");
                }
                if let Some(owner) = &wanted.owner {
                    query.push(" AND owner = ").push_bind(owner.clone());
                }
                if let Some(name) = &wanted.name {
                    query.push(" AND name = ").push_bind(name.clone());
                }
                query.push(" ORDER BY workload DESC LIMIT ").push_bind(i64::from(wanted.limit));
                all(query.build().fetch_all(pool).await?, job_row)
            }

            pub(crate) async fn job(pool: &Pool<$database>, workload: u64) -> Result<Option<JobRow>> {
                let mut query = QueryBuilder::<$database>::new(JOBS);
                query.push("workload = ").push_bind(bound(workload));
                query.build().fetch_optional(pool).await?.as_ref().map(job_row).transpose()
            }

            pub(crate) async fn notes(pool: &Pool<$database>, workload: u64) -> Result<Option<Notes>> {
                let statement = "SELECT secret, text FROM notes WHERE workload = $1";
                let row = sqlx::query(statement).bind(bound(workload)).fetch_optional(pool).await?;
                let notes = |row: $row| {
                    let secret = row.try_get::<Option<&[u8]>, _>(0)?.map(Into::into);
                    Ok(Notes { workload, secret, text: row.try_get::<&str, _>(1)?.into() })
                };
                row.map(notes).transpose()
            }

            pub(crate) async fn ledger(pool: &Pool<$database>, wanted: &LedgerQuery) -> Result<Vec<LedgerRow>> {
                const BEGINS: &str = " AND CASE WHEN to_ms < from_ms THEN to_ms ELSE from_ms END ";
                let mut query = QueryBuilder::<$database>::new(LEDGER);
                query.push("seq > ").push_bind(bound(wanted.after));
                query.push(" AND seq <= ").push_bind(bound(wanted.upto));
                if let Some(from) = wanted.from_ms {
                    query.push(BEGINS).push(">= ").push_bind(from);
                }
                if let Some(before) = wanted.before_ms {
                    query.push(BEGINS).push("< ").push_bind(before);
                }
                if let Some(workload) = wanted.workload {
                    query.push(" AND workload = ").push_bind(bound(workload));
                }
                query.push(" ORDER BY seq LIMIT ").push_bind(i64::from(wanted.limit));
                all(query.build().fetch_all(pool).await?, ledger_row)
            }

            /// Whole dollars and the rest are added apart, because the sum of all amounts may not fit 64 bits.
            pub(crate) async fn ledger_total(pool: &Pool<$database>) -> Result<LedgerTotal> {
                let sums = "SELECT COUNT(*), CAST(COALESCE(SUM(nanousd / 1000000000), 0) AS BIGINT), \
                            CAST(COALESCE(SUM(nanousd % 1000000000), 0) AS BIGINT) FROM ledger";
                let row = sqlx::query(sums).fetch_one(pool).await?;
                let (dollars, rest): (i64, i64) = (row.try_get(1)?, row.try_get(2)?);
                let nanousd = i128::from(dollars) * 1_000_000_000 + i128::from(rest);
                Ok(LedgerTotal { rows: unsigned(&row, 0)?, nanousd })
            }
        }
    };
}

reads!(sqlite, sqlx::Sqlite, sqlx::sqlite::SqliteRow, "BEGIN", "");
reads!(
    postgres,
    sqlx::Postgres,
    sqlx::postgres::PgRow,
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
    " FOR UPDATE"
);
