//! Files of other tools that people hand over: recognised, so that the message can say so.

use super::error::{Class, Problem, Problems, Quoted};
use super::node::Node;

/// Keys that only SkyPilot's task files have, at the top and under `resources`.
const TOP: &[&str] = &["file_mounts", "num_nodes", "envs", "service", "storage_mounts"];
const RESOURCES: &[&str] = &[
    "cloud",
    "infra",
    "region",
    "zone",
    "use_spot",
    "instance_type",
    "image_id",
    "any_of",
    "ordered",
    "disk_size",
    "disk_tier",
    "job_recovery",
    "spot_recovery",
    "ports",
    "autostop",
    "labels",
];

/// Says that the file is SkyPilot's, if it is.
pub(super) fn is_skypilot(root: &Node, problems: &mut Problems) -> bool {
    let resources = root.entries().iter().find(|(key, _)| key.text() == Some("resources"));
    let top = root.entries().iter().map(|(key, _)| (key, TOP));
    let below = resources.iter().flat_map(|(_, value)| value.entries()).map(|(key, _)| (key, RESOURCES));
    let Some((key, _)) = top.chain(below).find(|(key, list)| key.text().is_some_and(|name| list.contains(&name)))
    else {
        return false;
    };
    let name = key.text().unwrap_or_default();
    let instead = match name {
        "num_nodes" => "write `nodes` instead",
        "envs" => "write `env` instead",
        "labels" => "write them at the top as `tags`, by which `windfall cost` splits what is paid",
        _ => "remove it",
    };
    let problem = Problem::new(
        Class::Unsupported,
        format!("this looks like a SkyPilot task: {} is a key of SkyPilot", Quoted(name)),
    )
    .expected("a windfall job file")
    .hint(format!("SkyPilot tasks will be read later; if this is a job file, {instead}"));
    problems.add(&key.span, problem);
    true
}
