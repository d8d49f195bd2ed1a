//! The configuration file, from outside: what is right holds, and what is wrong changes nothing.

use super::testbed::{Said, Testbed, eventually};
use std::os::unix::fs::PermissionsExt;

/// Every kind of file that is wrong, with words that its refusal has.
fn wrong(testbed: &Testbed) -> Vec<(String, Vec<&'static str>)> {
    let file = |name: &str, bytes: &[u8]| {
        let path = testbed.work.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let folder = testbed.work.join("folder.toml");
    std::fs::create_dir(&folder).unwrap();
    vec![
        (
            file("near.toml", b"[server]\nlisen = \"127.0.0.1:1\"\n"),
            vec!["near.toml:2:1", "no key `lisen`", "did you mean `listen`?"],
        ),
        (
            file("type.toml", b"[server]\nlocal = \"yes\"\n"),
            vec!["type.toml:2:9", "server.local is text", "expected: true or false"],
        ),
        (
            file("bare.toml", b"listen = \"127.0.0.1:1\"\n"),
            vec!["bare.toml:1:1", "at the top", "put it below a line `[server]`"],
        ),
        (
            file("value.toml", b"[server]\n\nlisten = \"everywhere\"\n"),
            vec!["value.toml:3:10", "not accepted: everywhere"],
        ),
        (
            file("quotes.toml", b"[server]\nlisten = 7443\n"),
            vec!["quotes.toml:2:10", "is a number", "write it in quotes"],
        ),
        (file("market.toml", b"[server]\nmarket = \"stedy\"\n"), vec!["market.toml:2:10", "did you mean \"steady\"?"]),
        (
            file("time.toml", b"[server]\nlisten = \"127.0.0.1:1\"\ndead_man = \"4s\"\n"),
            vec!["time.toml:3:12", "from 5 s to 30 days"],
        ),
        (
            file("worlds.toml", b"[server]\nlocal = true\nmarket = \"steady\"\n"),
            vec!["worlds.toml:2:1", "do not go together"],
        ),
        (file("needs.toml", b"[server]\nrate = 2\n"), vec!["needs.toml:2:1", "rate counts only with local"]),
        (
            file("twice.toml", b"[server]\nlocal = true\nlocal = false\n"),
            vec!["twice.toml:3:1", "this is not TOML", "duplicate key"],
        ),
        (file("broken.toml", b"[server\nlocal = true\n"), vec!["broken.toml:1:", "this is not TOML"]),
        (
            file("table.toml", b"server = 3\n"),
            vec!["table.toml:1:10", "server is a number, not a table", "[server] on a line of its own"],
        ),
        (
            file("list.toml", b"[server]\nlocal = true\naccelerators = [\"H100:8\", 3]\n"),
            vec!["list.toml:3:16", "server.accelerators is a list"],
        ),
        (file("agent.toml", b"[agent]\nstate = \"here\"\n"), vec!["agent.toml:2:9", "a path from the root"]),
        (file("binary.toml", b"[server]\nlocal = \xff\xfe\n"), vec!["binary.toml:2:", "not a text file"]),
        (file("zero.toml", b"\0\0\0"), vec!["zero.toml:1:1", "a zero byte"]),
        (file("large.toml", &vec![b'#'; (1 << 20) + 1]), vec!["larger than 1 MiB"]),
        (folder.display().to_string(), vec!["this is a folder, not a file"]),
        (
            testbed.work.join("nowhere.toml").display().to_string(),
            vec!["there is no such file", "windfall config example"],
        ),
    ]
}

fn refused(said: &Said, path: &str, words: &[&str]) {
    assert_eq!(said.code, Some(2), "{path}: {said:?}");
    for word in words {
        assert!(said.err.contains(word), "{path}: `{word}` is not said: {}", said.err);
    }
    assert_eq!(said.out, "", "{path}");
}

#[test]
fn a_wrong_configuration_is_refused_with_its_line_and_changes_nothing() {
    let testbed = Testbed::bare();
    for (path, words) in wrong(&testbed) {
        // The drawing must not break the names that are looked for.
        let run = |args: &[&str]| {
            let mut command = testbed.command(args);
            command.env("COLUMNS", "200");
            testbed.finish(command)
        };
        refused(&run(&["config", "check", &path]), &path, &words);
        refused(&run(&["up", "--config", &path]), &path, &words);
        refused(&run(&["up", "--foreground", "--config", &path]), &path, &words);
        refused(&run(&["config", "show", "--config", &path]), &path, &words);
        // A command that would start a server on the way.
        testbed.write("job.yaml", "run: 'true'\n");
        let mut submit = testbed.command(&["submit", "job.yaml"]);
        submit.env("WINDFALL_CONFIG", &path);
        refused(&testbed.finish(submit), &path, &words[..1]);
        assert!(!testbed.home.exists(), "{path}: nothing is written");
    }
    let json = testbed.run(&["config", "check", "--json", "near.toml"]).ends_with(2).json();
    assert_eq!(
        (&json["problems"][0]["class"], &json["problems"][0]["line"]),
        (&"unknown-key".into(), &2.into()),
        "{json}"
    );
}

#[test]
fn a_file_that_may_not_be_read_is_refused() {
    let testbed = Testbed::bare();
    let path = testbed.write("closed.toml", "");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
    let path = path.display().to_string();
    let said = match rustix::process::geteuid().is_root() {
        false => testbed.run(&["up", "--config", &path]),
        // Root may read everything: somebody else tries.
        true => {
            std::fs::set_permissions(testbed.work.parent().unwrap(), std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut command = std::process::Command::new("setpriv");
            command.args(["--reuid", "54321", "--regid", "54321", "--clear-groups", env!("CARGO_BIN_EXE_windfall")]);
            command.args(["up", "--config", &path]).env("WINDFALL_HOME", &testbed.home).env("NO_COLOR", "1");
            testbed.finish(command)
        }
    };
    refused(&said, &path, &["the file may not be read", "check its permissions"]);
    assert!(!testbed.home.exists());
}

#[test]
fn what_the_file_says_holds_and_a_running_server_does_not_mind_when_it_breaks() {
    let testbed = Testbed::bare();
    std::fs::create_dir(&testbed.home).unwrap();
    let config = testbed.home.join("config.toml");
    std::fs::write(&config, "").unwrap();
    assert!(testbed.run(&["config", "check"]).ends_with(0).out.contains("sets nothing: defaults hold"));
    std::fs::write(&config, "[server]\nlocal = true\naccelerators = \"H200:3\"\nrate = 1.5\n").unwrap();
    assert!(testbed.run(&["config", "check"]).ends_with(0).out.contains("is right: 3 keys set"));
    let shown = testbed.run(&["config", "show", "--rate", "2", "--json"]).ends_with(0).json();
    assert_eq!(shown["server"]["rate"], serde_json::json!({ "value": "2", "from": "flag" }));
    assert_eq!(shown["server"]["accelerators"], serde_json::json!({ "value": "H200:3", "from": "file, line 3" }));
    assert_eq!(shown["server"]["dead_man"]["from"], "default");
    assert_eq!(shown["server"]["idle"]["from"], "WINDFALL_IDLE");

    // A server that starts by itself reads it too; a flag counts more.
    testbed.write("job.yaml", "run: 'true'\n");
    testbed.run(&["submit", "job.yaml"]).ends_with(0);
    let status = testbed.run(&["status"]).ends_with(0);
    assert!(status.out.contains(" with H200:3 and "), "{status:?}");
    let other = testbed.run(&["up", "--accelerators", "H200:5"]).ends_with(0);
    assert!(
        other.out.contains(" with H200:3 and ") && other.err.contains("it keeps what it was started with"),
        "{other:?}"
    );
    testbed.run(&["down"]).ends_with(0);
    let up = testbed.run(&["up", "--accelerators", "H200:5"]).ends_with(0);
    assert!(up.out.contains(" with H200:5 and "), "{up:?}");
    assert_eq!(up.err, "note: --accelerators: H200:5; it was H200:3\n");

    let pid = |said: Said| said.json()["server"]["pid"].as_u64().unwrap();
    let before = pid(testbed.run(&["status", "--json"]));
    let world = std::fs::read_to_string(testbed.home.join("world.json")).unwrap();
    std::fs::write(&config, "[server]\nlocl = true\n").unwrap();
    testbed.run(&["up"]).ends_with(2);
    testbed.run(&["submit", "job.yaml"]).ends_with(0);
    assert_eq!(pid(testbed.run(&["status", "--json"])), before, "it goes on");
    assert_eq!(std::fs::read_to_string(testbed.home.join("world.json")).unwrap(), world);
    testbed.run(&["down", "--cancel"]).ends_with(0);
    let jobs = testbed.run(&["jobs"]).ends_with(2);
    assert!(jobs.err.contains("did you mean `local`?"), "no server starts with it: {jobs:?}");
    assert_eq!(std::fs::read_to_string(testbed.home.join("world.json")).unwrap(), world);
    std::fs::remove_file(&config).unwrap();
}

/// Programs of jobs, the oldest first.
fn programs(testbed: &Testbed) -> Vec<i32> {
    let of_home = super::processes::of(&testbed.home).into_iter();
    of_home.filter(|process| process.role == super::processes::Role::Program).map(|process| process.pid).collect()
}

#[test]
fn a_server_in_the_foreground_stays_says_that_it_is_ready_and_ends_on_a_signal() {
    let testbed = Testbed::bare();
    let socket = testbed.work.join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(super::testbed::LIMIT)).unwrap();
    let mut command = testbed.command(&["up", "--foreground", "--local", "--idle", "1s"]);
    command.env("NOTIFY_SOCKET", &socket).env_remove("WINDFALL_IDLE");
    let log = std::fs::File::create(testbed.work.join("log")).unwrap();
    let mut server = command.stdout(std::process::Stdio::null()).stderr(log).spawn().unwrap();
    let mut said = [0; 64];
    let length = manager.recv(&mut said).unwrap();
    assert_eq!(&said[..length], b"READY=1");
    // What somebody wrote counts also there: it ends itself, and that is no failure.
    assert_eq!(super::testbed::wait(&mut server), Some(0));

    let mut command = testbed.command(&["up", "--foreground"]);
    command.env_remove("WINDFALL_IDLE");
    let mut server = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let status = || testbed.run(&["status", "--json"]).ends_with(0).json();
    eventually("it serves", || status()["running"] == true);
    let hello = &status()["server"];
    assert!(hello["is_service"] == true && hello["pid"] == server.id(), "{hello}");
    testbed.write("job.yaml", "run: 'until [ -e end ]; do sleep 0.1; done'\n");
    let id = testbed.run(&["submit", "--json", "job.yaml"]).ends_with(0).json()["id"].as_u64().unwrap();
    testbed.until(id, &["running"]);
    eventually("its program runs", || !programs(&testbed).is_empty());
    let shell = programs(&testbed)[0];
    super::processes::signal(server.id() as i32, rustix::process::Signal::TERM);
    assert_eq!(super::testbed::wait(&mut server), Some(0));
    assert!(programs(&testbed).contains(&shell), "what runs goes on");
    let mut again = command.spawn().unwrap();
    eventually("it serves again", || status()["running"] == true);
    assert!(programs(&testbed).contains(&shell), "it is found again");
    assert_eq!(testbed.job(id)["state"], "running");
    testbed.write("end", "");
    testbed.until(id, &["succeeded"]);
    super::processes::signal(again.id() as i32, rustix::process::Signal::INT);
    assert_eq!(super::testbed::wait(&mut again), Some(0), "Ctrl-C ends it too");
}

#[test]
fn an_agent_reads_its_table_too() {
    let testbed = Testbed::bare();
    let state = testbed.work.join("agent");
    std::fs::create_dir(&state).unwrap();
    let state = state.display().to_string();
    // What an agent of root's runs as others must get to its folders.
    std::fs::set_permissions(testbed.work.parent().unwrap(), std::os::unix::fs::PermissionsExt::from_mode(0o711))
        .unwrap();
    let join = |args: &[&str]| testbed.run(&[&["agent", "join", "--state", &state], args].concat());
    let none = join(&[]).ends_with(2);
    assert!(none.err.contains("has not joined"), "{none:?}");
    std::fs::write(testbed.work.join("agent/config.toml"), "[agent]\nserver = \"nowhere\"\n").unwrap();
    let bad = join(&[]).ends_with(2);
    assert!(bad.err.contains("agent.server: not accepted: nowhere") && bad.err.contains(":2:10"), "{bad:?}");
    // An address where nobody listens: the file's counts, and a flag counts more.
    std::fs::write(testbed.work.join("agent/config.toml"), "[agent]\nserver = \"127.0.0.1:1\"\n").unwrap();
    let token = format!("windfall-join-{}", "0".repeat(96));
    let away = join(&["--token", &token]).ends_with(5);
    assert!(away.err.contains("127.0.0.1:1 cannot be reached"), "{away:?}");
    let other = join(&["127.0.0.1:2", "--token", &token]).ends_with(5);
    assert!(other.err.contains("127.0.0.1:2 cannot be reached"), "{other:?}");
}
