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
        let suits = self.solved.iter().filter(|plan| plan.terms().suits(terms));
        suits.min_by_key(|plan| plan.terms().spot_permille.abs_diff(terms.spot_permille))
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

    /// A plan that nobody follows.
    fn idle(&self, wanted: &[PlanTerms]) -> Option<usize> {
        let followed: Vec<&Arc<Plan>> = wanted.iter().filter_map(|terms| self.find(terms)).collect();
        self.solved.iter().position(|plan| !followed.iter().any(|known| Arc::ptr_eq(known, plan)))
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

    /// Solves a slice of the first plan that is wanted and not there; true while there is more to do.
    pub fn think(&mut self, model: &Model, wanted: &[PlanTerms]) -> bool {
        let Some(terms) = wanted.iter().find(|terms| self.lacks(terms)) else { return false };
        if self.solved.len() >= self.room && self.idle(wanted).is_none() {
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
                if let Some(idle) = self.idle(wanted).filter(|_| self.solved.len() >= self.room) {
                    self.solved.remove(idle);
                }
                self.put(Arc::new(solving.finish()));
            }
            false => self.solving = Some(solving),
        }
        true
    }
}
