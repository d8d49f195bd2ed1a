//! Why an offer will not do: what programs count, and what people read.

use std::fmt;
use windfall_core::{NanoUsd, Span};

/// Why an offer is not among the candidates.
///
/// ```
/// use windfall_catalog::plan::Why;
///
/// let why = Why::Cores { least: 96.0 };
/// assert_eq!((why.class(), why.to_string().as_str()), ("cores", "fewer than 96 cores"));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// A node has too little main memory, or nobody says how much.
    Memory {
        /// GiB that it has.
        has: Option<f64>,
        /// GiB asked for.
        least: f64,
    },
    /// A node has too few virtual cores, or nobody says how many.
    Cores {
        /// Cores asked for.
        least: f64,
    },
    /// The model does not fit into the accelerators, or nobody says how much memory they have.
    AcceleratorMemory {
        /// GB that each has.
        has: Option<f64>,
        /// GB that each must have.
        least: f64,
    },
    /// These accelerators serve models and do not train them.
    OnlyServes { family: String },
    /// They have none of the precisions that the job may use.
    NoPrecision { family: String },
    /// Nobody says how fast these accelerators are.
    UnknownSpeed { family: String },
    /// The job says how fast it is on others, and not on these.
    NoThroughput { family: String },
    /// How much there is to do was not said.
    NoWork,
    /// The spot price is over the job's own limit.
    MaxPrice {
        /// The price of an hour.
        price: NanoUsd,
    },
    /// It is sold to those who commit themselves, and no commitment is held.
    Commitment,
    /// So many spot instances are never on sale at once.
    GangTooLarge {
        /// The most that are.
        most: u32,
    },
    /// The work alone takes longer than there is time.
    TooSlow {
        /// Running time.
        takes: Span,
    },
    /// It would take more than a thousand years.
    TooLong { hours: f64 },
    /// It would cost more than can be counted.
    TooDear { dollars: f64 },
    /// The market lets it make the deadline too seldom.
    MayMiss { chance: f64 },
    /// Its market takes leases back before a program has started on them.
    NeverEnds,
    /// The job is expected to cost more than it may.
    Budget { cost: NanoUsd },
}

impl Why {
    /// The kind of reason, for programs: these names do not change.
    pub fn class(&self) -> &'static str {
        match self {
            Why::Memory { .. } => "memory",
            Why::Cores { .. } => "cores",
            Why::AcceleratorMemory { .. } => "accelerator-memory",
            Why::OnlyServes { .. } => "only-serves",
            Why::NoPrecision { .. } => "no-precision",
            Why::UnknownSpeed { .. } => "unknown-speed",
            Why::NoThroughput { .. } => "no-throughput",
            Why::NoWork => "no-work",
            Why::MaxPrice { .. } => "max-price",
            Why::Commitment => "commitment",
            Why::GangTooLarge { .. } => "gang-too-large",
            Why::TooSlow { .. } => "too-slow",
            Why::TooLong { .. } => "too-long",
            Why::TooDear { .. } => "too-dear",
            Why::MayMiss { .. } => "may-miss",
            Why::NeverEnds => "never-ends",
            Why::Budget { .. } => "budget",
        }
    }

    /// The kind of reason, for people, to be read behind a number of offers.
    pub fn of_many(&self) -> &'static str {
        match self {
            Why::Memory { .. } => "with too little memory",
            Why::Cores { .. } => "with too few cores",
            Why::AcceleratorMemory { .. } => "with too little memory on an accelerator",
            Why::OnlyServes { .. } => "that do not train models",
            Why::NoPrecision { .. } => "without the precision",
            Why::UnknownSpeed { .. } | Why::NoThroughput { .. } => "whose speed is not known",
            Why::NoWork => "without work to plan",
            Why::MaxPrice { .. } => "above max_price",
            Why::Commitment => "that need a commitment",
            Why::GangTooLarge { .. } => "on a market that never has so many",
            Why::TooSlow { .. } => "too slow for the deadline",
            Why::TooLong { .. } => "on which it would take more than a thousand years",
            Why::TooDear { .. } => "on which it would cost billions",
            Why::MayMiss { .. } => "that may miss the deadline",
            Why::NeverEnds => "on which it would never end",
            Why::Budget { .. } => "over the budget",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Memory { has: Some(has), least } => write!(f, "{has:.0} GiB of memory, {least:.0} asked for"),
            Why::Memory { has: None, least } => write!(f, "unknown memory, {least:.0} asked for"),
            Why::Cores { least } => write!(f, "fewer than {least:.0} cores"),
            Why::AcceleratorMemory { has: Some(has), least } => {
                write!(f, "{has:.0} GB on an accelerator, {least:.0} GB needed on each")
            }
            Why::AcceleratorMemory { has: None, least } => {
                write!(f, "unknown memory of accelerators, {least:.0} GB needed on each")
            }
            Why::OnlyServes { family } => write!(f, "{family} serves models and does not train them"),
            Why::NoPrecision { family } => write!(f, "{family} has none of the precisions that the job may use"),
            Why::UnknownSpeed { family } => write!(f, "the speed of {family} is not known"),
            Why::NoThroughput { family } => write!(f, "no throughput was given for {family}"),
            Why::NoWork => write!(f, "the work is not known: say `work:` in the job file"),
            Why::MaxPrice { price } => write!(f, "spot at ${:.2} an hour is over max_price", price.dollars()),
            Why::Commitment => write!(f, "needs a commitment that you do not hold"),
            Why::GangTooLarge { most } => write!(f, "no more than {most} at once were ever on sale as spot"),
            Why::TooSlow { takes } => {
                write!(f, "would take {:.1} h, later than the deadline", takes.0 as f64 / 3.6e6)
            }
            Why::TooLong { hours } => write!(f, "would take {:.0} years", hours / 8_766.0),
            Why::TooDear { dollars } => write!(f, "would cost {:.0} billion dollars", dollars / 1e9),
            Why::MayMiss { chance } => write!(f, "makes the deadline in {:.0} % of worlds only", chance * 100.0),
            Why::NeverEnds => write!(f, "leases are taken back before a program has started: it would never end"),
            Why::Budget { cost } => write!(f, "expected to cost ${:.2}, over the budget", cost.dollars()),
        }
    }
}
