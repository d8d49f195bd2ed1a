//! Up to which price of what it has each job with a budget need not be asked. A price that moves wakes those whose budget
//! may end sooner than they look at it again, and nobody else.

use crate::ids::WorkloadId;
use crate::offer::OfferId;
use crate::units::NanoUsd;
use std::collections::{BTreeMap, BTreeSet};

/// Prices of offers up to which a job's next look comes in time.
pub(super) type Heeds = BTreeMap<OfferId, NanoUsd>;

/// Those of all jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct Ceilings {
    of_offer: BTreeMap<OfferId, BTreeSet<(NanoUsd, WorkloadId)>>,
    of_job: BTreeMap<WorkloadId, Heeds>,
}

impl Ceilings {
    /// What a job heeds from now on.
    pub fn set(&mut self, job: WorkloadId, heeds: Heeds) {
        for (offer, ceiling) in self.of_job.remove(&job).unwrap_or_default() {
            if let Some(known) = self.of_offer.get_mut(&offer) {
                known.remove(&(ceiling, job));
                if known.is_empty() {
                    self.of_offer.remove(&offer);
                }
            }
        }
        for (offer, ceiling) in &heeds {
            self.of_offer.entry(offer.clone()).or_default().insert((*ceiling, job));
        }
        if !heeds.is_empty() {
            self.of_job.insert(job, heeds);
        }
    }

    /// Jobs to which a price is more than they counted on.
    pub fn below(&self, offer: &OfferId, price: NanoUsd) -> Vec<WorkloadId> {
        let known = self.of_offer.get(offer).into_iter().flatten();
        known.take_while(|(ceiling, _)| *ceiling < price).map(|(_, job)| *job).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_wakes_whom_it_passes_and_what_was_heeded_before_does_not_count() {
        let (spot, other) = (OfferId::new("spot"), OfferId::new("other"));
        let heeds = |prices: &[(&OfferId, i64)]| -> Heeds {
            prices.iter().map(|(offer, price)| ((*offer).clone(), NanoUsd(*price))).collect()
        };
        let mut ceilings = Ceilings::default();
        ceilings.set(WorkloadId(1), heeds(&[(&spot, 100)]));
        ceilings.set(WorkloadId(2), heeds(&[(&spot, 200), (&other, 50)]));
        assert_eq!(ceilings.below(&spot, NanoUsd(100)), []);
        assert_eq!(ceilings.below(&spot, NanoUsd(101)), [WorkloadId(1)]);
        assert_eq!(ceilings.below(&spot, NanoUsd(300)), [WorkloadId(1), WorkloadId(2)]);
        ceilings.set(WorkloadId(1), heeds(&[(&other, 10)]));
        ceilings.set(WorkloadId(2), Heeds::default());
        assert_eq!(ceilings.below(&spot, NanoUsd(300)), []);
        assert_eq!(ceilings.below(&other, NanoUsd(300)), [WorkloadId(1)]);
        assert_eq!((ceilings.of_job.len(), ceilings.of_offer.len()), (1, 1), "what nobody heeds is not kept");
    }
}
