//! Gangs over machines that share nothing but the server's wire and one between them.

use super::far::Far;
use super::nodes::{free_port, up};
use super::testbed::{Testbed, eventually, is_root, wait};
use super::witness::check_ledger;
use std::process::Stdio;
use std::time::Duration;

/// A rank: meets the others at rank 0 before each step, adds what all of them have, and saves its own part every few steps.
/// On a resume all parts that lie there must be of the same step.
const RANK: &str = r#"
import json, os, socket, sys, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
saves, resume = os.environ["WINDFALL_CHECKPOINT_DIR"], os.environ["WINDFALL_RESUME"]
step, state = 0, rank + 1
if resume:
    parts = [json.load(open(f"{resume}/part-{r}.json")) for r in range(size)]
    assert len({part["step"] for part in parts}) == 1, f"torn: {parts}"
    step, state = parts[rank]["step"], parts[rank]["state"]
print(f"rank {rank} from {step}", flush=True)
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = socket.create_server(("", where[1]), backlog=size)
    peers = dict(sorted((int(line.readline()), line) for line in (listener.accept()[0].makefile("rw") for _ in range(size - 1))))
else:
    for _ in range(200):
        try:
            line = socket.create_connection(where, timeout=60).makefile("rw")
            break
        except OSError:
            time.sleep(0.1)
    line.write(f"{rank}\n"); line.flush()
steps = int(sys.argv[1])
while step < steps:
    if rank == 0:
        states = [state] + [int(peer.readline()) for peer in peers.values()]
        total = sum(states) % 1000003
        for peer in peers.values():
            peer.write(f"{total}\n"); peer.flush()
    else:
        line.write(f"{state}\n"); line.flush()
        total = int(line.readline())
    step, state = step + 1, (state * 31 + total + rank) % 1000003
    if step % 25 == 0 or step == steps:
        with open(f"{saves}/part.new", "w") as new:
            json.dump({"step": step, "state": state}, new)
        os.rename(f"{saves}/part.new", f"{saves}/part-{rank}.json")
        time.sleep(float(sys.argv[2]))
    time.sleep(0.01)
print(f"rank {rank} ends at {step} with {state}", flush=True)
"#;

/// What rank 0 would end with, if nobody disturbed them.
fn undisturbed(ranks: u64, steps: u64) -> Vec<u64> {
    let mut states: Vec<u64> = (1..=ranks).collect();
    for _ in 0..steps {
        let total = states.iter().sum::<u64>() % 1_000_003;
        for (rank, state) in states.iter_mut().enumerate() {
            *state = (*state * 31 + total + rank as u64) % 1_000_003;
        }
    }
    states
}

pub fn machines<const N: usize>(testbed: &Testbed, port: u16, names: [&str; N]) -> [Far; N] {
    let mut machines = names.map(|_| Far::new(testbed));
    for (number, far) in machines.iter().enumerate() {
        machines[number + 1..].iter().for_each(|other| far.connect(other));
    }
    for (far, name) in machines.iter_mut().zip(names) {
        far.write(&testbed.work.join("rank.py"), RANK);
        far.start_agent_with(port, Some(&super::nodes::token(testbed, name)), &["--accelerators", "H200:1"], &[]);
        eventually("it is ready", || super::nodes::state_of(testbed, name).as_deref() == Some("ready"));
    }
    machines
}

#[test]
fn a_gang_over_machines_goes_on_from_one_checkpoint_of_all_its_ranks() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "20s");
    let machines = machines(&testbed, port, ["one", "two"]);
    let job = "name: ranks\nnodes: 2\nresources: { accelerators: H200:1 }\ncheckpoint: { settle: 1s }\n\
               run: python3 rank.py 300 2\n";
    let id = testbed.submit(job);
    let logs = |rank: &str| testbed.run(&["logs", &id.to_string(), "--rank", rank]).ends_with(0).out;
    // A machine loses its worker, each in its turn; after each loss something new is saved.
    for (turn, machine) in (0..).zip([&machines[1], &machines[0]]) {
        let durable = || {
            let said = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
            said.lines()
                .filter(|line| line.contains(&format!("checkpoint {}.", turn + 1)) && line.contains("is durable"))
                .count()
        };
        eventually("something is durable", || durable() > 1);
        machine.as_root("pkill -KILL -f '[w]indfall agent serve'");
    }
    let ended = testbed.until(id, &["succeeded", "failed"]);
    assert_eq!(ended["state"], "succeeded", "{ended}\n{}\n{}", logs("0"), logs("1"));
    for (rank, state) in undisturbed(2, 300).into_iter().enumerate() {
        let said = logs(&rank.to_string());
        assert!(said.contains(&format!("rank {rank} ends at 300 with {state}")), "{said}");
        let began: Vec<&str> = said.lines().filter(|line| line.contains(" from ")).collect();
        assert!(began.len() == 3 && !began[1..].iter().any(|line| line.ends_with("from 0")), "not resumed: {said}");
    }
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// Rank 0 is in no hurry to listen where it is to be met, as programs are that load for a minute first.
const SLOW_TO_LISTEN: &str = r#"
import os, socket, time
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
print("meets at", where[1], flush=True)
if rank == 0:
    time.sleep(4)
    listener = socket.socket()
    listener.bind(("", where[1]))
    listener.listen()
    peer = listener.accept()[0]
    assert peer.recv(100) == os.environ["WINDFALL_JOB"].encode(), "a rank of another gang"
    peer.sendall(b"well met")
else:
    for _ in range(600):
        try:
            peer = socket.create_connection(where, timeout=60)
            break
        except OSError:
            time.sleep(0.1)
    peer.sendall(os.environ["WINDFALL_JOB"].encode())
    assert peer.recv(100) == b"well met"
"#;

#[test]
fn gangs_that_start_at_once_on_the_same_machines_meet_each_at_a_port_of_its_own() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut machines = [Far::new(&testbed), Far::new(&testbed)];
    machines[0].connect(&machines[1]);
    for (far, name) in machines.iter_mut().zip(["one", "two"]) {
        far.write(&testbed.work.join("slow.py"), SLOW_TO_LISTEN);
        // Few ports are there to be given to connections, and a gang's is none of them.
        far.as_root("echo '20000 29990' > /proc/sys/net/ipv4/ip_local_port_range");
        far.start_agent_with(port, Some(&super::nodes::token(&testbed, name)), &["--accelerators", "H200:4"], &[]);
        eventually("it is ready", || super::nodes::state_of(&testbed, name).as_deref() == Some("ready"));
    }
    let gang = |name: &str| {
        let asks = "nodes: 2\nresources: { accelerators: H200:1 }\n";
        testbed.submit(&format!("name: {name}\n{asks}run: python3 slow.py\n"))
    };
    let gangs = ["a", "bb", "ccc", "dddd"].map(gang);
    let mut ports = std::collections::BTreeSet::new();
    for id in gangs {
        let ended = testbed.until(id, &["succeeded", "failed"]);
        let said = testbed.run(&["logs", &id.to_string(), "--rank", "0"]).ends_with(0).out;
        assert_eq!(ended["state"], "succeeded", "{ended}\n{said}");
        let port: u16 = said.lines().find_map(|line| line.strip_prefix("meets at ")?.parse().ok()).unwrap();
        assert!((29_991..30_000).contains(&port), "not one that a connection may be given: {port}");
        ports.insert(port);
    }
    println!("four gangs met at {ports:?}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// Every rank talks for itself, and ends when a file is there.
const TALK: &str = "for n in $(seq 1 100000); do [ -e end ] && break; echo \"rank $RANK of stint $WINDFALL_STINT says $n\"; \
                    sleep 0.1; done; echo \"rank $RANK is done\"";

#[test]
fn what_every_rank_said_is_there_live_and_after_its_machine_is_gone() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let [first, mut second] = machines(&testbed, port, ["one", "two"]);
    let id = testbed
        .submit(&format!("name: talk\nnodes: 2\nresources: {{ accelerators: H200:1 }}\ngrace: 2s\nrun: |\n  {TALK}\n"));
    let logs = |rank: usize| testbed.run(&["logs", &id.to_string(), "--rank", &rank.to_string()]).ends_with(0).out;
    let heard = [0, 1].map(|rank| testbed.work.join(format!("heard-{rank}")));
    let follow = |rank: usize| {
        let mut follow = testbed.command(&["logs", "-f", &id.to_string(), "--rank", &rank.to_string()]);
        follow.stdout(std::fs::File::create(&heard[rank]).unwrap()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut followers = [follow(0), follow(1)];
    let live = |rank: usize, words: &str| std::fs::read_to_string(&heard[rank]).unwrap().contains(words);
    for rank in [0, 1] {
        eventually("it is heard live", || live(rank, &format!("rank {rank} of stint 1 says 20\n")));
    }
    // Which rank is on which machine is the brain's business.
    let at_second = (0..2).find(|rank| {
        let mark = format!("RANK={rank}\0");
        second.programs(id).iter().any(|pid| {
            std::fs::read_to_string(format!("/proc/{pid}/environ")).is_ok_and(|environ| environ.contains(&mark))
        })
    });
    let lost = at_second.expect("one of them is there");

    second.lose_power();
    testbed.run(&["nodes", "remove", "two", "--lost"]).ends_with(0);
    drop(second);
    let kept = logs(lost);
    let said = |text: &str| text.lines().filter(|line| line.contains(" of stint 1 says ")).count();
    assert!(said(&kept) >= 20 && !kept.contains(" of stint 2 "), "{kept}");
    let mut third = Far::new(&testbed);
    first.connect(&third);
    third.start_agent_with(port, Some(&super::nodes::token(&testbed, "three")), &["--accelerators", "H200:1"], &[]);
    for rank in [0, 1] {
        eventually("it is heard live again", || live(rank, &format!("rank {rank} of stint 2 says 5\n")));
    }
    for far in [&first, &third] {
        far.write(&testbed.work.join("end"), "");
    }
    testbed.until(id, &["succeeded"]);
    for rank in [0, 1] {
        assert_eq!(wait(&mut followers[rank]), Some(0));
        let (now, live) = (logs(rank), std::fs::read_to_string(&heard[rank]).unwrap());
        assert!(
            now.contains(&format!("rank {rank} is done")) && !now.contains(&format!("rank {} ", 1 - rank)),
            "{now}"
        );
        assert_eq!(live, now, "who followed has heard the same");
        let steps = |stint: u32| -> Vec<usize> {
            let of_it = format!("of stint {stint} says ");
            now.lines().filter_map(|line| line.split_once(&of_it)?.1.parse().ok()).collect()
        };
        for stint in [1, 2] {
            assert_eq!(steps(stint), (1..=steps(stint).len()).collect::<Vec<_>>(), "whole, once and in order: {now}");
        }
    }
    assert!(logs(lost).starts_with(&kept[..kept.rfind('\n').unwrap()]), "nothing of it was lost later");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

/// Rank 1 begins each save three seconds after rank 0: until then both places stand still, and hold different steps.
#[test]
fn what_ranks_save_at_one_step_counts_together_also_when_one_is_killed_before_it_does() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut machines = ["one", "two"].map(|_| Far::new(&testbed));
    for (far, name) in machines.iter_mut().zip(["one", "two"]) {
        far.start_agent_with(port, Some(&super::nodes::token(&testbed, name)), &["--accelerators", "H200:1"], &[]);
        eventually("it is ready", || super::nodes::state_of(&testbed, name).as_deref() == Some("ready"));
    }
    machines[0].connect(&machines[1]);
    let id = testbed.submit(
        "name: apart\nnodes: 2\nresources: { accelerators: H200:1 }\ncheckpoint: { path: out }\nrun: |\n  \
         mkdir -p out; n=$(cat out/part-$RANK 2>/dev/null || echo 0)\n  \
         echo \"parts $(cat out/part-0 2>/dev/null || echo 0) $(cat out/part-1 2>/dev/null || echo 0)\"\n  \
         while [ $n -lt 3 ]; do\n    n=$((n + 1)); [ $RANK = 0 ] || sleep 3\n    \
         echo $n > out/new; mv out/new out/part-$RANK; echo saved $n\n    [ $RANK = 1 ] || sleep 3; sleep 5\n  done\n",
    );
    let output = || testbed.run(&["logs", "--rank", "0", &id.to_string()]).ends_with(0).out;
    eventually("rank 0 has saved the second step", || output().contains("saved 2"));
    let is_of_rank_1 = |pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == b"RANK=1")
    };
    let victims: Vec<i32> = machines.iter().flat_map(|far| far.programs(id)).filter(is_of_rank_1).collect();
    assert!(!victims.is_empty());
    victims.iter().for_each(|pid| super::processes::signal(*pid, rustix::process::Signal::KILL));
    testbed.until(id, &["succeeded"]);
    let output = output();
    let parts: Vec<&str> = output.lines().filter(|line| line.starts_with("parts ")).collect();
    assert_eq!(parts, ["parts 0 0", "parts 1 1"], "{output}{}", testbed.run(&["explain", &id.to_string()]).out);
    testbed.leaves_nothing();
}

#[test]
fn a_machine_that_cannot_set_up_is_passed_over_and_what_every_rank_left_comes_back() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut machines = ["one", "two", "three"].map(|_| Far::new(&testbed));
    for (far, name) in machines.iter_mut().zip(["one", "two", "three"]) {
        far.start_agent_with(port, Some(&super::nodes::token(&testbed, name)), &["--accelerators", "H200:1"], &[]);
        eventually("it is ready", || super::nodes::state_of(&testbed, name).as_deref() == Some("ready"));
    }
    machines[0].connect(&machines[1]);
    machines[0].connect(&machines[2]);
    machines[1].connect(&machines[2]);
    // Only on two of them there is what the setup looks for. The folder that is sent along has nothing.
    let tool = testbed.work.join("tool");
    let empty = testbed.work.join("empty");
    std::fs::create_dir(&empty).unwrap();
    std::fs::write(empty.join("given"), "").unwrap();
    machines[1..].iter().for_each(|far| far.write(&tool, ""));
    let job = format!(
        "name: unfit\nresources: {{ accelerators: H200:1 }}\nworkdir: empty\nsetup: test -e {}\nrun: echo fit\n",
        tool.display()
    );
    let id = testbed.submit(&job);
    let ended = testbed.until(id, &["succeeded", "failed"]);
    let explained = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert_eq!(ended["state"], "succeeded", "{explained}");
    assert!(explained.contains("could not be begun on one"), "{explained}");

    let gang = "name: leavers\nnodes: 2\nresources: { accelerators: H200:1 }\nworkdir: empty\noutputs: ['o*']\n\
                run: echo $RANK > o$RANK; echo $RANK > o-same; echo x > o-equal\n";
    testbed.run(&["nodes", "drain", "one"]).ends_with(0);
    let id = testbed.submit(gang);
    let ended = testbed.until(id, &["succeeded", "failed"]);
    assert_eq!(ended["state"], "succeeded", "{ended}");
    let into = testbed.work.join("back");
    let args = ["get", &id.to_string(), "--into", into.to_str().unwrap()];
    let got = |name: &str| std::fs::read_to_string(into.join(name)).unwrap_or_default();
    testbed.run(&args).ends_with(0);
    let all = ["o0", "o1", "o-same", "o-same.rank-1", "o-equal"].map(got);
    assert_eq!(all, ["0\n", "1\n", "0\n", "1\n", "x\n"]);
    assert_eq!(std::fs::read_dir(&into).unwrap().count(), 5);

    // On one machine ranks have one folder: whoever ends first leaves it to the others.
    let wide = &mut Far::new(&testbed);
    wide.start_agent_with(port, Some(&super::nodes::token(&testbed, "wide")), &["--accelerators", "H200:2"], &[]);
    eventually("it is ready", || super::nodes::state_of(&testbed, "wide").as_deref() == Some("ready"));
    for name in ["two", "three"] {
        testbed.run(&["nodes", "drain", name]).ends_with(0);
    }
    let late = testbed.submit(
        "name: late\nnodes: 2\nresources: { accelerators: H200:1 }\nworkdir: empty\noutputs: ['o*']\n\
         run: '[ $RANK = 0 ] || sleep 3; test -e given && echo $RANK > o$RANK'\n",
    );
    let ended = testbed.until(late, &["succeeded", "failed"]);
    assert_eq!(ended["state"], "succeeded", "{ended}{}", testbed.run(&["logs", &late.to_string()]).out);
    let into = testbed.work.join("back-late");
    testbed.run(&["get", &late.to_string(), "--into", into.to_str().unwrap()]).ends_with(0);
    assert_eq!(["o0", "o1"].map(|name| std::fs::read_to_string(into.join(name)).unwrap_or_default()), ["0\n", "1\n"]);
    wide.until_quiet(late);

    // Both end while nobody reaches the server, for longer than any one try takes.
    let cut = testbed.submit(
        "name: cut\nnodes: 2\nresources: { accelerators: H200:1 }\nworkdir: empty\noutputs: ['o*']\n\
         run: 'sleep 4; echo $RANK > o$RANK'\n",
    );
    testbed.until(cut, &["running"]);
    wide.cut(true);
    std::thread::sleep(Duration::from_secs(50));
    wide.cut(false);
    testbed.until(cut, &["succeeded"]);
    eventually("its machines are free", || {
        testbed.run(&["nodes", "--json"]).json().as_array().unwrap().iter().all(|node| node["accelerators_used"] == 0)
    });
    let into = testbed.work.join("back-cut");
    testbed.run(&["get", &cut.to_string(), "--into", into.to_str().unwrap()]).ends_with(0);
    assert_eq!(["o0", "o1"].map(|name| std::fs::read_to_string(into.join(name)).unwrap_or_default()), ["0\n", "1\n"]);
    wide.until_quiet(cut);
    machines.iter().for_each(|far| far.until_quiet(id));
    testbed.leaves_nothing();
}

/// Whose agents are killed, and whether their guards are, so that nobody follows them.
#[derive(Clone, Copy, PartialEq)]
enum Of {
    All,
    SecondRank,
    SecondRankForGood,
}

/// Runs a gang on these machines, and kills agents once their programs have ended, while nobody reaches the server. Gives what
/// people are told of the job.
fn lose_agents(testbed: &Testbed, name: &str, run: &str, all: &[&Far], of: Of) -> (serde_json::Value, String) {
    let job =
        "nodes: 2\nresources: { accelerators: H200:1 }\nworkdir: empty\ncheckpoint: { settle: 1s }\noutputs: ['o*']\n";
    let run = run.replace("BEGUN", &format!("touch /tmp/{name}-$RANK"));
    let id = testbed.submit(&format!("name: {name}\n{job}run: '{run}'\n"));
    let has = |far: &&Far| far.says(&format!("ls /tmp/{name}-1 2> /dev/null")).ends_with("-1");
    eventually("the second rank runs", || all.iter().any(has));
    let machines: Vec<&Far> = all.iter().filter(|far| of == Of::All || has(far)).copied().collect();
    machines.iter().for_each(|far| far.cut(true));
    eventually("they have ended", || machines.iter().all(|far| far.programs(id).is_empty()));
    std::thread::sleep(Duration::from_secs(2));
    let killed = if of == Of::SecondRankForGood { "(serve|guard)" } else { "serve" };
    machines.iter().for_each(|far| far.as_root(&format!("pkill -KILL -f '[w]indfall agent {killed}'")));
    machines.iter().for_each(|far| far.cut(false));
    let ended = testbed.until(id, &["succeeded", "failed"]);
    let explained = testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out;
    assert_eq!(ended["state"], "succeeded", "{ended}\n{explained}");
    eventually("its machines are free", || {
        let nodes = testbed.run(&["nodes", "--json"]).json();
        nodes.as_array().unwrap().iter().all(|node| node["accelerators_used"] == 0)
    });
    let into = testbed.work.join(name);
    let got = testbed.run(&["get", &id.to_string(), "--into", into.to_str().unwrap()]).ends_with(0);
    let outputs = ["o0", "o1"].map(|name| std::fs::read_to_string(into.join(name)).unwrap_or_default());
    assert_eq!(outputs, ["0\n", "1\n"], "{}\n{explained}", got.out);
    machines.iter().for_each(|far| far.until_quiet(id));
    (testbed.job(id), testbed.run(&["explain", "--all", &id.to_string()]).ends_with(0).out)
}

/// Each rank leaves and saves something of its own, the second one a little later.
const LEAVE: &str = "BEGUN; sleep $((4 + RANK)); echo $RANK | tee o$RANK > $WINDFALL_CHECKPOINT_DIR/part-$RANK";

#[test]
fn a_gang_whose_agents_are_killed_when_it_has_ended_still_brings_its_outputs() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "120s");
    std::fs::create_dir(testbed.work.join("empty")).unwrap();
    // Over two machines each rank has a place of its own; on one they share it, and the last save is still made.
    let apart = machines(&testbed, port, ["one", "two"]);
    let (job, said) = lose_agents(&testbed, "apart", LEAVE, &[&apart[0], &apart[1]], Of::All);
    assert_eq!(job["stints"], 1, "{said}");
    assert!(said.contains("the last save is not durable: its agent was killed"), "{said}");
    for name in ["one", "two"] {
        testbed.run(&["nodes", "drain", name]).ends_with(0);
    }
    let wide = &mut Far::new(&testbed);
    wide.start_agent_with(port, Some(&super::nodes::token(&testbed, "wide")), &["--accelerators", "H200:2"], &[]);
    eventually("it is ready", || super::nodes::state_of(&testbed, "wide").as_deref() == Some("ready"));
    let (job, said) = lose_agents(&testbed, "together", LEAVE, &[wide], Of::All);
    assert_eq!(job["stints"], 1, "{said}");
    assert!(said.contains("is durable") && !said.contains("is not durable"), "{said}");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}

#[test]
fn a_rank_whose_agent_is_killed_when_it_has_ended_holds_up_nobody() {
    if !is_root("machines of their own") {
        return;
    }
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "120s");
    std::fs::create_dir(testbed.work.join("empty")).unwrap();
    let machines = machines(&testbed, port, ["one", "two"]);
    let machines = [&machines[0], &machines[1]];
    // It waits for rank 0, which is still at work; what the second rank saved last is lost, and rank 0 does not wait for it.
    let soon =
        "BEGUN; [ $RANK = 0 ] && sleep 16; sleep 4; echo $RANK | tee o$RANK > $WINDFALL_CHECKPOINT_DIR/part-$RANK";
    let (job, said) = lose_agents(&testbed, "soon", soon, &machines, Of::SecondRank);
    assert_eq!(job["stints"], 1, "{said}");
    assert!(
        said.contains("the last save is not durable: a rank, or its agent, was killed before it had saved"),
        "{said}"
    );
    // Rank 0 would go on for long without one save that counts, whether nobody follows the other or somebody who can save nothing:
    // all of them begin again.
    let late = "echo 1 > $WINDFALL_CHECKPOINT_DIR/first-$RANK; sleep 5; BEGUN; if [ ! -e /tmp/begun ]; then touch /tmp/begun; \
                [ $RANK = 0 ] && sleep 600; fi; sleep 4; echo $RANK | tee o$RANK > $WINDFALL_CHECKPOINT_DIR/part-$RANK";
    for (name, of) in [("late", Of::SecondRankForGood), ("later", Of::SecondRank)] {
        machines.iter().for_each(|far| far.as_root("rm -f /tmp/begun"));
        let (job, said) = lose_agents(&testbed, name, late, &machines, of);
        assert_eq!((&job["stints"], &job["interruptions"]), (&2.into(), &1.into()), "{name}: {said}");
    }
    machines.iter().for_each(|far| far.until_quiet(job["id"].as_u64().unwrap()));
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
