//! A job as people and scripts see it: the read model of the store, the answer of the API, `--json`.

use crate::ids::WorkloadId;
use crate::offer::Market;
use crate::record::{Outcome, Trouble};
use crate::spec::WorkUnit;
use crate::told::Told;
use crate::units::{NanoUsd, Span, Time, Work};
use serde::{Deserialize, Serialize};

/// Where a job stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It holds nothing.
    Waiting,
    /// It holds nothing until its budget is raised.
    Paused,
    /// Leases were asked for.
    Acquiring,
    /// Leases are up; the program is being restored and started.
    Starting,
    /// The program runs.
    Running,
    /// It was told to save and stop.
    Draining,
    /// Done.
    Succeeded,
    /// The program failed.
    Failed,
    /// A person ended it.
    Cancelled,
    /// Its own rule ended it.
    Stopped,
}

impl State {
    /// Whether nothing more will happen to it.
    pub fn is_over(self) -> bool {
        matches!(self, State::Succeeded | State::Failed | State::Cancelled | State::Stopped)
    }
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Paused => "paused",
            State::Acquiring => "acquiring",
            State::Starting => "starting",
            State::Running => "running",
            State::Draining => "draining",
            State::Succeeded => "succeeded",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Stopped => "stopped",
        }
    }
}

/// The lease that a job holds, as shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseView {
    pub id: String,
    /// Where it is.
    pub zone: String,
    /// What it is.
    pub instance_type: String,
    /// How it was bought.
    pub market: Market,
    /// Price of the whole gang an hour.
    #[serde(rename = "price_per_hour_nanousd")]
    pub price_per_hour: NanoUsd,
    /// When it will be taken away.
    #[serde(rename = "ends_at_ms")]
    pub ends_at: Option<Time>,
    /// What is wrong with its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_well: Option<String>,
}

/// A job, complete enough to show it, bill it and end a script on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobView {
    pub id: WorkloadId,
    pub name: String,
    /// Names its folder beside the log: output, environment.
    pub key: String,
    /// Who submitted it.
    pub owner: String,
    pub state: State,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// The world's clock when this was true.
    #[serde(rename = "at_ms")]
    pub at: Time,
    /// When it was submitted.
    #[serde(rename = "submitted_at_ms")]
    pub submitted_at: Time,
    /// When its first lease was asked for.
    #[serde(rename = "began_at_ms")]
    pub began_at: Option<Time>,
    /// When it ended.
    #[serde(rename = "ended_at_ms")]
    pub ended_at: Option<Time>,
    /// When it must be done.
    #[serde(rename = "deadline_ms")]
    pub deadline: Option<Time>,
    /// Most that it may cost.
    #[serde(default, rename = "budget_nanousd")]
    pub budget: Option<NanoUsd>,
    /// Work done.
    pub done: Work,
    /// Work in the newest durable checkpoint.
    pub durable: Work,
    /// All the work, where known.
    pub total: Option<Work>,
    /// The unit of work.
    pub unit: WorkUnit,
    /// Time to the deadline minus the time that the rest needs.
    #[serde(rename = "slack_ms")]
    pub slack: Option<Span>,
    /// What it holds.
    pub lease: Option<LeaseView>,
    /// Stints so far.
    pub stints: u64,
    /// Stints that the market or a lost machine ended.
    pub interruptions: u32,
    /// Running time whose work was lost.
    #[serde(rename = "lost_ms")]
    pub lost: Span,
    /// Time in which the program ran; fewer workers than the whole gang count as a part of it.
    #[serde(rename = "ran_ms")]
    pub ran: Span,
    /// Cost so far.
    #[serde(rename = "cost_nanousd")]
    pub cost: NanoUsd,
    /// Paid spot time.
    #[serde(rename = "spot_ms")]
    pub spot: Span,
    /// Paid time on everything that is bought and stays.
    #[serde(rename = "on_demand_ms")]
    pub firm: Span,
    /// Time on owned machines.
    #[serde(rename = "owned_ms", default)]
    pub owned: Span,
    /// Cost of spot.
    #[serde(rename = "spot_nanousd")]
    pub spot_cost: NanoUsd,
    /// Cost of what is bought and stays.
    #[serde(rename = "on_demand_nanousd")]
    pub firm_cost: NanoUsd,
    /// Cost of owned machines.
    #[serde(rename = "owned_nanousd", default)]
    pub owned_cost: NanoUsd,
    /// Cheapest on-demand price an hour of the whole gang that the job could have used.
    #[serde(rename = "on_demand_price_nanousd")]
    pub on_demand_price: Option<NanoUsd>,
    /// Mean changeover: of those that were measured, or as assumed where none was.
    #[serde(rename = "restart_ms")]
    pub restart: Span,
    /// Changeovers that were measured.
    #[serde(default)]
    pub restarts: u32,
    /// What is wrong with its checkpoints now.
    #[serde(default)]
    pub trouble: Option<Trouble>,
    /// Why it holds nothing.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// What people should know of it, as it was last said.
    #[serde(default)]
    pub told: Option<Told>,
    /// Workers.
    pub gang: u32,
    /// The program's exit code, when it failed.
    pub exit_code: Option<i32>,
}

impl JobView {
    /// Whether the deadline was kept; none while that is open or there is none.
    pub fn deadline_met(&self) -> Option<bool> {
        match (self.deadline, self.ended_at) {
            (Some(deadline), Some(ended)) if self.state == State::Succeeded => Some(ended <= deadline),
            (Some(deadline), _) if self.at > deadline || self.state.is_over() => Some(false),
            _ => None,
        }
    }

    /// Running time that an undisturbed run would have taken.
    pub fn useful(&self) -> Span {
        Span((self.ran - self.lost).0.max(0))
    }

    /// Paid time of a stint in which its program did not run, on average: what a start costs.
    pub fn start(&self) -> Span {
        let held = (self.spot + self.firm + self.owned).scaled(1, i64::from(self.gang.max(1)));
        Span(((held - self.ran).0 / i64::try_from(self.stints.max(1)).unwrap_or(1)).max(0))
    }

    /// Time that on-demand alone would have taken: one start as they were here, then the useful running time.
    pub fn on_demand_time(&self) -> Span {
        self.useful() + self.start()
    }

    /// What on-demand alone would have cost.
    pub fn on_demand_only(&self) -> Option<NanoUsd> {
        self.on_demand_price.map(|price| price.for_span(self.on_demand_time()))
    }
}

impl JobView {
    /// Adds what a lease was held for, and what it cost.
    pub(crate) fn count(&mut self, market: Market, held: Span, cost: NanoUsd) {
        self.cost += cost;
        let (time, money) = match market {
            Market::Spot => (&mut self.spot, &mut self.spot_cost),
            Market::OnDemand | Market::Reserved => (&mut self.firm, &mut self.firm_cost),
            Market::Owned => (&mut self.owned, &mut self.owned_cost),
        };
        *time += held;
        *money += cost;
    }
}
