//! Dependencies between crates point one way; this is the picture they are held against.

use std::collections::BTreeMap;

/// Who may use whom. A crate that is not listed here has no business in the workspace.
const ARROWS: &[(&str, &[&str])] = &[
    ("windfall-core", &[]),
    ("windfall-store", &["windfall-core"]),
    ("windfall-catalog", &["windfall-core"]),
    ("windfall-sim", &["windfall-core", "windfall-catalog"]),
    ("windfall-agent", &["windfall-core"]),
    ("windfall-exec", &["windfall-core", "windfall-catalog", "windfall-sim"]),
    (
        "windfall-server",
        &["windfall-core", "windfall-store", "windfall-catalog", "windfall-sim", "windfall-agent", "windfall-exec"],
    ),
    ("windfall-rehearse", &["windfall-core", "windfall-agent", "windfall-server"]),
    ("windfall-jobfile", &["windfall-core", "windfall-catalog"]),
    ("windfall-insight", &["windfall-core", "windfall-catalog"]),
    (
        "windfall-cli",
        &[
            "windfall-core",
            "windfall-jobfile",
            "windfall-store",
            "windfall-catalog",
            "windfall-sim",
            "windfall-agent",
            "windfall-exec",
            "windfall-server",
            "windfall-rehearse",
            "windfall-insight",
        ],
    ),
    ("windfall-explore", &["windfall-core", "windfall-store", "windfall-sim", "windfall-exec", "windfall-server"]),
    ("xtask", &[]),
];

/// What `core` may be built from: it has no runtime, no clock and no I/O.
const CORE_MAY_USE: &[&str] = &["serde", "serde_json", "thiserror", "libm"];

/// Arrows that point another way, and crates that are not in the picture.
pub fn violations(metadata: &serde_json::Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    let mut found = Vec::new();
    for package in members(metadata) {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            found.push(format!("{name} is not in the picture of the crates"));
            continue;
        };
        let normal = package["dependencies"].as_array().into_iter().flatten().filter(|dep| dep["kind"].is_null());
        for dependency in normal.filter_map(|dep| dep["name"].as_str()) {
            if allowed.contains_key(dependency) && !may.contains(&dependency) {
                found.push(format!("{name} must not use {dependency}"));
            }
            if name == "windfall-core" && !CORE_MAY_USE.contains(&dependency) {
                found.push(format!("{name} must stay pure, but uses {dependency}"));
            }
        }
    }
    found
}

fn members(metadata: &serde_json::Value) -> impl Iterator<Item = &serde_json::Value> {
    let ids: Vec<&str> =
        metadata["workspace_members"].as_array().into_iter().flatten().filter_map(|id| id.as_str()).collect();
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.filter(move |package| package["id"].as_str().is_some_and(|id| ids.contains(&id)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn world(from: &str, to: &str) -> serde_json::Value {
        serde_json::json!({
            "workspace_members": ["a"],
            "packages": [{ "id": "a", "name": from, "dependencies": [{ "name": to, "kind": null }] }],
        })
    }

    #[test]
    fn an_arrow_that_points_back_is_found() {
        assert_eq!(violations(&world("windfall-store", "windfall-server")).len(), 1);
        assert_eq!(violations(&world("windfall-core", "tokio")).len(), 1);
        assert_eq!(violations(&world("windfall-unlisted", "serde")).len(), 1);
        assert!(violations(&world("windfall-server", "windfall-store")).is_empty());
    }

    #[test]
    fn the_workspace_keeps_to_the_picture() {
        assert_eq!(violations(&crate::workspace::metadata()), Vec::<String>::new());
    }
}
