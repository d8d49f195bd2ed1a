//! Foresight: a decision under uncertainty. A model of spot markets, a belief about each market from what was
//! seen of it, and a plan that says what every choice is expected to cost to the end; the cheapest is taken.
//! Until there is a plan, `levi-safe` decides.

mod belief;
mod drawn_market;
mod forecast;
mod forecast_terms;
mod grid;
mod model;
mod one_world;
mod plan;
mod plan_cache;
#[cfg(test)]
mod tests;
mod weigh;

pub use belief::Belief;
pub use forecast::{Expected, JobForecast};
pub use forecast_terms::{ForecastTerms, Losses, WORLDS};
pub use model::{BUCKET_STARTS, BUCKETS, Hazard, MIXING, Model, Priors, Regime, SHIFTS, bucket_of};
pub use one_world::WorldOutcome;
pub use plan::{Plan, PlanTerms, Solving};
pub use plan_cache::PlanCache;
pub use weigh::foresight;
