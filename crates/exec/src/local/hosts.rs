//! Where the agents of leases are: on this computer, or on a node that has joined.

use super::folder::{Folder, Marks};
use super::launcher::Launcher;
use crate::agents::{self, Door};
use crate::clock::WorldClock;
use crate::nodes::{Holder, Hub, LeaseOrder, Life};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use windfall_core::worker::AgentRequest;
use windfall_core::{Address, LeaseId, Span};

/// How often the machine of a lease is looked at, here and on a node.
const LOOK: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// How often an agent is asked for a sign of life.
const ASK_AGENT: Duration = Duration::from_secs(5);
/// An agent that has not answered for this long is a machine that is gone, whatever its process table says.
const SILENCE: Span = Span::minutes(5);
/// The least real time for it: a busy computer is no faster because a world is.
const LEAST_SILENCE: Duration = Duration::from_secs(45);

pub(super) struct Hosts {
    pub here: Launcher,
    pub nodes: Option<Arc<Hub>>,
}

/// When the agent of a lease was last heard here, and when it was last asked.
pub(super) struct Signs {
    heard: Instant,
    asked: Instant,
}

impl Signs {
    pub fn new() -> Signs {
        Signs { heard: Instant::now(), asked: Instant::now() }
    }
}

impl Hosts {
    /// The node of a lease, and who speaks to it; none for one that is here.
    fn node<'a>(&'a self, marks: &'a Marks) -> io::Result<Option<(&'a Arc<Hub>, &'a str)>> {
        let Some(name) = &marks.host else { return Ok(None) };
        let hub = self.nodes.as_ref().ok_or_else(|| io::Error::other("this server has no nodes"))?;
        Ok(Some((hub, name)))
    }

    /// The node that has a lease, as far as nodes tell.
    pub fn holder_of(&self, lease: LeaseId) -> Holder {
        self.nodes.as_ref().map_or(Holder::Nobody, |hub| hub.holder_of(lease))
    }

    pub fn address(&self, folder: &Folder, marks: &Marks) -> Address {
        match &marks.host {
            Some(name) => Door::Node(name.clone()).address(),
            None => Door::Folder(folder.of_agent()).address(),
        }
    }

    pub async fn launch(&self, folder: &Folder, marks: &Marks) -> io::Result<()> {
        match self.node(marks)? {
            Some((hub, name)) => {
                let (devices, owner) = (marks.devices.clone().unwrap_or_default(), marks.owner.clone());
                hub.launch(name, folder.lease, LeaseOrder { devices, owner, limits: marks.limits }).await
            }
            None => self.here.launch(folder, marks).await,
        }
    }

    pub async fn end(&self, folder: &Folder, marks: &Marks, gently: bool) -> io::Result<()> {
        match self.node(marks)? {
            Some((hub, name)) => hub.end(name, folder.lease, gently).await,
            None => self.here.end(folder, marks, gently).await,
        }
    }

    /// Tells the agent of a lease that it will be taken away.
    pub async fn notice(&self, folder: &Folder, marks: &Marks, in_ms: u64) -> io::Result<()> {
        let notice = AgentRequest::Notice { in_ms };
        let told = match self.node(marks)? {
            Some((hub, name)) => hub.ask(name, folder.lease, &notice).await,
            None => agents::ask(&folder.of_agent(), &notice).await,
        };
        told.map(|_| ())
    }

    /// The lease is gone, and nobody will ask for it again.
    pub fn forget(&self, folder: &Folder, marks: &Marks) {
        if let Ok(Some((hub, name))) = self.node(marks) {
            hub.forget(name, folder.lease);
        }
    }

    /// How long to wait between two looks at a machine.
    pub fn pause(&self, marks: &Marks) -> Duration {
        LOOK[usize::from(marks.host.is_some())]
    }

    /// Whether nothing of a lease that was up can run any more.
    pub async fn is_lost(&self, folder: &Folder, marks: &Marks, signs: &mut Signs, clock: &WorldClock) -> bool {
        if let Ok(Some((hub, name))) = self.node(marks) {
            return hub.life(name, folder.lease) == Life::Over;
        }
        if signs.asked.elapsed() > ASK_AGENT {
            signs.asked = Instant::now();
            if agents::ask(&folder.of_agent(), &AgentRequest::Watch { above: 0 }).await.is_ok() {
                signs.heard = Instant::now();
            }
        }
        let is_silent = signs.heard.elapsed() > clock.real_time(SILENCE).max(LEAST_SILENCE);
        is_silent || !self.here.is_alive(folder)
    }
}
