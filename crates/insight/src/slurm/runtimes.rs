//! How long jobs of one kind ran: what a time limit for the next one can rest on.

use super::fields::Ended;
use super::figures::at;
use super::jobs::Jobs;

/// How long some jobs ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtimes {
    /// Those that completed.
    pub jobs: u32,
    pub longest_s: u32,
    /// What 95 of 100 of them did not exceed, by nearest rank.
    pub p95_s: u32,
    /// Those that were ended at their limits.
    pub timed_out: u32,
}

/// The runtimes of jobs that completed; none where none did. The longest of those that were ended at their limit counts as
/// well: they would have run for longer still.
pub fn runtimes(jobs: &Jobs) -> Option<Runtimes> {
    let of = |state: Ended| {
        let alike = jobs.jobs.iter().filter(move |job| job.state == state && job.elapsed > 0);
        alike.map(|job| job.elapsed)
    };
    let mut completed: Vec<u32> = of(Ended::Completed).collect();
    completed.sort_unstable();
    let longest_s = of(Ended::TimedOut).chain(completed.last().copied()).max()?;
    let jobs = u32::try_from(completed.len()).unwrap_or(u32::MAX);
    let timed_out = of(Ended::TimedOut).count() as u32;
    Some(Runtimes { jobs, longest_s, p95_s: at(&completed, 95)?, timed_out })
}

#[cfg(test)]
mod tests {
    use super::{Runtimes, runtimes};
    use crate::slurm::Reading;

    fn of(lines: &str) -> Option<Runtimes> {
        let mut reading = Reading::new();
        let table = format!("JobID|State|Submit|Start|End|ElapsedRaw\n{lines}");
        reading.take("sacct", table.as_bytes()).ok()?;
        reading.finish();
        runtimes(&reading.jobs)
    }

    fn line(id: u32, state: &str, elapsed: u32) -> String {
        format!("{id}|{state}|1794715200|1794715200|{}|{elapsed}\n", 1_794_715_200 + elapsed)
    }

    #[test]
    fn what_completed_and_what_was_ended_at_its_limit_count() {
        let lines: String = (1..=40).map(|id| line(id, "COMPLETED", 100 * id)).collect();
        let all = Runtimes { jobs: 40, longest_s: 4_000, p95_s: 3_800, timed_out: 0 };
        assert_eq!(of(&lines), Some(all));
        let more = lines + &line(50, "TIMEOUT", 9_000) + &line(51, "FAILED", 90_000) + &line(52, "CANCELLED by 1", 1);
        assert_eq!(of(&more), Some(Runtimes { longest_s: 9_000, timed_out: 1, ..all }));
        assert_eq!([of(""), of(&line(1, "FAILED", 5)), of(&line(1, "TIMEOUT", 5))], [None; 3]);
    }
}
