//! Jobs with all that is looked up of them: what they want, whose they are, what waits for its effect, what has changed since
//! somebody looked. Whoever gets one to change it leaves a note of that, and `refresh` brings the indices up
//! to date once a record is applied: no index can be forgotten. In between an index may name what is no longer so, and
//! whoever reads it then looks at the thing itself.

use super::Job;
use crate::ids::{StintId, WorkloadId};
use crate::spec::Ask;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

/// Jobs that can use the same offers in the same numbers: workers without which they do not start, and what each needs.
pub(super) type FitClass = (u32, Vec<Ask>);

/// A team, and a person in it.
pub(super) type Person = (Arc<str>, Arc<str>);

/// Jobs that a record may have changed.
pub(super) struct Changed {
    pub any: BTreeSet<WorkloadId>,
    /// Those of them that have begun or ended to use devices, or to let others have the rest.
    pub presence: Vec<WorkloadId>,
}

/// Every job that is not over, or whose leases are not yet gone.
#[derive(Clone, Debug, Default)]
pub(super) struct Jobs {
    /// Each apart: the map's nodes are half empty where numbers only grow, and hold no more than pointers. A copy of the
    /// state shares a job with it until one of them changes it.
    all: BTreeMap<WorkloadId, Arc<Job>>,
    index: JobIndex,
}

#[derive(Clone, Debug, Default)]
struct JobIndex {
    /// Jobs with decisions whose effect has not been seen.
    open: BTreeSet<WorkloadId>,
    /// Jobs of each class that have not ended.
    live: BTreeMap<FitClass, BTreeSet<WorkloadId>>,
    /// Those of one worker by who they are of, and by what they ask for: they may share machines.
    singles: BTreeMap<Person, BTreeMap<Vec<Ask>, BTreeSet<WorkloadId>>>,
    /// Those of them that were stopped in vain, and shun the machine on which they were.
    in_vain: BTreeMap<Person, BTreeSet<WorkloadId>>,
    /// Jobs with a stint, or that are about to leave: which stint, and whether so.
    presence: BTreeMap<WorkloadId, (Option<StintId>, bool)>,
    /// Those that accept something else than they ask for by now.
    with_fallback: BTreeSet<WorkloadId>,
    /// Those that run with fewer workers than they may have.
    short: BTreeSet<WorkloadId>,
    /// Jobs that may have changed since the last refresh.
    stale: BTreeSet<WorkloadId>,
}

fn class_of(job: &Job) -> FitClass {
    (job.spec.least(), job.spec.resources.clone())
}

impl JobIndex {
    fn enter(&mut self, job: &Job) {
        self.live.entry(class_of(job)).or_default().insert(job.id);
        if job.spec.gang == 1 {
            let by_asks = self.singles.entry(job.person()).or_default();
            by_asks.entry(job.spec.resources.clone()).or_default().insert(job.id);
        }
    }

    fn leave(&mut self, job: &Job) {
        take_out(&mut self.live, &class_of(job), job.id);
        let person = job.person();
        if let Some(by_asks) = self.singles.get_mut(&person) {
            take_out(by_asks, &job.spec.resources, job.id);
            if by_asks.is_empty() {
                self.singles.remove(&person);
            }
        }
        take_out(&mut self.in_vain, &person, job.id);
        self.with_fallback.remove(&job.id);
        self.short.remove(&job.id);
    }
}

impl Jobs {
    pub fn insert(&mut self, job: Job) {
        self.remove(job.id);
        if job.ended.is_none() {
            self.index.enter(&job);
        }
        self.index.stale.insert(job.id);
        self.all.insert(job.id, Arc::new(job));
    }

    pub fn remove(&mut self, id: WorkloadId) {
        if let Some(job) = self.all.remove(&id) {
            self.index.leave(&job);
            self.index.open.remove(&id);
            self.index.presence.remove(&id);
            self.index.stale.remove(&id);
        }
    }

    pub fn get_mut(&mut self, id: &WorkloadId) -> Option<&mut Job> {
        let job = self.all.get_mut(id)?;
        self.index.stale.insert(*id);
        Some(Arc::make_mut(job))
    }

    /// A job that is charged for something: that is news to whoever has a budget only.
    pub fn charge(&mut self, id: &WorkloadId) -> Option<&mut Job> {
        let job = self.all.get_mut(id)?;
        if job.spec.budget.is_some() {
            self.index.stale.insert(*id);
        }
        Some(Arc::make_mut(job))
    }

    /// Brings the indices up to date, and gives the jobs that may have changed.
    pub fn refresh(&mut self) -> Changed {
        let any = std::mem::take(&mut self.index.stale);
        let mut moved = Vec::new();
        for job in any.iter().filter_map(|id| self.all.get(id)) {
            let presence = Some((job.stint.as_ref().map(|stint| stint.id), job.is_leaving()));
            let presence = presence.filter(|(stint, leaving)| stint.is_some() || *leaving);
            let before = match presence {
                Some(presence) => self.index.presence.insert(job.id, presence),
                None => self.index.presence.remove(&job.id),
            };
            if before != presence {
                moved.push(job.id);
            }
            match job.has_open() {
                true => self.index.open.insert(job.id),
                false => self.index.open.remove(&job.id),
            };
            if job.fallback().is_some() {
                self.index.with_fallback.insert(job.id);
            }
            match job.stint.as_ref().is_some_and(|stint| stint.is_short(job)) {
                true => self.index.short.insert(job.id),
                false => self.index.short.remove(&job.id),
            };
            if job.ended.is_some() {
                self.index.leave(job);
            } else if job.spec.gang == 1 && (job.stopped_in_vain_on.is_some() || !job.not_begun_on.is_empty()) {
                self.index.in_vain.entry(job.person()).or_default().insert(job.id);
            } else {
                take_out(&mut self.index.in_vain, &job.person(), job.id);
            }
        }
        Changed { any, presence: moved }
    }

    pub fn get(&self, id: &WorkloadId) -> Option<&Job> {
        self.all.get(id).map(Arc::as_ref)
    }

    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Job> {
        self.all.values().map(Arc::as_ref)
    }

    /// In the order of their numbers, as copies of the state share them.
    pub fn shared(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.all.values()
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&WorkloadId, &Job)> {
        self.all.iter().map(|(id, job)| (id, job.as_ref()))
    }

    /// Jobs with decisions whose effect has not been seen.
    pub fn open(&self) -> impl Iterator<Item = &Job> {
        self.index.open.iter().filter_map(|id| self.get(id))
    }

    /// Jobs that have not ended, by what they want.
    pub fn by_class(&self) -> impl Iterator<Item = (&FitClass, &BTreeSet<WorkloadId>)> {
        self.index.live.iter()
    }

    /// Whether there is a job of a class.
    pub fn has_class(&self, class: &FitClass) -> bool {
        self.index.live.contains_key(class)
    }

    /// Jobs of one worker, of one person in one team, that have not ended, by what they ask for.
    pub fn singles(&self, person: &Person) -> impl Iterator<Item = (&Vec<Ask>, &BTreeSet<WorkloadId>)> {
        self.index.singles.get(person).into_iter().flatten()
    }

    /// Those of them that shun a machine.
    pub fn stopped_in_vain(&self, person: &Person) -> impl Iterator<Item = WorkloadId> {
        self.index.in_vain.get(person).into_iter().flatten().copied()
    }

    /// Jobs that have not ended and accept something else than they ask for by now.
    pub fn with_fallback(&self) -> impl Iterator<Item = WorkloadId> {
        self.index.with_fallback.iter().copied()
    }

    /// Jobs that run with fewer workers than they may have.
    pub fn short(&self) -> impl Iterator<Item = WorkloadId> {
        self.index.short.iter().copied()
    }
}

pub(super) fn take_out<K: Ord, I: Ord>(sets: &mut BTreeMap<K, BTreeSet<I>>, key: &K, id: I) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}

impl Deref for Jobs {
    type Target = BTreeMap<WorkloadId, Arc<Job>>;
    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl Serialize for Jobs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Jobs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Jobs, D::Error> {
        let mut jobs = Jobs::default();
        BTreeMap::<WorkloadId, Job>::deserialize(from)?.into_values().for_each(|job| jobs.insert(job));
        jobs.refresh();
        Ok(jobs)
    }
}
