//! The configuration file of a server and of an agent: read before anything is done, checked, shown.

use super::said_once::SaidOnce;
use crate::args::{ConfigCommand, JoinArgs, UpArgs};
use crate::config::{
    CONFIG_VARIABLE, ConfigFile, Setting, Wrong, example, file_in_use, join_with_file, of_agent, of_kubernetes,
    of_server, of_slurm, read, whole,
};
use crate::fitted::folded;
use crate::here::{Here, agent_state};
use crate::live;
use std::path::Path;
use windfall_core::english::counted;
use windfall_server::client::{Code, Failure};

pub fn config(here: &Here, command: &ConfigCommand) -> Result<Code, Failure> {
    match command {
        ConfigCommand::Check { file } => check(here, file.as_deref()),
        ConfigCommand::Show(args) => show(here, args),
        ConfigCommand::Example => {
            print!("{}", example());
            Ok(Code::Done)
        }
    }
}

/// The file that counts, read; none where there is none.
fn file(here: &Here, named: Option<&Path>, state: Option<&Path>) -> Result<Option<ConfigFile>, Failure> {
    let path = file_in_use(named, state);
    path.map(|path| read(&path).map_err(|error| here.bad_configuration(&Wrong::File(error)))).transpose()
}

/// The flags, and what the environment and the configuration file say where no flag does.
pub(super) fn settled(here: &Here, args: &UpArgs) -> Result<UpArgs, Failure> {
    // A rehearsal has a world of its own.
    let file = match args.bound_to {
        Some(_) => None,
        None => file(here, args.config.as_deref(), Some(&here.home))?,
    };
    whole(args, file.as_ref()).map_err(|wrong| here.bad_configuration(&wrong))
}

/// The same for an agent.
pub(super) fn settled_join(args: JoinArgs, json: bool) -> Result<JoinArgs, Failure> {
    let state = agent_state(args.state.clone()).ok();
    let here = Here { home: state.clone().unwrap_or_default(), json };
    let file = file(&here, args.config.as_deref(), state.as_deref())?;
    let all = of_agent(&args, file.as_ref());
    let mut whole = join_with_file(args, &all);
    let state = agent_state(whole.state.clone())?;
    let is_said = |key: &str| all.iter().any(|setting| setting.key.name == key && setting.value.is_some());
    let kept = SaidOnce::of(&state)?.fill(&mut whole, is_said);
    if !kept.is_empty() {
        eprintln!("as said when it joined ({}): {}", SaidOnce::path(&state).display(), kept.join(" "));
    }
    Ok(whole)
}

fn check(here: &Here, named: Option<&Path>) -> Result<Code, Failure> {
    let Some(file) = file(here, named, Some(&here.home))? else {
        let usual = here.home.join("config.toml");
        match here.json {
            true => println!("{}", serde_json::json!({ "file": null, "keys": 0 })),
            false => println!("there is no configuration file: defaults hold\nhint: it would be {}", usual.display()),
        }
        return Ok(Code::Done);
    };
    whole(&UpArgs::default(), Some(&file)).map_err(|wrong| here.bad_configuration(&wrong))?;
    let keys = file.len();
    match (here.json, keys) {
        (true, _) => println!("{}", serde_json::json!({ "file": file.path, "keys": keys })),
        (false, 0) => println!("{} sets nothing: defaults hold", file.path.display()),
        (false, _) => println!("{} is right: {} set", file.path.display(), counted(keys as u64, "key")),
    }
    Ok(Code::Done)
}

fn show(here: &Here, args: &UpArgs) -> Result<Code, Failure> {
    let file = file(here, args.config.as_deref(), Some(&here.home))?;
    let server = of_server(args, file.as_ref()).map_err(|wrong| here.bad_configuration(&wrong))?;
    let whole = whole(args, file.as_ref()).map_err(|wrong| here.bad_configuration(&wrong))?;
    super::worlds::check_flags(&whole)?;
    let (agent, slurm) = (of_agent(&JoinArgs::default(), file.as_ref()), of_slurm(file.as_ref()));
    let kubernetes = of_kubernetes(file.as_ref());
    let world = super::worlds::world(&whole);
    let (world_is_set, is_real) = (world.is_some(), world.is_some_and(|world| world.replay().is_none()));
    let kept = (!world_is_set).then(|| here.home.join("world.json")).filter(|path| path.exists());
    // One that listens is waited for by others, so it does not end by itself unless that is said.
    let stays = |one: &Setting| one.key.name == "idle" && !one.is_set() && whole.listen.is_some();
    let value = |one: &Setting| if stays(one) { "never".to_owned() } else { one.shown() };
    if here.json {
        let list = |all: &[Setting]| {
            let one = |one: &Setting| {
                (one.key.name.to_owned(), serde_json::json!({ "value": value(one), "from": one.source.word() }))
            };
            all.iter().map(one).collect::<serde_json::Map<_, _>>()
        };
        let path = file.as_ref().map(|file| &file.path);
        let shown = serde_json::json!({
            "file": path, "server": list(&server), "agent": list(&agent), "slurm": whole.slurm.is_some().then(|| list(&slurm)),
            "kubernetes": whole.kubernetes.is_some().then(|| list(&kubernetes)), "world": kept,
        });
        println!("{shown}");
        return Ok(Code::Done);
    }
    match &file {
        Some(file) => println!("file: {}", file.path.display()),
        None => println!(
            "file: none; --config, {CONFIG_VARIABLE} or {} would be one",
            here.home.join("config.toml").display()
        ),
    }
    let all = [("server", &server), ("agent", &agent), ("slurm", &slurm), ("kubernetes", &kubernetes)];
    for (name, all) in all {
        let is_set = match name {
            "slurm" => whole.slurm.is_some(),
            "kubernetes" => whole.kubernetes.is_some(),
            _ => true,
        };
        if !is_set {
            println!("\n[{name}] is not set: no cluster is used");
            continue;
        }
        println!("\n[{name}]");
        let width = all.iter().map(|one| value(one).chars().count()).max().unwrap_or(0).min(36);
        for one in all.iter().filter(|one| !(is_real && one.is_of_recordings())) {
            let said = format!("{:<width$}  {}", value(one), one.source.word());
            print!("{}", folded(&format!("{:<13} ", one.key.name), &said, live::width()));
        }
    }
    if let Some(kept) = kept {
        println!("\nneither flags nor file say which world: the one of {} holds", kept.display());
    }
    Ok(Code::Done)
}
