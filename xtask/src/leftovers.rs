//! Ends what a chore has started when the chore itself is gone, however it went: interrupted, terminated or killed. A
//! second process of this program waits at the end of a pipe that only the chore holds open. When that closes, it ends
//! by number the services that it was told of and every process that carries the chore's mark, and nothing else.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// The variable that marks what was started for a chore; its value is the number of the chore's process.
pub const MARK: &str = "WINDFALL_CHORE";

/// How long processes have to end after they were asked to.
const PATIENCE: Duration = Duration::from_secs(10);

/// The other process, as long as the chore goes on.
pub struct Leftovers {
    process: Option<Child>,
    told: Option<ChildStdin>,
}

/// The value of the mark of this process.
pub fn mark() -> String {
    std::process::id().to_string()
}

impl Leftovers {
    /// Starts the other process. It gets no signal that is meant for the chore's terminal.
    pub fn watch(folder: &std::path::Path) -> Leftovers {
        use std::os::unix::process::CommandExt;
        let own = std::env::current_exe().unwrap_or_default();
        let command = &mut Command::new(own);
        command.args(["end-leftovers-of", &mark()]).arg(folder).process_group(0).stdin(Stdio::piped());
        match command.spawn() {
            Ok(mut child) => Leftovers { told: child.stdin.take(), process: Some(child) },
            Err(error) => {
                println!("nobody watches over what this starts: {error}");
                Leftovers { process: None, told: None }
            }
        }
    }

    /// Names a service that does not show the mark: PostgreSQL writes over its environment.
    pub fn started(&mut self, pid: u32) {
        let Some(process) = Process::of(pid) else { return };
        if let Some(told) = &mut self.told {
            let _ = writeln!(told, "{} {}", process.pid, process.began);
        }
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        drop(self.told.take());
        if let Some(process) = &mut self.process {
            let _ = process.wait();
        }
    }
}

/// A process, by its number and when it began: a number alone may be another's by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    pid: u32,
    began: u64,
}

impl Process {
    fn of(pid: u32) -> Option<Process> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in brackets, may have any character; the state is the first field after it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let over = matches!(*fields.first()?, "Z" | "X");
        let began = fields.get(19)?.parse().ok()?;
        (!over).then_some(Process { pid, began })
    }

    fn runs(&self) -> bool {
        Process::of(self.pid) == Some(*self)
    }

    fn send(&self, signal: &str) {
        if self.runs() {
            let _ = Command::new("kill").args([signal, &self.pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Processes that carry the mark of a chore, other than this one.
fn marked(chore: &str) -> Vec<Process> {
    let mark = format!("{MARK}={chore}");
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let carries = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    pids.filter(|pid| *pid != std::process::id()).filter(carries).filter_map(Process::of).collect()
}

/// What the other process does: waits for the chore's end, then ends what is left of it and removes its folder.
pub fn end_leftovers(args: &[String]) -> ExitCode {
    let [chore, folder] = args else { return ExitCode::from(2) };
    let mut services = Vec::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let mut words = line.split(' ').map(str::parse::<u64>);
        if let (Some(Ok(pid)), Some(Ok(began))) = (words.next(), words.next()) {
            services.push(Process { pid: u32::try_from(pid).unwrap_or(0), began });
        }
    }
    // Tests first: a database ends once nobody is connected to it.
    let left = || -> Vec<Process> {
        let services = services.iter().copied().filter(Process::runs);
        marked(chore).into_iter().chain(services).collect()
    };
    let until = Instant::now() + PATIENCE;
    let mut asked: Vec<Process> = Vec::new();
    loop {
        let left = left();
        if left.is_empty() || Instant::now() >= until + PATIENCE {
            break;
        }
        if Instant::now() >= until {
            left.iter().for_each(|process| process.send("-KILL"));
        } else {
            // What was started meanwhile is asked as well; nobody is asked twice.
            left.iter().filter(|process| !asked.contains(process)).for_each(|process| process.send("-TERM"));
            asked.extend(left);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let _ = std::fs::remove_dir_all(PathBuf::from(folder));
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_number_and_its_beginning() {
        let own = Process::of(std::process::id()).expect("this test runs");
        assert!(own.runs());
        assert!(!Process { began: own.began + 1, ..own }.runs());
    }

    #[test]
    fn only_what_carries_the_mark_is_found() {
        let sleep = |mark: &str| Command::new("sleep").arg("60").env(MARK, mark).spawn().expect("sleep");
        let chore = format!("test-{}", std::process::id());
        let (mut ours, mut other) = (sleep(&chore), sleep(&format!("{chore}0")));
        // A process shows its variables a moment after it was started.
        let look = || Some(marked(&chore)).filter(|found| !found.is_empty());
        let found = (0..100).find_map(|_| {
            look().or_else(|| {
                std::thread::sleep(Duration::from_millis(50));
                None
            })
        });
        let found = found.unwrap_or_default();
        assert_eq!(found.iter().map(|process| process.pid).collect::<Vec<_>>(), [ours.id()]);
        for child in [&mut ours, &mut other] {
            child.kill().expect("it runs");
            child.wait().expect("it ends");
        }
        assert_eq!(marked(&chore), []);
    }
}
