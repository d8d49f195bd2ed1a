//! How much there is to do, as a job file states it, and how long that takes on the accelerators that it names. One
//! model for both: `plan` asks it about every offer, `run` about what the job asks for, so that a deadline can be
//! promised before the program has said a word.

use super::facts::catalog;
use super::for_sale::replayed;
use super::offers::bad;
use crate::here::Here;
use std::collections::BTreeMap;
use std::path::Path;
use windfall_catalog::plan::{Need, Request, Tuning, Work};
use windfall_catalog::{Catalog, Count, Precision, Wanted};
use windfall_core::spec::{Ask, WorkSpec, WorkUnit};
use windfall_core::{Rate, Span};
use windfall_insight::bench::{self, Run};
use windfall_jobfile::Read;
use windfall_server::client::{Code, Failure};

/// The work of a job file, for a plan; none when it says nothing.
pub fn stated(catalog: &Catalog, read: &Read, file: &Path) -> Result<Option<Work>, Failure> {
    let (spec, wishes) = (&read.spec, &read.wishes);
    if let Some(name) = &wishes.benchmark {
        let benchmark = Benchmark::read(catalog, name, file)?;
        return benchmark.of(spec.work.total.map(|work| work.0)).map(Some);
    }
    if let Some(tokens) = tokens(read) {
        return Ok(Some(tokens));
    }
    let Some(total) = spec.work.total else {
        // The longest that a batch script may run is all that is known of its work.
        return Ok(wishes.at_most.map(|hours| Work::Hours { hours, on: None }));
    };
    match spec.work.unit {
        WorkUnit::Time => {
            let on = wishes.on.as_ref().map(|ask| wanted(catalog, ask)).transpose()?;
            Ok(Some(Work::Hours { hours: Span(total.0 as i64), on }))
        }
        WorkUnit::Steps => {
            let mut per_second = BTreeMap::new();
            for (name, rate) in &spec.work.rates {
                let family = catalog.wanted(name).map_err(bad)?.family;
                per_second.insert(family, rate.0 as f64 / 1e9);
            }
            if per_second.is_empty() {
                return Err(Failure::new(Code::BadInput, "work: steps without a throughput cannot be planned")
                    .hint("write { steps: 40000, throughput: { A100: 3.1/s } }"));
            }
            // Of an accelerator that is asked for in several numbers the least is the safe one, as in a run.
            let mut counts = BTreeMap::new();
            for ask in &spec.resources {
                let family = catalog.wanted(&ask.accelerator).map_err(bad)?.family;
                let count = Count::whole(ask.count);
                counts.entry(family).and_modify(|known: &mut Count| *known = count.min(*known)).or_insert(count);
            }
            Ok(Some(Work::Steps { steps: total.0, per_second, counts }))
        }
    }
}

/// The work of a job file, for a run: what it states by parameters, tokens or a benchmark becomes running time on the
/// accelerators that it asks for. Speeds that the user gave stay; where nobody knows, it says so.
pub fn work_out(here: &Here, read: &mut Read, file: &Path) -> Result<(), Failure> {
    let tokens = tokens(read);
    if read.wishes.benchmark.is_none() && tokens.is_none() || !read.spec.work.rates.is_empty() {
        return Ok(());
    }
    let everywhere = catalog(here)?;
    let benchmark = read.wishes.benchmark.as_deref();
    let benchmark = benchmark.map(|name| Benchmark::read(&everywhere, name, file)).transpose()?;
    let steps = read.spec.work.total.map(|work| work.0);
    let steps = steps.or(benchmark.as_ref().and_then(|benchmark| benchmark.steps));
    let work = match &benchmark {
        Some(benchmark) => benchmark.of(steps).map_err(|failure| failure.message),
        None => tokens.ok_or_else(String::new),
    };
    match work.and_then(|work| needs(here, &everywhere, read, work)) {
        Ok(needs) => {
            for (ask, need) in &needs {
                let nodes = if read.spec.gang > 1 { format!("{} × ", read.spec.gang) } else { String::new() };
                read.notes.push(format!(
                    "work: {} on {nodes}{ask}, {} ({}); what is measured while running replaces it",
                    need.span,
                    need.how,
                    need.evidence.word()
                ));
            }
            read.spec.work = spec(&needs, steps);
        }
        Err(why) => read.notes.push(format!("work: how long it takes is learnt while running, because {why}")),
    }
    Ok(())
}

/// What `smaller` in a job's fallback stands for today, with what is known of speed and memory at its precision.
pub fn shrink(here: &Here, read: &mut Read) -> Result<(), Failure> {
    let Some(fallback) = &mut read.spec.fallback else { return Ok(()) };
    let usual = read.spec.precision.as_deref().unwrap_or("bf16");
    let facts = catalog(here)?;
    for step in fallback.to.iter().filter(|step| step.starts_with("smaller")) {
        let word = step.split_once('+').map_or(usual, |(_, precision)| precision);
        let known = Precision::named(word);
        let mut smaller = known.map_or(Vec::new(), |precision| facts.fallbacks(&read.spec.resources, precision));
        let least = read.wishes.accelerator_memory_gb.unwrap_or(0.0);
        smaller.retain(|smaller| {
            least == 0.0 || memory_gb(&facts, &smaller.ask.accelerator).is_some_and(|memory| memory >= least)
        });
        let list: Vec<String> = smaller
            .iter()
            .map(|s| format!("{} at {:.2} of the speed", s.ask, f64::from(s.speed_permille) / 1e3))
            .collect();
        read.notes.push(match list.is_empty() {
            true => format!("fallback: nothing smaller is known on which the job fits with {word}"),
            false => format!("fallback: {step} may be {}", list.join(", ")),
        });
        fallback.smaller.extend(smaller);
    }
    Ok(())
}

/// A batch script may ask for accelerators of whatever kind: then every GPU of NVIDIA's that is known will do, and what a Slurm
/// cluster sells without naming its kind.
pub fn any_kind(here: &Here, read: &mut Read) -> Result<(), Failure> {
    let Some(count) = read.wishes.any_gpus else { return Ok(()) };
    let facts = catalog(here)?;
    let is_gpu =
        |family: &&str| facts.accelerator(family).is_some_and(|sheet| sheet.vendor.eq_ignore_ascii_case("nvidia"));
    let kinds = facts.families().into_iter().filter(is_gpu).chain(["GPU"]);
    read.spec.resources = kinds.map(|family| Ask::of(family, count)).collect();
    Ok(())
}

/// Accelerators with less memory than the job asks for are not asked for; without any named, those with enough are.
pub fn with_memory(here: &Here, read: &mut Read) -> Result<(), Failure> {
    let Some(least) = read.wishes.accelerator_memory_gb else { return Ok(()) };
    let facts = catalog(here)?;
    // Of a share of an accelerator a job is to use no more than that share of its memory.
    let memory_gb = |ask: &Ask| {
        let (part, of) = ask.part.fraction();
        memory_gb(&facts, &ask.accelerator).map(|memory| memory * f64::from(part) / f64::from(of))
    };
    let enough = |ask: &Ask| memory_gb(ask).is_some_and(|memory| memory >= least);
    if read.spec.resources.is_empty() {
        let any = facts.families().into_iter().map(|family| Ask::of(family, 1));
        read.spec.resources = any.filter(|ask| enough(ask)).collect();
    }
    let (taken, left): (Vec<Ask>, Vec<Ask>) = read.spec.resources.drain(..).partition(enough);
    let words = |ask: &Ask| match memory_gb(ask) {
        Some(memory) if !ask.part.is_whole() => format!("{ask} has {memory:.0} GB"),
        Some(memory) => format!("{} has {memory:.0} GB", ask.accelerator),
        None => format!("the memory of {} is not known", ask.accelerator),
    };
    let left: Vec<String> = left.iter().map(words).collect();
    if taken.is_empty() {
        let message = format!("resources: at least {least} GB on an accelerator are asked for: {}", left.join(", "));
        return Err(Failure::new(Code::BadInput, message)
            .hint(format!("`windfall offers --min-gpu-memory {least}` shows what has enough")));
    }
    if !left.is_empty() {
        read.notes.push(format!("resources: not taken for want of {least} GB of memory: {}", left.join(", ")));
    }
    read.spec.resources = taken;
    Ok(())
}

/// Memory of one accelerator, by any of its names.
fn memory_gb(facts: &Catalog, accelerator: &str) -> Option<f64> {
    let family = facts.wanted(accelerator).ok()?.family;
    let sheet = facts.accelerator(&family).map(|sheet| f64::from(sheet.memory_gb));
    sheet.or_else(|| windfall_catalog::names::memory_gb(&family).map(f64::from))
}

/// The running time on each of the accelerators that a job asks for, or why there is none.
fn needs(here: &Here, everywhere: &Catalog, read: &Read, work: Work) -> Result<Vec<(Ask, Need)>, String> {
    let asks = &read.spec.resources;
    if asks.is_empty() {
        return Err("`resources` names no accelerators".to_owned());
    }
    let request = Request { work: Some(work), ..Request::default() };
    let on = |catalog: &Catalog, ask: &Ask| {
        let on = wanted(catalog, ask).map_err(|failure| failure.message)?;
        let need = catalog.need_on(&request, &on, read.spec.gang).map_err(|why| why.to_string())?;
        let (part, of) = ask.part.fraction();
        Ok::<Need, String>(Need { span: Span(need.span.0.saturating_mul(of.into()) / i64::from(part.max(1))), ..need })
    };
    // What is sold here says best what the job will run on; of anything else, all that is for sale is asked.
    let sold = replayed(here).ok();
    let need = |ask: &Ask| {
        let here = sold.as_ref().and_then(|sold| on(&sold.catalog, ask).ok());
        Ok((ask.clone(), here.map_or_else(|| on(everywhere, ask), Ok)?))
    };
    asks.iter().map(need).collect()
}

/// Running times as the brain knows work. Speeds go by the accelerator's name alone: the slowest alternative is safe.
fn spec(needs: &[(Ask, Need)], steps: Option<u64>) -> WorkSpec {
    let unit = if steps.is_some() { WorkUnit::Steps } else { WorkUnit::Time };
    let longest = needs.iter().map(|(_, need)| need.span.0.unsigned_abs()).max();
    let total = steps.or(longest).map(windfall_core::Work);
    let mut rates: BTreeMap<String, Rate> = BTreeMap::new();
    for (ask, need) in needs {
        let Some(rate) = total.and_then(|total| Rate::of(total, need.span)) else { continue };
        let slowest = rates.get(&ask.accelerator).map_or(rate, |known| rate.min(*known));
        rates.insert(ask.accelerator.clone(), Rate(slowest.0.max(1)));
    }
    WorkSpec { total, unit, rates }
}

fn tokens(read: &Read) -> Option<Work> {
    let (parameters, tokens) = read.wishes.parameters.zip(read.wishes.tokens)?;
    let tuning = if read.wishes.lora { Tuning::Lora } else { Tuning::Full };
    Some(Work::Tokens { parameters: parameters as f64, tokens: tokens as f64, tuning })
}

/// An accelerator of a job file, as the catalogue knows it.
pub fn wanted(catalog: &Catalog, ask: &Ask) -> Result<Wanted, Failure> {
    let wanted = catalog.wanted(&ask.accelerator).map_err(bad)?;
    Ok(Wanted { count: wanted.count.or(Some(Count::whole(ask.count))), ..wanted })
}

/// A measured speed.
struct Benchmark {
    file: String,
    steps: Option<u64>,
    on: Wanted,
    per_second: f64,
    precision: Option<Precision>,
}

impl Benchmark {
    /// Reads a file beside the job's: one figure, or several of which `#model` or `#model/precision` picks one.
    fn read(catalog: &Catalog, name: &str, job: &Path) -> Result<Benchmark, Failure> {
        let (name, pick) = name.split_once('#').map_or((name, None), |(name, pick)| (name, Some(pick)));
        let path = job.parent().unwrap_or(Path::new(".")).join(name);
        let wrong = |why: &str| Failure::new(Code::BadInput, format!("{}: {why}", path.display()));
        let beside = "`benchmark` names a file beside the job file";
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&error.to_string()).hint(beside))?;
        let runs = bench::read(&text).map_err(|error| {
            wrong(&error.to_string())
                .hint("`windfall bench run --out FILE` writes one; `windfall schema --benchmark` says what is in it")
        })?;
        let fits = |run: &&Run| pick.is_none_or(|pick| run.name == pick || run.label() == pick);
        let fitting: Vec<&Run> = runs.iter().filter(fits).collect();
        let labels = || {
            let names: Vec<String> = runs.iter().map(Run::label).collect();
            format!("pick one with `benchmark: file.json#…`: {}", names.join(", "))
        };
        let run = match fitting.as_slice() {
            [one] => *one,
            [] => return Err(wrong("no such run").hint(labels())),
            _ => return Err(wrong("several runs: which?").hint(labels())),
        };
        let device = run.accelerator.as_deref();
        let device = device.ok_or_else(|| wrong("does not say on what it was measured").hint("add \"accelerator\""))?;
        if device == "cpu" {
            return Err(wrong("was measured without an accelerator: it says nothing about one"));
        }
        let on = catalog.wanted(device.trim_start_matches("NVIDIA ")).map_err(bad)?;
        Ok(Benchmark {
            steps: run.steps,
            on: Wanted { count: Some(Count::whole(run.count)), ..on },
            per_second: run
                .steps_per_second
                .ok_or_else(|| wrong("no speed").hint("add \"steps_per_second\" or \"step_ms\""))?,
            precision: run.precision.as_deref().and_then(Precision::named),
            file: path.display().to_string(),
        })
    }

    /// So many steps at this speed; as many as the file says where the job does not.
    fn of(&self, steps: Option<u64>) -> Result<Work, Failure> {
        let steps = steps.or(self.steps).ok_or_else(|| {
            Failure::new(Code::BadInput, format!("{} says how fast, not how much", self.file))
                .hint("add `steps` to the job's work")
        })?;
        let Benchmark { on, per_second, precision, .. } = self;
        Ok(Work::Measured { steps, on: on.clone(), per_second: *per_second, precision: *precision })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_catalog::plan::{Limit, Why};
    use windfall_jobfile::{Context, parse};

    fn read(text: &str) -> Read {
        parse(text, "job.yaml", &Context::somewhere()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A state directory that is not there: its world is the one of a first run, which sells V100.
    fn nowhere() -> Here {
        Here { home: "/nonexistent/windfall".into(), json: false }
    }

    fn worked_out(text: &str) -> Read {
        let mut read = read(text);
        work_out(&nowhere(), &mut read, Path::new("job.yaml")).unwrap_or_else(|error| panic!("{error}"));
        read
    }

    #[test]
    fn a_run_takes_as_long_as_its_plan_says() {
        let text = "run: x\nresources: { accelerators: [V100, A100:8] }\nwork: { parameters: 5e8, tokens: 1e8 }\n";
        let work = worked_out(text).spec.work;
        let sold = replayed(&nowhere()).expect("the default market").catalog;
        for (name, wanted, catalog) in [("V100", "V100:1", sold), ("A100", "A100:8", Catalog::embedded())] {
            let request = Request {
                work: Some(Work::Tokens { parameters: 5e8, tokens: 1e8, tuning: Tuning::Full }),
                accelerators: vec![catalog.wanted(wanted).expect("known")],
                ..Request::default()
            };
            let plan =
                catalog.plan(&request, &windfall_core::market::foresight::Model::embedded(), Limit::Ways(100_000));
            let planned = plan.candidates.iter().map(|candidate| candidate.need).max().expect("candidates");
            let takes = work.rates[name].time_for(work.total.expect("worked out"));
            assert!((takes - planned).0.abs() <= planned.0 / 1_000, "{name}: {takes}, planned {planned}");
        }
    }

    #[test]
    fn steps_stay_steps_and_speeds_that_were_given_stay() {
        let text = "run: x\nresources: { accelerators: V100 }\nwork: { steps: 500, parameters: 5e8, tokens: 1e8 }\n";
        let work = worked_out(text).spec.work;
        assert_eq!((work.unit, work.total), (WorkUnit::Steps, Some(windfall_core::Work(500))));
        let given = "run: x\nresources: { accelerators: V100 }\nwork: { steps: 500, throughput: { V100: 3/s }, \
                     parameters: 5e8, tokens: 1e8 }\n";
        assert_eq!(worked_out(given).spec.work, read(given).spec.work);
    }

    #[test]
    fn what_nobody_knows_is_learnt_and_said() {
        let anything = worked_out("run: x\nwork: { parameters: 5e8, tokens: 1e8 }\n");
        assert_eq!(anything.spec.work.total, None);
        assert!(anything.notes[0].contains("`resources` names no accelerators"), "{:?}", anything.notes);
        let unsold = "run: x\nresources: { accelerators: V100:3 }\nwork: { parameters: 5e8, tokens: 1e8 }\n";
        let why = Why::UnknownSpeed { family: "V100:3".into() }.to_string();
        assert!(worked_out(unsold).notes[0].contains(&why));
    }

    #[test]
    fn accelerators_with_less_memory_than_asked_for_are_not_taken() {
        let asked = |resources: &str| {
            let mut read = read(&format!("run: x\nresources: {{ {resources} }}\n"));
            with_memory(&nowhere(), &mut read).map(|()| (read.spec.resources, read.notes))
        };
        let names = |asks: &[Ask]| asks.iter().map(|ask| ask.accelerator.clone()).collect::<Vec<_>>();
        let (taken, notes) = asked("accelerators: [V100, A100:8], accelerator_memory: 40+").expect("one has enough");
        assert_eq!(names(&taken), ["A100"]);
        assert_eq!(notes, ["resources: not taken for want of 40 GB of memory: V100 has 16 GB"]);
        let refused = asked("accelerators: V100, accelerator_memory: 40+").expect_err("none has enough");
        assert!(refused.message.ends_with("V100 has 16 GB"), "{}", refused.message);
        let any = names(&asked("accelerator_memory: 100GB").expect("some have").0);
        assert!(any.contains(&"H200".to_owned()) && !any.contains(&"H100".to_owned()), "{any:?}");
    }

    #[test]
    fn a_fallback_to_something_smaller_keeps_the_memory_asked_for() {
        let smaller = |memory: &str| {
            let resources = format!("{{ accelerators: L40S:1{memory} }}");
            let mut read =
                read(&format!("run: x\nresources: {resources}\nfallback: {{ after: 1, to: smaller+bf16 }}\n"));
            shrink(&nowhere(), &mut read).unwrap_or_else(|error| panic!("{error}"));
            read.spec.fallback.expect("as said").smaller
        };
        let memory = |step: &windfall_core::spec::Smaller| memory_gb(&Catalog::embedded(), &step.ask.accelerator);
        assert!(smaller("").iter().any(|step| memory(step) < Some(44.0)), "otherwise nothing is tried");
        assert!(smaller(", accelerator_memory: 44").iter().all(|step| memory(step) >= Some(44.0)));
    }

    #[test]
    fn lora_needs_less_memory_in_a_job_file_too() {
        let tuning =
            |more: &str| match tokens(&read(&format!("run: x\nwork: {{ parameters: 7e9, tokens: 1e9{more} }}\n"))) {
                Some(Work::Tokens { tuning, .. }) => tuning,
                other => panic!("{other:?}"),
            };
        assert_eq!(tuning(", lora: true"), Tuning::Lora);
        assert_eq!(tuning(", lora: false"), Tuning::Full);
        assert_eq!(tuning(""), Tuning::Full);
    }

    #[test]
    fn a_benchmark_says_how_fast_and_the_job_how_much() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("b.json"), r#"{ "accelerator": "V100", "steps_per_second": 2.0 }"#)
            .expect("written");
        let with = |more: &str| {
            let text = format!("run: x\nresources: {{ accelerators: V100 }}\nwork: {{ benchmark: b.json{more} }}\n");
            let mut read = read(&text);
            work_out(&nowhere(), &mut read, &folder.path().join("job.yaml")).unwrap_or_else(|error| panic!("{error}"));
            read
        };
        let work = with(", steps: 7200").spec.work;
        assert_eq!(work.total.map(|total| work.rates["V100"].time_for(total)), Some(Span::hours(1)));
        assert_eq!(work.unit, WorkUnit::Steps);
        let unsaid = with("");
        assert_eq!(unsaid.spec.work.total, None);
        assert!(unsaid.notes[0].contains("how fast, not how much"), "{:?}", unsaid.notes);
    }
}
