//! `windfall doctor` from outside: it finds what is broken on purpose, and changes nothing.

use super::testbed::{Said, Testbed};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// The finding of that name.
fn of<'a>(report: &'a Value, name: &str) -> &'a Value {
    let all = report["checks"].as_array().unwrap();
    all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name}: {report}"))
}

fn asked(testbed: &Testbed, more: &[(&str, &str)]) -> Said {
    let mut command = testbed.command(&["doctor", "--json"]);
    // An agent of the machine that tests run on is not of this test.
    command.env("HOME", &testbed.work).env_remove("WINDFALL_CONFIG").envs(more.iter().copied());
    testbed.finish(command)
}

#[test]
fn a_look_changes_nothing_and_starts_nothing() {
    let testbed = Testbed::bare();
    let report = asked(&testbed, &[]).json();
    for name in ["python3", "driver", "clock", "config", "state", "disk", "server", "cgroups", "limits", "kernel"] {
        let check = of(&report, name);
        let is_ok = check["state"] == "ok";
        assert_eq!(check["mend"].is_null(), is_ok, "whatever is not right has a command that mends it: {check}");
        assert!(!check["says"].as_str().unwrap().is_empty(), "{check}");
    }
    assert!(of(&report, "state")["says"].as_str().unwrap().contains("is made when it is needed"));
    assert!(of(&report, "server")["says"].as_str().unwrap().contains("none runs"));
    assert!(!testbed.home.exists() && std::fs::read_dir(&testbed.work).unwrap().next().is_none());
}

#[test]
fn what_is_broken_is_found_and_the_exit_code_says_so() {
    let testbed = Testbed::bare();
    let state = |report: &Value, name: &str| of(report, name)["state"].as_str().unwrap().to_owned();
    let no_python = asked(&testbed, &[("PATH", "/nowhere")]).json();
    assert_eq!(state(&no_python, "python3"), "warning");
    assert!(of(&no_python, "python3")["mend"].as_str().unwrap().contains("python3"));

    std::fs::create_dir(&testbed.home).unwrap();
    std::fs::set_permissions(&testbed.home, std::fs::Permissions::from_mode(0o777)).unwrap();
    let open = asked(&testbed, &[]).ends_with(2).json();
    assert_eq!(state(&open, "state"), "missing");
    assert_eq!(of(&open, "state")["mend"], format!("chmod o-w {}", testbed.home.display()));
    std::fs::set_permissions(&testbed.home, std::fs::Permissions::from_mode(0o711)).unwrap();
    assert_eq!(state(&asked(&testbed, &[]).json(), "state"), "ok");

    let config = testbed.home.join("config.toml");
    std::fs::write(&config, "[server]\nlisen = 1\n").unwrap();
    let wrong = asked(&testbed, &[]).ends_with(2).json();
    assert!(of(&wrong, "config")["says"].as_str().unwrap().contains("config.toml:2:1"), "{wrong}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    std::fs::write(&config, format!("[server]\nlisten = \"{address}\"\n")).unwrap();
    let busy = asked(&testbed, &[]).ends_with(2).json();
    assert!(of(&busy, "port")["says"].as_str().unwrap().contains("somebody else has it"), "{busy}");
    drop(taken);
    assert_eq!(state(&asked(&testbed, &[]).json(), "port"), "ok");
    testbed.run(&["up"]).ends_with(0);
    let ours = asked(&testbed, &[]).json();
    assert_eq!(of(&ours, "port")["says"], format!("{address} is the server's"));
    assert!(of(&ours, "server")["says"].as_str().unwrap().starts_with("version "), "{ours}");

    std::fs::set_permissions(testbed.home.join("secrets.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = asked(&testbed, &[]).ends_with(2).json();
    assert!(of(&open, "state")["says"].as_str().unwrap().contains("others may read"), "{open}");
    std::fs::set_permissions(testbed.home.join("secrets.key"), std::fs::Permissions::from_mode(0o600)).unwrap();

    // A machine that has joined, whose agent is not there.
    let agent = testbed.work.join(".local/state/windfall-agent");
    std::fs::create_dir_all(&agent).unwrap();
    let joined = serde_json::json!({ "server": address.to_string(), "key": "0".repeat(64), "name": "gpu-1" });
    let own = if rustix::process::geteuid().is_root() {
        format!("[agent]\nstate = \"{}\"\n", agent.display())
    } else {
        String::new()
    };
    std::fs::write(&config, format!("[server]\nlisten = \"{address}\"\n{own}")).unwrap();
    std::fs::write(agent.join("joined.json"), joined.to_string()).unwrap();
    let idle = asked(&testbed, &[]).ends_with(2).json();
    assert!(
        of(&idle, "agent")["says"].as_str().unwrap().contains("gpu-1") && state(&idle, "agent") == "missing",
        "{idle}"
    );
    assert_eq!(state(&idle, "network"), "ok", "{idle}");
    testbed.run(&["down"]).ends_with(0);
    assert_eq!(state(&asked(&testbed, &[]).json(), "network"), "missing");
}

#[test]
fn it_reads_well_in_sixty_columns() {
    let testbed = Testbed::bare();
    let mut command = testbed.command(&["doctor"]);
    command.env("COLUMNS", "60").env("HOME", &testbed.work);
    let said = testbed.finish(command);
    for line in said.out.lines().filter(|line| !line.trim_start().starts_with("mend: ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A path is one word, and longer than a line may be.
        assert!(line.chars().count() <= 60 || words.iter().any(|word| word.len() > 40), "{line}");
    }
    assert!(said.out.lines().last().unwrap().contains("missing"), "{said:?}");
}
