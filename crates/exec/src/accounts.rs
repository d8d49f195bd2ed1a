//! As whom a program runs on this machine: its submitter by name, where this machine knows one of that name, else an account
//! that its operator chose. Only root can run programs as others; whoever else serves runs all of them as itself.

use crate::directory::{Account, Asks, DirectorySilent, NOBODY, is_plain, name_of};
use serde::{Deserialize, Serialize};

/// Which accounts programs may run as, on a machine whose agents are started by root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Who runs what was submitted by people that this machine does not know; none refuses it.
    pub run_as: Option<String>,
    /// Whether what root has submitted runs as root.
    pub allow_root: bool,
    /// What this machine is called in refusals.
    pub machine: String,
}

/// As whom a machine runs programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProgramsRunAs {
    /// Whoever submitted them; those whom the machine does not know as another account, where there is one.
    Submitter { otherwise: Option<String> },
    /// All of them as whoever serves there.
    Account { name: String },
}

impl ProgramsRunAs {
    /// The same, where its names can be names: they come from another machine.
    pub(crate) fn checked(&self) -> Option<ProgramsRunAs> {
        let is_good = match self {
            ProgramsRunAs::Submitter { otherwise } => otherwise.as_deref().is_none_or(is_plain),
            ProgramsRunAs::Account { name } => is_plain(name),
        };
        is_good.then(|| self.clone())
    }
}

impl std::fmt::Display for ProgramsRunAs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ProgramsRunAs::Submitter { otherwise: None } => write!(f, "submitter"),
            ProgramsRunAs::Submitter { otherwise: Some(name) } => write!(f, "submitter or {name}"),
            ProgramsRunAs::Account { name } => write!(f, "{name}"),
        }
    }
}

/// As whom a lease runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunsAs {
    pub account: Account,
    /// Why nothing of its owner's may run here, if so: the account is nobody's then.
    pub refused: Option<String>,
    /// Nothing but leases runs as it, so that whatever does ends with the last of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_alone: bool,
}

impl RunsAs {
    fn of(account: Account) -> RunsAs {
        RunsAs { account, refused: None, is_alone: false }
    }
}

impl Accounts {
    /// What this process can offer: none unless it is root.
    pub fn of_root(self) -> Option<Accounts> {
        rustix::process::geteuid().is_root().then_some(self)
    }

    /// As whom programs of others run here.
    pub(crate) fn programs(accounts: Option<&Accounts>) -> ProgramsRunAs {
        match accounts {
            Some(accounts) => ProgramsRunAs::Submitter { otherwise: accounts.run_as.clone() },
            None => ProgramsRunAs::Account { name: name_of(rustix::process::geteuid().as_raw()) },
        }
    }

    /// As whom a lease of somebody's runs; none for root itself. Fails where nobody says whether there is such an account: that
    /// there is none holds for the whole life of the lease. Whoever calls this waits.
    pub(crate) fn of(&self, owner: &str, asks: &Asks) -> Result<Option<RunsAs>, DirectorySilent> {
        let refused = |why: String| Some(RunsAs { refused: Some(why), ..RunsAs::of(Account::nobody()) });
        let own = asks.account(owner)?.filter(|account| account.uid != 0 || self.allow_root);
        let Some(name) = self.run_as.as_ref().filter(|_| own.is_none()) else {
            return Ok(match own {
                Some(account) if account.uid == 0 => None,
                Some(account) => Some(RunsAs::of(account)),
                None => refused(self.why_not(owner)),
            });
        };
        Ok(match asks.account(name)?.filter(|account| account.uid != 0) {
            Some(account) => Some(RunsAs { is_alone: may_be_alone(account.uid), ..RunsAs::of(account) }),
            None => refused(format!("{}: the account of --run-as is not known here, or is root: {name}", self.machine)),
        })
    }

    fn why_not(&self, owner: &str) -> String {
        let machine = &self.machine;
        match owner {
            "" => format!("{machine} runs programs as their submitters, and was not told who that is"),
            "root" => format!("{machine} runs nothing as root: submit it as yourself; or its operator says --as-root"),
            _ => format!("{machine} has no account `{owner}`: its operator adds one, or says --run-as"),
        }
    }
}

/// Whether leases may be all that runs as an account of `--run-as`: one that a system brings along is for others too.
fn may_be_alone(uid: u32) -> bool {
    uid >= 100 && uid != NOBODY
}

/// Whether anything runs as a user.
pub(crate) fn is_in_use(uid: u32) -> bool {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut statuses = entries
        .filter(|entry| entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit()))
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    statuses.any(|status| {
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
        uids.split_whitespace().any(|found| found.parse() == Ok(uid))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_says_as_whom_programs_run_in_words_that_are_names() {
        let of = |run_as: Option<&str>| Accounts { run_as: run_as.map(str::to_owned), ..Accounts::default() };
        let says = |accounts: Option<&Accounts>| Accounts::programs(accounts).to_string();
        assert_eq!(says(Some(&of(None))), "submitter");
        assert_eq!(says(Some(&of(Some("spare")))), "submitter or spare");
        assert_eq!(says(None), name_of(rustix::process::geteuid().as_raw()));
        assert!(ProgramsRunAs::Account { name: "\x1b[31m".to_owned() }.checked().is_none());
        assert!(Accounts::programs(Some(&of(Some("spare")))).checked().is_some());
    }

    #[test]
    fn an_account_is_of_leases_alone_where_nothing_else_has_it() {
        assert!(!may_be_alone(NOBODY) && !may_be_alone(1) && !may_be_alone(0) && may_be_alone(4_242));
        assert!(is_in_use(rustix::process::geteuid().as_raw()), "this test");
        assert!(!is_in_use(1_987_654_321));
    }

    #[test]
    fn nobody_is_a_stranger_because_the_directory_is_silent() {
        let silent = Asks { program: "/bin/cat".into(), patience: std::time::Duration::ZERO };
        let accounts = Accounts { run_as: Some("daemon".to_owned()), ..Accounts::default() };
        assert_eq!(accounts.of("nobody-of-that-name", &silent), Err(DirectorySilent));
        assert!(accounts.of("daemon", &silent).is_ok(), "who is listed here is known");
    }

    #[test]
    fn root_and_strangers_run_only_where_somebody_allowed_it() {
        let accounts = |run_as: Option<&str>, allow_root| Accounts {
            run_as: run_as.map(str::to_owned),
            allow_root,
            machine: "node lab-1".to_owned(),
        };
        let of = |accounts: &Accounts, owner: &str| accounts.of(owner, &Asks::default()).expect("answered");
        let why = |accounts: &Accounts, owner: &str| of(accounts, owner).and_then(|runs| runs.refused);
        let (closed, open) = (accounts(None, false), accounts(None, true));
        assert!(why(&closed, "root").expect("refused").contains("--as-root"));
        assert_eq!(of(&open, "root"), None, "as what this process is");
        for (owner, says) in [("nobody-of-that-name", "has no account"), ("", "was not told who")] {
            let runs = of(&open, owner).expect("not root");
            assert!(runs.refused.expect("refused").contains(says) && runs.account.uid == NOBODY);
        }
        let (with, bad) = (accounts(Some("daemon"), false), accounts(Some("root"), false));
        for owner in ["nobody-of-that-name", "root"] {
            let runs = of(&with, owner).expect("not root");
            assert_eq!((runs.account.name.as_str(), runs.refused), ("daemon", None));
            assert!(why(&bad, owner).expect("refused").contains("--run-as"));
        }
    }
}
