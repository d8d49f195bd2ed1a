//! The real services that tests run against: installed when they are missing, started on free ports of
//! the loopback, stopped by their process number. What cannot be had is named, never faked.

use crate::kubernetes::Building;
use crate::leftovers::{Leftovers, MARK, mark};
use crate::workspace::{cache, is_root, root};
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const S3_VERSION: &str = "0.14.1";
const GCS_VERSION: &str = "v1.56.1";
const AZURITE_VERSION: &str = "3.35.0";

/// A service that runs, and the variable that tells tests where.
pub struct Running {
    name: &'static str,
    child: Child,
}

type Start = fn(&mut Components) -> Result<(), String>;

/// What could be started, and what could not.
pub struct Components {
    running: Vec<Running>,
    /// Variables for the tests.
    pub env: Vec<(&'static str, String)>,
    /// Name and reason of what is missing.
    pub skipped: Vec<(String, String)>,
    folder: PathBuf,
    /// Ends the services when this process can no longer do it.
    leftovers: Leftovers,
}

impl Drop for Components {
    fn drop(&mut self) {
        for running in &mut self.running {
            println!("stopping {} (pid {})", running.name, running.child.id());
            stop(&mut running.child);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// PostgreSQL needs to be asked kindly; everything else ends on SIGTERM as well.
fn stop(child: &mut Child) {
    let _ = Command::new("kill").arg("-TERM").arg(child.id().to_string()).status();
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if let Ok(Some(_)) = child.try_wait() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let _ = child.kill();
    let _ = child.wait();
}

impl Components {
    /// Where the services of this process keep what they write.
    pub fn folder() -> PathBuf {
        std::env::temp_dir().join(format!("windfall-test-{}", std::process::id()))
    }

    /// Starts everything that tests use.
    pub fn start(leftovers: Leftovers) -> Components {
        let all: [(&str, Start); 9] = [
            ("python3", Components::python),
            ("python3-torch", Components::torch),
            ("libfaketime", Components::faketime),
            ("systemd-analyze", Components::systemd),
            ("slurm", Components::slurm),
            ("postgres", Components::postgres),
            ("s3", Components::s3),
            ("gcs", Components::gcs),
            ("azure", Components::azure),
        ];
        Components::start_these(leftovers, &all)
    }

    /// Starts PostgreSQL only.
    pub fn postgres_alone(leftovers: Leftovers) -> Components {
        Components::start_these(leftovers, &[("postgres", Components::postgres)])
    }

    /// Waits for the Kubernetes that is built, and installs what its containers run in. Tests start clusters of their own.
    pub fn kubernetes(&mut self, building: Building) {
        let runtime = ["containerd", "runc", "containernetworking-plugins", "busybox-static"];
        let programs = ["/usr/bin/containerd", "/usr/sbin/runc", "/usr/lib/cni/ptp", "/bin/busybox"];
        let is_there = || programs.iter().all(|program| Path::new(program).exists());
        let had =
            building.wait().and_then(|program| if is_there() { Ok(program) } else { apt(&runtime).map(|()| program) });
        match had {
            Ok(program) => self.env.push(("WINDFALL_TEST_KUBERNETES", program.display().to_string())),
            Err(why) => {
                println!("skipped: kubernetes: {why}");
                self.skipped.push(("kubernetes".to_owned(), why));
            }
        }
    }

    /// What PostgreSQL answers to a question with one answer.
    pub fn ask_postgres(&self, question: &str) -> Option<String> {
        let (_, address) = self.env.iter().find(|(name, _)| *name == "WINDFALL_TEST_POSTGRES")?;
        let mut psql = Command::new(postgres_bin()?.join("psql"));
        let output = psql.args(["--tuples-only", "--no-align", "--command", question]).arg(address).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    fn start_these(leftovers: Leftovers, wanted: &[(&str, Start)]) -> Components {
        let folder = Components::folder();
        let _ = std::fs::create_dir_all(&folder);
        let mut components =
            Components { running: Vec::new(), env: Vec::new(), skipped: Vec::new(), folder, leftovers };
        for (name, start) in wanted {
            if let Err(why) = start(&mut components) {
                println!("skipped: {name}: {why}");
                components.skipped.push(((*name).to_owned(), why));
            }
        }
        components
    }

    fn add(&mut self, name: &'static str, port: u16, command: &mut Command) -> Result<(), String> {
        let log = File::create(self.folder.join(format!("{name}.log"))).map_err(|error| error.to_string())?;
        let errors = log.try_clone().map_err(|error| error.to_string())?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .env(MARK, mark())
            .spawn()
            .map_err(|error| format!("{command:?}: {error}"))?;
        println!("started {name} (pid {}) on 127.0.0.1:{port}", child.id());
        self.leftovers.started(child.id());
        self.running.push(Running { name, child });
        let until = Instant::now() + Duration::from_secs(60);
        while Instant::now() < until {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(());
            }
            if let Some(Ok(Some(status))) = self.running.last_mut().map(|running| running.child.try_wait()) {
                self.running.pop();
                return Err(format!("it ended with {status}: {}", tail(&self.folder.join(format!("{name}.log")))));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err("it does not answer".to_owned())
    }

    fn python(&mut self) -> Result<(), String> {
        if works("python3", &["--version"]) { Ok(()) } else { apt(&["python3"]) }
    }

    /// Real PyTorch, which Debian's own interpreter finds.
    fn torch(&mut self) -> Result<(), String> {
        let is_there = || Path::new("/usr/lib/python3/dist-packages/torch").exists();
        if is_there() { Ok(()) } else { apt(&["python3-torch"]) }
    }

    /// Tells programs another time of day than this computer's.
    fn faketime(&mut self) -> Result<(), String> {
        let folders = ["x86_64", "aarch64"].map(|machine| format!("/usr/lib/{machine}-linux-gnu/faketime"));
        if folders.iter().any(|folder| Path::new(folder).exists()) { Ok(()) } else { apt(&["libfaketime"]) }
    }

    /// It verifies units, and systemd begins in namespaces of its own.
    fn systemd(&mut self) -> Result<(), String> {
        if works("systemd-analyze", &["--version"]) { Ok(()) } else { apt(&["systemd"]) }
    }

    /// Tests start clusters of their own.
    fn slurm(&mut self) -> Result<(), String> {
        let programs =
            ["munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd"].map(|name| Path::new("/usr/sbin").join(name));
        if programs.iter().all(|program| program.exists()) && works("sinfo", &["--version"]) {
            return Ok(());
        }
        let with_accounts = ["slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server"];
        let cluster = ["slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "munge"];
        apt(&[&cluster[..], &with_accounts].concat())
    }

    fn postgres(&mut self) -> Result<(), String> {
        if postgres_bin().is_none() {
            apt(&["postgresql"])?;
        }
        let bin = postgres_bin().ok_or("its programs are not under /usr/lib/postgresql")?;
        let (port, data) = (free_port(), self.folder.join("postgres"));
        std::fs::create_dir_all(&data).map_err(|error| error.to_string())?;
        // It refuses to run as root.
        let as_user = |program: &str| {
            let mut command = Command::new(if is_root() { "setpriv" } else { "env" });
            if is_root() {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
            }
            command.arg(bin.join(program)).current_dir("/");
            command
        };
        if is_root() {
            succeed(Command::new("chown").arg("-R").arg("postgres").arg(&data))?;
            succeed(Command::new("chmod").arg("755").arg(&self.folder))?;
        }
        succeed(as_user("initdb").arg("-D").arg(&data).args(["-A", "trust", "-U", "app", "-E", "UTF8"]))?;
        let mut server = as_user("postgres");
        server.arg("-D").arg(&data).args(["-c", "listen_addresses=127.0.0.1", "-p", &port.to_string()]);
        server.args(["-c", &format!("unix_socket_directories={}", data.display())]);
        self.add("postgres", port, &mut server)?;
        self.env.push(("WINDFALL_TEST_POSTGRES", format!("postgres://app@127.0.0.1:{port}/postgres")));
        Ok(())
    }

    fn s3(&mut self) -> Result<(), String> {
        let program = cache().join("bin/s3s-fs");
        if !program.exists() {
            println!("building s3s-fs {S3_VERSION} (once; minutes)");
            let mut install = Command::new("cargo");
            install.args([
                "install",
                "s3s-fs",
                "--version",
                S3_VERSION,
                "--features",
                "binary",
                "--locked",
                "--quiet",
                "--root",
            ]);
            // A tenth of its speed would do: built as for release it takes three times as long.
            install.arg(cache()).envs([("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"), ("CARGO_PROFILE_RELEASE_LTO", "off")]);
            succeed(install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "64"))?;
        }
        let (port, data) = (free_port(), self.folder.join("s3"));
        std::fs::create_dir_all(&data).map_err(|error| error.to_string())?;
        let mut server = Command::new(program);
        server.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        server.args(["--access-key", "TESTACCESSKEY", "--secret-key", "TESTSECRETKEY"]).arg(&data);
        self.add("s3", port, &mut server)?;
        self.env.push(("WINDFALL_TEST_S3", format!("http://127.0.0.1:{port}")));
        Ok(())
    }

    fn gcs(&mut self) -> Result<(), String> {
        let program = cache().join("bin/fake-gcs-server");
        if !program.exists() {
            if !works("go", &["version"]) {
                return Err("it is built with Go, which is not installed".to_owned());
            }
            println!("building fake-gcs-server {GCS_VERSION} (once; a minute)");
            let mut install = Command::new("go");
            install.args(["install", &format!("github.com/fsouza/fake-gcs-server@{GCS_VERSION}")]);
            succeed(install.env("GOBIN", cache().join("bin")).env("CGO_ENABLED", "0"))?;
        }
        let (port, proxy) = (free_port(), free_port());
        let address = format!("http://127.0.0.1:{port}");
        let mut server = Command::new(program);
        server.args(["-scheme", "http", "-host", "127.0.0.1", "-port", &port.to_string(), "-backend", "memory"]);
        server.args(["-external-url", &address, "-public-host", &format!("127.0.0.1:{port}"), "-log-level", "warn"]);
        self.add("gcs", port, &mut server)?;
        // It has no XML upload API, which the client library uses: a small translator stands before it.
        let mut translator = Command::new("python3");
        translator.arg(root().join("crates/agent/tests/checkpoints/gcs_xml.py")).arg(proxy.to_string()).arg(&address);
        self.add("gcs-xml", proxy, &mut translator)?;
        self.env.push(("WINDFALL_TEST_GCS", format!("http://127.0.0.1:{proxy}")));
        Ok(())
    }

    fn azure(&mut self) -> Result<(), String> {
        let folder = cache().join("azurite");
        let program = folder.join("node_modules/azurite/dist/src/blob/main.js");
        if !program.exists() {
            if !works("npm", &["--version"]) {
                return Err("it comes from npm, which is not installed".to_owned());
            }
            std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
            println!("installing azurite {AZURITE_VERSION} (once)");
            let mut install = Command::new("npm");
            install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]);
            succeed(install.arg(format!("azurite@{AZURITE_VERSION}")).current_dir(&folder))?;
        }
        let port = free_port();
        let mut server = Command::new("node");
        server.arg(program).args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
        server.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]);
        self.add("azure", port, server.current_dir(&folder))?;
        self.env.push(("WINDFALL_TEST_AZURE", format!("http://127.0.0.1:{port}")));
        Ok(())
    }
}

fn postgres_bin() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions.filter_map(|entry| Some(entry.ok()?.path().join("bin"))).filter(|bin| bin.join("initdb").exists()).max()
}

fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn apt(packages: &[&str]) -> Result<(), String> {
    if !is_root() || !works("apt-get", &["--version"]) {
        return Err(format!("not installed, and only root can install it: apt-get install {}", packages.join(" ")));
    }
    println!("installing {}", packages.join(" "));
    let apt = |args: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let _ = succeed(&mut apt(&["-qq", "update"]));
    succeed(apt(&["-qq", "install", "-y", "--no-install-recommends"]).args(packages))
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{:?} failed: {}", command.get_program(), said.lines().rev().take(3).collect::<Vec<_>>().join(" | ")))
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr()).map_or(0, |address| address.port())
}

fn tail(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().rev().take(3).collect::<Vec<_>>().join(" | ")
}
