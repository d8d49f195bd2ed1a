//! The way of a drill, followed by what the log says of its job.

use super::LOOK;
use super::report::Report;
use super::steps::steps;
use serde_json::json;
use windfall_core::Span;
use windfall_server::api_types::{ExplainAnswer, JobAnswer};
use windfall_server::client::{Client, Code, Failure};

/// A drill on its way.
pub struct Walk<'a> {
    pub client: &'a Client,
    pub id: u64,
    pub report: &'a mut Report,
    /// How long before its end the first machine says so.
    pub notice: Span,
}

impl Walk<'_> {
    /// Follows the job to its end, and interrupts it once when it has saved.
    pub async fn run(&mut self) -> Result<(), Failure> {
        let mut is_interrupted = false;
        loop {
            let answer: JobAnswer = self.client.get(&format!("/v1/jobs/{}", self.id)).await?;
            let explained: ExplainAnswer = self.client.get(&format!("/v1/jobs/{}/explain", self.id)).await?;
            self.report.follow(steps(&explained.lines, explained.job.submitted_at));
            if answer.bill.is_some() {
                return Ok(());
            }
            if !is_interrupted && self.report.has("save") {
                is_interrupted = true;
                let how = json!({ "with-notice": self.notice });
                let asked = self.client.post::<_, ()>("/v1/interrupt", &json!({ "job": self.id, "how": how })).await;
                asked.map_err(|failure| {
                    let text = format!("the engine does not take its machine away: {}", failure.message);
                    Failure::new(Code::JobFailed, text).hint("only the first half of the way can be drilled there")
                })?;
            }
            if self.report.runs_anew() {
                let text = "the second machine began from the beginning: what the first one saved did not reach it";
                return Err(Failure::new(Code::JobFailed, text));
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}
