//! Which offers meet a request, in what order; and when none does, which part of the request rules them all out.

use crate::catalog::Catalog;
use crate::names;
use crate::offer::{InstanceType, Offer};
use crate::words::{Count, Term};
use std::cmp::Ordering;
use windfall_core::NanoUsd;
use windfall_core::nearest::nearest;

/// An accelerator somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub family: String,
    /// The model, when the name says it: `H100-PCIe`.
    pub model: Option<String>,
    /// How many in an instance; none for any number.
    pub count: Option<Count>,
}

/// Why a request cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Nobody sells such an accelerator.
    #[error("no accelerator is called `{typed}`")]
    UnknownAccelerator {
        /// What was typed.
        typed: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// Not a number of accelerators.
    #[error("`{typed}` is not a number of accelerators")]
    BadCount {
        /// What was typed.
        typed: String,
    },
    /// No such cloud.
    #[error("no cloud is called `{typed}`")]
    UnknownCloud {
        /// What was typed.
        typed: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
    /// No such region.
    #[error("no region or zone is called `{typed}`")]
    UnknownRegion {
        /// What was typed.
        typed: String,
        /// What may have been meant.
        nearest: Option<String>,
    },
}

/// What offers are put in order by; what is unknown comes last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// An instance-hour.
    #[default]
    Price,
    /// An hour of one accelerator.
    PricePerAccelerator,
    /// An hour of one peak training TFLOP/s.
    PricePerTflop,
    /// An hour of one GB of accelerator memory.
    PricePerGb,
}

/// A request. Empty lists and nones ask for nothing.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Any of these accelerators; when empty, any accelerator at all.
    pub accelerators: Vec<Wanted>,
    /// Instances without accelerators instead.
    pub without_accelerators: bool,
    pub clouds: Vec<String>,
    /// In these regions or zones.
    pub regions: Vec<String>,
    /// Of these instance types.
    pub instance_types: Vec<String>,
    /// On these terms.
    pub terms: Vec<Term>,
    /// With at least this much main memory.
    pub min_memory_gib: Option<f64>,
    /// With at least this much memory on one accelerator.
    pub min_accelerator_memory_gb: Option<f64>,
    /// With at least so many virtual cores.
    pub min_vcpus: Option<f64>,
    /// At most this an hour.
    pub max_price: Option<NanoUsd>,
    /// One offer for each zone, also where the price holds in the whole region.
    pub by_zone: bool,
    pub sort: Sort,
    /// At most so many.
    pub limit: Option<usize>,
}

/// The part of a request that rules out every offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The constraint as it was asked: `region eu-north-1`.
    pub constraint: String,
    /// What there would be without it: `in other regions: us-east-1, us-west-2`.
    pub instead: Option<String>,
}

/// One part of a request that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Count,
    Clouds,
    Regions,
    InstanceTypes,
    Terms,
    Memory,
    AcceleratorMemory,
    Cores,
    MaxPrice,
}

const PARTS: [Part; 9] = [
    Part::Count,
    Part::Clouds,
    Part::Regions,
    Part::InstanceTypes,
    Part::Terms,
    Part::Memory,
    Part::AcceleratorMemory,
    Part::Cores,
    Part::MaxPrice,
];

impl Catalog {
    /// Reads `H100`, `H100:8`, `H100-PCIe:2`, `L4:0.5` or a TPU slice such as `v5litepod-8`.
    pub fn wanted(&self, typed: &str) -> Result<Wanted, BadRequest> {
        let (name, count) = match typed.split_once(':') {
            Some((name, count)) => {
                let parsed = Count::parse(count).ok_or_else(|| BadRequest::BadCount { typed: count.to_owned() })?;
                (name.trim(), Some(parsed))
            }
            None => (typed.trim(), None),
        };
        if let Some((family, chips)) = names::tpu_slice(name) {
            return Ok(Wanted { family: family.to_owned(), model: None, count: Some(Count::whole(chips)) });
        }
        if let Some(named) = names::lookup(name) {
            let model = named.model.filter(|_| named.exact).map(str::to_owned);
            return Ok(Wanted { family: named.family, model, count });
        }
        let mut sold = self.families();
        if let Some(family) = sold.iter().find(|family| family.eq_ignore_ascii_case(name)) {
            return Ok(Wanted { family: (*family).to_owned(), model: None, count });
        }
        sold.extend(self.accelerators().iter().map(|sheet| sheet.model.as_str()));
        if let Some(sheet) = self.accelerators().iter().find(|sheet| sheet.model.eq_ignore_ascii_case(name)) {
            return Ok(Wanted { family: sheet.family.clone(), model: Some(sheet.model.clone()), count });
        }
        let nearest = names::suggest(name, sold).map(str::to_owned);
        Err(BadRequest::UnknownAccelerator { typed: name.to_owned(), nearest })
    }

    /// Fails unless the catalogue has offers in this cloud.
    pub fn known_cloud(&self, typed: &str) -> Result<(), BadRequest> {
        if self.regions().any(|(cloud, _)| cloud == typed) {
            return Ok(());
        }
        let nearest = nearest(typed, self.regions().map(|(cloud, _)| cloud)).map(str::to_owned);
        Err(BadRequest::UnknownCloud { typed: typed.to_owned(), nearest })
    }

    /// Fails unless the catalogue has offers in this region or zone.
    pub fn known_region(&self, typed: &str) -> Result<(), BadRequest> {
        if self.regions().any(|(_, region)| region == typed) || self.zone_names().any(|zone| zone == typed) {
            return Ok(());
        }
        let nearest = nearest(typed, self.regions().map(|(_, region)| region)).map(str::to_owned);
        Err(BadRequest::UnknownRegion { typed: typed.to_owned(), nearest })
    }

    /// Families of accelerators in the catalogue, sorted.
    pub fn families(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.instance_types().filter_map(|kind| kind.accelerator).collect();
        all.dedup();
        all
    }

    /// The offers that meet a request, in its order.
    pub fn search(&self, query: &Query) -> Vec<Offer<'_>> {
        let mut found = self.matching(query, None);
        found.sort_by(|a, b| in_order(query.sort, a, b));
        found.truncate(query.limit.unwrap_or(usize::MAX));
        found
    }

    /// Why nothing meets a request: the parts each of which alone rules everything out; when it takes several
    /// together, the first part after which nothing is left.
    pub fn obstacles(&self, query: &Query) -> Vec<Obstacle> {
        let asked: Vec<Part> = PARTS.into_iter().filter(|part| query.asks(*part)).collect();
        let alone: Vec<Obstacle> = asked
            .iter()
            .map(|part| (part, self.matching(&query.without(&[*part]), None)))
            .filter(|(_, found)| !found.is_empty())
            .map(|(part, found)| self.obstacle(query, *part, &found))
            .collect();
        if !alone.is_empty() {
            return alone;
        }
        let narrowing = (0..asked.len()).find_map(|kept| {
            let before = self.matching(&query.without(&asked[kept..]), None);
            let after = self.matching(&query.without(&asked[kept + 1..]), Some(1));
            (!before.is_empty() && after.is_empty()).then(|| self.obstacle(query, asked[kept], &before))
        });
        let nothing_at_all = || Obstacle { constraint: query.accelerator_words(), instead: None };
        vec![narrowing.unwrap_or_else(nothing_at_all)]
    }

    fn matching(&self, query: &Query, at_most: Option<usize>) -> Vec<Offer<'_>> {
        let mut found = Vec::new();
        for kind in self.instance_types().filter(|kind| query.takes_type(kind)) {
            self.offers_of(kind, query.by_zone, |offer| {
                if query.takes_offer(self, &offer) {
                    found.push(offer);
                }
            });
            if at_most.is_some_and(|most| found.len() >= most) {
                break;
            }
        }
        found
    }

    fn zone_names(&self) -> impl Iterator<Item = &str> {
        self.places_with_zones().flat_map(|(_, _, zones)| zones)
    }

    fn obstacle(&self, query: &Query, part: Part, others: &[Offer<'_>]) -> Obstacle {
        let several = |mut words: Vec<String>| {
            words.sort_unstable();
            words.dedup();
            let more = words.len().saturating_sub(6);
            words.truncate(6);
            words.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
        };
        let each = |word: &dyn Fn(&Offer<'_>) -> String| several(others.iter().map(word).collect());
        let most = |value: &dyn Fn(&Offer<'_>) -> Option<f64>| {
            others.iter().filter_map(value).fold(None, |most: Option<f64>, value| Some(most.unwrap_or(0.0).max(value)))
        };
        let joined = |words: &[String]| words.join(",");
        let (constraint, instead) = match part {
            Part::Count => {
                let mut counts: Vec<Count> = others.iter().map(|offer| offer.kind.count).collect();
                counts.sort_unstable();
                counts.dedup();
                let counts: Vec<String> = counts.iter().take(12).map(Count::to_string).collect();
                (query.accelerator_words(), Some(format!("instances have {} of them", counts.join(", "))))
            }
            Part::Clouds => (
                format!("cloud {}", joined(&query.clouds)),
                Some(format!("sold by {}", each(&|o| o.kind.cloud.into()))),
            ),
            Part::Regions => {
                (format!("region {}", joined(&query.regions)), Some(format!("sold in {}", each(&|o| o.region.into()))))
            }
            Part::InstanceTypes => (
                format!("instance type {}", joined(&query.instance_types)),
                Some(format!("there are {}", each(&|o| o.kind.name.into()))),
            ),
            Part::Terms => {
                let words: Vec<&str> = query.terms.iter().map(|term| term.word()).collect();
                (format!("market {}", words.join(",")), Some(format!("sold as {}", each(&|o| o.term.word().into()))))
            }
            Part::Memory => (
                format!("at least {} GiB of memory", query.min_memory_gib.unwrap_or(0.0)),
                most(&|o| o.kind.memory_gib).map(|most| format!("the most is {most} GiB")),
            ),
            Part::AcceleratorMemory => (
                format!("at least {} GB on an accelerator", query.min_accelerator_memory_gb.unwrap_or(0.0)),
                most(&|o| o.kind.accelerator_memory_gb).map(|most| format!("the most is {most:.0} GB")),
            ),
            Part::Cores => (
                format!("at least {} virtual cores", query.min_vcpus.unwrap_or(0.0)),
                most(&|o| o.kind.vcpus).map(|most| format!("the most is {most}")),
            ),
            Part::MaxPrice => (
                format!("at most {} an hour", query.max_price.unwrap_or_default()),
                others.iter().map(|offer| offer.price).min().map(|least| format!("the cheapest is {least} an hour")),
            ),
        };
        Obstacle { constraint, instead }
    }
}

impl Query {
    fn asks(&self, part: Part) -> bool {
        match part {
            Part::Count => self.accelerators.iter().any(|wanted| wanted.count.is_some()),
            Part::Clouds => !self.clouds.is_empty(),
            Part::Regions => !self.regions.is_empty(),
            Part::InstanceTypes => !self.instance_types.is_empty(),
            Part::Terms => !self.terms.is_empty(),
            Part::Memory => self.min_memory_gib.is_some(),
            Part::AcceleratorMemory => self.min_accelerator_memory_gb.is_some(),
            Part::Cores => self.min_vcpus.is_some(),
            Part::MaxPrice => self.max_price.is_some(),
        }
    }

    fn without(&self, parts: &[Part]) -> Query {
        let mut query = Query { by_zone: false, limit: None, ..self.clone() };
        for part in parts {
            match part {
                Part::Count => query.accelerators.iter_mut().for_each(|wanted| wanted.count = None),
                Part::Clouds => query.clouds.clear(),
                Part::Regions => query.regions.clear(),
                Part::InstanceTypes => query.instance_types.clear(),
                Part::Terms => query.terms.clear(),
                Part::Memory => query.min_memory_gib = None,
                Part::AcceleratorMemory => query.min_accelerator_memory_gb = None,
                Part::Cores => query.min_vcpus = None,
                Part::MaxPrice => query.max_price = None,
            }
        }
        query
    }

    /// `H100:8 or A100:8`.
    pub fn accelerator_words(&self) -> String {
        let word = |wanted: &Wanted| match wanted.count {
            Some(count) => format!("{}:{}", wanted.model.as_ref().unwrap_or(&wanted.family), count.as_f64()),
            None => wanted.model.clone().unwrap_or_else(|| wanted.family.clone()),
        };
        let words: Vec<String> = self.accelerators.iter().map(word).collect();
        if words.is_empty() { "any accelerator".to_owned() } else { words.join(" or ") }
    }

    fn takes_type(&self, kind: &InstanceType<'_>) -> bool {
        let at_least = |value: Option<f64>, least: Option<f64>| match least {
            Some(least) => value.is_some_and(|value| value + 1e-9 >= least),
            None => true,
        };
        let accelerator = match kind.accelerator {
            None => self.without_accelerators,
            Some(_) if self.without_accelerators => false,
            Some(family) => {
                self.accelerators.is_empty() || self.accelerators.iter().any(|wanted| wanted.is_met(family, kind))
            }
        };
        accelerator
            && (self.clouds.is_empty() || self.clouds.iter().any(|cloud| cloud == kind.cloud))
            && (self.instance_types.is_empty() || self.instance_types.iter().any(|name| name == kind.name))
            && at_least(kind.memory_gib, self.min_memory_gib)
            && at_least(kind.accelerator_memory_gb, self.min_accelerator_memory_gb)
            && at_least(kind.vcpus, self.min_vcpus)
    }

    fn takes_offer(&self, catalog: &Catalog, offer: &Offer<'_>) -> bool {
        let here = |asked: &String| asked == offer.region || catalog.zones(offer).contains(&asked.as_str());
        (self.terms.is_empty() || self.terms.contains(&offer.term))
            && (self.regions.is_empty() || self.regions.iter().any(here))
            && self.max_price.is_none_or(|most| offer.price <= most)
    }
}

impl Wanted {
    /// Whether an instance type, whose accelerators are of `family`, is what was asked for.
    pub(crate) fn is_met(&self, family: &str, kind: &InstanceType<'_>) -> bool {
        self.family == family
            && self.count.is_none_or(|count| count == kind.count)
            && self.model.as_ref().is_none_or(|model| kind.sheet.is_some_and(|sheet| sheet.model == *model))
    }
}

fn in_order(sort: Sort, a: &Offer<'_>, b: &Offer<'_>) -> Ordering {
    let key = |offer: &Offer<'_>| match sort {
        Sort::Price => Some(offer.price),
        Sort::PricePerAccelerator => offer.price_per_accelerator(),
        Sort::PricePerTflop => offer.price_per_tflop(),
        Sort::PricePerGb => offer.price_per_gb(),
    };
    let known_first = |key: Option<NanoUsd>| key.map_or(i64::MAX, |price| price.0);
    let name = |offer: &Offer<'_>| (offer.price, offer.term, offer.kind.count);
    known_first(key(a)).cmp(&known_first(key(b))).then_with(|| name(a).cmp(&name(b))).then_with(|| {
        let of = |offer: &Offer<'_>| (offer.kind.at, offer.region_at);
        of(a).cmp(&of(b)).then_with(|| a.zone.cmp(&b.zone))
    })
}
