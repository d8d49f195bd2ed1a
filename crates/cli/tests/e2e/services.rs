//! Units of systemd: written below a folder, verified by systemd's own program, and never over somebody else's.

use super::far::Far;
use super::testbed::{Testbed, eventually, is_root};
use std::process::Command;

fn all() -> [(&'static str, Vec<&'static str>); 4] {
    [
        ("windfall-server.service", vec!["server"]),
        ("windfall-server.service", vec!["server", "--user"]),
        ("windfall-agent.service", vec!["agent"]),
        ("windfall-agent.service", vec!["agent", "--user"]),
    ]
}

#[test]
fn systemd_finds_nothing_wrong_with_a_unit_and_would_find_a_mistake() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        println!("skipped: systemd_finds_nothing_wrong_with_a_unit (systemd-analyze is not installed)");
        return;
    }
    let testbed = Testbed::bare();
    let verify = |file: &str, text: &str, is_user: bool| {
        let path = testbed.write(file, text);
        let mut command = Command::new("systemd-analyze");
        command.args(["verify", "--man=no"]).args(is_user.then_some("--user")).arg(&path);
        // A manager of a user wants a folder for its sockets.
        command.env("XDG_RUNTIME_DIR", &testbed.work);
        let said = testbed.finish(command);
        // Units of this computer that it looks at on the way may have faults of their own.
        let ours = |line: &&str| line.contains(file);
        let faults = said.err.lines().chain(said.out.lines()).filter(ours).map(str::to_owned).collect::<Vec<_>>();
        (said.code, faults)
    };
    for (file, words) in all() {
        let is_user = words.contains(&"--user");
        let text = testbed.run(&[&["service", "print"], words.as_slice()].concat()).ends_with(0).out;
        assert_eq!(verify(file, &text, is_user), (Some(0), Vec::new()), "{words:?}: {text}");
        let mistaken = text.replace("KillMode=process", "KilMode=process");
        assert_ne!(mistaken, text);
        assert!(!verify(file, &mistaken, is_user).1.is_empty(), "a mistake would be found");
    }
}

#[test]
fn units_are_written_below_a_folder_and_removed_and_nothing_else_is() {
    let testbed = Testbed::bare();
    let root = testbed.work.join("image");
    let home = testbed.work.join("home of a user");
    std::fs::create_dir(&home).unwrap();
    let run = |args: &[&str]| {
        let mut command = testbed.command(args);
        command.env("HOME", &home).env_remove("XDG_CONFIG_HOME");
        testbed.finish(command)
    };
    for (file, words) in all() {
        let folder = match words.contains(&"--user") {
            true => root.join(home.strip_prefix("/").unwrap()).join(".config/systemd/user"),
            false => root.join("etc/systemd/system"),
        };
        let image = root.display().to_string();
        let service = |verb: &str, more: &[&str]| {
            run(&[&["service", verb], words.as_slice(), &["--root", &image], more].concat())
        };
        let printed = run(&[&["service", "print"], words.as_slice()].concat()).ends_with(0).out;
        let installed = service("install", &[]).ends_with(0);
        assert!(installed.out.contains("next:\n") && installed.out.contains("enable --now"), "{installed:?}");
        assert_eq!(std::fs::read_to_string(folder.join(file)).unwrap(), printed);
        let json = service("install", &["--json"]).ends_with(0).json();
        assert_eq!(json["unit"], folder.join(file).display().to_string());
        // A configuration is written where there is none, is right, and stays as its owner left it.
        let config = json["config"].as_str().unwrap().to_owned();
        run(&["config", "check", &config]).ends_with(0);
        std::fs::write(&config, "[agent]\nname = \"gpu-1\"\n").unwrap();
        service("install", &[]).ends_with(0);
        assert!(std::fs::read_to_string(&config).unwrap().contains("gpu-1"));

        std::fs::write(folder.join(file), "[Service]\nExecStart=/bin/true\n").unwrap();
        for verb in ["install", "uninstall"] {
            let refused = service(verb, &[]).ends_with(2);
            assert!(
                refused.err.contains("was not written by windfall") && refused.err.contains("--force"),
                "{refused:?}"
            );
        }
        service("install", &["--force"]).ends_with(0);
        service("uninstall", &[]).ends_with(0);
        assert!(!folder.join(file).exists() && std::path::Path::new(&config).exists());
        assert!(service("uninstall", &[]).ends_with(0).out.starts_with("there is no unit"));
    }
    assert!(!testbed.home.exists() && std::fs::read_dir(&home).unwrap().next().is_none(), "nothing beside the image");
}

#[test]
fn what_cannot_be_installed_says_why() {
    let testbed = Testbed::bare();
    let printed = testbed.run(&["service", "print"]).ends_with(0);
    assert!(printed.out.contains("up --foreground --config"), "{printed:?}");
    for (args, says) in [
        (vec!["service", "print", "--account", "a b"], "not the name of an account"),
        (vec!["service", "print", "--program", "windfall"], "not a path from the root"),
        (vec!["service", "print", "--user", "--account", "x"], "cannot be used with"),
        (vec!["service", "print", "router"], "invalid value 'router'"),
        (vec!["service"], "Usage:"),
    ] {
        let said = testbed.run(&args).ends_with(2);
        assert!(said.err.contains(says), "{args:?}: {said:?}");
    }
    if !std::path::Path::new("/run/systemd/system").is_dir() {
        for verb in ["install", "uninstall"] {
            let said = testbed.run(&["service", verb, "server"]).ends_with(2);
            assert!(said.err.contains("systemd does not run here") && said.err.contains("service print"), "{said:?}");
        }
    }
}

/// What systemd does to a unit with KillMode=process: the service's own process is told to end, and nobody else.
#[test]
fn work_on_a_node_outlives_an_agent_that_is_stopped_as_its_service_is() {
    if !is_root("a machine of its own") {
        return;
    }
    let testbed = Testbed::bare();
    let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    testbed.run(&["up", "--listen", &format!("0.0.0.0:{port}")]).ends_with(0);
    let mut far = Far::new(&testbed);
    let token = testbed.run(&["nodes", "token", "lab-1"]).ends_with(0).out.trim().to_owned();
    far.start_agent(port, Some(&token));
    let is = |state: &str| testbed.run(&["nodes", "--json"]).ends_with(0).json()[0]["state"] == state;
    eventually("it is ready", || is("ready"));
    let id = testbed.submit("run: 'until [ -e end ]; do sleep 0.1; done'\n");
    testbed.until(id, &["running"]);
    eventually("its program runs", || !far.programs(id).is_empty());
    let shell = far.programs(id)[0];
    assert_eq!(far.stop_agent(), Some(0), "it ends as it should");
    eventually("it is away", || is("away"));
    assert!(far.programs(id).contains(&shell), "what runs goes on");
    far.start_agent(port, None);
    eventually("it is back", || is("ready"));
    assert!(far.programs(id).contains(&shell), "and is found again");
    far.write(&testbed.work.join("end"), "");
    testbed.until(id, &["succeeded"]);
    testbed.leaves_nothing();
}
