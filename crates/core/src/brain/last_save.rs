//! After the programs' end: what they saved last is waited for.

use super::decide::Round;
use super::{Job, Stint};
use crate::reason::Reason;
use crate::record::Decision;
use crate::told::Told;
use crate::units::Span;

/// How long the last save of a program that has ended is waited for: a little longer than agents try.
const LAST_SAVE: Span = Span::minutes(11);

impl Round<'_> {
    /// The programs have ended; what they saved last is still being stored. That is waited for, but not for ever.
    pub(super) fn last_save(&mut self, job: &Job, stint: &Stint) {
        let Some(ended_at) = stint.ended_at else { return };
        if stint.torn && stint.stopping.is_none() {
            // Those that are left may wait for a word that never comes. What they send has as long as it had.
            let reason = Reason::new("torn", "a machine is gone that had not sent all: nobody waits for it");
            return self.say(Decision::Stop { stint: stint.id, grace: LAST_SAVE }, reason);
        }
        let until = ended_at + LAST_SAVE;
        if self.now < until {
            return self.wake_at(until);
        }
        let too_long = || Told::Unsaved { why: "it took too long".to_owned() };
        let told = stint.trouble.as_ref().and_then(Told::at_the_end).unwrap_or_else(too_long);
        let reason =
            Reason::new("last-save", "what was saved last could not be stored in time").span("tried", LAST_SAVE);
        if stint.leases().filter_map(|id| self.brain.leases.get(&id)).any(|lease| !lease.is_releasing()) {
            self.say(Decision::Notify { workload: job.id, told }, reason.clone());
        }
        self.release_under(job, stint, &reason);
    }
}
