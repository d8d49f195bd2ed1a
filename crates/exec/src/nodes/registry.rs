//! Which nodes have joined, and which tokens can still be used: one file each, so that it outlives the server.

use super::joined::this_machine;
use super::protocol::NotWelcome;
use super::record::NodeRecord;
use crate::machines::Inventory;
use crate::net::{Fingerprint, JoinToken, write_private};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use windfall_core::NanoUsd;

/// How long a token can be used.
pub const TOKEN_LIVES: Duration = Duration::from_secs(15 * 60);
/// How often those are removed that cannot.
const CLEAR_EVERY: Duration = Duration::from_secs(60);

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

/// What the server's own computer may be called: as it calls itself, where nodes can be called so, or something like it.
fn names_of_server(host: &str) -> impl Iterator<Item = String> {
    let like = [host.to_owned(), format!("{host}-server")].into_iter().filter(|name| is_node_name(name));
    like.chain(["server".to_owned()]).chain((2..).map(|number: u32| format!("server-{number}")))
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

    /// The computer that the server runs on, with what it has now. It keeps the name that it had at first.
    pub fn take_server_in(&self, key: Fingerprint, inventory: &Inventory, rate: NanoUsd) -> io::Result<NodeRecord> {
        let mut known = self.known();
        let before = server_of(&known);
        let first = || {
            let name = names_of_server(&inventory.name).find(|name| !known.contains_key(name)).unwrap_or_default();
            NodeRecord { is_server: true, ..NodeRecord::new(&name, key, rate, inventory) }
        };
        let mut node = before.clone().unwrap_or_else(first);
        let inventory = Inventory { name: node.name.clone(), ..inventory.clone() };
        (node.rate, node.key) = (rate, key);
        node.is_on(this_machine());
        node.show(&inventory, now_ms());
        if before.as_ref() != Some(&node) {
            // A full disk must not keep a server from starting that knows its computer already.
            self.write(&node).or_else(|error| if before.is_some() { Ok(()) } else { Err(error) })?;
        }
        known.insert(node.name.clone(), node.clone());
        Ok(node)
    }

    /// The computer that the server runs on, if it has ever been for jobs.
    pub fn server(&self) -> Option<NodeRecord> {
        server_of(&self.known())
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

    /// Changes what is known of a node, also where that cannot be written: for what is told again.
    pub fn note(&self, name: &str, change: impl FnOnce(&mut NodeRecord)) {
        let mut known = self.known();
        let Some(node) = known.get_mut(name) else { return };
        change(node);
        let _ = self.write(node);
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

fn server_of(known: &BTreeMap<String, NodeRecord>) -> Option<NodeRecord> {
    known.values().find(|node| node.is_server).cloned()
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
    fn names_are_those_of_hosts() {
        assert!(["a", "lab-1.example.org", "GPU_7"].into_iter().all(is_node_name));
        let names = |host: &str| names_of_server(host).take(2).collect::<Vec<_>>();
        assert_eq!(names("lab"), ["lab", "lab-server"]);
        assert_eq!((names("(none)"), names(&"a".repeat(60))), (names(""), vec!["a".repeat(60), "server".to_owned()]));
        assert_eq!(names(""), ["server", "server-2"]);
        assert!(!["", "-a", "a-", "a/b", "..", "a b", "é", &"a".repeat(64)].into_iter().any(is_node_name));
    }
}
