//! The machine itself: python3, the NVIDIA driver, the clock. Every path is looked at below a root, so that tests can
//! make a machine of files.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use windfall_exec::Finding;

/// What the Python helper needs.
const PYTHON: (u32, u32) = (3, 9);
/// A program that is asked something answers within this, or is hung.
const ANSWERS: Duration = Duration::from_secs(10);

/// What a program prints, where it succeeds in time; else what it says of why not.
pub(super) fn asked(program: &str, words: &[&str]) -> Result<String, String> {
    let mut child = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let until = Instant::now() + ANSWERS;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it has not answered for {} s", ANSWERS.as_secs()));
            }
        }
    }
    let said = child.wait_with_output().map_err(|error| error.to_string())?;
    let [out, err] = [said.stdout, said.stderr].map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    if said.status.success() { Ok(out) } else { Err(if err.is_empty() { out } else { err }) }
}

/// How this system installs a package, as far as it can be told.
fn install(root: &Path, package: &str) -> String {
    let tools =
        [("apt-get", "apt-get install"), ("dnf", "dnf install"), ("zypper", "zypper install"), ("pacman", "pacman -S")];
    let tool = tools.iter().find(|(tool, _)| root.join("usr/bin").join(tool).exists());
    format!("sudo {} {package}", tool.map_or("apt-get install", |(_, words)| words))
}

/// Whether programs in Python, most of those that people run, can be run.
pub(super) fn python(root: &Path) -> Finding {
    let code = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.executable)";
    let mend = install(root, "python3");
    match asked("python3", &["-c", code]) {
        Ok(said) => python_of(&said, mend),
        Err(_) => Finding::warning("python3", "not found: the quickstart and programs in Python need it", mend),
    }
}

fn python_of(said: &str, mend: String) -> Finding {
    let (version, path) = said.split_once(' ').unwrap_or((said, ""));
    let mut parts = version.split('.').map_while(|part| part.parse::<u32>().ok());
    match (parts.next(), parts.next()) {
        (Some(major), Some(minor)) if (major, minor) >= PYTHON => Finding::ok("python3", format!("{version}, {path}")),
        (Some(_), Some(_)) => {
            let says = format!("{version}: the helper for programs needs {}.{}", PYTHON.0, PYTHON.1);
            Finding::warning("python3", says, mend)
        }
        _ => Finding::warning("python3", "it does not say its version", mend),
    }
}

/// The driver, the devices and the library of NVIDIA's accelerators.
pub(super) fn driver(root: &Path) -> Vec<Finding> {
    let cards = cards(root);
    let version = std::fs::read_to_string(root.join("proc/driver/nvidia/version")).ok();
    let Some(version) = version else {
        return vec![match cards {
            0 => Finding::ok("driver", "no NVIDIA accelerator here; others are stated with --accelerators"),
            _ if is_container(root) => {
                let says = format!("{} on the bus, and no driver in this container", counted(cards));
                Finding::missing("driver", says, "docker run --gpus all …  # needs the NVIDIA container toolkit")
            }
            _ => {
                let says = format!("{} on the bus, and the driver is not loaded", counted(cards));
                Finding::missing("driver", says, "sudo modprobe nvidia || sudo ubuntu-drivers install")
            }
        }];
    };
    let release = release_of(&version).unwrap_or("of unknown version").to_owned();
    vec![devices(root, &release), library(root, &release)]
}

fn counted(cards: usize) -> String {
    windfall_core::english::counted(cards as u64, "NVIDIA accelerator")
}

/// Accelerators of NVIDIA on the bus: display controllers and 3D controllers.
fn cards(root: &Path) -> usize {
    let entries = std::fs::read_dir(root.join("sys/bus/pci/devices")).into_iter().flatten().flatten();
    let text = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let is_card = |folder: PathBuf| {
        text(folder.join("vendor")).trim() == "0x10de" && text(folder.join("class")).starts_with("0x03")
    };
    entries.filter(|entry| is_card(entry.path())).count()
}

/// `560.35.03` of the driver's own words.
fn release_of(version: &str) -> Option<&str> {
    let line = version.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_whitespace().find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn devices(root: &Path, release: &str) -> Finding {
    let shown = std::fs::read_dir(root.join("proc/driver/nvidia/gpus")).into_iter().flatten().flatten().count();
    let is_number = |name: &str| name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let entries = std::fs::read_dir(root.join("dev")).into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| is_number(&entry.file_name().to_string_lossy()));
    let nodes: Vec<PathBuf> = nodes.map(|entry| entry.path()).chain([root.join("dev/nvidiactl")]).collect();
    let numbered = nodes.len() - 1;
    if numbered == 0 || !nodes.iter().all(|node| node.exists()) {
        let says = format!("version {release}, {}, and no /dev/nvidia* to use them by", counted(shown));
        return Finding::missing("driver", says, "sudo nvidia-modprobe -c 0 -u");
    }
    let may =
        |node: &PathBuf| rustix::fs::access(node, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_ok();
    match nodes.iter().find(|node| !may(node)) {
        Some(node) => {
            let group = std::fs::metadata(node).map_or(0, |meta| meta.gid());
            let says = format!("version {release}, but this user may not use {}", node.display());
            Finding::missing("driver", says, format!("sudo usermod -aG {group} $USER  # then log in again"))
        }
        None => Finding::ok("driver", format!("version {release}, {}", counted(numbered))),
    }
}

/// Where the library of the driver is looked for.
const LIBRARIES: [&str; 6] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/nvidia/lib64",
    "usr/lib/wsl/lib",
];

/// The library that talks to the driver: it must be of the driver's own version.
fn library(root: &Path, release: &str) -> Finding {
    let found = LIBRARIES.iter().map(|folder| root.join(folder).join("libnvidia-ml.so.1")).find(|path| path.exists());
    let Some(path) = found else {
        let mend = format!("{}  # of version {release}", install(root, "libnvidia-compute-VERSION"));
        return Finding::warning(
            "nvml",
            "libnvidia-ml.so.1 is not found: programs cannot ask about accelerators",
            mend,
        );
    };
    let real = std::fs::canonicalize(&path).unwrap_or(path);
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // There may be several libraries; what the loader takes is what `nvidia-smi` gets.
    let asked = (root == Path::new("/")).then(|| asked("nvidia-smi", &["-L"]));
    if let Some(Ok(list)) = &asked {
        return Finding::ok("nvml", format!("nvidia-smi sees {}", counted(list.lines().count())));
    }
    let version = name.strip_prefix("libnvidia-ml.so.").filter(|version| version.contains('.'));
    match (version, asked) {
        (Some(version), _) if version != release => {
            let says = format!("the library is of version {version}, the driver of {release}: CUDA does not start");
            Finding::missing("nvml", says, "sudo reboot  # the driver was updated under a running kernel")
        }
        (_, Some(Err(why))) => {
            let says = format!("{name}, but nvidia-smi fails: {}", why.lines().next().unwrap_or_default());
            Finding::warning("nvml", says, "nvidia-smi -q | head -40; sudo dmesg | grep -i xid")
        }
        _ => Finding::ok("nvml", name),
    }
}

/// Whether this looks like a container.
pub(super) fn is_container(root: &Path) -> bool {
    let says = |path: &str| std::fs::read(root.join(path)).unwrap_or_default();
    let in_environment = says("proc/1/environ").split(|byte| *byte == 0).any(|pair| pair.starts_with(b"container="));
    root.join(".dockerenv").exists() || root.join("run/.containerenv").exists() || in_environment
}

/// Whether the clock is kept right, where somebody on this machine can say so.
pub(super) fn clock(root: &Path) -> Finding {
    let kernel = asked("timedatectl", &["show", "--property=NTPSynchronized", "--value"]).ok();
    let chrony = || asked("chronyc", &["-c", "tracking"]).ok().map(|said| said.split(',').nth(2) != Some("0"));
    let marked = || root.join("run/systemd/timesync/synchronized").exists().then_some(true);
    let known = kernel.and_then(|said| said.parse_yes_no()).or_else(marked).or_else(chrony);
    clock_of(known, is_container(root))
}

trait YesNo {
    fn parse_yes_no(&self) -> Option<bool>;
}

impl YesNo for String {
    fn parse_yes_no(&self) -> Option<bool> {
        match self.as_str() {
            "yes" => Some(true),
            "no" => Some(false),
            _ => None,
        }
    }
}

fn clock_of(synchronised: Option<bool>, container: bool) -> Finding {
    const MEND: &str = "sudo timedatectl set-ntp true";
    match synchronised {
        Some(true) => Finding::ok("clock", "synchronised"),
        Some(false) => Finding::warning("clock", "not synchronised: deadlines and logs go by it", MEND),
        None if container => Finding::ok("clock", "the host's; nobody in this container can say whether it is right"),
        None => Finding::warning("clock", "nobody on this machine says whether it is right", MEND),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windfall_exec::FindingState;

    fn put(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder above")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn states(root: &Path) -> Vec<String> {
        driver(root).into_iter().map(|finding| format!("{} {}", finding.name, finding.state.word())).collect()
    }

    #[test]
    fn a_driver_is_looked_at_from_the_bus_to_the_library() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        assert_eq!(states(root), ["driver ok"], "a machine without accelerators lacks nothing");
        put(root, "sys/bus/pci/devices/0000:19:00.0/vendor", "0x10de\n");
        put(root, "sys/bus/pci/devices/0000:19:00.0/class", "0x030200\n");
        assert_eq!(states(root), ["driver missing"], "an accelerator without its driver");
        let version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  560.35.03  Fri Aug 16 21:39:15 UTC 2024\n";
        put(root, "proc/driver/nvidia/version", version);
        assert_eq!(states(root), ["driver missing", "nvml warning"], "no device, no library");
        put(root, "dev/nvidia0", "");
        put(root, "dev/nvidiactl", "");
        put(root, "usr/lib64/libnvidia-ml.so.550.54.15", "");
        std::os::unix::fs::symlink("libnvidia-ml.so.550.54.15", root.join("usr/lib64/libnvidia-ml.so.1"))
            .expect("linked");
        assert_eq!(states(root), ["driver ok", "nvml missing"], "a library of another version");
        std::fs::rename(
            root.join("usr/lib64/libnvidia-ml.so.550.54.15"),
            root.join("usr/lib64/libnvidia-ml.so.560.35.03"),
        )
        .expect("renamed");
        std::fs::remove_file(root.join("usr/lib64/libnvidia-ml.so.1")).expect("removed");
        std::os::unix::fs::symlink("libnvidia-ml.so.560.35.03", root.join("usr/lib64/libnvidia-ml.so.1"))
            .expect("linked");
        assert_eq!(states(root), ["driver ok", "nvml ok"]);
        assert_eq!(driver(root)[0].says, "version 560.35.03, 1 NVIDIA accelerator");
    }

    #[test]
    fn what_python_says_is_held_against_what_is_needed() {
        let of = |said: &str| python_of(said, String::new()).state;
        assert_eq!(
            (of("3.11.2 /usr/bin/python3"), of("3.9.0 /x"), of("3.10.1 /x")),
            (FindingState::Ok, FindingState::Ok, FindingState::Ok)
        );
        assert_eq!(
            (of("3.8.19 /x"), of("2.7.18 /x"), of("nonsense")),
            (FindingState::Warning, FindingState::Warning, FindingState::Warning)
        );
    }

    #[test]
    fn a_clock_nobody_speaks_for_is_a_warning_except_where_it_is_another_machines() {
        let of = |known, container| clock_of(known, container).state;
        assert_eq!(
            (of(Some(true), false), of(Some(false), false), of(Some(false), true)),
            (FindingState::Ok, FindingState::Warning, FindingState::Warning)
        );
        assert_eq!((of(None, false), of(None, true)), (FindingState::Warning, FindingState::Ok));
    }

    #[test]
    fn a_program_that_fails_is_heard() {
        assert_eq!(asked("sh", &["-c", "echo yes"]), Ok("yes".to_owned()));
        assert_eq!(asked("sh", &["-c", "echo no >&2; exit 3"]), Err("no".to_owned()));
        assert!(asked("no-such-program-anywhere", &[]).is_err());
    }
}
