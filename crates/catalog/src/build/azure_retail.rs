//! Pages of Azure's retail prices. Items are of virtual machines by the hour; Windows, low priority and development
//! prices are left out. A reservation's price is for its whole term.

use super::aws_bulk::plain;
use super::chips::{self, Claim, filled};
use super::rows::Rows;
use super::stream::array_field;
use crate::error::BuildError;
use crate::facts::Facts;
use crate::money;
use crate::words::Term;
use serde::Deserialize;
use std::io::Read;
use windfall_core::NanoUsd;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    currency_code: String,
    retail_price: serde_json::Number,
    arm_region_name: Option<String>,
    #[serde(default)]
    product_name: String,
    #[serde(default)]
    sku_name: String,
    #[serde(default)]
    service_name: String,
    arm_sku_name: Option<String>,
    #[serde(default)]
    unit_of_measure: String,
    #[serde(rename = "type", default)]
    kind: String,
    reservation_term: Option<String>,
    effective_start_date: Option<String>,
}

const YEAR_HOURS: i64 = 8_760;

impl Item {
    fn term(&self) -> Option<(Term, i64)> {
        let plain = self.service_name == "Virtual Machines"
            && self.unit_of_measure == "1 Hour"
            && !["Windows", "CloudServices", "Cloud Services"].iter().any(|word| self.product_name.contains(word))
            && !self.sku_name.contains("Low Priority");
        match (plain, self.kind.as_str(), self.reservation_term.as_deref()) {
            (true, "Consumption", None) if self.sku_name.contains("Spot") => Some((Term::Spot, 1)),
            (true, "Consumption", None) => Some((Term::OnDemand, 1)),
            (true, "Reservation", Some("1 Year")) => Some((Term::Reserved1y, YEAR_HOURS)),
            (true, "Reservation", Some("3 Years")) => Some((Term::Reserved3y, 3 * YEAR_HOURS)),
            _ => None,
        }
    }
}

/// What a page says: prices, and the newest day one of them took effect.
pub struct Page {
    /// Prices.
    pub rows: Rows,
    /// The newest day a price took effect.
    pub as_of: Option<String>,
}

/// Reads a page.
pub fn read(facts: &mut Facts, file: &str, reader: impl Read) -> Result<Page, BuildError> {
    let mut rows = Rows::default();
    let mut as_of: Option<String> = None;
    array_field(reader, "Items", |at, item: Item| {
        let wrong = |what: money::BadPrice| format!("Items[{at}]: {what}");
        money::dollars(&item.currency_code).map_err(wrong)?;
        let number = item.retail_price.to_string();
        // A whole term's price may be more than an hour of anything costs; it is checked by the hour.
        let Some((term, hours)) = item.term() else { return Ok(()) };
        let price = if hours == 1 { money::price(&number) } else { money::sum(&number) }.map_err(wrong)?;
        let (Some(price), Some(size), Some(region)) = (price, &item.arm_sku_name, &item.arm_region_name) else {
            return Ok(());
        };
        let known = facts.named("azure", size).next();
        let kind = known.unwrap_or_else(|| {
            facts.instance(filled("azure", size, chips::settle("azure", size, Claim::default()), None, None, None))
        });
        rows.add(kind, region, None, term, NanoUsd((price.0 + hours / 2) / hours));
        let day = item.effective_start_date.map(|date| date.chars().take(10).collect::<String>());
        as_of = as_of.take().max(day);
        Ok(())
    })
    .map_err(|error| {
        BuildError::bad(file, format!("line {} column {}", error.line(), error.column()), plain(&error))
    })?;
    Ok(Page { rows, as_of })
}
