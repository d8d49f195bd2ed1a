//! What a job cost, what else it might have cost, and what cannot be promised before it begins.

use crate::api_types::Bill;
use crate::keeper::on_demand_time;
use windfall_core::view::JobView;
use windfall_core::{JobSpec, Span};
use windfall_sim::{Errand, Tape, omniscient};

/// The bill of a job that is over.
pub fn bill(job: &JobView, tape_offset: Option<Span>, tape: &Tape) -> Bill {
    let ended = job.ended_at.unwrap_or(job.at);
    let began = job.began_at.unwrap_or(job.submitted_at);
    // Without a deadline, whoever knows the market may take as long as the job took.
    let until = job.deadline.unwrap_or(ended).max(ended);
    let errand = tape_offset.map(|offset| Errand {
        from: offset + (began - job.submitted_at),
        deadline: until - began,
        work: job.useful(),
        restart: job.restart,
        gang: job.gang,
    });
    let useful = job.useful().0 > 0;
    Bill {
        cost: job.cost,
        spot_cost: job.spot_cost,
        firm_cost: job.firm_cost,
        spot: job.spot,
        firm: job.firm,
        on_demand_only: job.on_demand_only(),
        omniscient: errand.filter(|_| useful).and_then(|errand| omniscient(tape, &errand)),
    }
}

/// What a user should hear before the job begins: promises that cannot be given.
pub fn promises(spec: &JobSpec, deadline_in: Option<Span>, tape: &Tape) -> Vec<String> {
    let mut notes = Vec::new();
    let need = on_demand_time(spec, &tape.accelerator);
    let start = spec.checkpoint.restart.unwrap_or(Span::minutes(3));
    match (deadline_in, need) {
        (Some(deadline), Some(need)) if deadline < need + start => notes.push(format!(
            "the deadline cannot be met: the work takes {need} on on-demand capacity and a start {start}, the deadline is in {deadline}"
        )),
        (Some(_), None) => notes.push(
            "how much work there is was not said, so the deadline is kept on on-demand capacity until the program tells".to_owned(),
        ),
        _ => {}
    }
    if let (Some(budget), Some(need)) = (spec.budget, need) {
        let cost = tape.on_demand.for_span(need + start);
        if cost > budget {
            notes.push(format!(
                "on-demand alone would cost {cost}, more than the budget of {budget}: the deadline is promised only while the budget allows it"
            ));
        }
    }
    notes
}
