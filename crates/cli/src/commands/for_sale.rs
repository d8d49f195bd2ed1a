//! What a job can choose from: all of the catalogue, or what `windfall run` can lease here. The offers of the replayed
//! market are a catalogue of their own, so that one planner ranks both.

use super::facts::catalog;
use crate::here::Here;
use std::borrow::Cow;
use windfall_catalog::{Catalog, Count, Facts, Source, Term, TypeFacts, format};
use windfall_server::client::{Code, Failure};
use windfall_server::home::WorldSettings;

/// What there is to choose from.
pub struct ForSale {
    pub catalog: Catalog,
    /// The name of the replayed market; none for the whole catalogue.
    pub market: Option<String>,
    /// The most spot instances that the market ever has at once.
    pub most_spot: Option<u32>,
}

/// All of the catalogue, or with `only_here` what can be leased on this machine: the replayed market.
pub fn for_sale(here: &Here, only_here: bool) -> Result<ForSale, Failure> {
    if only_here { replayed(here) } else { Ok(ForSale { catalog: catalog(here)?, market: None, most_spot: None }) }
}

/// The offers of the market that this state directory replays, or a new server would, as they are where its window
/// begins; and what that market is called.
pub fn replayed(here: &Here) -> Result<ForSale, Failure> {
    let world = WorldSettings::of(&here.home).map_err(|error| {
        Failure::new(Code::BadInput, error.to_string()).hint("name another state directory with --home")
    })?;
    let world = world.unwrap_or_default();
    let Some(replay) = world.replay() else {
        let message = "this state directory uses the computer itself, and no market that could be planned with";
        return Err(Failure::new(Code::BadInput, message).hint("plan without --here, or name another --home"));
    };
    let tape = windfall_sim::embedded(&replay.market)
        .and_then(|tape| tape.with_zones(&replay.zones))
        .map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let zones: Vec<&str> = tape.zones().collect();
    let name = format!("replay of {}, {}", tape.name, zones.join(", "));
    let known = Catalog::embedded();
    if known.wanted(&tape.accelerator).is_err() {
        let message = format!("{} is an invented market, without accelerators that could be planned with", tape.name);
        return Err(Failure::new(Code::BadInput, message).hint("plan without --here, or name another --home"));
    }
    let mut facts = Facts::default();
    facts.knowledge = Facts::from_catalog(&known).knowledge;
    let source = facts.source(Source {
        name: format!("replay/{}", tape.name),
        what: "a recorded spot market".to_owned(),
        licence: tape.source.clone(),
        as_of: tape.recorded.clone(),
    });
    let kind = facts.instance(TypeFacts {
        cloud: tape.cloud.clone(),
        name: tape.instance_type.clone(),
        accelerator: Some(tape.accelerator.clone()),
        count: Count::whole(tape.accelerators),
        ..TypeFacts::default()
    });
    for zone in tape.zones() {
        let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        if let Some(quote) = tape.quote(zone, replay.from) {
            facts.price(kind, region, Some(zone), Term::Spot, quote.price, source);
        }
        facts.price(kind, region, None, Term::OnDemand, tape.on_demand, source);
    }
    let catalog = Catalog::from_bytes(Cow::Owned(format::encode(&facts)), &tape.name, true)
        .map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    Ok(ForSale { catalog, market: Some(name), most_spot: tape.most() })
}
