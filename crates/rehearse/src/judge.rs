//! From what was seen to what it means: findings with stable codes, and one verdict. Every finding says what was
//! seen, why it matters and what to do; nothing here runs anything.

use super::seen::{Finding, Seen, Severity, seconds};
use serde::Serialize;

/// The judgement in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing is lost when there is a notice.
    Safe,
    /// An interruption costs some work.
    SafeWithLoss,
    /// Work is lost without bound, or the result is wrong.
    Unsafe,
    /// It could not be judged.
    Unknown,
}

/// What is said about the program.
pub struct Judgement {
    pub verdict: Verdict,
    /// The verdict in one sentence.
    pub line: String,
    pub findings: Vec<Finding>,
}

impl Seen {
    pub fn judge(&self) -> Judgement {
        let findings = super::findings::all(self);
        let worst = findings.iter().map(|finding| finding.severity).max();
        let (verdict, line) = if let Some(reason) = self.unknown(&findings) {
            (Verdict::Unknown, format!("unknown: {reason}"))
        } else if worst == Some(Severity::Unsafe) {
            let codes: Vec<&str> =
                findings.iter().filter(|f| f.severity == Severity::Unsafe).map(|finding| finding.code).collect();
            (Verdict::Unsafe, format!("unsafe on spot capacity: {}", codes.join(", ")))
        } else {
            let saves = self.scenes.iter().any(|scene| scene.saved_on_notice(&self.baseline));
            let loss = seconds(self.worst_loss());
            if saves && worst < Some(Severity::Warning) {
                let (notice, needed) = (self.notice.as_secs_f64(), self.stop_seconds().unwrap_or(0.0));
                let line = format!(
                    "safe: nothing is lost with a notice of {} (it needed {}), at most {loss} of work without one",
                    seconds(notice),
                    seconds(needed)
                );
                (Verdict::Safe, line)
            } else {
                let line = format!("safe with loss: an interruption costs at most {loss} of work");
                (Verdict::SafeWithLoss, line)
            }
        };
        Judgement { verdict, line, findings }
    }

    fn unknown(&self, findings: &[Finding]) -> Option<String> {
        if findings.iter().any(|finding| finding.code == "baseline-failed") {
            return Some("the program fails undisturbed".to_owned());
        }
        if findings.iter().any(|finding| finding.severity == Severity::Unsafe) {
            return None;
        }
        if self.base.last().is_none_or(|stint| stint.started.is_none()) {
            return Some("the program did not start; is its folder too large to be copied?".to_owned());
        }
        if self.scenes.is_empty() {
            let ran = seconds(self.baseline.ran);
            return Some(format!("the program ends after {ran}, too soon to interrupt it"));
        }
        let shown = self.restarts().any(|(_, restart)| restart.restored && restart.began_from_zero() == Some(false));
        (!shown).then(|| {
            if self.restarts().next().is_none() {
                "no interruption came to pass before the program ended".to_owned()
            } else if self.baseline.finished {
                "nothing shows from where the program goes on; give the job file a `progress:` pattern".to_owned()
            } else {
                "the program is longer than the limit and tells no progress; give the job file a `progress:` pattern, \
                 or the rehearsal a longer --limit"
                    .to_owned()
            }
        })
    }
}
