//! The state in parts, for snapshots that hold only what has changed: each job (forgotten or not), lease, group, offer, line of prices, node, key
//! and closed lease by itself, and all the rest together. Put together again the parts are the text that the state is written as in
//! one piece, so whatever reads that (upgrades of older versions too) reads these.

use super::{Brain, Droughts, Job, lookout::Lookouts};
use crate::codec;
use crate::config::Config;
use crate::ids::{Installation, PoolId, WorkloadId};
use crate::offer::OfferId;
use crate::pool::Pool;
use crate::units::Time;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

/// The part that holds what is not a part by itself.
pub const REST: &str = "rest";

/// Tables of the state, and whether each is written as an object (by name) or as a list.
const TABLES: [(&str, bool); 11] = [
    ("jobs", true),
    ("departed", true),
    ("offers", true),
    ("withdrawn", true),
    ("prices", true),
    ("nodes", true),
    ("node_books", true),
    ("leases", false),
    ("groups", false),
    ("keys", false),
    ("closed", false),
];

/// What is small, or changes with almost every record.
#[derive(Serialize)]
struct Rest<'a> {
    installation: &'a Installation,
    config: &'a Config,
    now: &'a Time,
    last_seq: &'a u64,
    last_batch: &'a u64,
    refused: &'a BTreeMap<OfferId, Time>,
    silent_engines: &'a BTreeMap<String, Time>,
    pools: &'a BTreeMap<PoolId, Pool>,
    last_workload: &'a WorkloadId,
    droughts: &'a Droughts,
    lookouts: &'a Lookouts,
}

/// Jobs of a state, held so that a later state can be compared with it: a job that changes is copied first.
#[derive(Clone, Debug, Default)]
pub struct HeldJobs(Arc<[Arc<Job>]>);

impl Brain {
    /// Its jobs as they are now.
    pub fn held_jobs(&self) -> HeldJobs {
        HeldJobs(self.jobs.shared().cloned().collect())
    }

    /// Gives every part: its table and its name there, as in `jobs/7`, and its text.
    pub fn each_part(&self, mut each: impl FnMut(String, String)) {
        self.each_part_since(&HeldJobs::default(), |name, text| each(name, text.expect("no job is held")));
    }

    /// The same, without the text of jobs that are the very same as before: nothing of them has changed.
    pub fn each_part_since(&self, before: &HeldJobs, mut each: impl FnMut(String, Option<String>)) {
        // Named one by one: a field that is added and forgotten here does not build.
        let Brain {
            installation,
            config,
            now,
            last_seq,
            last_batch,
            offers,
            withdrawn,
            prices,
            refused,
            jobs,
            departed,
            leases,
            groups,
            silent_engines,
            pools,
            nodes,
            node_books,
            keys,
            last_workload,
            closed,
            droughts,
            lookouts,
            // Not part of a snapshot: worked out again.
            model: _,
            plan_cache: _,
            fresh_ledger: _,
            final_views: _,
            awake: _,
            following: _,
            left_alone: _,
            think_at: _,
            undecided: _,
        } = self;
        let mut held = before.0.iter().peekable();
        for job in jobs.shared() {
            while held.next_if(|held| held.id < job.id).is_some() {}
            let is_same = held.peek().is_some_and(|held| Arc::ptr_eq(held, job));
            each(format!("jobs/{}", job.id), (!is_same).then(|| codec::encode(job)));
        }
        let mut part = |table: &str, name: &dyn Display, text: String| each(format!("{table}/{name}"), Some(text));
        departed.iter().for_each(|(id, job)| part("departed", id, codec::encode(job)));
        offers.iter().for_each(|(id, offer)| part("offers", id, codec::encode(offer)));
        withdrawn.iter().for_each(|(id, offer)| part("withdrawn", id, codec::encode(offer)));
        prices.iter().for_each(|(id, line)| part("prices", id, codec::encode(line)));
        nodes.iter().for_each(|(id, node)| part("nodes", id, codec::encode(node)));
        node_books.iter().for_each(|(id, books)| part("node_books", id, codec::encode(books)));
        leases.iter().for_each(|(id, lease)| part("leases", id, codec::encode(lease)));
        groups.iter().for_each(|(id, group)| part("groups", id, codec::encode(group)));
        // Their order is that of their numbers.
        keys.iter().for_each(|entry| part("keys", &format!("{:020}", entry.1.0), codec::encode(&entry)));
        closed.iter().for_each(|(id, end)| part("closed", id, codec::encode(&(id, end))));
        let rest = Rest {
            installation,
            config,
            now,
            last_seq,
            last_batch,
            refused,
            silent_engines,
            pools,
            last_workload,
            droughts,
            lookouts,
        };
        each(REST.to_owned(), Some(codec::encode(&rest)));
    }
}

/// The text of a whole state from its parts, which come in any order; none where the rest is missing.
pub fn put_together<'p>(parts: impl IntoIterator<Item = (&'p str, &'p str)>) -> Option<String> {
    let (mut rest, mut tables) = (None, TABLES.map(|_| Vec::new()));
    for (name, text) in parts {
        match name.split_once('/') {
            None => rest = Some(text),
            Some((table, name)) => {
                let at = TABLES.iter().position(|(known, _)| *known == table)?;
                tables[at].push((name, text));
            }
        }
    }
    let size = tables.iter().flatten().map(|(name, text)| name.len() + text.len() + 4).sum::<usize>();
    let mut whole = String::with_capacity(size + rest?.len() + 200);
    whole.push_str(rest?.strip_suffix('}')?);
    for ((table, by_name), mut entries) in TABLES.into_iter().zip(tables) {
        entries.sort_unstable();
        let (open, close) = if by_name { ('{', '}') } else { ('[', ']') };
        whole.extend([",\"", table, "\":"]);
        whole.push(open);
        for (index, (name, text)) in entries.into_iter().enumerate() {
            if index > 0 {
                whole.push(',');
            }
            if by_name {
                whole.push_str(&codec::encode(&name));
                whole.push(':');
            }
            whole.push_str(text);
        }
        whole.push(close);
    }
    whole.push('}');
    Some(whole)
}
