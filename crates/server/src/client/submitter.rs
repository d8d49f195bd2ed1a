//! What a submission says of the terminal that it comes from.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// The terminal's environment, for the program.
pub fn environment() -> BTreeMap<String, String> {
    let in_a_job = std::env::var_os("WINDFALL_LEASE").is_some();
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        // What an outer job was told is not for this one.
        .filter(|(name, _)| !name.starts_with("WINDFALL_") || name == "WINDFALL_HOME")
        .filter(|(name, _)| !in_a_job || !windfall_agent::OF_DEVICES.contains(&name.as_str()))
        .chain([(windfall_agent::UMASK.to_owned(), umask())])
        .collect()
}

/// The terminal's umask. Reading it means setting it; this process makes no files meanwhile.
fn umask() -> String {
    let umask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    rustix::process::umask(umask);
    format!("{:o}", umask.as_raw_mode())
}

/// A name that no other submission has.
pub fn key() -> String {
    let mut bytes = [0; 12];
    // Where there is no randomness, time and process number are different enough.
    let read =
        std::fs::File::open("/dev/urandom").and_then(|mut file| std::io::Read::read_exact(&mut file, &mut bytes));
    if read.is_err() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        bytes[..8].copy_from_slice(&now.to_le_bytes());
        bytes[8..].copy_from_slice(&std::process::id().to_le_bytes());
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
