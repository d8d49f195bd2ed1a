//! What holds, and who said it: a flag, the environment, the configuration file, or nobody. Flags and the file are put
//! together here, and what they say of each other is checked.

use super::keys::{Key, RULES, Rule, Section, section};
use super::read::{ConfigFile, Value};
use super::values;
use crate::args::{JoinArgs, UpArgs};
use std::path::{Path, PathBuf};
use windfall_jobfile::{Class, JobFileError, Problem};

/// Names the configuration file where no flag does.
pub(crate) const CONFIG_VARIABLE: &str = "WINDFALL_CONFIG";
/// Says, in seconds, what `idle` says.
pub(crate) const IDLE_VARIABLE: &str = "WINDFALL_IDLE";
/// Says what `policy` says.
pub(crate) const POLICY_VARIABLE: &str = "WINDFALL_POLICY";

/// Who said what holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Flag,
    Environment(&'static str),
    File { line: usize },
    Default,
}

/// One key, and what holds.
pub(crate) struct Setting {
    pub section: &'static Section,
    pub key: &'static Key,
    pub value: Option<Value>,
    pub source: Source,
}

/// What is wrong with settings.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// In the file.
    File(JobFileError),
    /// Between flags, with a hint.
    Flags { message: String, hint: String },
}

/// The file that counts: the one that was named, else the one that the environment names, else `config.toml` of the
/// state directory where there is one.
pub(crate) fn file_in_use(named: Option<&Path>, state: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(CONFIG_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    let usual = || state.map(|state| state.join("config.toml")).filter(|path| path.symlink_metadata().is_ok());
    let path = named.map(Path::to_owned).or_else(variable).or_else(usual)?;
    // A server is started in another folder.
    std::path::absolute(&path).ok().or(Some(path))
}

/// What the flags of `up` say of a key.
fn of_flags(args: &UpArgs, key: &str) -> Option<Value> {
    let text = |text: &Option<String>| text.clone().map(Value::Text);
    let list = |list: &Vec<String>| (!list.is_empty()).then(|| Value::List(list.clone()));
    match key {
        "local" => args.local.map(Value::Flag),
        "listen" => args.listen.map(|address| Value::Text(address.to_string())),
        "dead_man" => text(&args.dead_man),
        "accelerators" => list(&args.accelerators),
        "rate" => args.rate.map(Value::Number),
        "store" => text(&args.store),
        "idle" => text(&args.idle),
        "policy" => text(&args.policy),
        "market" => text(&args.market),
        "zones" => list(&args.zones),
        "from_hours" => args.from_hours.map(Value::Number),
        "speed" => args.speed.map(|speed| Value::Number(speed.into())),
        _ => None,
    }
}

/// Sets a flag of `up` to what a key says.
fn set_flag(args: &mut UpArgs, key: &str, value: Value) {
    match (key, value) {
        ("local", Value::Flag(is)) => args.local = Some(is),
        ("listen", Value::Text(text)) => args.listen = text.parse().ok(),
        ("dead_man", Value::Text(text)) => args.dead_man = Some(text),
        ("accelerators", Value::List(list)) => args.accelerators = list,
        ("rate", Value::Number(rate)) => args.rate = Some(rate),
        ("store", Value::Text(text)) => args.store = Some(text),
        ("idle", Value::Text(text)) => args.idle = Some(text),
        ("policy", Value::Text(text)) => args.policy = Some(text),
        ("market", Value::Text(text)) => args.market = Some(text),
        ("zones", Value::List(list)) => args.zones = list,
        ("from_hours", Value::Number(hours)) => args.from_hours = Some(hours),
        ("speed", Value::Number(speed)) => args.speed = Some(speed as u32),
        _ => {}
    }
}

fn of_join(args: &JoinArgs, key: &str) -> Option<Value> {
    match key {
        "server" => args.server.clone().map(Value::Text),
        "name" => args.name.clone().map(Value::Text),
        "accelerators" => (!args.accelerators.is_empty()).then(|| Value::List(args.accelerators.clone())),
        "labels" => (!args.labels.is_empty()).then(|| Value::List(args.labels.clone())),
        "state" => args.state.as_ref().map(|path| Value::Text(path.to_string_lossy().into_owned())),
        "as_root" => args.as_root.then_some(Value::Flag(true)),
        "run_as" => args.run_as.clone().map(Value::Text),
        _ => None,
    }
}

fn set_join(args: &mut JoinArgs, key: &str, value: Value) {
    match (key, value) {
        ("server", Value::Text(text)) => args.server = Some(text),
        ("name", Value::Text(text)) => args.name = Some(text),
        ("accelerators", Value::List(list)) => args.accelerators = list,
        ("labels", Value::List(list)) => args.labels = list,
        ("state", Value::Text(text)) => args.state = Some(text.into()),
        ("as_root", Value::Flag(is)) => args.as_root = is,
        ("run_as", Value::Text(text)) => args.run_as = Some(text),
        _ => {}
    }
}

fn of_environment(key: &str) -> Option<(Value, Source)> {
    let variable = |name: &'static str| std::env::var(name).ok().filter(|text| !text.is_empty());
    match key {
        "idle" => {
            let seconds: u64 = variable(IDLE_VARIABLE)?.parse().ok()?;
            Some((Value::Text(format!("{seconds}s")), Source::Environment(IDLE_VARIABLE)))
        }
        "policy" => Some((Value::Text(variable(POLICY_VARIABLE)?), Source::Environment(POLICY_VARIABLE))),
        _ => None,
    }
}

fn settings(name: &str, flag: impl Fn(&str) -> Option<Value>, file: Option<&ConfigFile>) -> Vec<Setting> {
    let section = section(name).expect("a table that there is");
    let said = |key: &'static Key| {
        let by_flag = flag(key.name).map(|value| (value, Source::Flag));
        let of_section = |(value, source)| (name == "server").then_some((value, source));
        let by_file = || {
            let (file, given) = (file?, file?.get(name, key.name)?);
            Some((given.value.clone(), Source::File { line: file.line(&given.span) }))
        };
        by_flag.or_else(|| of_environment(key.name).and_then(of_section)).or_else(by_file)
    };
    let setting = |key: &'static Key| {
        let (value, source) = said(key).map_or((None, Source::Default), |(value, source)| (Some(value), source));
        Setting { section, key, value, source }
    };
    section.keys.iter().map(setting).collect()
}

/// What holds for a server.
pub(crate) fn of_server(args: &UpArgs, file: Option<&ConfigFile>) -> Result<Vec<Setting>, Wrong> {
    let all = settings("server", |key| of_flags(args, key), file);
    check(&all, file)?;
    Ok(all)
}

/// What holds for a Slurm cluster.
pub(crate) fn of_slurm(file: Option<&ConfigFile>) -> Vec<Setting> {
    settings("slurm", |_| None, file)
}

/// What holds for a Kubernetes cluster.
pub(crate) fn of_kubernetes(file: Option<&ConfigFile>) -> Vec<Setting> {
    settings("kubernetes", |_| None, file)
}

/// What holds for an agent.
pub(crate) fn of_agent(args: &JoinArgs, file: Option<&ConfigFile>) -> Vec<Setting> {
    settings("agent", |key| of_join(args, key), file)
}

/// The flags, and what the environment and the file say where no flag does.
pub(super) fn with_file(args: &UpArgs, all: &[Setting]) -> UpArgs {
    let mut whole = args.clone();
    for setting in all {
        if let Some(value) = &setting.value {
            set_flag(&mut whole, setting.key.name, value.clone());
        }
    }
    whole
}

/// The same for an agent.
pub(crate) fn join_with_file(mut args: JoinArgs, all: &[Setting]) -> JoinArgs {
    for setting in all {
        if let Some(value) = &setting.value {
            set_join(&mut args, setting.key.name, value.clone());
        }
    }
    args
}

/// Fails where keys do not go together, at the line that says so where it is the file's.
fn check(all: &[Setting], file: Option<&ConfigFile>) -> Result<(), Wrong> {
    let find = |name: &str| all.iter().find(|setting| setting.key.name == name).filter(|setting| setting.is_set());
    for rule in RULES {
        let (at, other, message, hint) = match *rule {
            Rule::Needs(key, other) => match (find(key), find(other)) {
                (Some(at), None) => {
                    let hint = format!("set {other} as well, or leave {key} out");
                    (at, None, format!("{} counts only with {}", at.named(), at.named_as(other)), hint)
                }
                _ => continue,
            },
            Rule::NotWith(key, other) => match (find(key), find(other)) {
                (Some(at), Some(with)) => {
                    let message = format!("{} and {} do not go together", at.named(), with.named());
                    let hint = "machines or a recorded market: one world, one clock; leave one of them out".to_owned();
                    (at, Some(with), message, hint)
                }
                _ => continue,
            },
        };
        let in_file = [Some(at), other].into_iter().flatten().find(|one| matches!(one.source, Source::File { .. }));
        let place = in_file.and_then(|one| Some((file?, file?.get(one.section.name, one.key.name)?.span.clone())));
        return Err(match place {
            Some((file, span)) => {
                Wrong::File(file.error(vec![(span, Problem::new(Class::BadValue, message).hint(hint))]))
            }
            None => Wrong::Flags { message, hint },
        });
    }
    Ok(())
}

impl Setting {
    /// Whether it says anything but no.
    pub(crate) fn is_set(&self) -> bool {
        self.value.as_ref().is_some_and(|value| *value != Value::Flag(false))
    }

    /// The key as whoever set it wrote it.
    fn named(&self) -> String {
        self.named_as(self.key.name)
    }

    fn named_as(&self, key: &str) -> String {
        match self.source {
            Source::Flag => format!("--{}", key.replace('_', "-")),
            _ => key.to_owned(),
        }
    }

    /// Whether it says nothing in a world of machines.
    pub fn is_of_recordings(&self) -> bool {
        matches!(self.key.name, "market" | "zones" | "from_hours" | "speed")
    }

    /// What holds, in one line; a password is not shown.
    pub fn shown(&self) -> String {
        match &self.value {
            None => self.key.default.to_owned(),
            Some(Value::Flag(is)) => is.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Text(text)) if self.key.name == "store" => values::without_password(text),
            Some(Value::Text(text)) => text.clone(),
            Some(Value::List(list)) => list.join(","),
        }
    }
}

impl Source {
    /// Who said it, in one or two words.
    pub fn word(self) -> String {
        match self {
            Source::Flag => "flag".to_owned(),
            Source::Environment(name) => name.to_owned(),
            Source::File { line } => format!("file, line {line}"),
            Source::Default => "default".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::parse;

    fn file(text: &str) -> ConfigFile {
        parse(text, Path::new("config.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_key_of_the_table_reaches_its_flag_and_comes_back() {
        let text = crate::config::schema::example();
        let open = |line: &str| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line).to_owned();
        let all = text.lines().map(open).collect::<Vec<_>>().join("\n");
        let file = file(&all);
        let said = settings("server", |_| None, Some(&file));
        let args = with_file(&UpArgs::default(), &said);
        let joins = of_agent(&JoinArgs::default(), Some(&file));
        let join = join_with_file(JoinArgs::default(), &joins);
        for setting in said.iter().filter(|setting| !matches!(setting.source, Source::Environment(_))) {
            assert_eq!(of_flags(&args, setting.key.name), setting.value, "{}", setting.key.name);
        }
        for setting in joins.iter().filter(|setting| setting.key.name != "as_root") {
            assert_eq!(of_join(&join, setting.key.name), setting.value, "{}", setting.key.name);
        }
    }

    #[test]
    fn a_flag_counts_more_than_the_file_and_the_file_more_than_nothing() {
        let file = file("[server]\nlocal = true\nrate = 2\nlisten = \"127.0.0.1:1\"\n");
        let args = UpArgs { rate: Some(3.0), ..UpArgs::default() };
        let all = of_server(&args, Some(&file)).expect("they go together");
        let of = |name: &str| all.iter().find(|one| one.key.name == name).map(|one| (one.shown(), one.source));
        assert_eq!(of("rate"), Some(("3".to_owned(), Source::Flag)));
        assert_eq!(of("local"), Some(("true".to_owned(), Source::File { line: 2 })));
        assert_eq!(of("dead_man"), Some(("4h".to_owned(), Source::Default)));
        let no = UpArgs { local: Some(false), ..UpArgs::default() };
        assert!(matches!(of_server(&no, Some(&file)), Err(Wrong::File(_))), "a rate of a computer that is not used");
    }

    #[test]
    fn what_does_not_go_together_is_refused_where_it_is_written() {
        let recorded = file("[server]\nmarket = \"steady\"\n");
        let local = UpArgs { local: Some(true), ..UpArgs::default() };
        let Err(Wrong::File(error)) = of_server(&local, Some(&recorded)) else { panic!("it is refused") };
        assert!(error.to_string().starts_with("config.toml:2:1: --local and market do not"), "{error}");
        let flags = UpArgs { dead_man: Some("1h".to_owned()), ..UpArgs::default() };
        let Err(Wrong::Flags { message, .. }) = of_server(&flags, None) else { panic!("it is refused") };
        assert_eq!(message, "--dead-man counts only with --listen");
        let partly = file("[server]\ndead_man = \"1h\"\n");
        let listens = UpArgs { listen: "127.0.0.1:1".parse().ok(), ..UpArgs::default() };
        assert!(of_server(&listens, Some(&partly)).is_ok() && of_server(&UpArgs::default(), Some(&partly)).is_err());
    }
}
