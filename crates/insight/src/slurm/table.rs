//! `sacct -P` (or `-p`): fields between pipes, below a line that names them, in any order. Nothing but the present line is
//! held.

use super::fields::{self, Per, Tres};
use super::jobs::{Jobs, Row};
use memchr::memchr_iter;
use std::cmp::Ordering;

macro_rules! known {
    ($($field:ident $name:literal),* $(,)?) => {
        /// A field that is read.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field { $($field),* }

        const NAMES: &[(&str, Field)] = &[$(($name, Field::$field)),*];
    };
}

known! {
    Id "jobid", IdRaw "jobidraw", Name "jobname", User "user", Account "account", Partition "partition",
    Cluster "cluster", State "state", Submit "submit", Eligible "eligible", Start "start", End "end",
    Elapsed "elapsed", ElapsedRaw "elapsedraw", Limit "timelimit", LimitRaw "timelimitraw", AllocCpus "alloccpus",
    NCpus "ncpus", ReqCpus "reqcpus", AllocNodes "allocnodes", NNodes "nnodes", NodeList "nodelist",
    AllocTres "alloctres", ReqTres "reqtres", AllocGres "allocgres", ReqGres "reqgres", ReqMem "reqmem",
    MaxRss "maxrss", TotalCpu "totalcpu", UsageAve "tresusageinave", UsageTot "tresusageintot", NTasks "ntasks",
}

/// What a line has of every field.
type Cells<'t> = [&'t str; NAMES.len()];

/// Fields whose text may hold a pipe of its own.
const FREE_TEXT: &[&str] = &["comment", "admincomment", "systemcomment", "workdir", "submitline", "reason", "extra"];

/// Where each field stands in a line.
#[derive(Debug)]
pub struct Columns {
    fields: Vec<Option<Field>>,
    /// The one column that may have pipes in it.
    free: Option<usize>,
}

impl Columns {
    /// Reads the line that names the fields; none if it is no such line.
    pub fn read(line: &str) -> Option<Columns> {
        let words: Vec<String> = line.trim_end().split('|').map(|word| word.trim().to_ascii_lowercase()).collect();
        let field = |word: &String| NAMES.iter().find(|(name, _)| name == word).map(|(_, field)| *field);
        let fields: Vec<Option<Field>> = words.iter().map(field).collect();
        let has = |field| fields.contains(&Some(field));
        if !(has(Field::Id) || has(Field::IdRaw)) || fields.len() < 2 {
            return None;
        }
        let other = words.iter().any(|word| FREE_TEXT.contains(&word.as_str()));
        let free = fields.iter().position(|field| *field == Some(Field::Name)).filter(|_| !other);
        Some(Columns { fields, free })
    }

    /// What a report misses for want of a field, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        let has = |any: &[Field]| any.iter().any(|field| self.fields.contains(&Some(*field)));
        let needs: [(&[Field], &str); 8] = [
            (&[Field::User], "User"),
            (&[Field::Account], "Account"),
            (&[Field::Partition], "Partition"),
            (&[Field::State], "State"),
            (&[Field::Submit, Field::Eligible], "Submit"),
            (&[Field::Start], "Start"),
            (&[Field::Limit, Field::LimitRaw], "Timelimit"),
            (&[Field::AllocTres, Field::AllocGres], "AllocTRES"),
        ];
        needs.iter().filter(|(any, _)| !has(any)).map(|(_, name)| *name).collect()
    }

    /// Takes a line in, or says what is wrong with it.
    pub fn take(&self, line: &str, jobs: &mut Jobs) -> Result<(), &'static str> {
        let mut cells = [""; NAMES.len()];
        let (mut from, mut at) = (0, 0);
        for pipe in memchr_iter(b'|', line.as_bytes()).chain([line.len()]) {
            if let Some(Some(field)) = self.fields.get(at) {
                cells[*field as usize] = &line[from..pipe];
            }
            at += 1;
            from = pipe + 1;
        }
        match at.cmp(&self.fields.len()) {
            Ordering::Less => return Err("it has too few fields"),
            Ordering::Equal => {}
            Ordering::Greater => self.with_pipes(line, at - self.fields.len(), &mut cells)?,
        }
        take(&cells, jobs)
    }

    /// Reads a line with more pipes than columns: they are part of a job's name.
    fn with_pipes<'t>(&self, line: &'t str, mut inside: usize, cells: &mut Cells<'t>) -> Result<(), &'static str> {
        let free = self.free.ok_or("it has too many fields")?;
        let (mut from, mut at) = (0, 0);
        for pipe in memchr_iter(b'|', line.as_bytes()).chain([line.len()]) {
            if at == free && inside > 0 {
                inside -= 1;
                continue;
            }
            if let Some(Some(field)) = self.fields.get(at) {
                cells[*field as usize] = &line[from..pipe];
            }
            at += 1;
            from = pipe + 1;
        }
        Ok(())
    }
}

/// A time, zero where there is none.
fn when(text: &str) -> Result<u32, &'static str> {
    match text {
        "" | "Unknown" | "None" | "N/A" | "0" => Ok(0),
        text => fields::time(text).ok_or("a time in it cannot be read"),
    }
}

fn count(text: &str) -> u32 {
    text.parse().unwrap_or(0)
}

fn take(cells: &Cells<'_>, jobs: &mut Jobs) -> Result<(), &'static str> {
    let cell = |field: Field| cells[field as usize];
    let first = |one, other| if cell(one).is_empty() { cell(other) } else { cell(one) };
    let id = first(Field::Id, Field::IdRaw);
    let elapsed = match (cell(Field::ElapsedRaw), cell(Field::Elapsed)) {
        ("", "" | "INVALID") => None,
        ("", text) => Some(fields::length(text).ok_or("its elapsed time cannot be read")? as u32),
        (raw, _) => Some(raw.parse().map_err(|_| "its elapsed time cannot be read")?),
    };
    let mut row = Row {
        id,
        cluster: cell(Field::Cluster),
        start: when(cell(Field::Start))?,
        end: when(cell(Field::End))?,
        elapsed,
        cpu_s: fields::length(cell(Field::TotalCpu)).unwrap_or(0.0) as f32,
        ..Row::default()
    };
    let tasks = count(cell(Field::NTasks)).max(1) as f32;
    row.used_mib = fields::memory(cell(Field::MaxRss), 1.0).map(|(mib, _)| mib as f32 * tasks);
    let percent = |field| fields::gpu_percent(cell(field));
    row.gpu_percent = percent(Field::UsageTot)
        .map(|percent| percent as f32)
        .or_else(|| percent(Field::UsageAve).map(|percent| percent as f32 * tasks));
    if id.contains('.') {
        return jobs.take(&row);
    }
    row.state = match cell(Field::State) {
        "" => None,
        text => Some(fields::state(text).ok_or("its state is not one of Slurm's")?),
    };
    row.submit = when(cell(Field::Submit))?;
    row.eligible = when(cell(Field::Eligible))?;
    let limit = fields::limit(cell(Field::LimitRaw)).or_else(|| fields::limit(cell(Field::Limit)));
    row.limit = limit.unwrap_or(0);
    row.name = cell(Field::Name);
    row.user = cell(Field::User);
    row.account = cell(Field::Account);
    row.partition = cell(Field::Partition);
    held(&cell, &mut row);
    jobs.take(&row)
}

/// What a job holds, or asks for while it holds nothing.
fn held<'t>(cell: &impl Fn(Field) -> &'t str, row: &mut Row<'t>) {
    let (alloc, asked) = (fields::tres(cell(Field::AllocTres)), fields::tres(cell(Field::ReqTres)));
    let some = |text: u32| (text > 0).then_some(text);
    let listed = || fields::nodes(cell(Field::NodeList)).and_then(some);
    let nodes = alloc.nodes.and_then(some).or_else(|| some(count(cell(Field::AllocNodes)))).or_else(listed);
    let nodes = nodes.or_else(|| some(count(cell(Field::NNodes)))).or(asked.nodes).unwrap_or(1);
    let cores = [Field::AllocCpus, Field::NCpus, Field::ReqCpus].iter().find_map(|field| some(count(cell(*field))));
    row.cpus = alloc.cpus.or(cores).or(asked.cpus).unwrap_or(0);
    // Older fields: what is held is counted for the whole job, what is asked for at each node.
    let (held, wished) = (fields::gres(cell(Field::AllocGres)), fields::gres(cell(Field::ReqGres)));
    let gpus = |tres: &Tres<'t>| tres.gpus.map(|gpus| (gpus, tres.gpu_type));
    let asked_gpus = || gpus(&asked).or(wished.map(|(gpus, kind)| (gpus.saturating_mul(nodes), kind)));
    let all = match cell(Field::AllocTres).is_empty() && held.is_none() {
        true => asked_gpus(),
        false => gpus(&alloc).or(held),
    };
    if let Some((count, kind)) = all {
        row.gpus = count;
        row.gpu_type = kind.or(asked.gpu_type).or(wished.and_then(|(_, kind)| kind)).unwrap_or("");
    }
    let requested = || {
        let (mib, per) = fields::memory(cell(Field::ReqMem), 1024.0 * 1024.0)?;
        Some(match per {
            Some(Per::Core) => mib * f64::from(row.cpus.max(1)),
            Some(Per::Node) => mib * f64::from(nodes),
            None => mib,
        })
    };
    row.memory_mib = alloc.memory_mib.or(asked.memory_mib).or_else(requested).unwrap_or(0.0) as f32;
}
