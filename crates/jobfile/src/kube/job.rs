//! A Job of Kubernetes to a job: one worker for each pod.

use super::keys::{CONTAINER, METADATA, OBJECT, POD, Reason, SPEC, TEMPLATE};
use super::reader::{Object, Reader};
use crate::context::Context;
use crate::error::{Class, Problem, Problems, Quoted};
use crate::node::Node;
use crate::{Read, Wishes, default_name};
use std::collections::BTreeMap;
use windfall_core::Span;
use windfall_core::spec::{CheckpointSpec, JobSpec, MOST_TAGS, RunSpec, tag_name_problem, tag_value_problem};

/// What other kinds of objects are, and what to do with each.
const OTHER_KINDS: [(&str, &str); 7] = [
    ("CronJob", "submit what is below its `jobTemplate`, as a Job, when it is time"),
    ("Pod", "put it below `spec.template` of a Job"),
    ("Deployment", "it never ends: a job of Windfall's does"),
    ("JobSet", "submit each of its Jobs: all workers of a job are alike"),
    ("PyTorchJob", "write a Job with completionMode: Indexed: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set"),
    ("TrainJob", "write a Job with completionMode: Indexed: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set"),
    ("List", "put the Job into a file of its own"),
];
/// The longest grace time that is read: a day.
const LONGEST_GRACE: u32 = 86_400;
/// Most workers of a job.
const MOST_WORKERS: u32 = 4_096;

/// Makes a job of a Job; what is wrong with it is in `problems`.
pub(crate) fn job<'a>(
    root: &Node,
    text: &'a str,
    name: &str,
    context: &Context,
    problems: &mut Problems<'a>,
) -> Option<Read> {
    let mut reader = Reader::new(text, context, problems);
    let read = reader.read(root, name);
    reader.left_out();
    let notes = std::mem::take(&mut reader.notes);
    let read = read?;
    if problems.is_empty()
        && let Err(left) = read.spec.check()
    {
        problems.add(&(0..0), Problem::new(Class::BadValue, format!("{}: {}", left.field, left.problem)));
    }
    Some(Read { notes, ..read })
}

impl Reader<'_, '_> {
    fn read(&mut self, root: &Node, file: &str) -> Option<Read> {
        let object = self.object_of_kind(root)?;
        let metadata = object.get("metadata").map(|node| self.object(node, "metadata", METADATA)).unwrap_or_default();
        let spec = self.below(&object, "spec", SPEC, "spec: { template: … }")?;
        let template = self.below(&spec, "template", TEMPLATE, "template: { spec: { containers: … } }")?;
        let pod = self.below(&template, "spec", POD, "spec: { containers: … }")?;
        self.restarts(&pod);
        let (gang, is_indexed) = self.workers(&spec);
        let container = self.container(&pod)?;
        let machines = self.machines(&pod, &container);
        let program = self.program(&container, is_indexed);
        let at_most = self.time(&spec).into_iter().chain(self.time(&pod)).min();
        let name = self.name(&metadata).unwrap_or_else(|| default_name(file));
        let usual = JobSpec::named(name, Vec::new());
        let folder = self.folder()?;
        let grace = self.grace(&pod).unwrap_or(usual.run.grace);
        let (team, tags) = (self.team(&metadata), self.tags(&metadata));
        let program = program?;
        let spec = JobSpec {
            owner: self.context.owner.clone(),
            team: team.unwrap_or(usual.team),
            tags,
            gang,
            resources: machines.resources,
            host: machines.host,
            checkpoint: CheckpointSpec { store: self.context.store.clone(), ..CheckpointSpec::default() },
            run: RunSpec { folder, grace, env: program.env, ..RunSpec::of(program.command) },
            ..usual
        };
        let gib = |bytes: u64| (bytes > 0).then_some(bytes as f64 / (1_u64 << 30) as f64);
        let wishes = Wishes {
            memory_gb: gib(machines.host.memory_bytes),
            cpus: (machines.host.cpu_millis > 0).then_some(machines.host.cpu_millis as f64 / 1_000.0),
            any_gpus: machines.any_gpus,
            at_most,
            ..Wishes::default()
        };
        Some(Read { spec, deadline_in: None, wishes, workdir: None, secrets: BTreeMap::new(), notes: Vec::new() })
    }

    /// The object, if it is a Job. Of another kind nothing else is said: its keys are others.
    fn object_of_kind<'n>(&mut self, root: &'n Node) -> Option<Object<'n>> {
        let of = |name: &str| root.entries().iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| value);
        let (kind, version) = (of("kind")?, of("apiVersion")?);
        if kind.text() != Some("Job") {
            let known = OTHER_KINDS.iter().find(|(name, _)| kind.text() == Some(name));
            let problem = Problem::new(Class::Unsupported, format!("an object of Kubernetes of kind {}", kind.what()));
            let hint = known.map_or("of Kubernetes' objects only Jobs are read", |(_, hint)| *hint);
            self.wrong(&kind.span, problem.expected("kind: Job").hint(hint));
            return None;
        }
        if version.text() != Some("batch/v1") {
            let problem = Problem::new(Class::Unsupported, format!("a Job of version {}", version.what()));
            self.wrong(&version.span, problem.expected("apiVersion: batch/v1"));
            return None;
        }
        Some(self.object(root, "a Job", OBJECT))
    }

    /// What is below a key that must be there.
    fn below<'n>(
        &mut self,
        object: &Object<'n>,
        name: &str,
        keys: super::keys::Keys,
        expected: &str,
    ) -> Option<Object<'n>> {
        let Some(node) = object.get(name) else {
            let problem = Problem::new(Class::MissingKey, format!("`{name}` is missing"));
            self.wrong(&object.span.clone(), problem.expected(expected));
            return None;
        };
        Some(self.object(node, name, keys))
    }

    fn name(&mut self, metadata: &Object) -> Option<String> {
        let given = metadata.get("name").or(metadata.get("generateName"))?;
        let name = self.word(given, "its name")?.trim_end_matches('-').to_owned();
        if name.is_empty() || name.len() > 200 || name.chars().any(char::is_control) {
            let problem = Problem::new(Class::BadValue, format!("{} is no name for a job", Quoted(&name)));
            self.wrong(&given.span, problem.expected("1 to 200 characters"));
            return None;
        }
        Some(name)
    }

    /// A namespace is a team's; that of everybody is nobody's.
    fn team(&mut self, metadata: &Object) -> Option<String> {
        let node = metadata.get("namespace")?;
        let name = self.word(node, "its namespace")?;
        let fits = tag_name_problem(name).is_none() && name != "default";
        if fits {
            let place = self.place(node.span.start);
            self.notes.push(format!("namespace {name} ({place}) is the team that is charged"));
        }
        fits.then(|| name.to_owned())
    }

    /// Labels are tags, by which costs are split.
    fn tags(&mut self, metadata: &Object) -> BTreeMap<String, String> {
        let mut tags = BTreeMap::new();
        let Some(node) = metadata.get("labels") else { return tags };
        for (key, value) in self.entries(node, "labels") {
            let (Some(name), Some(text)) = (key.text(), self.word(value, "a label's value")) else { continue };
            let fits = tag_name_problem(name).is_none() && tag_value_problem(text).is_none();
            if fits && tags.len() < MOST_TAGS {
                tags.insert(name.to_owned(), text.to_owned());
            } else {
                self.leave(Reason::Labels, name, key.span.start);
            }
        }
        tags
    }

    /// How many pods run at once, and whether each has a number.
    fn workers(&mut self, spec: &Object) -> (u32, bool) {
        let mut number = |name: &str| {
            let node = spec.get(name)?;
            self.whole(node, name, 1)
        };
        let (parallelism, completions) = (number("parallelism"), number("completions"));
        let together = parallelism.unwrap_or(1);
        let mode = spec.get("completionMode").and_then(|node| Some((self.word(node, "completionMode")?, node)));
        let is_indexed = matches!(mode, Some(("Indexed", _)));
        if let Some((mode, node)) = mode.filter(|(mode, _)| !["Indexed", "NonIndexed"].contains(mode)) {
            let problem = Problem::new(Class::BadValue, format!("completionMode is {}", Quoted(mode)));
            self.wrong(&node.span, problem.expected("Indexed or NonIndexed"));
        }
        if together > MOST_WORKERS {
            let problem = Problem::new(Class::BadValue, format!("{together} pods at once"));
            self.wrong(&spec.at("parallelism"), problem.expected(format!("at most {MOST_WORKERS}")));
        }
        let is_said_wrong = |name: &str, number: Option<u32>| number.is_none() && spec.get(name).is_some();
        if is_said_wrong("parallelism", parallelism) || is_said_wrong("completions", completions) {
            return (1, is_indexed);
        }
        let all = completions.unwrap_or(if is_indexed { 1 } else { together });
        if all > together {
            let message = format!("{all} completions by {together} at a time: those are tasks, not a gang");
            let problem = Problem::new(Class::Unsupported, message).expected(format!("parallelism: {all}"));
            let hint = "submit a Job for each index, or let all of them run at once";
            self.wrong(&spec.at("completions"), problem.hint(hint));
        } else if completions.is_none() && together > 1 {
            let message = format!("{together} pods that share a queue of their own");
            let problem = Problem::new(Class::Unsupported, message).expected("completions as well");
            let hint = format!("completions: {together} and completionMode: Indexed make a gang of it");
            self.wrong(&spec.at("parallelism"), problem.hint(hint));
        }
        let gang = all.min(MOST_WORKERS);
        if gang > 1 {
            self.notes.push(format!(
                "{gang} workers begin together or not at all: RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set as for torchrun"
            ));
        }
        (gang, is_indexed)
    }

    fn container<'n>(&mut self, pod: &Object<'n>) -> Option<Object<'n>> {
        let all = match pod.get("containers") {
            Some(node) => self.list(node, "containers"),
            None => &[],
        };
        let Some(first) = all.first() else {
            let problem = Problem::new(Class::MissingKey, "there is no container");
            self.wrong(&pod.span.clone(), problem.expected("containers: [{ command: [python, train.py] }]"));
            return None;
        };
        if let Some(second) = all.get(1) {
            let problem = Problem::new(Class::Unsupported, "a second container").expected("one container");
            self.wrong(&second.span, problem.hint("what must run beside the program is begun by its command"));
        }
        Some(self.object(first, "a container", CONTAINER))
    }

    fn restarts(&mut self, pod: &Object) {
        let Some(node) = pod.get("restartPolicy") else { return };
        if !matches!(node.text(), Some("Never" | "OnFailure")) {
            let problem = Problem::new(Class::BadValue, format!("restartPolicy is {}", node.what()));
            self.wrong(&node.span, problem.expected("Never or OnFailure").hint("a job that ends is not begun again"));
        }
    }

    /// The longest that a run may take. It is no estimate, and nothing of it reaches the brain.
    fn time(&mut self, object: &Object) -> Option<Span> {
        let seconds =
            object.get("activeDeadlineSeconds").and_then(|node| self.whole(node, "activeDeadlineSeconds", 1))?;
        let limit = Span::seconds(i64::from(seconds));
        let place = self.place(object.at("activeDeadlineSeconds").start);
        self.notes.push(format!(
            "activeDeadlineSeconds ({place}) is a limit of the cluster, neither the work nor a deadline: the job may run for longer \
             than {limit}; `deadline` and `budget` in a job file bound it"
        ));
        Some(limit)
    }

    fn grace(&mut self, pod: &Object) -> Option<Span> {
        let node = pod.get("terminationGracePeriodSeconds")?;
        let seconds = self.whole(node, "terminationGracePeriodSeconds", 0)?;
        Some(Span::seconds(i64::from(seconds.clamp(1, LONGEST_GRACE))))
    }

    fn folder(&mut self) -> Option<String> {
        let folder = self.context.folder.to_str().map(str::to_owned);
        if folder.is_none() {
            let problem = Problem::new(Class::BadValue, "the folder that the job would run in is not UTF-8");
            self.wrong(&(0..0), problem.hint("run it from another folder"));
        }
        folder
    }
}
