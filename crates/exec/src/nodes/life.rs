//! Whether what was begun on a node still runs: as the node says, as its silence says, and not as another machine says that
//! came with the same key.

use super::hub::{Hub, Live};
use super::protocol::{OnNode, ToNode};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use windfall_core::LeaseId;
use windfall_core::worker::AgentView;

/// A node that was not heard ends its work at its dead-man time; it has this long, and a tenth of that time for clocks that
/// do not run alike, before others begin.
const MARGIN: Duration = Duration::from_secs(15);

/// What is known of a lease on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Alive,
    /// Nothing of it runs any more.
    Over,
    /// Its node cannot be reached, and may still run it.
    Unknown,
}

/// From when on nothing can run any more of what was begun over a connection that was last heard at a moment.
fn is_over_at(heard: Instant, dead_man: Duration) -> Instant {
    heard + dead_man + dead_man / 10 + MARGIN
}

impl Hub {
    fn dead_man_of(&self, told_ms: u64) -> Duration {
        Duration::from_millis(told_ms).max(self.dead_man())
    }

    /// A connection takes the place of the one that the node had before. Where that was of another machine, what was begun
    /// there is doubted for as long as it may run.
    pub(super) fn take_over(&self, name: &str, mut new: Live) {
        let Some(record) = self.registry.node(name) else { return };
        let mut live = self.live();
        let before = live.get(name);
        let known = before.and_then(|before| before.machine.as_ref()).or(record.machine.as_ref());
        let is_same = before.is_some_and(|before| before.instance == new.instance);
        let is_other = !is_same && known.zip(new.machine.as_ref()).is_some_and(|(known, new)| known != new);
        let heard = before.map_or(self.began, |before| before.heard);
        let of_other = is_other.then(|| is_over_at(heard, self.dead_man_of(record.dead_man_ms)));
        new.doubted_until = before.and_then(|before| before.doubted_until).max(of_other);
        live.insert(name.to_owned(), new);
    }

    /// Whether a lease that was up still is.
    pub(crate) fn life(&self, node: &str, lease: LeaseId) -> Life {
        let Some(record) = self.registry.node(node) else { return Life::Over };
        let live = self.live();
        let known = live.get(node);
        if let Some(known) = known.filter(|known| known.is_there() && known.beat > 0) {
            let begun = known.launched.get(&lease);
            return match known.leases.get(&lease) {
                Some(seen) if seen.is_alive => Life::Alive,
                None if begun.is_some_and(|not_in| known.beat <= *not_in) => Life::Alive,
                Some(_) | None if known.is_doubted(lease) => Life::Unknown,
                Some(_) | None => Life::Over,
            };
        }
        let heard = known.map_or(self.began, |known| known.heard);
        let until = is_over_at(heard, self.dead_man_of(record.dead_man_ms));
        let until = until.max(known.and_then(|known| known.doubted_until).unwrap_or(until));
        if Instant::now() > until { Life::Over } else { Life::Unknown }
    }

    /// Ends a lease on a node. Returns when nothing of it runs, which is so as well when its node has not been heard for
    /// longer than its dead-man time, or is none of ours any more.
    pub(crate) async fn end(&self, node: &str, lease: LeaseId, gently: bool) -> io::Result<()> {
        if self.life(node, lease) == Life::Over && !self.is_there(node) {
            return Ok(());
        }
        let asked = self.connection_of(node);
        let last: Option<AgentView> = self.call(node, &ToNode::End { lease, gently }).await?;
        let mut live = self.live();
        let Some(live) = live.get_mut(node) else { return Ok(()) };
        if live.is_doubted(lease) || asked != Some(live.connection) {
            let text = format!("another connection is node {node}'s now, and the one before may still run the lease");
            return Err(io::Error::new(io::ErrorKind::NotConnected, text));
        }
        live.leases.insert(lease, OnNode { lease, is_alive: false, last });
        Ok(())
    }

    /// Ends what a node holds and nobody here knows, then lets it forget that. What is `known` here to be gone it keeps.
    pub(crate) fn end_stray(self: &Arc<Self>, node: &str, lease: LeaseId, known: bool) {
        let (hub, node) = (Arc::clone(self), node.to_owned());
        tokio::spawn(async move {
            // What could not be ended is shown again, and ended then.
            if hub.end(&node, lease, false).await.is_ok() && !known {
                hub.forget(&node, lease);
            }
        });
    }
}

impl Live {
    /// The machine, once that nothing else can run under its name: a later server then doubts nothing that it says.
    pub(super) fn settled(&mut self) -> Option<String> {
        let is_doubted = self.doubted_until.is_some_and(|until| Instant::now() < until);
        if self.is_settled || is_doubted {
            return None;
        }
        self.is_settled = true;
        self.machine.clone()
    }

    /// Whether what this connection says of a lease is no proof that it is over: another machine may have it.
    fn is_doubted(&self, lease: LeaseId) -> bool {
        self.doubted_until.is_some_and(|until| Instant::now() < until) && !self.launched.contains_key(&lease)
    }
}

#[cfg(test)]
mod tests {
    use super::super::puppets::{LEASE, Puppets};
    use super::*;

    #[tokio::test]
    async fn only_the_machine_that_had_a_lease_says_that_it_is_over() {
        for (next, runs, life) in [
            ("first", Some(false), Life::Over),
            ("first", None, Life::Over),
            ("second", Some(false), Life::Unknown),
            ("second", None, Life::Unknown),
            ("second", Some(true), Life::Alive),
        ] {
            let root = tempfile::tempdir().expect("a folder");
            let server = Puppets::start(root.path()).await;
            let stream = server.comes("lab", "first", runs_it(Some(true))).await;
            assert_eq!(server.hub.life("lab", LEASE), Life::Alive);
            drop(stream);
            server.until_gone("lab").await;
            assert_eq!(server.hub.life("lab", LEASE), Life::Unknown, "it may come back");
            let _stream = server.comes("lab", next, runs_it(runs)).await;
            assert_eq!(server.hub.life("lab", LEASE), life, "{next} {runs:?}");
            // The next server knows no more: whoever came second must not be believed by it, either.
            let later = Puppets::start(root.path()).await;
            let _stream = later.comes("lab", next, runs_it(runs)).await;
            assert_eq!(later.hub.life("lab", LEASE), life, "{next} {runs:?}, said to another server");
        }
    }

    fn runs_it(runs: Option<bool>) -> Vec<OnNode> {
        runs.map(|is_alive| OnNode { lease: LEASE, is_alive, last: None }).into_iter().collect()
    }
}
