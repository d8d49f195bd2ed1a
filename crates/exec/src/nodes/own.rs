//! The computer that the server runs on, where it is for jobs too: a node like those that have joined, but that nothing
//! between the two can fail.

use super::health::{Health, Own};
use super::hub::{BEAT, Hub, NodeStanding};
use super::joined::wall_clock_ms;
use super::record::NodeRecord;
use crate::machines::Inventory;
use crate::machines::nvml::{Reading, Readings};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use windfall_core::NanoUsd;

impl Hub {
    /// From now on the computer that the server runs on is one of its nodes, with what it has and what an hour of it costs.
    pub(crate) fn take_server_in(&self, inventory: &Inventory, rate: NanoUsd) -> io::Result<()> {
        let NodeRecord { name, .. } = self.registry.take_server_in(self.fingerprint(), inventory, rate)?;
        self.own.get_or_init(|| Own { name, health: Health::default(), leaves: false, has_left: false.into() });
        Ok(())
    }

    /// The computer that the server runs on is for jobs no more, and somebody has something of it still: until that is over it
    /// is a node that takes nothing new. Gives what is known of it where it begins to leave.
    pub(crate) fn let_server_leave(&self) -> Option<NodeRecord> {
        let record = self.registry.server()?;
        let (name, health) = (record.name.clone(), Health::default());
        self.own.set(Own { name, health, leaves: true, has_left: false.into() }).is_ok().then_some(record)
    }

    /// Whether this is the server's own computer, which is for jobs no more.
    pub fn is_leaving(&self, name: &str) -> bool {
        self.own_entry().is_some_and(|own| own.leaves && own.name == name)
    }

    /// Nobody has anything of the server's own computer: where that is for jobs no more, it is a node no more.
    pub(crate) fn server_is_free(&self) {
        if let Some(own) = self.own.get().filter(|own| own.leaves)
            && !own.has_left.swap(true, Relaxed)
        {
            self.changed.notify_one();
        }
    }

    fn own_entry(&self) -> Option<&Own> {
        self.own.get().filter(|own| !own.has_left.load(Relaxed))
    }

    /// What the server's own computer is called, if it is for jobs.
    pub fn own_name(&self) -> Option<&str> {
        self.own_entry().map(|own| own.name.as_str())
    }

    /// The server's own computer, if it is for jobs.
    pub(crate) fn own(&self) -> Option<NodeStanding> {
        let own = self.own_entry()?;
        let health = own.health.report(None);
        let mut record = self.registry.node(&own.name)?;
        if own.leaves {
            record.drained.get_or_insert_with(|| "this server uses nodes alone (--local=false)".to_owned());
        }
        Some(NodeStanding { record, heard: None, is_connected: true, build: None, health })
    }

    /// Every machine that jobs may get, with the server's own.
    pub fn all_nodes(&self) -> Vec<NodeStanding> {
        self.own().into_iter().chain(self.nodes()).collect()
    }

    /// Watches over the server's own computer for ever, as an agent does over a node.
    pub(crate) async fn watch_own(&self, mut readings: Option<Readings>) {
        let Some(Own { name, health, .. }) = self.own.get() else { return };
        let first = match &mut readings {
            Some(readings) => readings.first().await,
            None => None,
        };
        // A driver that was not there when the server began, or an accelerator that is back.
        let found = |reading: &Reading| {
            let found = Inventory { name: name.clone(), ..Inventory::with(&[], Some(reading)) };
            if self.registry.node(name).is_some_and(|node| node.inventory.lacks(&found)) {
                // What cannot be written is found again with the next reading.
                let _ = self.registry.change(name, |node| node.show(&found, wall_clock_ms()));
                self.changed.notify_one();
            }
        };
        let beat = async {
            loop {
                tokio::time::sleep(BEAT).await;
                health.report(None).iter().for_each(|report| self.take_symptoms(name, &report.symptoms));
            }
        };
        tokio::join!(health.watch(&self.root, first, readings, found), beat);
    }
}
