//! What of a cluster the server's user may use at most, as its controller and its accounts say: nodes and times of partitions, and what
//! the account and its qualities of service are allowed. It is asked for now and then, beside everything else.

use super::{Slurm, SlurmSettings, commands};
use crate::limit::Limit;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// For so long what was seen is good enough.
const NEWS: Duration = Duration::from_secs(300);

/// What was seen last, and when it was asked for.
pub(super) type SeenLimits = (Option<Instant>, Vec<Limit>);

/// Columns of an association after its account and its qualities of service, and what each limits.
const OF_ACCOUNT: [(&str, &str); 7] = [
    ("GrpTRES", "at once, of all of it"),
    ("GrpTRESMins", "in minutes, of all of it"),
    ("MaxTRES", "of a job"),
    ("GrpJobs", "jobs at once, of all of it"),
    ("MaxJobs", "jobs at once"),
    ("MaxSubmit", "jobs in the queue"),
    ("MaxWall", "time of a job"),
];
/// The same of a quality of service after its name.
const OF_QOS: [(&str, &str); 6] = [
    ("GrpTRES", "at once, of all of it"),
    ("MaxTRESPU", "at once, of a user"),
    ("MaxTRES", "of a job"),
    ("MaxJobsPU", "jobs at once, of a user"),
    ("MaxSubmitPU", "jobs in the queue, of a user"),
    ("MaxWall", "time of a job"),
];

impl Slurm {
    /// What was seen last. Looks again beside this where that is old.
    pub(super) fn seen_limits(self: &Arc<Self>) -> Vec<Limit> {
        let mut seen = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.0.is_none_or(|at| at.elapsed() > NEWS) {
            seen.0 = Some(Instant::now());
            let slurm = Arc::clone(self);
            tokio::spawn(async move {
                let limits = look(&slurm.settings, &slurm.user).await;
                slurm.limits.lock().unwrap_or_else(PoisonError::into_inner).1 = limits;
            });
        }
        seen.1.clone()
    }
}

async fn look(settings: &SlurmSettings, user: &str) -> Vec<Limit> {
    let partitions = commands::partitions().await.unwrap_or_default();
    let mut limits: Vec<Limit> = partitions.lines().flat_map(|line| of_partition(line, settings)).collect();
    // A cluster without accounting limits nothing else.
    let columns = |columns: &[(&str, &str)]| columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    let fields = format!("Account,QOS,{}", columns(&OF_ACCOUNT));
    let associations = commands::accounted("assoc", &fields, Some(user)).await.unwrap_or_default();
    let (of_accounts, qos) = of_accounts(&associations, settings);
    limits.extend(of_accounts);
    let fields = format!("Name,{}", columns(&OF_QOS));
    limits.extend(of_qos(&commands::accounted("qos", &fields, None).await.unwrap_or_default(), &qos));
    limits
}

/// Nodes and times of a partition that may be used.
fn of_partition(line: &str, settings: &SlurmSettings) -> Vec<Limit> {
    let of = |key: &str| line.split_whitespace().find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='));
    let name = of("PartitionName").unwrap_or_default();
    if name.is_empty() || !(settings.partitions.is_empty() || settings.partitions.iter().any(|used| used == name)) {
        return Vec::new();
    }
    let said = [("TotalNodes", "nodes"), ("MaxNodes", "nodes of a job"), ("MaxTime", "time of a job")];
    let limited = said.into_iter().filter_map(|(key, what)| Some((what, of(key).filter(|most| *most != "UNLIMITED")?)));
    limited.map(|(what, most)| Limit::new(&format!("partition {name}"), what, most)).collect()
}

/// What accounts allow, and the qualities of service that they may use.
fn of_accounts(said: &str, settings: &SlurmSettings) -> (Vec<Limit>, Vec<String>) {
    let (mut limits, mut qos) = (Vec::new(), Vec::new());
    for line in said.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let [account, may, rest @ ..] = fields.as_slice() else { continue };
        if settings.account.as_ref().is_some_and(|used| used != account) {
            continue;
        }
        limits.extend(said_of(&format!("account {account}"), &OF_ACCOUNT, rest));
        qos.extend(may.split(',').filter(|qos| !qos.is_empty()).map(str::to_owned));
    }
    if let Some(used) = &settings.qos {
        qos = vec![used.clone()];
    }
    (limits, qos)
}

fn of_qos(said: &str, used: &[String]) -> Vec<Limit> {
    let lines = said.lines().filter_map(|line| line.split_once('|'));
    let used = lines.filter(|(name, _)| used.iter().any(|used| used == name));
    used.flat_map(|(name, rest)| said_of(&format!("QOS {name}"), &OF_QOS, &rest.split('|').collect::<Vec<_>>()))
        .collect()
}

/// What is not limited is empty.
fn said_of(of: &str, columns: &[(&str, &str)], fields: &[&str]) -> Vec<Limit> {
    let limited = columns.iter().zip(fields).filter(|(_, most)| !most.is_empty());
    limited.map(|((_, what), most)| Limit::new(of, what, most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(more: &str) -> SlurmSettings {
        let text = format!(r#"{{"server":"h:1","program":"/p","scratch":"/tmp","wall_minutes":60{more}}}"#);
        serde_json::from_str(&text).expect("settings")
    }

    fn shown(limits: &[Limit]) -> Vec<String> {
        limits.iter().map(|limit| format!("{}: {} {}", limit.of, limit.most, limit.what)).collect()
    }

    #[test]
    fn limits_are_those_of_partitions_and_accounts_that_are_used() {
        let line = "PartitionName=gpu MaxNodes=4 MaxTime=2-00:00:00 TotalNodes=12 TotalCPUs=96";
        assert_eq!(
            shown(&of_partition(line, &settings(""))),
            ["partition gpu: 12 nodes", "partition gpu: 4 nodes of a job", "partition gpu: 2-00:00:00 time of a job"]
        );
        assert!(of_partition(line, &settings(r#","partitions":["cpu"]"#)).is_empty());
        let open = "PartitionName=cpu MaxNodes=UNLIMITED MaxTime=UNLIMITED TotalNodes=3";
        assert_eq!(shown(&of_partition(open, &settings(""))), ["partition cpu: 3 nodes"]);

        let said = "nlp|normal,high|gres/gpu=16|||||50|\nvision|normal|||||||\nbroken\n";
        let (limits, qos) = of_accounts(said, &settings(r#","account":"nlp""#));
        assert_eq!(
            shown(&limits),
            ["account nlp: gres/gpu=16 at once, of all of it", "account nlp: 50 jobs in the queue"]
        );
        let said = "normal|||||||\nhigh||gres/gpu=8|||||\nother|cpu=1||||||\n";
        assert_eq!(shown(&of_qos(said, &qos)), ["QOS high: gres/gpu=8 at once, of a user"]);
        assert_eq!(of_accounts("nlp|normal|", &settings(r#","qos":"high""#)).1, ["high"]);
    }
}
