//! What one person's program tries against another's job, the server and its node: all that it can do is said.

use super::people::{ADA, BOB, PYTHON, People, uid_of};
use super::processes;
use std::path::Path;

/// Tries what a program must not be able to do to others, says each thing that it could do, and at the end how many it tried.
const ATTACK: &str = r#"
import ctypes, glob, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
home, victim, pids, secrets = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), json.loads(sys.argv[4])
tried = 0
def attempt(what, do):
    global tried
    tried += 1
    try:
        done = do()
    except OSError:
        return
    if done is not False:
        print("COULD", what, repr(done)[:200], flush=True)
for pid in pids:
    attempt(f"signal {pid}", lambda: os.kill(pid, 0) or True)
    attempt(f"trace {pid}", lambda: libc.ptrace(16, pid, 0, 0) == 0)
    for name in ["environ", "mem", "maps", "cwd", "fd", "root", "exe"]:
        path = f"/proc/{pid}/{name}"
        read = (lambda: os.listdir(path)) if name == "fd" else (lambda: os.readlink(path)) if name in ("cwd", "root", "exe") else (lambda: open(path, "rb").read(64))
        attempt(path, read)
for path in secrets:
    attempt("read " + path, lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(64))
    attempt("write " + path, lambda: open(path, "ab").write(b"x"))
    attempt("remove " + path, lambda: os.rename(path, path + ".gone"))
for pattern in ["leases", "leases/*", "jobs", "jobs/*", "checkpoints", "folders", "machines"]:
    attempt("list " + pattern, lambda: glob.glob(f"{home}/{pattern}/*") or False)
def ask(path, line):
    stream = socket.socket(socket.AF_UNIX); stream.settimeout(20); stream.connect(path)
    stream.sendall(line); return stream.recv(4096)
relay = os.environ["RELAY"]
for part in ["", "/folder", "/outputs"]:
    attempt("store" + part, lambda: ask(relay, f"{victim}{part}\n".encode()).startswith(b"ok"))
for socket_path in [path for path in secrets if path.endswith("agent.sock")]:
    attempt("agent", lambda: ask(socket_path, b'{"watch":{"above":0}}\n'))
for line in ["GET /v1/jobs/%s/logs", "GET /v1/jobs/%s/spec", "GET /v1/jobs/%s/explain", "GET /v1/jobs/%s/stints", "GET /v1/jobs/%s/outputs", "POST /v1/jobs/%s/cancel", "POST /v1/shutdown"]:
    line = line % victim if "%" in line else line
    said = ask(home + "/server.sock", f"{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".encode())
    attempt(line, lambda: said if b" 403 " not in said.split(b"\r\n")[0] else False)
def http(method, path, body=b""):
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    stream = socket.socket(socket.AF_UNIX); stream.settimeout(60); stream.connect(home + "/server.sock")
    stream.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    said = b"".join(iter(lambda: stream.recv(65536), b""))
    return said.split(b"\r\n")[0], said.partition(b"\r\n\r\n")[2]
# What is his own he gets, and it is a submission that the server would take; going on from hers is not.
first, spec = http("GET", "/v1/jobs/%s/spec" % os.environ["WINDFALL_JOB"])
if b" 200 " not in first:
    print("Traceback", first, spec, flush=True)
spec = json.loads(spec[spec.index(b"{"):spec.rindex(b"}") + 1])
spec = spec.get("spec", spec)
for n, (changed, continues) in enumerate([({}, int(victim)), ({"secrets": {"OFFERED": "server"}}, None)]):
    luggage = {**(spec["run"].get("luggage") or {}), **changed}
    asked = {**spec, "run": {**spec["run"], "luggage": luggage}} if changed else spec
    body = json.dumps({"key": f"stolen-{n}", "spec": asked, "deadline_in": None, "env": {}, "continues": continues})
    first, said = http("POST", "/v1/jobs", body.encode())
    attempt(f"go on from hers, or have a secret of the server's: {n}", lambda: (first, said[:300]) if b" 403 " not in first else False)
attempt("be spared when memory is short", lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1"))
print("tried", tried, flush=True)
"#;

/// Bob's program attacks Ada's job, her files, the server, and what is its own agent's neighbour.
pub fn attacked(people: &People, victim: u64, relay: &Path, secrets: &[String]) -> String {
    let pids = people.processes_of(ADA).into_iter().chain(servers(people)).collect::<Vec<i32>>();
    assert!(pids.len() >= 4, "a guard, an agent, a program and a server: {pids:?}");
    people.write(BOB, "attack.py", ATTACK);
    let list = |all: &[String]| serde_json::to_string(all).unwrap().replace('\'', "");
    let job = format!(
        "env: {{ RELAY: {} }}\nrun: |\n  {PYTHON} attack.py {} {victim} '{}' '{}'\n",
        relay.display(),
        people.testbed.home.display(),
        serde_json::to_string(&pids).unwrap(),
        list(secrets)
    );
    let id = people.submit(BOB, &job);
    people.testbed.until(id, &["succeeded", "failed"]);
    people.logs(BOB, id)
}

/// Servers and agents of root's.
pub fn servers(people: &People) -> Vec<i32> {
    let homes = [people.testbed.home.clone(), people.node()];
    let all = homes.iter().flat_map(|home| processes::of(home)).map(|process| process.pid);
    let is_ours = |pid: &i32| uid_of(*pid) == Some(0);
    let mut pids: Vec<i32> = all.filter(is_ours).collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
