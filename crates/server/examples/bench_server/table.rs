//! Figures beside what is wanted of them and beside what others say of themselves.

use serde_json::{Value, json};
use std::fmt::Write;

/// What was measured.
pub struct Figure {
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// What is wanted, and whether more is better.
    wanted: Option<(f64, bool)>,
}

impl Figure {
    pub fn rate(what: &str, value: f64, wanted: f64) -> Figure {
        Figure { what: what.to_owned(), value, unit: "/s", wanted: Some((wanted, true)) }
    }

    pub fn wait(what: &str, value: f64, wanted: f64) -> Figure {
        Figure::at_most(what, value, wanted, "s")
    }

    pub fn memory(what: &str, value: f64, wanted: f64) -> Figure {
        Figure::at_most(what, value, wanted, "bytes")
    }

    pub fn at_most(what: &str, value: f64, wanted: f64, unit: &'static str) -> Figure {
        Figure { what: what.to_owned(), value, unit, wanted: Some((wanted, false)) }
    }

    /// Nothing is wanted of it: it explains the others.
    pub fn said(what: &str, value: f64, unit: &'static str) -> Figure {
        Figure { what: what.to_owned(), value, unit, wanted: None }
    }

    fn is_reached(&self) -> Option<bool> {
        self.wanted.map(|(wanted, more)| if more { self.value >= wanted } else { self.value <= wanted })
    }
}

/// What others say of themselves; each counts something else.
const PEERS: &str = "\
beside it: Slurm 500 simple jobs/s sustained (its manual) · Nomad 3,750 containers/s on 5,000 hosts (its C2M) · Kueue 42.7
workloads/s admitted (its CI) · HyperQueue < 0.1 ms a task (its paper). Here a submission is durable, fenced and decided
about when it is answered, and clients, server and database share the cores of one machine.
";

pub fn text(figures: &[Figure]) -> String {
    let mut text = String::new();
    let width = figures.iter().map(|figure| figure.what.chars().count()).max().unwrap_or(0);
    for figure in figures {
        let wanted = figure.wanted.map_or(String::new(), |(wanted, more)| {
            let word = if more { "at least" } else { "at most" };
            let reached = if figure.is_reached() == Some(true) { "" } else { "   NOT REACHED" };
            format!("   wanted: {word} {}{reached}", shown(wanted, figure.unit))
        });
        let _ = writeln!(text, "{:<width$}  {:>12}{wanted}", figure.what, shown(figure.value, figure.unit));
    }
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let _ = writeln!(text, "{PEERS}this machine: {cores} cores");
    text
}

pub fn json(figures: &[Figure]) -> Value {
    let row = |figure: &Figure| {
        json!({ "what": figure.what, "value": figure.value, "unit": figure.unit,
            "wanted": figure.wanted.map(|(wanted, _)| wanted), "reached": figure.is_reached() })
    };
    json!({ "figures": figures.iter().map(row).collect::<Vec<_>>() })
}

fn shown(value: f64, unit: &str) -> String {
    match unit {
        "s" if value < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" => format!("{value:.2} s"),
        "bytes" => format!("{:.0} MB", value / 1e6),
        "/s" => format!("{value:.0}/s"),
        unit => format!("{value:.2} {unit}"),
    }
}
