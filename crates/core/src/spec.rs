//! What a user asked for, after the job file has been read and checked: nothing here is optional by
//! accident, and every unit is explicit.

use crate::ids::{CheckpointId, WorkloadId};
use crate::pool::{DevicePart, Shape};
use crate::units::{NanoUsd, Rate, Span, Time, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What demand, leases and the ledger refer to. Fleets will be a second variant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Finite work. The record and every state that it is applied to share what was asked for.
    Job(Arc<JobSpec>),
}

impl From<JobSpec> for Workload {
    fn from(spec: JobSpec) -> Workload {
        Workload::Job(Arc::new(spec))
    }
}

impl Workload {
    /// The job in it.
    pub fn job(&self) -> &Arc<JobSpec> {
        match self {
            Workload::Job(job) => job,
        }
    }
}

/// Accelerators that a worker can use: one alternative of several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Ask {
    /// The accelerator's name as offers give it.
    pub accelerator: String,
    /// How many of them in one instance.
    pub count: u32,
    /// How much of each. Whoever needs half of one asks for one, and for half of it.
    #[serde(default, skip_serializing_if = "DevicePart::is_whole")]
    pub part: DevicePart,
    /// The engine that is to give them; none for any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
}

impl Ask {
    /// So many whole ones.
    pub fn of(accelerator: impl Into<String>, count: u32) -> Ask {
        Ask { accelerator: accelerator.into(), count, part: DevicePart::Whole, engine: None }
    }

    /// All of it together as a fraction: so many of so many parts of one accelerator.
    pub fn amount(&self) -> (u64, u64) {
        let (part, of) = self.part.fraction();
        (u64::from(self.count) * u64::from(part), u64::from(of))
    }

    fn problem(&self, gang: u32) -> Option<String> {
        let DevicePart::Share { part, of } = self.part else {
            let whole = self.part.is_whole();
            return (!whole).then(|| "a MIG profile cannot be asked for: ask for a share, such as 1/2".to_owned());
        };
        if part == 0 || part >= of || of > DevicePart::MOST_PARTS {
            let most = DevicePart::MOST_PARTS;
            return Some(format!("expected a share between 0 and 1 with at most {most} parts, such as 1/2"));
        }
        if is_tpu(&self.accelerator) {
            return Some(format!("{} is used as a whole", self.accelerator));
        }
        (self.count != 1 || gang != 1).then(|| "a share is of one accelerator, on one node".to_owned())
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.part {
            _ if self.count == 0 => f.write_str("a processor"),
            DevicePart::Share { part, of } if part < of => write!(f, "{}:{part}/{of}", self.accelerator),
            _ => write!(f, "{}:{}", self.accelerator, self.count),
        }?;
        self.engine.as_ref().map_or(Ok(()), |engine| write!(f, " of {engine}"))
    }
}

/// Whether an accelerator is a TPU, whose hosts are one thing that is used as a whole.
pub fn is_tpu(accelerator: &str) -> bool {
    accelerator.to_ascii_lowercase().starts_with("tpu")
}

/// How much there is to do, as far as the user said.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkSpec {
    /// Total, in steps or in milliseconds; none when it has to be learnt.
    pub total: Option<Work>,
    /// What the unit is called when shown: `steps`, or `ms` for time.
    pub unit: WorkUnit,
    /// Speed by accelerator, where the user gave it.
    pub rates: BTreeMap<String, Rate>,
}

/// The unit of a job's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkUnit {
    /// Training steps, or whatever the program counts.
    Steps,
    /// Milliseconds of running on the reference accelerator.
    #[default]
    Time,
}

/// What happens when a deadline can no longer be met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Late {
    /// Finish on whatever is cheapest.
    Cheapest,
    /// Finish as soon as possible, on on-demand capacity.
    #[default]
    Soonest,
    /// Stop at the deadline.
    Stop,
}

/// After so many interruptions, what else to use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// Interruptions before the fallback applies.
    pub after: u32,
    /// Choices in order: `on-demand`, `smaller+bf16`.
    pub to: Vec<String>,
    /// What `smaller+…` stands for with the facts of the day on which the job was submitted.
    #[serde(default)]
    pub smaller: Vec<Smaller>,
}

impl Fallback {
    /// Whether on-demand is among the choices.
    pub fn on_demand(&self) -> bool {
        self.to.iter().any(|to| to == "on-demand")
    }
}

/// A smaller accelerator that will do at another precision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Smaller {
    /// Which, and how many.
    pub ask: Ask,
    /// The precision that the program is told.
    pub precision: String,
    /// Its speed in thousandths of the speed of what the job asks for.
    pub speed_permille: u32,
}

/// Where the program saves, and where that is kept. Without a word of the user's, a few checkpoints are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSpec {
    /// Absolute directory that the program writes to; none gives each stint a directory of its own.
    pub path: Option<String>,
    /// A directory inside the folder that the program runs in, wherever that is; instead of `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
    /// The durable store: a directory or an object-store address.
    pub store: String,
    /// Complete checkpoints kept.
    pub keep: u32,
    /// How long nothing must change before what is there counts as a checkpoint, in real milliseconds.
    pub settle_ms: u64,
    /// Names the file that the program writes last, with `*` for any characters: once it is there, all of them are whole.
    #[serde(default)]
    pub complete: Option<String>,
    /// Bytes of one checkpoint, where the user knows.
    pub size_bytes: Option<u64>,
    /// How often the program saves, where the user knows.
    pub every: Option<Span>,
    /// From asking for a lease until the program makes progress again, where the user knows.
    pub restart: Option<Span>,
}

impl Default for CheckpointSpec {
    fn default() -> CheckpointSpec {
        CheckpointSpec {
            path: None,
            inside: None,
            store: String::new(),
            keep: 3,
            settle_ms: 2_000,
            complete: None,
            size_bytes: None,
            every: None,
            restart: None,
        }
    }
}

/// How much a job minds to wait: it chooses the market. Who yields to whom is its tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// From the start on what nobody takes away.
    Critical,
    /// Spot, and on-demand in time for the deadline.
    #[default]
    Normal,
    /// When it is cheapest.
    Low,
}

/// The ended job that a job goes on from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continued {
    pub job: WorkloadId,
    /// Names its checkpoints in the store.
    pub key: String,
    /// Its last stint: stints of this job count on from there, so that its checkpoints are theirs.
    pub epoch: u64,
    /// The work in its newest durable checkpoint.
    pub durable: Work,
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// What is executed; a shell line is `["/bin/sh", "-c", line]`.
    pub command: Vec<String>,
    /// The folder it runs in.
    pub folder: String,
    /// Names a file beside the log with the submitting terminal's environment: secrets stay out of the log.
    pub environment: String,
    /// Settings of the job file, on top of that environment.
    pub env: BTreeMap<String, String>,
    /// A regular expression over the program's output; group 1 is the work done, group 2 the total.
    pub progress: Option<String>,
    /// Time between SIGTERM and SIGKILL when a person or the brain stops it.
    pub grace: Span,
    /// What of the job travels; none where nothing does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub luggage: Option<Box<Luggage>>,
}

/// What of a job travels: to the machines that it runs on, and back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Luggage {
    /// What its folder held when it was submitted; none where it runs in the folder itself.
    #[serde(default)]
    pub parcel: Option<Parcel>,
    /// A shell line that is run once on each machine for each parcel's content, in its folder, before the program.
    #[serde(default)]
    pub setup: Option<String>,
    /// What is brought back from the folder: paths in it, with `*` for any characters.
    #[serde(default)]
    pub outputs: Vec<String>,
    /// Variables whose values are not in the log and reach the program on every machine, each with where its value is from.
    #[serde(default)]
    pub secrets: BTreeMap<String, SecretFrom>,
}

/// Where the value of a secret is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretFrom {
    /// It was submitted with the job, beside the log.
    Submission,
    /// The server's operator has it in the server's environment, as `WINDFALL_SECRET_` and its name.
    Server,
}

/// What a folder held at one moment, in the store of the job's checkpoints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// Names the folder in the store.
    pub key: String,
    /// Which of that folder's parcels.
    pub name: CheckpointId,
    /// A digest of all that is in it: equal ones are unpacked once on a machine.
    pub content: String,
    pub files: u64,
    pub bytes: u64,
}

impl RunSpec {
    /// A command, with what holds where the user says nothing.
    pub fn of(command: Vec<String>) -> RunSpec {
        RunSpec {
            command,
            folder: String::new(),
            environment: String::new(),
            env: BTreeMap::new(),
            progress: None,
            grace: Span::seconds(30),
            luggage: None,
        }
    }

    /// What of the job travels.
    pub fn luggage(&self) -> &Luggage {
        static NONE: Luggage = Luggage { parcel: None, setup: None, outputs: Vec::new(), secrets: BTreeMap::new() };
        self.luggage.as_deref().unwrap_or(&NONE)
    }
}

/// A job as the brain knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// The user's name for it; need not be unique.
    pub name: String,
    /// Who submitted it.
    pub owner: String,
    /// The team that it is charged to.
    pub team: String,
    /// The user's own words for reports of what it cost.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// 1 production, 2 guaranteed, 3 best effort.
    pub tier: u8,
    /// How much it minds to wait.
    #[serde(default)]
    pub priority: Priority,
    /// While spot can be had, it is put off only for an expected saving above this share of what its next hour costs, in
    /// thousandths; none for the default.
    #[serde(default)]
    pub worth_waiting_permille: Option<u32>,
    /// The ended job that it goes on from.
    #[serde(default)]
    pub continues: Option<Continued>,
    /// Workers that start together or not at all, one a lease.
    pub gang: u32,
    /// Fewest workers that it can do with; none when it takes all of them or nothing.
    #[serde(default)]
    pub least_gang: Option<u32>,
    /// Alternatives; empty means that any offer will do.
    pub resources: Vec<Ask>,
    /// The most that a worker uses of its machine's cores and memory; zero where nobody said.
    #[serde(default, skip_serializing_if = "Shape::is_unsaid")]
    pub host: Shape,
    /// How much there is to do.
    pub work: WorkSpec,
    /// When it must be done.
    pub deadline: Option<Time>,
    /// What then.
    pub late: Late,
    /// Most that a spot lease may cost an hour.
    pub max_price: Option<NanoUsd>,
    /// Most that the whole job may cost.
    pub budget: Option<NanoUsd>,
    /// What to do after repeated interruptions.
    pub fallback: Option<Fallback>,
    /// Where checkpoints go.
    pub checkpoint: CheckpointSpec,
    /// Precision handed to the program as `WINDFALL_PRECISION`.
    pub precision: Option<String>,
    /// The market policy by name; none for the default.
    pub policy: Option<String>,
    /// How often the program may fail with a code of its own before the job has failed.
    pub retries: u32,
    /// The program.
    pub run: RunSpec,
}

/// Most tags of a workload, and the most characters of a tag's name and of its value: what cloud tags can hold as well.
pub const MOST_TAGS: usize = 16;
/// See [`MOST_TAGS`].
pub const LONGEST_TAG: usize = 63;
/// See [`MOST_TAGS`].
pub const LONGEST_TAG_VALUE: usize = 255;

/// What is wrong with a tag's name, if anything: it is a word that fits into a command line, a CSV head and a cloud's tag.
pub fn tag_name_problem(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_.-/".contains(c);
    if name.is_empty() || name.chars().count() > LONGEST_TAG {
        return Some(format!("expected a name of 1 to {LONGEST_TAG} characters"));
    }
    (!name.chars().all(allowed)).then(|| "expected letters, digits and `_.-/` in a name".to_owned())
}

/// What is wrong with a tag's value, if anything.
pub fn tag_value_problem(value: &str) -> Option<String> {
    if value.chars().count() > LONGEST_TAG_VALUE {
        return Some(format!("expected at most {LONGEST_TAG_VALUE} characters"));
    }
    value.chars().any(char::is_control).then(|| "expected text on one line".to_owned())
}

/// A job that cannot be accepted; the message says what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Unacceptable {
    /// The field as the job file names it.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: String,
}

impl JobSpec {
    /// A job of which nothing is said but its name and its command: the defaults of a job file.
    ///
    /// ```
    /// use windfall_core::JobSpec;
    ///
    /// let spec = JobSpec { gang: 2, ..JobSpec::named("bert", vec!["./train".to_owned()]) };
    /// assert_eq!((spec.check(), spec.tier), (Ok(()), 3));
    /// ```
    pub fn named(name: impl Into<String>, command: Vec<String>) -> JobSpec {
        JobSpec {
            name: name.into(),
            owner: String::new(),
            team: "default".to_owned(),
            tags: BTreeMap::new(),
            // Best effort: nobody is pushed aside by a job that did not ask for it.
            tier: 3,
            priority: Priority::Normal,
            worth_waiting_permille: None,
            continues: None,
            gang: 1,
            least_gang: None,
            resources: Vec::new(),
            host: Shape::default(),
            work: WorkSpec::default(),
            deadline: None,
            late: Late::default(),
            max_price: None,
            budget: None,
            fallback: None,
            checkpoint: CheckpointSpec::default(),
            precision: None,
            policy: None,
            retries: 0,
            run: RunSpec::of(command),
        }
    }

    /// Names its checkpoints in the store: those of the job that it goes on from, or its own.
    pub fn checkpoint_key(&self) -> &str {
        self.continues.as_ref().map_or(&self.run.environment, |from| &from.key)
    }

    /// Workers without which it does not start.
    pub fn least(&self) -> u32 {
        self.least_gang.map_or(self.gang, |least| least.min(self.gang))
    }

    /// What must hold of any job, whoever made the spec: the server checks it again at its door.
    pub fn check(&self) -> Result<(), Unacceptable> {
        let fail = |field, problem: &str| Err(Unacceptable { field, problem: problem.to_owned() });
        if self.name.is_empty() || self.name.len() > 200 {
            return fail("name", "expected 1 to 200 characters");
        }
        if self.tags.len() > MOST_TAGS {
            return fail("tags", &format!("expected at most {MOST_TAGS}"));
        }
        for (name, value) in &self.tags {
            if let Some(problem) = tag_name_problem(name).or_else(|| tag_value_problem(value)) {
                return fail("tags", &format!("{}: {problem}", name.escape_default()));
            }
        }
        if self.run.command.is_empty() {
            return fail("run", "expected a command");
        }
        if self.gang == 0 || self.gang > 4096 {
            return fail("nodes", "expected 1 to 4096");
        }
        if self.least_gang.is_some_and(|least| least == 0 || least > self.gang) {
            return fail("elastic", &format!("expected 1 to {} for the smaller number", self.gang));
        }
        for ask in &self.resources {
            if let Some(problem) = ask.problem(self.gang) {
                return fail("resources.accelerators", &format!("{ask}: {problem}"));
            }
        }
        if !(1..=3).contains(&self.tier) {
            return fail("tier", "expected 1, 2 or 3");
        }
        if self.checkpoint.keep == 0 {
            return fail("checkpoint.keep", "expected at least 1");
        }
        if self.max_price.is_some_and(|p| p.0 <= 0) {
            return fail("max_price", "expected more than 0 dollars an hour");
        }
        if self.budget.is_some_and(|b| b.0 <= 0) {
            return fail("budget", "expected more than 0 dollars");
        }
        if self.work.total == Some(Work(0)) {
            return fail("work", "expected more than nothing to do");
        }
        if let Some(name) = &self.policy
            && crate::market::policy(name).is_none()
        {
            return fail("policy", &format!("expected one of {}", crate::market::names().join(", ")));
        }
        Ok(())
    }
}
