//! Why nothing of what could serve a job can be had now, in words for people: its price, its size, or who has it.

use super::sight::affordable;
use super::{Brain, Job};
use crate::market::Sight;
use crate::offer::{Market, Offer};

impl Brain {
    /// What stands between a job that holds nothing and what it waits for: spot, where any is sold. None where that can be
    /// had.
    pub(super) fn obstacle(&self, job: &Job, sight: &Sight) -> Option<String> {
        let any_spot = sight.offers.iter().any(|seen| seen.market.can_be_taken());
        let wanted = || sight.offers.iter().filter(|seen| seen.market.can_be_taken() || !any_spot);
        if wanted().any(|seen| seen.available) {
            return None;
        }
        let offers = wanted().filter_map(|seen| self.offers.get(&seen.id));
        let offers: Vec<&Offer> = offers.filter(|offer| self.silent_since(&offer.engine).is_none()).collect();
        let sold = offers.iter().copied().filter(|offer| offer.market != Market::Owned);
        let shown: Vec<&Offer> = sold.filter(|offer| offer.capacity != Some(0)).collect();
        let within = |offer: &&Offer| affordable(job, offer);
        if let (Some(cheapest), Some(most)) = (shown.iter().map(|offer| offer.price_per_hour).min(), job.spec.max_price)
            && !shown.iter().any(within)
        {
            return Some(format!("the cheapest costs {cheapest} an hour, and its `max_price` is {most}"));
        }
        let most = shown.iter().filter(|offer| within(offer)).filter_map(|offer| offer.capacity).max()?;
        let least = job.spec.least();
        match most < least {
            true => Some(format!("it needs {least} machines at once, and at most {most} can be had at one place")),
            false => Some("what there is has been taken by others".to_owned()),
        }
    }
}
