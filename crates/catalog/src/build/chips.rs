//! What instance types really have in them. The price lists leave it out, or say it wrong; here is what the
//! providers' own descriptions of their machines say.

use crate::facts::TypeFacts;
use crate::names;
use crate::words::Count;

/// Accelerators of an instance type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chips {
    pub family: String,
    /// The model, where it can be told.
    pub model: Option<String>,
    pub count: Count,
}

impl Chips {
    fn of(name: &str, count: Count) -> Chips {
        let named = names::adopt(name);
        Chips { family: named.family, model: named.model.map(str::to_owned), count }
    }
}

/// What a file says of an instance type's accelerators.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claim<'c> {
    pub name: &'c str,
    pub count: Option<Count>,
    /// A longer name, which may tell the form.
    pub long_name: Option<&'c str>,
    /// Memory of one.
    pub memory_mib: Option<u32>,
}

/// The accelerators of a type: what we know better, else what the file claims.
pub fn settle(cloud: &str, kind: &str, claim: Claim<'_>) -> Option<Chips> {
    let known = match cloud {
        "aws" => aws(kind),
        "azure" => azure(kind),
        "gcp" => gcp(kind),
        _ => None,
    };
    if known.is_some() {
        return known;
    }
    // FPGAs and video encoders are listed as accelerators; nothing trains on them.
    if claim.name.is_empty() || claim.name.contains("Virtex") || claim.name.contains("VU47P") {
        return None;
    }
    let name = match (cloud, claim.name, claim.memory_mib) {
        // Nebius calls the Blackwell card so; Lambda means the Turing one.
        ("nebius", "RTX6000", _) => "RTXPRO6000",
        ("lambda", "A100", _) if !kind.contains("sxm4") && !kind.starts_with("gpu_8x") => "A100-PCIe",
        ("lambda", "H100", _) if kind.contains("pcie") => "H100-PCIe",
        ("runpod", "A100-80GB", _) => "A100-PCIe-80GB",
        ("vast", "H100", _) if kind.contains("_NVL") => "H100-NVL",
        ("vast", "H100", _) if kind.contains("_PCIE") => "H100-PCIe",
        // SkyPilot leaves the end of a card's name out; these are other cards, with other memory.
        ("vast", "RTX3060", _) if kind.contains("_3060_Ti") => "RTX3060-Ti",
        ("vast", "RTX4060", _) if kind.contains("_4060_Ti") => "RTX4060-Ti",
        ("vast", "RTX4070", _) if kind.contains("_4070S_Ti") => "RTX4070-Ti-Super",
        ("vast", "A100", Some(mib)) if kind.contains("_PCIE") && mib > 60_000 => "A100-PCIe-80GB",
        ("vast", "A100", _) if kind.contains("_PCIE") => "A100-PCIe",
        (_, "A100", Some(mib)) if mib > 60_000 => "A100-80GB",
        (_, "V100", Some(mib)) if mib > 30_000 => "V100-32GB",
        (_, name, _) => claim.long_name.filter(|long| says_more(long, name)).unwrap_or(name),
    };
    Some(Chips::of(name, claim.count?))
}

/// Whether a long name is of the same family and tells the form: `H100 PCIe` for `H100`.
fn says_more(long: &str, name: &str) -> bool {
    match (names::lookup(long), names::lookup(name)) {
        (Some(long), Some(short)) => long.family == short.family && long.exact && !short.exact,
        _ => false,
    }
}

/// SkyPilot lists Trainium2 instances without accelerators.
fn aws(kind: &str) -> Option<Chips> {
    match kind {
        "trn2.3xlarge" => Some(Chips::of("Trainium2", Count::whole(1))),
        "trn2.48xlarge" | "trn2u.48xlarge" => Some(Chips::of("Trainium2", Count::whole(16))),
        _ => None,
    }
}

/// The accelerator of an AWS family, for lists that give only their number.
pub fn aws_family(kind: &str) -> Option<&'static str> {
    let (family, _) = kind.split_once('.')?;
    Some(match family {
        "g3" | "g3s" => "M60",
        "g4dn" => "T4",
        "g4ad" => "V520",
        "g5" => "A10G",
        "g5g" => "T4G",
        "g6" | "gr6" | "g6f" | "gr6f" => "L4",
        "g6e" => "L40S",
        "g7" => "RTXPRO4500",
        "g7e" => "RTXPRO6000",
        "p2" => "K80",
        "p3" => "V100",
        "p3dn" => "V100-32GB",
        "p4d" => "A100",
        "p4de" => "A100-80GB",
        "p5" => "H100",
        "p5e" | "p5en" => "H200",
        "p6-b200" => "B200",
        "p6-b300" => "B300",
        _ => return None,
    })
}

/// Azure's names say the size and the chip, but not how many.
fn azure(kind: &str) -> Option<Chips> {
    let size = kind.strip_prefix("Standard_")?;
    let whole = |name: &str, count: u32| Some(Chips::of(name, Count::whole(count)));
    let share = |name: &str, milli: u32| Some(Chips::of(name, Count(milli)));
    match size {
        "NC24ads_A100_v4" => whole("A100-PCIe-80GB", 1),
        "NC48ads_A100_v4" => whole("A100-PCIe-80GB", 2),
        "NC96ads_A100_v4" => whole("A100-PCIe-80GB", 4),
        "NC40ads_H100_v5" | "NCC40ads_H100_v5" => whole("H100-NVL", 1),
        "NC80adis_H100_v5" => whole("H100-NVL", 2),
        "NC4as_T4_v3" | "NC8as_T4_v3" | "NC16as_T4_v3" => whole("T4", 1),
        "NC64as_T4_v3" => whole("T4", 4),
        "NC6s_v3" => whole("V100-PCIe", 1),
        "NC12s_v3" => whole("V100-PCIe", 2),
        "NC24s_v3" | "NC24rs_v3" => whole("V100-PCIe", 4),
        "ND40rs_v2" | "ND40s_v2" => whole("V100-32GB", 8),
        "ND96asr_v4" | "ND96asr_A100_v4" => whole("A100", 8),
        "ND96ams_A100_v4" | "ND96amsr_A100_v4" => whole("A100-80GB", 8),
        // SkyPilot counts twelve.
        "ND96is_H100_v5" | "ND96isr_H100_v5" | "ND96isf_H100_v5" | "ND96isrf_H100_v5" | "ND96is_noIB_H100_v5" => {
            whole("H100-SXM", 8)
        }
        "ND96isr_H200_v5" => whole("H200", 8),
        "ND96is_MI300X_v5" | "ND96isr_MI300X_v5" => whole("MI300X", 8),
        "ND128isr_NDR_GB200_v6" | "ND128isrf_NDR_GB200_v6" => whole("GB200", 4),
        // SkyPilot counts a whole card in each of these; they have an eighth, a quarter and a half of one.
        "NV4as_v4" => share("MI25", 125),
        "NV8as_v4" => share("MI25", 250),
        "NV16as_v4" => share("MI25", 500),
        "NV32as_v4" => whole("MI25", 1),
        "NV6ads_A10_v5" => share("A10", 167),
        "NV12ads_A10_v5" => share("A10", 333),
        "NV18ads_A10_v5" => share("A10", 500),
        "NV36ads_A10_v5" | "NV36adms_A10_v5" => whole("A10", 1),
        "NV72ads_A10_v5" => whole("A10", 2),
        "NV6s_v2" | "NV12s_v3" => whole("M60", 1),
        "NV12s_v2" | "NV24s_v3" => whole("M60", 2),
        "NV24s_v2" | "NV48s_v3" => whole("M60", 4),
        "NG8ads_V620_v1" => share("V620", 250),
        "NG16ads_V620_v1" => share("V620", 500),
        "NG32ads_V620_v1" | "NG32adms_V620_v1" => whole("V620", 1),
        _ => None,
    }
}

/// Google's accelerator machines have theirs built in; its price lists name them apart.
pub fn gcp(kind: &str) -> Option<Chips> {
    let whole = |name: &str, count: u32| Some(Chips::of(name, Count::whole(count)));
    let (family, rest) = kind.split_once('-')?;
    let bare = rest.strip_suffix("-nolssd").unwrap_or(rest);
    let (shape, size) = bare.rsplit_once('-')?;
    let chips = || size.strip_suffix('g').and_then(|count| count.parse::<u32>().ok());
    match (family, shape) {
        ("a2", "highgpu" | "megagpu") => whole("A100", chips()?),
        ("a2", "ultragpu") => whole("A100-80GB", chips()?),
        ("a3", "highgpu" | "edgegpu") => whole("H100-SXM", chips()?),
        ("a3", "megagpu") => whole("H100-MEGA", chips()?),
        ("a3", "ultragpu") => whole("H200", chips()?),
        ("a4", "highgpu") => whole("B200", chips()?),
        ("g2", "standard") => match size {
            "4" | "8" | "12" | "16" | "32" => whole("L4", 1),
            "24" => whole("L4", 2),
            "48" => whole("L4", 4),
            "96" => whole("L4", 8),
            _ => None,
        },
        ("g4", "standard") => {
            let cores: u32 = size.parse().ok()?;
            (cores <= 384).then(|| Chips::of("RTXPRO6000", Count(cores * 1_000 / 48)))
        }
        _ => None,
    }
}

/// The network of a type where its provider says it: Gb/s and what it is.
pub fn network(cloud: &str, kind: &str) -> Option<(u32, &'static str)> {
    let size = kind.strip_prefix("Standard_").unwrap_or(kind);
    match (cloud, size) {
        ("gcp", "a2-highgpu-8g" | "a2-megagpu-16g" | "a2-ultragpu-8g") => Some((100, "gVNIC")),
        ("gcp", "a3-highgpu-8g" | "a3-edgegpu-8g" | "a3-edgegpu-8g-nolssd") => Some((1_000, "GPUDirect-TCPX")),
        ("gcp", "a3-megagpu-8g") => Some((1_800, "GPUDirect-TCPXO")),
        ("gcp", "a3-ultragpu-8g" | "a3-ultragpu-8g-nolssd" | "a4-highgpu-8g") => Some((3_600, "RoCE")),
        ("azure", "ND40rs_v2") => Some((100, "InfiniBand")),
        ("azure", "ND96asr_v4" | "ND96asr_A100_v4" | "ND96amsr_A100_v4") => Some((1_600, "InfiniBand")),
        ("azure", "ND96isr_H100_v5" | "ND96isrf_H100_v5" | "ND96isr_H200_v5" | "ND96isr_MI300X_v5") => {
            Some((3_200, "InfiniBand"))
        }
        _ => None,
    }
}

/// Whether an AWS type has an Elastic Fabric Adapter.
pub fn has_efa(kind: &str) -> bool {
    let Some((family, size)) = kind.split_once('.') else { return false };
    let large = matches!(size, "8xlarge" | "12xlarge" | "16xlarge" | "24xlarge" | "48xlarge" | "metal");
    match family {
        "p3dn" | "p4d" | "p4de" | "p5e" | "p5en" | "p6-b200" | "p6-b300" | "trn1n" | "trn2" | "trn2u" | "dl1" => true,
        "p5" => true,
        "trn1" => size == "32xlarge",
        "g4dn" | "g5" | "g6" | "g6e" | "gr6" => large,
        _ => false,
    }
}

/// An instance type with what `chips` and its provider say of it.
pub(super) fn filled(
    cloud: &str,
    kind: &str,
    chips: Option<Chips>,
    vcpus_milli: Option<u32>,
    memory_mib: Option<u32>,
    accelerator_memory_mib: Option<u32>,
) -> TypeFacts {
    let known = network(cloud, kind);
    let efa = cloud == "aws" && has_efa(kind);
    TypeFacts {
        cloud: cloud.to_owned(),
        name: kind.to_owned(),
        count: chips.as_ref().map_or(Count(0), |chips| chips.count),
        model: chips.as_ref().and_then(|chips| chips.model.clone()),
        accelerator: chips.map(|chips| chips.family),
        vcpus_milli,
        memory_mib,
        accelerator_memory_mib,
        network_mbps: known.map(|(gbps, _)| gbps * 1_000),
        fabric: known.map(|(_, fabric)| fabric).or(efa.then_some("EFA")).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(cloud: &str, kind: &str, name: &str, count: u32) -> Option<(String, String)> {
        let claim = Claim { name, count: Some(Count::whole(count)), ..Claim::default() };
        settle(cloud, kind, claim).map(|chips| (chips.family, chips.count.to_string()))
    }

    #[test]
    fn wrong_facts_of_the_sources_are_not_repeated() {
        let is = |family: &str, count: &str| Some((family.to_owned(), count.to_owned()));
        assert_eq!(settled("azure", "Standard_ND96isr_H100_v5", "H100", 12), is("H100", "8"));
        assert_eq!(settled("azure", "Standard_NV4as_v4", "Radeon MI25", 1), is("MI25", "1/8"));
        assert_eq!(settled("aws", "f2.48xlarge", "Virtex UltraScale+ (VU47P)", 8), None);
        assert_eq!(settled("aws", "trn2.48xlarge", "", 0), is("Trainium2", "16"));
        assert_eq!(settled("nebius", "gpu-rtx6000", "RTX6000", 1), is("RTXPRO6000", "1"));
        assert_eq!(settled("lambda", "gpu_1x_rtx6000", "RTX6000", 1), is("RTX6000", "1"));
    }

    #[test]
    fn google_s_machines_have_their_chips_built_in() {
        let of = |kind: &str| gcp(kind).map(|chips| (chips.family, chips.count.to_string()));
        assert_eq!(of("a2-megagpu-16g"), Some(("A100".into(), "16".into())));
        assert_eq!(of("a3-ultragpu-8g-nolssd"), Some(("H200".into(), "8".into())));
        assert_eq!(of("g2-standard-24"), Some(("L4".into(), "2".into())));
        assert_eq!(of("g4-standard-6"), Some(("RTXPRO6000".into(), "1/8".into())));
        assert_eq!(of("n1-standard-8"), None);
    }
}
