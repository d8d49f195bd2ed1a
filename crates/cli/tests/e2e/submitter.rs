//! What is one person's stays theirs: an agent of root's runs each job as whoever submitted it, and nobody gets at what is
//! another's, by a program, a link, a checkpoint or an output.

use super::attack::{attacked, servers};
use super::nodes::free_port;
use super::people::{ADA, BOB, CAROL, PYTHON, People, Person, SPARE, files_below, uid_of};
use super::processes::{self, Role};
use super::testbed::{eventually, is_root};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Says who it is, saves, and waits for a file.
const STEADY: &str = "\
checkpoint: { path: out, settle: 200ms }
run: |
  echo \"uid $(id -u) groups $(id -G | tr ' ' ,) new privileges $(grep NoNewPrivs /proc/self/status | cut -f2) home $HOME\"
  mkdir -p out; n=$(cat out/n 2>/dev/null || echo 0); echo from $n; echo $((n + 1)) > out/n
  echo secret-of-$(id -un 2>/dev/null || id -u) > mine; chmod 600 mine
  until [ -e end ]; do sleep 0.1; done; echo done
";

fn has_saved(people: &People, person: Person, id: u64) -> bool {
    people.run(person, &["explain", "--all", &id.to_string()]).ends_with(0).out.contains("is durable")
}

fn end(people: &People, person: Person, id: u64) {
    people.write(person, "end", "");
    people.testbed.until(id, &["succeeded"]);
    std::fs::remove_file(people.folder(person).join("end")).unwrap();
}

#[test]
fn a_server_of_root_s_runs_each_job_as_whoever_submitted_it_and_nobody_gets_at_another_s() {
    if !is_root("a_server_of_root_s_runs_each_job_as_whoever_submitted_it_and_nobody_gets_at_another_s") {
        return;
    }
    let mut people = People::new();
    people.up(&["--local", "--accelerators", "H200:2"]);
    let home = people.testbed.home.clone();
    let ada = people.submit(ADA, STEADY);
    let said = people.until_says(ADA, ada, "from 0");
    let folder = people.folder(ADA);
    let expected = format!(
        "uid {0} groups {0},{1} new privileges 1 home {2}\nfrom 0\n",
        people.uid(ADA),
        people.group_of_ada(),
        folder.display()
    );
    assert_eq!(said, expected);
    eventually("it has saved", || has_saved(&people, ADA, ada));

    // All of it is hers: who runs it, what it printed and what it wrote. The checkpoints are with the server.
    let on_lease: Vec<_> = processes::of(&home).into_iter().filter(|process| process.lease.is_some()).collect();
    for role in [Role::Guard, Role::Agent] {
        assert!(on_lease.iter().any(|process| process.role == role), "{on_lease:?}");
    }
    assert!(on_lease.iter().all(|process| uid_of(process.pid) == Some(people.uid(ADA))), "{on_lease:?}");
    // When memory is short the program goes before those who keep it, and the server after them.
    let score = |pid: i32| -> i32 {
        std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
    };
    let of_role = |role: &Role| on_lease.iter().find(|process| process.role == *role).unwrap().pid;
    for keeper in [Role::Guard, Role::Agent] {
        assert!(score(of_role(&keeper)) + 100 <= score(of_role(&Role::Program)), "{keeper:?}");
    }
    assert!(servers(&people).iter().all(|pid| score(*pid) <= 0));
    let logs: Vec<_> =
        files_below(&home.join("jobs")).into_iter().filter(|(path, _)| path.ends_with("stint-00001-0.log")).collect();
    assert!(logs.len() == 1 && logs[0].1 == people.uid(ADA), "{logs:?}");
    assert!(
        files_below(&home.join("leases"))
            .iter()
            .any(|(path, uid)| path.ends_with("agent.sock") && *uid == people.uid(ADA))
    );
    assert!(files_below(&home.join("checkpoints")).iter().all(|(_, uid)| *uid == 0));
    assert!(files_below(&folder).iter().all(|(_, uid)| *uid == people.uid(ADA)));

    let secret = people.of_root("root-only", "secret-of-root");
    let of_leases = files_below(&home.join("leases")).into_iter().map(|(path, _)| path);
    let own = [secret, folder.join("mine"), folder.join("out"), logs[0].0.clone(), home.join("secrets.key")];
    let more = [home.join("state.db"), home.join("leases"), home.join("checkpoints"), home.join("server.log")];
    let secrets = own.into_iter().chain(more).chain(of_leases).map(|path| path.display().to_string());
    let secrets: Vec<String> = secrets.collect();
    let said = attacked(&people, ada, &home.join("relay.sock"), &secrets);
    assert!(!said.contains("COULD") && !said.contains("secret-of"), "{said}");
    assert!(said.contains("tried ") && !said.contains("Traceback"), "{said}");
    assert_eq!(people.testbed.job(ada)["state"], "running", "she noticed nothing");
    // Root's own jobs are root's here.
    let root = people.testbed.submit("run: id -u\n");
    people.testbed.until(root, &["succeeded"]);
    assert_eq!(people.testbed.run(&["logs", &root.to_string()]).ends_with(0).out, "0\n");

    // Her program is killed; what she saved comes back as hers.
    let program = processes::of_job(ada).into_iter().find(|pid| uid_of(*pid) == Some(people.uid(ADA))).unwrap();
    processes::signal(program, rustix::process::Signal::KILL);
    people.until_says(ADA, ada, "from 1");
    assert!(files_below(&folder).iter().all(|(_, uid)| *uid == people.uid(ADA)));
    end(&people, ADA, ada);
    eventually("nothing of theirs runs", || [ADA, BOB].iter().all(|person| people.processes_of(*person).is_empty()));
    people.testbed.leaves_nothing();
}

#[test]
fn an_agent_of_root_s_runs_a_job_as_its_submitter_as_a_spare_account_or_not_at_all() {
    if !is_root("an_agent_of_root_s_runs_a_job_as_its_submitter_as_a_spare_account_or_not_at_all") {
        return;
    }
    let mut people = People::new();
    let port = free_port();
    people.up(&["--listen", &format!("127.0.0.1:{port}")]);
    let token = people.testbed.run(&["nodes", "token", "lab-1"]).ends_with(0).out.trim().to_owned();
    people.start_agent(port, &["--token", &token]);
    let is_ready =
        |people: &People| people.testbed.run(&["nodes", "--json"]).ends_with(0).json()[0]["state"] == "ready";
    eventually("it is ready", || is_ready(&people));
    let ada = people.submit(ADA, STEADY);
    let folder = people.folder(ADA);
    let said = people.until_says(ADA, ada, "from 0");
    let expected = format!(
        "uid {0} groups {0},{1} new privileges 1 home {2}\nfrom 0\n",
        people.uid(ADA),
        people.group_of_ada(),
        folder.display()
    );
    assert_eq!(said, expected);
    eventually("it has saved", || has_saved(&people, ADA, ada));
    let node = people.node();
    let mine: Vec<_> = files_below(&node.join("jobs"));
    assert!(mine.iter().any(|(path, _)| path.to_string_lossy().ends_with(".log")), "{mine:?}");
    assert!(mine.iter().all(|(_, uid)| *uid == people.uid(ADA)), "{mine:?}");
    let keys = ["node.key", "joined.json", "leases", "jobs"].map(|name| node.join(name));
    let of_leases = files_below(&node.join("leases")).into_iter().map(|(path, _)| path);
    let secrets: Vec<String> =
        keys.into_iter().chain([folder.join("mine")]).chain(of_leases).map(|path| path.display().to_string()).collect();
    let said = attacked(&people, ada, &node.join("relay.sock"), &secrets);
    assert!(!said.contains("COULD") && !said.contains("secret-of"), "{said}");
    assert!(said.contains("tried ") && !said.contains("Traceback"), "{said}");

    // Whom the machine does not know, and root, run nothing there; the job says why.
    for (id, says) in [
        (
            people.submit(CAROL, "run: id -u\n"),
            "node lab-1 has no account `carol`: its operator adds one, or says --run-as",
        ),
        (people.testbed.submit("run: id -u\n"), "node lab-1 runs nothing as root: submit it as yourself"),
    ] {
        people.testbed.until(id, &["failed"]);
        let why = people.testbed.run(&["explain", &id.to_string()]).ends_with(0).out;
        assert!(why.contains(says), "{why}");
    }
    // Its operator chooses an account for them; what runs goes on.
    people.stop_agent();
    let refused = people
        .testbed
        .run(&["agent", "join", "--state", &node.display().to_string(), "--run-as", "nobody-there"])
        .ends_with(2);
    assert!(refused.err.contains("--run-as: no account of this machine: nobody-there"), "{refused:?}");
    people.start_agent(port, &["--run-as", SPARE.name]);
    eventually("it is back", || is_ready(&people));
    // They are another user there, so the folder that their jobs run in is open to others.
    std::fs::set_permissions(people.folder(CAROL), PermissionsExt::from_mode(0o755)).unwrap();
    let nodes = people.testbed.run(&["nodes", "--json"]).ends_with(0).json();
    assert_eq!(nodes[0]["programs"]["submitter"]["otherwise"], "spare", "{nodes}");
    assert!(people.testbed.run(&["nodes"]).ends_with(0).out.contains("submitter or spare"));
    let said = people.testbed.run(&["node", "lab-1"]).ends_with(0).out;
    assert!(said.contains("run as whoever submitted them, or as spare"), "{said}");
    // What another process has started for it, outside its control group and without its mark, ends with the last lease.
    let mut outside = people.command(SPARE, "sleep", &["600"]);
    outside.current_dir("/").env_clear().env("PATH", "/usr/bin:/bin");
    let carol = people.submit(CAROL, "run: echo as $(id -un); until [ -e end ]; do sleep 0.1; done\n");
    people.until_says(CAROL, carol, "as spare\n");
    let mut outside = outside.spawn().unwrap();
    people.write(CAROL, "end", "");
    people.testbed.until(carol, &["succeeded"]);
    let ended = (0..600).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(50));
        outside.try_wait().unwrap().is_some()
    });
    let _ = outside.kill();
    assert!(ended, "what left the lease goes on");
    std::fs::remove_file(people.folder(CAROL).join("end")).unwrap();
    assert_eq!(people.testbed.job(ada)["state"], "running");
    end(&people, ADA, ada);
    eventually("nothing of theirs is left", || files_below(&node.join("jobs")).is_empty());
    eventually("nothing of theirs runs", || {
        [ADA, BOB, SPARE].iter().all(|person| people.processes_of(*person).is_empty())
    });
    people.testbed.leaves_nothing();
}

/// Puts links, pipes and other people's files where what it saves, brings back and prints is looked for, and changes them
/// while they are looked at.
const LINKS: &str = r#"
import os, sys, time
root_only, of_ada, outside = sys.argv[1:4]
os.makedirs("out", exist_ok=True)
print("found", sorted(os.listdir("out")), flush=True)
log = os.readlink("/proc/self/fd/1")
for name, target in [("a", root_only), ("b", of_ada), ("c", os.path.dirname(of_ada)), ("d", "/etc/shadow")]:
    if not os.path.islink("out/" + name):
        os.symlink(target, "out/" + name)
for name, target in [("hard", root_only), ("hard-b", of_ada)]:
    try:
        os.link(target, "out/" + name)
        print("COULD link", target, flush=True)
    except OSError:
        pass
try:
    os.mkfifo("out/pipe")
except FileExistsError:
    pass
with open("out/n", "w") as n:
    n.write("saved-by-bob")
time.sleep(1)
# Whoever reads these while they change must read neither.
for n in range(400):
    for name, target in [("swapped", root_only), ("swapped-b", of_ada)]:
        new = "out/." + name
        if n % 2:
            os.symlink(target, new)
        else:
            open(new, "w").write("harmless")
        os.rename(new, "out/" + name)
# Nor is a link read in the place of what it printed.
os.rename(log, log + ".real")
os.symlink(root_only, log)
folder = os.path.dirname(log)
for name in ["stint-00007-0.log", "stint-00008-0.log"]:
    os.symlink(of_ada if "7" in name else root_only, os.path.join(folder, name))
os.mkfifo(os.path.join(folder, "stint-00009-0.log"))
if os.path.exists("again"):
    os.rename("out", "out.was")
    os.symlink(outside, "out")
    os.rename("again", "killed")
while not os.path.exists("end"):
    time.sleep(0.1)
"#;

#[test]
fn links_pipes_and_files_of_others_give_nothing_away_and_a_restore_writes_nothing_outside() {
    if !is_root("links_pipes_and_files_of_others_give_nothing_away_and_a_restore_writes_nothing_outside") {
        return;
    }
    let mut people = People::new();
    people.up(&["--local", "--accelerators", "H200:2"]);
    let home = people.testbed.home.clone();
    let root_only = people.of_root("root-only", "secret-of-root");
    let of_ada = people.write(ADA, "mine", "secret-of-ada");
    let outside = people.testbed.work.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("n"), "not bob's").unwrap();
    people.write(BOB, "links.py", LINKS);
    let paths = [&root_only, &of_ada, &outside].map(|path| path.display().to_string()).join(" ");
    let job = format!("checkpoint: {{ path: out, settle: 200ms }}\nrun: {PYTHON} links.py {paths}\n");
    people.write(BOB, "again", "");
    let id = people.submit(BOB, &job);
    eventually("it has done its worst", || people.folder(BOB).join("killed").exists());
    let reads_nothing = |what: &str| {
        let said = people.logs(BOB, id);
        assert!(!said.contains("secret-of") && !said.contains("COULD"), "{what}: {said}");
        for folder in [home.join("checkpoints"), home.join("jobs"), home.join("leases"), people.folder(BOB)] {
            for secret in ["secret-of-root", "secret-of-ada"] {
                assert!(!is_in_plain_files(&folder, secret), "{what}: {secret} is in {}", folder.display());
            }
        }
    };
    reads_nothing("while it runs");
    // It is killed, and goes on where its folder of checkpoints leads outside: as Bob, who may write nothing there.
    let programs = || processes::of_job(id).into_iter().filter(|pid| processes::line(*pid).contains("links.py"));
    programs().for_each(|pid| processes::signal(pid, rustix::process::Signal::KILL));
    eventually("it was begun again, or refused", || {
        let told = people.run(BOB, &["explain", "--all", &id.to_string()]).ends_with(0).out;
        told.contains("stint 2 rank 0")
    });
    reads_nothing("after a restore");
    assert_eq!(std::fs::read_to_string(outside.join("n")).unwrap(), "not bob's");
    assert_eq!(files_below(&outside), [(outside.join("n"), 0)]);
    let why = people.testbed.until(id, &["failed"]).to_string() + &people.run(BOB, &["explain", &id.to_string()]).out;
    assert!(why.contains("cannot restore: ") && why.contains("Permission denied"), "{why}");
    eventually("nothing of his runs", || people.processes_of(BOB).is_empty());
    people.testbed.leaves_nothing();
    assert_eq!(std::fs::read_to_string(&of_ada).unwrap(), "secret-of-ada");
}

/// Whether a text is in a plain file below a folder.
fn is_in_plain_files(folder: &Path, text: &str) -> bool {
    let holds = |path: &Path| {
        let is_plain = path.symlink_metadata().is_ok_and(|meta| meta.is_file());
        let bytes = if is_plain { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    files_below(folder).iter().any(|(path, _)| holds(path))
}

/// Starts processes that leave their session, their parent and their environment, ignore signals and start others.
const SPREADING: &str = r#"
import os, signal, sys, time
def leave():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            os.execve(sys.executable, [sys.executable, "-c", "import os,time\nfor _ in range(3):\n  if os.fork() == 0: os.setsid()\ntime.sleep(100000)"], {})
        os._exit(0)
for _ in range(8):
    leave()
time.sleep(1)
print("spread", flush=True)
time.sleep(100000)
"#;

#[test]
fn a_program_is_kept_to_the_cores_and_the_memory_that_it_asked_for_and_ended_whatever_it_started() {
    if !is_root("a_program_is_kept_to_the_cores_and_the_memory_that_it_asked_for_and_ended_whatever_it_started") {
        return;
    }
    let mut people = People::new();
    people.up(&["--local", "--accelerators", "H200:2"]);
    let read = "cat $(sed -n 's|^[0-9]*:[a-z,]*\\bcpu\\b[a-z,]*:\\(.*\\)|/sys/fs/cgroup/cpu\\1/cpu.cfs_quota_us|p; \
                s|^0::\\(.*\\)|/sys/fs/cgroup\\1/cpu.max|p' /proc/self/cgroup) 2>/dev/null";
    let cores = people.submit(ADA, &format!("resources: {{ cpus: 0.5 }}\nrun: |\n  {read}; echo read\n"));
    let said = people.until_says(ADA, cores, "read");
    assert!(said.starts_with("50000\n") || said.starts_with("50000 100000\n"), "{said}");
    // Plenty of memory with a plus is no limit, and what is kept to it is told why it was killed.
    let greedy = format!("run: {PYTHON} -c 'held = bytearray(700 << 20); print(len(held))'\n");
    let fits = people.submit(ADA, &format!("resources: {{ memory: 0.25+ }}\n{greedy}"));
    people.testbed.until(fits, &["succeeded"]);
    let killed = people.submit(ADA, &format!("resources: {{ memory: 0.25 }}\n{greedy}"));
    people.testbed.until(killed, &["failed"]);
    let why = people.run(ADA, &["explain", &killed.to_string()]).ends_with(0).out;
    assert!(why.contains("was killed because it used more memory than the 256 MiB it asked for"), "{why}");

    people.write(BOB, "spread.py", SPREADING);
    let bomb = people.submit(BOB, &format!("run: {PYTHON} spread.py\n"));
    people.until_says(BOB, bomb, "spread");
    assert!(people.processes_of(BOB).len() > 30, "{}", people.processes_of(BOB).len());
    people.run(BOB, &["cancel", &bomb.to_string()]).ends_with(0);
    eventually("nothing of his runs", || people.processes_of(BOB).is_empty());
    people.testbed.leaves_nothing();
    assert!(files_below(&people.testbed.home.join("leases")).is_empty());
}

/// What may be asked by whom: everybody, the job's owner, whoever may submit, or who runs the server.
const ROUTES: [(&str, &str, &str); 32] = [
    ("GET", "/v1/hello", "all"),
    ("POST", "/v1/shutdown", "operator"),
    ("POST", "/v1/interrupt", "operator"),
    ("GET", "/v1/ledger", "all"),
    ("GET", "/v1/engines", "all"),
    ("GET", "/v1/engines/check", "operator"),
    ("GET", "/v1/engines/strays", "operator"),
    ("POST", "/v1/engines/sweep", "operator"),
    ("GET", "/v1/engines/{name}/leases", "operator"),
    ("GET", "/v1/engines/{name}/calls", "operator"),
    ("GET", "/v1/engines/{name}/offers", "operator"),
    ("GET", "/v1/nodes", "all"),
    ("POST", "/v1/nodes/labels", "operator"),
    ("GET", "/v1/nodes/{name}", "all"),
    ("GET", "/v1/nodes/nobody", "nowhere"),
    ("POST", "/v1/nodes/{name}/token", "operator"),
    ("POST", "/v1/nodes/{name}/drain", "operator"),
    ("POST", "/v1/nodes/{name}/resume", "operator"),
    ("POST", "/v1/nodes/{name}/remove", "operator"),
    ("GET", "/v1/jobs", "all"),
    ("POST", "/v1/jobs", "submitter"),
    ("GET", "/v1/jobs/{id}", "all"),
    ("GET", "/v1/jobs/{id}/spec", "owner"),
    ("POST", "/v1/jobs/{id}/cancel", "owner"),
    ("POST", "/v1/jobs/{id}/budget", "owner"),
    ("GET", "/v1/jobs/{id}/explain", "owner"),
    ("GET", "/v1/jobs/{id}/stints", "owner"),
    ("GET", "/v1/jobs/{id}/outputs", "owner"),
    ("GET", "/v1/folders/{name}", "operator"),
    ("GET", "/v1/jobs/{id}/watch", "all"),
    ("GET", "/v1/jobs/{id}/logs", "owner"),
    ("DELETE", "/v1/jobs/{id}", "nobody"),
];

/// The first line of the answer to each question, which is a method and a path.
const ASKING: &str = r#"
import json, socket, sys
for method, path in json.loads(sys.argv[2]):
    stream = socket.socket(socket.AF_UNIX); stream.settimeout(60); stream.connect(sys.argv[1])
    body = b'{"budget_nanousd":null}'
    head = f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n"
    stream.sendall(head.encode() + f"content-length: {len(body)}\r\n\r\n".encode() + body)
    print(stream.recv(4096).split(b" ")[1].decode(), method, path, flush=True)
"#;

#[test]
fn whatever_can_be_asked_is_refused_to_whoever_has_no_part_in_it() {
    if !is_root("whatever_can_be_asked_is_refused_to_whoever_has_no_part_in_it") {
        return;
    }
    // Every route of the server is in the table.
    let api = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/src/api.rs");
    let api = std::fs::read_to_string(api).unwrap();
    let routes = api.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split_once("\", "));
    let routes: Vec<(&str, &str)> = routes.collect();
    assert!(routes.len() > 15, "{routes:?}");
    for (path, handlers) in routes {
        for (method, word) in [("GET", "get("), ("POST", "post("), ("PUT", "put("), ("DELETE", "delete(")] {
            let is_known = ROUTES.iter().any(|known| (known.0, known.1) == (method, path));
            assert!(!handlers.contains(word) || is_known, "who may {method} {path}?");
        }
    }
    let mut people = People::new();
    let port = free_port();
    people.up(&["--local", "--listen", &format!("127.0.0.1:{port}"), "--accelerators", "H200:2"]);
    let token = people.testbed.run(&["nodes", "token", "lab-1"]).ends_with(0).out.trim().to_owned();
    people.start_agent(port, &["--token", &token]);
    eventually("it is ready", || people.testbed.run(&["nodes", "--json"]).ends_with(0).json()[0]["state"] == "ready");
    let ada = people.submit(ADA, STEADY);
    people.until_says(ADA, ada, "from 0");
    let asked: Vec<[String; 2]> = ROUTES
        .iter()
        .map(|(method, path, _)| {
            [(*method).to_owned(), path.replace("{id}", &ada.to_string()).replace("{name}", "lab-1")]
        })
        .collect();
    let asked = serde_json::to_string(&asked).unwrap();
    people.write(BOB, "asking.py", ASKING);
    let socket = people.testbed.home.join("server.sock").display().to_string();
    let said = people.testbed.finish(people.command(BOB, PYTHON, &["asking.py", &socket, &asked])).ends_with(0);
    let answers: Vec<&str> = said.out.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(answers.len(), ROUTES.len(), "{said:?}");
    for ((method, path, who), answer) in ROUTES.iter().zip(answers) {
        match *who {
            "all" => assert_eq!(answer, "200", "{method} {path}"),
            // He may, but this is no submission.
            "submitter" => assert_eq!(answer, "422", "{method} {path}"),
            // Everybody may, but there is none of that name.
            "nowhere" => assert_eq!(answer, "404", "{method} {path}"),
            "nobody" => assert_eq!(answer, "405", "{method} {path}"),
            _ => assert_eq!(answer, "403", "{method} {path}"),
        }
    }
    assert_eq!(people.testbed.job(ada)["state"], "running");
    end(&people, ADA, ada);
    people.testbed.leaves_nothing();
}
