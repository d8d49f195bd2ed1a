//! Where and when a job file is read.

use std::path::PathBuf;

/// What a file means depends on where and when it is read.
#[derive(Clone, Debug)]
pub struct Context {
    /// Absolute folder of the terminal: the job runs there, and relative paths begin there.
    pub folder: PathBuf,
    /// The user's home, for `~/` and so that it is never taken for checkpoints.
    pub home: Option<PathBuf>,
    pub owner: String,
    /// The real time, in milliseconds since the Unix epoch.
    pub now_ms: i64,
    /// The terminal's time zone: dates are read in it.
    pub zone: jiff::tz::TimeZone,
    /// Where checkpoints are kept when the file does not say: an absolute folder or an address.
    pub store: String,
}

impl Context {
    /// A Sunday in November 2026 in a folder of nobody, for tests here and elsewhere.
    #[doc(hidden)]
    pub fn somewhere() -> Context {
        Context {
            folder: "/somewhere/project".into(),
            home: None,
            owner: "ada".into(),
            now_ms: 1_794_715_200_000,
            zone: jiff::tz::TimeZone::UTC,
            store: "/var/windfall/checkpoints".into(),
        }
    }
}
