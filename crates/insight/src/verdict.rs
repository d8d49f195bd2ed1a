//! What limits a program, and what would pay most.
//!
//! The verdict is a choice among candidates, each with the time that it costs; the fixes are estimated from the same
//! figures. A fix that makes the accelerator faster is worth nothing while the accelerator waits for the host: no step
//! gets shorter than the host needs to launch it.

use crate::analysis::Figures;
use crate::analysis::unions::{COMMUNICATION, COMPUTE, MEMORY};
use crate::report::BetweenRanks;
use crate::trace::Program;
use crate::trace::kernel::Kind;
use crate::words::{Words, words};
use windfall_catalog::{Accelerator, Precision};

/// A single cause counts from this share of the time on.
const CAUSE: f64 = 0.20;

/// Together causes count from this share on, even if none does by itself.
const CAUSES: f64 = 0.30;

/// Calls that wait, in one step, from which on the host cannot run ahead.
const MANY_WAITS: f64 = 10.0;

/// Share of waiting for itself from which on many waits are the cause.
const MANY_WAITS_COST: f64 = 0.08;

/// Share of kernel time in 32-bit products from which on the number format is what limits.
const FP32: f64 = 0.40;

/// Products in tf32 or bf16 reach this part of what the peaks promise over fp32. Measured with ResNet-50 on an H200:
/// products got 5.0 times faster in tf32, the peaks' ratio is 7.4.
const REACHED: f64 = 0.67;

/// Fused, elementwise kernels read and write about half as often.
const FUSED: f64 = 0.5;

const AFTER_WAITS: &str = "idle time after calls that wait";

/// Sums over all ranks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub ranks: u64,
    pub steps: u64,
    pub program: Program,
    /// Spans whose launch is known.
    launches: u64,
    span: f64,
    busy: f64,
    launch: f64,
    sync: f64,
    input: f64,
    other: f64,
    exposed_communication: f64,
    /// What of it is waiting for another rank, which rank that is, and the share that a step would be shorter without.
    waiting: f64,
    waited_for: Option<(u64, f64)>,
    exposed_copies: f64,
    copied_in: f64,
    pageable: f64,
    compute_alone: f64,
    kernels: f64,
    products: f64,
    fp32: f64,
    tensor: f64,
    layout: f64,
    elementwise: f64,
    normalisation: f64,
    host: f64,
    waits: u64,
    known_by_roofline: f64,
    memory_bound: f64,
}

impl Totals {
    /// Nothing added yet.
    pub fn of(program: Program) -> Totals {
        Totals { program, ..Totals::default() }
    }

    /// Adds a rank; `roofline` is the time with known shapes and the time of it that bandwidth limits.
    pub fn add(&mut self, figures: &Figures, roofline: (f64, f64)) {
        let unions = &figures.unions;
        let kind =
            |kind: Kind| figures.kinds.iter().find(|(known, _)| *known == kind).map_or(0.0, |(_, ns)| *ns as f64);
        self.ranks += 1;
        self.steps += figures.steps.steps.len() as u64;
        self.launches += figures.launches.count;
        self.span += unions.span() as f64;
        self.busy += unions.busy() as f64;
        self.launch += figures.idle.launch_ns as f64;
        self.sync += figures.idle.sync_ns as f64;
        self.input += figures.idle.input_ns as f64;
        self.other += figures.idle.other_ns as f64;
        self.exposed_communication += (unions.ns[COMMUNICATION] + unions.ns[COMMUNICATION | MEMORY]) as f64;
        self.exposed_copies += unions.ns[MEMORY] as f64;
        self.copied_in += figures.copied_in_ns.min(unions.ns[MEMORY]) as f64;
        self.pageable += figures.copied_in_pageable_ns as f64;
        self.compute_alone += unions.ns[COMPUTE] as f64;
        self.kernels += figures.kernel_ns as f64;
        self.products += figures.product_ns as f64;
        self.fp32 += figures.fp32_product_ns as f64;
        self.tensor += figures.tensor_ns as f64;
        self.layout += kind(Kind::Layout);
        self.elementwise += kind(Kind::Elementwise);
        self.normalisation += kind(Kind::Normalisation);
        self.host += figures.dispatch_ns as f64;
        self.waits += figures.waits;
        self.known_by_roofline += roofline.0;
        self.memory_bound += roofline.1;
    }

    /// Says what ranks wait for each other, once all of them are added.
    pub fn between(&mut self, between: &BetweenRanks) {
        if let (Some(us), Some(percent), Some(rank)) = (between.waiting_us, between.saves_percent, between.last_rank) {
            self.waiting = (us * 1e3).min(self.exposed_communication);
            self.waited_for = Some((rank, percent / 100.0));
        }
    }

    /// Communication with nothing beside it that is not waiting for another rank.
    fn transfers(&self) -> f64 {
        self.exposed_communication - self.waiting
    }

    fn words(&self) -> &'static Words {
        words(self.program)
    }

    fn share(&self, time: f64) -> f64 {
        if self.span > 0.0 { time / self.span } else { 0.0 }
    }

    fn waits_in_a_step(&self) -> f64 {
        self.waits as f64 / self.steps.max(1) as f64
    }

    /// What all would take if host and accelerator never waited for each other.
    fn needed(&self) -> f64 {
        self.host.max(self.busy)
    }

    /// The host waits so often that it never runs ahead.
    fn waits_too_often(&self) -> bool {
        self.waits_in_a_step() >= MANY_WAITS && self.share(self.sync) >= MANY_WAITS_COST
    }
}

/// What limits a program and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub word: &'static str,
    pub because: String,
}

/// A fix without its price.
#[derive(Clone, Debug, PartialEq)]
pub struct Saving {
    pub what: String,
    /// Share of the time.
    pub share: f64,
    pub basis: String,
}

/// Says what limits the program.
pub fn verdict(totals: &Totals, sheet: Option<&Accelerator>) -> Verdict {
    if totals.busy <= 0.0 {
        return Verdict { word: "no accelerator work", because: "the trace has no work of an accelerator".to_owned() };
    }
    let mut causes = causes(totals);
    causes.sort_by(|one, other| other.1.total_cmp(&one.1));
    let all: f64 = causes.iter().map(|(_, share, _)| share).sum();
    if let Some((word, share, because)) = causes.into_iter().next()
        && (share >= CAUSE || all >= CAUSES)
    {
        return Verdict { word, because };
    }
    busy(totals, sheet)
}

/// Candidates for what keeps the accelerator from computing: name, share of the time, and why.
fn causes(totals: &Totals) -> Vec<(&'static str, f64, String)> {
    let percent = |time: f64| format!("{:.0} %", 100.0 * totals.share(time));
    let idle = percent(totals.span - totals.busy);
    // What the host launches late after it waited is the waiting's fault: it had no chance to run ahead.
    let late = if totals.waits_too_often() { totals.launch } else { 0.0 };
    vec![
        (
            "launch-bound",
            totals.share(totals.launch - late),
            format!(
                "the accelerator is idle {idle} of the time, {} because the host cannot launch kernels fast enough",
                percent(totals.launch)
            ),
        ),
        (
            "sync-bound",
            totals.share(totals.sync + late),
            format!(
                "the host waits for the accelerator {:.0} times a step and cannot run ahead: the accelerator is idle {idle} of the time",
                totals.waits_in_a_step()
            ),
        ),
        (
            "input-bound",
            totals.share(totals.input + totals.copied_in),
            format!(
                "the accelerator waits {} of the time while the host loads data or does other work, and {} for copies of input",
                percent(totals.input),
                percent(totals.copied_in)
            ),
        ),
        (
            "communication-bound",
            totals.share(totals.transfers()),
            format!("{} of the time is communication with no computation beside it", percent(totals.transfers())),
        ),
        (
            "straggler-bound",
            totals.share(totals.waiting),
            format!(
                "ranks wait {} of the time in collectives for rank {}, which comes last",
                percent(totals.waiting),
                totals.waited_for.map_or(0, |(rank, _)| rank)
            ),
        ),
        (
            "copy-bound",
            totals.share(totals.exposed_copies - totals.copied_in),
            format!("{} of the time is copying with no computation beside it", percent(totals.exposed_copies)),
        ),
        match totals.launches {
            0 => (
                "idle",
                totals.share(totals.other),
                format!(
                    "the accelerator is idle {idle} of the time; the trace has no launches, so it does not say what it waits for"
                ),
            ),
            _ => (
                "dependency-bound",
                totals.share(totals.other),
                format!(
                    "{} of the time work was launched and did not start: it waited for another stream, an event or another rank",
                    percent(totals.other)
                ),
            ),
        },
    ]
}

/// What limits an accelerator that is busy.
fn busy(totals: &Totals, sheet: Option<&Accelerator>) -> Verdict {
    let busy = format!("the accelerator is busy {:.0} % of the time", 100.0 * totals.share(totals.busy));
    let of_kernels = |time: f64| 100.0 * time / totals.kernels.max(1.0);
    if totals.fp32 >= FP32 * totals.kernels && fp32_gain(sheet) > 1.0 {
        let because = format!(
            "{busy} and spends {:.0} % of it on matrix products in fp32: tensor cores are idle",
            of_kernels(totals.fp32)
        );
        return Verdict { word: "compute-bound in fp32", because };
    }
    // Shapes prove that bandwidth is the limit; names alone do not.
    if totals.known_by_roofline >= 0.3 * totals.kernels && totals.memory_bound >= 0.6 * totals.known_by_roofline {
        let because = format!(
            "{busy}, and {:.0} % of the time with known shapes is in operators that bandwidth limits",
            100.0 * totals.memory_bound / totals.known_by_roofline
        );
        return Verdict { word: "memory-bound", because };
    }
    let mut because = format!("{busy}, {:.0} % of it on tensor cores", of_kernels(totals.tensor));
    if of_kernels(totals.normalisation) >= 20.0 {
        because.push_str(&format!("; normalisation takes {:.0} %", of_kernels(totals.normalisation)));
    }
    Verdict { word: "compute-bound", because }
}

/// How much faster products in fp32 would be in tf32, or in 16 bits where there is no tf32.
fn fp32_gain(sheet: Option<&Accelerator>) -> f64 {
    // An accelerator that nobody knows is taken for one of the last ten years.
    let Some(sheet) = sheet else { return 3.0 };
    let better = sheet.peak_tflops(Precision::Tf32).or_else(|| sheet.training_tflops());
    match (better, sheet.peak_tflops(Precision::Fp32)) {
        (Some(better), Some(fp32)) if fp32 > 0.0 => (f64::from(better / fp32) * REACHED).max(1.0),
        _ => 1.0,
    }
}

/// What would pay, most first.
pub fn savings(totals: &Totals, sheet: Option<&Accelerator>) -> Vec<Saving> {
    let mut savings: Vec<Saving> = [launches, waits, input, straggler, communication, number_format, layout, fusion]
        .iter()
        .filter_map(|rule| rule(totals, sheet))
        .collect();
    savings.retain(|saving| saving.share >= 0.01);
    savings.sort_by(|one, other| other.share.total_cmp(&one.share));
    // Launches can be recorded into a graph only when nothing waits between them.
    if totals.waits_too_often() {
        savings.sort_by_key(|saving| saving.basis != AFTER_WAITS);
    }
    savings.truncate(3);
    savings
}

fn saving(what: impl Into<String>, share: f64, basis: impl Into<String>) -> Option<Saving> {
    Some(Saving { what: what.into(), share, basis: basis.into() })
}

fn launches(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let when = if totals.waits_too_often() { "once the waits are gone" } else { "launch less" };
    let what = format!("{when}: {}", totals.words().launch_less);
    let late = if totals.waits_too_often() { (totals.needed() - totals.busy).max(0.0) } else { totals.launch };
    saving(what, totals.share(late), "idle time before kernels that were launched late")
}

fn waits(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let what = format!(
        "do not wait for the accelerator in every step ({:.0} waits: {})",
        totals.waits_in_a_step(),
        totals.words().waits
    );
    let lost = if totals.waits_too_often() { totals.sync.max(totals.span - totals.needed()) } else { totals.sync };
    saving(what, totals.share(lost), AFTER_WAITS)
}

fn input(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let pinned = if totals.pageable > 0.5 * totals.copied_in && totals.share(totals.copied_in) > 0.01 {
        totals.words().pinned
    } else {
        ""
    };
    let what = format!("load data beside the step: {}{pinned}", totals.words().load_beside);
    saving(
        what,
        totals.share(totals.input + totals.copied_in),
        "idle time while the host was elsewhere, and copies with nothing beside them",
    )
}

fn straggler(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let (rank, share) = totals.waited_for?;
    saving(
        format!(
            "let rank {rank} keep up: an even split of the work, and a look at its host, its loader and its clocks"
        ),
        if totals.waiting > 0.0 { share } else { 0.0 },
        "what the other ranks spend in collectives beyond what it does",
    )
}

fn communication(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let hidden = totals.transfers().min(totals.compute_alone);
    saving(
        format!("overlap communication with computation ({})", totals.words().overlap),
        totals.share(hidden),
        "exposed communication that computation could hide, at most",
    )
}

fn number_format(totals: &Totals, sheet: Option<&Accelerator>) -> Option<Saving> {
    let gained = totals.fp32 * (1.0 - 1.0 / fp32_gain(sheet));
    // While the accelerator waits for the host a faster kernel only waits longer, and no step is shorter than its launches.
    let waits = totals.share(totals.launch + totals.sync + totals.input) >= CAUSE;
    let saved = if waits { 0.0 } else { gained.min(totals.span - totals.host).max(0.0) };
    saving(
        format!("matrix products in tf32 or bf16: {}", totals.words().number_format),
        totals.share(saved),
        "time of fp32 products, and two thirds of what the peaks promise",
    )
}

fn layout(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let waits = totals.launch + totals.sync + totals.input;
    saving(
        totals.words().layout,
        if totals.share(waits) < CAUSE { totals.share(totals.layout) } else { 0.0 },
        "time of kernels that only convert layouts",
    )
}

fn fusion(totals: &Totals, _: Option<&Accelerator>) -> Option<Saving> {
    let waits = totals.launch + totals.sync + totals.input;
    saving(
        totals.words().fuse,
        if totals.share(waits) < CAUSE { totals.share(totals.elementwise * FUSED) } else { 0.0 },
        "half the time of elementwise kernels",
    )
}

/// What does not help, where people would try it first.
pub fn advice(verdict: &Verdict, totals: &Totals) -> Option<String> {
    let waits = totals.share(totals.launch + totals.sync + totals.input);
    (matches!(verdict.word, "launch-bound" | "sync-bound" | "input-bound") && waits >= CAUSE).then(|| {
        let format = if totals.fp32 > 0.5 * totals.products { "bf16" } else { "bf16 (or any smaller number format)" };
        format!(
            "{format} gains nothing here: the accelerator already waits for the host {:.0} % of the time",
            100.0 * waits
        )
    })
}
