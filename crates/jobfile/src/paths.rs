//! Folders and stores that a file names: made absolute, and refused where the agent, which clears what an
//! interrupted stint left in the checkpoint folder, could delete something that is not a checkpoint.

use super::context::Context;
use super::error::{Class, Problem, Quoted};
use std::path::{Component, Path, PathBuf};
use windfall_core::nearest::nearest;

/// The folder that the program saves to.
pub(super) fn checkpoint_path(text: &str, context: &Context) -> Result<String, Problem> {
    const EXPECTED: &str = "a folder of its own for checkpoints, such as out/";
    let refuse = |why: &str| {
        Err(Problem::new(Class::BadValue, format!("{} {why}", Quoted(text)))
            .expected(EXPECTED)
            .hint("files that an interrupted run leaves there are deleted: name a folder that holds nothing else"))
    };
    if text.contains("://") {
        return Err(Problem::new(Class::BadValue, format!("{} is not a folder of this machine", Quoted(text)))
            .expected(EXPECTED)
            .hint("`path` is where the program saves; say where that is kept with `store`"));
    }
    let path = absolute(text, context)?;
    // A link can lead to the same folders by another name.
    let (folder, home) = (normal(&context.folder), context.home.as_deref().map(normal));
    for (path, folder, home) in [
        (path.clone(), folder.clone(), home.clone()),
        (resolved(&path), resolved(&folder), home.as_deref().map(resolved)),
    ] {
        if path == Path::new("/") {
            return refuse("is the root of this machine");
        }
        if SYSTEM.iter().any(|system| path.starts_with(system)) {
            return refuse("is a folder of the system");
        }
        if path.is_file() {
            return refuse("is a file");
        }
        if home.as_ref() == Some(&path) {
            return refuse("is your home folder");
        }
        if path == folder {
            return refuse("is the folder that the job runs in");
        }
        if folder.starts_with(&path) {
            return refuse("contains the folder that the job runs in");
        }
        if home.is_some_and(|home| home.starts_with(&path)) {
            return refuse("contains your home folder");
        }
    }
    into_text(resolved(&path))
}

/// The folder that is sent to the machines that the job runs on.
pub(super) fn workdir(text: &str, context: &Context) -> Result<String, Problem> {
    let refuse =
        |why: &str| Problem::new(Class::BadValue, format!("{} {why}", Quoted(text))).expected("the job's own folder");
    if text.contains("://") {
        let hint = "clone it, and name the folder; data in a bucket is best read by the program itself";
        return Err(refuse("is not a folder of this machine").hint(hint));
    }
    let path = resolved(&absolute(text, context)?);
    if !path.is_dir() {
        let why = if path.exists() { "is not a folder" } else { "is not there" };
        return Err(
            refuse(why).hint("relative paths begin in this terminal's folder; write `workdir: .` for all of it")
        );
    }
    let home = context.home.as_deref().map(resolved);
    if path == Path::new("/") || SYSTEM.iter().any(|system| path.starts_with(system)) {
        return Err(
            refuse("is a folder of the system: all of it would be sent").hint("put the job into a folder of its own")
        );
    }
    if home.is_some_and(|home| home.starts_with(&path)) {
        return Err(
            refuse("holds your home folder: all of it would be sent").hint("put the job into a folder of its own")
        );
    }
    into_text(path)
}

/// A file of this machine.
pub(super) fn file(text: &str, context: &Context) -> Result<String, Problem> {
    absolute(text, context).and_then(into_text)
}

/// Folders in which nobody keeps checkpoints.
const SYSTEM: [&str; 10] = ["/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/sbin", "/sys", "/usr"];

/// A path by the one name that it has without links, as far as it is there: two jobs must not share a folder unseen.
fn resolved(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|part| Some((part, part.canonicalize().ok()?)));
    match there {
        Some((part, real)) if part == path => real,
        Some((part, real)) => path.strip_prefix(part).map(|rest| real.join(rest)).unwrap_or_else(|_| path.to_owned()),
        None => path.to_owned(),
    }
}

/// Where checkpoints are kept.
pub(super) fn store(text: &str, context: &Context) -> Result<String, Problem> {
    const SCHEMES: &[&str] = &["s3", "gs", "az", "file"];
    const EXPECTED: &str = "a folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix";
    let fail = |why: String| Problem::new(Class::BadValue, why).expected(EXPECTED);
    let Some((scheme, rest)) = text.split_once("://") else {
        let meant = SCHEMES.iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?)));
        return match meant.filter(|(_, rest)| rest.starts_with(':') || rest.starts_with("//")) {
            Some((scheme, rest)) => {
                let rest = rest.trim_start_matches([':', '/']);
                let hint = format!("did you mean {}?", Quoted(&format!("{scheme}://{rest}")));
                Err(fail(format!("{} is neither a folder nor a bucket", Quoted(text))).hint(hint))
            }
            None => absolute(text, context).and_then(into_text),
        };
    };
    if !SCHEMES.contains(&scheme) {
        let meant = if scheme == "gcs" { Some("gs") } else { nearest(scheme, SCHEMES.iter().copied()) };
        let hint = meant.map(|near| format!("did you mean {}?", Quoted(&format!("{near}://{rest}"))));
        return Err(fail(format!("{} is an unknown kind of store: {}", Quoted(text), Quoted(scheme))).maybe_hint(hint));
    }
    if rest.trim_start_matches('/').is_empty() || (scheme != "file" && rest.starts_with('/')) {
        return Err(fail(format!("{} names no bucket", Quoted(text))));
    }
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err(fail(format!("{} has a space in it", Quoted(text))));
    }
    Ok(text.to_owned())
}

/// Whether a store and the checkpoint folder are one inside the other, which would copy copies.
pub(super) fn overlap(path: &str, store: &str) -> bool {
    let store = store.strip_prefix("file://").unwrap_or(store);
    let (path, store) = (resolved(Path::new(path)), resolved(Path::new(store)));
    store.is_absolute() && (path.starts_with(&store) || store.starts_with(&path))
}

fn absolute(text: &str, context: &Context) -> Result<PathBuf, Problem> {
    let fail =
        |why: &str| Problem::new(Class::BadValue, format!("{} {why}", Quoted(text))).expected("the path of a folder");
    if text.trim().is_empty() {
        return Err(fail("is not a path"));
    }
    if text.chars().any(char::is_control) {
        return Err(fail("has a control character"));
    }
    if text.contains('$') {
        return Err(fail("has a variable in it").hint("variables are not replaced in paths; write the path out"));
    }
    let path = match (text.strip_prefix("~/"), &context.home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ if text.starts_with('~') => {
            return Err(fail("names a home folder").hint("write ~/folder, or the path from /"));
        }
        _ => context.folder.join(text),
    };
    Ok(normal(&path))
}

/// Without `.` and `..`, by name alone: the folder need not exist yet.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            other => normal.push(other),
        }
    }
    normal
}

fn into_text(path: PathBuf) -> Result<String, Problem> {
    path.into_os_string().into_string().map_err(|_| {
        Problem::new(Class::BadValue, "the folder's path is not UTF-8").expected("a path that can be written as text")
    })
}
