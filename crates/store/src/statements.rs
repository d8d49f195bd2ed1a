//! Statements that both databases take as they are.

/// Become the leader.
pub(crate) const LEAD: &str = "UPDATE meta SET epoch = epoch + 1 RETURNING epoch";

/// Keep a snapshot; taking one again at the same row replaces it.
pub(crate) const SNAPSHOT: &str = "INSERT INTO snapshots (seq, at_ms, version, payload) VALUES ($1, $2, $3, $4) \
     ON CONFLICT (seq) DO UPDATE SET at_ms = excluded.at_ms, version = excluded.version, payload = excluded.payload";

/// Two are kept: the newest, and one to fall back on when the newest cannot be understood.
pub(crate) const PRUNE_SNAPSHOTS: &str =
    "DELETE FROM snapshots WHERE seq NOT IN (SELECT seq FROM snapshots ORDER BY seq DESC LIMIT 2)";

/// Parts of snapshots that were begun and never kept: written after the newest of them and before this one.
pub(crate) const DROP_STRAY_PARTS: &str = "DELETE FROM parts WHERE seq < $1 AND seq > \
     COALESCE((SELECT MAX(seq) FROM snapshots WHERE seq < $1), 0)";

/// Which parts no snapshot has any more, in the order in which they may be deleted: writings that the oldest kept snapshot
/// (`$1`) has newer ones of, and once none of those is left, what that snapshot says is no longer there. It must be one
/// snapshot for both: of a later one, nobody has looked for older writings that say otherwise. While that is one, what is
/// needless stays needless, so they are looked for while others write. A page at a time bounds what is in memory.
pub(crate) const NEEDLESS_PARTS: [&str; 2] = [
    "SELECT older.name, older.seq FROM parts AS at JOIN parts AS older ON older.name = at.name AND older.seq < at.seq \
     WHERE at.seq = $1 LIMIT 100000",
    "SELECT name, seq FROM parts WHERE seq = $1 AND text IS NULL LIMIT 100000",
];

/// The last row that every kept snapshot covers.
pub(crate) const COVERED: &str = "SELECT MIN(seq) FROM snapshots";

/// Where the next step of a cut ends: so many rows that are there, however far apart their numbers.
pub(crate) const CUT_END: &str = "SELECT MAX(seq) FROM \
     (SELECT seq FROM log WHERE seq > $1 AND seq < $2 AND at_ms < $3 ORDER BY seq LIMIT 2000) AS step";

/// One step of a cut.
pub(crate) const CUT: &str = "DELETE FROM log WHERE seq > $1 AND seq <= $2 AND at_ms < $3 AND NOT EXISTS \
     (SELECT 1 FROM jobs WHERE jobs.workload = log.workload AND jobs.live = 1)";
