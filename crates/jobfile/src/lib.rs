//! Job files: YAML written by people, a batch script of Slurm's (`sbatch`) or a Job of Kubernetes (`kube`), to a job that the brain
//! knows, or a list of everything that is wrong with the file and how to put it right. Reads the one file it is given, and never changes anything.
//!
//! The text becomes a tree that knows where everything stands (`node`); the one table of keys (`keys`) says what each
//! value must be (`value`); then defaults and rules between keys make a job (`assemble`).

mod assemble;
mod context;
mod error;
mod foreign;
mod init;
mod keys;
mod kube;
mod node;
mod paths;
mod quantity;
pub mod sbatch;
mod schema;
mod show;
mod value;
mod when;
mod wishes;

pub use context::Context;
pub use error::{Class, FilePosition, JobFileError, Problem, position};
pub use init::{Answers, Question, template};
pub use schema::schema;
pub use show::Look;
pub use wishes::Wishes;

use error::Problems;
use node::Yaml;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use windfall_core::{JobSpec, Span};

/// Larger files are not job files.
const LARGEST: usize = 1 << 20;

/// A file that was read.
#[derive(Clone, Debug)]
pub struct Read {
    /// The job, without a deadline: the world that it will run in may have another clock.
    pub spec: JobSpec,
    /// Time from now to the deadline.
    pub deadline_in: Option<Span>,
    /// What can only be understood with a catalogue.
    pub wishes: Wishes,
    /// The folder that is to be sent along; none where the job runs in the folder itself.
    pub workdir: Option<PathBuf>,
    /// Where the values of its secrets are to be had.
    pub secrets: BTreeMap<String, Secret>,
    /// What the user should know, one line each.
    pub notes: Vec<String>,
}

/// Where the value of a secret is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// In the terminal's environment.
    Terminal,
    /// In a file: its first line.
    File(PathBuf),
    /// With the server's operator.
    Server,
}

/// A length of time as job files write it.
pub fn duration(text: &str) -> Option<windfall_core::Span> {
    quantity::duration(text, windfall_core::Span(1)).ok()
}

/// A large number as job files write it: `7e9` or `7B`.
pub fn amount(text: &str) -> Result<u64, Problem> {
    quantity::count(text, 1, u64::MAX / 2)
}

/// Hours of work as job files write them.
pub fn hours(text: &str) -> Result<windfall_core::Span, Problem> {
    quantity::hours(text)
}

/// Reads the job file at `path`.
pub fn read(path: &Path, context: &Context) -> Result<Read, JobFileError> {
    let name = path.to_string_lossy();
    let hint = "check the name, or write a job file with `windfall init`";
    let bytes = contents(path, "job file", "YAML", hint).map_err(|problem| JobFileError::unreadable(&name, problem))?;
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text, &name, context),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            let mut problems = Problems::new(&text);
            problems.add(&(at..at), not_text("a byte that is not UTF-8"));
            Err(problems.into_error(&name))
        }
    }
}

/// The bytes of a small file that a person wrote. `kind` is what it should be, in `format`; `begin` helps who has none.
pub fn contents(path: &Path, kind: &str, format: &str, begin: &str) -> Result<Vec<u8>, Problem> {
    let expected = format!("a {kind} ({format})");
    let unreadable = |message: String| Problem::new(Class::Unreadable, message).expected(&expected);
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => unreadable("there is no such file".to_owned()).hint(begin),
        std::io::ErrorKind::PermissionDenied => {
            unreadable("the file may not be read".to_owned()).hint("check its permissions, and those of its folders")
        }
        _ => unreadable(format!("the file cannot be read: {error}")),
    };
    let about = std::fs::metadata(path).map_err(failed)?;
    if about.is_dir() {
        return Err(unreadable("this is a folder, not a file".to_owned()).hint(format!("name the {kind} in it")));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that is too large, also where its length is not known before.
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > LARGEST {
        return Err(unreadable("the file is larger than 1 MiB".to_owned()).hint(format!("is this really a {kind}?")));
    }
    Ok(bytes)
}

fn not_text(what: &str) -> Problem {
    Problem::new(Class::Syntax, format!("{what}: this is not a text file"))
        .expected("a job file (YAML, in UTF-8)")
        .hint("check that this is the right file, and save it as UTF-8")
}

/// Reads a job file's text; `name` is the file's name for messages, and its stem the job's name by default.
pub fn parse(text: &str, name: &str, context: &Context) -> Result<Read, JobFileError> {
    let mut problems = Problems::new(text);
    let read = walk(text, name, context, &mut problems);
    match read {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(problems.into_error(name)),
    }
}

/// The job, as far as it can be made; what is wrong is in `problems`, which is not empty when there is none.
fn walk<'a>(text: &'a str, name: &str, context: &'a Context, problems: &mut Problems<'a>) -> Option<Read> {
    if text.len() > LARGEST {
        problems.add(
            &(0..0),
            Problem::new(Class::Unreadable, "the file is larger than 1 MiB").expected("a job file (YAML)"),
        );
        return None;
    }
    if let Some(at) = text.find('\0') {
        problems.add(&(at..at + 1), not_text("a zero byte"));
        return None;
    }
    if sbatch::is_script(text) {
        return sbatch::job(text, name, context, problems);
    }
    let root = match node::tree(text, problems) {
        Some(root) if !root.is_nothing() => root,
        _ => {
            if problems.is_empty() {
                let problem = Problem::new(Class::Syntax, "the file is empty").expected("at least `run: command`");
                problems.add(&(0..0), problem.hint("write a job file with `windfall init`"));
            }
            return None;
        }
    };
    if !matches!(root.yaml, Yaml::Map(_)) {
        let problem = Problem::new(Class::WrongType, format!("the file is {}, not a job", root.what()))
            .expected("`key: value` lines, such as `run: python train.py`")
            .hint(match root.yaml {
                Yaml::List(_) => "remove the `- `; several jobs go in a file each",
                _ => "put `run:` before the command, or write a job file with `windfall init`",
            });
        problems.add(&root.span, problem);
        return None;
    }
    if kube::is_object(&root) {
        return kube::job(&root, text, name, context, problems);
    }
    if foreign::is_skypilot(&root, problems) {
        return None;
    }
    let workdir = root.entries().iter().find(|(key, _)| key.text() == Some("workdir"));
    let workdir = workdir.and_then(|(_, value)| paths::workdir(value.text()?, context).ok());
    let folder = workdir.clone().map_or_else(|| context.folder.clone(), PathBuf::from);
    let inside = Context { folder, ..context.clone() };
    let mut walk = value::Walk { context, inside, problems, notes: Vec::new(), text };
    let top = walk.group(&root, keys::KEYS, "");
    let notes = walk.notes;
    let mut assemble = assemble::Assemble { context, problems, notes };
    let spec = assemble.job(&top, default_name(name));
    let notes = assemble.notes;
    let spec = spec?;
    if problems.is_empty()
        && let Err(left) = spec.check()
    {
        // The server checks the same at its door; here it can still be shown on its line.
        let key = left.field.split('.').next().unwrap_or_default();
        let problem = Problem::new(Class::BadValue, format!("{}: {}", left.field, left.problem));
        problems.add(&top.span(key), problem);
    }
    let (deadline_in, wishes) = (top.duration("deadline"), Wishes::of(&top));
    Some(Read {
        spec,
        deadline_in,
        wishes,
        workdir: workdir.map(PathBuf::from),
        secrets: assemble::secrets(&top),
        notes,
    })
}

fn default_name(file: &str) -> String {
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut name: String = stem.chars().filter(|c| !c.is_control()).collect();
    while name.len() > 200 {
        name.pop();
    }
    if name.trim().is_empty() || name == "-" { "job".to_owned() } else { name }
}
