//! How long the work takes on something: as it was said or measured where that fits, in proportion to peak speed and
//! scaling where it does not, and then it says so.

use super::evidence::Evidence;
use super::request::{Accelerators, Request, Work};
use super::room;
use super::scale::{self, USUAL_MFU};
use super::why::Why;
use crate::catalog::Catalog;
use crate::knowledge::{Accelerator, Precision};
use crate::offer::InstanceType;
use crate::search::Wanted;
use crate::words::Count;
use windfall_core::Span;

/// Floating-point operations for each parameter and token: two forward, four backward.
const FLOPS_PER_TOKEN: f64 = 6.0;

/// A longer running time is no plan: more than a thousand years.
pub const LONGEST_HOURS: f64 = 1e7;

/// A running time.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    /// How long it is.
    pub span: Span,
    pub evidence: Evidence,
    /// How it was worked out, for people.
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
        let stated_nodes = request.stated_nodes.unwrap_or(1).max(1);
        let need = |hours: f64, evidence: Evidence, how: String| {
            if hours > LONGEST_HOURS {
                return Err(Why::TooLong { hours });
            }
            Ok(Need {
                span: Span((hours * 3.6e6).max(1.0) as i64),
                evidence,
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
                let there = Stated::of(self, on, stated_nodes);
                let hours = hours.0 as f64 / 3.6e6;
                self.in_proportion(request, &there, &here, kind, hours, &scaling, Evidence::Given)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Steps { steps, per_second, counts } => {
                // A smaller accelerator that a lower precision makes room for is judged by one that was given.
                let known = per_second.get_key_value(family);
                let known = known.or_else(|| per_second.iter().next().filter(|_| !request.precision.is_empty()));
                let (given, rate) = known.ok_or_else(|| Why::NoThroughput { family: family.to_owned() })?;
                let asked = request.accelerators.iter().find(|wanted| wanted.family == *given);
                let count = counts.get(given).copied().or(asked.and_then(|wanted| wanted.count)).or(Some(kind.count));
                let on = Wanted { family: given.clone(), model: None, count };
                let there = Stated::of(self, &on, stated_nodes);
                let hours = *steps as f64 / rate / 3_600.0;
                self.in_proportion(request, &there, &here, kind, hours, &scaling, Evidence::Given)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Measured { steps, on, per_second, .. } => {
                let there = Stated::of(self, on, stated_nodes);
                let hours = *steps as f64 / per_second / 3_600.0;
                self.in_proportion(request, &there, &here, kind, hours, &scaling, Evidence::Measured)
                    .ok_or_else(|| unknown(family))
                    .and_then(|(hours, evidence, how)| need(hours, evidence, how))
            }
            Work::Tokens { parameters, tokens, tuning } => {
                let sheet = kind.sheet.or_else(|| self.accelerator(family));
                let memory = kind.accelerator_memory_gb.or_else(|| sheet.map(|sheet| f64::from(sheet.memory_gb)));
                room::fits(memory, &here, *parameters, *tuning)?;
                let sheet = sheet.ok_or_else(|| unknown(family))?;
                let (peak, precision) = at_precision(request, sheet, family)?;
                let used = scale::of_peak(self, request, kind, *parameters, nodes);
                let flops = FLOPS_PER_TOKEN * parameters * tokens;
                let hours = flops / (peak * 1e12 * here.all() * used.mfu) / 3_600.0;
                let how = format!("{:.1} % of {peak:.0} TFLOP/s peak, {}", used.mfu * 100.0, used.from);
                let evidence = if precision.is_some() { Evidence::Assumed } else { used.evidence };
                Ok(Need { evidence, efficiency: used.scaling, precision, ..need(hours, evidence, how)? })
            }
        }
    }

    /// Hours there to hours here.
    #[expect(clippy::too_many_arguments, reason = "there and here, and what is known of each")]
    fn in_proportion(
        &self,
        request: &Request,
        there: &Stated<'_>,
        here: &Accelerators<'_>,
        kind: &InstanceType<'_>,
        hours: f64,
        scaling: &scale::Scaling,
        known: Evidence,
    ) -> Option<(f64, Evidence, String)> {
        let (was, peak) = (&there.accelerators, kind.sheet.and_then(Accelerator::training_tflops));
        // One family may be sold on cards of several speeds.
        let model = there.peak.zip(peak).map_or(1.0, |(there, here)| f64::from(there) / f64::from(here));
        let same_model = was.family == here.family && (model - 1.0).abs() < 0.02;
        if was == here && same_model {
            return Some((hours, known, "as said".to_owned()));
        }
        let inside = scale::within_node(self, kind.accelerator.unwrap_or_default(), kind.count.as_f64());
        let between = scale::efficiency(self, request, kind, was.nodes).share / scaling.share.max(1e-9);
        let count = was.all() / here.all() * between;
        let many = count * self.usual_share(was) / inside;
        if same_model {
            let how = format!("in proportion to {}:{}", was.family, was.in_node);
            let own = was.in_node == here.in_node && scaling.evidence == Evidence::Measured;
            return Some((hours * many, if own { known.max(Evidence::Measured) } else { Evidence::Assumed }, how));
        }
        let how = format!("from {} by peak speed and usual use", was.family);
        if was.family == here.family {
            return Some((hours * many * model, Evidence::Assumed, how));
        }
        // Shares of peak are published for nodes of eight, so they hold what a node loses.
        let speed = |family: &str, peak: Option<f32>| Some(f64::from(peak?) * self.usual_mfu(family));
        let own = peak.or_else(|| self.accelerator(here.family)?.training_tflops());
        let factor = speed(was.family, there.peak)? / speed(here.family, own)?.max(1e-9);
        Some((hours * count * factor, Evidence::Assumed, how))
    }

    fn usual_share(&self, there: &Accelerators<'_>) -> f64 {
        scale::within_node(self, there.family, there.in_node.as_f64())
    }

    fn usual_mfu(&self, family: &str) -> f64 {
        let figures = scale::figures_of(self, family);
        let known = self.throughput().mfu_for(figures, 7_000_000_000, 8, Precision::Bf16);
        known.map_or(USUAL_MFU, |known| f64::from(known.mfu))
    }

    /// Training speed that one accelerator usually reaches.
    pub(super) fn usual_tflops(&self, family: &str) -> Option<f64> {
        let peak = f64::from(self.accelerator(family).and_then(Accelerator::training_tflops)?);
        Some(peak * self.usual_mfu(family))
    }
}

/// What hours or speeds were stated for.
struct Stated<'r> {
    accelerators: Accelerators<'r>,
    /// Of one of them.
    peak: Option<f32>,
}

impl<'r> Stated<'r> {
    fn of(catalog: &Catalog, on: &'r Wanted, nodes: u32) -> Stated<'r> {
        let in_node = on.count.unwrap_or(Count::whole(1));
        let model = catalog.accelerators().iter().find(|sheet| Some(&sheet.model) == on.model.as_ref());
        let sheet = model.or_else(|| catalog.accelerator(&on.family));
        let accelerators = Accelerators { family: &on.family, in_node, nodes };
        Stated { accelerators, peak: sheet.and_then(Accelerator::training_tflops) }
    }
}

/// The peak that a model is trained at: in 16 bits, or in the fastest of the precisions that were named. Nobody has
/// published what 8 bits gain on whole models.
fn at_precision(request: &Request, sheet: &Accelerator, family: &str) -> Result<(f64, Option<Precision>), Why> {
    let usual = sheet.training_tflops().ok_or_else(|| Why::UnknownSpeed { family: family.to_owned() })?;
    let named: Vec<Precision> = request.stated_precision.into_iter().chain(request.precision.iter().copied()).collect();
    if named.is_empty() {
        return Ok((f64::from(usual), None));
    }
    let peaks = named.iter().filter_map(|precision| Some((sheet.peak_tflops(*precision)?.min(usual), *precision)));
    let best = peaks.max_by(|a, b| a.0.total_cmp(&b.0));
    let (peak, precision) = best.ok_or_else(|| Why::NoPrecision { family: family.to_owned() })?;
    Ok((f64::from(peak), (peak < usual).then_some(precision)))
}
