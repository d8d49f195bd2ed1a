//! What the name of a call or an operator on the host says of it.

use crate::roofline::operators;

/// What a name means on the host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HostName {
    /// It returns when the accelerator is done.
    pub waits: bool,
    /// Asks the driver something and launches nothing.
    pub asks: bool,
    pub loads: bool,
    /// An operator whose arithmetic is known.
    pub counted: bool,
}

/// Reads the name of a call or an operator.
pub fn host_name(name: &str) -> HostName {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    HostName {
        waits: has(&["Synchronize", "hipMemcpyWithStream"])
            || matches!(name, "cudaMemcpy" | "hipMemcpy" | "cuMemcpyDtoH_v2"),
        asks: has(&["Get", "Query", "Peek", "IsCapturing", "Attribute", "Occupancy", "EventRecord", "EventCreate"]),
        loads: name.to_ascii_lowercase().contains("dataloader"),
        counted: operators::is_known(name),
    }
}
