//! What a cluster has, for whoever submits to it by themselves: its version, its partitions, and what its user may use. Nothing
//! is changed.

use super::commands::{self, Kind, SlurmError, span};
use windfall_core::Span;

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Year and month: (22, 5).
    pub version: Option<(u32, u32)>,
    pub partitions: Vec<SeenPartition>,
    /// Qualities of service that the user may use; empty where nothing is accounted.
    pub qos: Vec<String>,
}

/// A partition, with the largest of its nodes that take work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenPartition {
    pub name: String,
    pub is_default: bool,
    /// Only some groups may use it, or some accounts may not.
    pub is_restricted: bool,
    pub limit: Option<Span>,
    /// The limit of jobs that ask for none.
    pub default: Option<Span>,
    pub nodes: u32,
    pub cpus: u32,
    pub memory_mb: u64,
    pub accelerators: u32,
    /// Those of the node that has fewest.
    pub least_accelerators: u32,
    pub grace_seconds: u64,
    /// The accounts that may use it; empty for all.
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
}

/// Why nothing is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSurvey {
    /// Slurm's programs are not on this machine.
    #[error("Slurm's programs are not on this machine")]
    NoSlurm,
    /// They are, and say why they cannot tell.
    #[error("{0}")]
    Away(String),
}

/// Asks the cluster of this machine.
pub async fn survey(user: &str) -> Result<Survey, NoSurvey> {
    let away = |error: SlurmError| match error {
        SlurmError::NoProgram { .. } => NoSurvey::NoSlurm,
        error => NoSurvey::Away(error.to_string()),
    };
    let version = commands::version("sbatch").await.map_err(away)?;
    let (kinds, said) = (commands::kinds().await.map_err(away)?, commands::partitions().await.map_err(away)?);
    // A cluster without accounting has no associations.
    let associations = commands::associations(user).await.unwrap_or_default();
    let named = associations.iter().flat_map(|[_, qos]| qos.split(',')).filter(|qos| !qos.is_empty());
    let mut qos: Vec<String> = named.map(str::to_owned).collect();
    qos.sort_unstable();
    qos.dedup();
    let partitions = said.lines().filter_map(|line| partition(line, &kinds)).collect();
    Ok(Survey { version: version_of(&version), partitions, qos })
}

/// `slurm-wlm 22.05.8` or `slurm 24.11.5`.
fn version_of(said: &str) -> Option<(u32, u32)> {
    let mut parts = said.split_whitespace().last()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn partition(line: &str, kinds: &[Kind]) -> Option<SeenPartition> {
    let of = |key: &str| line.split_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let list = |key: &str| {
        let words = of(key).filter(|text| !matches!(*text, "ALL" | "(null)" | "N/A")).into_iter();
        words.flat_map(|text| text.split(',')).map(str::to_owned).collect::<Vec<String>>()
    };
    let name = of("PartitionName")?.to_owned();
    let nodes = || kinds.iter().filter(|kind| kind.partition == name && kind.nodes > 0);
    let accelerators = || nodes().map(|kind| kind.accelerators);
    Some(SeenPartition {
        is_default: of("Default") == Some("YES"),
        is_restricted: !list("AllowGroups").is_empty()
            || !list("DenyAccounts").is_empty()
            || !list("DenyQos").is_empty(),
        limit: of("MaxTime").and_then(span),
        default: of("DefaultTime").and_then(span),
        nodes: nodes().map(|kind| kind.nodes).sum(),
        cpus: nodes().map(|kind| kind.cpus).max().unwrap_or(0),
        memory_mb: nodes().map(|kind| kind.memory_mb).max().unwrap_or(0),
        accelerators: accelerators().max().unwrap_or(0),
        least_accelerators: accelerators().min().unwrap_or(0),
        grace_seconds: of("GraceTime").and_then(|text| text.parse().ok()).unwrap_or(0),
        accounts: list("AllowAccounts"),
        qos: list("AllowQos"),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_what_the_controller_says_and_what_its_nodes_have() {
        let kind = |accelerators: u32, nodes: u32| Kind {
            partition: "gpu".to_owned(),
            accelerator: "h100".to_owned(),
            accelerators,
            cpus: 64,
            memory_mb: 1_000,
            nodes,
            limit: None,
        };
        let line = "PartitionName=gpu AllowGroups=ALL AllowAccounts=nlp,vision AllowQos=ALL Default=YES QoS=N/A DefaultTime=01:00:00 \
                    GraceTime=30 MaxTime=2-00:00:00 State=UP";
        let expected = SeenPartition {
            name: "gpu".to_owned(),
            is_default: true,
            limit: Some(Span::hours(48)),
            default: Some(Span::hours(1)),
            nodes: 5,
            cpus: 64,
            memory_mb: 1_000,
            accelerators: 8,
            least_accelerators: 4,
            grace_seconds: 30,
            accounts: vec!["nlp".to_owned(), "vision".to_owned()],
            ..SeenPartition::default()
        };
        // Nodes that take no work have nothing to give.
        assert_eq!(partition(line, &[kind(8, 2), kind(4, 3), kind(0, 0)]), Some(expected));
        let open = partition("PartitionName=cpu AllowGroups=staff MaxTime=UNLIMITED DefaultTime=NONE", &[]);
        let open = open.map(|seen| (seen.is_restricted, seen.limit, seen.default, seen.nodes));
        assert_eq!(open, Some((true, None, None, 0)));
        assert_eq!(
            (version_of("slurm-wlm 22.05.8"), version_of("slurm 24.11.5"), version_of("")),
            (Some((22, 5)), Some((24, 11)), None)
        );
    }
}
