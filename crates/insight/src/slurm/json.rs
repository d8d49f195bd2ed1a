//! `sacct --json`: one job at a time is held. Slurm 22.05 writes bare numbers, 24.11 `{set, infinite, number}`, and states
//! as a word or as a list of words; both are read.

use super::fields::{self, JobId};
use super::jobs::{Jobs, Row};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;

/// A number that may be bare or wrapped, and may be absent in several ways.
#[derive(Clone, Copy, Debug, Default)]
struct Loose(Option<f64>);

impl<'de> Deserialize<'de> for Loose {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Loose, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Loose;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number")
            }
            fn visit_u64<E>(self, number: u64) -> Result<Loose, E> {
                Ok(Loose(Some(number as f64)))
            }
            fn visit_i64<E>(self, number: i64) -> Result<Loose, E> {
                Ok(Loose((number >= 0).then_some(number as f64)))
            }
            fn visit_f64<E>(self, number: f64) -> Result<Loose, E> {
                Ok(Loose(Some(number)))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Loose, E> {
                Ok(Loose(None))
            }
            fn visit_str<E>(self, text: &str) -> Result<Loose, E> {
                Ok(Loose(text.parse().ok()))
            }
            fn visit_unit<E>(self) -> Result<Loose, E> {
                Ok(Loose(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Loose, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Loose(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Loose, A::Error> {
                let (mut set, mut infinite, mut number) = (true, false, None);
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match key.as_ref() {
                        "set" => set = map.next_value()?,
                        "infinite" => infinite = map.next_value()?,
                        "number" => number = map.next_value::<Loose>()?.0,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(Loose(number.filter(|_| set && !infinite)))
            }
        }
        from.deserialize_any(Any)
    }
}

impl Loose {
    fn whole(self) -> u32 {
        self.0.map_or(0, |number| number as u32)
    }

    /// A time, zero where there is none.
    fn when(self) -> u32 {
        self.0.and_then(|seconds| fields::time(&(seconds as u64).to_string())).unwrap_or(0)
    }
}

/// A word, a list of words, or nothing: the first word.
#[derive(Debug, Default)]
struct Word(String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
        let value = serde_json::Value::deserialize(from)?;
        let first = value.as_array().map_or(Some(&value), |list| list.first());
        Ok(Word(match first {
            Some(serde_json::Value::String(word)) => word.clone(),
            Some(serde_json::Value::Number(number)) => number.to_string(),
            _ => String::new(),
        }))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Whole {
    account: Word,
    array: Array,
    cluster: Word,
    het: Het,
    job_id: Loose,
    name: Word,
    nodes: Word,
    partition: Word,
    state: State,
    steps: Vec<Step>,
    time: Time,
    tres: Tres,
    user: Word,
    association: Association,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Association {
    user: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Array {
    job_id: Loose,
    task_id: Loose,
    task: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Het {
    job_id: Loose,
    job_offset: Loose,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    current: Word,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Time {
    elapsed: Loose,
    eligible: Loose,
    end: Loose,
    start: Loose,
    submission: Loose,
    limit: Loose,
    total: Clock,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Clock {
    seconds: Loose,
    microseconds: Loose,
}

impl Clock {
    fn seconds(&self) -> f32 {
        (self.seconds.0.unwrap_or(0.0) + self.microseconds.0.unwrap_or(0.0) / 1e6) as f32
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tres {
    allocated: Vec<Count>,
    requested: Vec<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Count {
    r#type: Word,
    name: Word,
    count: Loose,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Step {
    time: Time,
    tasks: Tasks,
    tres: StepTres,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tasks {
    count: Loose,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepTres {
    /// What the step took in, whatever Slurm calls it.
    requested: Usage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Usage {
    max: Vec<Count>,
    total: Vec<Count>,
}

fn found(counts: &[Count], kind: &str, name: &str) -> Option<f64> {
    counts.iter().find(|count| count.r#type.0 == kind && count.name.0 == name)?.count.0
}

/// All GPUs, and their type where one is given.
fn gpus(counts: &[Count]) -> Option<(u32, &str)> {
    let kinds = || counts.iter().filter(|count| count.r#type.0 == "gres" && count.name.0.starts_with("gpu:"));
    let typed = kinds().next().map(|_| kinds().map(|kind| kind.count.whole()).sum());
    let all = found(counts, "gres", "gpu").map(|count| count as u32).or(typed)?;
    Some((all, kinds().next().map_or("", |kind| &kind.name.0[4..])))
}

fn take(job: &Whole, jobs: &mut Jobs) -> Result<(), &'static str> {
    let number = job.job_id.0.ok_or("it has no job_id")? as u64;
    let part = |loose: Loose| loose.0.map(|number| number as u32);
    // Zero is how Slurm says that it is part of nothing.
    let array = job.array.job_id.0.filter(|id| *id > 0.0);
    let het = job.het.job_id.0.filter(|id| *id > 0.0);
    let id = match (array, het) {
        (Some(array), _) if job.array.task_id.0.is_none() && !job.array.task.0.is_empty() => {
            JobId::unbegun(array as u64)
        }
        (Some(array), _) => JobId::of(array as u64, part(job.array.task_id), None),
        (None, Some(het)) => JobId::of(het as u64, None, part(job.het.job_offset)),
        (None, None) => JobId::of(number, None, None),
    };
    let (allocated, requested) = (&job.tres.allocated, &job.tres.requested);
    let held = if allocated.is_empty() { requested } else { allocated };
    let (gpus, gpu_type) = gpus(held).unwrap_or((0, ""));
    let row = Row {
        cluster: &job.cluster.0,
        id: "",
        name: &job.name.0,
        user: if job.user.0.is_empty() { &job.association.user.0 } else { &job.user.0 },
        account: &job.account.0,
        partition: &job.partition.0,
        state: match job.state.current.0.as_str() {
            "" => None,
            text => Some(fields::state(text).ok_or("its state is not one of Slurm's")?),
        },
        submit: job.time.submission.when(),
        eligible: job.time.eligible.when(),
        start: job.time.start.when(),
        end: job.time.end.when(),
        elapsed: job.time.elapsed.0.map(|seconds| seconds as u32),
        limit: job.time.limit.0.and_then(|minutes| fields::limit(&(minutes as u64).to_string())).unwrap_or(0),
        cpus: found(held, "cpu", "").unwrap_or(0.0) as u32,
        gpus,
        gpu_type,
        memory_mib: found(held, "mem", "").unwrap_or(0.0) as f32,
        used_mib: None,
        // 22.05 knows the processor time of steps only.
        cpu_s: job.time.total.seconds().max(job.steps.iter().map(|step| step.time.total.seconds()).sum()),
        gpu_percent: None,
    };
    let nobody = job.nodes.0.starts_with("None");
    // A job that never had a node has the moment of its end as its start in some versions.
    let row = if nobody && row.elapsed == Some(0) { Row { start: 0, ..row } } else { row };
    jobs.take_as(id, false, &row)?;
    for step in &job.steps {
        let tasks = step.tasks.count.0.unwrap_or(1.0).max(1.0);
        let usage = &step.tres.requested;
        let bytes = found(&usage.max, "mem", "").map(|bytes| bytes * tasks);
        let row = Row {
            cluster: &job.cluster.0,
            start: step.time.start.when(),
            end: step.time.end.when(),
            elapsed: step.time.elapsed.0.map(|seconds| seconds as u32),
            used_mib: bytes.map(|bytes| (bytes / 1024.0 / 1024.0) as f32),
            gpu_percent: found(&usage.total, "gres", "gpuutil").map(|percent| percent as f32),
            ..Row::default()
        };
        jobs.take_as(id, true, &row)?;
    }
    Ok(())
}

/// Reads a whole answer; `refused` hears which job cannot be read and why.
pub fn read(
    from: impl std::io::Read,
    jobs: &mut Jobs,
    refused: &mut impl FnMut(u64, &str),
) -> Result<u64, serde_json::Error> {
    struct Answer<'a, F>(&'a mut Jobs, &'a mut F);
    impl<'de, F: FnMut(u64, &str)> Visitor<'de> for Answer<'_, F> {
        type Value = Option<u64>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("what `sacct --json` prints")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<u64>, A::Error> {
            let mut read = None;
            while let Some(key) = map.next_key::<String>()? {
                if key == "jobs" {
                    read = Some(map.next_value_seed(List(self.0, self.1))?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(read)
        }
    }
    let mut from = serde_json::Deserializer::from_reader(from);
    let read = from.deserialize_map(Answer(jobs, refused))?;
    read.ok_or_else(|| serde::de::Error::custom("it has no `jobs`"))
}

struct List<'a, F>(&'a mut Jobs, &'a mut F);

impl<'de, F: FnMut(u64, &str)> serde::de::DeserializeSeed<'de> for List<'_, F> {
    type Value = u64;
    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de, F: FnMut(u64, &str)> Visitor<'de> for List<'_, F> {
    type Value = u64;
    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of jobs")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<u64, A::Error> {
        let mut read = 0;
        while let Some(job) = list.next_element::<Whole>()? {
            read += 1;
            if let Err(why) = take(&job, self.0) {
                (self.1)(read, why);
            }
        }
        Ok(read)
    }
}
