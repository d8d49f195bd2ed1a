//! How long the work takes on something: as it was said or measured where that fits, in proportion to peak speed and
//! scaling where it does not, and then it says so.

use super::request::{Accelerators, Request, Work};
use super::why::Why;
use super::{room, scale};
use crate::catalog::Catalog;
use crate::knowledge::{Accelerator, Precision};
use crate::offer::InstanceType;
use crate::search::Wanted;
use crate::words::Count;
use windfall_core::Span;

/// Floating-point operations for each parameter and token: two forward, four backward.
const FLOPS_PER_TOKEN: f64 = 6.0;
/// Share of peak where nobody measured one: what ordinary training reaches.
pub(super) const USUAL_MFU: f64 = 0.35;

/// A longer running time is no plan: more than a thousand years.
pub const LONGEST_HOURS: f64 = 1e7;

/// Where a running time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Evidence {
    /// The user said it of this very thing.
    Given,
    /// Measured on this very thing.
    Measured,
    /// Published figures for this accelerator and size.
    Published,
    /// In proportion to data sheets.
    Assumed,
}

impl Evidence {
    /// The share by which such a running time is off in one case of three. Programs that are rehearsed and run again
    /// differ by a few per cent; published figures are of other people's programs; data sheets are no programs at all.
    pub fn spread(self) -> f64 {
        match self {
            Evidence::Measured => 0.03,
            Evidence::Given => 0.05,
            Evidence::Published => 0.1,
            Evidence::Assumed => 0.2,
        }
    }

    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Evidence::Given => "given",
            Evidence::Measured => "measured",
            Evidence::Published => "published",
            Evidence::Assumed => "assumed",
        }
    }
}

/// A running time.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// How long it is.
    pub span: Span,
    /// Where it comes from.
    pub evidence: Evidence,
    /// How it was come by, for people.
    pub how: String,
    /// Share of perfect scaling over all accelerators.
    pub efficiency: f64,
    /// Another precision than the one the work was stated in.
    pub precision: Option<Precision>,
}

impl Catalog {
    /// The running time on `nodes` of an accelerator: on the slowest instance type that has it, so that it can be
    /// promised wherever the job comes to run.
    pub fn need_on(&self, request: &Request, on: &Wanted, nodes: u32) -> Result<Need, Why> {
        let mut slowest: Option<Need> = None;
        for kind in self.instance_types().filter(|kind| on.is_met(kind.accelerator.unwrap_or_default(), kind)) {
            let need = self.need(request, &kind, nodes)?;
            slowest = Some(slowest.filter(|known| known.span >= need.span).unwrap_or(need));
        }
        let named = || on.count.map_or(on.family.clone(), |count| format!("{}:{count}", on.family));
        slowest.ok_or_else(|| Why::UnknownSpeed { family: named() })
    }

    /// The running time on `nodes` of an instance type.
    pub(super) fn need(&self, request: &Request, kind: &InstanceType<'_>, nodes: u32) -> Result<Need, Why> {
        let Some(work) = &request.work else { return Err(Why::NoWork) };
        let family = kind.accelerator.unwrap_or_default();
        let here = Accelerators { family, in_node: kind.count, nodes };
        let scaling = scale::efficiency(self, request, kind, nodes);
        let need = |hours: f64, evidence: Evidence, how: String| {
            if hours > LONGEST_HOURS {
                return Err(Why::TooLong { hours });
            }
            Ok(Need {
                span: Span((hours * 3.6e6).max(1.0) as i64),
                evidence: evidence.max(scaling.evidence),
                how,
                efficiency: scaling.share,
                precision: None,
            })
        };
        let unknown = |family: &str| Why::UnknownSpeed { family: family.to_owned() };
        match work {
            Work::Hours { hours, on } => {
                let on = on.as_ref().or(request.accelerators.first());
                let Some(on) = on else { return need(hours.0 as f64 / 3.6e6, Evidence::Given, "as said".into()) };
                let there = Accelerators { family: &on.family, in_node: on.count.unwrap_or(Count::whole(1)), nodes: 1 };
                let hours = hours.0 as f64 / 3.6e6;
                self.in_proportion(&there, &here, hours, &scaling, Evidence::Given)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Steps { steps, per_second } => {
                // A smaller accelerator that a lower precision makes room for is judged by one that was given.
                let known = per_second.get_key_value(family);
                let known = known.or_else(|| per_second.iter().next().filter(|_| !request.precision.is_empty()));
                let (given, rate) = known.ok_or_else(|| Why::NoThroughput { family: family.to_owned() })?;
                let asked = request.accelerators.iter().find(|wanted| wanted.family == *given);
                let in_node = asked.and_then(|wanted| wanted.count).unwrap_or(kind.count);
                let there = Accelerators { family: given, in_node, nodes: 1 };
                let hours = *steps as f64 / rate / 3_600.0;
                self.in_proportion(&there, &here, hours, &scaling, Evidence::Given)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Measured { steps, on, per_second, .. } => {
                let there = Accelerators { family: &on.family, in_node: on.count.unwrap_or(Count::whole(1)), nodes: 1 };
                let hours = *steps as f64 / per_second / 3_600.0;
                self.in_proportion(&there, &here, hours, &scaling, Evidence::Measured)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Tokens { parameters, tokens, tuning } => {
                let sheet = kind.sheet.or_else(|| self.accelerator(family));
                let memory = kind.accelerator_memory_gb.or_else(|| sheet.map(|sheet| f64::from(sheet.memory_gb)));
                room::fits(memory, &here, *parameters, *tuning)?;
                let sheet = sheet.ok_or_else(|| unknown(family))?;
                let peak = f64::from(sheet.training_tflops().ok_or_else(|| unknown(family))?);
                let used = scale::of_peak(self, request, kind, *parameters, nodes);
                let flops = FLOPS_PER_TOKEN * parameters * tokens;
                let hours = flops / (peak * 1e12 * here.all() * used.mfu) / 3_600.0;
                let how = format!("{:.1} % of {peak:.0} TFLOP/s peak, {}", used.mfu * 100.0, used.from);
                Ok(Need { evidence: used.evidence, efficiency: used.scaling, ..need(hours, used.evidence, how)? })
            }
        }
    }

    /// Hours there to hours here.
    fn in_proportion(
        &self,
        there: &Accelerators<'_>,
        here: &Accelerators<'_>,
        hours: f64,
        scaling: &scale::Scaling,
        known: Evidence,
    ) -> Option<(f64, Evidence, String)> {
        if there == here {
            return Some((hours, known, "as said".to_owned()));
        }
        let share = scaling.share;
        if there.family == here.family {
            let factor = there.all() / here.all() / share * self.usual_share(there);
            let how = format!("in proportion to {}:{}", there.family, there.in_node);
            let own = there.in_node == here.in_node && scaling.evidence == Evidence::Measured;
            return Some((hours * factor, if own { known } else { Evidence::Assumed }, how));
        }
        let speed = |family: &str| self.usual_tflops(family);
        let factor = speed(there.family)? * there.all() * self.usual_share(there)
            / (speed(here.family)? * here.all() * share).max(1e-9);
        Some((hours * factor, Evidence::Assumed, format!("from {} by peak speed and usual use", there.family)))
    }

    fn usual_share(&self, there: &Accelerators<'_>) -> f64 {
        scale::within_node(self, there.family, there.in_node.as_f64())
    }

    /// Training speed that one accelerator usually reaches.
    pub(super) fn usual_tflops(&self, family: &str) -> Option<f64> {
        let peak = f64::from(self.accelerator(family).and_then(Accelerator::training_tflops)?);
        Some(peak * self.published_mfu(family, 7e9, 8.0).unwrap_or(USUAL_MFU))
    }

    fn published_mfu(&self, family: &str, parameters: f64, count: f64) -> Option<f64> {
        let known = self.throughput().mfu_for(family, parameters as u64, count as u32, Precision::Bf16)?;
        Some(f64::from(known.mfu))
    }
}
