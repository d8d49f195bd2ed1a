//! Jobs on a real Slurm cluster: a controller and its nodes on the loopback, without accounts, so that the queue is all there is
//! to see.

use super::nodes::{beginnings, free_port, has_saved, output};
use super::processes::{self, Role};
use super::testbed::{Testbed, eventually, is_root, within};
use super::witness::check_ledger;
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// What Debian's package does not start by itself.
const PROGRAMS: [&str; 3] = ["/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd"];

pub(super) const NODES: [&str; 2] = ["n1", "n2"];

/// A controller, its key service, and nodes with four accelerators each.
pub(super) struct Cluster {
    folder: PathBuf,
    running: Vec<(&'static str, Child)>,
    /// How its key service is begun.
    munge: Vec<String>,
}

impl Cluster {
    /// None where Slurm is not installed.
    pub(super) fn start(testbed: &Testbed, test: &str) -> Option<Cluster> {
        Cluster::start_with(testbed, test, |_| String::new())
    }

    /// The same with more in its configuration. `before` begins what the controller needs beside its keys, and says those lines.
    pub(super) fn start_with(
        testbed: &Testbed,
        test: &str,
        before: impl FnOnce(&mut Cluster) -> String,
    ) -> Option<Cluster> {
        if let Some(missing) = PROGRAMS.iter().find(|program| !Path::new(program).exists()) {
            println!("skipped: {test} ({missing} is not installed)");
            return None;
        }
        let folder = testbed.work.parent().unwrap().join("slurm");
        for name in ["", "state", "spool", "munge"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let mut cluster = Cluster { folder, running: Vec::new(), munge: Vec::new() };
        let at = |name: &str| cluster.folder.join(name).to_string_lossy().into_owned();
        let [controller, one, two] = [free_port(), free_port(), free_port()];
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim();
        let config = format!(
            "ClusterName=lab\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={munge}\nStateSaveLocation={state}\nSlurmdSpoolDir={spool}/%n\n\
             SlurmctldPidFile={state}/ctld.pid\nSlurmdPidFile={spool}/%n.pid\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nMpiDefault=none\nReturnToService=2\nSlurmdParameters=config_overrides\n\
             CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\nSchedulerParameters=bf_interval=2,sched_interval=2\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory\nGresTypes=gpu\nKillWait=5\n\
             PreemptType=preempt/partition_prio\nPreemptMode=CANCEL\n\
             NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={one} CPUs=8 RealMemory=16000 Gres=gpu:h100:4\n\
             NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={two} CPUs=8 RealMemory=16000 Gres=gpu:h100:4\n\
             PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=CANCEL GraceTime=30\n\
             PartitionName=short Nodes=ALL MaxTime=1 State=UP PriorityTier=1 PreemptMode=OFF\n\
             PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF\n",
            munge = at("munge.sock"),
            state = at("state"),
            spool = at("spool"),
        );
        // A bare count makes nodes invalid: each accelerator is a file.
        std::fs::write(at("gres.conf"), "NodeName=n[1-2] Name=gpu Type=h100 File=/dev/tty[1-4]\n").unwrap();
        std::fs::write(at("cgroup.conf"), "CgroupPlugin=cgroup/v1\n").unwrap();
        let key: Vec<u8> = (0..128).map(|n: u32| n.wrapping_mul(97).to_le_bytes()[0]).collect();
        std::fs::write(at("munge/key"), key).unwrap();
        for (path, mode) in [("munge/key", 0o400), ("munge", 0o700), ("", 0o755)] {
            std::fs::set_permissions(at(path), PermissionsExt::from_mode(mode)).unwrap();
        }
        let munge = [
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("munge/key")),
            format!("--socket={}", at("munge.sock")),
            format!("--pid-file={}", at("munge/pid")),
            format!("--log-file={}", at("munge/log")),
            format!("--seed-file={}", at("munge/seed")),
        ];
        cluster.munge = munge.to_vec();
        cluster.begin_keys();
        let more = before(&mut cluster);
        std::fs::write(cluster.config(), config + &more).unwrap();
        cluster.begin("slurmctld", &["-D".to_owned()]);
        NODES.iter().for_each(|node| cluster.begin_node(node));
        eventually("both nodes are idle", || {
            cluster.says("sinfo", &["-h", "-p", "gpu", "-t", "idle", "-o", "%D"]) == "2"
        });
        Some(cluster)
    }

    pub(super) fn begin_keys(&mut self) {
        let _ = std::fs::remove_file(self.folder.join("munge.sock"));
        self.begin("munged", &self.munge.clone());
        eventually("keys can be checked", || self.folder.join("munge.sock").exists());
    }

    pub(super) fn begin_node(&mut self, node: &str) {
        self.begin("slurmd", &["-D".to_owned(), "-N".to_owned(), node.to_owned()]);
    }

    pub(super) fn begin(&mut self, program: &'static str, args: &[String]) {
        let log = std::fs::File::create(self.folder.join(format!("{program}-{}.log", self.running.len()))).unwrap();
        let mut command = Command::new(format!("/usr/sbin/{program}"));
        command.args(args).env("SLURM_CONF", self.config()).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.running.push((program, command.spawn().unwrap()));
    }

    /// A file or a folder of its own.
    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("slurm.conf")
    }

    pub(super) fn says(&self, program: &str, args: &[&str]) -> String {
        let said = Command::new(program).args(args).env("SLURM_CONF", self.config()).output().unwrap();
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// The numbers of our jobs that run or wait.
    pub(super) fn pilots(&self) -> Vec<String> {
        let said = self.says("squeue", &["-h", "-a", "-t", "PD,R,CG,CF", "-o", "%i %j"]);
        let ours = said.lines().filter(|line| line.contains("windfall-"));
        ours.filter_map(|line| Some(line.split_whitespace().next()?.to_owned())).collect()
    }

    /// Kills the first one that runs of a program.
    pub(super) fn kill(&mut self, program: &str) {
        let at = self.running.iter().position(|(name, _)| *name == program).unwrap();
        self.kill_at(at);
    }

    /// Kills what begins the jobs of a node, and not the jobs.
    pub(super) fn kill_node(&mut self, node: &str) {
        let is_its = |(_, child): &(&str, Child)| processes::line(child.id() as i32).ends_with(&format!("-N {node}"));
        let at = self.running.iter().position(is_its).unwrap();
        self.kill_at(at);
    }

    fn kill_at(&mut self, at: usize) {
        let (_, mut child) = self.running.remove(at);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let jobs = self.says("squeue", &["-h", "-o", "%i"]);
        if !jobs.is_empty() {
            self.says("scancel", &jobs.lines().collect::<Vec<_>>());
            std::thread::sleep(Duration::from_secs(2));
        }
        for (_, child) in self.running.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            let ended = within(Duration::from_secs(5), || matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
            if !ended {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

pub(super) fn up(testbed: &Testbed, cluster: &Cluster, port: u16, partition: &str) {
    up_with(testbed, cluster, port, partition, Path::new(env!("CARGO_BIN_EXE_windfall")));
}

fn up_with(testbed: &Testbed, cluster: &Cluster, port: u16, partition: &str, program: &Path) {
    let scratch = testbed.work.join("scratch");
    std::fs::create_dir_all(&scratch).unwrap();
    std::fs::set_permissions(&scratch, PermissionsExt::from_mode(0o1777)).unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:{port}\"\n[slurm]\nprogram = \"{}\"\nscratch = \"{}\"\npartitions = [\"{partition}\"]\nwall = \"10h\"\n",
        program.display(),
        scratch.display()
    );
    let config = testbed.write("config.toml", &config);
    let mut up = testbed.command(&["up", "--config", config.to_str().unwrap()]);
    up.env("SLURM_CONF", cluster.config());
    testbed.finish(up).ends_with(0);
}

/// Counts on from what it saved, and ends when a file is there.
pub(super) fn counts(testbed: &Testbed, gang: u32) -> String {
    let end = testbed.work.join("end");
    format!(
        "name: counts\nnodes: {gang}\nresources: {{ accelerators: H100:2 }}\ncheckpoint: {{ path: out }}\nrun: |\n  \
         mkdir -p out; n=$(cat out/n 2>/dev/null || echo 0)\n  echo \"sees [$CUDA_VISIBLE_DEVICES]\"; echo from $n\n  \
         while [ ! -e {end} ]; do n=$((n + 1)); echo $n > out/n.new; mv out/n.new out/n; sleep 0.1; done\n  echo done at $n\n",
        end = end.display()
    )
}

#[test]
fn a_gang_on_slurm_goes_on_whoever_ends_its_job_or_the_server_or_the_controller() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(mut cluster) = Cluster::start(&testbed, "a_gang_on_slurm_goes_on") else { return };
    up(&testbed, &cluster, port, "gpu");
    eventually("the cluster has something to sell", || {
        let engines = testbed.run(&["engines", "--json"]).ends_with(0).json();
        engines.as_array().unwrap().iter().any(|one| one["name"] == "slurm" && one["offers"].as_u64() > Some(0))
    });
    let checked = testbed.run(&["engines", "check"]).ends_with(0).out;
    assert!(checked.contains("partition gpu: 2 nodes") && checked.contains("to start at"), "{checked}");
    let id = testbed.submit(&counts(&testbed, 2));
    testbed.until(id, &["running"]);
    let strays = testbed.run(&["engines", "sweep", "--dry-run", "--json"]).ends_with(0).json();
    assert_eq!(strays, serde_json::json!([]));
    eventually("it has saved", || has_saved(&testbed, id));
    assert!(output(&testbed, id).contains("sees [0,1]"), "{}", output(&testbed, id));
    let first = cluster.pilots();
    assert_eq!(first.len(), 1, "one job for both");

    // Its job is the server's only by name, and goes on without it.
    for server in processes::of(&testbed.home).iter().filter(|process| process.role == Role::Server) {
        kill_process(Pid::from_raw(server.pid).unwrap(), Signal::KILL).unwrap();
    }
    cluster.kill("slurmctld");
    up(&testbed, &cluster, port, "gpu");
    testbed.until(id, &["running"]);
    cluster.begin("slurmctld", &["-D".to_owned()]);
    eventually("the controller is back", || cluster.pilots() == first);
    assert_eq!(beginnings(&testbed, id).len(), 1, "{}", output(&testbed, id));

    let ranks = |stint: usize| beginnings(&testbed, id).len() >= stint;
    // Somebody else ends it.
    cluster.says("scancel", &[&first[0]]);
    eventually("it goes on in another job", || ranks(2) && !cluster.pilots().contains(&first[0]));
    eventually("it runs", || testbed.job(id)["state"] == "running");
    // Others need the machines: a warning comes first.
    let second = cluster.pilots();
    let script = testbed.write("urgent.sh", "#!/bin/sh\nsleep 3\n");
    let urgent =
        ["--parsable", "-p", "urgent", "--nodes=2", "--exclusive", "--output=/dev/null", script.to_str().unwrap()];
    assert!(!cluster.says("sbatch", &urgent).is_empty());
    eventually("it goes on after the others", || ranks(3) && !cluster.pilots().iter().any(|job| second.contains(job)));
    eventually("it runs", || testbed.job(id)["state"] == "running");

    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.is_sorted() && begun.len() == 3, "it went on from what was saved: {begun:?}");
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    let left = || std::fs::read_dir(testbed.work.join("scratch")).unwrap().count();
    eventually("nothing of it is on the nodes", || left() == 0);
    testbed.run(&["down"]).ends_with(0);

    // A partition that is not there is said before anybody waits for it.
    up(&testbed, &cluster, port, "gpus");
    let missing = testbed.run(&["engines", "check"]).ends_with(2).out;
    assert!(missing.contains("there is no partition gpus") && missing.contains("did you mean gpu?"), "{missing}");
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_job_outlasts_the_wall_time_of_its_machines_and_none_of_its_work_is_lost() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(cluster) = Cluster::start(&testbed, "a_job_outlasts_the_wall_time") else { return };
    up(&testbed, &cluster, port, "short");
    let id = testbed.submit(&counts(&testbed, 1));
    eventually("it goes on on a third machine", || beginnings(&testbed, id).len() >= 3);
    std::fs::write(testbed.work.join("end"), "").unwrap();
    testbed.until(id, &["succeeded"]);
    let begun = beginnings(&testbed, id);
    assert!(begun.windows(2).all(|pair| pair[0] < pair[1]), "it went on from what was saved: {begun:?}");
    let job = testbed.job(id);
    assert_eq!(job["interruptions"], 0, "what was agreed on is no interruption: {job}");
    let explained = testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
    assert!(explained.contains("ends by agreement before the work is done"), "{explained}");
    eventually("nothing of it is in the queue", || cluster.pilots().is_empty());
    testbed.run(&["down"]).ends_with(0);
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// An account that every Debian has, and that is nobody's.
const DAEMON: (&str, u32) = ("daemon", 1);

#[test]
fn a_site_s_server_submits_as_who_asked_and_their_program_s_own_srun_runs_in_its_job() {
    if !is_root("a Slurm cluster") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    let Some(cluster) = Cluster::start(&testbed, "a_site_s_server_submits_as_who_asked") else { return };
    let root = testbed.work.parent().unwrap().to_owned();
    for folder in [&root, &testbed.work] {
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).unwrap();
    }
    // Where this was built others may not look.
    let program = root.join("windfall");
    std::fs::copy(env!("CARGO_BIN_EXE_windfall"), &program).unwrap();
    up_with(&testbed, &cluster, port, "gpu", &program);
    let folder = testbed.work.join("theirs");
    std::fs::create_dir(&folder).unwrap();
    std::os::unix::fs::chown(&folder, Some(DAEMON.1), Some(DAEMON.1)).unwrap();
    let file = testbed.write(
        "theirs.yaml",
        "name: theirs\nresources: { accelerators: H100:1, cpus: 2 }\nrun: |\n  echo \"runs as $(id -u) $(id -g) $(id -G) in $SLURM_JOB_ID, task [$SLURM_PROCID$SLURM_NTASKS]\"\n  \
         srun -n 2 sh -c 'echo \"task $SLURM_PROCID of $SLURM_JOB_ID\"'\n",
    );
    let mut submit = Command::new(&program);
    submit.args(["submit", "--json", file.to_str().unwrap()]).uid(DAEMON.1).gid(DAEMON.1).current_dir(&folder);
    submit.env("WINDFALL_HOME", &testbed.home).env("SLURM_CONF", cluster.config());
    let said = submit.output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let accepted: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    let id = accepted["id"].as_u64().unwrap();
    eventually("it is theirs in the queue", || {
        cluster.says("squeue", &["-h", "-a", "-t", "all", "-o", "%u %j"]).contains("daemon windfall-")
    });
    testbed.until(id, &["succeeded", "failed"]);
    let printed = output(&testbed, id);
    let in_job = printed.lines().find_map(|line| line.strip_prefix("runs as 1 1 1 in ")?.strip_suffix(", task []"));
    let in_job = in_job.unwrap_or_else(|| panic!("it does not say who it is, or takes itself for a task: {printed}"));
    for task in 0..2 {
        assert!(printed.contains(&format!("task {task} of {in_job}")), "{printed}");
    }
    assert_eq!(testbed.job(id)["state"], "succeeded", "{printed}");
    testbed.run(&["down"]).ends_with(0);
    testbed.leaves_nothing();
}
