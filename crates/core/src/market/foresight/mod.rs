//! Foresight: a decision under uncertainty. A model of spot markets, a belief about each market from what was
//! seen of it, and a plan that says what every choice is expected to cost to the end; the cheapest is taken.
//! Until there is a plan, `levi-safe` decides.

mod belief;
mod grid;
mod model;
mod outlook;
mod plan;
mod shelf;
#[cfg(test)]
mod tests;
mod travel;
mod weigh;

pub use belief::Belief;
pub use model::{BUCKET_STARTS, BUCKETS, Hazard, MIXING, Model, Priors, Regime, SHIFTS, bucket_of};
pub use outlook::{Expected, Journey, Losses, Outlook, Passage, WORLDS};
pub use plan::{Plan, PlanTerms, Solving};
pub use shelf::Shelf;
pub use weigh::{WORTH_WAITING_PERMILLE, foresight};
