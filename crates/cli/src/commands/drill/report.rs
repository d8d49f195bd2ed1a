//! What a drill found: its steps as they happen, what the engine was asked and how long that took, and what is left of it there.

use super::steps::Step;
use crate::fitted::{Column, fitted};
use crate::here::Here;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use windfall_core::Offer;
use windfall_core::english::counted;
use windfall_core::view::State;
use windfall_server::api_types::{EngineCall, Hello, JobAnswer, Stray};
use windfall_server::client::{Code, Failure};

/// What is told of a drill.
pub struct Report {
    engine: String,
    job: u64,
    offer: String,
    is_json: bool,
    /// Steps so far.
    steps: Vec<Step>,
    calls: Vec<EngineCall>,
    /// What the engine still has of it.
    pub left: Vec<Stray>,
}

impl Report {
    pub fn new(here: &Here, engine: String, job: u64, offer: &Offer, hello: &Hello) -> Report {
        if !here.json {
            println!("job {job} asks {engine} for {} at {} an hour", offer.id, offer.price_per_hour);
            if hello.speed > 1 {
                println!("times of steps are those of the replayed market, {} times as fast as life", hello.speed);
            }
            println!();
        }
        let (steps, calls, left) = (Vec::new(), Vec::new(), Vec::new());
        Report { engine, job, offer: offer.id.to_string(), is_json: here.json, steps, calls, left }
    }

    /// Takes in all steps so far, and tells of those that are new.
    pub fn follow(&mut self, steps: Vec<Step>) {
        for step in steps.iter().skip(self.steps.len()).filter(|_| !self.is_json) {
            println!("{:<8} {:>8}  {}", step.step, step.after, step.text);
        }
        self.steps = steps;
    }

    pub fn has(&self, step: &str) -> bool {
        self.steps.iter().any(|known| known.step == step)
    }

    /// The replacement has saved as if nothing had been there: what was saved before did not reach it.
    pub fn runs_anew(&self) -> bool {
        let replaced = self.steps.iter().skip_while(|step| step.step != "replace");
        let mut then = replaced.skip_while(|step| step.step != "run");
        then.any(|step| step.step == "save")
    }

    /// Keeps what of these calls was about its groups, or about everything that the engine has.
    pub fn calls(&mut self, calls: Vec<EngineCall>) {
        let of_job = |call: &&EngineCall| call.workload == Some(self.job);
        let groups: BTreeSet<String> = calls.iter().filter(of_job).flat_map(|call| call.groups.clone()).collect();
        let is_about = |call: &EngineCall| call.groups.is_empty() || call.groups.iter().any(|one| groups.contains(one));
        self.calls = calls.into_iter().filter(is_about).collect();
    }

    /// The groups that were asked for.
    pub fn groups(&self) -> Vec<String> {
        let of_job = self.calls.iter().filter(|call| call.workload == Some(self.job));
        of_job.flat_map(|call| call.groups.clone()).collect()
    }

    /// Why it came no further in time.
    pub fn stuck(&self, minutes: u32) -> Failure {
        let text = match self.steps.last() {
            Some(last) => format!("nothing came after `{}` within the {minutes} min of the drill", last.step),
            None => format!("nothing was asked for within the {minutes} min of the drill"),
        };
        Failure::new(Code::JobFailed, text).hint(format!("windfall explain {} says why; --within MINUTES", self.job))
    }

    /// How it ended: well only if the job went all the way and nothing is left.
    pub fn code(&self, answer: &JobAnswer) -> Code {
        let went_through = answer.job.state == State::Succeeded && self.has("replace");
        if went_through && self.left.is_empty() { Code::Done } else { Code::JobFailed }
    }

    pub fn show(&self, answer: &JobAnswer) {
        let (job, cost) = (&answer.job, answer.job.cost);
        if self.is_json {
            let told = json!({
                "type": "drill", "engine": self.engine, "job": self.job, "offer": self.offer, "state": job.state,
                "good": self.code(answer) == Code::Done, "cost_nanousd": cost, "steps": self.steps,
                "calls": self.calls, "left": self.left,
            });
            println!("{told}");
            return;
        }
        println!("\n{}", calls_table(&self.calls, crate::live::width()));
        for call in self.calls.iter().filter(|call| call.error.is_some()) {
            println!("{} failed: {}", call.what, call.error.as_deref().unwrap_or_default());
        }
        for stray in &self.left {
            println!("left behind: {} holds lease {} ({})", stray.engine, stray.lease, stray.offer);
        }
        if self.left.is_empty() {
            println!("left behind: nothing");
        }
        let leases = self.groups().into_iter().collect::<BTreeSet<_>>().len() as u64;
        println!("job {} has {}: {} for {cost}", self.job, job.state.word(), counted(leases, "lease"));
    }
}

/// What was asked, how often, and how long that took.
fn calls_table(calls: &[EngineCall], width: usize) -> String {
    let mut by_kind: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    calls.iter().for_each(|call| by_kind.entry(&call.what).or_default().push(call.took_us));
    by_kind.values_mut().for_each(|took| took.sort_unstable());
    let seconds = |us: u64| format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000);
    let cells = |cell: &dyn Fn(&str, &[u64]) -> String| {
        by_kind.iter().map(|(what, took)| cell(what, took)).collect::<Vec<String>>()
    };
    let columns = vec![
        Column::words("CALL", 0, cells(&|what, _| what.to_owned())),
        Column::figures("TIMES", 0, cells(&|_, took| took.len().to_string())),
        Column::figures("MEDIAN", 1, cells(&|_, took| seconds(took[took.len() / 2]))),
        Column::figures("LONGEST", 2, cells(&|_, took| seconds(took.last().copied().unwrap_or(0)))),
        Column::figures("TOGETHER", 3, cells(&|_, took| seconds(took.iter().sum()))),
    ];
    fitted(columns, width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(what: &str, group: &str, workload: Option<u64>, took_us: u64) -> EngineCall {
        EngineCall {
            what: what.to_owned(),
            groups: Some(group).filter(|group| !group.is_empty()).map(str::to_owned).into_iter().collect(),
            workload,
            at_unix_ms: 0,
            took_us,
            error: None,
        }
    }

    fn report() -> Report {
        Report {
            engine: "slurm".to_owned(),
            job: 7,
            offer: String::new(),
            is_json: true,
            steps: Vec::new(),
            calls: Vec::new(),
            left: Vec::new(),
        }
    }

    #[test]
    fn only_calls_about_its_own_groups_or_about_everything_are_told() {
        let mut report = report();
        report.calls(vec![
            call("acquire", "1-5", Some(7), 1_500_000),
            call("acquire", "1-6", Some(8), 9),
            call("observe", "", None, 2_000),
            call("observe", "", None, 4_000),
            call("release", "1-5", None, 30_000),
            call("release", "1-6", None, 9),
        ]);
        assert_eq!(report.groups(), ["1-5"]);
        let table = calls_table(&report.calls, 80);
        let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows[1..].iter().map(|row| (row[0], row[1])).collect::<Vec<_>>(),
            [("acquire", "1"), ("observe", "2"), ("release", "1")]
        );
        assert!(table.contains("1.500 s") && table.contains("0.006 s"), "{table}");
    }

    #[test]
    fn one_that_saves_again_after_it_was_replaced_began_anew() {
        let mut report = report();
        let step = |step| Step { step, after: windfall_core::Span::ZERO, text: String::new() };
        let way = ["ask", "up", "run", "save", "notice", "replace", "save", "gone", "up", "run"];
        report.steps = way.map(step).to_vec();
        assert!(!report.runs_anew(), "the first one's last save may come late");
        report.steps.push(step("save"));
        assert!(report.runs_anew());
    }
}
