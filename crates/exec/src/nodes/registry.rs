//! Which nodes have joined, and which tokens can still be used: one file each, so that it outlives the server.

use super::labels::{LEVELS, Labels};
use super::protocol::NotWelcome;
use crate::accounts::ProgramsRunAs;
use crate::machines::Accelerator;
use crate::machines::Inventory;
use crate::net::{Fingerprint, JoinToken, write_private};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windfall_core::health::merged;
use windfall_core::{NanoUsd, Symptom, SymptomKind};

/// How long a token can be used.
pub const TOKEN_LIVES: Duration = Duration::from_secs(15 * 60);
/// How often those are removed that cannot.
const CLEAR_EVERY: Duration = Duration::from_secs(60);

/// A machine that has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    pub name: String,
    pub key: Fingerprint,
    /// What an hour of it costs.
    pub rate: NanoUsd,
    /// Why it takes nothing new, if it does not.
    pub drained: Option<String>,
    /// What it last said that it has.
    pub inventory: Inventory,
    /// What it was last told of how long it may go on without the server.
    pub dead_man_ms: u64,
    /// What its operator says of it.
    #[serde(default)]
    pub labels: Labels,
    /// What its own configuration says of it; its operator's word counts more.
    #[serde(default)]
    pub own_labels: Labels,
    /// What is known to be wrong with it.
    #[serde(default)]
    pub symptoms: Vec<Symptom>,
    /// Accelerators that it had and did not show when it last came.
    #[serde(default)]
    pub missing: Vec<Accelerator>,
    /// As whom programs run on it, where it says so.
    #[serde(default)]
    pub programs: Option<ProgramsRunAs>,
    /// What tells its machine from a copy of it, where it says so.
    #[serde(default)]
    pub machine: Option<String>,
    /// An engine has begun it for one lease: it is no machine that anybody else may use.
    #[serde(default)]
    pub pilot: bool,
    /// It is the computer that the server runs on.
    #[serde(default)]
    pub is_server: bool,
}

impl NodeRecord {
    fn new(name: &str, key: Fingerprint, rate: NanoUsd, inventory: &Inventory) -> NodeRecord {
        NodeRecord {
            name: name.to_owned(),
            key,
            rate,
            drained: None,
            inventory: inventory.clone(),
            dead_man_ms: 0,
            labels: Labels::new(),
            own_labels: Labels::new(),
            symptoms: Vec::new(),
            missing: Vec::new(),
            programs: None,
            machine: None,
            pilot: false,
            is_server: false,
        }
    }

    /// Every label that holds.
    pub fn all_labels(&self) -> Labels {
        let own = self.own_labels.iter().chain(&self.labels);
        own.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Its place in the topology by level, as far as it is known: by label, and of NVLink also by what its accelerators
    /// show, where all of them are in one fabric with those of other machines.
    pub fn domains(&self) -> BTreeMap<String, String> {
        let labels = self.all_labels();
        let of_label = LEVELS.into_iter().filter_map(|level| Some((level.to_owned(), labels.get(level)?.clone())));
        let mut domains: BTreeMap<String, String> = of_label.collect();
        let mut fabrics = self.inventory.accelerators.iter().map(|one| one.nvlink.as_ref());
        if let Some(Some(first)) = fabrics.next()
            && first.contains('.')
            && fabrics.all(|other| other == Some(first))
        {
            domains.entry("nvlink".to_owned()).or_insert_with(|| first.clone());
        }
        domains
    }

    /// Its accelerators that are there.
    pub fn present(&self) -> Inventory {
        let is_gone = |device: &str| {
            let of_device = |one: &&Symptom| one.device.as_deref() == Some(device);
            self.symptoms.iter().filter(of_device).any(|one| one.kind == SymptomKind::Gone)
        };
        let mut inventory = self.inventory.clone();
        inventory.accelerators.retain(|one| !is_gone(&one.device));
        inventory
    }

    /// It has come with these: what it had and does not show is missed.
    pub(super) fn show(&mut self, inventory: &Inventory, now_ms: u64) {
        let is_shown = |one: &Accelerator| inventory.accelerators.iter().any(|shown| shown.device == one.device);
        let known = self.inventory.accelerators.drain(..).chain(self.missing.drain(..));
        let is_accepted = |one: &Accelerator| {
            let of_device = |symptom: &&Symptom| symptom.device.as_ref() == Some(&one.device);
            self.symptoms.iter().filter(of_device).any(|symptom| symptom.accepted && symptom.kind == SymptomKind::Gone)
        };
        let is_missed = |one: &Accelerator| one.has_own_name() && !is_shown(one) && !is_accepted(one);
        let missing: Vec<Accelerator> = known.filter(is_missed).collect();
        let gone = missing.iter().map(|one| Symptom {
            kind: SymptomKind::Gone,
            device: Some(one.device.clone()),
            seen_unix_ms: now_ms,
            accepted: false,
        });
        let told: Vec<Symptom> = self.symptoms.iter().cloned().chain(gone).collect();
        self.symptoms = merged(&self.symptoms, &told);
        (self.inventory, self.missing) = (inventory.clone(), missing);
    }

    /// It takes work again, whatever is known to be wrong with it now.
    pub(super) fn accept(&mut self) {
        self.drained = None;
        self.inventory = self.present();
        self.missing.clear();
        self.symptoms.iter_mut().for_each(|one| one.accepted = true);
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct TokenRecord {
    node: String,
    rate: NanoUsd,
    expires_ms: u64,
    #[serde(default)]
    pilot: bool,
}

pub(super) struct Registry {
    root: PathBuf,
    /// When tokens that nobody can use any more were last removed.
    cleared: Mutex<Option<Instant>>,
    known: Mutex<BTreeMap<String, NodeRecord>>,
}

/// What a node's name is made of, for people.
pub const NODE_NAME: &str =
    "letters, digits, dots, dashes and underscores, at most 63, with a letter or a digit at both ends";

/// Whether a node can be called that, as in the names of hosts.
pub fn is_node_name(name: &str) -> bool {
    let ends = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_alphanumeric());
    let inside = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    (1..=63).contains(&name.len()) && name.chars().all(inside) && ends(name.chars().next()) && ends(name.chars().last())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Registry {
    pub fn open(root: &Path) -> io::Result<Registry> {
        for folder in ["nodes", "tokens"] {
            std::fs::create_dir_all(root.join(folder))?;
        }
        // A node whose record cannot be read is not one that was removed: its work goes on.
        let nodes = read_every::<NodeRecord>(&root.join("nodes"))?;
        let known = nodes.into_iter().map(|(_, node)| (node.name.clone(), node)).collect();
        Ok(Registry { root: root.to_owned(), cleared: Mutex::default(), known: Mutex::new(known) })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, NodeRecord>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, folder: &str, name: &str) -> PathBuf {
        self.root.join(folder).join(format!("{name}.json"))
    }

    /// Those that have joined.
    pub fn nodes(&self) -> Vec<NodeRecord> {
        self.known().values().filter(|node| !node.is_server).cloned().collect()
    }

    /// The computer that the server runs on, with what it has now. It keeps its name; a first one is as it calls itself, but
    /// for a name that a node has.
    pub fn take_server_in(&self, key: Fingerprint, inventory: &Inventory, rate: NanoUsd) -> io::Result<NodeRecord> {
        let mut known = self.known();
        let before = known.values().find(|node| node.is_server).cloned();
        let first = || {
            let mut names = std::iter::successors(Some(inventory.name.clone()), |name| Some(format!("{name}-server")));
            let name = names.find(|name| !known.contains_key(name)).unwrap_or_default();
            NodeRecord { is_server: true, ..NodeRecord::new(&name, key, rate, inventory) }
        };
        let mut node = before.unwrap_or_else(first);
        let inventory = Inventory { name: node.name.clone(), ..inventory.clone() };
        (node.rate, node.key) = (rate, key);
        node.show(&inventory, now_ms());
        self.write(&node)?;
        known.insert(node.name.clone(), node.clone());
        Ok(node)
    }

    pub fn node(&self, name: &str) -> Option<NodeRecord> {
        self.known().get(name).cloned()
    }

    /// A token by which one machine can join under this name, within [`TOKEN_LIVES`].
    pub fn new_token(&self, server: Fingerprint, node: &str, rate: NanoUsd) -> io::Result<JoinToken> {
        self.clear_tokens()?;
        let token = JoinToken::new(server);
        let expires_ms = now_ms() + TOKEN_LIVES.as_millis() as u64;
        let record = TokenRecord { node: node.to_owned(), rate, expires_ms, pilot: false };
        write_private(&self.file("tokens", &token.digest()), &serde_json::to_vec(&record)?)?;
        Ok(token)
    }

    /// A token for a pilot, which may have to wait for long in a queue: it can be used until its node is removed.
    pub fn pilot_token(&self, server: Fingerprint, node: &str) -> io::Result<JoinToken> {
        self.remove_tokens(node)?;
        let token = JoinToken::new(server);
        let record = TokenRecord { node: node.to_owned(), rate: NanoUsd(0), expires_ms: u64::MAX, pilot: true };
        write_private(&self.file("tokens", &token.digest()), &serde_json::to_vec(&record)?)?;
        Ok(token)
    }

    fn remove_tokens(&self, node: &str) -> io::Result<()> {
        let tokens = read_all::<TokenRecord>(&self.root.join("tokens"))?;
        for (digest, _) in tokens.iter().filter(|(_, token)| token.pilot && token.node == node) {
            std::fs::remove_file(self.file("tokens", digest))?;
        }
        Ok(())
    }

    /// Removes tokens that nobody can use any more, once in a while.
    fn clear_tokens(&self) -> io::Result<()> {
        let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
        if cleared.is_some_and(|cleared| cleared.elapsed() < CLEAR_EVERY) {
            return Ok(());
        }
        *cleared = Some(Instant::now());
        for (digest, _) in read_all::<TokenRecord>(&self.root.join("tokens"))?.iter().filter(|(_, old)| old.is_over()) {
            let _ = std::fs::remove_file(self.file("tokens", digest));
        }
        Ok(())
    }

    /// Takes a machine in by its token, which nobody can use again.
    pub fn join(
        &self,
        token: &JoinToken,
        name: Option<&str>,
        key: Fingerprint,
        inventory: &Inventory,
    ) -> Result<NodeRecord, NotWelcome> {
        let mut known = self.known();
        let file = self.file("tokens", &token.digest());
        let trouble = |error: io::Error| NotWelcome::Trouble { why: error.to_string() };
        // Its first answer may have been lost; and who has joined needs no token.
        if let Some(again) = known.values().find(|node| node.key == key) {
            let is_meant = name.is_none_or(|name| name == again.name);
            return if is_meant { Ok(again.clone()) } else { Err(NotWelcome::NameTaken { name: again.name.clone() }) };
        }
        let Some(asked) = read::<TokenRecord>(&file).filter(|asked| !asked.is_over()) else {
            return Err(NotWelcome::Token);
        };
        if name.is_some_and(|name| name != asked.node) {
            return Err(NotWelcome::OtherName { name: asked.node });
        }
        if known.contains_key(&asked.node) {
            return Err(NotWelcome::NameTaken { name: asked.node });
        }
        let (name, rate) = (asked.node, asked.rate);
        let node = NodeRecord { pilot: asked.pilot, ..NodeRecord::new(&name, key, rate, inventory) };
        // A token that cannot be taken back could be used twice.
        std::fs::remove_file(&file).map_err(trouble)?;
        self.write(&node).map_err(trouble)?;
        known.insert(name, node.clone());
        Ok(node)
    }

    /// The node that has this key.
    pub fn by_key(&self, key: Fingerprint) -> Option<NodeRecord> {
        self.known().values().find(|node| node.key == key).cloned()
    }

    /// Changes what is known of a node; false where there is none of that name.
    pub fn change(&self, name: &str, change: impl FnOnce(&mut NodeRecord)) -> io::Result<bool> {
        let mut known = self.known();
        let Some(node) = known.get_mut(name) else { return Ok(false) };
        let mut changed = node.clone();
        change(&mut changed);
        if changed != *node {
            self.write(&changed)?;
            *node = changed;
        }
        Ok(true)
    }

    /// Forgets a node: its key opens nothing any more.
    pub fn remove(&self, name: &str) -> io::Result<bool> {
        let mut known = self.known();
        self.remove_tokens(name)?;
        if !known.contains_key(name) {
            return Ok(false);
        }
        std::fs::remove_file(self.file("nodes", name))?;
        known.remove(name);
        Ok(true)
    }

    fn write(&self, node: &NodeRecord) -> io::Result<()> {
        write_private(&self.file("nodes", &node.name), &serde_json::to_vec_pretty(node)?)
    }
}

impl TokenRecord {
    fn is_over(&self) -> bool {
        self.expires_ms <= now_ms()
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Option<T> {
    windfall_core::codec::from_json(&std::fs::read(file).ok()?).ok()
}

/// Every file of a folder; one that cannot be read is an error.
fn read_every<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<(String, T)>> {
    let all = read_all(folder)?;
    let unread = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path()).find(|path| {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        is_json && !all.iter().any(|(name, _)| path.file_stem().is_some_and(|stem| stem == name.as_str()))
    });
    match unread {
        None => Ok(all),
        Some(path) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it cannot be read: {}", path.display()))),
    }
}

/// Every file of a folder that can be read, by its name.
fn read_all<T: DeserializeOwned>(folder: &Path) -> io::Result<Vec<(String, T)>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_stem().and_then(|name| name.to_str()).map(str::to_owned);
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        if let Some((name, read)) = name.filter(|_| is_json).zip(read(&path)) {
            all.push((name, read));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Fingerprint = Fingerprint([1; 32]);

    fn join(registry: &Registry, token: &JoinToken, name: Option<&str>, key: u8) -> Result<String, NotWelcome> {
        registry.join(token, name, Fingerprint([key; 32]), &Inventory::default()).map(|node| node.name)
    }

    #[test]
    fn a_token_is_good_once_for_one_name_and_for_a_while() {
        let dir = tempfile::tempdir().expect("a folder");
        let registry = Registry::open(dir.path()).expect("opened");
        let token = |name: &str| registry.new_token(SERVER, name, NanoUsd(0)).expect("made");
        let first = token("lab-1");
        let other = NotWelcome::OtherName { name: "lab-1".to_owned() };
        assert_eq!(join(&registry, &first, Some("lab-2"), 7), Err(other), "and it is still good");
        assert_eq!(join(&registry, &first, None, 7), Ok("lab-1".to_owned()));
        assert_eq!(join(&registry, &first, None, 8), Err(NotWelcome::Token), "used");
        assert_eq!(join(&registry, &first, None, 7), Ok("lab-1".to_owned()), "who used it asks again");
        let again = token("lab-1");
        let taken = NotWelcome::NameTaken { name: "lab-1".to_owned() };
        assert_eq!(join(&registry, &again, Some("lab-1"), 8), Err(taken));
        assert!(registry.remove("lab-1").expect("removed") && registry.by_key(Fingerprint([7; 32])).is_none());
        assert_eq!(join(&registry, &again, Some("lab-1"), 8), Ok("lab-1".to_owned()), "after the other was removed");
        assert_eq!(join(&registry, &JoinToken::new(SERVER), None, 9), Err(NotWelcome::Token), "never made");
        // One that was made too long ago.
        let late = token("lab-3");
        let file = registry.file("tokens", &late.digest());
        let record = TokenRecord { node: "lab-3".to_owned(), rate: NanoUsd(0), expires_ms: now_ms() - 1, pilot: false };
        std::fs::write(&file, serde_json::to_vec(&record).expect("JSON")).expect("written");
        assert_eq!(join(&registry, &late, None, 9), Err(NotWelcome::Token), "expired");
        *registry.cleared.lock().expect("free") = None;
        token("lab-4");
        assert!(!file.exists(), "nobody can use it any more");
        // The next server knows the same.
        let next = Registry::open(dir.path()).expect("opened");
        assert_eq!(next.nodes(), registry.nodes());
        assert_eq!(next.by_key(Fingerprint([8; 32])).map(|node| node.name), Some("lab-1".to_owned()));
    }

    #[test]
    fn an_accelerator_that_is_not_shown_any_more_is_missed_until_somebody_knows_of_it() {
        let shown = |devices: &[&str]| {
            let accelerator = |device: &&str| Accelerator {
                model: "H200".to_owned(),
                device: (*device).to_owned(),
                ..Accelerator::default()
            };
            Inventory { accelerators: devices.iter().map(accelerator).collect(), ..Inventory::default() }
        };
        let [both, one] = [shown(&["GPU-a", "GPU-b"]), shown(&["GPU-a"])];
        let mut node = NodeRecord::new("lab-1", SERVER, NanoUsd(0), &both);
        node.show(&both, 1);
        assert!(node.symptoms.is_empty());
        for at in [2, 3] {
            node.show(&one, at);
            assert_eq!((node.symptoms.len(), node.missing.len(), node.symptoms[0].seen_unix_ms), (1, 1, 2));
        }
        node.accept();
        // It is shown without, beats, and comes again: nothing is missed.
        for at in [4, 5] {
            node.show(&one, at);
            node.symptoms = merged(&node.symptoms, &[]);
            assert!(node.symptoms.is_empty() && node.missing.is_empty(), "{node:?}");
        }
        node.show(&both, 6);
        node.show(&one, 7);
        assert_eq!(windfall_core::health::draining(&node.symptoms).len(), 1, "it was there again");
        // Numbers are no names: whoever states fewer has fewer.
        let mut stated = NodeRecord::new("lab-2", SERVER, NanoUsd(0), &shown(&["0", "1"]));
        stated.show(&shown(&["0"]), 1);
        assert!(stated.symptoms.is_empty());
    }

    #[test]
    fn a_place_is_said_by_labels_or_shown_by_a_fabric() {
        let linked = |nvlink: &[&str]| {
            let accelerator =
                |fabric: &&str| Accelerator { nvlink: Some((*fabric).to_owned()), ..Accelerator::default() };
            Inventory { accelerators: nvlink.iter().map(accelerator).collect(), ..Inventory::default() }
        };
        let of = |inventory: &Inventory| NodeRecord::new("lab-1", SERVER, NanoUsd(0), inventory);
        assert_eq!(of(&linked(&["0", "0"])).domains(), BTreeMap::new(), "inside the machine only");
        assert_eq!(of(&linked(&["ab.1", "ab.2"])).domains(), BTreeMap::new());
        let mut node = of(&linked(&["ab.1", "ab.1"]));
        assert_eq!(node.domains(), BTreeMap::from([("nvlink".to_owned(), "ab.1".to_owned())]));
        node.own_labels.insert("rack".to_owned(), "r1".to_owned());
        node.labels.insert("rack".to_owned(), "r2".to_owned());
        node.labels.insert("nvlink".to_owned(), "mine".to_owned());
        let expected = [("nvlink", "mine"), ("rack", "r2")].map(|(level, name)| (level.to_owned(), name.to_owned()));
        assert_eq!(node.domains(), BTreeMap::from(expected), "the operator's word counts more");
    }

    #[test]
    fn names_are_those_of_hosts() {
        assert!(["a", "lab-1.example.org", "GPU_7"].into_iter().all(is_node_name));
        assert!(!["", "-a", "a-", "a/b", "..", "a b", "é", &"a".repeat(64)].into_iter().any(is_node_name));
    }
}
