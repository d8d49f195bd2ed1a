//! Services under a systemd that runs: it is the first process of a computer of its own, as far as it can tell. What it writes
//! below `/etc`, `/var` and `/home` goes with it.

use super::testbed::{Testbed, eventually, is_root, within};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Begins systemd where it can change nothing outside. `$1` is the program that it has, `$2` where what it writes goes.
const BOOT: &str = r#"
set -e
mount --make-rprivate /
mkdir -p "$2"; mount -t tmpfs none "$2"
for folder in etc var usr/local/bin home; do
  at="$2/$(echo $folder | tr / -)"; mkdir -p "$at" "$at.work"
  mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$at,workdir=$at.work" "/$folder"
done
cp "$1" /usr/local/bin/windfall; chmod 755 /usr/local/bin/windfall
rm -rf /var/lib/windfall /var/lib/windfall-agent /etc/windfall /etc/systemd/system/multi-user.target.wants
mount -t tmpfs none /run; mount -t tmpfs none /tmp; mount -t proc proc /proc
ip link set lo up
container=lxc exec /lib/systemd/systemd --system --unit=multi-user.target --log-target=console
"#;

/// Prints where it begins, counts on from there, and ends when it is told to by a file.
const JOB: &str = r#"name: counts
checkpoint: { path: out }
run: |
  mkdir -p out; n=$(cat out/n 2>/dev/null || echo 0); echo from $n
  while [ ! -e /tmp/end ]; do n=$((n + 1)); echo $n > out/n.new; mv out/n.new out/n; sleep 0.1; done
  echo done at $n
"#;

struct Booted {
    outside: Child,
    /// The manager, as processes outside see it.
    manager: String,
}

impl Booted {
    /// None where systemd is not installed, or does not begin here.
    fn start(testbed: &Testbed, test: &str) -> Option<Booted> {
        let log = std::fs::File::create(testbed.work.join("boot.log")).unwrap();
        let mut unshare = Command::new("unshare");
        let apart =
            ["--fork", "--kill-child", "--pid", "--mount", "--uts", "--ipc", "--net", "--cgroup", "--mount-proc"];
        unshare.args(apart).args(["bash", "-c", BOOT, "boot", env!("CARGO_BIN_EXE_windfall")]);
        unshare.arg(testbed.work.join("written")).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let outside = unshare.spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", outside.id());
        let mut booted = Booted { outside, manager: String::new() };
        let is_up = within(Duration::from_secs(60), || {
            booted.manager = std::fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
            let program = std::fs::read_link(format!("/proc/{}/exe", booted.manager));
            program.is_ok_and(|program| program.ends_with("systemd/systemd"))
                && ["running", "degraded"].contains(&booted.try_to_say("systemctl is-system-running").trim())
        });
        let why = || std::fs::read_to_string(testbed.work.join("boot.log")).unwrap_or_default();
        assert!(is_up || std::env::var_os("CI").is_none(), "systemd does not begin: {}", why());
        if !is_up {
            println!("skipped: {test} (systemd does not begin in namespaces here: {})", why());
        }
        is_up.then_some(booted)
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.manager, "--all", "bash", "-c", script]).stdin(Stdio::null());
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").current_dir("/");
        command
    }

    fn try_to_say(&self, script: &str) -> String {
        let said = self.command(script).output().unwrap();
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    fn says(&self, script: &str) -> String {
        let said = self.command(&format!("set -eo pipefail\n{script}")).output().unwrap();
        assert!(said.status.success(), "{script}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8_lossy(&said.stdout).into_owned()
    }

    /// A command of the person whose account the server has.
    fn windfall(&self, words: &str) -> String {
        self.says(&format!("cd ~windfall && runuser -u windfall -- windfall --home /var/lib/windfall {words}"))
    }

    fn job(&self) -> serde_json::Value {
        let jobs: serde_json::Value = serde_json::from_str(&self.windfall("jobs --all --json")).unwrap();
        jobs[0].clone()
    }

    fn counted(&self) -> u64 {
        self.try_to_say("cat ~windfall/out/n").trim().parse().unwrap_or(0)
    }

    fn is_ready(&self, node: &str) -> bool {
        let nodes: serde_json::Value = serde_json::from_str(&self.windfall("nodes --json")).unwrap();
        nodes.as_array().unwrap().iter().any(|one| one["name"] == node && one["state"] == "ready")
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        // Everything inside goes with its first process.
        let _ = self.outside.kill();
        let _ = self.outside.wait();
    }
}

#[test]
fn services_begin_with_systemd_and_jobs_do_not_notice_when_they_are_restarted() {
    if !is_root("a systemd of its own") {
        return;
    }
    if !std::path::Path::new(SYSTEMD).exists() {
        println!("skipped: services_begin_with_systemd ({SYSTEMD} is not installed)");
        return;
    }
    let testbed = Testbed::bare();
    let Some(booted) = Booted::start(&testbed, "services_begin_with_systemd") else { return };
    booted.says("useradd --system --create-home windfall; mkdir -p /etc/windfall");
    booted.says("printf '[server]\nlocal = true\nlisten = \"127.0.0.1:7443\"\n' > /etc/windfall/config.toml");
    booted.says("windfall service install server && systemctl enable --now windfall-server.service");
    booted.says(&format!("cat > ~windfall/job.yaml <<'END'\n{JOB}END\nchown windfall ~windfall/job.yaml"));
    eventually("the server answers", || booted.try_to_say("systemctl is-active windfall-server").trim() == "active");
    booted.windfall("submit job.yaml");
    eventually("it counts", || booted.counted() > 10);

    let main = || booted.says("systemctl show --property=MainPID --value windfall-server").trim().to_owned();
    let mut before = main();
    for restart in
        ["systemctl restart windfall-server", "systemctl kill --kill-whom=main --signal=KILL windfall-server"]
    {
        booted.says(restart);
        eventually("another server is there", || main() != "0" && main() != before);
        before = main();
        let counted = booted.counted();
        eventually("the job goes on", || booted.counted() > counted + 5);
        assert_eq!(
            (booted.job()["state"].as_str(), booted.job()["interruptions"].as_u64()),
            (Some("running"), Some(0))
        );
    }

    booted.says("windfall service install agent && install -d -o windfall -m 0700 /var/lib/windfall-agent");
    let join = "windfall agent join 127.0.0.1:7443 --token-file - --once --state /var/lib/windfall-agent";
    let token = booted.windfall("nodes token gpu-1 2> /dev/null");
    booted.says(&format!("echo {} | runuser -u windfall -- {join}", token.trim()));
    booted.says("systemctl enable --now windfall-agent.service");
    eventually("the node is ready", || booted.is_ready("gpu-1"));
    booted.says("systemctl restart windfall-agent");
    eventually("it is again", || booted.is_ready("gpu-1"));

    booted.says("touch /tmp/end");
    eventually("the job is done", || booted.job()["state"] == "succeeded");
    let printed = booted.windfall("logs 1");
    assert_eq!(printed.lines().filter(|line| line.starts_with("from")).collect::<Vec<_>>(), ["from 0"], "{printed}");
    booted.says("systemctl stop windfall-agent windfall-server");
    assert_eq!(booted.says("systemctl list-units --failed --plain --no-legend 'windfall*'"), "");
    assert_eq!(booted.try_to_say("pgrep -a windfall"), "", "something is left");
}
