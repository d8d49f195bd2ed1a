//! The laws of DESIGN.md that can be read off a brain's state. The explorer adds those that need to see
//! the world as well; each law says how often its precondition was met, so that none passes unseen.

use crate::brain::{Brain, StintPhase};
use crate::ids::WorkloadId;
use std::collections::{BTreeMap, BTreeSet};

/// A law that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The law's number.
    pub law: u8,
    pub what: String,
}

/// How often the precondition of each law was met.
pub type Reached = BTreeMap<u8, u64>;

/// Checks what a state alone can show.
pub fn check(brain: &Brain, reached: &mut Reached) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut fail = |law, what: String| violations.push(Violation { law, what });
    for job in brain.jobs() {
        if let Some(stint) = &job.stint {
            *reached.entry(2).or_default() += 1;
            if stint.id.epoch != job.epoch {
                fail(2, format!("stint {} runs, but the epoch is {}", stint.id, job.epoch));
            }
            if stint.size() > 1 {
                *reached.entry(3).or_default() += 1;
            }
            if !(job.spec.least()..=job.spec.gang).contains(&stint.size()) {
                fail(3, format!("stint {} has {} leases for a gang of {}", stint.id, stint.size(), job.spec.gang));
            }
            if stint.phase != StintPhase::Starting && stint.workers.iter().any(|worker| !worker.started) {
                fail(3, format!("stint {} runs without all of its workers", stint.id));
            }
        }
        if job.progress.durable.0 > 0 {
            *reached.entry(8).or_default() += 1;
        }
        if job.progress.done < job.progress.durable {
            fail(8, format!("job {} is at {:?}, behind its checkpoint", job.id, job.progress));
        }
        let over = job.ended.is_some() && job.stint.is_none();
        if over && brain.leases_of(job.id).next().is_none() {
            fail(5, format!("job {} is over and holds nothing, yet is remembered", job.id));
        }
    }
    for lease in brain.leases() {
        *reached.entry(5).or_default() += 1;
        if lease.workload.is_some_and(|workload| brain.job(workload).is_none()) {
            fail(5, format!("lease {} serves nobody", lease.id));
        }
    }
    let mut tenures: BTreeMap<WorkloadId, u32> = BTreeMap::new();
    for tenure in brain.leases().flat_map(|lease| &lease.tenures) {
        *tenures.entry(tenure.workload).or_default() += 1;
    }
    if tenures != brain.tenures().collect() {
        fail(6, "it is not known whose bills late news can still change".to_owned());
    }
    let named = brain
        .leases()
        .filter(|lease| lease.meter.is_some())
        .filter_map(|lease| Some((lease.id, lease.terms.node.as_ref()?)));
    let named: BTreeSet<_> = named.collect();
    if named != brain.leases_on_nodes().collect() {
        fail(6, "the books of nodes do not hold the leases that are on them".to_owned());
    }
    violations
}
