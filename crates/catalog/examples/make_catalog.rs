//! Makes the embedded catalogue: `cargo xtask catalog`.

use windfall_catalog::{Catalog, Facts, Query, Source, build, format};

fn main() {
    let data = std::path::PathBuf::from(std::env::var("WINDFALL_DATA").expect("WINDFALL_DATA"));
    let mut facts = Facts::default();
    for (cloud, file) in [
        ("aws", "vms.csv.gz"),
        ("gcp", "vms.csv.gz"),
        ("azure", "vms.csv"),
        ("lambda", "vms.csv"),
        ("oci", "vms.csv"),
        ("runpod", "vms.csv.gz"),
        ("nebius", "vms.csv"),
        ("vast", "vms.csv"),
    ] {
        let path = data.join("prices/skypilot-catalog").join(cloud).join(file);
        let source = facts.source(Source {
            name: format!("skypilot-catalog/{cloud}"),
            what: String::new(),
            licence: String::new(),
            as_of: "2026-08-22".into(),
        });
        let mut quiet = build::read::nobody();
        let reader = build::read::open(&path, file, &mut quiet).expect("open");
        build::skypilot::read(&mut facts, cloud, source, file, reader).expect("read");
    }
    let bytes = format::encode(&facts);
    println!("{} bytes, {} prices", bytes.len(), facts.price_count());
    format::write_file(std::path::Path::new("crates/catalog/data/catalog.bin"), &bytes).expect("written");
    let catalog = Catalog::from_bytes(bytes.into(), "x", true).expect("opens");
    let query = Query { accelerators: vec![catalog.wanted("H100:8").expect("known")], ..Query::default() };
    for offer in catalog.search(&query).iter().take(12) {
        println!(
            "{:8} {:16} {:?} {:28} {:10} {}",
            offer.kind.cloud, offer.region, offer.zone, offer.kind.name, offer.term, offer.price
        );
    }
}
