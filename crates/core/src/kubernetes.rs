//! Words of Kubernetes that more than one reader of it knows: the engine, and the reader of its Job files.

/// How many NVIDIA accelerators a node has or a pod asks for.
pub const GPU: &str = "nvidia.com/gpu";

/// Labels that name a node's accelerators, the most exact first: NVIDIA's feature discovery, GKE, Karpenter on AWS, EKS.
pub const PRODUCTS: [&str; 4] = [
    "nvidia.com/gpu.product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "k8s.amazonaws.com/accelerator",
];

/// An amount as Kubernetes writes it, in thousandths: `500m`, `8`, `1Ti`, `2e3`. None where it is no amount.
pub fn thousandths(text: &str) -> Option<u128> {
    const SUFFIXES: [(&str, u128); 12] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
        ("Ei", 1 << 60),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("E", 1_000_000_000_000_000_000),
    ];
    const SMALL: [(&str, u128); 3] = [("m", 1_000), ("u", 1_000_000), ("n", 1_000_000_000)];
    let suffix = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor, 1)));
    let small = || SMALL.iter().find_map(|(suffix, parts)| Some((text.strip_suffix(suffix)?, 1, *parts)));
    let (number, factor, parts) = suffix.or_else(small).unwrap_or((text, 1, 1));
    let (number, exponent) = match number.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: String = [whole, fraction].concat();
    if digits.is_empty() || digits.len() > 24 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let shift = exponent - fraction.len() as i32;
    let value = digits.parse::<u128>().ok()?.checked_mul(factor)?.checked_mul(1_000)?;
    let power = 10u128.checked_pow(shift.unsigned_abs())?;
    Some(if shift < 0 { value / power } else { value.checked_mul(power)? } / parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_kubernetes_writes_them() {
        for (text, amount) in [
            ("8", 8_000),
            ("500m", 500),
            ("1.5", 1_500),
            ("1Ti", 1_000 << 40),
            ("1.5Gi", 1_500 << 30),
            ("128974848", 128_974_848_000),
            ("129e6", 129_000_000_000),
            ("129M", 129_000_000_000),
            ("1E", 1_000_000_000_000_000_000_000),
            ("100n", 0),
            ("0", 0),
            ("2500000u", 2_500),
        ] {
            assert_eq!(thousandths(text), Some(amount), "{text}");
        }
        for text in ["", "x", "m", "Gi", "-1", "1e99", "1.2.3", "٣"] {
            assert_eq!(thousandths(text), None, "{text}");
        }
    }
}
