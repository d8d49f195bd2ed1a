//! Searching the embedded catalogue.

use proptest::prelude::*;
use windfall_catalog::{BadRequest, Catalog, Count, Query, Sort, Term};
use windfall_core::NanoUsd;

fn query(catalog: &Catalog, gpu: &str) -> Query {
    Query { accelerators: vec![catalog.wanted(gpu).expect("a known name")], ..Query::default() }
}

#[test]
fn a_request_is_met_in_all_its_parts() {
    let catalog = crate::catalog();
    let found = catalog.search(&Query {
        clouds: vec!["aws".into(), "gcp".into()],
        terms: vec![Term::Spot],
        min_memory_gib: Some(1_900.0),
        max_price: Some(NanoUsd::from_dollars(60.0)),
        ..query(catalog, "H100:8")
    });
    assert!(!found.is_empty());
    for offer in &found {
        assert!(["aws", "gcp"].contains(&offer.kind.cloud));
        assert_eq!((offer.kind.accelerator, offer.kind.count, offer.term), (Some("H100"), Count::whole(8), Term::Spot));
        assert!(offer.kind.memory_gib >= Some(1_900.0) && offer.price <= NanoUsd::from_dollars(60.0));
    }
}

#[test]
fn accelerators_of_every_maker_can_be_asked_for() {
    let catalog = crate::catalog();
    for name in [
        "H100",
        "A100",
        "A100-80GB",
        "T4",
        "L4",
        "V100",
        "B200",
        "MI300X",
        "TPU-v2",
        "TPU-v3",
        "TPU-v4",
        "TPU-v5e",
        "TPU-v5p",
        "TPU-v6e",
        "Trainium",
        "Trainium2",
        "Inferentia",
        "Inferentia2",
    ] {
        assert!(!catalog.search(&query(catalog, name)).is_empty(), "{name}");
    }
}

#[test]
fn a_slice_of_tpus_is_asked_for_by_its_name_or_its_chips() {
    let catalog = crate::catalog();
    let by_name = catalog.search(&query(catalog, "tpu-v5litepod-8"));
    let by_chips = catalog.search(&query(catalog, "TPU-v5e:8"));
    assert_eq!(by_name.len(), by_chips.len());
    assert!(by_name.iter().all(|offer| offer.kind.name == "v5litepod-8"));
}

#[test]
fn a_form_narrows_a_family() {
    let catalog = crate::catalog();
    let all = catalog.search(&query(catalog, "H100")).len();
    let pcie = catalog.search(&query(catalog, "H100-PCIe"));
    assert!(!pcie.is_empty() && pcie.len() < all);
    assert!(pcie.iter().all(|offer| offer.kind.sheet.is_some_and(|sheet| sheet.model == "H100-PCIe-80GB")));
}

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let catalog = crate::catalog();
    let nearest = |request: BadRequest| match request {
        BadRequest::UnknownAccelerator { nearest, .. }
        | BadRequest::UnknownCloud { nearest, .. }
        | BadRequest::UnknownRegion { nearest, .. } => nearest,
        BadRequest::BadCount { .. } => None,
    };
    assert_eq!(catalog.wanted("H10O").map_err(nearest).err().flatten().as_deref(), Some("H100"));
    assert_eq!(catalog.known_cloud("amazon").map_err(nearest).err().flatten(), None);
    assert_eq!(catalog.known_cloud("awss").map_err(nearest).err().flatten().as_deref(), Some("aws"));
    assert_eq!(catalog.known_region("us-esat-1").map_err(nearest).err().flatten().as_deref(), Some("us-east-1"));
    assert!(matches!(catalog.wanted("H100:many"), Err(BadRequest::BadCount { .. })));
    assert!(matches!(catalog.wanted("H100:-8"), Err(BadRequest::BadCount { .. })));
}

#[test]
fn an_impossible_request_names_what_rules_it_out() {
    let catalog = crate::catalog();
    let obstacle = |query: Query| {
        assert!(catalog.search(&query).is_empty());
        let all = catalog.obstacles(&query);
        all.into_iter().map(|obstacle| obstacle.constraint).collect::<Vec<_>>()
    };
    assert_eq!(obstacle(query(catalog, "H100:7777")), ["H100:7777"]);
    let lambda_spot = Query { clouds: vec!["lambda".into()], terms: vec![Term::Spot], ..query(catalog, "H100") };
    assert_eq!(obstacle(lambda_spot), ["cloud lambda", "market spot"]);
    let cheap = Query { max_price: Some(NanoUsd(1)), ..query(catalog, "H100") };
    assert_eq!(obstacle(cheap), ["at most $0.0000 an hour"]);
    let both = Query { max_price: Some(NanoUsd(1)), min_memory_gib: Some(1e6), ..query(catalog, "H100") };
    assert_eq!(obstacle(both), ["at least 1000000 GiB of memory"]);
}

#[test]
fn a_zone_is_a_place_too() {
    let catalog = crate::catalog();
    let found = catalog.search(&Query { regions: vec!["us-central1-a".into()], ..query(catalog, "L4:1") });
    assert!(!found.is_empty());
    assert!(found.iter().all(|offer| catalog.zones(offer).contains(&"us-central1-a")));
}

#[test]
fn an_offer_is_one_that_the_brain_knows() {
    let catalog = crate::catalog();
    let found =
        catalog.search(&Query { clouds: vec!["aws".into()], terms: vec![Term::Spot], ..query(catalog, "H100:8") });
    let offer = found[0].for_engine("aws", "use1-az6").expect("a whole accelerator");
    assert_eq!(offer.id.to_string(), "aws/use1-az6/p5.48xlarge/H100:8/spot");
    assert_eq!((offer.accelerators, offer.price_per_hour), (8, found[0].price));
    assert_eq!(offer.notice, windfall_core::Span::seconds(120));
    let share = catalog.search(&query(catalog, "L4:0.125"));
    assert!(share.iter().all(|offer| offer.for_engine("aws", "z").is_none()) && !share.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_is_kept_and_a_limit_cuts_its_end(
        sort in prop::sample::select(vec![Sort::Price, Sort::PricePerAccelerator, Sort::PricePerTflop, Sort::PricePerGb]),
        gpu in prop::sample::select(vec!["H100", "A100", "L4", "TPU-v5e", "RTX4090", "V100:1"]),
        limit in 1usize..50,
        by_zone: bool,
    ) {
        let catalog = crate::catalog();
        let all = catalog.search(&Query { sort, by_zone, ..query(catalog, gpu) });
        let some = catalog.search(&Query { sort, by_zone, limit: Some(limit), ..query(catalog, gpu) });
        let key = |offer: &windfall_catalog::Offer<'_>| match sort {
            Sort::Price => Some(offer.price),
            Sort::PricePerAccelerator => offer.price_per_accelerator(),
            Sort::PricePerTflop => offer.price_per_tflop(),
            Sort::PricePerGb => offer.price_per_gb(),
        };
        let keys: Vec<i64> = all.iter().map(|offer| key(offer).map_or(i64::MAX, |price| price.0)).collect();
        prop_assert!(keys.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert_eq!(some.len(), limit.min(all.len()));
        let same = all.iter().zip(&some).all(|(a, b)| (a.kind.name, a.region, a.zone) == (b.kind.name, b.region, b.zone));
        prop_assert!(same);
    }
}
