//! Accounts of this machine by name and by number: from its own lists, or from its directory service, which may take long or
//! hang for as long as it likes. So whoever asks waits a few seconds at most, no thread of a runtime waits at all, and what was
//! answered is known for a while.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::OnceCell;

/// How long the directory service may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it is known that there is an account, and that there is none, or no answer: accounts change.
const LIVES: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(5)];
/// Between two looks whether the answer is there.
const LOOK: Duration = Duration::from_millis(2);
/// Where the program that asks is looked for, whatever this process's own path is.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// An account of this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The groups that it is in besides.
    pub groups: Vec<u32>,
    pub home: String,
    pub shell: String,
}

impl Account {
    /// The account that says why nothing runs here. It owns nothing, and nothing of a job is run as it.
    pub(crate) fn nobody() -> Account {
        let (name, home, shell) = ("nobody".to_owned(), "/".to_owned(), "/bin/sh".to_owned());
        Account { name, uid: NOBODY, gid: NOBODY, groups: Vec::new(), home, shell }
    }

    /// Its numbers, as `windfall agent launch` reads them.
    pub fn numbers(&self) -> String {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        format!("{}:{}:{}", self.uid, self.gid, groups.join(","))
    }
}

/// What kernels and file servers take for nobody.
pub(crate) const NOBODY: u32 = 65_534;

/// The directory service did not answer in time: nobody knows whether there is such an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory service of this computer does not answer")]
pub struct DirectorySilent;

/// What is found, or that there is no such account.
type Found<T> = Result<Option<T>, DirectorySilent>;

/// Who is asked for accounts.
#[derive(Clone)]
pub struct Directory {
    asks: Asks,
    accounts: Known<String, Account>,
    names: Known<u32, String>,
}

impl Directory {
    /// This machine's.
    pub fn of_this_machine() -> &'static Directory {
        static HERE: LazyLock<Directory> = LazyLock::new(|| Directory::asked_by(Asks::default()));
        &HERE
    }

    /// One that is asked by another program than `getent`, and not waited for as long: a stand-in for tests.
    pub fn stand_in(program: &Path, patience: Duration) -> Directory {
        Directory::asked_by(Asks { program: program.to_owned(), patience })
    }

    fn asked_by(asks: Asks) -> Directory {
        Directory { asks, accounts: Known::default(), names: Known::default() }
    }

    /// The account of that name.
    pub async fn account(&self, name: &str) -> Found<Account> {
        if !is_plain(name) {
            return Ok(None);
        }
        let (asks, wanted) = (self.asks.clone(), name.to_owned());
        self.accounts.get(name.to_owned(), move || asks.account(&wanted)).await
    }

    /// The name of the account of that number.
    pub async fn name(&self, uid: u32) -> Found<String> {
        let asks = self.asks.clone();
        self.names.get(uid, move || asks.name(uid)).await
    }
}

/// Answers that are known for a while. Several who ask for the same at once wait for one answer.
#[derive(Clone)]
struct Known<K, V>(Arc<Mutex<BTreeMap<K, Answer<V>>>>);

type Answer<V> = Arc<OnceCell<(Instant, Found<V>)>>;

impl<K, V> Default for Known<K, V> {
    fn default() -> Known<K, V> {
        Known(Arc::default())
    }
}

impl<K: Ord, V: Clone + Send + 'static> Known<K, V> {
    async fn get(&self, key: K, ask: impl FnOnce() -> Found<V> + Send + 'static) -> Found<V> {
        let answer = {
            let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|_, answer| answer.get().is_none_or(is_good));
            Arc::clone(known.entry(key).or_default())
        };
        let asked = || async {
            // A thread that panicked has found nothing out.
            let found = tokio::task::spawn_blocking(ask).await.unwrap_or(Err(DirectorySilent));
            (Instant::now(), found)
        };
        answer.get_or_init(asked).await.1.clone()
    }
}

fn is_good<V>((answered, found): &(Instant, Found<V>)) -> bool {
    let [found_lives, other_lives] = LIVES;
    answered.elapsed() < if matches!(found, Ok(Some(_))) { found_lives } else { other_lives }
}

/// How accounts are asked for. Whoever calls these waits: never on a thread of a runtime.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    pub program: PathBuf,
    pub patience: Duration,
}

impl Default for Asks {
    fn default() -> Asks {
        Asks { program: PathBuf::from("getent"), patience: PATIENCE }
    }
}

impl Asks {
    /// The account of that name, from this machine's own list or from its directory service.
    pub fn account(&self, name: &str) -> Found<Account> {
        if !is_plain(name) {
            return Ok(None);
        }
        let listed = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        if let Some(account) = listed("/etc/passwd").lines().find_map(|line| account_in(line, name)) {
            return Ok(Some(Account { groups: groups_in(&listed("/etc/group"), name), ..account }));
        }
        let said = self.said(&["passwd", name])?;
        let Some(account) = said.lines().find_map(|line| account_in(line, name)) else { return Ok(None) };
        let groups = self.said(&["initgroups", name])?;
        let groups = groups.split_whitespace().skip(1).filter_map(|id| id.parse().ok()).collect();
        Ok(Some(Account { groups, ..account }))
    }

    /// The name of the account of that number.
    pub fn name(&self, uid: u32) -> Found<String> {
        let listed = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        if let Some(name) = listed.lines().find_map(|line| name_in(line, uid)) {
            return Ok(Some(name));
        }
        Ok(self.said(&["passwd", &uid.to_string()])?.lines().find_map(|line| name_in(line, uid)))
    }

    /// What the directory service says. Where nobody can be asked, nothing is said.
    fn said(&self, words: &[&str]) -> Result<String, DirectorySilent> {
        let mut command = Command::new(&self.program);
        command.args(words).env_clear().env("PATH", PATH);
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let Ok(mut child) = started else { return Ok(String::new()) };
        let asked = Instant::now();
        while asked.elapsed() < self.patience {
            match child.try_wait() {
                Ok(Some(_)) => {
                    let mut said = Vec::new();
                    // It has ended, and what it left in the pipe is all there is.
                    let _ = child.stdout.take().map(|mut out| out.read_to_end(&mut said));
                    return Ok(String::from_utf8_lossy(&said).into_owned());
                }
                Ok(None) => std::thread::sleep(LOOK),
                Err(_) => break,
            }
        }
        give_up(child);
        Err(DirectorySilent)
    }
}

/// Kills a process that nobody waits for any more. One that hangs in the kernel ends when it does, so a thread of its own takes
/// its end.
fn give_up(mut child: Child) {
    let _ = child.kill();
    std::thread::spawn(move || child.wait());
}

/// Whether a name can be one of an account: it is handed to programs, and comes from another machine.
pub fn is_plain(name: &str) -> bool {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.-@$".contains(letter);
    (1..=64).contains(&name.len()) && !name.starts_with('-') && name.chars().all(allowed)
}

/// The name of an account, or its number where it has none, or where nobody says so in time. Whoever calls this waits.
pub fn name_of(uid: u32) -> String {
    Asks::default().name(uid).ok().flatten().unwrap_or_else(|| unnamed(uid))
}

/// What an account without a name is called.
pub fn unnamed(uid: u32) -> String {
    format!("uid-{uid}")
}

/// The account of that name, from this machine's own list or from its directory service. Whoever calls this waits.
pub fn look_up(name: &str) -> Option<Account> {
    Asks::default().account(name).ok().flatten()
}

/// The name in a line of `/etc/passwd`, if it is of that number.
fn name_in(line: &str, uid: u32) -> Option<String> {
    let mut fields = line.split(':');
    let name = fields.next()?;
    (fields.nth(1)?.parse() == Ok(uid) && !name.is_empty()).then(|| name.to_owned())
}

/// A line of `/etc/passwd`, if it is of that name.
fn account_in(line: &str, name: &str) -> Option<Account> {
    let fields: Vec<&str> = line.split(':').collect();
    let &[found, _, uid, gid, _, home, shell] = fields.as_slice() else { return None };
    let or = |text: &str, usual: &str| if text.is_empty() { usual.to_owned() } else { text.to_owned() };
    (found == name).then_some(())?;
    Some(Account {
        name: name.to_owned(),
        uid: uid.parse().ok().filter(|uid| *uid != u32::MAX)?,
        gid: gid.parse().ok().filter(|gid| *gid != u32::MAX)?,
        groups: Vec::new(),
        home: or(home, "/"),
        shell: or(shell, "/bin/sh"),
    })
}

/// The groups that name somebody, by `/etc/group`.
fn groups_in(list: &str, name: &str) -> Vec<u32> {
    let group = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let &[_, _, gid, members] = fields.as_slice() else { return None };
        members.split(',').any(|member| member == name).then(|| gid.parse().ok()).flatten()
    };
    list.lines().filter_map(group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A directory service that answers with this shell line, and writes down that it was asked.
    fn directory(dir: &Path, line: &str, patience: Duration) -> Directory {
        let program = dir.join("getent");
        let text = format!("#!/bin/sh\necho $$ >> {}\n{line}\n", dir.join("asked").display());
        std::fs::write(&program, text).expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
        Directory::stand_in(&program, patience)
    }

    fn asked(dir: &Path) -> Vec<i32> {
        let text = std::fs::read_to_string(dir.join("asked")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_directory_that_hangs_holds_no_thread_of_the_runtime_up_and_is_given_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let hangs = directory(dir.path(), "exec sleep 1000", Duration::from_millis(700));
        let began = Instant::now();
        let ticks = async {
            let mut ticks = 0;
            while began.elapsed() < Duration::from_millis(500) {
                tokio::time::sleep(Duration::from_millis(10)).await;
                ticks += 1;
            }
            ticks
        };
        let (one, two, name, ticks) = tokio::join!(
            hangs.account("nobody-of-that-name"),
            hangs.account("nobody-of-that-name"),
            hangs.name(4_242_424),
            ticks
        );
        assert_eq!((one, two, name), (Err(DirectorySilent), Err(DirectorySilent), Err(DirectorySilent)));
        assert!(ticks > 10, "the only thread went on: {ticks}");
        assert!(began.elapsed() < Duration::from_secs(30));
        let pids = asked(dir.path());
        assert_eq!(pids.len(), 2, "those who ask for the same at once wait for one answer");
        assert_eq!(hangs.account("nobody-of-that-name").await, Err(DirectorySilent));
        assert_eq!(asked(dir.path()).len(), 2, "it is not asked again at once");
        let is_there = |pid: &i32| Path::new(&format!("/proc/{pid}")).exists();
        for _ in 0..100 {
            if !pids.iter().any(is_there) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("what hung is still there: {pids:?}");
    }

    #[tokio::test]
    async fn what_a_directory_says_is_known_for_a_while() {
        let dir = tempfile::tempdir().expect("a folder");
        let line = "case \"$1 $2\" in 'passwd zoe-of-lab'|'passwd 4242424') echo 'zoe-of-lab:x:4242424:7::/home/zoe:';; \
                    'initgroups zoe-of-lab') echo 'zoe-of-lab 44 109';; *) exit 2;; esac";
        let directory = directory(dir.path(), line, Duration::from_secs(30));
        for _ in 0..3 {
            let zoe = directory.account("zoe-of-lab").await.expect("answered").expect("found");
            assert_eq!((zoe.uid, zoe.gid, zoe.groups), (4_242_424, 7, vec![44, 109]));
            assert_eq!(directory.name(4_242_424).await, Ok(Some("zoe-of-lab".to_owned())));
            assert_eq!(directory.account("nobody-of-that-name").await, Ok(None));
            assert_eq!(directory.account("a b").await, Ok(None));
        }
        assert_eq!(asked(dir.path()).len(), 4, "twice for the account, once for its name, once for nobody's");
        let old = Instant::now().checked_sub(Duration::from_secs(10)).expect("the machine is older");
        assert!(is_good(&(old, Ok(Some(1)))) && !is_good::<u32>(&(old, Ok(None))), "who is new is found soon");
        assert_eq!(directory.name(0).await, Ok(Some("root".to_owned())), "nobody is asked for what is listed here");
    }

    #[test]
    fn an_account_is_read_from_its_line_and_its_groups_from_theirs() {
        let line = "ada:x:1001:1002:Ada,,,:/home/ada:/bin/bash";
        let account = account_in(line, "ada").expect("hers");
        assert_eq!((account.uid, account.gid, account.home.as_str()), (1_001, 1_002, "/home/ada"));
        assert_eq!(account_in(line, "ad"), None);
        assert_eq!(account_in("ada:x:1001", "ada"), None);
        assert_eq!(account_in("ada:x:4294967295:1:::", "ada"), None, "the kernel takes that for nobody in particular");
        let groups = "video:x:44:ada,bob\nsudo:x:27:bob\nrender:x:109:ada\nadam:x:9:adam\n";
        assert_eq!(groups_in(groups, "ada"), [44, 109]);
    }

    #[test]
    fn names_that_are_no_names_are_looked_up_nowhere() {
        for name in ["", "-h", "a b", "../x", "a:b", "a\nb", &"x".repeat(65)] {
            assert!(!is_plain(name) && look_up(name).is_none(), "{name}");
        }
        assert!(["ada", "ada.l", "ada@lab.org", "_svc", "host$"].iter().all(|name| is_plain(name)));
    }
}
