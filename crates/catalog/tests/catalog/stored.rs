//! The stored form: the same facts give the same bytes, and other bytes are refused.

use proptest::prelude::*;
use std::borrow::Cow;
use windfall_catalog::{Catalog, CatalogError, Count, Facts, Query, Source, Term, TypeFacts, format};
use windfall_core::NanoUsd;

/// A catalogue of two types in two regions.
fn small() -> Vec<u8> {
    let mut facts = Facts::default();
    let source =
        facts.source(Source { name: "s".into(), what: "w".into(), licence: "l".into(), as_of: "2026-01-02".into() });
    for (name, count) in [("a", 1), ("b", 8)] {
        let kind = facts.instance(TypeFacts {
            cloud: "aws".into(),
            name: name.into(),
            accelerator: Some("H100".into()),
            count: Count::whole(count),
            memory_mib: Some(1_024),
            ..TypeFacts::default()
        });
        for region in ["r1", "r2"] {
            facts.sold_in(kind, region, "z1");
            facts.sold_in(kind, region, "z2");
            facts.price(kind, region, None, Term::OnDemand, NanoUsd(3_000_000_000), source);
            facts.price(kind, region, Some("z1"), Term::Spot, NanoUsd(1_234_567_891), source);
            facts.set_history(
                kind,
                region,
                Some("z1"),
                Term::Spot,
                vec![(20_000, Some(NanoUsd(5_000))), (20_007, None)],
            );
        }
    }
    format::encode(&facts)
}

fn open(bytes: Vec<u8>) -> Result<Catalog, CatalogError> {
    Catalog::from_bytes(Cow::Owned(bytes), "test", true)
}

#[test]
fn what_is_stored_comes_back() {
    let catalog = open(small()).expect("it opens");
    let found = catalog.search(&Query { by_zone: true, terms: vec![Term::OnDemand], ..Query::default() });
    assert_eq!(found.len(), 8, "two types, two regions, two zones");
    let spot = catalog.search(&Query { terms: vec![Term::Spot], ..Query::default() });
    assert_eq!(spot.len(), 4);
    assert_eq!((spot[0].zone, spot[0].price), (Some("z1"), NanoUsd(1_234_567_891)));
    assert_eq!(catalog.history(&spot[0]), Some(vec![(20_000, Some(NanoUsd(5_000))), (20_007, None)]));
    assert_eq!(spot[0].source.as_of, "2026-01-02");
}

#[test]
fn a_catalogue_of_another_version_or_kind_is_named() {
    let mut newer = small();
    newer[8] = 9;
    let error = open(newer).expect_err("another version").to_string();
    assert_eq!(error, "test: has format 9, this program reads format 2");
    assert!(matches!(open(b"not a catalogue at all".to_vec()), Err(CatalogError::Foreign { .. })));
    assert!(matches!(open(Vec::new()), Err(CatalogError::Foreign { .. })));
}

#[test]
fn a_catalogue_that_breaks_off_anywhere_is_refused() {
    let whole = small();
    for length in 0..whole.len() {
        assert!(open(whole[..length].to_vec()).is_err(), "cut at {length}");
    }
}

#[test]
fn a_file_is_written_whole_and_replaces_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/catalog");
    format::write_file(&path, b"old").expect("written");
    format::write_file(&path, &small()).expect("written");
    assert!(Catalog::open(&path).is_ok());
    let left: Vec<_> = std::fs::read_dir(folder.path().join("deep")).expect("listed").collect();
    assert_eq!(left.len(), 1, "nothing half-written is left");
    assert!(format::write_file(&folder.path().join("deep/catalog/no"), b"x").is_err());
}

proptest! {
    #[test]
    fn a_changed_byte_is_found(at in 0usize..10_000, change in 1u8..=255) {
        let mut bytes = small();
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(open(bytes).is_err());
    }

    #[test]
    fn random_bytes_behind_a_good_header_never_panic(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = small();
        let at = bytes.len().saturating_sub(noise.len());
        bytes.truncate(at);
        bytes.extend(noise);
        // Unchecked, as the embedded one is opened: whatever comes out, nothing breaks.
        if let Ok(catalog) = Catalog::from_bytes(Cow::Owned(bytes), "test", false) {
            let _ = catalog.search(&Query::default());
            for kind in catalog.instance_types() {
                let _ = catalog.histories(kind);
            }
        }
    }
}
