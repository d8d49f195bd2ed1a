//! Offers for programs.

use windfall_catalog::{Count, Offer, Term};
use windfall_core::{Market, NanoUsd};
use windfall_server::client::{Code, Failure};

/// An offer for programs; the names are a promise.
#[derive(serde::Serialize)]
struct Record<'o> {
    cloud: &'o str,
    region: &'o str,
    zone: Option<&'o str>,
    instance_type: &'o str,
    accelerator: Option<&'o str>,
    model: Option<&'o str>,
    count: serde_json::Number,
    market: Market,
    commitment: Option<&'static str>,
    price_usd_per_hour: f64,
    price_usd_per_gpu_hour: Option<f64>,
    price_usd_per_tflop_hour: Option<f64>,
    price_usd_per_gb_hour: Option<f64>,
    vcpus: Option<f64>,
    memory_gib: Option<f64>,
    gpu_memory_gb: Option<f64>,
    network_gbps: Option<f64>,
    fabric: Option<&'o str>,
    interruption_band: Option<&'static str>,
    interruption_band_source: Option<&'o str>,
    interruption_band_as_of: Option<&'o str>,
    source: &'o str,
    as_of: &'o str,
}

impl<'o> Record<'o> {
    fn of(offer: &Offer<'o>) -> Record<'o> {
        let usd = |price: Option<NanoUsd>| price.map(NanoUsd::dollars);
        let commitment = match offer.term {
            Term::Reserved1y => Some("1y"),
            Term::Reserved3y => Some("3y"),
            Term::Spot | Term::OnDemand => None,
        };
        Record {
            cloud: offer.kind.cloud,
            region: offer.region,
            zone: offer.zone,
            instance_type: offer.kind.name,
            accelerator: offer.kind.accelerator,
            model: offer.kind.sheet.map(|sheet| sheet.model.as_str()),
            count: number(offer.kind.count),
            market: offer.term.market(),
            commitment,
            price_usd_per_hour: offer.price.dollars(),
            price_usd_per_gpu_hour: usd(offer.price_per_accelerator()),
            price_usd_per_tflop_hour: usd(offer.price_per_tflop()),
            price_usd_per_gb_hour: usd(offer.price_per_gb()),
            vcpus: offer.kind.vcpus,
            memory_gib: offer.kind.memory_gib,
            gpu_memory_gb: offer.kind.accelerator_memory_gb,
            network_gbps: offer.kind.network_gbps,
            fabric: offer.kind.fabric,
            interruption_band: offer.band.map(|band| band.label()),
            interruption_band_source: offer.band_source.map(|source| source.name.as_str()),
            interruption_band_as_of: offer.band_source.map(|source| source.as_of.as_str()),
            source: &offer.source.name,
            as_of: &offer.source.as_of,
        }
    }
}

/// Whole where it can be: `8`, `0.125`.
fn number(count: Count) -> serde_json::Number {
    let share = || serde_json::Number::from_f64(count.as_f64());
    if count.0.is_multiple_of(1_000) { (count.0 / 1_000).into() } else { share().unwrap_or_else(|| 0.into()) }
}

pub fn print_json(found: &[Offer<'_>]) -> Result<(), Failure> {
    let mut text = b"[\n".to_vec();
    for (at, offer) in found.iter().enumerate() {
        text.extend_from_slice(b"  ");
        serde_json::to_writer(&mut text, &Record::of(offer)).map_err(unprintable)?;
        text.extend_from_slice(if at + 1 < found.len() { b",\n" } else { b"\n" });
    }
    text.extend_from_slice(b"]\n");
    print!("{}", String::from_utf8_lossy(&text));
    Ok(())
}

pub fn print_csv(found: &[Offer<'_>]) -> Result<(), Failure> {
    let mut text = csv::Writer::from_writer(Vec::new());
    for offer in found {
        text.serialize(Record::of(offer)).map_err(unprintable)?;
    }
    print!("{}", String::from_utf8_lossy(&text.into_inner().map_err(unprintable)?));
    Ok(())
}

fn unprintable(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Bug, error.to_string())
}
