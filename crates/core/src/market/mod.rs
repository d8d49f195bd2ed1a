//! Which market, and when to switch. A policy is a small pure function of what can be seen now; the
//! safety net around every policy is what makes a deadline a promise.

pub mod foresight;
mod policies;
mod save;
mod sight;

pub use foresight::foresight;
pub use policies::{
    greedy, levi_safe, on_demand, skynomad, time_sliced, uniform_progress, uniform_progress_no_hysteresis,
};
pub use save::{save_every, save_takes};
pub use sight::{Choice, Margins, Present, Seen, Sight, WORTH_WAITING_PERMILLE};

use crate::reason::Reason;

/// A policy by name.
pub type Policy = fn(&Sight) -> (Choice, Reason);

/// The policy of a job that names none.
pub const DEFAULT: &str = "foresight";

const POLICIES: &[(&str, Policy)] = &[
    ("on-demand", on_demand),
    ("greedy", greedy),
    ("time-sliced", time_sliced),
    ("uniform-progress", uniform_progress),
    ("uniform-progress-no-hysteresis", uniform_progress_no_hysteresis),
    ("levi-safe", levi_safe),
    ("skynomad", skynomad),
    ("foresight", foresight),
];

/// The policy of that name.
pub fn policy(name: &str) -> Option<Policy> {
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, policy)| *policy)
}

/// Whether a policy looks at beliefs about markets.
pub fn watches(name: &str) -> bool {
    matches!(name, "foresight" | "skynomad")
}

/// Whether a policy follows a plan.
pub fn plans(name: &str) -> bool {
    name == "foresight"
}

/// All names, in the order they are listed to people.
pub fn names() -> Vec<&'static str> {
    POLICIES.iter().map(|(name, _)| *name).collect()
}

/// What to do: the policy's choice, unless the deadline no longer leaves it one. For a moment whoever moves holds
/// nothing, and is asked again: so only a move that is right from there as well is begun.
pub fn choose(policy: Policy, sight: &Sight) -> (Choice, Reason) {
    if sight.is_about_to_end() {
        let reason =
            Reason::new("about-to-end", "all of its work is done as far as anyone knows: it may end at any moment");
        return (Choice::Stay { until: None }, reason);
    }
    if let Some(forced) = sight.safety_net() {
        return forced;
    }
    // What nobody takes away and costs no more than spot is never worth waiting for: a commitment, or no spot at all.
    let policy = if sight.firm_is_cheapest() { on_demand } else { policy };
    let (choice, reason) = policy(sight);
    if let Some(held_back) = sight.too_late_for(&choice) {
        return held_back;
    }
    let choice = match sight.empty_handed_before(&choice) {
        Some(empty) if policy(&empty).0.goal() != choice.goal() => Choice::Stay { until: None },
        _ => choice,
    };
    // A wait must never sleep through the moment at which the net, or the rule's own, has to act.
    let moments = [sight.net_at(), policies::last_call_at(sight)].into_iter().flatten();
    (moments.fold(choice, Choice::no_later_than), reason)
}
