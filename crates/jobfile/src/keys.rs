//! The one table of what a job file may say. The reader, the hints about unknown keys, the JSON Schema and
//! the commented file that `init` writes all come from it.

use windfall_core::Span;

/// One key: its name, what it takes, one line for people, and an example in YAML.
pub(super) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub doc: &'static str,
    pub example: &'static str,
    pub status: Status,
}

/// Whether a key does anything.
pub(super) enum Status {
    Used,
    /// For `windfall plan`; a run has no use for it.
    Plan,
}

/// What a key takes.
pub(super) enum Kind {
    Text {
        most: usize,
    },
    Word,
    Count {
        least: u64,
        most: u64,
    },
    /// Two numbers, the smaller one first.
    FromTo {
        least: u64,
        most: u64,
    },
    Hours,
    Percent,
    /// True or false.
    Flag,
    Duration {
        least: Span,
    },
    AutoOrDuration,
    Deadline,
    Dollars,
    Bytes,
    Speed,
    Accelerators,
    AtLeast {
        unit: &'static str,
    },
    /// Cloud and region.
    Site,
    Choice(fn() -> Vec<&'static str>),
    FallbackStep,
    Folder,
    /// A folder that is there, to be sent along.
    Workdir,
    /// A path in the job's folder, with `*` for any characters.
    Inside,
    /// Where the value of a secret is from.
    SecretFrom,
    /// A shell line, or several.
    Script,
    Store,
    Pattern,
    /// Any scalar, as it is written.
    Setting,
    /// Any scalar on one line, of at most 255 characters.
    TagValue,
    Command,
    OneOrMany(&'static Kind),
    /// Known keys.
    Group(&'static [Key]),
    /// Keys that the user names.
    Named {
        key: Name,
        value: &'static Kind,
    },
    Either(&'static Kind, &'static [Key]),
}

/// Who may be a user-named key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Accelerator,
    Variable,
    Tag,
}

const fn key(name: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { name, kind, doc, example, status: Status::Used }
}

const fn plan(name: &'static str, kind: Kind, example: &'static str, doc: &'static str) -> Key {
    Key { name, kind, doc, example, status: Status::Plan }
}

fn late() -> Vec<&'static str> {
    vec!["cheapest", "soonest", "stop"]
}

fn priority() -> Vec<&'static str> {
    vec!["critical", "normal", "low"]
}

/// A thousand years of steps; products with speeds stay far from overflow.
const MOST_STEPS: u64 = 1_000_000_000_000_000;

/// The keys at the top, in the order in which `init` explains them.
pub(super) static KEYS: &[Key] = &[
    key(
        "name",
        Kind::Text { most: 200 },
        "bert-finetune",
        "What the job is called when it is shown; the file's name if left out.",
    ),
    key(
        "run",
        Kind::Command,
        "python train.py",
        "The program: a shell line, or a list that is executed as it is. Required.",
    ),
    key(
        "workdir",
        Kind::Workdir,
        ".",
        "The folder that is sent along: the job runs in copies of it. If left out, it runs in this folder itself.",
    ),
    key(
        "setup",
        Kind::Script,
        "pip install -r requirements.txt",
        "Shell lines that are run once on each machine in the copy of `workdir`, before the program.",
    ),
    key(
        "outputs",
        Kind::OneOrMany(&Kind::Inside),
        "[results/, '*.csv']",
        "Files and folders, with * for any characters, that `windfall get` brings back from all of its machines.",
    ),
    key(
        "resources",
        Kind::Group(RESOURCES),
        "{ accelerators: [A100:8, H100:4] }",
        "What each worker needs; any offer will do if left out.",
    ),
    key("nodes", Kind::Count { least: 1, most: 4_096 }, "2", "Workers that start together or not at all (1)."),
    key(
        "elastic",
        Kind::FromTo { least: 1, most: 4_096 },
        "2..4",
        "In place of nodes, fewest and most workers: after a loss the rest goes on from what is saved, until it is replaced.",
    ),
    key(
        "work",
        Kind::Group(WORK),
        "{ steps: 40000, throughput: { A100: 3.1/s } }",
        "How much there is to do; learnt while running if left out.",
    ),
    key(
        "deadline",
        Kind::Deadline,
        "36h",
        "When it must be done: a length of time from now, or a date; a bare date means the end of that day.",
    ),
    key(
        "late",
        Kind::Choice(late),
        "soonest",
        "What to do when the deadline can no longer be met: cheapest, soonest or stop (soonest).",
    ),
    key("max_price", Kind::Dollars, "20.0", "The most that a spot lease may cost, in dollars an hour."),
    key("budget", Kind::Dollars, "900", "The most that the whole job may cost, in dollars."),
    key(
        "fallback",
        Kind::Group(FALLBACK),
        "{ after: 3, to: [on-demand] }",
        "What else to use after repeated interruptions.",
    ),
    key(
        "checkpoint",
        Kind::Group(CHECKPOINT),
        "{ path: out/, every: auto, size: 4.2GB }",
        "Where the program saves its progress, and where that is kept.",
    ),
    plan(
        "data",
        Kind::Group(DATA),
        "{ size: 500GB, at: aws/us-east-1 }",
        "What the job reads: how much, and where it lies.",
    ),
    key(
        "precision",
        Kind::Either(&Kind::Word, PRECISION),
        "bf16",
        "Number format, handed to the program as WINDFALL_PRECISION.",
    ),
    key("team", Kind::Word, "nlp", "The team that is charged (default)."),
    key(
        "tags",
        Kind::Named { key: Name::Tag, value: &Kind::TagValue },
        "{ project: search, stage: tuning }",
        "Words of your own, up to 16, by which `windfall cost` can split what is paid.",
    ),
    key(
        "tier",
        Kind::Count { least: 1, most: 3 },
        "3",
        "What is promised: 1 production, 2 guaranteed, 3 best effort (3).",
    ),
    key(
        "priority",
        Kind::Choice(priority),
        "normal",
        "How it is bought: critical on what nobody takes away, normal on spot with failover, low when it is cheapest (normal).",
    ),
    key(
        "worth_waiting",
        Kind::Percent,
        "5%",
        "While spot can be had, the job is put off only to save more than this share of what its next hour costs (2%).",
    ),
    key(
        "policy",
        Kind::Choice(windfall_core::market::names),
        "levi-safe",
        "How spot and on-demand are chosen between; the default suits most jobs.",
    ),
    key(
        "retries",
        Kind::Count { least: 0, most: 1_000 },
        "2",
        "How often the program may fail by itself before the job has failed (0).",
    ),
    key(
        "grace",
        Kind::Duration { least: Span(0) },
        "30s",
        "Time between SIGTERM and SIGKILL when the job is stopped (30s).",
    ),
    key(
        "env",
        Kind::Named { key: Name::Variable, value: &Kind::Setting },
        "{ OMP_NUM_THREADS: 8 }",
        "Environment variables, on top of those of the terminal; on other machines without those.",
    ),
    key(
        "secrets",
        Kind::Named { key: Name::Variable, value: &Kind::SecretFrom },
        "{ HF_TOKEN: terminal }",
        "Variables whose values are never logged: each from terminal, file:PATH, or server (its operator's).",
    ),
    key(
        "progress",
        Kind::Pattern,
        "'step (\\d+) of (\\d+)'",
        "A regular expression over the output: group 1 is the work done, group 2 the total.",
    ),
];

static RESOURCES: &[Key] = &[
    key(
        "accelerators",
        Kind::OneOrMany(&Kind::Accelerators),
        "[A100:8, H100:4]",
        "Accelerator and number for each worker, or a share of one: A100:1/2; of a list, any is acceptable.",
    ),
    key(
        "accelerator_memory",
        Kind::AtLeast { unit: "GB" },
        "40+",
        "Memory of each accelerator in GB: those with less are not taken.",
    ),
    key(
        "memory",
        Kind::AtLeast { unit: "GB" },
        "200+",
        "Memory of each worker in GB. On machines with control groups 200 is the most that it gets; 200+ is no limit.",
    ),
    key(
        "cpus",
        Kind::AtLeast { unit: "" },
        "16+",
        "Processor cores of each worker. On machines with control groups 16 is the most that it gets; 16+ is no limit.",
    ),
];

static WORK: &[Key] = &[
    key("steps", Kind::Count { least: 1, most: MOST_STEPS }, "40000", "Steps until the program is done."),
    key(
        "throughput",
        Kind::Named { key: Name::Accelerator, value: &Kind::Speed },
        "{ A100: 3.1/s, H100: 6.4/s }",
        "Steps in a second (/s), minute (/min) or hour (/h), by accelerator.",
    ),
    key("hours", Kind::Hours, "40", "Hours until the program is done, instead of steps."),
    key("accelerator", Kind::Accelerators, "A100:8", "The accelerators on which it takes those hours."),
    key(
        "parameters",
        Kind::Count { least: 1, most: MOST_STEPS },
        "7e9",
        "Parameters of the model; with `tokens`, instead of steps.",
    ),
    key("tokens", Kind::Count { least: 1, most: u64::MAX / 2 }, "3e10", "Tokens to train on; with `parameters`."),
    key(
        "lora",
        Kind::Flag,
        "true",
        "Whether only LoRA matrices are trained: the model then needs less memory (false).",
    ),
    key(
        "benchmark",
        Kind::Text { most: 4_096 },
        "result.json",
        "A file with a measured speed, with `steps`; `file.json#model` picks one of several.",
    ),
];

static DATA: &[Key] = &[
    plan("size", Kind::Bytes, "500GB", "How much there is."),
    plan("at", Kind::Site, "aws/us-east-1", "Cloud and region; where the job runs if left out."),
];

static FALLBACK: &[Key] = &[
    key("after", Kind::Count { least: 1, most: 1_000 }, "3", "Interruptions before the fallback applies."),
    key(
        "to",
        Kind::OneOrMany(&Kind::FallbackStep),
        "[on-demand, smaller+bf16]",
        "Choices in order: on-demand, smaller, or smaller with a precision.",
    ),
];

static CHECKPOINT: &[Key] = &[
    key("path", Kind::Folder, "out/", "The folder that the program itself saves to; nothing else belongs there."),
    key("every", Kind::AutoOrDuration, "auto", "How often the program saves: auto, or a length of time (auto)."),
    key("size", Kind::Bytes, "4.2GB", "How large one checkpoint is; measured if left out."),
    key(
        "restart",
        Kind::Duration { least: Span(0) },
        "90s",
        "From a new machine until the program makes progress again; measured if left out.",
    ),
    key("store", Kind::Store, "s3://bucket/ckpt", "Where checkpoints are kept: a folder, s3://, gs:// or az://."),
    key("keep", Kind::Count { least: 1, most: 1_000 }, "3", "Complete checkpoints kept in the store (3)."),
    key(
        "settle",
        Kind::Duration { least: Span(0) },
        "2s",
        "How long nothing must change before what is there counts as a checkpoint (2s).",
    ),
    key(
        "complete",
        Kind::Text { most: 1_024 },
        "'*/DONE'",
        "The file that the program writes last, with * for any characters: once it is there, the checkpoint is whole.",
    ),
];

static PRECISION: &[Key] = &[
    key("prefer", Kind::Word, "bf16", "The number format to begin with."),
    plan("fallback", Kind::OneOrMany(&Kind::Word), "[fp16]", "Formats for accelerators that lack it."),
];

impl Kind {
    /// Whether one piece of text is what it takes.
    pub fn is_scalar(&self) -> bool {
        !matches!(self, Kind::OneOrMany(_) | Kind::Group(_) | Kind::Named { .. } | Kind::Either(..))
    }

    /// What it takes, in words, for messages and for the schema.
    pub fn words(&self) -> String {
        let words = match self {
            Kind::Text { .. } => "text on one line",
            Kind::Word => "one word",
            Kind::Count { least, most } => return format!("a whole number from {least} to {most}"),
            Kind::FromTo { least, most } => return format!("two numbers from {least} to {most}, such as 2..4"),
            Kind::Hours => "a number of hours, such as 40",
            Kind::Flag => "true or false",
            Kind::Percent => "a share from 0% to 100%, such as 5%",
            Kind::Duration { .. } => "a length of time, such as 90s, 10m or 36h",
            Kind::AutoOrDuration => "auto, or a length of time such as 10m",
            Kind::Deadline => "a length of time (36h) or a date (2026-11-20)",
            Kind::Dollars => "an amount in dollars, such as 20",
            Kind::Bytes => "an amount of data, such as 4.2GB",
            Kind::Speed => "a speed, such as 3.1/s",
            Kind::Accelerators => "an accelerator and how many, such as A100:8",
            Kind::AtLeast { .. } => "a number, or at least that number, such as 16+",
            Kind::Site => "cloud/region, such as aws/us-east-1",
            Kind::Choice(choices) => return format!("one of {}", choices().join(", ")),
            Kind::FallbackStep => "on-demand, smaller, or smaller+bf16",
            Kind::Folder => "a folder, such as out/",
            Kind::Workdir => "a folder, such as .",
            Kind::Inside => "a path in the job's folder, such as results/ or *.csv",
            Kind::SecretFrom => "terminal, file:PATH or server",
            Kind::Script => "a shell line, or several",
            Kind::Store => "a folder, or an address such as s3://bucket/prefix",
            Kind::Pattern => "a regular expression with one or two groups",
            Kind::Setting => "text or a number",
            Kind::TagValue => "text on one line, at most 255 characters",
            Kind::Command => "a shell line, or a list of the program and its arguments",
            Kind::OneOrMany(one) => return format!("{}, or a list of such", one.words()),
            Kind::Group(keys) => return format!("keys with values: {}", names(keys)),
            Kind::Named { key: Name::Accelerator, .. } => "speeds by accelerator, such as { A100: 3.1/s }",
            Kind::Named { key: Name::Variable, .. } => "variables with values, such as { SEED: 1 }",
            Kind::Named { key: Name::Tag, .. } => "names with values, such as { project: search }",
            Kind::Either(one, keys) => return format!("{}, or keys with values: {}", one.words(), names(keys)),
        };
        words.to_owned()
    }

    /// The known keys below, if there are any.
    pub fn group(&self) -> Option<&'static [Key]> {
        match self {
            Kind::Group(keys) | Kind::Either(_, keys) => Some(keys),
            _ => None,
        }
    }
}

fn names(keys: &[Key]) -> String {
    keys.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Keys that have another name by now. `on` is a boolean for readers of YAML 1.1, so documents and the schema say
/// `accelerator`; files that were written before are read.
const FORMER: &[(&str, &str, &str)] = &[("work", "on", "accelerator")];

/// The name that a key of a group has in the table.
pub(super) fn present_name<'n>(group: &str, name: &'n str) -> &'n str {
    FORMER.iter().find(|(of, former, _)| (*of, *former) == (group, name)).map_or(name, |(.., present)| present)
}

/// The group that a key would belong to, for a hint about a key at the wrong level.
pub(super) fn home_of(name: &str) -> Option<&'static str> {
    let below = |key: &&Key| key.kind.group().is_some_and(|keys| keys.iter().any(|k| k.name == name));
    KEYS.iter().find(below).map(|key| key.name)
}
