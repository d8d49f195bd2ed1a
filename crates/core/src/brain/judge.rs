//! What the end of a stint says about its job and its program.

use super::Job;
use super::job::{Stint, StintPhase, Verdict, Worker};
use crate::record::WorkerEnd;
use crate::units::{Span, Time, Work};

/// A program that brought nothing is tried again at once, then after this long, then after twice the time each time. Its machine
/// is held meanwhile, so that it does not rest for long.
const FIRST_REST: Span = Span::seconds(1);
const LONGEST_REST: Span = Span::seconds(10);

impl Job {
    /// What a stop told about the program: whether it saves when it is told to.
    pub(super) fn learn_from_stop(&mut self, stint: &Stint, done: Work) {
        // Without what was lost with a machine nothing counts that the others saved.
        let counts = stint.phase != StintPhase::Starting && !stint.torn;
        let Some(stopping) = stint.stopping.filter(|_| counts) else { return };
        // An upload that was on its way says nothing: what came must hold what was done when it was told.
        let saved = stint.saved_at.is_some_and(|at| at >= stopping.at) && self.progress.durable >= stopping.done;
        let unsaved = done > self.progress.durable;
        if saved || unsaved {
            self.saves_when_told = Some(saved);
            // A gang with too few workers is stopped to go on with more, wherever it is.
            self.stopped_in_vain_on = stint.leases().next().filter(|_| !saved && !stint.is_short(self));
        }
    }

    /// What a stint's end means when neither the market nor we ended it.
    pub(super) fn judge(&mut self, stint: &Stint, now: Time, patience: u32) {
        // Ranks that got through, or were stopped because another failed, say nothing about the failure. One that was killed
        // from outside takes the others along, which then exit with errors of their own.
        let ends = stint.workers.iter().filter_map(|w| w.end.as_ref());
        let failed = ends.filter(|end| !matches!(end, WorkerEnd::Stopped | WorkerEnd::Exited { code: 0 }));
        let failed = failed.min_by_key(|end| !end.is_from_outside());
        // Where the store was away nothing is wrong with the program: the job waits until it answers again.
        let Some(end) = failed.filter(|end| !matches!(end, WorkerEnd::StoreAway { .. })) else { return };
        // What the others can do without is left, and nothing is wrong with the job.
        let never_ran = matches!(end, WorkerEnd::NeverRan { .. } | WorkerEnd::NoRoom { .. });
        if never_ran && stint.begun() >= self.spec.least() {
            return;
        }
        // Nor where a disk is full that others may empty.
        if matches!(end, WorkerEnd::NoRoom { .. }) && self.waits_for_room(now) {
            return;
        }
        // A program that is killed at the same place again and again gets further each time, and loses it.
        let killed = matches!(end, WorkerEnd::Killed { .. } | WorkerEnd::OutOfMemory { .. });
        if !stint.fruitful || (killed && !stint.saved) {
            self.fruitless += 1;
            let doubled = self.fruitless.checked_sub(2).map(|times| Span(FIRST_REST.0 << times.min(16)));
            self.again_at = doubled.map(|rest| now + rest.min(LONGEST_REST));
        }
        let tired = self.fruitless >= patience;
        let verdict = match end {
            WorkerEnd::Exited { code: 0 } | WorkerEnd::Stopped => None,
            // A program that fails on a restored checkpoint before it gets anywhere may have been fed a bad one.
            WorkerEnd::Exited { .. } if !stint.fruitful && stint.restored.is_some() && !tired => {
                self.avoid = stint.restored;
                None
            }
            WorkerEnd::Exited { code } => {
                self.failures += 1;
                (self.failures > self.spec.retries)
                    .then(|| Verdict::Failed { code: *code, why: format!("the program exited with code {code}") })
            }
            WorkerEnd::Killed { .. } | WorkerEnd::OutOfMemory { .. } => tired.then(|| Verdict::Failed {
                code: end.killed_code(),
                why: format!("the program {end}, {} times without progress", self.fruitless),
            }),
            WorkerEnd::NeverRan { why } | WorkerEnd::NoRoom { why } => {
                (self.fruitless >= patience.min(3)).then(|| Verdict::Failed { code: 127, why: why.clone() })
            }
            WorkerEnd::StoreAway { .. } => None,
        };
        self.verdict = verdict;
    }
}

impl Worker {
    /// Its program could not be begun.
    pub(super) fn never_ran(&self) -> bool {
        matches!(self.end, Some(WorkerEnd::NeverRan { .. } | WorkerEnd::NoRoom { .. }))
    }
}

impl Job {
    /// When it is tried again, where it rests because it ended and brought nothing.
    pub(super) fn rests_until(&self, now: Time) -> Option<Time> {
        self.again_at.filter(|at| *at > now && self.stint.is_none() && self.ended.is_none())
    }

    /// Whether all of the present stint is over.
    pub(super) fn is_stint_over(&self) -> bool {
        let over = |worker: &Worker| worker.end.is_some() && worker.settled;
        self.stint.as_ref().is_some_and(|stint| stint.workers.iter().all(over))
    }

    /// What its next stint begins from, as the end of a sentence.
    pub(super) fn goes_on_from(&self) -> String {
        let inherited = self.spec.continues.as_ref();
        match inherited {
            _ if self.progress.checkpoint.is_some() => ": the program goes on from what is saved".to_owned(),
            Some(from) if from.durable > Work(0) => format!(": the program goes on from what job {} saved", from.job),
            Some(from) => format!(": nothing is known to be saved of job {}", from.job),
            None if self.epoch > 0 => ": the program begins again, because nothing is saved".to_owned(),
            None => String::new(),
        }
    }
}

impl Stint {
    /// Nobody stops it, and no program has failed.
    pub(super) fn goes_well(&self) -> bool {
        let well = |end: &WorkerEnd| matches!(end, WorkerEnd::Exited { code: 0 } | WorkerEnd::Stopped);
        self.stopping.is_none() && self.workers.iter().filter_map(|worker| worker.end.as_ref()).all(well)
    }

    /// How many of its workers could be begun.
    fn begun(&self) -> u32 {
        self.workers.iter().filter(|worker| !worker.never_ran()).count() as u32
    }
}
