//! Solved plans that jobs share, and the one that is being solved. Memory is bounded, and solving is done in
//! slices of a fraction of a millisecond, so that whoever owns the cache never waits. Which plans there are decides
//! what a job does: worlds that are to decide alike are given the same plans, and none that a job lacks.

use super::model::Model;
use super::plan::{Plan, PlanTerms, Solving};
use std::sync::Arc;

/// Plans kept at most; each takes at most about 64 MB, most a tenth of that.
const MOST: usize = 4;
/// Values computed in one slice.
const SLICE: u32 = 400_000;

/// Plans by their terms.
#[derive(Clone, Debug)]
pub struct PlanCache {
    room: usize,
    solved: Vec<Arc<Plan>>,
    solving: Option<Box<Solving>>,
}

impl Default for PlanCache {
    fn default() -> PlanCache {
        PlanCache::with_room_for(MOST)
    }
}

impl PlanCache {
    /// A cache for so many plans.
    pub fn with_room_for(room: usize) -> PlanCache {
        PlanCache { room: room.max(1), solved: Vec::new(), solving: None }
    }

    /// The plan that suits a job best; none where no plan is for its changeover and its time.
    pub fn find(&self, terms: &PlanTerms) -> Option<&Arc<Plan>> {
        self.solved.get(self.position(terms)?)
    }

    /// Where it is among all plans.
    pub fn position(&self, terms: &PlanTerms) -> Option<usize> {
        let suits = self.solved.iter().enumerate().filter(|(_, plan)| plan.terms().suits(terms));
        let best = suits.min_by_key(|(_, plan)| plan.terms().spot_permille.abs_diff(terms.spot_permille));
        best.map(|(position, _)| position)
    }

    /// How many plans there are.
    pub fn count(&self) -> usize {
        self.solved.len()
    }

    /// Whether a plan is being solved.
    pub fn is_solving(&self) -> bool {
        self.solving.is_some()
    }

    /// Whether a job would be better served by a plan that is not there.
    pub fn lacks(&self, terms: &PlanTerms) -> bool {
        self.find(terms).is_none_or(|plan| !plan.terms().serves(terms))
    }

    /// Whether a plan on these terms is being solved, or will be: there is room for it.
    pub fn will_have(&self, terms: &PlanTerms) -> bool {
        let solving = self.solving.as_ref().is_some_and(|solving| solving.terms().serves(terms));
        solving || self.solved.len() + usize::from(self.solving.is_some()) < self.room
    }

    /// Takes over the plans of another cache, none of which is copied.
    pub fn share(&mut self, with: &PlanCache) {
        let known = self.solved.iter().map(Arc::as_ptr);
        if self.room != with.room || !known.eq(with.solved.iter().map(Arc::as_ptr)) {
            (self.room, self.solved) = (with.room, with.solved.clone());
        }
    }

    /// Every plan in it.
    pub fn plans(&self) -> Vec<Arc<Plan>> {
        self.solved.clone()
    }

    /// Solves at once every plan that is lacked, whatever room they take: for replays, whose prices are known.
    pub fn solve_all(&mut self, model: &Model, wanted: &[PlanTerms]) {
        for terms in wanted {
            if self.lacks(terms) {
                self.put_beside(Arc::new(Plan::solve(model, *terms)));
            }
        }
    }

    /// Adds a plan that was solved elsewhere, and makes room for it where there is none.
    pub fn put_beside(&mut self, plan: Arc<Plan>) {
        self.solved.push(plan);
        self.room = self.room.max(self.solved.len());
    }

    /// Adds a plan that was just solved, in place of the oldest where there is no room.
    fn put(&mut self, plan: Arc<Plan>) {
        if self.solved.len() >= self.room {
            self.solved.remove(0);
        }
        self.solved.push(plan);
    }

    /// Solves a slice of a plan that is lacked; true while there is more to do. Where there is no room, it will take the
    /// place of one that nobody follows.
    pub fn think(&mut self, model: &Model, terms: &PlanTerms, idle: Option<usize>) -> bool {
        if !self.lacks(terms) {
            return false;
        }
        if self.solved.len() >= self.room && idle.is_none() {
            // Every plan here is followed by somebody: one more would only take another's place, again and again.
            return false;
        }
        let same = self.solving.as_ref().is_some_and(|solving| solving.terms().serves(terms));
        let mut solving = match self.solving.take() {
            Some(solving) if same => solving,
            _ => Box::new(Solving::new(model, *terms)),
        };
        match solving.solve_some(SLICE) {
            true => {
                let idle = idle.filter(|idle| self.solved.len() >= self.room && *idle < self.solved.len());
                idle.into_iter().for_each(|idle| drop(self.solved.remove(idle)));
                self.put(Arc::new(solving.finish()));
            }
            false => self.solving = Some(solving),
        }
        true
    }
}
