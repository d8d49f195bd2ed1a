//! Checked values to a job: defaults, and what only several keys together can get wrong.

use super::context::Context;
use super::error::{Class, Problem, Problems, Quoted};
use super::value::{Fields, Value};
use super::{Secret, paths};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use windfall_core::ledger::Share;
use windfall_core::nearest::nearest;
use windfall_core::pool::Shape;
use windfall_core::spec::{
    Ask, CheckpointSpec, Fallback, JobSpec, Late, Luggage, MOST_TAGS, Priority, RunSpec, SecretFrom, WorkSpec, WorkUnit,
};
use windfall_core::{Rate, Work};

/// A job made of the values of a file, as far as they are right; none without a program.
pub(super) struct Assemble<'a, 'p> {
    pub context: &'a Context,
    pub problems: &'p mut Problems<'a>,
    pub notes: Vec<String>,
}

impl Assemble<'_, '_> {
    /// The job; its deadline is left to the caller, who knows the world's clock.
    pub fn job(&mut self, top: &Fields, name: String) -> Option<JobSpec> {
        let resources: Vec<Ask> = top.fields("resources").map(asks).unwrap_or_default();
        let work = match top.fields("work") {
            // What the program prints is counted as it prints it: steps are no time.
            None if top.has("progress") => WorkSpec { unit: WorkUnit::Steps, ..WorkSpec::default() },
            work => self.work(work, &resources),
        };
        let fallback = self.fallback(top.fields("fallback"));
        let checkpoint = self.checkpoint(top.fields("checkpoint"), top.text("workdir"));
        let run = self.run(top)?;
        if top.has("late") && !top.has("deadline") {
            self.notes.push("late says what to do after a deadline, and there is no deadline".to_owned());
        }
        let elastic = top.two_counts("elastic");
        let most = elastic.map(|(_, most)| most).or_else(|| top.count("nodes"));
        if top.has("elastic") && top.has("nodes") {
            let problem = Problem::new(Class::BadValue, "nodes and elastic both say how many workers there are")
                .expected("one of them")
                .hint("remove `nodes`: the larger number of `elastic` stands for it");
            self.problems.add(&top.span("nodes"), problem);
        }
        let usual = JobSpec::named(top.text("name").map_or(name, str::to_owned), Vec::new());
        Some(JobSpec {
            owner: self.context.owner.clone(),
            team: top.text("team").map_or(usual.team, str::to_owned),
            tags: self.tags(top),
            tier: top.count("tier").map_or(usual.tier, |tier| tier as u8),
            priority: match top.text("priority") {
                Some("critical") => Priority::Critical,
                Some("low") => Priority::Low,
                _ => usual.priority,
            },
            worth_waiting_permille: top.count("worth_waiting").map(|permille| permille as u32),
            gang: most.map_or(usual.gang, |nodes| nodes as u32),
            least_gang: elastic.map(|(least, _)| least as u32),
            resources,
            host: top.fields("resources").map(host).unwrap_or_default(),
            work,
            late: match top.text("late") {
                Some("cheapest") => Late::Cheapest,
                Some("stop") => Late::Stop,
                Some("soonest") => Late::Soonest,
                _ => usual.late,
            },
            max_price: top.money("max_price"),
            budget: top.money("budget"),
            fallback,
            checkpoint,
            precision: match top.get("precision") {
                Some(Value::Text(precision)) => Some(precision.clone()),
                Some(Value::Fields(fields)) => fields.text("prefer").map(str::to_owned),
                _ => None,
            },
            policy: top.text("policy").map(str::to_owned),
            retries: top.count("retries").map_or(usual.retries, |retries| retries as u32),
            run,
            ..usual
        })
    }

    fn tags(&mut self, top: &Fields) -> BTreeMap<String, String> {
        let tags = top.named("tags");
        if let Some((_, span, _)) = tags.get(MOST_TAGS) {
            let problem = Problem::new(Class::BadValue, format!("tags: {} of them", tags.len()))
                .expected(format!("at most {MOST_TAGS}"))
                .hint("keep those that costs are split by; the rest can be in `name`");
            self.problems.add(span, problem);
        }
        tags.iter().filter_map(|(name, _, value)| Some((name.clone(), as_text(value)?))).collect()
    }

    fn run(&mut self, top: &Fields) -> Option<RunSpec> {
        if !top.has("run") {
            let problem = Problem::new(Class::MissingKey, "no `run`: what should the job run?")
                .expected("a command, such as `run: python train.py`")
                .hint("add a line with `run:` and the command that you would type");
            self.problems.add(&(0..0), problem);
        }
        let command = match top.get("run")? {
            Value::List(words) => {
                let words: Vec<String> = words.iter().filter_map(as_text).collect();
                if words.first().is_none_or(|program| program.trim().is_empty()) {
                    let problem = Problem::new(Class::BadValue, "run: no program").expected("the program first");
                    self.problems.add(&top.span("run"), problem);
                }
                words
            }
            Value::Text(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line.clone()],
            _ => return None,
        };
        let folder = top.text("workdir").or_else(|| self.context.folder.to_str());
        let Some(folder) = folder else {
            let problem = Problem::new(Class::BadValue, "the folder that the job would run in is not UTF-8");
            self.problems.add(&(0..0), problem.hint("run it from another folder"));
            return None;
        };
        let env = top.named("env").iter().filter_map(|(name, _, value)| Some((name.clone(), as_text(value)?)));
        let usual = RunSpec::of(command);
        Some(RunSpec {
            folder: folder.to_owned(),
            env: env.collect(),
            progress: top.text("progress").map(str::to_owned),
            grace: top.duration("grace").unwrap_or(usual.grace),
            luggage: self.luggage(top),
            ..usual
        })
    }

    /// What travels with the job; the parcel is made when it is submitted.
    fn luggage(&mut self, top: &Fields) -> Option<Box<Luggage>> {
        if top.has("setup") && !top.has("workdir") {
            let problem = Problem::new(Class::MissingKey, "`setup` without `workdir`")
                .expected("the folder that is set up")
                .hint("add `workdir: .`; without it the program runs with what this terminal has");
            self.problems.add(&top.span("setup"), problem);
        }
        let secrets = secrets(top);
        for (name, span, _) in top.named("env").iter().filter(|(name, ..)| secrets.contains_key(name)) {
            let problem = Problem::new(Class::BadValue, format!("{} is under `secrets` too", Quoted(name)))
                .expected("each variable once")
                .hint("remove it from `env`, which is logged");
            self.problems.add(span, problem);
        }
        let from = |secret: &Secret| match secret {
            Secret::Server => SecretFrom::Server,
            Secret::Terminal | Secret::File(_) => SecretFrom::Submission,
        };
        let luggage = Luggage {
            parcel: None,
            setup: top.text("setup").map(str::to_owned),
            outputs: top.list("outputs").iter().filter_map(as_text).collect(),
            secrets: secrets.iter().map(|(name, secret)| (name.clone(), from(secret))).collect(),
        };
        (luggage != Luggage::default()).then(|| Box::new(luggage))
    }

    fn work(&mut self, work: Option<&Fields>, resources: &[Ask]) -> WorkSpec {
        let Some(work) = work else { return WorkSpec::default() };
        let clash =
            |one: &str, other: &str| (work.has(one) && work.has(other)).then(|| (other.to_owned(), one.to_owned()));
        let clashes = [
            clash("steps", "hours"),
            clash("steps", "accelerator"),
            clash("hours", "throughput"),
            clash("hours", "parameters"),
            clash("hours", "benchmark"),
        ];
        if let Some((one, other)) = clashes.into_iter().flatten().next() {
            let problem = Problem::new(Class::BadValue, format!("work: `{one}` does not go with `{other}`"))
                .expected("{ steps, throughput }, { hours, accelerator } or { parameters, tokens }")
                .hint("say how much there is to do in one way");
            self.problems.add(&work.span(&one), problem);
            return WorkSpec::default();
        }
        for (one, other) in [("parameters", "tokens"), ("tokens", "parameters"), ("lora", "parameters")] {
            if work.has(one) && !work.has(other) {
                let problem = Problem::new(Class::MissingKey, format!("work: `{one}` without `{other}`"))
                    .expected("{ parameters: 7e9, tokens: 3e10 }")
                    .hint(format!("add `{other}:`: the size of a model is in `parameters`, its training in `tokens`"));
                self.problems.add(&work.span(one), problem);
            }
        }
        if work.has("hours") || work.has("accelerator") {
            return self.hours(work, resources);
        }
        let rates = self.rates(work, resources);
        if !work.has("steps") && rates.is_empty() && !["parameters", "tokens", "benchmark"].iter().any(|k| work.has(k))
        {
            let problem = Problem::new(Class::MissingKey, "work: nothing is said").expected("steps, or hours");
            self.problems.add(
                &work.span,
                problem.hint("write { steps: 40000 } or { hours: 40, accelerator: A100:8 }, or leave `work` out"),
            );
        }
        WorkSpec { total: work.count("steps").map(Work), unit: WorkUnit::Steps, rates }
    }

    fn rates(&mut self, work: &Fields, resources: &[Ask]) -> BTreeMap<String, Rate> {
        let mut rates = BTreeMap::new();
        for (name, span, value) in work.named("throughput") {
            let Value::Speed(rate) = value else { continue };
            self.is_asked_for(name, span, resources, "work.throughput");
            rates.insert(name.clone(), *rate);
        }
        for ask in resources {
            if !rates.is_empty() && !rates.contains_key(&ask.accelerator) {
                self.notes.push(format!(
                    "work.throughput has no {}: the slowest speed given is assumed until it is measured",
                    ask.accelerator
                ));
            }
        }
        rates
    }

    /// A speed for an accelerator that is never asked for is a typing mistake.
    fn is_asked_for(&mut self, name: &str, span: &Range<usize>, resources: &[Ask], path: &str) -> bool {
        let asked: Vec<&str> = resources.iter().map(|ask| ask.accelerator.as_str()).collect();
        if asked.is_empty() || asked.contains(&name) {
            return true;
        }
        let problem = Problem::new(Class::BadValue, format!("{path}: {} is not among the resources", Quoted(name)))
            .expected(format!("one of {}", asked.join(", ")))
            .maybe_hint(nearest(name, asked.iter().copied()).map(|near| format!("did you mean `{near}`?")));
        self.problems.add(span, problem);
        false
    }

    /// Hours on a reference: other numbers of the same accelerator are assumed to be in proportion.
    fn hours(&mut self, work: &Fields, resources: &[Ask]) -> WorkSpec {
        if !work.has("hours") {
            let problem = Problem::new(Class::MissingKey, "work: `accelerator` without `hours`")
                .expected("{ hours: 40, accelerator: A100:8 }");
            self.problems.add(&work.span("accelerator"), problem.hint("add `hours:`, or remove `accelerator`"));
            return WorkSpec::default();
        }
        let mut rates = BTreeMap::new();
        if let Some(Value::Ask(on)) = work.get("accelerator") {
            let same = resources.iter().filter(|ask| ask.accelerator == on.accelerator);
            // The slowest alternative is the safe one: speeds are known by the accelerator's name alone.
            let relative = |ask: &Ask| {
                let ((part, of), (all, parts)) = (ask.amount(), on.amount());
                Rate((u128::from(Rate::REAL_TIME.0) * u128::from(part * parts) / u128::from(of * all)) as u64)
            };
            let slowest = same.min_by_key(|ask| relative(ask)).unwrap_or(on);
            rates.insert(on.accelerator.clone(), Rate(relative(slowest).0.max(1)));
            let ((part, of), (all, parts)) = (slowest.amount(), on.amount());
            if part * parts != all * of {
                self.notes.push(format!(
                    "work: {slowest} is assumed to be {} as fast as {on} until it is measured",
                    Share::new(part * parts, all * of)
                ));
            }
            if let Some(other) = resources.iter().find(|ask| ask.accelerator != on.accelerator) {
                self.notes.push(format!(
                    "work: {} is assumed to be as fast as {} until it is measured",
                    other.accelerator, on.accelerator
                ));
            }
        }
        let total = work.duration("hours").map(|hours| Work(hours.0.unsigned_abs()));
        WorkSpec { total, unit: WorkUnit::Time, rates }
    }

    fn fallback(&mut self, fields: Option<&Fields>) -> Option<Fallback> {
        let fields = fields?;
        for key in ["after", "to"] {
            if !fields.has(key) {
                let problem = Problem::new(Class::MissingKey, format!("fallback: no `{key}`"))
                    .expected("{ after: 3, to: [on-demand] }")
                    .hint(format!("add `{key}:`"));
                self.problems.add(&fields.span, problem);
            }
        }
        let to = fields.list("to").iter().filter_map(as_text).collect();
        Some(Fallback { after: fields.count("after")? as u32, to, smaller: Vec::new() })
    }

    fn checkpoint(&mut self, fields: Option<&Fields>, workdir: Option<&str>) -> CheckpointSpec {
        let empty = Fields::default();
        let fields = fields.unwrap_or(&empty);
        let store = fields.text("store").unwrap_or(&self.context.store).to_owned();
        let mut path = fields.text("path").map(str::to_owned);
        let inside = path.as_ref().zip(workdir).and_then(|(path, workdir)| {
            let inside = Path::new(path).strip_prefix(workdir).ok()?;
            inside.to_str().map(str::to_owned)
        });
        if inside.is_some() {
            path = None;
        }
        if let Some(path) = &path
            && paths::overlap(path, &store)
        {
            let problem =
                Problem::new(Class::BadValue, "checkpoint: the folder and the store are one inside the other")
                    .expected("two folders apart from each other")
                    .hint(format!("the store is {}; choose another path or store", Quoted(&store)));
            self.problems.add(&fields.span("path"), problem);
        }
        let usual = CheckpointSpec::default();
        CheckpointSpec {
            path,
            inside,
            store,
            keep: fields.count("keep").map_or(usual.keep, |keep| keep as u32),
            settle_ms: fields.duration("settle").map_or(usual.settle_ms, |settle| settle.0.unsigned_abs()),
            size_bytes: match fields.get("size") {
                Some(Value::Bytes(bytes)) => Some(*bytes),
                _ => None,
            },
            every: fields.duration("every"),
            restart: fields.duration("restart"),
            complete: fields.text("complete").map(str::to_owned),
        }
    }
}

/// Where the values of a job's secrets are to be had.
pub(super) fn secrets(top: &Fields) -> BTreeMap<String, Secret> {
    let secret = |text: &str| match text.strip_prefix("file:") {
        Some(path) => Secret::File(path.into()),
        None if text == "server" => Secret::Server,
        None => Secret::Terminal,
    };
    let named = top.named("secrets").iter();
    named.filter_map(|(name, _, value)| Some((name.clone(), secret(&as_text(value)?)))).collect()
}

fn asks(fields: &Fields) -> Vec<Ask> {
    let ask = |value: &Value| match value {
        Value::Ask(ask) => Some(ask.clone()),
        _ => None,
    };
    fields.list("accelerators").iter().filter_map(ask).collect()
}

/// The most that a worker uses of its machine, as far as that is said: `8+` is no limit.
fn host(fields: &Fields) -> Shape {
    let exactly = |name: &str, unit: f64| match fields.get(name) {
        Some(Value::Exactly(amount)) => (amount * unit) as u64,
        _ => 0,
    };
    let (cpu_millis, memory_bytes) = (exactly("cpus", 1_000.0), exactly("memory", (1_u64 << 30) as f64));
    Shape { cpu_millis, memory_bytes, accelerators: 0 }
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}
