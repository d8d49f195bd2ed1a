//! Moving data costs what the providers say, for every amount.

use proptest::prelude::*;
use windfall_catalog::{Site, tiered};
use windfall_core::NanoUsd;

const TIB: u64 = 1 << 40;

fn at<'s>(cloud: &'s str, region: &'s str) -> Site<'s> {
    Site { cloud, region }
}

#[test]
fn twelve_tebibytes_out_of_aws_cost_1096_dollars() {
    let cost = crate::catalog().internet_egress(at("aws", "us-east-1"), 12 * TIB);
    assert_eq!(cost, Some(NanoUsd(1_095_680_000_000)));
}

#[test]
fn tiers_apply_to_the_part_above_them_only() {
    let catalog = crate::catalog();
    let cost = |site, tib: u64| catalog.internet_egress(site, tib * TIB);
    let tenth_cents = |amount: i64| Some(NanoUsd(amount * 1_000_000));
    let ireland = at("aws", "eu-west-1");
    assert_eq!(cost(ireland, 10), tenth_cents(10_240 * 90));
    assert_eq!(cost(ireland, 50), tenth_cents(10_240 * 90 + 40_960 * 85));
    assert_eq!(cost(ireland, 150), tenth_cents(10_240 * 90 + 40_960 * 85 + 102_400 * 70));
    assert_eq!(cost(ireland, 151), tenth_cents(10_240 * 90 + 40_960 * 85 + 102_400 * 70 + 1_024 * 50));
    let iowa = at("gcp", "us-central1");
    assert_eq!(cost(iowa, 1), tenth_cents(1_024 * 120));
    assert_eq!(cost(iowa, 10), tenth_cents(1_024 * 120 + 9_216 * 110));
    assert_eq!(cost(iowa, 20), tenth_cents(1_024 * 120 + 9_216 * 110 + 10_240 * 80));
}

#[test]
fn between_regions_it_is_not_free_and_unknown_is_not_zero() {
    let catalog = crate::catalog();
    let gib = 1 << 30;
    assert_eq!(catalog.egress(at("aws", "us-east-1"), at("aws", "us-west-2"), gib), Some(NanoUsd(20_000_000)));
    assert_eq!(catalog.egress(at("aws", "us-east-1"), at("aws", "us-east-1"), gib), Some(NanoUsd(0)));
    assert_eq!(catalog.egress(at("aws", "us-east-1"), at("gcp", "us-central1"), gib), Some(NanoUsd(90_000_000)));
    assert_eq!(catalog.egress(at("azure", "eastus"), at("aws", "us-east-1"), gib), None);
    assert_eq!(catalog.egress(at("gcp", "us-central1"), at("gcp", "us-east1"), gib), None);
    assert_eq!(catalog.internet_egress(at("aws", "sa-east-1"), gib), None);
}

#[test]
fn storage_and_licences_are_known_where_the_data_says_them() {
    let catalog = crate::catalog();
    let google = at("gcp", "us-central1");
    assert_eq!(catalog.storage_per_gib_month(google, "object-standard"), Some(NanoUsd(20_000_000)));
    assert_eq!(catalog.storage_per_gib_month(google, "local-ssd"), Some(NanoUsd(80_000_000)));
    assert_eq!(catalog.storage_per_gib_month(at("azure", "eastus"), "object-standard"), None);
    assert_eq!(catalog.licence_per_hour("gcp", "a2-highgpu-1g", "windows"), Some(NanoUsd(552_000_000)));
    assert_eq!(catalog.licence_per_hour("aws", "p5.48xlarge", "windows"), None);
}

proptest! {
    #[test]
    fn cost_is_continuous_and_grows(bytes in 0u64..400 * TIB, more in 1u64..1 << 34, table in 0usize..64) {
        let catalog = crate::catalog();
        let tables = &catalog.data_costs().internet;
        let tiers = &tables[table % tables.len()].tiers;
        let (here, there) = (tiered(tiers, bytes), tiered(tiers, bytes + more));
        prop_assert!(there >= here);
        let dearest = tiers.iter().map(|tier| i128::from(tier.per_gib.0)).max().unwrap_or(0);
        let cheapest = tiers.iter().map(|tier| i128::from(tier.per_gib.0)).min().unwrap_or(0);
        let step = i128::from(there.0 - here.0);
        let per_gib = |rate: i128| rate * i128::from(more) / (1 << 30);
        prop_assert!(step <= per_gib(dearest) + 2, "no jump");
        prop_assert!(step >= per_gib(cheapest) - 2, "no rest");
    }

    #[test]
    fn tier_edges_have_no_jump(edge in prop::sample::select(vec![1u64, 10, 50, 150]), table in 0usize..64) {
        let catalog = crate::catalog();
        let tables = &catalog.data_costs().internet;
        let tiers = &tables[table % tables.len()].tiers;
        let around = tiered(tiers, edge * TIB + 1).0 - tiered(tiers, edge * TIB - 1).0;
        prop_assert!((0..=2).contains(&around));
    }
}
