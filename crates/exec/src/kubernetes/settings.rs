//! How a cluster is used, as the configuration says. Nothing here is a secret: credentials are looked up where they are kept.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use windfall_core::NanoUsd;

/// How a cluster is used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesSettings {
    /// Where pods reach the server: HOST:PORT.
    pub server: String,
    /// The file that says where the cluster is, where it is not the usual one.
    #[serde(default)]
    pub kubeconfig: Option<PathBuf>,
    /// Which of that file's clusters, where it is not its current one.
    #[serde(default)]
    pub context: Option<String>,
    /// Where Jobs are made, where the context does not say.
    #[serde(default)]
    pub namespace: Option<String>,
    /// What programs run in.
    pub image: String,
    /// The image that brings this program to where others do not have it.
    #[serde(default)]
    pub agent_image: Option<String>,
    /// This program inside of `image`, where that has it.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// A file with a pod's template, to which everything else is added.
    #[serde(default)]
    pub template: Option<PathBuf>,
    /// The PriorityClass of pods.
    #[serde(default)]
    pub priority_class: Option<String>,
    /// Labels of nodes, `KEY=VALUE`, of which more come when pods wait for them.
    #[serde(default)]
    pub elastic: Vec<String>,
    /// What accelerators are called here, by what labels call them; others by what their name says.
    #[serde(default)]
    pub accelerators: BTreeMap<String, String>,
    /// What an hour of an accelerator costs.
    #[serde(rename = "rate_nanousd", default)]
    pub rate: NanoUsd,
    /// What an hour of one costs on nodes that may be taken away; none for the same.
    #[serde(rename = "spot_rate_nanousd", default)]
    pub spot_rate: Option<NanoUsd>,
}
