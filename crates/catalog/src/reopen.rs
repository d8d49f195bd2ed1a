//! A stored catalogue as facts again, so that they can be added to and stored anew.

use crate::catalog::Catalog;
use crate::facts::Facts;
use crate::knowledge::Knowledge;

impl Facts {
    /// Everything that an open catalogue knows, to build on.
    pub fn from_catalog(catalog: &Catalog) -> Facts {
        let knowledge = Knowledge {
            accelerators: catalog.accelerators().to_vec(),
            throughput: catalog.throughput().clone(),
            data: catalog.data_costs().clone(),
        };
        let mut facts = Facts::default();
        (facts.sources, facts.knowledge) = (catalog.sources().to_vec(), knowledge);
        for kind in catalog.instance_types() {
            let id = facts.instance(catalog.type_facts(kind));
            catalog.offers_of(kind, false, |offer| {
                let source = facts.source(offer.source.clone());
                facts.price(id, offer.region, offer.zone, offer.term, offer.price, source);
                catalog.all_zones(&offer).into_iter().for_each(|zone| facts.sold_in(id, offer.region, zone));
                if let Some((band, source)) = offer.band.zip(offer.band_source) {
                    let source = facts.source(source.clone());
                    facts.band(id, offer.region, band, source);
                }
            });
            for (region, zone, term, history) in catalog.histories(kind) {
                facts.set_history(id, region, zone, term, history);
            }
        }
        facts
    }
}
