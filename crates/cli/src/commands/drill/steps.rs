//! The steps of a drill, as the log of its job has them.

use serde::Serialize;
use windfall_core::{Span, Time};
use windfall_server::api_types::Line;

/// A step of the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub step: &'static str,
    /// Since the job was submitted, by the world's clock.
    #[serde(rename = "after_ms")]
    pub after: Span,
    pub text: String,
}

/// What is a step, by the kinds of records.
const STEPS: &[(&str, &str)] = &[
    ("acquire", "ask"),
    ("group-queued", "queue"),
    ("group-failed", "refused"),
    ("lease-up", "up"),
    // Every machine can be used. Of one that was ready when it was first seen nobody says so apart.
    ("start", "ready"),
    ("worker-started", "run"),
    ("checkpoint-durable", "save"),
    ("lease-noticed", "notice"),
    ("worker-ended", "stop"),
    ("lease-gone", "gone"),
    ("troubled", "trouble"),
    ("end", "end"),
];

/// The steps among a job's records. What is said again in other words, such as another guess of when a queue ends, is one.
pub fn steps(lines: &[Line], submitted_at: Time) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in lines {
        let Some((kind, step)) = STEPS.iter().find(|(kind, _)| *kind == line.kind) else { continue };
        let is_again = steps.last().is_some_and(|last| last.step == *step);
        // The second machine is there in place of the first.
        let is_replaced = *kind == "acquire" && steps.iter().any(|before| before.step == "notice");
        let step = if is_replaced { "replace" } else { step };
        if !(is_again && matches!(step, "queue" | "save")) {
            steps.push(Step { step, after: line.at - submitted_at, text: line.text.clone() });
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_is_read_from_the_kinds_of_records_and_never_from_their_text() {
        let line = |at: i64, kind: &str| Line {
            seq: 1,
            at: Time(at),
            kind: kind.to_owned(),
            text: format!("as {kind}"),
            reason: None,
        };
        let kinds = [
            "submitted",
            "acquire",
            "group-queued",
            "group-queued",
            "lease-up",
            "start",
            "worker-started",
            "progress",
            "checkpoint-durable",
            "lease-noticed",
            "acquire",
            "lease-gone",
            "end",
        ];
        let lines: Vec<Line> = kinds.iter().zip(1_000..).map(|(kind, at)| line(at, kind)).collect();
        let steps = steps(&lines, Time(1_000));
        let words: Vec<&str> = steps.iter().map(|step| step.step).collect();
        assert_eq!(words, ["ask", "queue", "up", "ready", "run", "save", "notice", "replace", "gone", "end"]);
        assert_eq!((steps[1].after, steps[1].text.as_str()), (Span(2), "as group-queued"));
    }
}
