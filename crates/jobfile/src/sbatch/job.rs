//! A batch script to a job: what of its options the job is made of, and what is said about the rest.

use super::notes::{left_out, shown};
use super::options::Treatment;
use super::program::{self, uses};
use super::script::Script;
use super::values::{self, Gpus, Warning};
use crate::context::Context;
use crate::error::{Class, Problem, Problems, Quoted};
use crate::{Read, Wishes, default_name, when};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use windfall_catalog::Catalog;
use windfall_core::pool::Shape;
use windfall_core::spec::{Ask, CheckpointSpec, JobSpec, Late, RunSpec, tag_name_problem};
use windfall_core::{Span, nearest::nearest};

/// Makes a job of a script; what is wrong with it is in `problems`.
pub(crate) fn job<'a>(text: &'a str, name: &str, context: &Context, problems: &mut Problems<'a>) -> Option<Read> {
    let mut script = Script::read(text);
    for (span, problem) in std::mem::take(&mut script.problems) {
        problems.add(&span, problem);
    }
    refuse(&script, problems);
    let mut reader = Reader { text, script: &script, context, problems, notes: Vec::new() };
    let read = reader.read(name);
    let notes = std::mem::take(&mut reader.notes);
    let read = read?;
    if problems.is_empty()
        && let Err(left) = read.spec.check()
    {
        problems.add(&(0..0), Problem::new(Class::BadValue, format!("{}: {}", left.field, left.problem)));
    }
    Some(Read { notes, ..read })
}

/// Options without which the job would be another one.
fn refuse(script: &Script, problems: &mut Problems<'_>) {
    for given in &script.given {
        if let Treatment::Refused(hint) = given.option.treatment {
            let problem = Problem::new(Class::Unsupported, format!("--{} cannot be honoured", given.option.name));
            problems.add(&given.span, problem.expected("a script without it").hint(hint));
        }
    }
    if let Some(span) = &script.hetjob {
        let problem = Problem::new(Class::Unsupported, "a heterogeneous job: its parts are several jobs at once")
            .expected("one job in a script")
            .hint("all workers of a job of Windfall's are alike: submit the parts apart, or the largest one alone");
        problems.add(span, problem);
    }
}

struct Reader<'r, 'a> {
    text: &'a str,
    script: &'r Script,
    context: &'r Context,
    problems: &'r mut Problems<'a>,
    notes: Vec<String>,
}

impl Reader<'_, '_> {
    fn read(&mut self, file: &str) -> Option<Read> {
        let name = self.value("job-name", job_name).unwrap_or_else(|| default_name(file));
        let nodes = self.nodes();
        let tasks = self.tasks(nodes.1);
        let gpus = self.gpus(nodes.1, tasks);
        let host = self.host(tasks, gpus.as_ref());
        let (resources, any_gpus) = self.resources(gpus);
        let at_most = self.time();
        let deadline_in = self.deadline();
        let folder = self.folder()?;
        let warning = self.warning();
        let command = program::command(self.text, file, warning.as_ref());
        let command = command.map_err(|problem| self.problems.add(&(0..0), problem)).ok()?;
        let env =
            self.env(&name, nodes.1, host.cpu_millis / 1_000, any_gpus.or(resources.first().map(|ask| ask.count)));
        self.cluster_only(nodes.1, &env);
        self.notes.extend(left_out(self.script));
        self.remarks();
        let usual = JobSpec::named(name, Vec::new());
        let spec = JobSpec {
            owner: self.context.owner.clone(),
            team: self.team().unwrap_or(usual.team),
            gang: nodes.1,
            least_gang: (nodes.0 < nodes.1).then_some(nodes.0),
            resources,
            host,
            late: if deadline_in.is_some() { Late::Stop } else { usual.late },
            checkpoint: CheckpointSpec { store: self.context.store.clone(), ..CheckpointSpec::default() },
            run: RunSpec { folder, env, ..RunSpec::of(command) },
            ..usual
        };
        let gib = |bytes: u64| (bytes > 0).then_some(bytes as f64 / (1_u64 << 30) as f64);
        let wishes = Wishes {
            memory_gb: gib(host.memory_bytes),
            cpus: (host.cpu_millis > 0).then_some(host.cpu_millis as f64 / 1_000.0),
            any_gpus,
            at_most,
            ..Wishes::default()
        };
        Some(Read { spec, deadline_in, wishes, workdir: None, secrets: BTreeMap::new(), notes: Vec::new() })
    }

    /// The value of an option, if it is given and can be read.
    fn value<T>(&mut self, name: &str, read: impl FnOnce(&str) -> Result<T, Problem>) -> Option<T> {
        let given = self.script.last(name)?;
        match read(given.value()) {
            Ok(value) => Some(value),
            Err(problem) => {
                let message = format!("--{name}: {}", problem.message);
                self.problems.add(&given.span, Problem { message, ..problem });
                None
            }
        }
    }

    fn given(&self, name: &str) -> String {
        self.script.last(name).map(shown).unwrap_or_default()
    }

    /// Fewest and most workers. Without a number of nodes, Slurm takes as few as tasks fit on.
    fn nodes(&mut self) -> (u32, u32) {
        if self.script.last("nodes").is_some() {
            return self.value("nodes", values::nodes).unwrap_or((1, 1));
        }
        let (all, each) = (self.count("ntasks"), self.count("ntasks-per-node"));
        let nodes = all.zip(each).map_or(1, |(all, each)| all.div_ceil(each)).clamp(1, 4_096);
        (nodes, nodes)
    }

    fn count(&mut self, name: &str) -> Option<u32> {
        // Reported once: where the value is first needed.
        let read = self.script.last(name).map(|given| values::count(given.value()))?;
        read.ok()
    }

    /// Tasks on each node, as far as they are said.
    fn tasks(&mut self, nodes: u32) -> Option<u32> {
        let each = self.value("ntasks-per-node", values::count);
        let all = self.value("ntasks", values::count);
        each.or(all.map(|all| all.div_ceil(nodes)))
    }

    /// Accelerators of each node. What is counted for the whole job is divided.
    fn gpus(&mut self, nodes: u32, tasks: Option<u32>) -> Option<Gpus> {
        let gres = self.value("gres", values::gres).unwrap_or_default();
        if !gres.others.is_empty() {
            let named = gres.others.join(",");
            self.notes.push(format!("not used: --gres={named}: only accelerators are asked for"));
        }
        let per_node = self.value("gpus-per-node", values::gpus).flatten();
        let per_task = self.value("gpus-per-task", values::gpus).flatten();
        let per_task = per_task.map(|each| Gpus { count: each.count.saturating_mul(tasks.unwrap_or(1)), ..each });
        let all = self.value("gpus", values::gpus).flatten().and_then(|all| self.divided(all, nodes));
        let found = per_node.or(gres.gpus).or(all).or(per_task)?;
        if found.count > 1_024 {
            let span = self.script.last("gpus-per-task").map_or(0..0, |given| given.span.clone());
            let problem = Problem::new(Class::BadValue, format!("{} accelerators on a node", found.count));
            self.problems.add(&span, problem.expected("at most 1024").hint("check the numbers of tasks and nodes"));
            return None;
        }
        Some(found)
    }

    fn divided(&mut self, all: Gpus, nodes: u32) -> Option<Gpus> {
        if all.count.is_multiple_of(nodes) {
            return Some(Gpus { count: all.count / nodes, ..all });
        }
        let span = self.script.last("gpus").map_or(0..0, |given| given.span.clone());
        let problem = Problem::new(Class::BadValue, format!("--gpus={} on {nodes} nodes", all.count))
            .expected("as many on every node")
            .hint("say how many each node needs: --gpus-per-node=4");
        self.problems.add(&span, problem);
        None
    }

    /// Cores and memory of each worker.
    fn host(&mut self, tasks: Option<u32>, gpus: Option<&Gpus>) -> Shape {
        let gpus = gpus.map_or(0, |gpus| gpus.count);
        let per_task = self.value("cpus-per-task", values::count);
        let per_gpu = self.value("cpus-per-gpu", values::count).map(|each| each.saturating_mul(gpus));
        let of_tasks = tasks.filter(|tasks| *tasks > 1 || per_task.is_some());
        let cpus = match (per_task, of_tasks) {
            (Some(each), tasks) => Some(each.saturating_mul(tasks.unwrap_or(1))),
            // A task has one processor where nobody says more.
            (None, Some(tasks)) => Some(tasks),
            (None, None) => per_gpu,
        };
        let whole = self.value("mem", values::memory).flatten();
        let mut by = |name: &str, times: u64| {
            let each = self.value(name, values::memory).flatten()?;
            Some(each.saturating_mul(times.max(1)))
        };
        let (per_cpu, per_gpu) = (by("mem-per-cpu", cpus.unwrap_or(1).into()), by("mem-per-gpu", gpus.into()));
        let mib = whole.or(per_cpu).or(per_gpu).unwrap_or(0);
        Shape {
            cpu_millis: u64::from(cpus.unwrap_or(0)) * 1_000,
            memory_bytes: mib.saturating_mul(1 << 20),
            accelerators: 0,
        }
    }

    /// What is asked for by name, or how many of any kind.
    fn resources(&mut self, gpus: Option<Gpus>) -> (Vec<Ask>, Option<u32>) {
        let catalog = Catalog::embedded();
        let constraint = self.script.last("constraint").map(|given| given.value().to_owned());
        let named = constraint.iter().flat_map(|text| text.split(['|', '&', ',', '[', ']', '(', ')', '*', '!']));
        let mut kinds: Vec<String> = named.filter_map(|word| known_accelerator(&catalog, word)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        let Some(Gpus { kind, count }) = gpus.filter(|gpus| gpus.count > 0) else {
            if constraint.is_some() {
                self.not_used("constraint");
            }
            return (Vec::new(), None);
        };
        if let Some(kind) = kind {
            if constraint.is_some() {
                self.not_used("constraint");
            }
            let name = known_accelerator(&catalog, &kind).unwrap_or_else(|| {
                self.notes.push(format!(
                    "the catalogue does not know the accelerator {}: it is asked for as it is called",
                    Quoted(&kind)
                ));
                kind.to_ascii_uppercase()
            });
            return (vec![Ask::of(name, count)], None);
        }
        if constraint.is_some() && kinds.is_empty() {
            self.not_used("constraint");
        }
        if kinds.is_empty() {
            let what = match count {
                1 => "any GPU of NVIDIA's".to_owned(),
                many => format!("any {many} GPUs of NVIDIA's that are alike"),
            };
            self.notes.push(format!(
                "the script names no kind of accelerator: {what} will do for each worker (--gres=gpu:a100:{count} names one)"
            ));
            return (Vec::new(), Some(count));
        }
        (kinds.into_iter().map(|kind| Ask::of(kind, count)).collect(), None)
    }

    fn not_used(&mut self, name: &str) {
        let shown = self.given(name);
        self.notes.push(format!("not used: {shown}: it chooses among the nodes of one cluster"));
    }

    /// The longest that a run may take. It is no estimate, and nothing of it reaches the brain.
    fn time(&mut self) -> Option<Span> {
        let limit = self.value("time", values::time).flatten()?;
        let shown = self.given("time");
        self.notes.push(format!(
            "{shown} is a limit of the cluster, neither the work nor a deadline: the job may run for longer than {limit}; \
             `budget` in a job file bounds what it costs"
        ));
        Some(limit)
    }

    /// Slurm ends what cannot be done by then; a length of time is not read.
    fn deadline(&mut self) -> Option<Span> {
        let (now_ms, zone) = (self.context.now_ms, self.context.zone.clone());
        let mut note = None;
        let left = self.value("deadline", |text| {
            let (left, said) = match text.strip_prefix("now+") {
                Some(length) => (from_now(length)?, None),
                None => when::deadline(text, now_ms, &zone).map_err(|problem| Problem {
                    hint: problem.hint.or(Some("write 2026-11-30T12:00:00 or now+12hours".to_owned())),
                    ..problem
                })?,
            };
            note = said;
            Ok(left)
        });
        self.notes.extend(note);
        left
    }

    fn team(&mut self) -> Option<String> {
        let account = self.script.last("account")?.value().to_owned();
        let fits = tag_name_problem(&account).is_none();
        let said = if fits { "is the team that is charged" } else { "is no name of a team: `default` is charged" };
        self.notes.push(format!("{} {said}", self.given("account")));
        fits.then_some(account)
    }

    fn folder(&mut self) -> Option<String> {
        let chdir = self.script.last("chdir").map(|given| (given.value(), given.span.clone()));
        let folder = match &chdir {
            Some((text, _)) => normal(&self.context.folder.join(text)),
            None => self.context.folder.clone(),
        };
        let span = chdir.map_or(0..0, |(_, span)| span);
        let Some(folder) = folder.to_str() else {
            let problem = Problem::new(Class::BadValue, "the folder that the job would run in is not UTF-8");
            self.problems.add(&span, problem.hint("run it from another folder"));
            return None;
        };
        Some(folder.to_owned())
    }

    fn warning(&mut self) -> Option<Warning> {
        let warning = self.value("signal", values::warning)?;
        let shown = self.given("signal");
        self.notes.push(if program::is_passed_on(&warning) {
            format!("{shown}: the script is sent SIG{} when a notice comes, as long before the end as the notice is", warning.signal)
        } else {
            format!("{shown}: when a notice comes all processes of the script are sent SIGTERM, as long before the end as the notice is")
        });
        Some(warning)
    }

    /// What `--export` sets, and those of Slurm's variables that the script reads and that are known beforehand.
    fn env(&mut self, name: &str, nodes: u32, cpus: u64, gpus: Option<u32>) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        if let Some(export) = self.script.last("export") {
            let text = export.value().to_owned();
            let pairs = text.split(',').filter_map(|part| part.split_once('='));
            env.extend(
                pairs.filter(|(name, _)| is_variable(name)).map(|(name, value)| (name.to_owned(), value.to_owned())),
            );
            if !text.split(',').any(|part| part == "ALL") {
                let shown = shown(export);
                self.notes
                    .push(format!("{shown}: on this machine the job has the variables of this terminal all the same"));
            }
        }
        let used = uses(&self.text[self.script.commands..]).variables;
        let tasks = self.count("ntasks-per-node").or(self.count("ntasks"));
        let known = [
            ("SLURM_SUBMIT_DIR", self.context.folder.to_str().map(str::to_owned)),
            ("SLURM_JOB_NAME", Some(name.to_owned())),
            ("SLURM_NNODES", Some(nodes.to_string())),
            ("SLURM_JOB_NUM_NODES", Some(nodes.to_string())),
            ("SLURM_CPUS_PER_TASK", self.count("cpus-per-task").map(|cpus| cpus.to_string())),
            ("SLURM_CPUS_ON_NODE", (cpus > 0).then(|| cpus.to_string())),
            (
                "SLURM_NTASKS_PER_NODE",
                tasks.filter(|_| used.contains("SLURM_NTASKS_PER_NODE")).map(|tasks| tasks.to_string()),
            ),
            ("SLURM_GPUS_ON_NODE", gpus.map(|gpus| gpus.to_string())),
        ];
        let known = known.into_iter().filter(|(name, _)| used.contains(*name));
        env.extend(known.filter_map(|(name, value)| Some((name.to_owned(), value?))));
        env
    }

    /// What the script uses that is only on a cluster.
    fn cluster_only(&mut self, nodes: u32, env: &BTreeMap<String, String>) {
        let uses = uses(&self.text[self.script.commands..]);
        let list = |words: Vec<String>| words.join(", ");
        if nodes > 1 {
            self.notes.push(format!(
                "the script is run once on each of the {nodes} nodes, not on the first alone: RANK, WORLD_SIZE, MASTER_ADDR and \
                 MASTER_PORT are set as for torchrun"
            ));
        }
        if !uses.programs.is_empty() {
            let many = if nodes > 1 && uses.programs.contains("srun") {
                "; and each of its runs would begin the tasks of all nodes: leave `srun` out, as the script runs on every node"
            } else {
                ""
            };
            let named = list(uses.programs.into_iter().collect());
            self.notes.push(format!("the script uses {named}: only machines of a cluster have that{many}"));
        }
        let unset: Vec<String> = uses.variables.into_iter().filter(|name| !env.contains_key(name)).collect();
        if !unset.is_empty() {
            self.notes.push(format!("the script reads {}: only Slurm sets that", list(unset)));
        }
    }

    /// What is odd about the file itself.
    fn remarks(&mut self) {
        if let Some(first) = self.script.late.first() {
            let line = self.text[..first.start].matches('\n').count() + 1;
            let more = match self.script.late.len() {
                1 => String::new(),
                many => format!(", and {} more", many - 1),
            };
            self.notes.push(format!(
                "line {line}{more}: #SBATCH below the first command is not read; nor does Slurm read it"
            ));
        }
        if self.text.contains("\r\n") {
            self.notes
                .push("the script has Windows line ends: they are removed here, and sbatch would refuse it".to_owned());
        }
        if !self.text.starts_with("#!") {
            self.notes
                .push("the script does not begin with #!: /bin/sh runs it, and sbatch would refuse it".to_owned());
        }
    }
}

fn job_name(text: &str) -> Result<String, Problem> {
    let fits = !text.trim().is_empty() && text.len() <= 200 && !text.chars().any(char::is_control);
    let wrong = || Problem::new(Class::BadValue, format!("{} is no name for a job", Quoted(text)));
    fits.then(|| text.to_owned()).ok_or_else(|| wrong().expected("1 to 200 characters").hint("write a shorter name"))
}

/// The family of an accelerator that Slurm calls such things as h100, nvidia_a100-sxm4-80gb or tesla_v100.
pub(crate) fn known_accelerator(catalog: &Catalog, kind: &str) -> Option<String> {
    let words = std::iter::once(kind).chain(kind.split(['_', '-', '.']));
    let mut words = words.filter(|word| word.len() > 1 && !word.contains(':'));
    words.find_map(|word| catalog.wanted(word).ok()).map(|wanted| wanted.family)
}

/// `3hours`, `90minutes`, `2days`, `60`: seconds where no unit is given.
fn from_now(text: &str) -> Result<Span, Problem> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let units = [("seconds", 1), ("minutes", 60), ("hours", 3_600), ("days", 86_400), ("weeks", 604_800)];
    let fits = |(name, _): &&(&str, i64)| {
        unit.is_empty() || unit.len() > 2 && name.starts_with(unit) || name.trim_end_matches('s') == unit
    };
    let seconds = number.parse::<i64>().ok().filter(|number| (1..=1_000_000_000).contains(number));
    match seconds.zip(units.iter().find(fits)) {
        Some((number, (_, seconds))) if number * seconds <= 315_000_000 => Ok(Span::seconds(number * seconds)),
        _ => Err(Problem::new(Class::BadValue, format!("{} is not a moment", Quoted(&format!("now+{text}"))))
            .expected("a moment, such as 2026-11-30T12:00:00 or now+12hours")
            .hint(match nearest(unit, units.iter().map(|(name, _)| *name)) {
                Some(near) => format!("did you mean now+{number}{near}?"),
                None => "write now+12hours".to_owned(),
            })),
    }
}

pub(crate) fn is_variable(name: &str) -> bool {
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    begins && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A path without `.` and `..`, as far as its text tells.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => _ = normal.pop(),
            part => normal.push(part),
        }
    }
    normal
}
