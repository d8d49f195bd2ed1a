//! Why a job stands where it stands, at this moment: what its policy sees and wants. The history of its
//! decisions is in the log, each with its own reason.

use super::Brain;
use crate::ids::WorkloadId;
use crate::market::{Choice, Sight};
use crate::reason::Reason;
use crate::units::Time;
use crate::view::State;

/// The present of a job, explained.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The policy that decides.
    pub policy: String,
    /// What it sees.
    pub sight: Sight,
    /// What it wants.
    pub choice: Choice,
    pub reason: Reason,
    /// When it will be asked again if nothing happens.
    pub next_wakeup: Option<Time>,
}

impl Brain {
    /// Explains a job that is not over.
    pub fn explain(&self, id: WorkloadId, now: Time) -> Option<Explanation> {
        let job = self.jobs.get(&id)?;
        let policy = self.usual_policy(&job.spec).to_owned();
        let mut sight = self.sight(job, self.now.max(now));
        if self.state_of(job) == State::Waiting {
            self.without_what_is_held(job, &mut sight);
        }
        let (choice, mut reason) = self.choose(job, &sight);
        if let Some(obstacle) = self.obstacle(job, &sight).filter(|_| sight.present.is_none()) {
            reason.text = format!("{} ({obstacle})", reason.text);
        }
        Some(Explanation { policy, sight, choice, reason, next_wakeup: self.awake.moment_of(id) })
    }
}
