//! What is remembered for a while after it is over: keys of submissions, and leases that are gone.

use crate::ids::{LeaseId, WorkloadId};
use crate::units::{Span, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// Keys of the latest submissions, the newest last, and of all whose jobs are there: who asks again whether a submission was
/// accepted must not start a second job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "VecDeque<(Arc<str>, WorkloadId)>", into = "VecDeque<(Arc<str>, WorkloadId)>")]
pub(super) struct Keys {
    in_order: VecDeque<(Arc<str>, WorkloadId)>,
    /// Asked for one by one and never gone through, so that its order does not matter.
    by_key: HashMap<Arc<str>, WorkloadId>,
    /// Earlier ones, of jobs that were still there.
    of_live: BTreeMap<WorkloadId, Arc<str>>,
}

impl Keys {
    /// Adds one, and forgets the oldest beyond so many, but for those of jobs that are there.
    pub fn add(&mut self, key: &str, id: WorkloadId, most: usize, is_there: impl Fn(WorkloadId) -> bool) {
        let key: Arc<str> = key.into();
        self.by_key.insert(Arc::clone(&key), id);
        self.in_order.push_back((key, id));
        while self.in_order.len() > most {
            let Some((oldest, id)) = self.in_order.pop_front() else { return };
            match is_there(id) {
                true => _ = self.of_live.insert(id, oldest),
                false => self.remove(&oldest, id),
            }
        }
    }

    /// A job is not there any more.
    pub fn forget(&mut self, id: WorkloadId) {
        if let Some(key) = self.of_live.remove(&id) {
            self.remove(&key, id);
        }
    }

    fn remove(&mut self, key: &str, id: WorkloadId) {
        // The same key may have come again since.
        if self.by_key.get(key) == Some(&id) {
            self.by_key.remove(key);
        }
    }

    pub fn find(&self, key: &str) -> Option<WorkloadId> {
        self.by_key.get(key).copied()
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, WorkloadId)> {
        let earlier = self.of_live.iter().map(|(id, key)| (key, *id));
        earlier.chain(self.in_order.iter().map(|(key, id)| (key, *id)))
    }

    pub fn newest(&self) -> Option<WorkloadId> {
        self.in_order.back().map(|(_, id)| *id)
    }
}

impl From<VecDeque<(Arc<str>, WorkloadId)>> for Keys {
    fn from(in_order: VecDeque<(Arc<str>, WorkloadId)>) -> Keys {
        let by_key = in_order.iter().cloned().collect();
        Keys { in_order, by_key, of_live: BTreeMap::new() }
    }
}

impl From<Keys> for VecDeque<(Arc<str>, WorkloadId)> {
    fn from(keys: Keys) -> Self {
        keys.iter().map(|(key, id)| (Arc::clone(key), id)).collect()
    }
}

/// Leases whose end is in the books, and when it was.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<(LeaseId, Time)>", into = "Vec<(LeaseId, Time)>")]
pub(super) struct Closed {
    ends: BTreeMap<LeaseId, Time>,
    by_end: BTreeSet<(Time, LeaseId)>,
}

impl Closed {
    /// Notes an end; of several of one lease the latest counts.
    pub fn add(&mut self, id: LeaseId, end: Time) {
        let end = self.ends.get(&id).map_or(end, |known| end.max(*known));
        if let Some(known) = self.ends.insert(id, end) {
            self.by_end.remove(&(known, id));
        }
        self.by_end.insert((end, id));
    }

    /// Forgets what ended longer ago than `age`.
    pub fn forget_before(&mut self, now: Time, age: Span) {
        while let Some((end, id)) = self.by_end.first().copied().filter(|(end, _)| now - *end > age) {
            self.by_end.remove(&(end, id));
            self.ends.remove(&id);
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LeaseId, &Time)> {
        self.ends.iter()
    }

    /// The end of a lease, if it is remembered.
    pub fn end_of(&self, id: LeaseId) -> Option<Time> {
        self.ends.get(&id).copied()
    }
}

impl From<Vec<(LeaseId, Time)>> for Closed {
    fn from(list: Vec<(LeaseId, Time)>) -> Closed {
        let mut closed = Closed::default();
        list.into_iter().for_each(|(id, end)| closed.add(id, end));
        closed
    }
}

impl From<Closed> for Vec<(LeaseId, Time)> {
    fn from(closed: Closed) -> Self {
        closed.by_end.into_iter().map(|(end, id)| (id, end)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_job_that_is_there_is_not_forgotten_however_many_come_after_it() {
        let mut keys = Keys::default();
        let is_there = |id: WorkloadId| id.0 == 1;
        (1..=100).for_each(|id| keys.add(&format!("key-{id}"), WorkloadId(id), 10, is_there));
        let found = |keys: &Keys, id: u64| keys.find(&format!("key-{id}"));
        assert_eq!(
            (found(&keys, 1), found(&keys, 2), found(&keys, 91)),
            (Some(WorkloadId(1)), None, Some(WorkloadId(91)))
        );
        let stored = serde_json::to_string(&keys).expect("text");
        let mut read: Keys = serde_json::from_str(&stored).expect("keys");
        assert_eq!((found(&read, 1), read.iter().count()), (Some(WorkloadId(1)), 11));
        read.add("key-101", WorkloadId(101), 10, is_there);
        assert_eq!((found(&read, 1), found(&read, 92)), (Some(WorkloadId(1)), Some(WorkloadId(92))));
        read.forget(WorkloadId(1));
        assert_eq!((found(&read, 1), read.iter().count()), (None, 10));
    }
}
