//! What things cost, for people, for spreadsheets and for programs.

use super::by::{By, Cell, day_of};
use super::sums::{Sum, Sums};
use crate::fitted::{Column, fitted, wrapped};
use serde_json::{Map, Value, json};
use windfall_core::Time;
use windfall_core::english::grouped;
use windfall_server::client::LedgerEnd;

/// Of when a report is, as it was asked for.
pub struct Asked {
    pub from: Option<Time>,
    pub before: Option<Time>,
}

impl Asked {
    fn last_day(&self) -> Option<Time> {
        self.before.map(|before| Time(before.0 - 1))
    }
}

/// Below this, cents are too coarse.
const SMALL: i128 = 10_000_000_000;

/// `$1,234.56`; every amount of a column has as many decimals, so that their digits stand below each other.
fn dollars(nano: i128, decimals: usize) -> String {
    let unit = 10_i128.pow(9 - decimals as u32);
    let rounded = (nano.abs() + unit / 2) / unit;
    let (whole, rest) = (rounded / 10_i128.pow(decimals as u32), rounded % 10_i128.pow(decimals as u32));
    format!("{}${}.{rest:0decimals$}", if nano < 0 && rounded > 0 { "-" } else { "" }, grouped(whole.unsigned_abs()))
}

fn hours(ms: i128) -> String {
    let tenths = (ms.abs() + 180_000) / 360_000;
    format!("{}{}.{}", if ms < 0 && tenths > 0 { "-" } else { "" }, grouped((tenths / 10).unsigned_abs()), tenths % 10)
}

fn percent(part: i128, of: i128) -> String {
    if of <= 0 { String::new() } else { format!("{:.1} %", part as f64 / of as f64 * 100.0) }
}

/// The table, and below it what its figures mean.
pub fn table(sums: &Sums, asked: &Asked, end: &LedgerEnd, width: usize) -> String {
    let lines = sums.lines();
    let rows: Vec<&Sum> = lines.iter().map(|(_, sum)| *sum).chain([&sums.total]).collect();
    let mut columns: Vec<Column> = Vec::new();
    for (at, by) in sums.by.iter().enumerate() {
        let total = if at == 0 { "total" } else { "" };
        let texts = lines.iter().map(|(cells, _)| format!("{} {}", cells[at].text, cells[at].more).trim().to_owned());
        let column = Column::words(by.name().to_uppercase(), 0, texts.chain([total.to_owned()]));
        columns.push(if *by == By::Day { column } else { column.least(12) });
    }
    let decimals = if rows.iter().all(|sum| sum.cost.abs() < SMALL) { 4 } else { 2 };
    let figures = |head: &str, leaves, cell: &dyn Fn(&Sum) -> String| {
        Column::figures(head, leaves, rows.iter().map(|sum| cell(sum)).collect::<Vec<_>>())
    };
    let money = |head: &str, leaves, amount: &dyn Fn(&Sum) -> i128| {
        figures(head, leaves, &|sum| dollars(amount(sum), decimals))
    };
    // What is not known of a machine is left empty, not zero.
    let known = |head: &str, leaves, cell: &dyn Fn(&Sum) -> String| {
        let is_known = |sum: &Sum| sum.unsplit == 0 || sum.unsplit != sum.cost;
        figures(head, leaves, &|sum| if is_known(sum) { cell(sum) } else { String::new() })
    };
    let part =
        |head: &str, leaves, amount: &dyn Fn(&Sum) -> i128| known(head, leaves, &|sum| dollars(amount(sum), decimals));
    columns.push(money("COST", 0, &|sum| sum.cost));
    columns.push(figures("SHARE", 1, &|sum| percent(sum.cost, sums.total.cost)));
    if sums.total.running != 0 {
        let running = |sum: &Sum| if sum.running == 0 { String::new() } else { dollars(sum.running, decimals) };
        columns.push(figures("RUNNING", 2, &running));
    }
    columns.push(figures("LEASE-H", 4, &|sum| hours(sum.lease.ms())));
    columns.push(known("GPU-H", 3, &|sum| hours(sum.accelerator.ms())));
    columns.push(part("GPU", 5, &|sum| sum.gpu));
    columns.push(part("CPU", 6, &|sum| sum.cpu));
    columns.push(part("MEMORY", 7, &|sum| sum.memory));
    let mut text = fitted(columns, width);
    text.push('\n');
    text.push_str(&wrapped(&meaning(sums, asked, end, decimals), width));
    text
}

fn meaning(sums: &Sums, asked: &Asked, end: &LedgerEnd, decimals: usize) -> String {
    let (first, last) =
        (asked.from.or(sums.days.map(|days| days.0)), asked.last_day().or(sums.days.map(|days| days.1)));
    let days = match (first, last) {
        (Some(first), Some(last)) if day_of(first) == day_of(last) => format!("On {}", day_of(first)),
        (Some(first), Some(last)) => format!("From {} to {}", day_of(first), day_of(last)),
        _ => "On all days".to_owned(),
    };
    let replays = end.replays.as_ref().map_or(String::new(), |market| format!("replays the market {market} and "));
    let mut text = format!("{days}, UTC, by the clock of this world, which {replays}shows {}.", clock(end.now));
    if sums.total.running != 0 {
        let running = dollars(sums.total.running, decimals);
        let what = if sums.running_nodes { "leases and nodes" } else { "leases" };
        text.push_str(&format!(" {running} of it is for {what} that still run, until now."));
    }
    let unknown = |cell: &Cell| cell.text == "(unknown)" || cell.more == "(unknown)";
    if sums.lines().iter().any(|(cells, _)| cells.iter().any(unknown)) {
        text.push_str(" (unknown) was paid before the ledger kept it.");
    }
    if sums.total.unsplit != 0 {
        let unsplit = dollars(sums.total.unsplit, decimals);
        text.push_str(&format!(
            " {unsplit} of it has no GPU, CPU or memory part: which machines that was is not known."
        ));
    }
    text
}

fn clock(at: Time) -> String {
    let shown = jiff::Timestamp::from_millisecond(at.0).map(|at| at.strftime("%Y-%m-%d %H:%M").to_string());
    shown.unwrap_or_else(|_| format!("{} ms", at.0))
}

/// Nothing was paid for.
pub fn nothing(asked: &Asked) -> String {
    match (asked.from, asked.last_day()) {
        (None, None) => "nothing has been paid for yet\n".to_owned(),
        (Some(from), None) => format!("nothing has been paid for since {}\n", day_of(from)),
        (None, Some(to)) => format!("nothing was paid for until {}\n", day_of(to)),
        (Some(from), Some(to)) => format!("nothing was paid for from {} to {}\n", day_of(from), day_of(to)),
    }
}

/// The amounts by name, in the order of the columns.
fn amounts(sum: &Sum) -> [(&'static str, i128); 8] {
    [
        ("cost_nanousd", sum.cost),
        ("gpu_nanousd", sum.gpu),
        ("cpu_nanousd", sum.cpu),
        ("memory_nanousd", sum.memory),
        ("unsplit_nanousd", sum.unsplit),
        ("running_nanousd", sum.running),
        ("lease_ms", sum.lease.ms()),
        ("accelerator_ms", sum.accelerator.ms()),
    ]
}

/// For spreadsheets: a line for each group, and no total, which would be counted twice.
pub fn csv(sums: &Sums) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let heads = sums.by.iter().flat_map(|by| [Some(by.name()), (*by == By::Job).then(|| "name".to_owned())]);
    let figures = amounts(&sums.total).map(|(name, _)| name.to_owned());
    writer.write_record(heads.flatten().chain(figures))?;
    for (cells, sum) in sums.lines() {
        let named = sums.by.iter().zip(cells);
        let words = named.flat_map(|(by, cell)| [Some(cell.text.clone()), (*by == By::Job).then(|| cell.more.clone())]);
        writer.write_record(words.flatten().chain(amounts(sum).map(|(_, amount)| amount.to_string())))?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// For programs.
pub fn json(sums: &Sums, asked: &Asked, end: Option<&LedgerEnd>) -> Value {
    let number = |amount: i128| i64::try_from(amount).unwrap_or(if amount < 0 { i64::MIN } else { i64::MAX });
    let figures = |sum: &Sum| amounts(sum).map(|(name, amount)| (name.to_owned(), json!(number(amount))));
    let rows: Vec<Value> = sums
        .lines()
        .into_iter()
        .map(|(cells, sum)| {
            let mut row = Map::new();
            for (by, cell) in sums.by.iter().zip(cells) {
                row.insert(by.name(), json!(cell.text));
                if *by == By::Job {
                    row.insert("name".to_owned(), json!(cell.more));
                }
            }
            row.extend(figures(sum));
            let share = (sums.total.cost > 0).then(|| sum.cost as f64 / sums.total.cost as f64);
            row.insert("share".to_owned(), json!(share));
            Value::Object(row)
        })
        .collect();
    json!({
        "type": "cost",
        "by": sums.by.iter().map(By::name).collect::<Vec<_>>(),
        "from": asked.from.map(day_of),
        "to": asked.last_day().map(day_of),
        "world": end.map(|end| json!({ "market": end.replays, "now_ms": end.now.0 })),
        "rows": rows,
        "total": Map::from_iter(figures(&sums.total)),
    })
}
