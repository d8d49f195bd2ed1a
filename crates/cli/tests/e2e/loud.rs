//! A program that prints fifty megabytes a second on a machine, and who must not notice: the job beside it, whoever asks the
//! server something, whoever listens, the disks.

use super::far::Far;
use super::nodes::{free_port, join, up};
use super::testbed::{Testbed, eventually, is_root, one_at_a_time, wait};
use super::witness::check_ledger;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Fifty megabytes a second for twenty seconds, in lines with their numbers.
const LOUD: &str = r#"
import sys, time
out, began, line = sys.stdout.buffer, time.monotonic(), 0
for part in range(200):
    lines = [b"%09d %s\n" % (n, b"x" * 90) for n in range(line, line + 49505)]
    out.write(b"".join(lines))
    out.flush()
    line += len(lines)
    time.sleep(max(0, began + (part + 1) / 10 - time.monotonic()))
print("that was", line, "lines", flush=True)
"#;
const LINES: u64 = 200 * 49_505;

/// Counts on as fast as its sleep lets it.
const QUIET: &str = "n=0; while [ ! -e end ]; do n=$((n + 1)); echo step $n; sleep 0.05; done";

const MIB: u64 = 1 << 20;

/// What of a file or folder is on the disk.
fn on_disk(path: &str) -> String {
    format!("du -sk {path} 2>/dev/null | cut -f1")
}

/// Memory and processor time of the server: bytes, and seconds.
fn of_server(pid: i64) -> (u64, f64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = [after_name[11], after_name[12]].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    (kib * 1024, ticks as f64 / 100.0)
}

#[test]
fn a_program_that_prints_fifty_megabytes_a_second_hurts_nobody() {
    if !is_root("a machine of its own") {
        return;
    }
    let _one = one_at_a_time();
    let (testbed, port) = (Testbed::bare(), free_port());
    up(&testbed, port, "4h");
    let mut far = Far::new(&testbed);
    far.write(&testbed.work.join("loud.py"), LOUD);
    join(&testbed, &mut far, port, "lab-1");
    let one = "resources: { accelerators: H200:1 }\n";
    let quiet = testbed.submit(&format!("name: quiet\n{one}run: '{QUIET}'\n"));
    let steps = || {
        let said = testbed.run(&["logs", &quiet.to_string()]).ends_with(0).out;
        said.lines().filter(|line| line.starts_with("step ")).count() as u64
    };
    eventually("it runs", || steps() > 20);
    let pid = testbed.run(&["status", "--json"]).ends_with(0).json()["server"]["pid"].as_i64().unwrap();
    let state = far.state().display().to_string();
    let far_disk = || far.says(&on_disk(&state)).parse::<u64>().unwrap_or(0) * 1024;
    let home_disk = || {
        let said = std::process::Command::new("du").arg("-sk").arg(&testbed.home).output().unwrap();
        String::from_utf8_lossy(&said.stdout).split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    };
    let slowest_answer = || {
        let began = Instant::now();
        testbed.run(&["jobs", "--json"]).ends_with(0);
        began.elapsed()
    };
    let alone = {
        let (before, began) = (steps(), Instant::now());
        std::thread::sleep(Duration::from_secs(8));
        (steps() - before) as f64 / began.elapsed().as_secs_f64()
    };
    let idle = (0..10).map(|_| slowest_answer()).max().unwrap();
    let (memory, busy) = of_server(pid);
    let before_disk = home_disk();

    let loud = testbed.submit(&format!("name: loud\n{one}run: exec python3 loud.py\n"));
    let heard = testbed.work.join("heard");
    let mut listens = testbed.command(&["logs", "-f", &loud.to_string()]);
    let mut listens = listens.stdout(std::fs::File::create(&heard).unwrap()).stderr(Stdio::null()).spawn().unwrap();
    testbed.until(loud, &["running"]);
    let (before, began) = (steps(), Instant::now());
    let (mut most_memory, mut most_far, mut most_home, mut worst) = (0, 0, 0, Duration::ZERO);
    eventually("it ends", || {
        most_memory = most_memory.max(of_server(pid).0);
        (most_far, most_home) = (most_far.max(far_disk()), most_home.max(home_disk()));
        worst = worst.max(slowest_answer());
        std::thread::sleep(Duration::from_millis(200));
        testbed.job(loud)["state"] != "running"
    });
    let beside = (steps() - before) as f64 / began.elapsed().as_secs_f64();
    let took = began.elapsed();
    assert_eq!(testbed.job(loud)["state"], "succeeded");
    assert_eq!(wait(&mut listens), Some(0));
    let server = of_server(pid).1 - busy;
    let said = testbed.run(&["logs", &loud.to_string()]).ends_with(0).out;
    let heard = std::fs::metadata(Path::new(&heard)).unwrap().len();
    println!(
        "990 MB in {:.0} s. beside it: {beside:.1} steps a second (alone {alone:.1}); `jobs` at worst {worst:?} (alone \
         {idle:?}); the server: {:.1} s of a core, {} MiB more memory, {} MiB more on its disk; the machine's disk: {} MiB; \
         kept: {} MiB; heard live: {} MiB",
        took.as_secs_f64(),
        server,
        most_memory.saturating_sub(memory) / MIB,
        most_home.saturating_sub(before_disk) / MIB,
        most_far / MIB,
        said.len() as u64 / MIB,
        heard / MIB,
    );
    // What is kept is its beginning and its end, in whole lines, and what is left out is said.
    assert!(said.starts_with("000000000 x"), "{}", &said[..100]);
    assert!(said.ends_with(&format!("that was {LINES} lines\n")), "{}", &said[said.len() - 200..]);
    let odd: Vec<&str> = said.lines().filter(|line| line.len() != 100).collect();
    assert!(odd.len() <= 4 && odd.iter().any(|line| line.contains("cut")), "{odd:?}");
    // Bounded: by what is kept of an output, and by what may be on its way.
    assert!((said.len() as u64) < 80 * MIB && heard < 600 * MIB);
    assert!(most_far < 300 * MIB, "on its machine's disk: {} MiB", most_far / MIB);
    assert!(most_home < before_disk + 150 * MIB, "on the server's disk: {} MiB", most_home / MIB);
    assert!(most_memory < memory + 64 * MIB, "in the server's memory: {} MiB", most_memory / MIB);
    // Not a matter of how fast this machine is: what is too much is never sent.
    assert!(server < 0.5 * took.as_secs_f64(), "{server} s of processor time in {took:?}");
    assert!(beside > alone / 4.0, "the job beside it: {beside} steps a second instead of {alone}");
    far.write(&testbed.work.join("end"), "");
    testbed.until(quiet, &["succeeded"]);
    let all = testbed.run(&["logs", &quiet.to_string()]).ends_with(0).out;
    let numbers: Vec<u64> = all.lines().filter_map(|line| line.strip_prefix("step ")?.parse().ok()).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>(), "nothing of the other's is missing");
    check_ledger(&testbed);
    testbed.leaves_nothing();
}
