//! Pages of Google's `skus.list` for Compute Engine: prices of cores, memory and accelerators, of which machine types
//! are put together. What a machine type consists of is known from the catalogue that one starts with. Bundled local
//! SSD has a SKU that does not say which machines have it, so it is not in these sums.

use super::aws_bulk::plain;
use super::rows::Rows;
use super::stream::array_field;
use crate::error::BuildError;
use crate::facts::{Facts, TypeFacts};
use crate::money;
use crate::names;
use crate::words::Term;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use windfall_core::NanoUsd;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sku {
    description: String,
    category: Category,
    #[serde(default)]
    service_regions: Vec<String>,
    #[serde(default)]
    pricing_info: Vec<PricingInfo>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Category {
    #[serde(default)]
    resource_family: String,
    #[serde(default)]
    usage_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PricingInfo {
    pricing_expression: PricingExpression,
    effective_time: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PricingExpression {
    #[serde(default)]
    usage_unit: String,
    #[serde(default)]
    tiered_rates: Vec<Rate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rate {
    unit_price: UnitPrice,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnitPrice {
    currency_code: String,
    #[serde(default)]
    units: String,
    #[serde(default)]
    nanos: i64,
}

/// Prices of parts, by what they are, region and term, gathered over all pages.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    prices: BTreeMap<(String, String, Term), NanoUsd>,
    /// The newest day one of them took effect.
    pub as_of: Option<String>,
}

impl Parts {
    /// Reads a page.
    pub fn read(&mut self, file: &str, reader: impl Read) -> Result<(), BuildError> {
        array_field(reader, "skus", |at, sku: Sku| self.add(&sku).map_err(|what| format!("skus[{at}]: {what}")))
            .map_err(|error| {
                BuildError::bad(file, format!("line {} column {}", error.line(), error.column()), plain(&error))
            })
    }

    fn add(&mut self, sku: &Sku) -> Result<(), String> {
        let term = match sku.category.usage_type.as_str() {
            "OnDemand" => Term::OnDemand,
            "Preemptible" => Term::Spot,
            _ => return Ok(()),
        };
        let Some(info) = sku.pricing_info.last() else { return Ok(()) };
        let Some(rate) = info.pricing_expression.tiered_rates.last() else { return Ok(()) };
        money::dollars(&rate.unit_price.currency_code).map_err(|error| error.to_string())?;
        let by_hour = matches!(info.pricing_expression.usage_unit.as_str(), "h" | "GiBy.h");
        let Some(part) = part_of(&sku.description).filter(|_| sku.category.resource_family == "Compute" && by_hour)
        else {
            return Ok(());
        };
        let units: i64 = if rate.unit_price.units.is_empty() {
            0
        } else {
            rate.unit_price.units.parse().map_err(|_| format!("`{}` is not a price", rate.unit_price.units))?
        };
        let text = format!("{units}.{:09}", rate.unit_price.nanos);
        let price = match units < 0 || rate.unit_price.nanos < 0 {
            true => return Err(format!("{units} dollars and {} nanos is a negative price", rate.unit_price.nanos)),
            false => money::price(&text).map_err(|error| error.to_string())?,
        };
        let day = info.effective_time.as_ref().map(|time| time.chars().take(10).collect::<String>());
        self.as_of = self.as_of.take().max(day);
        for region in &sku.service_regions {
            if let Some(price) = price {
                self.prices.insert((part.clone(), region.clone(), term), price);
            }
        }
        Ok(())
    }

    /// Prices of the machine types that are known and whose parts all have one.
    pub fn compose(&self, facts: &Facts) -> Rows {
        let regions: BTreeSet<(&str, Term)> =
            self.prices.keys().map(|(_, region, term)| (region.as_str(), *term)).collect();
        let mut rows = Rows::default();
        for (kind, row) in facts.types().filter(|(_, row)| row.cloud == "gcp") {
            for (region, term) in &regions {
                if let Some(price) = self.machine(row, region, *term) {
                    rows.add(kind, region, None, *term, price);
                }
            }
        }
        rows
    }

    fn machine(&self, row: &TypeFacts, region: &str, term: Term) -> Option<NanoUsd> {
        let part = |name: String| self.prices.get(&(name, region.to_owned(), term)).map(|price| i128::from(price.0));
        let (series, _) = row.name.split_once('-')?;
        let cores = part(format!("{series} core"))? * i128::from(row.vcpus_milli?) / 1_000;
        let memory = part(format!("{series} ram"))? * i128::from(row.memory_mib?) / 1_024;
        let chips = match &row.accelerator {
            Some(family) => {
                let name = if row.name.starts_with("a3-megagpu") { "H100-MEGA" } else { family };
                part(format!("chip {name}"))? * i128::from(row.count.0) / 1_000
            }
            None => 0,
        };
        i64::try_from(cores + memory + chips).ok().map(NanoUsd)
    }
}

/// `N1 Predefined Instance Core running in Americas` is `n1 core`; `Nvidia Tesla A100 GPU attached to Spot
/// Preemptible VMs running in Iowa` is `chip A100`.
fn part_of(description: &str) -> Option<String> {
    let what = description.split(" running in ").next().unwrap_or_default();
    let what = what.split(" attached to ").next().unwrap_or_default();
    let what = what.strip_prefix("Spot Preemptible ").or_else(|| what.strip_prefix("Preemptible ")).unwrap_or(what);
    if let Some(chip) = what.strip_suffix(" GPU").and_then(|what| what.strip_prefix("Nvidia ")) {
        let mega = chip.to_ascii_lowercase().contains("mega");
        return Some(format!("chip {}", if mega { "H100-MEGA".to_owned() } else { names::adopt(chip).family }));
    }
    let (machine, part) = what.rsplit_once(' ')?;
    let part = match part {
        "Core" => "core",
        "Ram" => "ram",
        _ => return None,
    };
    let series = machine.strip_suffix(" Instance")?;
    let series = series.strip_suffix(" Predefined").or_else(|| series.strip_suffix(" AMD")).unwrap_or(series);
    (!series.contains(' ')).then(|| format!("{} {part}", series.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_from_descriptions() {
        let is = |text: &str| part_of(text);
        assert_eq!(is("N1 Predefined Instance Core running in Americas").as_deref(), Some("n1 core"));
        assert_eq!(is("Spot Preemptible A2 Instance Ram running in Iowa").as_deref(), Some("a2 ram"));
        assert_eq!(is("N2D AMD Instance Core running in Iowa").as_deref(), Some("n2d core"));
        assert_eq!(is("Nvidia Tesla A100 80GB GPU running in Iowa").as_deref(), Some("chip A100-80GB"));
        assert_eq!(is("Nvidia L4 GPU attached to Spot Preemptible VMs running in Iowa").as_deref(), Some("chip L4"));
        assert_eq!(is("N1 Predefined Instance Core with sole tenancy running in Iowa"), None);
        assert_eq!(is("Custom Extended Instance Ram running in Iowa"), None);
    }
}
