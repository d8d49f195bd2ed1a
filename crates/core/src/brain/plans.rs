//! Plans of a brain that decides, lent to one that only shows what was decided.

use super::Brain;

impl Brain {
    /// Takes over the plans of a brain of the same world, so that both say the same of what a job waits for.
    pub fn share_plans(&mut self, with: &Brain) {
        self.plan_cache.share(&with.plan_cache);
    }
}
