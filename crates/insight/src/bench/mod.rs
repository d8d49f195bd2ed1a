//! Benchmarks: how fast a program goes, from the moments at which it says that steps are done; results in one format, held
//! against each other with their significance, and carried on to more nodes with a band.

mod compare;
mod extrapolate;
mod pace;
mod result;
mod statistics;

pub use compare::{Comparison, compare, screen as compare_screen, verdict};
pub use extrapolate::{Estimate, Kept, Scaling, extrapolate, kept};
pub use pace::{Mark, Pace, pace};
pub use result::{FORMAT, Figure, ResultError, Results, Run, read, write};
pub use statistics::{Difference, Interval, difference, interval};

/// The built-in suites: a program for a Python that has PyTorch.
pub const SUITE_PROGRAM: &str = include_str!("../../suites/suite.py");

/// Suites that train a model, and suites that measure ceilings and times.
pub const SUITES: [&str; 8] =
    ["bert-base", "gpt2-medium", "resnet50", "matmul", "bandwidth", "checkpoint", "data-loading", "all-reduce"];

/// What the lines of a suite begin with.
pub const SUITE_LINE: &str = "windfall-bench ";

/// The schema of results, draft 2020-12.
pub const SCHEMA: &str = include_str!("../../../../docs/benchmark.schema.json");
