//! A real Kubernetes for one test, on the loopback: etcd, API server, scheduler and controllers, and one node whose kubelet runs real
//! containers through containerd and runc, in process and mount namespaces of their own, which take all of it along when they end.

use super::nodes::free_port;
use super::processes;
use super::testbed::{Testbed, eventually, in_python, within};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The image that is there, and the one that holds a pod's namespaces.
pub(super) const IMAGE: &str = "docker.io/local/box:1";
const PAUSE: &str = "docker.io/local/pause:1";
/// The accelerators that the node says it has.
const ACCELERATORS: u32 = 8;
const TOKEN: &str = "an-administrator";

/// Writes an image with a static busybox and nothing else, without any registry. Its folders are there to be mounted over.
const MAKE_IMAGE: &str = r#"
import hashlib, io, json, subprocess, sys, tarfile
name, out, command = sys.argv[1], sys.argv[2], sys.argv[3:]
layer = io.BytesIO()
with tarfile.open(fileobj=layer, mode="w") as tar:
    def add(path, kind, mode=0o755, data=b"", link=""):
        entry = tarfile.TarInfo(path)
        entry.type, entry.mode, entry.size, entry.linkname = kind, mode, len(data), link
        tar.addfile(entry, io.BytesIO(data))
    for folder in ("bin", "etc", "lib", "lib64", "opt", "root", "run", "tmp", "usr"):
        add(folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755)
    add("bin/busybox", tarfile.REGTYPE, data=open("/bin/busybox", "rb").read())
    for tool in subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True).stdout.split():
        if tool != "busybox":
            add("bin/" + tool, tarfile.SYMTYPE, link="busybox")
blob = layer.getvalue()
config = {
    "architecture": "amd64", "os": "linux",
    "config": {"Cmd": command, "Env": ["PATH=/bin:/usr/bin:/opt/windfall", "OF_IMAGE=box"]},
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(blob).hexdigest()]},
}
manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
with tarfile.open(out, "w") as tar:
    files = [("config.json", json.dumps(config).encode()), ("layer.tar", blob), ("manifest.json", json.dumps(manifest).encode())]
    for path, data in files:
        entry = tarfile.TarInfo(path)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))
"#;

pub(super) struct Cluster {
    program: PathBuf,
    folder: PathBuf,
    server: String,
    running: Vec<Part>,
}

/// A part of a cluster, and how it is begun again.
struct Part {
    name: &'static str,
    words: Vec<String>,
    child: Child,
}

impl Cluster {
    /// None where there is no Kubernetes.
    pub(super) fn start(testbed: &Testbed, test: &str) -> Option<Cluster> {
        let mut cluster = Cluster::control_plane(testbed, test, false)?;
        cluster.begin_node();
        Some(cluster)
    }

    /// The same without a node that runs anything. Those that somebody makes stay as they are, and each request is written down.
    pub(super) fn start_hollow(testbed: &Testbed, test: &str) -> Option<Cluster> {
        Cluster::control_plane(testbed, test, true)
    }

    fn control_plane(testbed: &Testbed, test: &str, is_hollow: bool) -> Option<Cluster> {
        let Some(program) = std::env::var_os("WINDFALL_TEST_KUBERNETES").map(PathBuf::from) else {
            println!("skipped: {test} (needs WINDFALL_TEST_KUBERNETES, the parts of a Kubernetes)");
            return None;
        };
        let folder = testbed.work.parent().unwrap().join("kubernetes");
        std::fs::create_dir_all(folder.join("cni")).unwrap();
        let [api, etcd, scheduler, controllers, kubelet] = [(); 5].map(|()| free_port().to_string());
        let server = format!("https://127.0.0.1:{api}");
        let mut cluster = Cluster { program, folder, server, running: Vec::new() };
        cluster.write_files(&kubelet);
        let words = [cluster.path("etcd"), etcd.clone()];
        cluster.begin("etcd", &words);
        let key = cluster.path("sa.key");
        let key_made = Command::new("openssl").args(["genrsa", "-out", &key, "2048"]).stderr(Stdio::null()).status();
        assert!(key_made.unwrap().success(), "a key for service accounts");
        let mut flags = vec![
            format!("--etcd-servers=http://127.0.0.1:{etcd}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={api}"),
            format!("--cert-dir={}", cluster.path("certificates")),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
            format!("--service-account-key-file={key}"),
            format!("--service-account-signing-key-file={key}"),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--token-auth-file={}", cluster.path("tokens.csv")),
            "--authorization-mode=RBAC".to_owned(),
            "--endpoint-reconciler-type=none".to_owned(),
            "--kubelet-preferred-address-types=Hostname".to_owned(),
        ];
        flags.extend(match is_hollow {
            false => vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
            true => vec![
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".to_owned(),
                format!("--audit-log-path={}", cluster.path("audit.log")),
                format!("--audit-policy-file={}", cluster.path("audit.json")),
            ],
        });
        cluster.begin("apiserver", &flags);
        eventually("the API server is ready", || cluster.kubectl(&["get", "--raw", "/readyz"]) == "ok");
        let of_client = |port: &str| {
            let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig());
            let port = format!("--secure-port={port}");
            let flags = [
                &*kubeconfig,
                &*port,
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--authentication-skip-lookup",
            ];
            flags.map(str::to_owned).to_vec()
        };
        let (of_scheduler, mut of_controllers) = (of_client(&scheduler), of_client(&controllers));
        of_controllers.extend([
            format!("--service-account-private-key-file={key}"),
            format!(
                "--controllers=*,-node-ipam-controller,-node-route-controller,-cloud-node-lifecycle-controller{}",
                if is_hollow { ",-node-lifecycle-controller" } else { "" }
            ),
            "--node-monitor-grace-period=12s".to_owned(),
        ]);
        cluster.begin("scheduler", &of_scheduler);
        cluster.begin("controllers", &of_controllers);
        Some(cluster)
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    pub(super) fn kubeconfig(&self) -> String {
        self.path("kubeconfig")
    }

    /// A kubeconfig of somebody else's.
    pub(super) fn kubeconfig_of(&self, name: &str, token: &str) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{ "name": "c", "cluster": { "server": self.server, "insecure-skip-tls-verify": true } }],
            "users": [{ "name": "u", "user": { "token": token } }],
            "contexts": [{ "name": "x", "context": { "cluster": "c", "user": "u" } }],
        });
        std::fs::write(self.folder.join(name), config.to_string()).unwrap();
        self.path(name)
    }

    fn write_files(&self, kubelet_port: &str) {
        self.kubeconfig_of("kubeconfig", TOKEN);
        let write = |name: &str, text: &str| std::fs::write(self.folder.join(name), text).unwrap();
        write("tokens.csv", &format!("{TOKEN},admin,admin,\"system:masters\"\n"));
        let audit = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
        write("audit.json", &audit.to_string());
        let network = json!({
            "cniVersion": "0.4.0", "name": "local",
            "plugins": [{ "type": "ptp", "ipam": { "type": "host-local", "subnet": "10.244.77.0/24" } }],
        });
        write("cni/10-local.conflist", &network.to_string());
        let containerd = format!(
            "version = 2\ndisabled_plugins = [\"io.containerd.internal.v1.opt\"]\nroot = \"{root}\"\nstate = \"{state}\"\n[grpc]\n  address = \"{socket}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  restrict_oom_score_adj = true\n  sandbox_image = \"{PAUSE}\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/usr/lib/cni\"\n  conf_dir = \"{cni}\"\n",
            root = self.path("containerd"),
            state = self.path("containerd-state"),
            socket = self.socket(),
            cni = self.path("cni"),
        );
        write("containerd.toml", &containerd);
        let kubelet = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "failCgroupV1": false, "cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": format!("unix://{}", self.socket()),
            "address": "127.0.0.1", "port": kubelet_port.parse::<u16>().unwrap(), "readOnlyPort": 0, "healthzPort": 0,
            "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
            "authorization": { "mode": "AlwaysAllow" },
            "failSwapOn": false, "localStorageCapacityIsolation": false, "makeIPTablesUtilChains": false,
        });
        write("kubelet.json", &kubelet.to_string());
    }

    fn socket(&self) -> String {
        self.path("containerd.sock")
    }

    fn begin(&mut self, part: &'static str, flags: &[String]) {
        let words = [&[self.program.display().to_string(), part.to_owned()][..], flags].concat();
        self.begin_logged(part, words);
    }

    fn begin_logged(&mut self, name: &'static str, words: Vec<String>) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join(format!("{name}.log")));
        let log = log.unwrap();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        self.running.push(Part { name, words, child });
    }

    fn part(&mut self, name: &str) -> &mut Part {
        self.running.iter_mut().find(|part| part.name == name).unwrap()
    }

    /// Kills a part of the control plane, or all of the node at once.
    pub(super) fn kill(&mut self, name: &str) {
        let part = self.part(name);
        part.child.kill().unwrap();
        part.child.wait().unwrap();
    }

    /// Begins a part that was killed as it was begun before. What it kept is still there.
    pub(super) fn begin_again(&mut self, name: &'static str) {
        let at = self.running.iter().position(|part| part.name == name).unwrap();
        let part = self.running.remove(at);
        self.begin_logged(name, part.words);
        // Parts end in the opposite order.
        let part = self.running.pop().unwrap();
        self.running.insert(at, part);
    }

    /// Begins the node anew after it was killed: nothing of what ran there runs, and the kubelet knows nothing of it.
    pub(super) fn begin_node_again(&mut self) {
        let before = self.registrations();
        self.begin_again("node");
        self.give_accelerators(before);
    }

    /// The kubelet, if it runs.
    pub(super) fn kubelet(&self) -> Option<i32> {
        let file = self.path("kubelet.json");
        let is_it = |pid: &i32| processes::line(*pid).starts_with(&format!("{} kubelet ", self.program.display()));
        processes::with_word(&file).into_iter().find(is_it)
    }

    /// Begins a kubelet that was killed, among the containers that it left.
    pub(super) fn begin_kubelet_again(&self) {
        let node = self.running.iter().find(|part| part.name == "node").unwrap();
        let first = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", node.child.id())).unwrap();
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("node.log")).unwrap();
        let mut command = Command::new("nsenter");
        command.args(["--target", first.trim(), "--mount", "--pid", "sh", "-c"]);
        // Its parent goes: the first process of the namespace waits for it.
        command.arg(format!("{} &", self.kubelet_line())).stdin(Stdio::null());
        assert!(command.stdout(log.try_clone().unwrap()).stderr(log).status().unwrap().success());
    }

    /// Has the kubelet say who it is once more, for a node that somebody has deleted.
    pub(super) fn register_again(&self) {
        let before = self.registrations();
        processes::signal(self.kubelet().unwrap(), Signal::KILL);
        self.begin_kubelet_again();
        self.give_accelerators(before);
    }

    fn kubelet_line(&self) -> String {
        let labels = "topology.kubernetes.io/zone=zone-a,nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3";
        format!(
            "{} kubelet --kubeconfig={} --config={} --root-dir={} --cert-dir={} --hostname-override=localhost --node-labels={labels}",
            self.program.display(),
            self.kubeconfig(),
            self.path("kubelet.json"),
            self.path("kubelet"),
            self.path("pki"),
        )
    }

    /// Begins containerd and the kubelet. The first process of their namespace is a shell that waits: when it is killed, so is
    /// every container.
    fn begin_node(&mut self) {
        for (name, words) in [(PAUSE, ["sleep", "2147483647"].as_slice()), (IMAGE, &["sh"])] {
            let file = self.folder.join(format!("{}.tar", if name == PAUSE { "pause" } else { "box" }));
            let args: Vec<&Path> = [Path::new(name), &file].into_iter().chain(words.iter().map(Path::new)).collect();
            in_python(MAKE_IMAGE, &args);
        }
        let mut script = String::from("set -e\n");
        for folder in ["/var/log", "/run/containerd", "/run/netns", "/var/lib/kubelet"] {
            writeln!(script, "mkdir -p {folder}; mount -t tmpfs none {folder}").unwrap();
        }
        // A kubelet that begins again and has known a device plugin before leaves it to that what the node has.
        let known = "/var/lib/kubelet/device-plugins";
        writeln!(script, "mkdir -p {known}; echo '{{}}' > {known}/kubelet_internal_checkpoint").unwrap();
        let socket = self.socket();
        writeln!(script, "containerd -c {} > {} 2>&1 &", self.path("containerd.toml"), self.path("containerd.log"))
            .unwrap();
        writeln!(script, "until ctr -a {socket} version > /dev/null 2>&1; do sleep 0.2; done").unwrap();
        for image in ["pause", "box"] {
            writeln!(script, "ctr -a {socket} -n k8s.io images import {}", self.path(&format!("{image}.tar"))).unwrap();
        }
        writeln!(script, "{} &", self.kubelet_line()).unwrap();
        // In the loop, what is orphaned is waited for as well.
        script.push_str("while true; do wait; sleep 1; done\n");
        let unshare =
            ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", &script];
        let before = self.registrations();
        self.begin_logged("node", unshare.map(str::to_owned).to_vec());
        self.give_accelerators(before);
    }

    /// How often a kubelet has said who it is.
    fn registrations(&self) -> usize {
        let log = std::fs::read_to_string(self.folder.join("node.log")).unwrap_or_default();
        log.matches("Successfully registered node").count()
    }

    /// Whether the node is there and well.
    pub(super) fn is_ready(&self) -> bool {
        self.kubectl(&["get", "nodes", "--no-headers"]).contains(" Ready")
    }

    /// Says for a node that has been registered what a device plugin says.
    fn give_accelerators(&self, registered_before: usize) {
        eventually("the node is ready", || self.registrations() > registered_before && self.is_ready());
        let amount = |of: &str| json!({ "op": "add", "path": format!("/status/{of}/nvidia.com~1gpu"), "value": ACCELERATORS.to_string() });
        let patch = json!([amount("capacity"), amount("allocatable")]).to_string();
        self.kubectl(&["patch", "node", "localhost", "--subresource=status", "--type=json", "-p", &patch]);
    }

    /// What `kubectl` prints; nothing where it fails.
    pub(super) fn kubectl(&self, args: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").args(args).env("KUBECONFIG", self.kubeconfig()).env("HOME", &self.folder);
        let said = command.stdin(Stdio::null()).output().unwrap();
        String::from_utf8_lossy(&said.stdout).trim().to_owned()
    }

    /// The objects of a kind, in the namespace that is the usual one.
    pub(super) fn objects(&self, kind: &str) -> Vec<Value> {
        let said = self.kubectl(&["get", kind, "-o", "json"]);
        let all: Value = serde_json::from_str(&said).unwrap_or_default();
        all["items"].as_array().cloned().unwrap_or_default()
    }

    /// The names of those of ours.
    pub(super) fn ours(&self, kind: &str) -> Vec<String> {
        let said = self.kubectl(&["get", kind, "-l", "windfall.dev/installation", "-o", "name"]);
        said.lines().map(|line| line.rsplit('/').next().unwrap_or_default().to_owned()).collect()
    }

    /// How often a hollow cluster was asked for what by whoever calls himself this.
    pub(super) fn requests_of(&self, agent: &str) -> BTreeMap<String, u64> {
        let log = std::fs::read_to_string(self.folder.join("audit.log")).unwrap_or_default();
        let mut asked = BTreeMap::new();
        for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            // A watch that goes on is not complete.
            let is_watch = line["verb"] == "watch";
            let stage = if is_watch { "ResponseStarted" } else { "ResponseComplete" };
            if line["userAgent"] == agent && line["stage"] == stage {
                let what = format!("{} {}", line["verb"], line["objectRef"]["resource"]).replace('"', "");
                *asked.entry(what).or_default() += 1;
            }
        }
        asked
    }

    /// Has objects be so.
    pub(super) fn apply(&self, objects: &Value) {
        let file = self.folder.join("objects.json");
        std::fs::write(&file, objects.to_string()).unwrap();
        let said = self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        assert!(!said.is_empty(), "applied: {objects}");
    }

    /// Evicts a pod as whoever drains its node does.
    pub(super) fn evict(&self, pod: &str) {
        let said = self.try_to_evict(pod);
        assert!(said.contains("Success"), "{said}");
    }

    /// The same of one that may be gone meanwhile.
    pub(super) fn try_to_evict(&self, pod: &str) -> String {
        let eviction = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": pod, "namespace": "default" } });
        let file = self.folder.join("eviction.json");
        std::fs::write(&file, eviction.to_string()).unwrap();
        let path = format!("/api/v1/namespaces/default/pods/{pod}/eviction");
        self.kubectl(&["create", "--raw", &path, "-f", file.to_str().unwrap()])
    }

    fn tell_what_was(&self) {
        for args in [["get", "jobs,pods", "-o", "wide"], ["get", "events", "--sort-by", ".lastTimestamp"]] {
            eprintln!("--- kubectl {}\n{}", args.join(" "), self.kubectl(&args));
        }
        for log in ["node", "containerd"] {
            let text = std::fs::read_to_string(self.folder.join(format!("{log}.log"))).unwrap_or_default();
            let last: Vec<&str> = text.lines().rev().take(30).collect();
            eprintln!("--- {log}.log\n{}", last.into_iter().rev().collect::<Vec<_>>().join("\n"));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_what_was();
        }
        // Pods leave their control groups behind when they are killed.
        self.kubectl(&["delete", "jobs,pods", "--all", "--grace-period=1", "--timeout=20s", "--request-timeout=20s"]);
        // The node first: it would begin anew what is ended under it.
        for Part { child, .. } in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = within(Duration::from_secs(10), || matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
        }
    }
}
