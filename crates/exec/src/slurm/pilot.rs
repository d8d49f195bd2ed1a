//! The batch script of a group: one process a node, each of which joins the server as a node for one lease. The tokens by which
//! they join are in the script itself, which Slurm shows to nobody but the job's owner and operators, and reach the processes over
//! their standard input: no file of a shared disk holds them, and no environment. Each is good once, for one lease of that owner's.

use super::SlurmSettings;
use crate::directory::Account;
use windfall_core::{DecisionId, LeaseId};

/// What stands before the group's id in the name of a job.
pub(super) const PREFIX: &str = "windfall-";

pub(super) fn job_name(group: DecisionId) -> String {
    format!("{PREFIX}{group}")
}

/// The group that a job of ours is.
pub(super) fn group_of(name: &str) -> Option<DecisionId> {
    let lease: LeaseId = name.strip_prefix(PREFIX)?.parse().ok()?;
    (lease.slot == 0).then_some(lease.group)
}

/// What a lease's node is called.
pub(super) fn node_name(lease: LeaseId) -> String {
    format!("slurm-{lease}")
}

/// What is asked of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub partition: String,
    /// As Slurm calls it; empty for none.
    pub accelerator: String,
    pub accelerators: u32,
    pub cpus: u32,
    pub memory_mb: u64,
    pub minutes: i64,
}

/// The options of `sbatch` for a group.
///
/// With `owner` it is another user's job: Slurm lets root say so.
pub(super) fn options(
    settings: &SlurmSettings,
    group: DecisionId,
    units: u32,
    shape: &Shape,
    owner: Option<&Account>,
) -> Vec<String> {
    let mut options = vec![
        format!("--job-name={}", job_name(group)),
        format!("--partition={}", shape.partition),
        format!("--nodes={units}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--time={}", shape.minutes),
        // Only the brain tries again: a job that Slurm begins anew would run a stint twice.
        "--no-requeue".to_owned(),
        // Nothing of the server's environment leaves it.
        "--export=NONE".to_owned(),
        "--output=/dev/null".to_owned(),
        "--chdir=/".to_owned(),
    ];
    match (shape.accelerators, shape.accelerator.as_str()) {
        (0, _) => {}
        // A node whose accelerators nobody has named.
        (count, "gpu") => options.push(format!("--gres=gpu:{count}")),
        (count, name) => options.push(format!("--gres=gpu:{name}:{count}")),
    }
    if shape.cpus > 0 {
        options.push(format!("--cpus-per-task={}", shape.cpus));
    }
    if shape.memory_mb > 0 {
        options.push(format!("--mem={}", shape.memory_mb));
    }
    if let Some(Account { uid, gid, .. }) = owner {
        options.extend([format!("--uid={uid}"), format!("--gid={gid}")]);
    }
    options.extend(settings.account.iter().map(|account| format!("--account={account}")));
    options.extend(settings.qos.iter().map(|qos| format!("--qos={qos}")));
    options
}

/// The batch script. Its step shares what the job has with steps that the program begins itself, and goes on where one process
/// of it ends. Since 22.05 a step does not know how many processors its job has a task.
pub(super) fn script(settings: &SlurmSettings, shape: &Shape, tokens: &[String]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let mut line = format!(
        "exec srun --overlap --kill-on-bad-exit=0 --export=ALL ${{SLURM_CPUS_PER_TASK:+--cpus-per-task=$SLURM_CPUS_PER_TASK}} {} agent pilot {} --scratch {}",
        quoted(&settings.program.to_string_lossy()),
        quoted(&settings.server),
        quoted(&settings.scratch.to_string_lossy()),
    );
    if shape.accelerators > 0 {
        line += &format!(
            " --accelerators {}",
            quoted(&format!("{}:{}", settings.called(&shape.accelerator), shape.accelerators))
        );
    }
    let tokens: String = tokens.iter().map(|token| format!("{token}\n")).collect();
    format!(
        "#!/bin/sh\n# Windfall's pilot: its processes wait for a job of Windfall's. `windfall jobs` tells which.\n{line} <<'END'\n{tokens}END\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_core::Installation;

    #[test]
    fn only_a_job_of_another_user_names_its_user() {
        let settings: SlurmSettings = serde_json::from_str(
            r#"{"server":"h:1","program":"/p","scratch":"/tmp","wall_minutes":60,"account":"lab"}"#,
        )
        .expect("settings");
        let group = DecisionId { installation: Installation(7), seq: 12 };
        let shape = Shape {
            partition: "gpu".to_owned(),
            accelerator: "h100".to_owned(),
            accelerators: 2,
            cpus: 4,
            memory_mb: 100,
            minutes: 60,
        };
        let options = |owner| options(&settings, group, 3, &shape, owner).join(" ");
        let ada = Account {
            name: "ada".to_owned(),
            uid: 7,
            gid: 8,
            groups: Vec::new(),
            home: String::new(),
            shell: String::new(),
        };
        assert!(options(Some(&ada)).contains("--uid=7 --gid=8") && !options(None).contains("--uid"));
        assert!(options(None).contains("--gres=gpu:h100:2") && options(None).contains("--account=lab"));
    }

    #[test]
    fn the_name_of_a_job_is_the_name_of_its_group() {
        let group = DecisionId { installation: Installation(7), seq: 12 };
        assert_eq!(group_of(&job_name(group)), Some(group));
        assert_eq!([group_of("windfall-x"), group_of("train"), group_of("windfall-")], [None; 3]);
    }
}
