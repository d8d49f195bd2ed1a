//! A recorded market: for each zone, how many instances could be had and at what price, tick by tick.
//! A tape knows nothing of clocks; it is read at an offset from its beginning and repeats at its end.

use crate::recording::Recording;
use serde::Deserialize;
use windfall_core::{NanoUsd, Place, Span};

/// A recording that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// No embedded market of that name.
    #[error("no recorded market is named {name}; known: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// No such zone on the tape.
    #[error("{name} has no zone {zone}; it has: {known}")]
    NoZone {
        name: String,
        /// What was asked for.
        zone: String,
        /// What there is.
        known: String,
    },
    #[error("the recorded market {name} cannot be read")]
    Malformed {
        name: String,
        #[source]
        source: serde_json::Error,
    },
    /// A recording that contradicts itself.
    #[error("the recorded market {name} is inconsistent: {what}")]
    Inconsistent {
        name: String,
        /// How.
        what: String,
    },
}

macro_rules! markets {
    ($($name:literal),+ $(,)?) => { &[$(($name, include_str!(concat!("../markets/", $name, ".json")))),+] };
}

/// Written by `cargo xtask markets`; docs/markets.md lists them.
const EMBEDDED: &[(&str, &str)] = markets![
    "aws-v100-us-west-2-2023",
    "aws-v100-us-east-1-2023",
    "aws-v100-us-east-2-2023",
    "aws-v100-kept-2023",
    "aws-v100-16-nodes-2023",
    "aws-v100-4-nodes-2023",
    "aws-v100-us-west-2-2022",
    "aws-k80-us-west-2-2022",
];

/// The names of the embedded recordings.
pub fn embedded_names() -> Vec<&'static str> {
    EMBEDDED.iter().map(|(name, _)| *name).collect()
}

/// What the embedded recordings are of: cloud, region, instance type.
pub fn recorded() -> Vec<(&'static str, &'static str, &'static str)> {
    vec![
        ("aws", "us-east-1", "p3.2xlarge"),
        ("aws", "us-east-2", "p3.2xlarge"),
        ("aws", "us-west-2", "p2.xlarge"),
        ("aws", "us-west-2", "p3.2xlarge"),
    ]
}

/// The name of the invented market that never takes anything away: a stage for rehearsals.
pub const STEADY: &str = "steady";
/// The name of another one, which sells machines of eight accelerators: a stage for jobs that share them.
pub const STEADY_OF_EIGHT: &str = "steady-v100-8";

/// The embedded market of that name.
pub fn embedded(name: &str) -> Result<Tape, TapeError> {
    match name {
        STEADY => return Ok(Tape::steady()),
        STEADY_OF_EIGHT => return Ok(Tape::steady_of_eight()),
        _ => {}
    }
    let known = || embedded_names().into_iter().chain([STEADY, STEADY_OF_EIGHT]).collect::<Vec<_>>().join(", ");
    let (name, text) = EMBEDDED
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| TapeError::Unknown { name: name.to_owned(), known: known() })?;
    Tape::read(name, text)
}

#[derive(Deserialize)]
struct File {
    source: String,
    recorded: String,
    cloud: String,
    instance_type: String,
    accelerator: String,
    accelerators: u32,
    on_demand_microusd: i64,
    notice_seconds: i64,
    tick_seconds: i64,
    zones: Vec<FileZone>,
}

#[derive(Deserialize)]
struct FileZone {
    zone: String,
    capacity_runs: Vec<(u32, u32)>,
    price_runs_microusd: Vec<(u32, i64)>,
}

/// What a zone offers at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quote {
    /// Instances that could be had.
    pub capacity: u32,
    /// Spot price an hour.
    pub price: NanoUsd,
}

/// A recorded market.
#[derive(Clone, Debug)]
pub struct Tape {
    pub name: String,
    pub source: String,
    pub recorded: String,
    pub cloud: String,
    /// What was for sale.
    pub instance_type: String,
    /// What is in it.
    pub accelerator: String,
    pub accelerators: u32,
    /// An hour.
    pub on_demand: NanoUsd,
    /// Warning before a lease is taken away.
    pub notice: Span,
    pub tick: Span,
    zones: Vec<(String, Vec<Quote>)>,
}

impl Tape {
    fn steady() -> Tape {
        Tape {
            name: STEADY.to_owned(),
            source: "invented".to_owned(),
            recorded: "never".to_owned(),
            cloud: "none".to_owned(),
            instance_type: "stage".to_owned(),
            accelerator: "any".to_owned(),
            accelerators: u32::MAX,
            on_demand: NanoUsd::from_dollars(3.0),
            notice: Span::minutes(2),
            tick: Span::hours(1),
            zones: vec![("stage".to_owned(), vec![Quote { capacity: 1_000, price: NanoUsd::from_dollars(1.0) }])],
        }
    }

    fn steady_of_eight() -> Tape {
        let price = NanoUsd::from_dollars(8.0);
        Tape {
            name: STEADY_OF_EIGHT.to_owned(),
            accelerator: "V100".to_owned(),
            accelerators: 8,
            on_demand: NanoUsd::from_dollars(24.0),
            zones: vec![("stage".to_owned(), vec![Quote { capacity: 16, price }])],
            ..Tape::steady()
        }
    }

    fn read(name: &str, text: &str) -> Result<Tape, TapeError> {
        let file: File =
            serde_json::from_str(text).map_err(|source| TapeError::Malformed { name: name.to_owned(), source })?;
        let wrong = |what: String| TapeError::Inconsistent { name: name.to_owned(), what };
        if file.tick_seconds <= 0 || file.zones.is_empty() {
            return Err(wrong("it has no ticks or no zones".to_owned()));
        }
        let mut zones = Vec::new();
        for zone in file.zones {
            let capacity = unroll(&zone.capacity_runs);
            let price = unroll(&zone.price_runs_microusd);
            if capacity.len() != price.len() || capacity.is_empty() {
                return Err(wrong(format!(
                    "{} has {} capacities and {} prices",
                    zone.zone,
                    capacity.len(),
                    price.len()
                )));
            }
            let quotes = capacity.into_iter().zip(price);
            let quotes = quotes.map(|(capacity, micro)| Quote { capacity, price: NanoUsd(micro * 1_000) }).collect();
            zones.push((zone.zone, quotes));
        }
        Ok(Tape {
            name: name.to_owned(),
            source: file.source,
            recorded: file.recorded,
            cloud: file.cloud,
            instance_type: file.instance_type,
            accelerator: file.accelerator,
            accelerators: file.accelerators,
            on_demand: NanoUsd(file.on_demand_microusd * 1_000),
            notice: Span::seconds(file.notice_seconds),
            tick: Span::seconds(file.tick_seconds),
            zones,
        })
    }

    /// The same market with these zones only; all of them when the list is empty.
    pub fn with_zones(mut self, wanted: &[String]) -> Result<Tape, TapeError> {
        for zone in wanted {
            if !self.zones.iter().any(|(known, _)| known == zone) {
                let known = self.zones().collect::<Vec<_>>().join(", ");
                return Err(TapeError::NoZone { name: self.name, zone: zone.clone(), known });
            }
        }
        if !wanted.is_empty() {
            self.zones.retain(|(zone, _)| wanted.contains(zone));
        }
        Ok(self)
    }

    /// The zones on it.
    pub fn zones(&self) -> impl Iterator<Item = &str> {
        self.zones.iter().map(|(zone, _)| zone.as_str())
    }

    /// Where a zone is: its region, as AWS (us-west-2c) and Google (us-west1-b) name zones.
    pub fn place(&self, zone: &str) -> Place {
        let region = zone.strip_suffix(|letter: char| letter.is_ascii_lowercase()).unwrap_or(zone);
        Place { cloud: self.cloud.clone(), region: region.trim_end_matches('-').to_owned() }
    }

    /// Each zone as a recording of its own, named `market/zone`.
    pub fn recordings(&self) -> Vec<Recording> {
        let zone = |(zone, quotes): &(String, Vec<Quote>)| Recording {
            name: format!("{}/{zone}", self.name),
            tick: self.tick,
            counts: quotes.iter().map(|quote| quote.capacity).collect(),
            prices: Some(quotes.iter().map(|quote| quote.price).collect()),
        };
        self.zones.iter().map(zone).collect()
    }

    /// What a zone offers at an offset from the tape's beginning.
    pub fn quote(&self, zone: &str, offset: Span) -> Option<Quote> {
        let (_, quotes) = self.zones.iter().find(|(known, _)| known == zone)?;
        Some(quotes[self.index(offset, quotes.len())])
    }

    /// How long from `offset` until a zone has fewer than `count` instances; none if not within `within`.
    pub fn falls_below(&self, zone: &str, count: u32, offset: Span, within: Span) -> Option<Span> {
        let (_, quotes) = self.zones.iter().find(|(known, _)| known == zone)?;
        let mut at = offset;
        loop {
            if quotes[self.index(at, quotes.len())].capacity < count {
                return Some(Span((at - offset).0.max(0)));
            }
            at = Span((at.0.div_euclid(self.tick.0) + 1) * self.tick.0);
            if (at - offset) > within {
                return None;
            }
        }
    }

    /// The lowest spot price of any zone at any time.
    pub fn cheapest(&self) -> Option<NanoUsd> {
        self.zones.iter().flat_map(|(_, quotes)| quotes.iter().map(|quote| quote.price)).min()
    }

    /// The most instances that any zone has at any time.
    pub fn most(&self) -> Option<u32> {
        self.zones.iter().flat_map(|(_, quotes)| quotes.iter().map(|quote| quote.capacity)).max()
    }

    /// Whether a zone is ever without `count` instances, so that leases are taken away.
    pub fn ever_lacks(&self, count: u32) -> bool {
        self.zones.iter().any(|(_, quotes)| quotes.iter().any(|quote| quote.capacity < count))
    }

    fn index(&self, offset: Span, len: usize) -> usize {
        let tick = offset.0.div_euclid(self.tick.0);
        usize::try_from(tick.rem_euclid(len as i64)).unwrap_or(0)
    }
}

fn unroll<T: Copy>(runs: &[(u32, T)]) -> Vec<T> {
    runs.iter().flat_map(|(count, value)| std::iter::repeat_n(*value, *count as usize)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_what_the_tapes_say() {
        let mut said = std::collections::BTreeSet::new();
        for name in embedded_names() {
            let tape = embedded(name).expect("an embedded tape");
            assert!(tape.source.contains("capacity: ") && tape.recorded.contains("20"), "{name}: {}", tape.source);
            for zone in tape.zones() {
                let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
                said.insert((tape.cloud.clone(), region.to_owned(), tape.instance_type.clone()));
            }
        }
        let known = |(cloud, region, kind): (&str, &str, &str)| (cloud.to_owned(), region.to_owned(), kind.to_owned());
        assert_eq!(said, recorded().into_iter().map(known).collect());
    }

    #[test]
    fn a_tape_gives_its_zones_as_recordings() {
        let recordings = embedded("aws-v100-16-nodes-2023").expect("embedded").recordings();
        assert_eq!(recordings.len(), 1);
        assert_eq!(recordings[0].name, "aws-v100-16-nodes-2023/us-east-2b");
        assert_eq!(recordings[0].counts.iter().max(), Some(&16));
        assert_eq!(recordings[0].prices.as_ref().map(Vec::len), Some(recordings[0].counts.len()));
    }

    #[test]
    fn the_embedded_market_is_whole_and_loses_capacity_in_the_quickstart_window() {
        let tape = embedded("aws-v100-us-west-2-2023").expect("embedded");
        assert_eq!(tape.zones().count(), 3);
        let start = Span(8461 * tape.tick.0);
        let falls = tape.falls_below("us-west-2c", 1, start, Span::hours(1)).expect("falls");
        assert_eq!(falls, Span(7 * tape.tick.0));
        assert_eq!(tape.quote("us-west-2c", start).expect("zone").price, NanoUsd::from_dollars(0.918));
    }

    #[test]
    fn a_market_that_never_lacks_capacity_is_known_by_what_is_on_the_tape() {
        assert!(!Tape::steady().ever_lacks(1_000) && Tape::steady().ever_lacks(1_001));
        assert!(embedded("aws-v100-us-west-2-2023").expect("embedded").ever_lacks(1));
    }

    #[test]
    fn an_unknown_market_or_zone_is_named_with_what_there_is() {
        assert!(embedded("nope").expect_err("unknown").to_string().contains("aws-v100"));
        let tape = embedded("aws-v100-us-west-2-2023").expect("embedded");
        assert!(tape.with_zones(&["mars-1a".to_owned()]).expect_err("no zone").to_string().contains("us-west-2c"));
    }
}
