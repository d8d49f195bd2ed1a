//! Tries one change: builds what is needed and runs, cheapest first, what should find it. The first that fails has
//! caught it. Test programs are run directly, so that one that hangs can be ended by its process number.

use super::scratch::Scratch;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The explorer's worlds: the same for every change, so that a result does not hang on how busy the machine is.
const EXPLORE_SEEDS: &str = "0..150";
/// A bound for machines on which those take too long.
const EXPLORE_SECONDS: u64 = 120;
/// A test program that takes longer does not end: that is found too.
const LONGEST: Duration = Duration::from_secs(300);

/// What should find a change.
#[derive(Debug)]
enum Finder {
    /// All tests in one target of a package.
    Tests { package: &'static str, target: &'static [&'static str] },
    /// Random worlds through the server's loop.
    Explorer,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It was caught, by this.
    By(String),
    /// It survived.
    Nothing,
    /// It does not compile.
    NotBuilt(String),
}

const LIB: &[&str] = &["--lib"];

/// What should find changes of a crate, cheapest first.
fn finders(krate: &str) -> &'static [Finder] {
    match krate {
        "core" => &[
            Finder::Tests { package: "windfall-core", target: LIB },
            Finder::Explorer,
            Finder::Tests { package: "windfall-sim", target: &["--test", "market"] },
        ],
        "server" => &[
            Finder::Tests { package: "windfall-server", target: LIB },
            Finder::Explorer,
            Finder::Tests { package: "windfall-server", target: &["--test", "old_logs"] },
        ],
        _ => &[
            Finder::Tests { package: "windfall-agent", target: LIB },
            Finder::Tests { package: "windfall-agent", target: &["--test", "checkpoints"] },
        ],
    }
}

/// The crates whose files decide what a trial of a change of `krate` says.
pub fn taking_part(krate: &str) -> &'static [&'static str] {
    match krate {
        "agent" => &["core", "agent"],
        _ => &["core", "catalog", "sim", "store", "exec", "agent", "server", "explore"],
    }
}

/// How changes of `krate` are tried, for the hash.
pub fn terms(krate: &str) -> String {
    format!("{:?} {EXPLORE_SEEDS} {EXPLORE_SECONDS}", finders(krate))
}

/// Builds the tree in the scratch copy and runs what should find the change in it.
pub fn try_out(scratch: &Scratch, krate: &str) -> Result<Found, String> {
    for finder in finders(krate) {
        let found = match finder {
            Finder::Tests { package, target } => tests(scratch, package, target)?,
            Finder::Explorer => explorer(scratch)?,
        };
        if found != Found::Nothing {
            return Ok(found);
        }
    }
    Ok(Found::Nothing)
}

fn tests(scratch: &Scratch, package: &str, target: &[&str]) -> Result<Found, String> {
    let mut args = vec!["test", "--no-run", "--package", package];
    args.extend(target);
    let program = match build(scratch, &args)? {
        Ok(program) => program,
        Err(why) => return Ok(Found::NotBuilt(why)),
    };
    let folder = scratch.tree().join("crates").join(package.trim_start_matches("windfall-"));
    let mut command = Command::new(program);
    command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env("INSTA_UPDATE", "no");
    command.env("PROPTEST_RNG_SEED", "1").env("WINDFALL_QUICK", "1");
    let said = |text: &str| {
        let failed = text.lines().find_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED"));
        let failed = failed.unwrap_or("a test ended the whole program");
        format!("{package}: {failed}")
    };
    outcome(command, &format!("{package}: tests"), said)
}

fn explorer(scratch: &Scratch) -> Result<Found, String> {
    let program = match build(scratch, &["build", "--package", "windfall-explore"])? {
        Ok(program) => program,
        Err(why) => return Ok(Found::NotBuilt(why)),
    };
    let mut command = Command::new(program);
    command.args(["--seeds", EXPLORE_SEEDS, "--seconds", &EXPLORE_SECONDS.to_string(), "--no-shrink"]);
    let said = |text: &str| {
        let law = text.lines().find_map(|line| Some(line.strip_prefix("law ")?.split_once(' ')?.0));
        let what = text.lines().find_map(|line| line.trim().strip_prefix("seed "));
        format!("explorer: law {}, seed {}", law.unwrap_or("none, it died"), what.unwrap_or("unknown"))
    };
    outcome(command, "explorer", said)
}

/// The test or the program that cargo built, or what cargo said.
fn build(scratch: &Scratch, args: &[&str]) -> Result<Result<PathBuf, String>, String> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(args)
        .args(["--quiet", "--message-format", "json-render-diagnostics"])
        .current_dir(scratch.tree())
        .env("CARGO_TARGET_DIR", scratch.build())
        .output()
        .map_err(|error| format!("cargo cannot be run: {error}"))?;
    if !output.status.success() {
        return Ok(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let built = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    // Tests of a package may have its programs built beside them.
    let of_kind = built.filter(|message| message["profile"]["test"] == (args.first() == Some(&"test")));
    let program = of_kind.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
    program.map(Ok).ok_or_else(|| format!("cargo {} built no program", args.join(" ")))
}

/// Runs a program; `said` reads from its output what it found.
fn outcome(mut command: Command, name: &str, said: impl Fn(&str) -> String) -> Result<Found, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("{name} cannot be run: {error}"))?;
    let output = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut output) = output {
            let _ = output.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let Some(good) = wait(&mut child).map_err(|error| format!("{name}: {error}"))? else {
        return Ok(Found::By(format!("{name} did not end within {} s", LONGEST.as_secs())));
    };
    if good {
        return Ok(Found::Nothing);
    }
    let text = reader.join().unwrap_or_default();
    // One line, because that is how results are kept.
    Ok(Found::By(said(&text).replace(['\t', '\n'], " ")))
}

/// Whether a program succeeded; none when it did not end in time.
fn wait(child: &mut Child) -> std::io::Result<Option<bool>> {
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}
