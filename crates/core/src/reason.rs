//! Why a decision was taken, with the numbers it was taken on.

use crate::units::{NanoUsd, Span, Time, Work};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A figure in a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "unit", content = "value", rename_all = "kebab-case")]
pub enum Number {
    /// A length of time.
    Span(Span),
    /// A moment.
    Time(Time),
    /// Money, or money an hour.
    Money(NanoUsd),
    /// Work in the job's unit.
    Work(Work),
    /// A plain count.
    Count(u64),
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Span(span) => span.fmt(f),
            Number::Time(time) => write!(f, "@{}", time.0),
            Number::Money(money) => money.fmt(f),
            Number::Work(work) => write!(f, "{}", work.0),
            Number::Count(count) => write!(f, "{count}"),
        }
    }
}

/// Why: a rule's name, a sentence, and the numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The rule that decided, stable for scripts.
    pub rule: String,
    /// One sentence for people.
    pub text: String,
    /// The figures it rests on, in the order they matter.
    pub numbers: Vec<(String, Number)>,
}

impl Reason {
    /// A reason without figures.
    pub fn new(rule: &str, text: impl Into<String>) -> Reason {
        Reason { rule: rule.to_owned(), text: text.into(), numbers: Vec::new() }
    }
    /// Adds a length of time.
    pub fn span(self, name: &str, span: Span) -> Reason {
        self.with(name, Number::Span(span))
    }
    /// Adds an amount or a price.
    pub fn money(self, name: &str, money: NanoUsd) -> Reason {
        self.with(name, Number::Money(money))
    }
    /// Adds a count.
    pub fn count(self, name: &str, count: u64) -> Reason {
        self.with(name, Number::Count(count))
    }
    fn with(mut self, name: &str, number: Number) -> Reason {
        self.numbers.push((name.to_owned(), number));
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.text)?;
        for (i, (name, number)) in self.numbers.iter().enumerate() {
            write!(f, "{}{name} {number}", if i == 0 { " (" } else { ", " })?;
        }
        if self.numbers.is_empty() { Ok(()) } else { write!(f, ")") }
    }
}
