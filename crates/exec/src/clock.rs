//! A world's clock. The real world's follows the calendar but never goes back; a replayed world's runs
//! at a speed of its own, from where it was left, and only while its server runs.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windfall_core::{Span, Time};

/// A world's clock.
#[derive(Debug)]
pub struct WorldClock {
    speed: Option<u32>,
    base: Time,
    since: Instant,
    latest: Mutex<Time>,
}

impl WorldClock {
    /// The real world, never before `not_before`.
    pub fn real(not_before: Time) -> WorldClock {
        WorldClock { speed: None, base: not_before, since: Instant::now(), latest: Mutex::new(not_before) }
    }

    /// A replayed world that goes on from `base`, `speed` times faster than life.
    pub fn replayed(base: Time, speed: u32) -> WorldClock {
        WorldClock { speed: Some(speed.max(1)), base, since: Instant::now(), latest: Mutex::new(base) }
    }

    /// Now. Never before an earlier answer.
    pub fn now(&self) -> Time {
        let read = match self.speed {
            None => Time(unix_ms()),
            // The monotonic clock stands still while a laptop sleeps, and so does the replay.
            Some(speed) => self.base + Span(self.since.elapsed().as_millis() as i64 * i64::from(speed)),
        };
        let mut latest = self.latest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *latest = (*latest).max(read);
        *latest
    }

    /// How long a span of this world lasts for us.
    pub fn real_time(&self, span: Span) -> Duration {
        let ms = u64::try_from(span.0.max(0)).unwrap_or(0);
        Duration::from_millis(ms / u64::from(self.speed.unwrap_or(1)))
    }

    /// How many times faster than life.
    pub fn speed(&self) -> u32 {
        self.speed.unwrap_or(1)
    }
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
