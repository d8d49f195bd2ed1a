//! Whether a cluster can be used as the configuration says: Slurm's programs, its controller, the partitions, the account, and what
//! a pilot would be told. Nothing is submitted.

use super::commands::{self, Kind, Partition, SlurmError};
use super::{Slurm, parts, pilot};
use crate::finding::Finding;
use crate::name_of_account;
use windfall_core::english::counted;
use windfall_core::nearest::nearest;
use windfall_core::{DecisionId, Installation, Span};

/// What Slurm is asked with.
const PROGRAMS: [&str; 5] = ["sinfo", "squeue", "sbatch", "scancel", "srun"];

impl Slurm {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let name = self.name.as_str();
        for program in PROGRAMS {
            if let Err(error @ SlurmError::NoProgram { .. }) = commands::version(program).await {
                let mend = "install Slurm's client programs here, and put them in the server's PATH";
                return vec![Finding::missing(name, error.to_string(), mend)];
            }
        }
        let kinds = match commands::kinds().await {
            Ok(kinds) => kinds,
            Err(error) => {
                let mend = "`sinfo` as the server's user says the same: see SLURM_CONF, munge and the controller";
                return vec![Finding::missing(name, error.to_string(), mend)];
            }
        };
        let version = commands::version("sinfo").await.unwrap_or_else(|_| "Slurm".to_owned());
        let mut found = vec![Finding::ok(name, format!("{version} answers"))];
        found.extend(self.partitions(&kinds));
        found.extend(self.rights().await);
        let used: Vec<&Kind> = kinds.iter().filter(|kind| self.uses(kind)).collect();
        let mut partitions: Vec<&str> = used.iter().map(|kind| kind.partition.as_str()).collect();
        partitions.dedup();
        for partition in partitions {
            if let Ok(partition) = commands::partition(partition).await {
                found.extend(unwarned(name, &partition));
            }
        }
        found.extend(used.iter().filter(|kind| kind.limit.is_some()).filter_map(|kind| self.too_long(kind)));
        for kind in used.iter().filter(|kind| kind.nodes > 0) {
            found.push(self.trial(kind).await);
        }
        if !self.settings.program.is_file() {
            let program = self.settings.program.display();
            let mend = format!("check that {program} is there on compute nodes, or set program below [slurm]");
            found.push(Finding::warning(name, format!("{program} is not on this machine"), mend));
        }
        found
    }

    /// Partitions that are named and not there, or have nobody to run anything.
    fn partitions(&self, kinds: &[Kind]) -> Vec<Finding> {
        let known = || kinds.iter().map(|kind| kind.partition.as_str());
        let mut found = Vec::new();
        for asked in &self.settings.partitions {
            let nodes: u32 = kinds.iter().filter(|kind| kind.partition == *asked).map(|kind| kind.nodes).sum();
            found.push(match (known().any(|name| name == asked), nodes) {
                (false, _) => {
                    let mut all: Vec<&str> = known().collect();
                    all.dedup();
                    let mend = match nearest(asked, known()) {
                        Some(near) => format!("did you mean {near}? `sinfo -s` lists them"),
                        None => format!("use one of {}", all.join(", ")),
                    };
                    Finding::missing(&self.name, format!("there is no partition {asked}"), mend)
                }
                (true, 0) => {
                    let says = format!("no node of partition {asked} takes work");
                    Finding::warning(&self.name, says, format!("sinfo -R -p {asked}  # says why"))
                }
                (true, nodes) => {
                    let says = format!("partition {asked}: {} in use or free", counted(nodes.into(), "node"));
                    Finding::ok(&self.name, says)
                }
            });
        }
        found
    }

    /// Whether the server's user may use the account and the quality of service that are named.
    async fn rights(&self) -> Vec<Finding> {
        let user = name_of_account(rustix::process::geteuid().as_raw());
        let associations = commands::associations(&user).await.unwrap_or_default();
        let asked = [("account", &self.settings.account, 0), ("QOS", &self.settings.qos, 1)];
        let asked = asked.into_iter().filter_map(|(what, asked, at)| Some((what, asked.as_deref()?, at)));
        let judge = |(what, asked, at): (&str, &str, usize)| {
            if associations.is_empty() {
                let says = format!("whether {user} may use the {what} {asked} is not known: no accounting answers");
                return Finding::warning(&self.name, says, "sacctmgr show assoc user=$USER  # once slurmdbd is there");
            }
            let known = associations.iter().flat_map(|fields| fields[at].split(','));
            if known.clone().any(|known| known == asked) {
                return Finding::ok(&self.name, format!("{user} may use the {what} {asked}"));
            }
            let mut may: Vec<&str> = known.filter(|known| !known.is_empty()).collect();
            may.sort_unstable();
            may.dedup();
            let says = format!("{user} may not use the {what} {asked}; it has {}", may.join(", "));
            Finding::missing(&self.name, says, "name one of these below [slurm], or ask the site for it")
        };
        asked.map(judge).collect()
    }

    fn too_long(&self, kind: &Kind) -> Option<Finding> {
        let (asked, limit) = (Span::minutes(self.settings.wall_minutes), kind.limit?);
        let says = format!("partition {} allows {limit}, less than the {asked} that is asked for", kind.partition);
        let mend = format!("nothing: {limit} is asked for there, and jobs go on in another job of Slurm's after it");
        (asked > limit).then(|| Finding::warning(&self.name, says, mend))
    }

    /// What Slurm says of a pilot on one node, without submitting it.
    async fn trial(&self, kind: &Kind) -> Finding {
        let count = parts(kind).max().unwrap_or(0);
        let group = DecisionId { installation: Installation(0), seq: 0 };
        let shape = self.shape(kind, count, windfall_core::pool::Shape::default(), None);
        let options = pilot::options(&self.settings, group, 1, &shape, None);
        let what = format!("a node of {} with {}", kind.partition, self.part_name(kind, count));
        match commands::tested(&options).await {
            Ok(said) => Finding::ok(&self.name, format!("{what}: {said}")),
            Err(error @ SlurmError::Failed { .. }) => {
                let mend = "sbatch --test-only as the server's user says the same; the site can say why";
                Finding::missing(&self.name, format!("{what}: {error}"), mend)
            }
            Err(error) => Finding::warning(&self.name, format!("{what}: {error}"), "try again when it answers"),
        }
    }
}

/// Jobs that others may end without a warning.
fn unwarned(engine: &str, partition: &Partition) -> Option<Finding> {
    let says = format!("jobs of partition {} may be preempted without a warning (GraceTime=0)", partition.name);
    let mend = "save often, or ask the site for a GraceTime: what was done since the last save is done again";
    (partition.is_preempted && partition.grace_seconds == 0).then(|| Finding::warning(engine, says, mend))
}
