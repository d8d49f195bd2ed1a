//! AWS's bulk offer file of EC2: gigabytes of JSON, products first, then terms. Read as a stream: of each product that
//! is a plain Linux instance its key is kept, everything else is dropped as soon as it is parsed.

use super::chips::{self, filled};
use super::rows::Rows;
use crate::error::BuildError;
use crate::facts::{Facts, TypeId};
use crate::money;
use crate::words::{Count, Term};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;
use std::io::{BufReader, Read};

/// What the file says.
pub struct Offers {
    /// Prices.
    pub rows: Rows,
    /// The day it was published.
    pub as_of: Option<String>,
}

/// Reads a bulk offer file.
pub fn read(facts: &mut Facts, file: &str, reader: impl Read) -> Result<Offers, BuildError> {
    let mut state =
        State { facts, products: BTreeMap::new(), rows: Rows::default(), published: None, saw_products: false };
    let mut json = serde_json::Deserializer::from_reader(BufReader::new(reader));
    let parsed = Part { state: &mut state, level: Level::Top }.deserialize(&mut json).and_then(|()| json.end());
    parsed.map_err(|error| {
        BuildError::bad(file, format!("line {} column {}", error.line(), error.column()), plain(&error))
    })?;
    let as_of = state.published.map(|published| published.chars().take(10).collect());
    Ok(Offers { rows: state.rows, as_of })
}

/// The message without the position in the file, which is reported beside it.
pub(super) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

struct State<'f> {
    facts: &'f mut Facts,
    /// SKU to type and region.
    products: BTreeMap<String, (TypeId, String)>,
    rows: Rows,
    published: Option<String>,
    saw_products: bool,
}

#[derive(Deserialize)]
struct Product {
    #[serde(rename = "productFamily", default)]
    family: String,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Attributes {
    instance_type: Option<String>,
    region_code: Option<String>,
    operating_system: Option<String>,
    tenancy: Option<String>,
    pre_installed_sw: Option<String>,
    capacitystatus: Option<String>,
    marketoption: Option<String>,
    operation: Option<String>,
    vcpu: Option<String>,
    memory: Option<String>,
    gpu: Option<String>,
}

impl Product {
    /// Instances that one can rent as they are: Linux without licences, shared hardware, no reserved capacity.
    fn is_plain(&self) -> bool {
        let is = |value: &Option<String>, wanted: &str| value.as_deref() == Some(wanted);
        let is_or_unsaid = |value: &Option<String>, wanted: &str| value.is_none() || is(value, wanted);
        let of = &self.attributes;
        self.family.starts_with("Compute Instance")
            && is(&of.operating_system, "Linux")
            && is(&of.tenancy, "Shared")
            && is(&of.pre_installed_sw, "NA")
            && is(&of.capacitystatus, "Used")
            // Capacity blocks are sold by the term and listed at zero or a share.
            && is_or_unsaid(&of.marketoption, "OnDemand")
            && is_or_unsaid(&of.operation, "RunInstances")
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfferTerm {
    #[serde(default)]
    price_dimensions: BTreeMap<String, Dimension>,
    #[serde(default)]
    term_attributes: TermAttributes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    #[serde(default)]
    unit: String,
    price_per_unit: BTreeMap<String, String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct TermAttributes {
    lease_contract_length: String,
    offering_class: String,
    purchase_option: String,
}

impl State<'_> {
    fn product(&mut self, sku: String, product: &Product) {
        let of = &product.attributes;
        let (Some(name), Some(region)) = (&of.instance_type, &of.region_code) else { return };
        let known = self.facts.named("aws", name).next();
        let kind = known.unwrap_or_else(|| {
            let count = of.gpu.as_deref().and_then(Count::parse);
            let claim = chips::Claim { name: chips::aws_family(name).unwrap_or_default(), count, ..Default::default() };
            let number = |text: &Option<String>| -> Option<f64> {
                text.as_ref()?.split(' ').next()?.replace(',', "").parse().ok()
            };
            let vcpus = number(&of.vcpu).map(|cores| (cores * 1_000.0) as u32);
            let memory = number(&of.memory).map(|gib| (gib * 1_024.0) as u32);
            self.facts.instance(filled("aws", name, chips::settle("aws", name, claim), vcpus, memory, None))
        });
        self.products.insert(sku, (kind, region.clone()));
    }

    fn term(&mut self, sku: &str, offer: &OfferTerm, reserved: bool) -> Result<(), String> {
        let Some((kind, region)) = self.products.get(sku) else { return Ok(()) };
        let Some(term) = offer.term(reserved) else { return Ok(()) };
        for dimension in offer.price_dimensions.values().filter(|dimension| dimension.unit == "Hrs") {
            let (currency, amount) = match dimension.price_per_unit.get_key_value("USD") {
                Some(usd) => usd,
                None => dimension.price_per_unit.iter().next().ok_or_else(|| format!("{sku}: there is no price"))?,
            };
            money::dollars(currency).map_err(|error| format!("{sku}: {error}"))?;
            if let Some(price) = money::price(amount).map_err(|error| format!("{sku}: {error}"))? {
                self.rows.add(*kind, region, None, term, price);
            }
        }
        Ok(())
    }
}

impl OfferTerm {
    /// The term that a price is for. Of commitments only the standard ones without advance payment count.
    fn term(&self, reserved: bool) -> Option<Term> {
        let of = &self.term_attributes;
        match of.lease_contract_length.as_str() {
            _ if !reserved => Some(Term::OnDemand),
            _ if of.offering_class != "standard" || of.purchase_option != "No Upfront" => None,
            "1yr" => Some(Term::Reserved1y),
            "3yr" => Some(Term::Reserved3y),
            _ => None,
        }
    }
}

/// A part of the file: what to do with each entry of a map, of which one is in memory at a time.
struct Part<'s, 'f> {
    state: &'s mut State<'f>,
    level: Level,
}

#[derive(Clone, Copy)]
enum Level {
    Top,
    Products,
    Terms,
    Offers { reserved: bool },
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object of an AWS offer file")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        let Part { state, level } = self;
        while let Some(key) = map.next_key::<String>()? {
            match level {
                Level::Top => top(state, &key, &mut map)?,
                Level::Products => {
                    let product: Product = map.next_value()?;
                    if product.is_plain() {
                        state.product(key, &product);
                    }
                }
                Level::Terms => match key.as_str() {
                    "OnDemand" | "Reserved" => {
                        let level = Level::Offers { reserved: key == "Reserved" };
                        map.next_value_seed(Part { state: &mut *state, level })?;
                    }
                    _ => drop(map.next_value::<IgnoredAny>()?),
                },
                Level::Offers { .. } if !state.products.contains_key(&key) => drop(map.next_value::<IgnoredAny>()?),
                Level::Offers { reserved } => {
                    let offers: BTreeMap<String, OfferTerm> = map.next_value()?;
                    for offer in offers.values() {
                        state.term(&key, offer, reserved).map_err(M::Error::custom)?;
                    }
                }
            }
        }
        match level {
            Level::Top if !state.saw_products => Err(M::Error::custom("there are no products")),
            _ => Ok(()),
        }
    }
}

fn top<'de, M: MapAccess<'de>>(state: &mut State<'_>, key: &str, map: &mut M) -> Result<(), M::Error> {
    match key {
        "publicationDate" => state.published = Some(map.next_value()?),
        "offerCode" => {
            let code: String = map.next_value()?;
            if code != "AmazonEC2" {
                return Err(M::Error::custom(format!("the offer is {code}, not AmazonEC2")));
            }
        }
        "products" => {
            state.saw_products = true;
            map.next_value_seed(Part { state, level: Level::Products })?;
        }
        "terms" if !state.saw_products => return Err(M::Error::custom("terms come before products")),
        "terms" => map.next_value_seed(Part { state, level: Level::Terms })?,
        _ => drop(map.next_value::<IgnoredAny>()?),
    }
    Ok(())
}
