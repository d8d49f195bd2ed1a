//! Traces of the tree, and traces made of a few events.

use std::io::Write;
use std::path::{Path, PathBuf};
use windfall_catalog::Catalog;
use windfall_insight::{Options, ProfileError, Report, profile};

pub fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.json.gz"))
}

pub fn report_with(paths: &[PathBuf], options: &Options) -> Result<Report, ProfileError> {
    profile(paths, options, &Catalog::embedded(), &Default::default()).map(|profile| profile.report)
}

pub fn report_of(name: &str) -> Report {
    report_with(&[recorded(name)], &Options::default()).expect("it is there")
}

/// The report on a file with these bytes.
pub fn report_on(bytes: &[u8]) -> Result<Report, ProfileError> {
    let mut file = tempfile::NamedTempFile::new().expect("it is there");
    file.write_all(bytes).expect("it is there");
    report_with(&[file.path().to_owned()], &Options { pictures: true, ..Options::default() })
}

/// A trace with these events.
pub fn trace(events: &[String]) -> Vec<u8> {
    format!(r#"{{"schemaVersion": 1, "traceEvents": [{}]}}"#, events.join(",")).into_bytes()
}

/// A kernel with the call that launched it, all in microseconds.
pub fn kernel(name: &str, correlation: u32, launched: u32, start: u32, duration: u32) -> [String; 2] {
    [
        format!(
            r#"{{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":{launched},"dur":2,"args":{{"correlation":{correlation}}}}}"#
        ),
        format!(
            r#"{{"ph":"X","cat":"kernel","name":"{name}","pid":0,"tid":7,"ts":{start},"dur":{duration},"args":{{"stream":7,"correlation":{correlation}}}}}"#
        ),
    ]
}
