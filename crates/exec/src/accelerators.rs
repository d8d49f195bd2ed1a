//! What accelerators are called here, whatever a driver or a site calls them: job files ask for `A100-80GB`, where a driver says
//! `NVIDIA A100-SXM4-80GB` and a site `nvidia_a100_80gb_pcie`.

use windfall_catalog::names::lookup;

/// The family of an accelerator that is not cut into parts; none where nobody knows one of that name. What follows a name that is
/// known says nothing that counts.
pub(crate) fn family_of(name: &str) -> Option<String> {
    let words: Vec<&str> = name.split([' ', '-', '_']).filter(|word| !word.is_empty()).collect();
    if words.iter().any(|word| is_part(word)) {
        return None;
    }
    let shorter = (1..=words.len()).rev().map(|count| words[..count].join(" "));
    shorter.filter_map(|name| lookup(&name)).map(|named| named.family).next()
}

/// A part of an accelerator, as NVIDIA names it: `3g.20gb`.
fn is_part(word: &str) -> bool {
    let Some((of_compute, of_memory)) = word.split_once("g.") else { return false };
    of_compute.parse::<u8>().is_ok() && of_memory.ends_with("gb")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_one_family() {
        for (name, family) in [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("NVIDIA A100 80GB PCIe", "A100-80GB"),
            ("Tesla V100-SXM2-32GB", "V100-32GB"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA H200", "H200"),
            ("NVIDIA L40S", "L40S"),
            ("Tesla T4", "T4"),
            // As sites name them.
            ("a100", "A100"),
            ("a100_80gb", "A100-80GB"),
            ("nvidia_a100_80gb_pcie", "A100-80GB"),
            ("nvidia_h100_80gb_hbm3", "H100"),
            ("tesla_v100-sxm2-32gb", "V100-32GB"),
        ] {
            assert_eq!(family_of(name).as_deref(), Some(family), "{name}");
        }
        for name in ["gpu", "a100_3g.20gb", "1g.5gb", "", "tty"] {
            assert_eq!(family_of(name), None, "{name}");
        }
    }
}
