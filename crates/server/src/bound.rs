//! A server that belongs to one process, as a rehearsal's does: when that process is gone, however it ended,
//! the server cancels every job, takes every lease back, and ends with its state directory.

/// The process that a server belongs to. Process numbers are given out again, so its start counts too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    pid: u32,
    started: Option<String>,
}

impl Bound {
    /// Bound to a process that runs now.
    pub fn to(pid: u32) -> Bound {
        Bound { pid, started: started(pid) }
    }

    /// Whether it has ended.
    pub fn is_gone(&self) -> bool {
        self.started.is_none() || started(self.pid) != self.started
    }
}

/// When a process started, in the kernel's ticks; none when there is no such process.
fn started(pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then(|| fields.nth(18).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_gone_and_this_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("started");
        let bound = Bound::to(child.id());
        assert!(!bound.is_gone());
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert!(bound.is_gone());
        assert!(!Bound::to(std::process::id()).is_gone());
    }
}
