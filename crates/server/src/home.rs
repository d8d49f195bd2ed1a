//! The state directory: what is in it, who may use it, and which world it holds.

use rustix::fs::{FlockOperation, Mode, flock};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::fs::{File, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use windfall_core::{NanoUsd, Span};
use windfall_exec::{ClockFile, KubernetesSettings, Replaceable, SlurmSettings, stays_in_place};
pub use windfall_exec::{Replay, Stated};

/// The market that a new server replays.
pub const DEFAULT_MARKET: &str = "aws-v100-us-west-2-2023";

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// It cannot be made or written.
    #[error("the state directory cannot be used: {}", path.display())]
    Unusable {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// It belongs to somebody else.
    #[error("the state directory belongs to another user: {}", path.display())]
    Foreign { path: PathBuf },
    /// Everybody may write into it.
    #[error("everybody may write into the state directory: {}", path.display())]
    Writable { path: PathBuf },
    /// Somebody else could put another directory in its place.
    #[error("the state directory of root's could be replaced: {}", path.display())]
    Replaceable {
        path: PathBuf,
        #[source]
        source: Replaceable,
    },
    /// Another server holds it.
    #[error("another server runs on {}", path.display())]
    Busy { path: PathBuf },
    /// Its description of the world cannot be read.
    #[error("the world cannot be read: {}", path.display())]
    WorldSettings {
        /// The file.
        path: PathBuf,
        /// Where and what.
        #[source]
        source: serde_json::Error,
    },
    /// It holds another world than the one asked for.
    #[error("{} holds another world already", path.display())]
    OtherWorld { path: PathBuf },
}

impl HomeError {
    /// What a person can do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            HomeError::OtherWorld { .. } => "use another state directory for another world: --home DIR",
            HomeError::Writable { .. } => {
                "take that right from others: chmod o-w DIR; or choose another directory with --home"
            }
            HomeError::Replaceable { .. } => {
                "choose a directory with --home of which root owns all above it, and to which nobody else may write"
            }
            _ => "choose another directory with --home or WINDFALL_HOME",
        }
    }
}

/// What the brain is connected to. One world, one clock, one brain, one state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldSettings {
    #[serde(flatten)]
    pub world: World,
    /// How many times faster than life, at most 60: a notice must leave a program time to save.
    pub speed: u32,
    /// Where the state is kept when not in the directory itself: a `postgres://` address.
    pub store: Option<String>,
    /// Engines in processes of their own, beside the recorded market.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<RemoteSettings>,
    /// Every stint gets a fresh copy of the job's folder, as on a new machine (rehearsals).
    pub fresh_folder: bool,
}

/// Where machines come from. A world has one clock: recordings and real machines are never in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum World {
    /// A recorded market is replayed.
    Replay(Replay),
    /// Owned machines are used, at the time that it really is.
    Machines(MachineSettings),
}

/// Which machines a world has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineSettings {
    /// The computer that the server runs on, where it is used.
    #[serde(default)]
    pub here: Option<HereSettings>,
    /// Where nodes find the server, where it takes any.
    #[serde(default)]
    pub listen: Option<SocketAddr>,
    /// How many seconds a node goes on without a word from the server.
    pub dead_man_s: u64,
    /// The Slurm cluster that the server submits to, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slurm: Option<Box<SlurmSettings>>,
    /// The Kubernetes cluster that it makes Jobs in, where it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Box<KubernetesSettings>>,
}

/// How the computer that the server runs on is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HereSettings {
    /// Its accelerators, where its owner says what they are; else they are found.
    pub accelerators: Vec<Stated>,
    /// What an hour of it costs.
    #[serde(rename = "rate_nanousd", default)]
    pub rate: NanoUsd,
}

/// An engine that listens on a socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteSettings {
    pub name: String,
    pub socket: PathBuf,
}

impl Default for WorldSettings {
    /// The world of a first run: two hours of us-west-2c in March 2023 that lose capacity three times.
    fn default() -> WorldSettings {
        WorldSettings {
            world: World::Replay(Replay {
                market: DEFAULT_MARKET.to_owned(),
                zones: vec!["us-west-2c".to_owned()],
                from: Span::seconds(8_461 * 195),
            }),
            speed: 60,
            store: None,
            engines: Vec::new(),
            fresh_folder: false,
        }
    }
}

impl WorldSettings {
    /// Owned machines, as they are.
    pub fn machines(machines: MachineSettings) -> WorldSettings {
        WorldSettings { world: World::Machines(machines), speed: 1, ..WorldSettings::default() }
    }

    /// The Slurm cluster that is submitted to.
    pub fn slurm(&self) -> Option<&SlurmSettings> {
        match &self.world {
            World::Machines(machines) => machines.slurm.as_deref(),
            World::Replay(_) => None,
        }
    }

    /// The Kubernetes cluster that Jobs are made in.
    pub fn kubernetes(&self) -> Option<&KubernetesSettings> {
        match &self.world {
            World::Machines(machines) => machines.kubernetes.as_deref(),
            World::Replay(_) => None,
        }
    }

    /// The recording that is replayed.
    pub fn replay(&self) -> Option<&Replay> {
        match &self.world {
            World::Replay(replay) => Some(replay),
            World::Machines(_) => None,
        }
    }

    /// The world that a state directory holds, if it holds one; nothing is made or changed.
    pub fn of(home: &Path) -> Result<Option<WorldSettings>, HomeError> {
        let path = home.join("world.json");
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                serde_json::from_str(&text).map(Some).map_err(|source| HomeError::WorldSettings { path, source })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HomeError::Unusable { path, source }),
        }
    }

    /// The same as is asked for, where it is the same world, and an error where it is another one. A world of machines is
    /// the same whichever it uses.
    pub fn standing(home: &Path, wanted: Option<&WorldSettings>) -> Result<Option<WorldSettings>, HomeError> {
        let Some(known) = WorldSettings::of(home)? else { return Ok(None) };
        let Some(wanted) = wanted else { return Ok(Some(known)) };
        let is_same = match (&known.world, &wanted.world) {
            (World::Machines(_), World::Machines(_)) => {
                WorldSettings { world: known.world.clone(), ..wanted.clone() } == known
            }
            _ => known == *wanted,
        };
        if is_same { Ok(Some(wanted.clone())) } else { Err(HomeError::OtherWorld { path: home.to_owned() }) }
    }
}

/// An opened state directory.
#[derive(Debug)]
pub struct Home {
    pub path: PathBuf,
}

impl Home {
    /// Which directory it is, whatever its name: none once it was removed.
    pub fn identity(&self) -> Option<(u64, u64)> {
        std::fs::metadata(&self.path).ok().map(|meta| (meta.dev(), meta.ino()))
    }

    /// Makes the directory if need be. Others may pass through a new one to its socket, and see nothing else of it; one
    /// that is there keeps the mode that its owner gave it.
    pub fn open(path: &Path) -> Result<Home, HomeError> {
        let unusable = |source| HomeError::Unusable { path: path.to_owned(), source };
        let folder = |mode| {
            let mut builder = std::fs::DirBuilder::new();
            builder.recursive(true).mode(mode);
            builder
        };
        if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
            folder(0o700).create(above).map_err(unusable)?;
        }
        let is_new = !path.exists();
        folder(0o711).create(path).map_err(unusable)?;
        if is_new {
            // Whatever the umask says.
            std::fs::set_permissions(path, Permissions::from_mode(0o711)).map_err(unusable)?;
        }
        let meta = std::fs::metadata(path).map_err(unusable)?;
        if !meta.is_dir() {
            return Err(unusable(std::io::ErrorKind::NotADirectory.into()));
        }
        if meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(HomeError::Foreign { path: path.to_owned() });
        }
        // Whoever writes here could put another world, or another server, in the place of ours.
        if meta.mode() & 0o002 != 0 {
            return Err(HomeError::Writable { path: path.to_owned() });
        }
        let path = std::fs::canonicalize(path).map_err(unusable)?;
        Ok(Home { path })
    }

    /// Fails where somebody else could put another directory in the place of root's. Asked where a server of root's runs what
    /// others submit; one that runs root's own jobs alone trusts whoever set up root's home.
    pub fn stays_in_place(&self) -> Result<(), HomeError> {
        stays_in_place(&self.path).map_err(|source| HomeError::Replaceable { path: self.path.clone(), source })
    }

    /// Writes the world down. Only the server that holds the lock does so, once everything else has worked: what could
    /// not be started leaves no world behind.
    pub fn write_world(&self, world: &WorldSettings) -> Result<(), HomeError> {
        let file = self.path.join("world.json");
        let text = serde_json::to_string_pretty(world).expect("a world has string keys");
        let new = file.with_extension("new");
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &file))
            .map_err(|source| HomeError::Unusable { path: file, source })
    }

    /// Where the world's clock is kept while no server runs.
    pub fn clock(&self) -> ClockFile {
        ClockFile::at(self.path.join("clock"))
    }

    /// Keeps every other server out for as long as the returned file lives.
    pub fn lock(&self) -> Result<File, HomeError> {
        let path = self.path.join("server.lock");
        let unusable = |source| HomeError::Unusable { path: path.clone(), source };
        let file = File::options().create(true).append(true).open(&path).map_err(unusable)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| HomeError::Busy { path: self.path.clone() })?;
        Ok(file)
    }

    /// Whether a server holds the directory, as far as this user may know.
    pub fn is_held(path: &Path) -> bool {
        let Ok(file) = File::open(path.join("server.lock")) else { return false };
        flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
    }

    /// The folder that holds a job's output and environment.
    pub fn job(&self, key: &str) -> PathBuf {
        self.path.join("jobs").join(key)
    }

    /// Where leases live.
    pub fn leases(&self) -> PathBuf {
        self.path.join("leases")
    }

    /// Where those of another engine live.
    pub fn leases_of(&self, engine: &str) -> PathBuf {
        self.path.join(format!("leases-{engine}"))
    }

    /// Where the server keeps its key, its nodes and their tokens.
    pub fn machines(&self) -> PathBuf {
        self.path.join("machines")
    }

    /// Where this computer keeps jobs' folders that it has unpacked.
    pub fn folders(&self) -> PathBuf {
        self.path.join("folders")
    }

    /// Where checkpoints go that have no other store.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// The store's address.
    pub fn store(&self, world: &WorldSettings) -> String {
        world.store.clone().unwrap_or_else(|| format!("sqlite:{}", self.path.join("state.db").display()))
    }

    /// The socket's path through an open folder, which never exceeds the limit of 108 bytes.
    pub fn socket(folder: &File) -> String {
        format!("/proc/self/fd/{}/server.sock", folder.as_raw_fd())
    }
}

/// Keeps what this process makes private to its owner.
pub fn private() {
    rustix::process::umask(Mode::from_raw_mode(0o077));
}

/// Descriptors that this process may have: very many agents are listened to at once. Programs inherit it, and some walk over
/// all that they may have.
const DESCRIPTORS: u64 = 65_536;

/// Allows as many descriptors as are needed.
pub(crate) fn allow_many_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    // Where it is refused, fewer agents are heard at once.
    let wanted = limit.maximum.map_or(DESCRIPTORS, |most| most.min(DESCRIPTORS));
    if limit.current.is_some_and(|current| current < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit });
    }
}

/// One line in the server's log.
pub(crate) fn log(text: &str) {
    // A full disk must not end the server, so this may fail.
    let _ = writeln!(std::io::stderr(), "windfall: {text}");
}
