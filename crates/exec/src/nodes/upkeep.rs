//! What is said of nodes beside their work: by their operator, who drains, resumes and labels them, and by themselves, when
//! something is wrong.

use super::hub::Hub;
use super::joined::wall_clock_ms;
use super::labels::{LabelChange, Labels, MOST as MOST_LABELS};
use super::record::NodeRecord;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use windfall_core::Symptom;

/// More symptoms of one machine are not written down: it is drained by then.
const MOST_SYMPTOMS: usize = 256;

/// Why nodes were not labelled.
#[derive(Debug, thiserror::Error)]
pub enum NotLabelled {
    #[error("there is no node called {name}")]
    NoNode { name: String },
    #[error("node {name} cannot have these labels, or so many")]
    Bad { name: String },
    #[error("node {name}: the label {key} is said twice")]
    Twice { name: String, key: String },
    #[error("node {name} was given no label called {key}")]
    NotThere { name: String, key: String },
    #[error("labels cannot be written")]
    NotWritten(#[source] io::Error),
}

/// Fails where a node with these labels cannot have such changes: one of them makes no sense, or there would be too many.
fn check(given: &Labels, name: &str, changes: &[LabelChange]) -> Result<(), NotLabelled> {
    let (name, mut seen) = (name.to_owned(), BTreeSet::new());
    // Which of the two would count nobody can know.
    if let Some(key) = changes.iter().map(LabelChange::key).find(|key| !seen.insert(*key)) {
        return Err(NotLabelled::Twice { name, key: key.to_owned() });
    }
    let is_missing = |change: &&LabelChange| matches!(change, LabelChange::Remove { key } if !given.contains_key(key));
    let mut labels = given.clone();
    changes.iter().for_each(|change| change.apply(&mut labels));
    if labels.len() > MOST_LABELS || !changes.iter().all(LabelChange::is_good) {
        return Err(NotLabelled::Bad { name });
    }
    match changes.iter().find(is_missing) {
        Some(change) => Err(NotLabelled::NotThere { name, key: change.key().to_owned() }),
        None => Ok(()),
    }
}

impl Hub {
    /// From now on a node takes nothing new; false where there is none of that name.
    pub fn drain(&self, name: &str, why: String) -> io::Result<bool> {
        let known = self.knows(name) && self.registry.change(name, |node| node.drained = Some(why))?;
        self.changed.notify_one();
        Ok(known)
    }

    /// A node takes work again, whatever is known to be wrong with it; what comes after this counts again.
    pub fn resume(&self, name: &str) -> io::Result<bool> {
        let known = self.knows(name) && self.registry.change(name, NodeRecord::accept)?;
        self.changed.notify_one();
        Ok(known)
    }

    /// Changes what is said of nodes: of all of them, or of none where one is not known.
    pub fn label(&self, changes: &BTreeMap<String, Vec<LabelChange>>) -> Result<(), NotLabelled> {
        for (name, changes) in changes {
            let Some(node) = self.registry.node(name).filter(|_| self.knows(name)) else {
                return Err(NotLabelled::NoNode { name: name.clone() });
            };
            check(&node.labels, name, changes)?;
        }
        for (name, changes) in changes {
            let change = |node: &mut NodeRecord| changes.iter().for_each(|change| change.apply(&mut node.labels));
            self.registry.change(name, change).map_err(NotLabelled::NotWritten)?;
        }
        self.changed.notify_one();
        Ok(())
    }

    /// Whether there is such a node. What is written down of the server's own computer while that is not for jobs is none.
    fn knows(&self, name: &str) -> bool {
        self.registry.node(name).is_some_and(|node| !node.is_server || self.own_name() == Some(name))
    }

    /// Writes down what a node says is wrong with it: it counts until it is over, or somebody has seen to it.
    pub(super) fn take_symptoms(&self, name: &str, told: &[Symptom]) {
        let told = &told[..told.len().min(MOST_SYMPTOMS)];
        let now_ms = wall_clock_ms();
        let is_known = self.registry.node(name).is_none_or(|node| node.heard(told, now_ms) == node.symptoms);
        if is_known {
            return;
        }
        // A disk that is full is one of them: what cannot be written holds all the same, and is told again to the next server.
        self.registry.note(name, |node| node.symptoms = node.heard(told, now_ms));
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_said_once_and_only_what_is_there_is_taken_back() {
        let given = Labels::from([("rack".to_owned(), "r1".to_owned())]);
        let answer = |texts: &[&str]| {
            let changes: Vec<LabelChange> = texts.iter().map(|text| text.parse().expect("a label")).collect();
            check(&given, "m-a", &changes)
        };
        assert!(answer(&["rack=r2", "tier=gold"]).is_ok() && answer(&["rack-"]).is_ok());
        assert!(matches!(answer(&["rack=r1", "rack=r2"]), Err(NotLabelled::Twice { key, .. }) if key == "rack"));
        assert!(matches!(answer(&["rack=r1", "rack-"]), Err(NotLabelled::Twice { .. })));
        assert!(matches!(answer(&["nosuch-"]), Err(NotLabelled::NotThere { key, .. }) if key == "nosuch"));
    }
}
