//! What `windfall run` can lease here: the offers of the replayed market, as a catalogue of their own, so that one
//! planner speaks of both.

use crate::exit::{Code, Failure};
use std::borrow::Cow;
use windfall_catalog::{Catalog, Count, Facts, Source, Term, TypeFacts, format};
use windfall_core::Span;
use windfall_server::home::DEFAULT_MARKET;

/// The offers of the market that a new server replays, as they are at its beginning.
pub fn catalog() -> Result<Catalog, Failure> {
    let tape = windfall_sim::embedded(DEFAULT_MARKET).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    let mut facts = Facts::default();
    facts.knowledge = Facts::from_catalog(&Catalog::embedded()).knowledge;
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
        if let Some(quote) = tape.quote(zone, Span::ZERO) {
            facts.price(kind, region, Some(zone), Term::Spot, quote.price, source);
        }
        facts.price(kind, region, None, Term::OnDemand, tape.on_demand, source);
    }
    Catalog::from_bytes(Cow::Owned(format::encode(&facts)), &tape.name, true)
        .map_err(|error| Failure::new(Code::Bug, error.to_string()))
}
