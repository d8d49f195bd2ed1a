//! Every dependency's licence is on the list, or the build is not ours to give away.

/// What may be linked into an Apache-2.0 binary without further duties.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages whose licence is not on the list.
pub fn violations(metadata: &serde_json::Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter_map(|package| {
            let licence = package["license"].as_str().unwrap_or("none");
            let name = package["name"].as_str().unwrap_or_default();
            (!is_allowed(licence)).then(|| format!("{name}: {licence}"))
        })
        .collect()
}

/// Reads an SPDX expression: any of alternatives, all of combinations.
fn is_allowed(expression: &str) -> bool {
    let flat = expression.replace('/', " OR ");
    let (open, close) = (flat.find('('), flat.rfind(')'));
    if let (Some(open), Some(close)) = (open, close) {
        let inner = if is_allowed(&flat[open + 1..close]) { "MIT" } else { "none" };
        return is_allowed(&format!("{}{inner}{}", &flat[..open], &flat[close + 1..]));
    }
    flat.split(" OR ").any(|choice| choice.split(" AND ").all(|part| ALLOWED.contains(&part.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_their_words_say() {
        assert!(is_allowed("MIT OR GPL-3.0"));
        assert!(is_allowed("(MIT OR Apache-2.0) AND Unicode-3.0"));
        assert!(is_allowed("MIT/Apache-2.0"));
        assert!(!is_allowed("MIT AND GPL-3.0"));
        assert!(!is_allowed("none"));
    }
}
