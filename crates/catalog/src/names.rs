//! One name for each accelerator, whatever a provider or a person calls it.
//!
//! A *family* is what people ask for (`H100`); a *model* is the very chip, with its own memory and speed
//! (`H100-PCIe-80GB`). Where the memory makes two products of one chip, they are two families: `A100` has 40 GB,
//! `A100-80GB` has 80. Sources mix these levels, so every name is folded to letters and digits and looked up here.

use windfall_core::nearest::nearest;

/// A family, the model meant unless more is said, its memory where no data sheet is embedded, and other names.
struct Family {
    name: &'static str,
    model: Option<&'static str>,
    memory_gb: Option<u32>,
    /// Folded alias and, where the alias says it, the model.
    aliases: &'static [(&'static str, Option<&'static str>)],
}

const fn known(
    name: &'static str,
    model: &'static str,
    aliases: &'static [(&'static str, Option<&'static str>)],
) -> Family {
    Family { name, model: Some(model), memory_gb: None, aliases }
}

const fn bare(name: &'static str, memory_gb: u32, aliases: &'static [(&'static str, Option<&'static str>)]) -> Family {
    Family { name, model: None, memory_gb: Some(memory_gb), aliases }
}

/// Memory sizes of families without an embedded data sheet are from the vendors' product pages. SkyPilot's table of
/// memory sizes is not used: it gives B200 and H200 80 GB.
const FAMILIES: &[Family] = &[
    known("A10", "A10", &[]),
    known(
        "A100",
        "A100-SXM4-40GB",
        &[
            ("a10040gb", None),
            ("a100sxm", None),
            ("a100sxm4", None),
            ("a100sxm40gb", None),
            ("a100sxm440gb", None),
            ("a100pcie", Some("A100-PCIe-40GB")),
            ("a100pcie40gb", Some("A100-PCIe-40GB")),
        ],
    ),
    known(
        "A100-80GB",
        "A100-SXM4-80GB",
        &[
            ("a10080gbsxm", None),
            ("a100sxm80gb", None),
            ("a100sxm480gb", None),
            ("a100pcie80gb", Some("A100-PCIe-80GB")),
            ("a10080gbpcie", Some("A100-PCIe-80GB")),
        ],
    ),
    known("A10G", "A10G", &[]),
    bare("A16", 16, &[]),
    bare("A40", 48, &[]),
    bare("A4000", 16, &[("rtxa4000", None)]),
    bare("A4500", 20, &[("rtxa4500", None)]),
    bare("A5000", 24, &[("rtxa5000", None)]),
    known("A6000", "RTX-A6000", &[("rtxa6000", None)]),
    known("B200", "B200-SXM-180GB", &[("b200sxm", None)]),
    known("B300", "B300-SXM", &[]),
    known("GB200", "GB200", &[]),
    known("GH200", "GH200-96GB", &[("gh20096gb", None)]),
    known("Gaudi2", "Gaudi2", &[("gaudihl225", None)]),
    known("Gaudi3", "Gaudi3", &[]),
    known(
        "H100",
        "H100-SXM5-80GB",
        &[
            ("h10080gb", None),
            ("h100sxm", Some("H100-SXM5-80GB")),
            ("h100sxm80gb", Some("H100-SXM5-80GB")),
            ("h100sxm5", Some("H100-SXM5-80GB")),
            ("h10080gbhbm3", Some("H100-SXM5-80GB")),
            ("h100mega", Some("H100-SXM5-80GB")),
            ("h10080gbmega", Some("H100-SXM5-80GB")),
            ("h100mega80gb", Some("H100-SXM5-80GB")),
            ("h100nvlink", Some("H100-SXM5-80GB")),
            ("h100pcie", Some("H100-PCIe-80GB")),
            ("h100pcie80gb", Some("H100-PCIe-80GB")),
            ("h100nvl", Some("H100-NVL-94GB")),
            ("h100nvl94gb", Some("H100-NVL-94GB")),
        ],
    ),
    known(
        "H200",
        "H200-SXM-141GB",
        &[
            ("h200sxm", Some("H200-SXM-141GB")),
            ("h200sxm5141gb", Some("H200-SXM-141GB")),
            ("h200141gb", None),
            ("h200nvl", Some("H200-NVL-141GB")),
        ],
    ),
    known("Inferentia", "Inferentia1", &[("inferentia1", None), ("inf1", None), ("awsinferentia", None)]),
    known("Inferentia2", "Inferentia2", &[("inf2", None), ("awsinferentia2", None)]),
    bare("K80", 12, &[]),
    known("L4", "L4", &[]),
    bare("L40", 48, &[]),
    known("L40S", "L40S", &[]),
    bare("M60", 8, &[]),
    bare("MI25", 16, &[("radeonmi25", None)]),
    known("MI250X", "MI250X", &[]),
    known("MI300X", "MI300X", &[]),
    known("MI325X", "MI325X", &[]),
    known("MI355X", "MI355X", &[]),
    known("P100", "P100-SXM2-16GB", &[]),
    bare("P4", 8, &[]),
    bare("RTX2000-Ada", 16, &[]),
    bare("RTX3060", 12, &[]),
    bare("RTX3060-Ti", 8, &[]),
    bare("RTX3090", 24, &[]),
    bare("RTX4000-Ada", 20, &[]),
    bare("RTX4060", 8, &[]),
    bare("RTX4060-Ti", 16, &[]),
    bare("RTX4070", 12, &[]),
    bare("RTX4070-Ti-Super", 16, &[]),
    bare("RTX4090", 24, &[]),
    bare("RTX5070", 12, &[]),
    bare("RTX5090", 32, &[]),
    bare("RTX5880-Ada", 48, &[]),
    bare("RTX6000", 24, &[("quadrortx6000", None)]),
    bare("RTX6000-Ada", 48, &[]),
    bare("RTXPRO4000", 24, &[]),
    bare("RTXPRO4500", 32, &[("rtxpro4500se", None)]),
    bare("RTXPRO5000", 48, &[]),
    bare(
        "RTXPRO6000",
        96,
        &[
            ("rtxproserver6000", None),
            ("rtxpro6000ws", None),
            ("rtxpro6000wk", None),
            ("rtxpro6000bse", None),
            ("rtxpro600096gb", None),
        ],
    ),
    bare("RTX8000", 48, &[("quadrortx8000", None)]),
    known("T4", "T4", &[]),
    bare("T4G", 16, &[]),
    known("TPU-v2", "TPUv2", &[]),
    known("TPU-v3", "TPUv3", &[]),
    known("TPU-v4", "TPUv4", &[]),
    known("TPU-v5e", "TPUv5e", &[("v5e", None), ("tpuv5litepod", None), ("v5litepod", None)]),
    known("TPU-v5p", "TPUv5p", &[("v5p", None)]),
    known("TPU-v6e", "TPUv6e", &[("v6e", None), ("trillium", None)]),
    known("TPU-v7x", "TPUv7x", &[("tpu7x", None), ("ironwood", None)]),
    known("Trainium", "Trainium1", &[("trainium1", None), ("trn1", None), ("awstrainium", None)]),
    known("Trainium2", "Trainium2", &[("trn2", None), ("awstrainium2", None)]),
    known(
        "V100",
        "V100-SXM2-16GB",
        &[
            ("v10016gb", None),
            ("v100sxm2", None),
            ("v100sxm216gb", None),
            ("v100pcie", Some("V100-PCIe-16GB")),
            ("v100pcie16gb", Some("V100-PCIe-16GB")),
        ],
    ),
    known("V100-32GB", "V100-SXM2-32GB", &[("v100sxm232gb", None)]),
    bare("V520", 8, &[("radeonprov520", None)]),
    bare("V620", 32, &[("radeonprov620", None)]),
    bare("V710", 28, &[("radeonprov710", None)]),
];

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The family's one name.
    pub family: String,
    /// The model, where it can be told.
    pub model: Option<&'static str>,
    /// Whether the name itself said the model.
    pub exact: bool,
}

/// Letters and digits in lower case, without the maker's name.
fn fold(name: &str) -> String {
    let folded: String = name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let makers = ["nvidia", "geforce", "tesla", "amd", "instinct"];
    makers.iter().fold(folded, |name, maker| name.strip_prefix(maker).map(str::to_owned).unwrap_or(name))
}

/// The family and model of a name, if it is known.
pub fn lookup(name: &str) -> Option<Named> {
    let folded = fold(name);
    FAMILIES.iter().find_map(|family| {
        let by_name = (fold(family.name) == folded).then_some(None);
        let by_alias = || family.aliases.iter().find(|(alias, _)| *alias == folded).map(|(_, model)| *model);
        let models = || family.aliases.iter().map(|(_, model)| *model).chain([family.model]).flatten();
        let by_model = || models().find(|model| fold(model) == folded).map(Some);
        let said = by_name.or_else(by_alias).or_else(by_model)?;
        Some(Named { family: family.name.to_owned(), model: said.or(family.model), exact: said.is_some() })
    })
}

/// As `lookup`, but a name that nobody knows stands for itself: a new chip is not lost.
pub fn adopt(name: &str) -> Named {
    lookup(name).unwrap_or_else(|| Named { family: name.trim().replace(' ', "-"), model: None, exact: false })
}

/// The family of a model.
pub fn family_of_model(model: &str) -> Option<&'static str> {
    let has =
        |family: &&Family| family.model == Some(model) || family.aliases.iter().any(|(_, said)| *said == Some(model));
    FAMILIES.iter().find(has).map(|family| family.name)
}

/// Memory of a family without an embedded data sheet.
pub fn memory_gb(family: &str) -> Option<u32> {
    FAMILIES.iter().find(|known| known.name == family).and_then(|known| known.memory_gb)
}

/// The known name nearest to what was typed, among families and those in `also`.
pub fn suggest<'k>(typed: &str, also: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    nearest(typed, FAMILIES.iter().map(|family| family.name).chain(also))
}

/// A TPU slice as Google names it (`v5litepod-8`, `tpu-v4-32`): its family and its chips. Up to v4 and for v5p the
/// number counts cores, two in a chip.
pub fn tpu_slice(name: &str) -> Option<(&'static str, u32)> {
    let lower = name.to_ascii_lowercase();
    let bare = lower.strip_prefix("tpu-").unwrap_or(&lower);
    let (generation, size) = bare.rsplit_once('-')?;
    let size: u32 = size.parse().ok().filter(|size| *size > 0)?;
    let (family, cores_per_chip) = match generation {
        "v2" => ("TPU-v2", 2),
        "v3" => ("TPU-v3", 2),
        "v4" => ("TPU-v4", 2),
        "v5p" => ("TPU-v5p", 2),
        "v5litepod" | "v5e" => ("TPU-v5e", 1),
        "v6e" => ("TPU-v6e", 1),
        _ => return None,
    };
    size.is_multiple_of(cores_per_chip).then_some((family, size / cores_per_chip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_finds_its_family() {
        let family = |name: &str| lookup(name).map(|named| named.family);
        for (typed, meant) in [
            ("h100", "H100"),
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("H100-SXM", "H100"),
            ("A100", "A100"),
            ("a100-80gb-sxm", "A100-80GB"),
            ("Tesla T4", "T4"),
            ("T4g", "T4G"),
            ("tpu-v5litepod", "TPU-v5e"),
            ("v5litepod", "TPU-v5e"),
            ("TPU v6e", "TPU-v6e"),
            ("v5e", "TPU-v5e"),
            ("v5p", "TPU-v5p"),
            ("trn1", "Trainium"),
            ("RTX PRO Server 6000", "RTXPRO6000"),
            ("RTX-A6000", "A6000"),
        ] {
            assert_eq!(family(typed).as_deref(), Some(meant), "{typed}");
        }
        assert_eq!(family("Virtex UltraScale+ (VU47P)"), None);
    }

    #[test]
    fn a_name_that_says_the_form_says_the_model() {
        assert_eq!(lookup("H100 PCIe").and_then(|named| named.model), Some("H100-PCIe-80GB"));
        assert!(lookup("H100-NVL").is_some_and(|named| named.exact));
        assert!(lookup("H100").is_some_and(|named| !named.exact));
    }

    #[test]
    fn no_alias_means_two_things() {
        let mut all: Vec<String> = FAMILIES.iter().map(|family| fold(family.name)).collect();
        all.extend(FAMILIES.iter().flat_map(|family| family.aliases.iter().map(|(alias, _)| (*alias).to_owned())));
        let count = all.len();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn tpu_slices_are_counted_in_chips() {
        assert_eq!(tpu_slice("tpu-v2-8"), Some(("TPU-v2", 4)));
        assert_eq!(tpu_slice("tpu-v4-32"), Some(("TPU-v4", 16)));
        assert_eq!(tpu_slice("v5litepod-8"), Some(("TPU-v5e", 8)));
        assert_eq!(tpu_slice("tpu-v5p-8"), Some(("TPU-v5p", 4)));
        assert_eq!(tpu_slice("v6e-256"), Some(("TPU-v6e", 256)));
        assert_eq!(tpu_slice("v2-0"), None);
    }

    #[test]
    fn a_mistyped_name_is_answered_with_the_nearest() {
        assert_eq!(suggest("H1000", []), Some("H100"));
        assert_eq!(suggest("A100-80", []), Some("A100-80GB"));
        assert_eq!(suggest("zzzzzz", []), None);
    }
}
