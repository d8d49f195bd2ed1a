//! A server in a process of its own, and what it uses.

use crate::{Failure, program};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use windfall_server::Settings;
use windfall_server::api_types::Hello;
use windfall_server::client::Client;
use windfall_server::home::WorldSettings;

pub struct Server {
    pub home: PathBuf,
    child: Child,
    store: &'static str,
}

impl Server {
    pub fn start(home: &Path, store: Option<&str>) -> Result<Server, Failure> {
        // Each begins with a schema of its own.
        let address = store.map(|store| {
            let schema = format!("bench_{}_{}", std::process::id(), home.file_name().unwrap_or_default().display());
            format!("{store}{}schema={schema}", if store.contains('?') { '&' } else { '?' })
        });
        let words: Vec<String> = address.into_iter().flat_map(|address| ["--store".to_owned(), address]).collect();
        Server::spawn(home, &words, store)
    }

    /// One that takes nodes in on this address.
    pub fn start_listening(home: &Path, address: &str) -> Result<Server, Failure> {
        Server::spawn(home, &["--listen".to_owned(), address.to_owned()], None)
    }

    /// On a state directory that knows its world.
    pub fn start_again(home: &Path, store: Option<&str>) -> Result<Server, Failure> {
        Server::spawn(home, &[], store)
    }

    fn spawn(home: &Path, words: &[String], store: Option<&str>) -> Result<Server, Failure> {
        std::fs::create_dir_all(home)?;
        let log = std::fs::File::options().create(true).append(true).open(home.join("server.log"))?;
        let mut child = Command::new(program()?)
            .arg("serve")
            .args(words)
            .arg("--home")
            .arg(home)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()?;
        let mut line = String::new();
        let out = child.stdout.take().ok_or("a server without output")?;
        BufReader::new(out).read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(format!("the server did not start: {line}").into());
        }
        let store = if store.is_some() { "PostgreSQL" } else { "SQLite" };
        let server = Server { home: home.to_owned(), child, store };
        server.live_jobs()?;
        Ok(server)
    }

    pub fn store_name(&self) -> &'static str {
        self.store
    }

    pub fn live_jobs(&self) -> Result<usize, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = Client::new(&self.home, Vec::new());
        let hello: Hello = runtime.block_on(client.get("/v1/hello")).map_err(|failure| failure.message)?;
        Ok(hello.live_jobs)
    }

    /// Time on processors so far.
    pub fn cpu(&self) -> Result<Duration, Failure> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // Fields 14 and 15 of the whole line.
        Ok(ticks(fields.get(11..13).unwrap_or_default()))
    }

    /// Bytes of memory that it has now.
    pub fn memory(&self) -> Result<f64, Failure> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no memory is told")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1024.0)
    }

    /// Ends it as a power cut would, as far as a process can.
    pub fn kill(mut self) -> Result<PathBuf, Failure> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(self.home.clone())
    }

    /// Lets it end by itself.
    pub fn end(mut self) -> Result<(), Failure> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let until = Instant::now() + Duration::from_secs(20);
        while self.child.try_wait()?.is_none() {
            if Instant::now() > until {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

/// Time for which all processors of this machine together did something.
pub fn machine_busy() -> Result<Duration, Failure> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let fields: Vec<&str> = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).collect();
    // All but idle and waiting for a disk, which are the fourth and the fifth.
    Ok(ticks(fields.get(..3).unwrap_or_default()) + ticks(fields.get(5..8).unwrap_or_default()))
}

/// The kernel counts in hundredths of a second.
fn ticks(fields: &[&str]) -> Duration {
    Duration::from_millis(fields.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// How long it takes to make 4 KiB at the end of a file durable, in the middle of many tries.
pub fn seconds_of_fsync(folder: &Path) -> Result<f64, Failure> {
    let path = folder.join("fsync");
    let mut file = std::fs::File::create(&path)?;
    let mut waits = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        file.write_all(&[b'x'; 4_096])?;
        file.sync_data()?;
        waits.push(began.elapsed().as_secs_f64());
    }
    std::fs::remove_file(path)?;
    waits.sort_by(f64::total_cmp);
    Ok(crate::client::median(&waits))
}

/// What `windfall serve` does, in this program: to try a change without building the command line.
pub fn serve(words: &[String]) -> Result<(), Failure> {
    let value = |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1)).cloned();
    let home = value("--home").ok_or("serve [--store ADDRESS] --home DIR")?;
    let store = value("--store");
    let settings = Settings {
        home: home.into(),
        world: store.map(|store| WorldSettings { store: Some(store), ..WorldSettings::default() }),
        idle_after: None,
        policy: None,
        bound: None,
        is_service: false,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ready = || {
        println!("ready");
        let _ = std::io::stdout().flush();
    };
    Ok(runtime.block_on(windfall_server::serve(settings, ready))?)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
