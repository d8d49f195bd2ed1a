//! Makes the embedded catalogue from the collection in `WINDFALL_DATA`: `cargo xtask catalog`.

use std::path::PathBuf;
use std::process::ExitCode;
use windfall_catalog::build::check;
use windfall_catalog::build::collection::Collection;
use windfall_catalog::{BuildError, Catalog, format};

fn main() -> ExitCode {
    let Some(data) = std::env::var_os("WINDFALL_DATA").map(PathBuf::from) else {
        eprintln!(
            "error: WINDFALL_DATA does not name a folder\nhint: the collection of files that facts are taken from"
        );
        return ExitCode::from(2);
    };
    match make(&data) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

fn make(data: &std::path::Path) -> Result<(), BuildError> {
    let mut said = String::new();
    let mut watcher = |file: &str, _: u64, total: u64| {
        if said != file {
            eprintln!("reading {file} ({:.1} MB)", total as f64 / 1e6);
            file.clone_into(&mut said);
        }
    };
    let mut collection = Collection::new(data, &mut watcher);
    let facts = collection.facts()?;
    let bytes = format::encode(&facts);
    let catalog = Catalog::from_bytes(bytes.clone().into(), "new", true)?;
    let report = check::report(&mut collection, &facts, &catalog)?;
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    format::write_file(&root.join("data/catalog.bin"), &bytes)?;
    format::write_file(&root.join("../../docs/catalog-report.md"), report.as_bytes())?;
    println!("catalog.bin: {:.2} MB, {} prices", bytes.len() as f64 / 1e6, facts.price_count());
    Ok(())
}
