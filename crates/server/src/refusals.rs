//! What people are told whose request was not taken.

use crate::api_types::Problem;
use crate::cycle::Refused;
use crate::problem;

/// What a person is told whose request was not taken.
pub(crate) fn refusal(refused: &Refused) -> Problem {
    match refused {
        Refused::Away { why } => {
            let mut refusal = problem(503, "database-away", &format!("the state could not be written: {why}"));
            refusal.hint = Some("nothing of the request was kept: try again when `windfall status` says so".to_owned());
            refusal
        }
        Refused::Unknown { why } => {
            let text = format!("it is not known whether the request was taken: {why}");
            let mut refusal = problem(503, "database-unsure", &text);
            refusal.hint = Some("look with `windfall jobs` once the database is back".to_owned());
            refusal
        }
        Refused::Continued { of, by } => {
            let text = format!("job {by} goes on from the checkpoints of job {of} already");
            problem(409, "continued-already", &text)
        }
        Refused::PathInUse { path, by } => {
            let text = format!("job {by} saves its checkpoints in {path} already");
            let mut refusal = problem(409, "checkpoint-path-in-use", &text);
            let hint = "leave `checkpoint.path` out and save in $WINDFALL_CHECKPOINT_DIR, or give each job its own";
            refusal.hint = Some(hint.to_owned());
            refusal
        }
    }
}
