//! Units of systemd: printed, written and removed. What a unit says is in `unit`; state and configuration are never
//! removed here.

mod unit;

use crate::args::{ServiceArgs, ServiceCommand, UnitArgs, UnitName};
use crate::config::example;
use crate::here::Here;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use unit::{MARK, Unit};
use windfall_server::client::{Code, Failure};

/// There while systemd is the first process of this machine (sd_booted(3)).
const BOOTED: &str = "/run/systemd/system";

pub fn service(here: &Here, command: &ServiceCommand) -> Result<Code, Failure> {
    match command {
        ServiceCommand::Print(args) => {
            let unit = unit(here, args)?;
            match here.json {
                true => println!("{}", printed(&unit, &units(args)?)),
                false => print!("{}", unit.text()),
            }
            Ok(Code::Done)
        }
        ServiceCommand::Install(args) => install(here, args),
        ServiceCommand::Uninstall(args) => uninstall(here, args),
    }
}

/// A unit for programs: its text, and where `install` would write it.
fn printed(unit: &Unit, folder: &Path) -> serde_json::Value {
    serde_json::json!({
        "unit": folder.join(unit.file_name()),
        "text": unit.text(),
        "config": unit.config,
        "state": unit.state,
    })
}

fn home_of_user() -> Result<PathBuf, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.ok_or_else(|| Failure::new(Code::BadInput, "no home directory").hint("set HOME"))
}

/// The unit that is asked for. One of this user has the state directory that every other command of theirs uses.
fn unit(here: &Here, args: &UnitArgs) -> Result<Unit, Failure> {
    let is_account = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if args.account.is_empty() || args.account.starts_with('-') || !args.account.chars().all(is_account) {
        let failure = Failure::new(Code::BadInput, format!("--account: not the name of an account: {}", args.account));
        return Err(failure.hint("such as windfall"));
    }
    let own = || std::env::current_exe().map_err(|error| Failure::new(Code::Bug, error.to_string()));
    let program = match &args.program {
        Some(program) if program.is_absolute() => program.clone(),
        Some(program) => {
            let failure =
                Failure::new(Code::BadInput, format!("--program: not a path from the root: {}", program.display()));
            return Err(failure.hint("such as /usr/local/bin/windfall"));
        }
        None => own()?,
    };
    let (config, state) = match (args.user, args.unit) {
        (true, UnitName::Server) => (here.home.join("config.toml"), here.home.clone()),
        (true, UnitName::Agent) => {
            let state = home_of_user()?.join(".local/state/windfall-agent");
            (state.join("config.toml"), state)
        }
        (false, UnitName::Server) => (PathBuf::from("/etc/windfall/config.toml"), PathBuf::from("/var/lib/windfall")),
        (false, UnitName::Agent) => {
            (PathBuf::from("/etc/windfall/config.toml"), PathBuf::from("/var/lib/windfall-agent"))
        }
    };
    let account = (!args.user).then(|| args.account.clone());
    Ok(Unit { name: args.unit, account, program, config, state })
}

/// The folder of units.
fn units(args: &UnitArgs) -> Result<PathBuf, Failure> {
    if !args.user {
        return Ok(PathBuf::from("/etc/systemd/system"));
    }
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    Ok(named.map_or_else(|| home_of_user().map(|home| home.join(".config")), Ok)?.join("systemd/user"))
}

/// A path of the machine, below the root that is being made.
fn below(root: Option<&Path>, path: &Path) -> PathBuf {
    root.map_or_else(|| path.to_owned(), |root| root.join(path.strip_prefix("/").unwrap_or(path)))
}

fn cannot(what: &str, path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let text = format!("{} cannot be {what}", path.display());
    move |error| match error.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::new(Code::BadInput, format!("{text}: {error}"))
            .hint("units of the system are root's: use sudo, or --user for a unit of your own"),
        _ => Failure::new(Code::BadInput, format!("{text}: {error}")),
    }
}

/// Fails where a unit of somebody else is in the way.
fn is_ours(path: &Path, args: &ServiceArgs) -> Result<bool, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) if text.starts_with(MARK) || args.force => Ok(true),
        Ok(_) => {
            let failure = Failure::new(Code::BadInput, format!("{} was not written by windfall", path.display()));
            Err(failure.hint("look at it first; --force replaces or removes it"))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot("read", path)(error)),
    }
}

/// Fails where there is nobody to hand a unit to.
fn needs_systemd(args: &ServiceArgs) -> Result<(), Failure> {
    if args.root.is_some() || Path::new(BOOTED).is_dir() {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, "systemd does not run here, so nobody would start the unit");
    Err(failure.hint("`windfall service print` shows it, --root DIR writes it below a folder; in a container, run `windfall up --foreground`"))
}

fn install(here: &Here, args: &ServiceArgs) -> Result<Code, Failure> {
    let unit = unit(here, &args.unit)?;
    needs_systemd(args)?;
    let root = args.root.as_deref();
    if let (None, Some(account)) = (root, &unit.account) {
        is_known(account)?;
    }
    let path = below(root, &units(&args.unit)?.join(unit.file_name()));
    is_ours(&path, args)?;
    let config = below(root, &unit.config);
    write(&path, &unit.text(), 0o644)?;
    let has_config = config.symlink_metadata().is_ok();
    if !has_config {
        // It may come to hold the password of a database.
        write(&config, &example(), if unit.account.is_some() { 0o640 } else { 0o600 })?;
    }
    if root.is_none() {
        if let (false, Some(account)) = (has_config, &unit.account) {
            run("chgrp", &[account, &config.to_string_lossy()])?;
        }
        systemctl(&args.unit, &["daemon-reload"])?;
    }
    let next = next_steps(&unit, &args.unit);
    if here.json {
        println!("{}", serde_json::json!({ "unit": path, "config": config, "next": next }));
        return Ok(Code::Done);
    }
    println!("wrote {}", path.display());
    if !has_config {
        println!("wrote {}, which sets nothing yet", config.display());
    }
    println!("next:");
    next.iter().for_each(|line| println!("  {line}"));
    Ok(Code::Done)
}

/// What is left to do, as commands.
fn next_steps(unit: &Unit, args: &UnitArgs) -> Vec<String> {
    let systemctl = if args.user { "systemctl --user" } else { "systemctl" };
    let [program, state] = [&unit.program, &unit.state].map(|path| path.display().to_string());
    let mut next = Vec::new();
    if unit.name == UnitName::Agent {
        let join = format!("{program} agent join HOST:PORT --token-file - --once --state {state}");
        match &unit.account {
            Some(account) => {
                next.push(format!("install -d -o {account} -m 0700 {state}"));
                next.push(format!("runuser -u {account} -- {join}"));
            }
            None => next.push(join),
        }
    }
    if args.user {
        // Without it, everything of a user ends when they log out.
        next.push("loginctl enable-linger".to_owned());
    }
    next.push(format!("{systemctl} enable --now {}", unit.file_name()));
    next
}

fn uninstall(here: &Here, args: &ServiceArgs) -> Result<Code, Failure> {
    let unit = unit(here, &args.unit)?;
    needs_systemd(args)?;
    let path = below(args.root.as_deref(), &units(&args.unit)?.join(unit.file_name()));
    if !is_ours(&path, args)? {
        match here.json {
            true => println!("{}", serde_json::json!({ "unit": path, "removed": false })),
            false => println!("there is no unit: {}", path.display()),
        }
        return Ok(Code::Done);
    }
    if args.root.is_none() {
        systemctl(&args.unit, &["disable", "--now", unit.file_name()])?;
    }
    std::fs::remove_file(&path).map_err(cannot("removed", &path))?;
    if args.root.is_none() {
        systemctl(&args.unit, &["daemon-reload"])?;
    }
    match here.json {
        true => println!("{}", serde_json::json!({ "unit": path, "removed": true })),
        false => println!(
            "removed {}; {} and {} stay, and what runs goes on",
            path.display(),
            unit.state.display(),
            unit.config.display()
        ),
    }
    Ok(Code::Done)
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), Failure> {
    let failed = cannot("written", path);
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.exists() {
        std::fs::create_dir_all(folder).map_err(&failed)?;
        std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).map_err(&failed)?;
    }
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let file = std::fs::File::options().write(true).create_new(true).mode(mode).open(&new);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    // Whatever the mask of whoever installs it: the service's account must be able to read it.
    let written = written.and_then(|()| std::fs::set_permissions(&new, PermissionsExt::from_mode(mode)));
    written.and_then(|()| std::fs::rename(&new, path)).map_err(failed)
}

fn is_known(account: &str) -> Result<(), Failure> {
    let known = Command::new("id").arg("-u").arg(account).output().is_ok_and(|said| said.status.success());
    if known {
        return Ok(());
    }
    let failure = Failure::new(Code::BadInput, format!("there is no account `{account}`"));
    Err(failure.hint(format!(
        "useradd --system --create-home {account}, or --account NAME: one that may use the accelerators"
    )))
}

fn systemctl(args: &UnitArgs, words: &[&str]) -> Result<(), Failure> {
    let scope: &[&str] = if args.user { &["--user"] } else { &[] };
    run("systemctl", &[scope, words].concat())
}

fn run(program: &str, words: &[&str]) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(Code::BadInput, format!("{program} {}: {}", words.join(" "), why.trim()));
    let said = Command::new(program).args(words).output().map_err(|error| failed(error.to_string()))?;
    if said.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&said.stderr).into_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_for_programs_is_json_with_the_text_in_it() {
        let unit = Unit {
            name: UnitName::Server,
            account: Some("windfall".to_owned()),
            program: PathBuf::from("/usr/bin/windfall"),
            config: PathBuf::from("/etc/windfall/config.toml"),
            state: PathBuf::from("/var/lib/windfall"),
        };
        let printed = printed(&unit, Path::new("/etc/systemd/system"));
        assert_eq!(printed["unit"], "/etc/systemd/system/windfall-server.service");
        assert_eq!(printed["text"], unit.text());
    }
}
