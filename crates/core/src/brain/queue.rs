//! Jobs that are looked at in a step, each once and in their order, whatever the reasons.

use super::job_table::Person;
use crate::ids::WorkloadId;
use crate::offer::OfferId;
use crate::spec::Ask;
use crate::units::NanoUsd;
use std::collections::BTreeSet;

/// Why jobs are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stir<'a> {
    /// Whatever happened, it may matter to each of them.
    Any,
    /// So many of an offer can be had, from this price on: it matters only as long as that is so, and only to those who
    /// can pay it and have nothing as good.
    Open { offer: &'a OfferId, least: u32, floor: NanoUsd },
    /// Machines of an offer that a person has, with room for an ask: it matters only as long as there is some.
    Room { person: &'a Person, offer: &'a OfferId, ask: &'a Ask },
}

/// Jobs to look at for one reason, in their order.
pub(super) struct Source<'a> {
    pub ids: Box<dyn Iterator<Item = WorkloadId> + 'a>,
    pub stir: Stir<'a>,
}

/// Whether the reason is one for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IsStirred {
    Yes,
    No,
    /// It is none any more for anybody.
    Over,
}

/// All sources as one.
pub(super) struct Queue<'a> {
    sources: Vec<Source<'a>>,
    /// The next job of each source.
    heads: BTreeSet<(WorkloadId, usize)>,
    last: Option<WorkloadId>,
}

impl<'a> Queue<'a> {
    pub fn of(sources: Vec<Source<'a>>) -> Queue<'a> {
        let mut queue = Queue { sources, heads: BTreeSet::new(), last: None };
        (0..queue.sources.len()).for_each(|number| queue.advance(number));
        queue
    }

    fn advance(&mut self, number: usize) {
        let next = self.sources.get_mut(number).and_then(|source| source.ids.next());
        self.heads.extend(next.map(|id| (id, number)));
    }

    pub fn next(&mut self, is_stirred: impl Fn(WorkloadId, Stir<'a>) -> IsStirred) -> Option<WorkloadId> {
        while let Some((id, number)) = self.heads.pop_first() {
            let stir = self.sources.get(number).map_or(Stir::Any, |source| source.stir);
            let answer = match self.last == Some(id) {
                true => IsStirred::No,
                false => is_stirred(id, stir),
            };
            if answer != IsStirred::Over {
                self.advance(number);
            }
            if answer == IsStirred::Yes {
                self.last = Some(id);
                return Some(id);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source<'a>(ids: &[u64], stir: Stir<'a>) -> Source<'a> {
        let ids: Vec<WorkloadId> = ids.iter().map(|id| WorkloadId(*id)).collect();
        Source { ids: Box::new(ids.into_iter()), stir }
    }

    #[test]
    fn each_job_comes_once_and_in_order_and_a_reason_that_is_over_brings_nobody() {
        let offer = OfferId::new("spot");
        let open = Stir::Open { offer: &offer, least: 1, floor: NanoUsd(0) };
        let sources = vec![source(&[2, 5, 9], Stir::Any), source(&[1, 2, 3, 4, 9], open)];
        let mut queue = Queue::of(sources);
        let is_stirred = |id: WorkloadId, stir: Stir| match stir {
            Stir::Any | Stir::Room { .. } => IsStirred::Yes,
            Stir::Open { .. } if id.0 == 1 => IsStirred::No,
            Stir::Open { .. } if id.0 > 3 => IsStirred::Over,
            Stir::Open { .. } => IsStirred::Yes,
        };
        let all: Vec<u64> = std::iter::from_fn(|| queue.next(is_stirred)).map(|id| id.0).collect();
        assert_eq!(all, [2, 3, 5, 9]);
    }
}
