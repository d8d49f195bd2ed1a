//! Where jobs save their checkpoints, found by path or by key without a walk over all jobs: no two live jobs share one, and none has
//! one inside another's. An entry may be of a job that is over, or of a commit that failed: whoever asks gets only those that
//! the brain still shows there.

use crate::rounds::{Rounds, WITH_EACH};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::Path;
use windfall_core::brain::Job;
use windfall_core::{Brain, WorkloadId};

/// The checkpoint paths of jobs.
#[derive(Clone, Debug, Default)]
pub struct SavePaths {
    jobs: Savers<Place>,
    /// Jobs that go on from others' checkpoints, by the key of those. All other jobs save under the key that they were
    /// submitted with, by which the brain finds them.
    continuing: Savers<String>,
}

/// Jobs by where they save.
#[derive(Clone, Debug)]
struct Savers<K> {
    jobs: BTreeMap<K, BTreeSet<WorkloadId>>,
    rounds: Rounds<K>,
}

impl<K> Default for Savers<K> {
    fn default() -> Savers<K> {
        Savers { jobs: BTreeMap::new(), rounds: Rounds::default() }
    }
}

impl<K: Clone + Ord> Savers<K> {
    fn add(&mut self, at: K, id: WorkloadId) {
        self.jobs.entry(at).or_default().insert(id);
    }

    /// Looks at one and at the next few, and drops those whose jobs do not save there any more.
    fn tidy(&mut self, own: Option<K>, saves_at: impl Fn(WorkloadId, &K) -> bool) {
        let next = self.rounds.next(&self.jobs, WITH_EACH);
        for at in next.iter().chain(&own) {
            let Some(jobs) = self.jobs.get_mut(at) else { continue };
            if jobs.iter().all(|id| saves_at(*id, at)) {
                continue;
            }
            jobs.retain(|id| saves_at(*id, at));
            if jobs.is_empty() {
                self.jobs.remove(at);
            }
        }
    }
}

/// A path with a byte of zero after each of its folders: where one is inside another, its place begins with the other's, and
/// comes right after it. Places are compared byte by byte, paths part by part.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place(String);

impl Place {
    fn of(path: &str) -> Place {
        let mut place = String::with_capacity(path.len() + 2);
        for part in Path::new(path).components() {
            place.extend([&part.as_os_str().to_string_lossy(), "\0"]);
        }
        Place(place)
    }

    /// Whether it is the place of this path.
    fn is(&self, path: &str) -> bool {
        let mut rest = self.0.as_bytes();
        for part in Path::new(path).components() {
            let after =
                rest.strip_prefix(part.as_os_str().as_encoded_bytes()).and_then(|rest| rest.strip_prefix(b"\0"));
            let Some(after) = after else { return false };
            rest = after;
        }
        rest.is_empty()
    }

    /// The place itself, and those of all folders around it.
    fn around(&self) -> impl Iterator<Item = Place> {
        self.0.match_indices('\0').map(|(end, _)| Place(self.0[..=end].to_owned()))
    }

    fn is_in(&self, other: &Place) -> bool {
        self.0.starts_with(&other.0)
    }
}

impl SavePaths {
    /// Those of all jobs that a brain knows.
    pub fn of(brain: &Brain) -> SavePaths {
        let mut paths = SavePaths::default();
        brain.jobs().for_each(|job| paths.enter(job));
        paths
    }

    /// Adds a job that was just submitted.
    pub fn add(&mut self, brain: &Brain, id: WorkloadId) {
        brain.job(id).into_iter().for_each(|job| self.enter(job));
        let path = |id| brain.job(id)?.spec.checkpoint.path.as_deref();
        self.jobs.tidy(path(id).map(Place::of), |id, at| path(id).is_some_and(|path| at.is(path)));
        let key = |id| Some(&brain.job(id)?.spec.continues.as_ref()?.key);
        self.continuing.tidy(key(id).cloned(), |id, at| key(id) == Some(at));
    }

    fn enter(&mut self, job: &Job) {
        if let Some(path) = &job.spec.checkpoint.path {
            self.jobs.add(Place::of(path), job.id);
        }
        if let Some(from) = &job.spec.continues {
            self.continuing.add(from.key.clone(), job.id);
        }
    }

    /// The jobs that a brain knows whose checkpoints lie under a key, the first one first.
    pub fn savers_in<'b>(&self, brain: &'b Brain, key: &str) -> impl Iterator<Item = &'b Job> {
        let continuing = self.continuing.jobs.get(key).into_iter().flatten().copied();
        let ids: BTreeSet<WorkloadId> = continuing.chain(brain.submitted_as(key)).collect();
        let jobs: Vec<&Job> = ids.into_iter().filter_map(|id| brain.job(id)).collect();
        jobs.into_iter().filter(move |job| job.spec.checkpoint_key() == key)
    }

    /// The first job that saves in a path, in a folder around it or in one inside it.
    pub fn saver<'b>(&self, brain: &'b Brain, path: &str) -> Option<&'b Job> {
        let wanted = Place::of(path);
        let around = wanted.around().filter_map(|above| self.jobs.jobs.get(&above));
        let inside = self.jobs.jobs.range((Bound::Excluded(&wanted), Bound::Unbounded));
        let inside = inside.take_while(|(known, _)| known.is_in(&wanted)).map(|(_, jobs)| jobs);
        // A number may have been given again after a commit that failed: what counts is what the job says.
        let shares = |known: &str| {
            let known = Place::of(known);
            wanted.is_in(&known) || known.is_in(&wanted)
        };
        let jobs = around.chain(inside).flatten().filter_map(|id| brain.job(*id));
        let savers = jobs.filter(may_save).filter(|job| job.spec.checkpoint.path.as_deref().is_some_and(shares));
        savers.min_by_key(|job| job.id)
    }
}

/// One that is over, and waits only for a lease to be gone, saves nothing any more.
pub(crate) fn may_save(job: &&Job) -> bool {
    job.ended.is_none() || job.stint.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::brain::Config;
    use windfall_core::spec::Continued;
    use windfall_core::{Body, Event, Installation, JobSpec, Record, Time, Workload};

    fn submit(brain: &mut Brain, path: &str) -> WorkloadId {
        let mut spec = JobSpec::named("job", vec!["train".to_owned()]);
        spec.checkpoint.path = Some(path.to_owned());
        let (workload, id, seq) = (Workload::from(spec), brain.next_workload(), brain.last_seq() + 1);
        let event = Event::Submitted { workload, key: id.to_string(), id: Some(id) };
        brain.apply(&Record { seq, batch: seq, at: Time(1_000), body: Body::Event(event) });
        id
    }

    #[test]
    fn a_place_is_that_of_its_path_and_of_no_other() {
        for path in ["/a/b", "/a//b/", "a/b", "/", "/ü/x y"] {
            assert!(Place::of(path).is(path), "{path}");
        }
        for other in ["/a", "/a/b/c", "/a/bc", "a/b", ""] {
            assert!(!Place::of("/a/b").is(other), "{other}");
        }
    }

    #[test]
    fn a_path_is_in_use_by_who_saves_there_around_it_or_inside_it() {
        let mut brain = Brain::new(Installation(1), Config::default());
        let mut paths = SavePaths::of(&brain);
        for path in ["/data/a/b", "/data/ab", "/data/a-c", "/other"] {
            let id = submit(&mut brain, path);
            paths.add(&brain, id);
        }
        let saver = |path: &str| paths.saver(&brain, path).map(|job| job.id.0);
        assert_eq!(["/data/a/b", "/data/a/b/c", "/data/a", "/data", "/"].map(saver), [Some(1); 5]);
        assert_eq!(
            ["/data/a//b/", "/data/ab/x", "/data/a-c", "/other/."].map(saver),
            [Some(1), Some(2), Some(3), Some(4)]
        );
        assert_eq!(["/data/b", "/data/a/c", "/dat", "/data/abc"].map(saver), [None; 4]);
    }

    #[test]
    fn checkpoints_under_a_key_are_of_the_job_that_was_submitted_with_it_and_of_those_that_go_on_from_them() {
        let mut brain = Brain::new(Installation(1), Config::default());
        let mut paths = SavePaths::of(&brain);
        for (key, continues) in [("a", None), ("b", Some("a")), ("c", Some("gone"))] {
            let mut spec = JobSpec::named("job", vec!["train".to_owned()]);
            spec.run.environment = key.to_owned();
            let (job, durable) = (WorkloadId(1), windfall_core::Work(0));
            spec.continues = continues.map(|key: &str| Continued { job, key: key.to_owned(), epoch: 1, durable });
            let (workload, id, seq) = (Workload::from(spec), brain.next_workload(), brain.last_seq() + 1);
            let event = Event::Submitted { workload, key: key.to_owned(), id: Some(id) };
            brain.apply(&Record { seq, batch: seq, at: Time(1_000), body: Body::Event(event) });
            paths.add(&brain, id);
        }
        let savers = |key: &str| paths.savers_in(&brain, key).map(|job| job.id.0).collect::<Vec<u64>>();
        assert_eq!(["a", "b", "gone", "none"].map(savers), [vec![1, 2], vec![], vec![3], vec![]]);
    }

    #[test]
    fn what_a_brain_does_not_show_is_not_found_and_not_kept_for_ever() {
        let mut brain = Brain::new(Installation(1), Config::default());
        let mut paths = SavePaths::of(&brain);
        let before = brain.clone();
        for number in 0..100 {
            let id = submit(&mut brain, &format!("/lost/{number}"));
            paths.add(&brain, id);
        }
        assert!(paths.saver(&brain, "/lost/7").is_some());
        // The commit failed, and the numbers are given again.
        let mut brain = before;
        assert!(paths.saver(&brain, "/lost/7").is_none());
        let id = submit(&mut brain, "/kept");
        paths.add(&brain, id);
        assert!(paths.saver(&brain, "/lost").is_none());
        assert_eq!(paths.saver(&brain, "/kept/x").map(|job| job.id), Some(id));
        for number in 1..=100 {
            let id = submit(&mut brain, &format!("/kept-{number}"));
            paths.add(&brain, id);
        }
        let places: Vec<&str> = paths.jobs.jobs.keys().map(|place| place.0.as_str()).collect();
        assert_eq!((places.len(), places.iter().filter(|place| place.contains("lost")).count()), (101, 0));
    }
}
