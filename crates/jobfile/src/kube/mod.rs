//! Job files of Kubernetes as they are: `batch/v1` Jobs. The one table of their keys (`keys`) says what becomes of each; what is in a
//! container (`container`), which machines it asks for (`machines`) and how many pods there are (`job`) make a job of Windfall's.

mod container;
mod job;
mod keys;
mod machines;
mod reader;

pub(super) use job::job;

use crate::node::Node;

/// Whether a file is of Kubernetes: every object of its says of which version and kind it is.
pub(super) fn is_object(root: &Node) -> bool {
    let has = |name: &str| root.entries().iter().any(|(key, _)| key.text() == Some(name));
    has("apiVersion") && has("kind")
}
