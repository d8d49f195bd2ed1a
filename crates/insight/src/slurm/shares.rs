//! Shares that accounts were granted (`sshare -a -P`), against what they used, and how even that is.

use super::figures::Group;
use serde::Serialize;
use std::collections::BTreeMap;

/// What accounts were granted, as parts of the whole cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    granted: BTreeMap<String, f64>,
    /// Accounts without accounts below them.
    leaves: Vec<String>,
}

struct Line<'t> {
    depth: usize,
    account: &'t str,
    user: &'t str,
    raw: Option<f64>,
}

impl Shares {
    /// Reads a table of sshare. The depth of an account is how far its name stands in; a share counts among those that
    /// stand beside it. None if it is no such table.
    pub fn read(text: &str) -> Option<Shares> {
        let mut lines = text.lines().filter(|line| !line.trim().is_empty());
        let head: Vec<&str> = lines.next()?.split('|').map(str::trim).collect();
        let column = |name: &str| head.iter().position(|word| word.eq_ignore_ascii_case(name));
        let (account, user, raw) = (column("Account")?, column("User")?, column("RawShares")?);
        let rows: Vec<Line<'_>> = lines
            .filter_map(|line| {
                let cells: Vec<&str> = line.split('|').collect();
                let name = *cells.get(account)?;
                // A user whose share is `parent` has none of its own.
                let raw = cells.get(raw)?.trim().parse().ok();
                let depth = name.len() - name.trim_start().len();
                Some(Line { depth, account: name.trim(), user: cells.get(user)?.trim(), raw })
            })
            .collect();
        let mut shares = Shares::default();
        // The part of every account that is open on the way down.
        let mut above: Vec<(usize, f64)> = Vec::new();
        for (at, row) in rows.iter().enumerate() {
            while above.last().is_some_and(|(depth, _)| *depth >= row.depth) {
                above.pop();
            }
            let beside = |step: &dyn Fn(usize) -> Option<usize>| {
                let mut sum = 0.0;
                let mut next = step(at);
                while let Some(other) = next.and_then(|at| rows.get(at)).filter(|other| other.depth >= row.depth) {
                    sum += if other.depth == row.depth { other.raw.unwrap_or(0.0) } else { 0.0 };
                    next = next.and_then(step);
                }
                sum
            };
            let own = row.raw.unwrap_or(0.0);
            let all = own + beside(&|at| at.checked_sub(1)) + beside(&|at| Some(at + 1));
            let granted = match above.last() {
                None => 1.0,
                Some((_, parent)) if all > 0.0 => parent * own / all,
                Some(_) => 0.0,
            };
            if !row.user.is_empty() {
                continue;
            }
            above.push((row.depth, granted));
            let below = rows[at + 1..].iter().take_while(|other| other.depth > row.depth);
            if below.filter(|other| other.user.is_empty()).count() == 0 {
                shares.leaves.push(row.account.to_owned());
            }
            shares.granted.insert(row.account.to_owned(), granted);
        }
        Some(shares)
    }
}

/// An account's part of use, beside its part by right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccountShare {
    pub account: String,
    pub used_percent: f64,
    pub granted_percent: Option<f64>,
}

/// How evenly accounts were served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fairness {
    /// `granted`: use against granted shares; `equal`: use of every account alike.
    pub basis: &'static str,
    /// Jain's index: 1 when all have the same (of what they were granted), 1/n when one of n has everything.
    pub jain_index: Option<f64>,
    pub accounts: Vec<AccountShare>,
}

/// Jain's index of fairness: the square of the sum over n times the sum of the squares.
pub fn jain(values: &[f64]) -> Option<f64> {
    let (sum, squares) = values.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

/// Fairness of what accounts used.
pub fn fairness(accounts: &[Group], shares: Option<&Shares>) -> Fairness {
    let granted = |name: &str| shares.and_then(|shares| shares.granted.get(name).copied());
    let mut rows: Vec<AccountShare> = accounts
        .iter()
        .map(|group| AccountShare {
            account: group.name.clone(),
            used_percent: group.figures.share_percent,
            granted_percent: granted(&group.name).map(|part| 100.0 * part),
        })
        .collect();
    for leaf in shares.map_or(&[][..], |shares| &shares.leaves) {
        if granted(leaf).is_some_and(|part| part > 0.0) && !rows.iter().any(|row| row.account == *leaf) {
            let granted_percent = granted(leaf).map(|part| 100.0 * part);
            rows.push(AccountShare { account: leaf.clone(), used_percent: 0.0, granted_percent });
        }
    }
    let ratio = |row: &AccountShare| Some(row.used_percent / row.granted_percent.filter(|granted| *granted > 0.0)?);
    let (basis, values): (_, Vec<f64>) = match shares {
        Some(_) => ("granted", rows.iter().filter_map(ratio).collect()),
        None => ("equal", rows.iter().map(|row| row.used_percent).collect()),
    };
    Fairness { basis, jain_index: jain(&values), accounts: rows }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_counts_among_those_beside_it() {
        let text = "Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare\n\
                    root|||0.0|92|1.0|\n\
                    \x20root|root|1|0.1|0|0.0|1.0\n\
                    \x20lab||6|0.6|76|0.0|\n\
                    \x20 lab-a||1|0.25|0|0.0|\n\
                    \x20  lab-a|ada|parent|0.25|0|0.0|1.0\n\
                    \x20 lab-b||3|0.75|0|0.0|\n\
                    \x20vision||3|0.3|15|0.0|\n\
                    \x20 vision|root|1|1.0|15|0.0|0.0\n";
        let shares = Shares::read(text).expect("a table");
        let part = |name: &str| shares.granted.get(name).map(|part| (part * 1000.0).round() / 1000.0);
        assert_eq!([part("lab"), part("vision")], [Some(0.6), Some(0.3)]);
        assert_eq!([part("lab-a"), part("lab-b"), part("nobody")], [Some(0.15), Some(0.45), None]);
        assert_eq!(shares.leaves, ["lab-a", "lab-b", "vision"]);
        assert_eq!(Shares::read("JobID|User\n1|ada\n"), None);
        assert_eq!(Shares::read(""), None);
    }

    #[test]
    fn jains_index_is_one_for_equals_and_one_nth_for_one_who_has_all() {
        assert_eq!(jain(&[3.0, 3.0, 3.0]), Some(1.0));
        assert_eq!(jain(&[9.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(jain(&[0.0]), None);
    }
}
