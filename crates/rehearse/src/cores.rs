//! How many acts fit side by side on this machine: what the program uses of its cores, and what others leave of them.

/// Clock ticks a second in `/proc`; the same on every Linux of today.
const TICKS: f64 = 100.0;
/// More at once make the moments of interruptions hard to hit.
const MOST: usize = 4;
/// Even a program that sleeps needs this much of a core: it is copied, started and watched.
const LEAST: f64 = 0.25;

/// What a program uses of a machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Of a processor, so far.
    pub seconds: f64,
    /// Bytes of memory.
    pub memory: u64,
}

impl Used {
    pub fn most(self, other: Used) -> Used {
        Used { seconds: self.seconds.max(other.seconds), memory: self.memory.max(other.memory) }
    }
}

/// What the processes of a group use.
pub fn used_by_group(group: u32) -> Used {
    let of_group = |stat: &Stat| stat.group == group;
    stats().iter().filter(|stat| of_group(stat)).fold(Used::default(), |sum, stat| Used {
        seconds: sum.seconds + stat.ticks as f64 / TICKS,
        memory: sum.memory + stat.pages * rustix::param::page_size() as u64,
    })
}

/// The processes of a group, by number.
pub fn of_group(group: u32) -> Vec<u32> {
    stats().into_iter().filter(|stat| stat.group == group && stat.state != "Z").map(|stat| stat.pid).collect()
}

struct Stat {
    pid: u32,
    group: u32,
    ticks: u64,
    pages: u64,
    state: String,
}

fn stats() -> Vec<Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let read = |name: std::ffi::OsString| {
        let pid: u32 = name.to_str()?.parse().ok()?;
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in brackets may hold anything; what follows the last one does not.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let group = u32::try_from(number(2)?).ok()?;
        Some(Stat {
            pid,
            group,
            ticks: number(11)? + number(12)?,
            pages: number(21)?,
            state: (*fields.first()?).to_owned(),
        })
    };
    entries.filter_map(|entry| read(entry.file_name())).collect()
}

/// Whether a process has a handler of its own for SIGTERM, or holds the signal back to fetch it itself (sigwait).
pub fn catches_sigterm(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let masks = status.lines().filter_map(|line| line.strip_prefix("SigCgt:").or(line.strip_prefix("SigBlk:")));
    masks.filter_map(|hex| u64::from_str_radix(hex.trim(), 16).ok()).any(|bits| bits >> (15 - 1) & 1 == 1)
}

/// How many acts to play at the same time, for a program that uses so many cores and so much memory.
pub fn at_once(cores_used: f64, memory_used: u64) -> usize {
    let devices = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    // Two programs on one accelerator may not both fit into its memory.
    if devices.map(|entry| entry.file_name()).any(|name| is_accelerator(&name.to_string_lossy())) {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
    fitting(cores as f64, load, cores_used).min(in_memory(memory_used))
}

fn fitting(cores: f64, load: f64, used: f64) -> usize {
    let free = cores - (load - used).max(0.0);
    ((free / used.max(LEAST)).floor().max(1.0) as usize).min(MOST)
}

/// Half of the memory that is free is left alone: a program may use more after its restart than it did before.
fn in_memory(used: u64) -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let free = available.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    free.map_or(MOST, |kib| (kib * 1_024 / 2 / used.max(1)).clamp(1, MOST as u64) as usize)
}

/// Whether a file of `/dev` is an accelerator of NVIDIA, AMD, Google, AWS, Intel or Huawei.
fn is_accelerator(name: &str) -> bool {
    let numbered = |prefix: &str| {
        name.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    matches!(name, "kfd" | "accel") || ["nvidia", "accel", "neuron", "hl", "davinci"].into_iter().any(numbered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_acts_fit_as_free_cores_allow() {
        assert_eq!(fitting(16.0, 1.0, 1.0), 4);
        assert_eq!(fitting(4.0, 2.0, 2.0), 2);
        assert_eq!(fitting(8.0, 6.0, 1.0), 3);
        assert_eq!(fitting(2.0, 7.0, 0.1), 1, "a busy machine");
        assert_eq!(fitting(8.0, 8.0, 8.0), 1, "a program that uses all of them");
    }

    #[test]
    fn accelerators_of_every_maker_and_every_number_are_seen() {
        for name in ["nvidia0", "nvidia7", "kfd", "accel0", "accel", "neuron12", "hl0", "davinci3"] {
            assert!(is_accelerator(name), "{name}");
        }
        for name in ["nvidiactl", "nvidia-uvm", "hlx", "accelerometer", "null", "neuron"] {
            assert!(!is_accelerator(name), "{name}");
        }
        assert_eq!(in_memory(u64::MAX / 4_096), 1, "one always fits");
        assert!(in_memory(1) > 1);
    }

    #[test]
    fn a_handler_is_seen_in_the_kernels_books() {
        let sleeps = |script: &str| {
            let mut command = std::process::Command::new("python3");
            let ready = "import signal,sys,time\n";
            command.args(["-c", &format!("{ready}{script}\nprint(1, flush=True)\ntime.sleep(60)")]);
            let mut child = command.stdout(std::process::Stdio::piped()).spawn().expect("python3 starts");
            std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut [0; 1]).expect("it is ready");
            let catches = catches_sigterm(child.id());
            child.kill().expect("killed");
            child.wait().expect("waited for");
            catches
        };
        assert!(sleeps("signal.signal(signal.SIGTERM, lambda *_: None)"));
        assert!(sleeps("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])"));
        assert!(!sleeps("signal.signal(signal.SIGTERM, signal.SIG_IGN)"));
    }
}
