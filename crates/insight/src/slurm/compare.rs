//! Figures before and after a date, side by side, with the change: the same rows for the screen and for the page.

use super::advice::{figure, lasting};
use super::figures::{Figures, Group};
use super::part::Part;
use super::report::Split;
use std::collections::BTreeMap;

/// A figure before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    pub what: &'static str,
    pub before: String,
    pub after: String,
    /// `+12 %`, or points where both are percentages; nothing where it cannot be said.
    pub change: String,
    /// Whether the change is for the better, where one is.
    pub better: Option<bool>,
}

impl Compared {
    /// The class of its change in a page.
    pub fn class(&self) -> &'static str {
        match self.better {
            Some(true) => "better",
            Some(false) => "worse",
            None => "",
        }
    }
}

/// What a figure is, how it is written, and which way is better.
type Measure = (&'static str, fn(&Part) -> Option<f64>, fn(f64) -> String, Option<Better>);

#[derive(Clone, Copy, PartialEq)]
enum Better {
    Less,
    More,
}

fn points(value: f64) -> String {
    format!("{value:.1} %")
}

fn index(value: f64) -> String {
    format!("{value:.2}")
}

fn a_day(of: f64, part: &Part) -> Option<f64> {
    (part.days > 0.0).then(|| of / part.days)
}

const MEASURES: &[Measure] = &[
    ("days", |part| Some(part.days), figure, None),
    ("jobs a day", |part| a_day(part.total.jobs as f64, part), figure, None),
    ("GPU-hours a day", |part| a_day(part.total.gpu_hours, part), figure, None),
    ("CPU-hours a day", |part| a_day(part.total.cpu_hours, part), figure, None),
    ("dollars a day", |part| a_day(part.total.usd?, part), dollars, None),
    ("wait, median", |part| Some(part.total.wait?.median_s.into()), lasting, Some(Better::Less)),
    ("wait, P90", |part| Some(part.total.wait?.p90_s.into()), lasting, Some(Better::Less)),
    ("wait, P99", |part| Some(part.total.wait?.p99_s.into()), lasting, Some(Better::Less)),
    ("failed or timed out", |part| part.total.failed_percent, points, Some(Better::Less)),
    ("time used of asked", |part| Some(part.total.time?.used_percent), points, Some(Better::More)),
    ("memory used of asked", |part| Some(part.total.memory?.used_percent), points, Some(Better::More)),
    ("GPUs idle", |part| part.total.gpu_idle_percent, points, Some(Better::Less)),
    ("Jain's index", |part| part.fairness.jain_index, index, Some(Better::More)),
];

fn dollars(usd: f64) -> String {
    windfall_core::NanoUsd::from_dollars(usd).to_string()
}

/// Every figure that is known of either side.
pub fn rows(before: &Part, after: &Part) -> Vec<Compared> {
    let row = |(what, of, shown, better): &Measure| {
        let (old, new) = (of(before), of(after));
        if old.is_none() && new.is_none() {
            return None;
        }
        let text = |value: Option<f64>| value.map_or("–".to_owned(), shown);
        let mut change = String::new();
        let mut verdict = None;
        if let (Some(old), Some(new)) = (old, new)
            && *what != "days"
        {
            change = changed(old, new, text(Some(new)).ends_with('%'));
            let improved = if *better == Some(Better::Less) { new < old } else { new > old };
            verdict = better.filter(|_| text(Some(old)) != text(Some(new))).map(|_| improved);
        }
        Some(Compared { what, before: text(old), after: text(new), change, better: verdict })
    };
    MEASURES.iter().filter_map(row).collect()
}

fn changed(old: f64, new: f64, in_points: bool) -> String {
    match () {
        () if in_points && (new - old).abs() < 0.05 => "0.0 points".to_owned(),
        () if in_points => format!("{:+.1} points", new - old),
        () if old <= 0.0 => String::new(),
        () if ((new - old) / old).abs() < 0.005 => "0 %".to_owned(),
        () => format!("{:+.0} %", 100.0 * (new - old) / old),
    }
}

/// A group before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupCompared {
    pub name: String,
    pub before: Figures,
    pub after: Figures,
    days: (f64, f64),
}

impl GroupCompared {
    fn a_day(&self) -> (f64, f64) {
        let each = |hours: f64, days: f64| if days > 0.0 { hours / days } else { 0.0 };
        (each(self.before.gpu_hours, self.days.0), each(self.after.gpu_hours, self.days.1))
    }

    /// GPU-hours a day, median waits and failures, each before and after.
    pub fn cells(&self) -> [String; 6] {
        let wait = |figures: &Figures| figures.wait.map_or("–".to_owned(), |wait| lasting(wait.median_s.into()));
        let failed = |figures: &Figures| figures.failed_percent.map_or("–".to_owned(), points);
        let (old, new) = self.a_day();
        let (before, after) = (&self.before, &self.after);
        [figure(old), figure(new), wait(before), wait(after), failed(before), failed(after)]
    }
}

/// All groups of either side, those with the most use a day first.
pub fn by(split: &Split) -> [(&'static str, Vec<GroupCompared>); 4] {
    let (before, after) = (&split.before, &split.after);
    let pair = |old: &[Group], new: &[Group]| {
        let mut all: BTreeMap<&str, (Option<&Figures>, Option<&Figures>)> = BTreeMap::new();
        old.iter().for_each(|group| all.entry(&group.name).or_default().0 = Some(&group.figures));
        new.iter().for_each(|group| all.entry(&group.name).or_default().1 = Some(&group.figures));
        let mut rows: Vec<GroupCompared> = all
            .into_iter()
            .map(|(name, (old, new))| GroupCompared {
                name: name.to_owned(),
                before: old.cloned().unwrap_or_default(),
                after: new.cloned().unwrap_or_default(),
                days: (before.days, after.days),
            })
            .collect();
        let most = |row: &GroupCompared| row.a_day().0.max(row.a_day().1);
        rows.sort_by(|one, other| most(other).total_cmp(&most(one)));
        rows
    };
    [
        ("user", pair(&before.user, &after.user)),
        ("account", pair(&before.account, &after.account)),
        ("partition", pair(&before.partition, &after.partition)),
        ("type", pair(&before.r#type, &after.r#type)),
    ]
}
