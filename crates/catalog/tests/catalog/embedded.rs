//! What is embedded is sound, and is what the collection gives.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use windfall_catalog::build::check;
use windfall_catalog::build::collection::Collection;
use windfall_catalog::{Catalog, Facts, build, format};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn embedded_bytes() -> Vec<u8> {
    std::fs::read(file("data/catalog.bin")).expect("it is in the tree")
}

#[test]
fn every_byte_of_it_is_sound_and_it_is_small() {
    let bytes = embedded_bytes();
    assert!(bytes.len() < 3_000_000);
    Catalog::from_bytes(Cow::Owned(bytes), "embedded", true).expect("sound");
}

#[test]
fn taken_apart_and_put_together_it_is_the_same() {
    let facts = Facts::from_catalog(&Catalog::embedded());
    assert!(format::encode(&facts) == embedded_bytes(), "other bytes");
}

#[test]
fn every_price_has_a_source_with_a_date_and_none_is_zero() {
    let catalog = Catalog::embedded();
    let mut count = 0;
    for kind in catalog.instance_types() {
        catalog.offers_of(kind, false, |offer| {
            count += 1;
            assert!(offer.price.0 > 0);
            assert!(offer.source.as_of.len() >= 7 && offer.source.as_of.starts_with("20"));
        });
    }
    assert!(count > 100_000);
}

#[test]
fn it_is_what_the_collection_gives_and_the_report_is_fresh() {
    let report = std::fs::read_to_string(file("../../docs/catalog-report.md")).expect("it is in the tree");
    let digest = Catalog::embedded().digest();
    assert!(report.contains(&format!("Catalogue digest: `{digest}`")), "run `cargo xtask catalog`");
    let Some(data) = std::env::var_os("WINDFALL_DATA") else { return };
    let mut quiet = build::read::nobody();
    let mut collection = Collection::new(Path::new(&data), &mut quiet);
    let facts = collection.facts().expect("the collection is good");
    assert!(format::encode(&facts) == embedded_bytes(), "run `cargo xtask catalog`");
    let fresh = check::report(&mut collection, &facts, &Catalog::embedded()).expect("the collection is good");
    assert!(fresh == report, "run `cargo xtask catalog`");
}
