//! Facts that are known from elsewhere, and wrong ones that sources have.

use windfall_catalog::{Catalog, Count, Offer, Query, Term};

fn offers<'c>(catalog: &'c Catalog, cloud: &str, kind: &str, region: &str, term: Term) -> Vec<Offer<'c>> {
    catalog.search(&Query {
        clouds: vec![cloud.into()],
        regions: vec![region.into()],
        instance_types: vec![kind.into()],
        terms: vec![term],
        ..Query::default()
    })
}

fn price(cloud: &str, kind: &str, region: &str, term: Term) -> f64 {
    let catalog = crate::catalog();
    offers(catalog, cloud, kind, region, term).first().map_or(f64::NAN, |offer| offer.price.dollars())
}

#[test]
fn google_s_machines_cost_host_and_accelerators_once() {
    assert_eq!(price("gcp", "g2-standard-4", "us-central1", Term::OnDemand), 0.70683);
    assert_eq!(price("gcp", "a2-highgpu-1g", "us-central1", Term::OnDemand), 3.67339);
    assert!((price("gcp", "a2-highgpu-1g", "us-central1", Term::Reserved3y) - 1.2857).abs() < 1e-4);
    let a3 = price("gcp", "a3-highgpu-8g", "us-central1", Term::OnDemand);
    assert!((a3 / 88.49 - 1.0).abs() < 1e-4, "{a3}");
}

#[test]
fn attached_accelerators_cost_their_host_too() {
    let catalog = crate::catalog();
    let found = catalog.search(&Query {
        accelerators: vec![catalog.wanted("T4:1").expect("known")],
        ..Query { clouds: vec!["gcp".into()], terms: vec![Term::OnDemand], ..Query::default() }
    });
    assert!(!found.is_empty());
    assert!(found.iter().all(|offer| offer.kind.name.starts_with("n1-") && offer.price.dollars() > 0.35));
}

#[test]
fn data_sheets_say_the_memory_that_skypilot_gets_wrong() {
    let catalog = crate::catalog();
    let memory = |name: &str| catalog.accelerator(name).map(|sheet| sheet.memory_gb);
    assert_eq!(memory("B200"), Some(180.0));
    assert_eq!(memory("H200"), Some(141.0));
    assert_eq!(memory("A100"), Some(40.0));
    assert_eq!(memory("A100-80GB"), Some(80.0));
    let nvl = catalog.instance_types().find(|kind| kind.name == "Standard_NC40ads_H100_v5");
    assert_eq!(nvl.and_then(|kind| kind.accelerator_memory_gb), Some(94.0));
}

#[test]
fn vast_s_cards_have_their_own_memory() {
    let catalog = crate::catalog();
    let of = |name: &str| {
        let kinds = catalog.instance_types().filter(|kind| kind.cloud == "vast" && kind.name == name);
        kinds.map(|kind| (kind.accelerator.unwrap_or("none"), kind.accelerator_memory_gb)).collect::<Vec<_>>()
    };
    assert_eq!(of("2x-A100_PCIE-32-65536"), [("A100", Some(40.0))]);
    assert_eq!(of("2x-A100_SXM4-32-65536"), [("A100", Some(40.0)), ("A100-80GB", Some(80.0))]);
    assert_eq!(of("2x-Tesla_V100-32-65536"), [("V100", Some(16.0))]);
    assert_eq!(of("4x-RTX_4060_Ti-32-65536"), [("RTX4060-Ti", Some(16.0))]);
    assert_eq!(of("4x-RTX_4070S_Ti-32-65536"), [("RTX4070-Ti-Super", Some(16.0))]);
    assert_eq!(of("1x-RTX_3060_Ti-32-65536"), [("RTX3060-Ti", Some(8.0))]);
}

#[test]
fn placeholders_windows_prices_and_machines_that_are_gone_are_not_offered() {
    let catalog = crate::catalog();
    for region in ["asia-east1", "southamerica-east1", "us-central2"] {
        assert!(offers(catalog, "gcp", "v6e-8", region, Term::OnDemand).is_empty(), "{region}");
    }
    assert_eq!(price("gcp", "v6e-8", "us-central1", Term::OnDemand), 21.6);
    assert_eq!(price("azure", "Standard_NCC40ads_H100_v5", "eastus2", Term::OnDemand), 6.98);
    assert!(offers(catalog, "azure", "Standard_NCC40ads_H100_v5", "westeurope", Term::OnDemand).is_empty());
    for (kind, region) in [("Standard_NC6", "westus2"), ("Standard_NV6", "northcentralus")] {
        assert!(Term::ALL.iter().all(|term| offers(catalog, "azure", kind, region, *term).is_empty()), "{kind}");
    }
}

#[test]
fn accelerators_are_counted_right() {
    let catalog = crate::catalog();
    let count = |name: &str| {
        let kind = catalog.instance_types().find(|kind| kind.name == name);
        kind.map(|kind| (kind.accelerator.unwrap_or("none"), kind.count))
    };
    assert_eq!(count("Standard_ND96isr_H100_v5"), Some(("H100", Count::whole(8))));
    assert_eq!(count("Standard_NV4as_v4"), Some(("MI25", Count(125))));
    assert_eq!(count("f2.48xlarge").map(|(accelerator, _)| accelerator), Some("none"));
    assert_eq!(count("trn2.48xlarge"), Some(("Trainium2", Count::whole(16))));
    assert_eq!(count("v5p-8"), Some(("TPU-v5p", Count::whole(4))));
    assert_eq!(count("g6f.large"), Some(("L4", Count(125))));
}

#[test]
fn a_spot_price_that_only_repeats_another_is_unknown() {
    let catalog = crate::catalog();
    let runpod = Query { clouds: vec!["runpod".into(), "vast".into()], terms: vec![Term::Spot], ..Query::default() };
    assert!(catalog.search(&runpod).is_empty());
    assert!(offers(catalog, "azure", "Standard_ND96isr_H100_v5", "eastus", Term::Spot).is_empty());
}

#[test]
fn networks_and_bands_are_known_where_said() {
    let catalog = crate::catalog();
    let p5 = catalog.instance_types().find(|kind| kind.name == "p5.48xlarge").expect("sold");
    assert_eq!((p5.network_gbps, p5.fabric), (Some(3_200.0), Some("EFA")));
    assert!(p5.sheet.is_some_and(|sheet| sheet.link.starts_with("NVLink")));
    let spot = catalog.search(&Query {
        instance_types: vec!["g5.xlarge".into()],
        regions: vec!["us-east-1".into()],
        terms: vec![Term::Spot],
        ..Query::default()
    });
    assert!(!spot.is_empty());
    for offer in spot {
        let source = offer.band_source.map(|source| (source.name.as_str(), source.as_of.as_str()));
        assert_eq!((offer.band.is_some(), source), (true, Some(("aws-spot-advisor", "2025-06-28"))));
    }
}

#[test]
fn published_training_times_come_back() {
    let catalog = crate::catalog();
    let known = catalog.throughput();
    let minutes = |count| known.training_minutes("llama2_70b_lora", "H100", count).unwrap_or(f32::NAN);
    assert!((minutes(8) - 27.0).abs() < 1.5, "{}", minutes(8));
    assert!((minutes(64) - 4.27).abs() < 0.5, "{}", minutes(64));
    assert!((minutes(1024) - 1.18).abs() < 0.1, "{}", minutes(1024));
}

#[test]
fn histories_show_the_price_cut_of_2025() {
    let catalog = crate::catalog();
    let found = offers(catalog, "aws", "p5.48xlarge", "us-east-1", Term::OnDemand);
    let history = catalog.history(&found[0]).expect("recorded");
    let prices: Vec<f64> = history.iter().filter_map(|(_, price)| price.map(|price| price.dollars())).collect();
    assert_eq!(prices.first().map(|price| price.round()), Some(98.0));
    assert_eq!(prices.last().copied(), Some(found[0].price.dollars()));
}
