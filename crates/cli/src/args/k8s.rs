//! Arguments of `windfall k8s`.

use clap::{Args, Subcommand};

/// What to do with a Kubernetes cluster.
#[derive(Debug, Subcommand)]
pub enum K8sCommand {
    /// Print what a cluster needs so that a server runs on it, or beside it with an account of its own
    Install(K8sInstallArgs),
}

const HELP: &str = "\
Examples:
  windfall k8s install --image lab/windfall:1 --program-image pytorch/pytorch:2.9 | kubectl apply -f -
  windfall k8s install --account-only --jobs-in ml | kubectl apply -f -
  kubectl create token windfall -n windfall --duration 720h    a token for a server elsewhere

Nothing is applied: what is printed is for you to read. The service account may do what the server does and nothing else: Jobs and \
Secrets in one namespace, and looking at nodes and pods.";

/// What is installed, and where.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct K8sInstallArgs {
    /// The image that has this program as `windfall`
    #[arg(long, required_unless_present = "account_only")]
    pub image: Option<String>,
    /// The image that programs of jobs run in
    #[arg(long, value_name = "IMAGE", required_unless_present = "account_only")]
    pub program_image: Option<String>,
    /// What its objects are called
    #[arg(long, default_value = "windfall")]
    pub name: String,
    /// Where the server is
    #[arg(long, default_value = "windfall")]
    pub namespace: String,
    /// Where Jobs are made [default: where the server is]
    #[arg(long, value_name = "NAMESPACE")]
    pub jobs_in: Option<String>,
    /// Where pods reach the server
    #[arg(long, default_value_t = 7443, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// Room for the server's log, and for checkpoints where jobs name no other store
    #[arg(long, default_value = "20Gi", value_name = "SIZE")]
    pub storage: String,
    /// Only the service account and its rights: for a server that runs elsewhere
    #[arg(long, conflicts_with_all = ["image", "program_image"])]
    pub account_only: bool,
}
