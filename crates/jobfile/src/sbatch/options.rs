//! The one table of the options of `sbatch`: how each is written, and what becomes of it in a job of Windfall's. The reader,
//! the hints about misspelt options, the notes about what is not honoured and `windfall sbatch` all go by it.

use Takes::{Maybe, Nothing, Value};
use Treatment::{Again, Aside, Files, Machines, Mail, Order, Refused, Steps, Used};

/// One option of `sbatch`.
#[derive(Debug, PartialEq, Eq)]
pub struct SlurmOption {
    /// Without its dashes: `job-name`.
    pub name: &'static str,
    pub short: Option<char>,
    pub takes: Takes,
    pub(super) treatment: Treatment,
    /// The variable that says the same in the environment of `sbatch`; empty where there is none.
    pub variable: &'static str,
}

/// Whether a value follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    Nothing,
    /// `--nodes=2`, `--nodes 2`, `-N2` or `-N 2`.
    Value,
    /// `--exclusive` or `--exclusive=user`, never apart.
    Maybe,
}

/// What becomes of an option in a job of Windfall's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Treatment {
    /// The job is made of it.
    Used,
    /// It chooses among a cluster's nodes.
    Machines,
    /// It says where output goes.
    Files,
    Mail,
    /// It says when a job may begin, or before whom.
    Order,
    /// It says whether a job that was interrupted begins again.
    Again,
    /// It lays tasks out on processors.
    Steps,
    /// Nothing is lost without it.
    Aside,
    /// A job that ignored it would be another job; the text is the hint.
    Refused(&'static str),
}

const fn option(name: &'static str, short: Option<char>, takes: Takes, treatment: Treatment) -> SlurmOption {
    SlurmOption { name, short, takes, treatment, variable: "" }
}

const fn with(
    name: &'static str,
    short: Option<char>,
    takes: Takes,
    of: Treatment,
    variable: &'static str,
) -> SlurmOption {
    SlurmOption { name, short, takes, treatment: of, variable }
}

const ARRAY: &str = "a job of Windfall's is one task: submit a script for each, with `$SLURM_ARRAY_TASK_ID` replaced; on the \
                     cluster itself `windfall sbatch` hands arrays to Slurm";
const DEPENDENCY: &str =
    "Windfall does not see the jobs that it names; submit this job when they are done, and remove the line";
const WRAP: &str = "it takes the place of a script on the command line of sbatch; remove the line";
const TEST_ONLY: &str = "remove the line; `windfall plan` says what a job would cost, and submits nothing";

/// Every option, those that make the job first.
pub(super) static OPTIONS: &[SlurmOption] = &[
    with("job-name", Some('J'), Value, Used, "SBATCH_JOB_NAME"),
    option("nodes", Some('N'), Value, Used),
    option("ntasks", Some('n'), Value, Used),
    option("ntasks-per-node", None, Value, Used),
    option("cpus-per-task", Some('c'), Value, Used),
    with("cpus-per-gpu", None, Value, Used, "SBATCH_CPUS_PER_GPU"),
    with("mem", None, Value, Used, "SBATCH_MEM_PER_NODE"),
    with("mem-per-cpu", None, Value, Used, "SBATCH_MEM_PER_CPU"),
    with("mem-per-gpu", None, Value, Used, "SBATCH_MEM_PER_GPU"),
    with("gres", None, Value, Used, "SBATCH_GRES"),
    with("gpus", Some('G'), Value, Used, "SBATCH_GPUS"),
    with("gpus-per-node", None, Value, Used, "SBATCH_GPUS_PER_NODE"),
    with("gpus-per-task", None, Value, Used, "SBATCH_GPUS_PER_TASK"),
    with("time", Some('t'), Value, Used, "SBATCH_TIMELIMIT"),
    option("deadline", None, Value, Used),
    with("account", Some('A'), Value, Used, "SBATCH_ACCOUNT"),
    option("chdir", Some('D'), Value, Used),
    with("export", None, Value, Used, "SBATCH_EXPORT"),
    with("signal", None, Value, Used, "SBATCH_SIGNAL"),
    with("constraint", Some('C'), Value, Used, "SBATCH_CONSTRAINT"),
    with("array", Some('a'), Value, Refused(ARRAY), "SBATCH_ARRAY_INX"),
    option("dependency", Some('d'), Value, Refused(DEPENDENCY)),
    option("wrap", None, Value, Refused(WRAP)),
    option("test-only", None, Nothing, Refused(TEST_ONLY)),
    with("partition", Some('p'), Value, Machines, "SBATCH_PARTITION"),
    with("qos", Some('q'), Value, Machines, "SBATCH_QOS"),
    option("nodelist", Some('w'), Value, Machines),
    option("nodefile", Some('F'), Value, Machines),
    option("exclude", Some('x'), Value, Machines),
    with("reservation", None, Value, Machines, "SBATCH_RESERVATION"),
    option("licenses", Some('L'), Value, Machines),
    with("exclusive", None, Maybe, Machines, "SBATCH_EXCLUSIVE"),
    option("oversubscribe", Some('s'), Nothing, Machines),
    option("contiguous", None, Nothing, Machines),
    option("spread-job", None, Nothing, Machines),
    option("use-min-nodes", None, Nothing, Machines),
    option("switches", None, Value, Machines),
    option("segment", None, Value, Machines),
    with("clusters", Some('M'), Value, Machines, "SBATCH_CLUSTERS"),
    option("cluster-constraint", None, Value, Machines),
    option("batch", None, Value, Machines),
    option("prefer", None, Value, Machines),
    option("tmp", None, Value, Machines),
    option("mincpus", None, Value, Machines),
    option("bb", None, Value, Machines),
    option("bbf", None, Value, Machines),
    option("network", None, Value, Machines),
    option("power", None, Value, Machines),
    option("reboot", None, Nothing, Machines),
    option("container", None, Value, Machines),
    option("container-id", None, Value, Machines),
    option("tres-per-task", None, Value, Machines),
    option("tres-per-job", None, Value, Machines),
    option("output", Some('o'), Value, Files),
    option("error", Some('e'), Value, Files),
    option("input", Some('i'), Value, Files),
    with("open-mode", None, Value, Files, "SBATCH_OPEN_MODE"),
    option("mail-type", None, Value, Mail),
    option("mail-user", None, Value, Mail),
    option("begin", Some('b'), Value, Order),
    option("hold", Some('H'), Nothing, Order),
    option("priority", None, Value, Order),
    option("nice", None, Maybe, Order),
    option("immediate", Some('I'), Maybe, Order),
    option("delay-boot", None, Value, Order),
    option("time-min", None, Value, Order),
    with("requeue", None, Nothing, Again, "SBATCH_REQUEUE"),
    with("no-requeue", None, Nothing, Again, "SBATCH_NO_REQUEUE"),
    option("no-kill", Some('k'), Maybe, Again),
    option("ntasks-per-core", None, Value, Steps),
    option("ntasks-per-gpu", None, Value, Steps),
    option("ntasks-per-socket", None, Value, Steps),
    option("gpus-per-socket", None, Value, Steps),
    option("sockets-per-node", None, Value, Steps),
    option("cores-per-socket", None, Value, Steps),
    option("threads-per-core", None, Value, Steps),
    option("extra-node-info", Some('B'), Value, Steps),
    option("hint", None, Value, Steps),
    option("distribution", Some('m'), Value, Steps),
    option("overcommit", Some('O'), Nothing, Steps),
    option("core-spec", Some('S'), Value, Steps),
    option("thread-spec", None, Value, Steps),
    option("cpu-freq", None, Value, Steps),
    option("gpu-freq", None, Value, Steps),
    option("gpu-bind", None, Value, Steps),
    option("tres-bind", None, Value, Steps),
    option("mem-bind", None, Value, Steps),
    option("gres-flags", None, Value, Steps),
    option("resv-ports", None, Maybe, Steps),
    option("comment", None, Value, Aside),
    option("wckey", None, Value, Aside),
    option("profile", None, Value, Aside),
    option("acctg-freq", None, Value, Aside),
    option("extra", None, Value, Aside),
    option("mcs-label", None, Value, Aside),
    option("export-file", None, Value, Aside),
    option("get-user-env", None, Maybe, Aside),
    option("propagate", None, Maybe, Aside),
    option("kill-on-invalid-dep", None, Value, Aside),
    option("oom-kill-step", None, Maybe, Aside),
    option("stepmgr", None, Nothing, Aside),
    option("ignore-pbs", None, Nothing, Aside),
    option("parsable", None, Nothing, Aside),
    option("quiet", Some('Q'), Nothing, Aside),
    option("verbose", Some('v'), Nothing, Aside),
    option("wait", Some('W'), Nothing, Aside),
    option("wait-all-nodes", None, Value, Aside),
    option("x11", None, Maybe, Aside),
    option("uid", None, Value, Aside),
    option("gid", None, Value, Aside),
    option("help", Some('h'), Nothing, Aside),
    option("usage", Some('u'), Nothing, Aside),
    option("version", Some('V'), Nothing, Aside),
];

/// The option of a long name; as for `sbatch`, the beginning of one will do where only one begins so.
pub(super) fn named(name: &str) -> Option<&'static SlurmOption> {
    let exact = OPTIONS.iter().find(|option| option.name == name);
    exact.or_else(|| {
        let mut begin = OPTIONS.iter().filter(|option| !name.is_empty() && option.name.starts_with(name));
        begin.next().filter(|_| begin.next().is_none())
    })
}

pub(super) fn of_letter(letter: char) -> Option<&'static SlurmOption> {
    OPTIONS.iter().find(|option| option.short == Some(letter))
}

#[cfg(test)]
mod tests {
    use super::OPTIONS;

    #[test]
    fn no_two_options_are_written_alike() {
        for (at, option) in OPTIONS.iter().enumerate() {
            let others = || OPTIONS[at + 1..].iter();
            assert!(others().all(|other| other.name != option.name), "{}", option.name);
            assert!(option.short.is_none() || others().all(|other| other.short != option.short), "{}", option.name);
        }
    }
}
