//! A world's clock. The real world's follows the calendar but never goes back; a replayed world's runs
//! at a speed of its own, from where it was left, and only while its server runs.

use std::fs::File;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windfall_core::{Span, Time};

/// A replayed world moves by at most this much real time between two looks at its clock. A server looks many times a
/// second, so a longer gap means that it did not run: it was stopped, or the machine slept.
const LONGEST_GAP: Duration = Duration::from_secs(3);
/// How often the clock is written down.
const KEEP_EVERY: Duration = Duration::from_secs(1);
/// A replayed world's is written to the disk as often as this, and goes on by no more than `BETWEEN` until the next writing.
/// Where that takes longer, this machine's disk or processors are held up, and what runs on it is as well: a world that went
/// on meanwhile would lose minutes by seconds that nobody could use.
const BEAT: Duration = Duration::from_millis(250);
const BETWEEN: Duration = Duration::from_millis(750);

/// A world's clock.
#[derive(Debug)]
pub struct WorldClock {
    speed: Option<u32>,
    hand: Mutex<Hand>,
}

/// What the clock showed, and when it was last looked at.
#[derive(Debug)]
struct Hand {
    shows: Time,
    looked_at: Instant,
    /// It goes no further than this until it is told to.
    limit: Option<Time>,
}

impl WorldClock {
    /// The real world, never before `not_before`.
    pub fn real(not_before: Time) -> WorldClock {
        WorldClock::new(None, not_before, None)
    }

    /// A replayed world that goes on from `base`, `speed` times faster than life.
    pub fn replayed(base: Time, speed: u32) -> WorldClock {
        WorldClock::new(Some(speed.max(1)), base, None)
    }

    /// A replayed world's clock in another process: it follows what it is told, and stands still where it is told
    /// nothing.
    pub fn following(speed: u32) -> WorldClock {
        WorldClock::new(Some(speed.max(1)), Time(0), Some(Time(0)))
    }

    fn new(speed: Option<u32>, shows: Time, limit: Option<Time>) -> WorldClock {
        WorldClock { speed, hand: Mutex::new(Hand { shows, looked_at: Instant::now(), limit }) }
    }

    /// Takes in what the clock that it follows shows.
    pub fn follow(&self, now: Time) {
        let ahead = Span(LONGEST_GAP.as_millis() as i64 * i64::from(self.speed()));
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        if hand.limit.is_some() {
            let shows = hand.shows.max(now);
            // What was asked before may be read later.
            let limit = hand.limit.max(Some(now + ahead));
            *hand = Hand { shows, looked_at: Instant::now(), limit };
        }
    }

    /// Lets a replayed world go on until then.
    fn go_on_until(&self, limit: Time) {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        hand.limit = hand.limit.max(Some(limit));
    }

    /// Now. Never before an earlier answer.
    pub fn now(&self) -> Time {
        self.read(Instant::now())
    }

    fn read(&self, at: Instant) -> Time {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        match self.speed {
            None => hand.shows = hand.shows.max(Time(unix_ms())),
            Some(speed) => {
                let gap = at.saturating_duration_since(hand.looked_at);
                let ms = gap.min(LONGEST_GAP).as_millis() as u64;
                let goes_to = hand.shows + Span(ms as i64 * i64::from(speed));
                hand.shows = hand.limit.map_or(goes_to, |limit| goes_to.min(limit).max(hand.shows));
                // What is left of a millisecond counts at the next look.
                hand.looked_at = if gap > LONGEST_GAP { at } else { hand.looked_at + Duration::from_millis(ms) };
            }
        }
        hand.shows
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

/// The file that keeps a replayed world's clock while no server runs.
#[derive(Clone, Debug)]
pub struct ClockFile {
    path: PathBuf,
}

impl ClockFile {
    /// A file that may not be there yet.
    pub fn at(path: PathBuf) -> ClockFile {
        ClockFile { path }
    }

    /// Where the world was left, if that was ever written down.
    pub fn read(&self) -> Option<Time> {
        std::fs::read_to_string(&self.path).ok()?.trim().parse().ok().map(Time)
    }

    /// Writes a moment down, whole or not at all.
    pub fn write(&self, at: Time) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, format!("{}\n", at.0))?;
        std::fs::rename(&new, &self.path)
    }

    /// The same, once the disk has it.
    fn write_to_disk(&self, at: Time) -> std::io::Result<()> {
        self.write(at)?;
        File::open(&self.path)?.sync_data()
    }

    /// Keeps a clock for as long as the server lives. What is written is where the clock will be at the next writing: a
    /// server that is killed in between is followed by one that begins there, never earlier than anybody saw.
    pub async fn keep(self, clock: Arc<WorldClock>) {
        let is_replayed = clock.speed.is_some();
        let (every, ahead) = if is_replayed { (BEAT, BETWEEN) } else { (KEEP_EVERY, KEEP_EVERY) };
        let ahead = Span(ahead.as_millis() as i64 * i64::from(clock.speed()));
        loop {
            let (file, until) = (self.clone(), clock.now() + ahead);
            // On a full disk the old moment stays, and the log has later ones.
            if is_replayed {
                let _ = tokio::task::spawn_blocking(move || file.write_to_disk(until)).await;
                clock.go_on_until(until);
            } else {
                let _ = file.write(until);
            }
            tokio::time::sleep(every).await;
        }
    }
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_world_does_not_go_on_while_its_server_is_stopped() {
        let clock = WorldClock::replayed(Time(1_000), 60);
        let began = Instant::now();
        let before = clock.read(began + Duration::from_millis(500));
        let after = clock.read(began + Duration::from_secs(60));
        assert!(after - before <= Span(LONGEST_GAP.as_millis() as i64 * 60), "{before:?} {after:?}");
        let later = clock.read(began + Duration::from_millis(60_500));
        assert_eq!(later - after, Span(30_000), "then it goes on as before");
    }

    #[test]
    fn a_clock_that_follows_another_stands_still_where_it_is_told_nothing() {
        let clock = WorldClock::following(60);
        let began = Instant::now();
        assert_eq!(clock.read(began + Duration::from_secs(1)), Time(0));
        clock.follow(Time(1_000_000));
        let ahead = Span(LONGEST_GAP.as_millis() as i64 * 60);
        let seconds = (1..=20).map(|second| clock.read(Instant::now() + Duration::from_secs(second)));
        assert_eq!(seconds.max(), Some(Time(1_000_000) + ahead));
        clock.follow(Time(1_000_001));
        assert!(clock.now() >= Time(1_000_000) + ahead, "it never goes back");
    }

    #[test]
    fn a_world_stands_still_while_its_disk_does() {
        let clock = WorldClock::replayed(Time(0), 60);
        let began = Instant::now();
        clock.go_on_until(Time(60_000));
        let at = |ms| clock.read(began + Duration::from_millis(ms));
        assert!(at(500) < Time(60_000));
        assert_eq!((at(2_000), at(2_900)), (Time(60_000), Time(60_000)), "nothing was written since");
        clock.go_on_until(Time(120_000));
        assert_eq!(at(3_400), Time(90_000), "it goes on from where it stood");
    }

    #[test]
    fn many_looks_within_a_millisecond_lose_no_time() {
        let clock = WorldClock::replayed(Time(0), 60);
        let began = clock.hand.lock().unwrap_or_else(PoisonError::into_inner).looked_at;
        for look in 1..=10_000_u64 {
            clock.read(began + Duration::from_micros(100 * look));
        }
        assert_eq!(clock.read(began + Duration::from_secs(1)), Time(60_000));
    }

    #[test]
    fn a_clock_that_was_written_down_is_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = ClockFile::at(folder.path().join("clock"));
        assert_eq!(file.read(), None);
        file.write(Time(12_345)).expect("written");
        assert_eq!(file.read(), Some(Time(12_345)));
    }
}
