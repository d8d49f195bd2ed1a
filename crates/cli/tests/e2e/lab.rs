//! Every block of docs/lab.md, run in its order: on a server, on a machine that joins it, or, where systemd or root would
//! be needed, as far as that goes without.

use super::far::Far;
use super::processes;
use super::testbed::{Said, Testbed, eventually, is_root};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// One block of the page: where it is typed, and what.
struct Block {
    tags: Vec<String>,
    text: String,
}

fn blocks() -> Vec<Block> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (mut found, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for line in page.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(tags), None) => {
                let tags = tags.split_whitespace().map(str::to_owned).collect();
                open = Some(Block { tags, text: String::new() });
            }
            (Some(_), Some(block)) => found.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block that does not end");
    found
}

/// The server's terminal and the machine's, with the address that the page calls `lab:7443`.
struct Lab {
    testbed: Testbed,
    far: Option<Far>,
    address: String,
    port: u16,
    stays: Vec<Child>,
}

impl Lab {
    fn folder(&self) -> PathBuf {
        self.testbed.work.parent().unwrap().to_owned()
    }

    /// The page's words with this lab's address.
    fn here(&self, text: &str) -> String {
        text.replace("lab:7443", &self.address).replace("0.0.0.0:7443", &format!("0.0.0.0:{}", self.port))
    }

    fn shell(&self, on_machine: bool, script: &str) -> Command {
        let script = self.here(script);
        let mut shell = match &self.far {
            Some(far) if on_machine => {
                far.command("sh", &["-ec", &format!("cd {}; {script}", self.testbed.work.display())])
            }
            _ => {
                let mut shell = Command::new("sh");
                shell.args(["-ec", &script]).current_dir(&self.testbed.work).env("HOME", self.folder());
                shell
            }
        };
        let bin = Path::new(env!("CARGO_BIN_EXE_windfall")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        shell.env("PATH", path).env("NO_COLOR", "1").env("WINDFALL_IDLE", "300").stdin(Stdio::null());
        for variable in ["WINDFALL_HOME", "WINDFALL_CONFIG", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
            shell.env_remove(variable);
        }
        shell
    }

    fn run(&self, on_machine: bool, script: &str) -> Said {
        self.testbed.finish(self.shell(on_machine, script))
    }

    fn state_of_node(&self) -> String {
        let nodes: serde_json::Value = self.run(false, "windfall nodes --json").ends_with(0).json();
        nodes[0]["state"].as_str().unwrap_or_default().to_owned()
    }

    /// Commands that need root or systemd: units are made below a folder instead, and the others must name what is there.
    fn without_systemd(&self, text: &str) {
        let image = self.folder().join("image");
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.starts_with(&["windfall", "service"]) {
                self.run(false, &format!("{line} --root {}", image.display())).ends_with(0);
            } else if let Some(unit) = words.iter().find(|word| word.ends_with(".service")) {
                let places =
                    ["etc/systemd/system".to_owned(), self.folder().join(".config/systemd/user").display().to_string()];
                let is_there = |place: &String| image.join(place.trim_start_matches('/')).join(unit).exists();
                assert!(places.iter().any(is_there), "{line}: no such unit");
            } else {
                let known = ["useradd", "loginctl", "install", "runuser"];
                assert!(known.contains(&words[0]), "who runs this? {line}");
                // What they would have windfall do is something that it knows.
                if let Some(at) = words.iter().position(|word| *word == "windfall").filter(|_| words[0] == "runuser") {
                    let asked = words[at..].split(|word| *word == "windfall").next_back().unwrap().join(" ");
                    let said = self.run(false, &format!("windfall {asked} --help"));
                    assert_eq!(said.code, Some(0), "{line}: {said:?}");
                }
            }
        }
    }
}

#[test]
fn every_block_of_the_page_from_laptop_to_lab_works() {
    let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let testbed = Testbed::at(".local/state/windfall");
    // As root, agents refuse to serve: the machine is then one of its own, with a user of its own.
    let far = is_root("a machine of its own").then(|| Far::new(&testbed));
    let address = far.as_ref().map_or("127.0.0.1".to_owned(), |far| far.server.clone());
    let mut lab = Lab { testbed, far, address: format!("{address}:{port}"), port, stays: Vec::new() };
    for block in blocks() {
        let tags: Vec<&str> = block.tags.iter().map(String::as_str).collect();
        println!("--- {tags:?}\n{}", block.text);
        match tags.as_slice() {
            ["sh", "server"] => {
                // Whoever serves in the foreground ends when the next block takes its place.
                lab.stays.retain_mut(|child| child.try_wait().unwrap().is_none());
                let said = lab.run(false, &block.text);
                let may_miss = block.text.starts_with("windfall doctor");
                assert!(said.code == Some(0) || (may_miss && said.code == Some(2)), "{}{said:?}", block.text);
                check_words(&lab, &block.text, &said);
            }
            ["sh", "machine"] => {
                if let (true, Some(far)) = (block.text.contains("token"), &lab.far) {
                    let token = std::fs::read_to_string(lab.testbed.work.join("token")).unwrap();
                    far.write(&lab.testbed.work.join("token"), &token);
                }
                let said = lab.run(true, &block.text);
                let may_miss = block.text.starts_with("windfall doctor");
                assert!(said.code == Some(0) || (may_miss && said.code == Some(2)), "{}{said:?}", block.text);
                if may_miss {
                    assert!(said.out.contains("node gpu-1 of") && said.out.contains("answers; last heard"), "{said:?}");
                    assert!(said.out.contains("this machine and its server agree"), "{said:?}");
                }
            }
            ["sh", "machine", "stays"] => {
                let child = lab
                    .shell(true, &format!("exec {}", block.text))
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn();
                lab.stays.push(child.unwrap());
                eventually("the machine serves", || lab.state_of_node() == "ready");
            }
            ["sh", "server", "stays"] => {
                let (before, last) = block.text.trim_end().rsplit_once('\n').unwrap();
                lab.run(false, before).ends_with(0);
                let child =
                    lab.shell(false, &format!("exec {last}")).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
                lab.stays.push(child.unwrap());
                eventually("it serves", || {
                    lab.run(false, "windfall status --json").json()["server"]["is_service"] == true
                });
                let twice = lab.run(false, last).ends_with(5);
                assert!(twice.err.contains("another server runs on"), "{twice:?}");
            }
            ["sh", "systemd"] => lab.without_systemd(&block.text),
            other => panic!("a block that no test runs: {other:?}\n{}", block.text),
        }
    }
    let status = lab.run(false, "windfall status").ends_with(0);
    assert!(status.out.starts_with("no server runs on"), "{status:?}");
    drop(lab.far.take());
    for mut child in std::mem::take(&mut lab.stays) {
        let _ = child.kill();
        let _ = child.wait();
    }
    eventually("nothing of it runs", || processes::of(&lab.testbed.home).is_empty());
}

/// What the page says of a command's answer.
fn check_words(lab: &Lab, text: &str, said: &Said) {
    for (command, words) in [
        ("windfall logs 1", "hello from "),
        ("windfall config check", "is right: 3 keys set"),
        ("windfall config show", "file, line 3"),
        ("windfall nodes\n", "gpu-1"),
        ("windfall jobs --all", "succeeded"),
    ] {
        if text.contains(command) {
            assert!(said.out.contains(words), "{command}: {said:?}");
        }
    }
    if text.contains("windfall up") && lab.folder().join(".local/state/windfall/machines/nodes").exists() {
        eventually("the machine is back", || matches!(lab.state_of_node().as_str(), "ready" | ""));
    }
}
