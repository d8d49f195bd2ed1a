//! Which plan each job follows or would follow, so that a step asks the jobs it looks at and no others.

use crate::ids::WorkloadId;
use crate::market::foresight::{Model, Plan, PlanCache, PlanTerms};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Jobs and the plans that would serve them.
#[derive(Clone, Debug, Default)]
pub(super) struct Following {
    /// What each job's plan is about, and the plan in the cache that it follows.
    wanted: BTreeMap<WorkloadId, (PlanTerms, Option<usize>)>,
    /// Jobs that would be better served by a plan that is not there.
    lacking: BTreeSet<WorkloadId>,
    /// Jobs that follow each plan.
    followers: Vec<usize>,
}

impl Following {
    /// A job was looked at: this is the plan it would follow.
    pub fn set(&mut self, id: WorkloadId, terms: Option<PlanTerms>, cache: &PlanCache) {
        self.forget(id);
        if let Some(terms) = terms {
            let plan = cache.position(&terms);
            self.followers.resize(cache.count(), 0);
            if let Some(count) = plan.and_then(|plan| self.followers.get_mut(plan)) {
                *count += 1;
            }
            if cache.lacks(&terms) {
                self.lacking.insert(id);
            }
            self.wanted.insert(id, (terms, plan));
        }
    }

    pub fn forget(&mut self, id: WorkloadId) {
        let known = self.wanted.remove(&id);
        if let Some(count) = known.and_then(|(_, plan)| self.followers.get_mut(plan?)) {
            *count = count.saturating_sub(1);
        }
        self.lacking.remove(&id);
    }

    /// Solves a slice of the first plan that is lacked: whether there is more to do, and who follows another plan now.
    pub fn think(&mut self, cache: &mut PlanCache, model: &Model) -> (bool, Vec<WorkloadId>) {
        let first = self.lacking.first().and_then(|id| self.wanted.get(id));
        let Some((terms, _)) = first.copied() else { return (false, Vec::new()) };
        let before = cache.plans();
        let idle = self.followers.iter().position(|count| *count == 0);
        let more = cache.think(model, &terms, idle);
        let solved = more && !cache.is_solving();
        (more, if solved { self.assign_anew(&before, cache) } else { Vec::new() })
    }

    /// Finds everybody's plan again, and gives those who follow another one than before.
    fn assign_anew(&mut self, before: &[Arc<Plan>], cache: &PlanCache) -> Vec<WorkloadId> {
        let after = cache.plans();
        self.followers = vec![0; after.len()];
        self.lacking.clear();
        let mut moved = Vec::new();
        for (id, (terms, plan)) in &mut self.wanted {
            let known = plan.and_then(|plan| before.get(plan));
            *plan = cache.position(terms);
            let found = plan.and_then(|plan| after.get(plan));
            if known.map(Arc::as_ptr) != found.map(Arc::as_ptr) {
                moved.push(*id);
            }
            if let Some(count) = plan.and_then(|plan| self.followers.get_mut(plan)) {
                *count += 1;
            }
            if cache.lacks(terms) {
                self.lacking.insert(*id);
            }
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NanoUsd, Span};

    fn terms(restart: Span) -> PlanTerms {
        let prices = [0.97, 3.06].map(NanoUsd::from_dollars);
        PlanTerms::of(Span::minutes(10), restart, prices, Span::hours(8), Span::hours(4))
    }

    #[test]
    fn where_every_plan_is_followed_no_other_takes_its_place() {
        let (model, mut cache) = (Model::embedded(), PlanCache::with_room_for(1));
        let mut following = Following::default();
        let wanted = [terms(Span::seconds(60)), terms(Span::seconds(600))];
        for (id, terms) in (1..).zip(wanted) {
            following.set(WorkloadId(id), Some(terms), &cache);
        }
        let slices = (0..10_000).take_while(|_| following.think(&mut cache, &model).0).count();
        assert!(slices < 10_000, "it solves one after the other without end");
        assert!(cache.find(&wanted[0]).is_some() && cache.find(&wanted[1]).is_none());
        following.forget(WorkloadId(1));
        let mut moved = Vec::new();
        while let (true, whose) = following.think(&mut cache, &model) {
            moved.extend(whose);
        }
        assert_eq!(moved, [WorkloadId(2)], "it has a plan now");
        assert!(cache.find(&wanted[1]).is_some(), "nobody follows the first any more");
    }
}
