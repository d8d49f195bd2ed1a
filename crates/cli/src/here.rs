//! Where a command runs: the state directory, the folder and the user. Nothing is written here.

use crate::args::UpArgs;
use crate::config::{self, Wrong};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use windfall_jobfile::{Context, JobFileError, Look};
use windfall_server::client::{Client, Code, Failure};

/// What every command knows.
pub(crate) struct Here {
    pub home: PathBuf,
    pub json: bool,
}

impl Here {
    /// The state directory that was named, else that of the environment.
    pub fn of(home: Option<PathBuf>, json: bool) -> Result<Here, Failure> {
        Ok(Here { home: home_directory(home)?, json })
    }

    pub fn client(&self) -> Client {
        Client::new(&self.home, Vec::new()).checking(right_configuration)
    }

    /// Shows what is wrong with a configuration, where.
    pub fn bad_configuration(&self, wrong: &Wrong) -> Failure {
        match wrong {
            Wrong::File(error) => Failure { message: error.to_string(), ..self.bad_file(error) },
            Wrong::Flags { message, hint } => Failure::new(Code::BadInput, message).hint(hint),
        }
    }

    /// What a job file means when it is read here and now.
    pub fn context(&self) -> Result<Context, Failure> {
        let folder = std::env::current_dir()
            .map_err(|error| Failure::new(Code::BadInput, format!("the present folder cannot be used: {error}")))?;
        Ok(Context {
            folder,
            home: std::env::var_os("HOME").map(PathBuf::from),
            owner: user(),
            now_ms: jiff::Timestamp::now().as_millisecond(),
            zone: jiff::tz::TimeZone::system(),
            store: self.home.join("checkpoints").to_string_lossy().into_owned(),
        })
    }

    /// Shows what is wrong with a job file, where.
    pub fn bad_file(&self, error: &JobFileError) -> Failure {
        if self.json {
            println!("{}", error.to_json());
            for line in error.lines() {
                eprintln!("{line}");
            }
        } else {
            let terminal = std::io::stderr().is_terminal();
            let colour = terminal && std::env::var_os("NO_COLOR").is_none();
            let look = if colour {
                Look::Colour
            } else if terminal {
                Look::Unicode
            } else {
                Look::Ascii
            };
            eprint!("{}", error.render(look, crate::live::size().0));
        }
        Failure { shown: true, ..Failure::new(Code::BadInput, "the job file is wrong") }
    }
}

/// Fails where a server would be started with a configuration file that is wrong.
fn right_configuration(home: &Path) -> Result<(), Failure> {
    let Some(path) = config::file_in_use(None, Some(home)) else { return Ok(()) };
    let read = config::read(&path).map_err(Wrong::File);
    let checked = read.and_then(|file| config::whole(&UpArgs::default(), Some(&file)));
    let here = Here { home: home.to_owned(), json: false };
    checked.map(drop).map_err(|wrong| here.bad_configuration(&wrong))
}

/// Who is at the terminal: by account, because variables can say anything.
fn user() -> String {
    windfall_server::name_of(rustix::process::getuid().as_raw())
}

fn home_directory(flag: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = flag
        .or_else(|| from("WINDFALL_HOME"))
        .or_else(|| from("XDG_STATE_HOME").map(|state| state.join("windfall")))
        .or_else(|| from("HOME").map(|home| home.join(".local/state/windfall")));
    let home =
        home.ok_or_else(|| Failure::new(Code::BadInput, "no state directory").hint("set WINDFALL_HOME or HOME"))?;
    absolute(&home)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::new(Code::BadInput, format!("{}: {error}", path.display())))
}

/// Where the agent of this machine keeps its key and its leases.
pub(crate) fn agent_state(given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return std::path::absolute(given).map_err(|error| Failure::new(Code::BadInput, error.to_string()));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/windfall-agent"));
    }
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let none = || Failure::new(Code::BadInput, "no home directory".to_owned()).hint("choose a directory with --state");
    Ok(home.ok_or_else(none)?.join(".local/state/windfall-agent"))
}
