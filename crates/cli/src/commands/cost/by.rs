//! What costs are split by, and what a row of the ledger says of it.

use jiff::civil::Date;
use windfall_core::ledger::{Account, Goods};
use windfall_core::nearest::nearest;
use windfall_core::spec::tag_name_problem;
use windfall_core::{LedgerRow, Time};
use windfall_server::client::{Code, Failure};

/// Something to split by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Team,
    User,
    Job,
    Kind,
    Market,
    Engine,
    Accelerator,
    Day,
    Beneficiary,
    Tag(String),
}

const KNOWN: [(&str, By); 9] = [
    ("team", By::Team),
    ("user", By::User),
    ("job", By::Job),
    ("kind", By::Kind),
    ("market", By::Market),
    ("engine", By::Engine),
    ("accelerator", By::Accelerator),
    ("day", By::Day),
    ("beneficiary", By::Beneficiary),
];

impl By {
    /// What a command line names.
    pub fn read(word: &str) -> Result<By, Failure> {
        let bad = |message: String, hint: String| Err(Failure::new(Code::BadInput, message).hint(hint));
        if let Some(name) = word.strip_prefix("tag:") {
            return match tag_name_problem(name) {
                None => Ok(By::Tag(name.to_owned())),
                Some(why) => bad(format!("--by {word}: no tag has such a name"), format!("{why}, as in tag:project")),
            };
        }
        let names = || KNOWN.iter().map(|(name, _)| *name);
        match KNOWN.iter().find(|(name, _)| *name == word) {
            Some((_, by)) => Ok(by.clone()),
            None => {
                let near = nearest(word, names()).map(|near| format!("did you mean {near}? "));
                let all = names().collect::<Vec<_>>().join(", ");
                let what = format!("costs cannot be split by `{}`", word.escape_debug());
                bad(what, format!("{}split by {all} or tag:KEY", near.unwrap_or_default()))
            }
        }
    }

    /// Its stable name: the key in JSON, the head in CSV.
    pub fn name(&self) -> String {
        match self {
            By::Tag(name) => format!("tag:{name}"),
            known => KNOWN.iter().find(|(_, by)| by == known).map_or(String::new(), |(name, _)| (*name).to_owned()),
        }
    }

    /// What a row says of it. What is in parentheses is no name.
    pub fn of(&self, row: &LedgerRow) -> Cell {
        let account = |says: &dyn Fn(&Account) -> Cell| match (&row.account, row.beneficiary.workload()) {
            (Some(account), _) => says(account),
            (None, Some(_)) => Cell::no("unknown"),
            (None, None) => Cell::no(row.beneficiary.word()),
        };
        let goods = |says: &dyn Fn(&Goods) -> Cell| row.goods.as_deref().map_or(Cell::no("unknown"), says);
        match self {
            By::Team => account(&|account| Cell::text(&account.team)),
            By::User => account(&|account| Cell::text(&account.user)),
            By::Kind => account(&|account| Cell::text(account.kind.to_string())),
            By::Tag(tag) => account(&|account| account.tags.get(tag).map_or(Cell::no("none"), Cell::text)),
            By::Job => match row.beneficiary.workload() {
                Some(id) => {
                    let name = row.account.as_ref().map_or("(unknown)", |account| &account.name);
                    Cell { text: id.to_string(), number: id.0, more: name.to_owned() }
                }
                None => Cell::no(row.beneficiary.word()),
            },
            By::Market => goods(&|goods| Cell::text(goods.market.to_string())),
            By::Engine => goods(&|goods| Cell::text(&goods.engine)),
            By::Accelerator => goods(&|goods| match goods.count {
                0 => Cell::no("none"),
                _ => Cell::text(&goods.accelerator),
            }),
            By::Day => Cell::text(day_of(row.begins())),
            By::Beneficiary => Cell::text(row.beneficiary.word()),
        }
    }
}

/// What a row says of one thing; in the order in which lines of equal cost stand.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// Jobs stand in the order of their numbers.
    number: u64,
    pub text: String,
    /// The name of a job, beside its number.
    pub more: String,
}

impl Cell {
    fn text(text: impl Into<String>) -> Cell {
        Cell { number: 0, text: text.into(), more: String::new() }
    }

    fn no(why: &str) -> Cell {
        Cell::text(format!("({why})"))
    }
}

const DAY_MS: i64 = 86_400_000;

/// The day of UTC that a moment belongs to, as people write it.
pub fn day_of(at: Time) -> String {
    let day = at.0.div_euclid(DAY_MS);
    date(day).map_or_else(|| format!("day {day}"), |date| date.to_string())
}

fn date(day: i64) -> Option<Date> {
    jiff::civil::date(1970, 1, 1).checked_add(jiff::Span::new().try_days(day).ok()?).ok()
}

/// The first moment of a day, or of a month; with `after`, the first moment after it.
pub fn moment(flag: &str, text: &str, after: bool) -> Result<Time, Failure> {
    let bad = || {
        let what = format!("{flag} {}: no such day", text.escape_debug());
        Failure::new(Code::BadInput, what).hint("write a day as 2026-11-30, or a month as 2026-11")
    };
    let digits = |text: &str| text.split('-').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    let (first, length) = match text.len() {
        _ if !digits(text) => return Err(bad()),
        7 => (format!("{text}-01").parse::<Date>(), jiff::Span::new().months(1)),
        10 => (text.parse::<Date>(), jiff::Span::new().days(1)),
        _ => return Err(bad()),
    };
    let mut day = first.map_err(|_| bad())?;
    if after {
        day = day.checked_add(length).map_err(|_| bad())?;
    }
    let days = day.since(jiff::civil::date(1970, 1, 1)).map_err(|_| bad())?.get_days();
    Ok(Time(i64::from(days) * DAY_MS))
}
