//! What Slurm said, as data.

/// All that the rules go by beside the script.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Year and month of the version: (22, 5). None where it is not known.
    pub version: Option<(u32, u32)>,
    pub partitions: Vec<Partition>,
    /// Qualities of service that the user may use.
    pub qos: Vec<String>,
    /// Earlier jobs of the same name and user; none where nothing is known of them.
    pub past: Option<Past>,
    /// What `sbatch --test-only` said of the job as it is, and in queues for short jobs.
    pub trials: Vec<Trial>,
}

impl Facts {
    pub(super) fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.name == name)
    }
}

/// A partition, with the largest of its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    pub name: String,
    pub is_default: bool,
    /// Not everybody may use it, and who may is not known.
    pub is_restricted: bool,
    /// The longest that a job may run there; none for no limit.
    pub limit_s: Option<u64>,
    /// What a job without a limit of its own gets; none where that is the longest.
    pub default_s: Option<u64>,
    /// Nodes that take work.
    pub nodes: u32,
    pub cpus: u32,
    pub memory_mb: u64,
    /// Accelerators of its largest node, and of its smallest one.
    pub gpus: u32,
    pub least_gpus: u32,
    /// From the signal to the end, where jobs are ended for others.
    pub grace_s: u64,
    /// Empty where everybody may use it.
    pub accounts: Vec<String>,
    /// Empty where every one will do.
    pub qos: Vec<String>,
}

/// How long earlier jobs ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Past {
    /// Those that completed.
    pub jobs: u32,
    pub longest_s: u64,
    /// What 95 of 100 of them did not exceed.
    pub p95_s: u64,
    /// Those that were ended at their limits: how long they would have run is not known.
    pub timed_out: u32,
}

/// When the job would begin with one option changed; with none it is the job as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    pub option: Option<(&'static str, String)>,
    pub wait_s: u64,
}
