//! What a person is told of the options that are not honoured: one note for all that are left out for the same reason, so that
//! it fits on a screen.

use super::given::Given;
use super::options::Treatment;
use super::script::Script;
use std::collections::BTreeMap;

/// Why options of a kind are left out. Each begins with the options.
const REASONS: &[(Treatment, &str)] = &[
    (Treatment::Machines, "Windfall chooses machines by what the job needs and what they cost"),
    (Treatment::Files, "output is kept with the job: `windfall logs JOB` shows it"),
    (Treatment::Mail, "nobody is mailed"),
    (Treatment::Order, "the job begins as soon as Windfall finds it worth it"),
    (Treatment::Again, "a job that is interrupted begins again from what it saved last, in any case"),
    (Treatment::Steps, "the script itself says how its tasks use a machine"),
    (Treatment::Aside, "it changes nothing about the job"),
];

/// One note for each reason.
pub(super) fn left_out(script: &Script) -> Vec<String> {
    let mut by: BTreeMap<Treatment, BTreeMap<&str, &Given>> = BTreeMap::new();
    for given in &script.given {
        // Of two alike the last one counts.
        by.entry(given.option.treatment).or_default().insert(given.option.name, given);
    }
    let said = |(treatment, reason): &(Treatment, &str)| {
        let mut given: Vec<&Given> = by.get(treatment)?.values().copied().collect();
        given.sort_by_key(|given| given.span.start);
        let named: Vec<String> = given.into_iter().map(shown).collect();
        Some(format!("not used: {}: {reason}", named.join(" ")))
    };
    REASONS.iter().filter_map(said).collect()
}

/// An option in its long form, cut where it is long, and without anything that a terminal would obey.
pub(super) fn shown(given: &Given) -> String {
    let long: String = given.long().chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    match long.char_indices().nth(48) {
        Some((at, _)) => format!("{}…", &long[..at]),
        None => long,
    }
}
