//! What a node shows of its leases in a beat. One beat is for all of them, so what one lease's folder holds must never make it
//! too long to be sent: nobody's leases on the node could be ended then.

use super::super::protocol::OnNode;
use super::Daemon;
use crate::agents;

/// The most bytes of last views in one beat: half of what can be sent, so that the leases themselves have the rest.
const MOST_LAST: usize = 2 << 20;

impl Daemon {
    pub(super) fn shown(&self) -> Vec<OnNode> {
        let held = self.leases.held();
        let shown = held.iter().map(|(lease, held)| {
            let is_alive = !held.is_gone();
            let last = if is_alive { None } else { agents::last_view(&held.folder.of_agent()) };
            OnNode { lease: *lease, is_alive, last }
        });
        let mut shown: Vec<OnNode> = shown.collect();
        bound(&mut shown, MOST_LAST);
        shown
    }
}

/// Leaves out the longest last views where all of them together are longer than `most` bytes: whoever wrote little is not
/// left out for whoever wrote much. A server that needs one that is missing asks for its lease, and is told then.
fn bound(shown: &mut [OnNode], most: usize) {
    let lengths =
        shown.iter_mut().filter_map(|seen| seen.last.as_ref().map(agents::length_of).map(|length| (length, seen)));
    let mut lengths: Vec<(usize, &mut OnNode)> = lengths.collect();
    lengths.sort_by_key(|(length, _)| *length);
    let mut all = 0_usize;
    for (length, seen) in lengths {
        all = all.saturating_add(length);
        if all > most {
            seen.last = None;
        }
    }
}

/// Whether the end of a lease was told before.
pub(super) fn was_told(told: Option<&[OnNode]>, seen: &OnNode) -> bool {
    told.is_some_and(|told| told.contains(seen))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::worker::{AgentView, WorkerView};
    use windfall_core::{DecisionId, Installation, LeaseId, StintId, WorkloadId};

    #[test]
    fn the_longest_views_are_left_out_of_a_beat_that_would_be_too_long() {
        let on_node = |slot: u32, workers: u64| {
            let worker = |id| WorkerView::new(StintId::of_job(WorkloadId(id), 1), 0);
            let last = Some(AgentView { version: 1, pid: 7, workers: (0..workers).map(worker).collect() });
            let group = DecisionId { installation: Installation(1), seq: 1 };
            OnNode { lease: LeaseId { group, slot }, is_alive: false, last }
        };
        let mut shown = vec![on_node(0, 100), on_node(1, 1), on_node(2, 90), on_node(3, 2)];
        shown.push(OnNode { is_alive: true, last: None, ..on_node(4, 0) });
        let room = [1, 2, 3].map(|at: usize| shown[at].last.as_ref().map_or(0, agents::length_of)).iter().sum();
        bound(&mut shown, room);
        let told: Vec<bool> = shown.iter().map(|seen| seen.last.is_some()).collect();
        assert_eq!(told, [false, true, true, true, false]);
        bound(&mut shown, 0);
        assert!(shown.len() == 5 && shown.iter().all(|seen| seen.last.is_none()), "the leases are told all the same");
    }
}
