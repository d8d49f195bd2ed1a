//! What counts as a checkpoint and what does not, with programs that save in every bad way, and stores that misbehave.

use super::testbed::{Mount, Testbed, eventually, is_root, python};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

fn store_of(testbed: &Testbed, id: u64) -> PathBuf {
    testbed.home.join("checkpoints").join(testbed.job(id)["key"].as_str().unwrap())
}

fn manifests(store: &Path) -> Vec<Value> {
    let Ok(entries) = std::fs::read_dir(store.join("manifests")) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter_map(|path| serde_json::from_slice(&std::fs::read(path).ok()?).ok()).collect()
}

/// The content of a small file in a checkpoint.
fn content(store: &Path, manifest: &Value, name: &str) -> Option<String> {
    let file = manifest["files"].as_array()?.iter().find(|file| file["path"] == name)?;
    let blob = std::fs::read(store.join("blobs").join(file["blob"].as_str()?)).ok()?;
    let (from, size) = (file["offset"].as_u64()? as usize, file["size"].as_u64()? as usize);
    String::from_utf8(blob[from..from + size].to_vec()).ok()
}

fn interrupt(testbed: &Testbed, id: u64, how: &Value) {
    testbed.post("/v1/interrupt", &json!({ "job": id, "how": how }));
}

/// Renames `weights` and 0.3 seconds later `optimizer`, and fails when it finds them of different saves.
const TWO_FILES: &str = r#"
import os, sys, time
d = os.environ["WINDFALL_CHECKPOINT_DIR"] + "/"
def read(name):
    return int(open(d + name).read()) if os.path.exists(d + name) else 0
def put(name, n):
    open(d + name + ".tmp", "w").write(str(n))
    os.replace(d + name + ".tmp", d + name)
n = read("weights")
print("found", n, read("optimizer"), flush=True)
if n != read("optimizer"):
    sys.exit("mixed")
while True:
    n += 1
    put("weights", n)
    time.sleep(0.3)
    put("optimizer", n)
    time.sleep(0.9)
"#;

#[test]
fn two_files_that_are_renamed_one_after_the_other_are_never_mixed() {
    let testbed = Testbed::steady();
    testbed.write("two.py", TWO_FILES);
    let id = testbed.submit(&format!("name: two\ncheckpoint: {{ keep: 100 }}\nrun: exec {} two.py\n", python()));
    let store = store_of(&testbed, id);
    for how in [json!("without"), json!({ "with-notice": 60_000 }), json!("without")] {
        let before = manifests(&store).len();
        eventually("three more checkpoints", || manifests(&store).len() >= before + 3);
        let stints = testbed.job(id)["stints"].as_u64().unwrap();
        interrupt(&testbed, id, &how);
        eventually("the next stint", || testbed.job(id)["stints"].as_u64().unwrap() > stints);
    }
    let all = manifests(&store);
    assert!(all.len() >= 9);
    for manifest in all.iter().filter(|manifest| manifest["fresh"] != true) {
        let pair = ["weights", "optimizer"].map(|name| content(&store, manifest, name));
        assert!(pair[0].is_some() && pair[0] == pair[1], "{}: {pair:?}", manifest["name"]);
    }
    let said = || testbed.run(&["logs", "two"]).ends_with(0).out;
    eventually("four stints", || said().lines().filter(|line| line.starts_with("found")).count() >= 4);
    assert!(!said().contains("mixed"), "{}", said());
}

#[test]
fn a_bad_newest_checkpoint_gives_way_to_the_one_before_however_often_it_fails() {
    let testbed = Testbed::steady();
    // Fails on what it saved last and touches nothing.
    testbed.write(
        "bad.sh",
        "d=$WINDFALL_CHECKPOINT_DIR; state=$(cat $d/state 2>/dev/null)\necho found ${state:-nothing}\n\
         case \"$state\" in bad) exit 1;; good) exit 0;; esac\n\
         for s in older good bad; do echo $s > $d/new; mv $d/new $d/state; sleep 1; done\nsleep 600\n",
    );
    let id = testbed.submit("name: bad\ncheckpoint: { keep: 2, settle: 300ms }\nrun: sh bad.sh\n");
    let store = store_of(&testbed, id);
    let newest = || manifests(&store).last().and_then(|manifest| content(&store, manifest, "state"));
    eventually("the bad one is durable", || newest().as_deref() == Some("bad\n"));
    interrupt(&testbed, id, &json!("without"));
    let job = testbed.until(id, &["succeeded", "failed"]);
    let said = testbed.run(&["logs", "bad"]).ends_with(0).out;
    assert_eq!(job["state"], "succeeded", "{said}");
    assert!(said.starts_with("found nothing\nfound bad\n") && said.ends_with("found good\n"), "{said}");
}

#[test]
fn ranks_that_rename_the_same_file_end_and_what_the_last_one_saved_is_kept() {
    let testbed = Testbed::steady();
    testbed.write(
        "rank.sh",
        "d=$WINDFALL_CHECKPOINT_DIR\nfor n in $(seq 25); do echo $RANK $n > $d/new-$RANK; mv $d/new-$RANK $d/shared; done\n\
         sleep $RANK\necho done > $d/last-$RANK\n",
    );
    for n in 0..3 {
        testbed.write("job.yaml", &format!("name: gang-{n}\nnodes: 4\nrun: sh rank.sh\n"));
        let id = testbed.run(&["submit", "--json", "job.yaml"]).ends_with(0).json()["id"].as_u64().unwrap();
        assert_eq!(testbed.until(id, &["succeeded", "failed"])["state"], "succeeded");
        let store = store_of(&testbed, id);
        eventually("all ranks' files are durable", || {
            let newest = manifests(&store).pop().unwrap();
            (0..4).all(|rank| content(&store, &newest, &format!("last-{rank}")).is_some())
        });
    }
}

#[test]
fn a_store_that_goes_away_across_a_restart_costs_nothing_but_time() {
    let testbed = Testbed::steady();
    testbed.write(
        "count.sh",
        "d=$WINDFALL_CHECKPOINT_DIR; n=$(cat $d/n 2>/dev/null || echo 0); echo from $n\n\
         while [ $n -lt 40 ]; do n=$((n + 1)); echo $n > $d/new; mv $d/new $d/n; sleep 0.2; done\n",
    );
    let (store, away) = (testbed.work.join("store"), testbed.work.join("away"));
    let text = format!(
        "name: count\ndeadline: 10h\ncheckpoint: {{ settle: 300ms, store: {} }}\nrun: sh count.sh\n",
        store.display()
    );
    let id = testbed.submit(&text);
    let job = store.join(testbed.job(id)["key"].as_str().unwrap());
    eventually("something is durable", || manifests(&job).len() >= 3);
    std::fs::rename(&store, &away).unwrap();
    interrupt(&testbed, id, &json!("without"));
    // The worker itself says so while it waits, long before anybody asks why it does not start.
    eventually("it is said", || {
        testbed.run(&["explain", "count"]).out.contains("trouble: the checkpoint store failed")
    });
    std::fs::rename(&away, &store).unwrap();
    assert_eq!(testbed.until(id, &["succeeded", "failed"])["state"], "succeeded");
    let said = testbed.run(&["logs", "count"]).ends_with(0).out;
    let starts: Vec<&str> = said.lines().filter(|line| line.starts_with("from")).collect();
    assert!(starts[0] == "from 0" && starts.len() >= 2, "{starts:?}");
    assert!(!starts[1..].contains(&"from 0"), "never from the beginning: {starts:?}");
}

#[test]
fn an_endless_output_keeps_its_head_and_its_end_and_a_bounded_size() {
    let testbed = Testbed::steady();
    testbed.write(
        "job.yaml",
        "name: loud\nprogress: 'step (\\d+)'\nrun: |\n  echo first\n  yes | head -c 300000000\n  echo last\n",
    );
    testbed.run(&["run", "job.yaml"]).ends_with(0);
    let key = testbed.jobs()[0]["key"].as_str().unwrap().to_owned();
    let log = std::fs::metadata(testbed.home.join("jobs").join(key).join("stint-00001-0.log")).unwrap();
    assert!(log.len() > 300_000_000 && log.blocks() * 512 < 100_000_000, "{} bytes on disk", log.blocks() * 512);
    let said = testbed.run(&["logs", "loud"]).ends_with(0).out;
    assert!(said.starts_with("first\n") && said.ends_with("last\n") && said.contains("of output were cut here"));
    assert!(said.len() < 100_000_000);
}

#[test]
fn the_environment_of_the_submitting_terminal_is_deleted_with_the_end_of_the_job() {
    let testbed = Testbed::steady();
    // The command itself is in the log.
    testbed.write("job.yaml", "name: secret\nrun: test \"$TOKEN\" = \"$(printf hu; printf sh)\"\n");
    let mut run = testbed.command(&["run", "job.yaml"]);
    run.env("TOKEN", "hush");
    testbed.finish(run).ends_with(0);
    eventually("no file of the state directory holds it", || {
        let mut folders = vec![testbed.home.clone()];
        while let Some(folder) = folders.pop() {
            // Folders of leases go meanwhile.
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                let text = std::fs::read(&path).unwrap_or_default();
                if text.windows(4).any(|word| word == b"hush") {
                    return false;
                }
                folders.extend(path.is_dir().then_some(path));
            }
        }
        true
    });
}

#[test]
fn an_endpoint_without_a_scheme_is_refused_with_a_hint() {
    let testbed = Testbed::steady();
    testbed.write("job.yaml", "name: s3\ncheckpoint: { store: 's3://bucket/x' }\nrun: 'true'\n");
    let mut run = testbed.command(&["run", "job.yaml"]);
    run.env("AWS_ENDPOINT_URL", "127.0.0.1:9000").env("AWS_ACCESS_KEY_ID", "a").env("AWS_SECRET_ACCESS_KEY", "b");
    let said = testbed.finish(run).ends_with(2);
    assert!(said.err.contains("AWS_ENDPOINT_URL") && said.err.contains("https://127.0.0.1:9000"), "{said:?}");
    testbed.run(&["jobs"]).ends_with(0);
}

#[test]
fn a_full_store_is_said_at_once_and_the_last_save_succeeds_when_there_is_space() {
    if !is_root("a_full_store_is_said_at_once_and_the_last_save_succeeds_when_there_is_space") {
        return;
    }
    let testbed = Testbed::steady();
    let small = Mount::new(&testbed.work.join("store"), &["-t", "tmpfs", "-o", "size=4m", "tmpfs"]);
    let text = format!(
        "name: full\ncheckpoint: {{ store: {} }}\nrun: |\n  echo once >> runs\n  head -c 6000000 /dev/urandom > \
         $WINDFALL_CHECKPOINT_DIR/model\n",
        small.at.display()
    );
    let id = testbed.submit(&text);
    eventually("it is said", || testbed.run(&["explain", "full"]).out.contains("no space is left"));
    small.change("size=64m");
    assert_eq!(testbed.until(id, &["succeeded", "failed"])["state"], "succeeded");
    let store = small.at.join(testbed.job(id)["key"].as_str().unwrap());
    eventually("its last save is durable", || {
        manifests(&store).last().is_some_and(|newest| newest["files"].as_array().is_some_and(|files| files.len() == 1))
    });
    assert_eq!(std::fs::read_to_string(testbed.work.join("runs")).unwrap(), "once\n", "it never ran again");
}
