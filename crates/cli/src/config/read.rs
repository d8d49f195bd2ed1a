//! Reads a configuration file: what it sets, with the line of each, or everything that is wrong with it. Nothing is
//! changed, and nothing that the file names is looked at.

use super::keys::{Key, Kind, SECTIONS, Section, section};
use super::values;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use windfall_core::nearest::nearest;
use windfall_jobfile::{Class, JobFileError, Problem};

/// What a key was set to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Flag(bool),
    Number(f64),
    Text(String),
    List(Vec<String>),
}

/// A key that the file sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Given {
    pub value: Value,
    /// Bytes of the file that set it.
    pub span: Range<usize>,
}

/// A configuration file that was read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConfigFile {
    pub path: PathBuf,
    text: String,
    given: BTreeMap<(&'static str, &'static str), Given>,
}

impl ConfigFile {
    /// What it says of a key.
    pub fn get(&self, section: &str, key: &str) -> Option<&Given> {
        self.given.iter().find(|((of, name), _)| (*of, *name) == (section, key)).map(|(_, given)| given)
    }

    /// How many keys it sets.
    pub fn len(&self) -> usize {
        self.given.len()
    }

    /// The line on which a span begins, from 1.
    pub fn line(&self, span: &Range<usize>) -> usize {
        windfall_jobfile::position(&self.text, span).line
    }

    /// The error for problems that are known only now.
    pub fn error(&self, problems: Vec<(Range<usize>, Problem)>) -> JobFileError {
        JobFileError::of(&self.path.to_string_lossy(), &without_passwords(&self.text), problems)
    }
}

/// The text of a file as it may be shown: of the address of a database, which may have a password in it, only its length.
fn without_passwords(text: &str) -> String {
    let line = |line: &str| {
        let (name, value) = line.split_once('=').unwrap_or((line, ""));
        let is_store = name.trim().trim_matches(['"', '\'']) == "store";
        if !is_store {
            return line.to_owned();
        }
        let hidden =
            |c: char| if c.is_whitespace() || c == '"' || c == '\'' { c.to_string() } else { "*".repeat(c.len_utf8()) };
        format!("{name}={}", value.chars().map(hidden).collect::<String>())
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Reads the file at `path`.
pub(crate) fn read(path: &Path) -> Result<ConfigFile, JobFileError> {
    let name = path.to_string_lossy();
    let hint = "check the name, or begin with `windfall config example > FILE`";
    let bytes = windfall_jobfile::contents(path, "configuration file", "TOML", hint);
    let bytes = bytes.map_err(|problem| JobFileError::unreadable(&name, problem))?;
    match String::from_utf8(bytes) {
        Ok(text) => parse(&text, path),
        Err(error) => {
            let at = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
            Err(JobFileError::of(&name, &text, vec![(at..at, not_text("a byte that is not UTF-8"))]))
        }
    }
}

fn not_text(what: &str) -> Problem {
    Problem::new(Class::Syntax, format!("{what}: this is not a text file"))
        .expected("a configuration file (TOML, in UTF-8)")
        .hint("check that this is the right file, and save it as UTF-8")
}

/// Reads a file's text.
pub(crate) fn parse(text: &str, path: &Path) -> Result<ConfigFile, JobFileError> {
    let mut problems = Vec::new();
    let mut file = ConfigFile { path: path.to_owned(), text: text.to_owned(), given: BTreeMap::new() };
    if let Some(at) = text.find('\0') {
        return Err(file.error(vec![(at..at + 1, not_text("a zero byte"))]));
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| {
            let problem =
                Problem::new(Class::Syntax, format!("this is not TOML: {}", error.message().replace('\n', ", ")));
            (error.span().unwrap_or(0..0), problem.expected("tables and lines such as `listen = \"0.0.0.0:7443\"`"))
        };
        return Err(file.error(errors.iter().map(problem).collect()));
    }
    for (name, value) in root.get_ref() {
        match section(name.get_ref()) {
            Some(section) => read_section(section, value, &mut file.given, &mut problems),
            None => problems.push((name.span(), unknown_at_top(name.get_ref()))),
        }
    }
    if problems.is_empty() { Ok(file) } else { Err(file.error(problems)) }
}

type Found = Vec<(Range<usize>, Problem)>;

fn read_section(
    section: &'static Section,
    value: &Spanned<DeValue<'_>>,
    given: &mut BTreeMap<(&'static str, &'static str), Given>,
    problems: &mut Found,
) {
    let DeValue::Table(table) = value.get_ref() else {
        let problem =
            Problem::new(Class::WrongType, format!("{} is {}, not a table", section.name, what(value.get_ref())));
        problems.push((
            value.span(),
            problem.expected(format!("[{}] on a line of its own, and keys below it", section.name)),
        ));
        return;
    };
    for (name, value) in table {
        let Some(key) = section.key(name.get_ref()) else {
            problems.push((name.span(), unknown_in(section, name.get_ref())));
            continue;
        };
        match taken(key.kind, value.get_ref()) {
            Ok(found) => {
                given.insert(
                    (section.name, key.name),
                    Given { value: found, span: name.span().start..value.span().end },
                );
            }
            Err(class) => problems.push((value.span(), refused(section, key, class, value.get_ref()))),
        }
    }
}

fn unknown_at_top(name: &str) -> Problem {
    let tables = SECTIONS.iter().map(|section| format!("[{}]", section.name)).collect::<Vec<_>>().join(", ");
    let problem =
        Problem::new(Class::UnknownKey, format!("there is no `{}` at the top of a configuration", shown(name)));
    let problem = problem.expected(format!("the tables {tables}"));
    let within = SECTIONS.iter().find(|section| section.key(&underscored(name)).is_some());
    let near = nearest(name, SECTIONS.iter().map(|section| section.name));
    match (within, near) {
        (Some(section), _) => problem.hint(format!("put it below a line `[{}]`", section.name)),
        (None, Some(near)) => problem.hint(format!("did you mean [{near}]?")),
        (None, None) => problem,
    }
}

fn unknown_in(section: &Section, name: &str) -> Problem {
    let names: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
    let problem = Problem::new(Class::UnknownKey, format!("[{}] has no key `{}`", section.name, shown(name)));
    let problem = problem.expected(format!("one of {}", names.join(", ")));
    let elsewhere = SECTIONS.iter().find(|other| other.name != section.name && other.key(name).is_some());
    match (nearest(name, names.iter().copied()), elsewhere) {
        (_, Some(other)) => problem.hint(format!("it belongs below [{}]", other.name)),
        (Some(near), None) => problem.hint(format!("did you mean `{near}`?")),
        (None, None) => problem,
    }
}

fn refused(section: &Section, key: &Key, class: Class, value: &DeValue<'_>) -> Problem {
    let message = match (class, value) {
        // What it says may be secret.
        (_, DeValue::String(_)) if matches!(key.kind, Kind::Store) => {
            format!("{}.{}: not accepted", section.name, key.name)
        }
        (Class::WrongType, value) => format!("{}.{} is {}", section.name, key.name, what(value)),
        (_, DeValue::String(text)) => format!("{}.{}: not accepted: {}", section.name, key.name, shown(text)),
        (_, value) => format!("{}.{}: not accepted: {}", section.name, key.name, number(value).unwrap_or_default()),
    };
    let problem = Problem::new(class, message).expected(key.kind.words());
    match (key.kind, value) {
        (Kind::Choice(choices), DeValue::String(text)) => match nearest(text, choices()) {
            Some(near) => problem.hint(format!("did you mean \"{near}\"?")),
            None => problem,
        },
        (_, DeValue::Integer(_) | DeValue::Float(_) | DeValue::Boolean(_)) if key.example.starts_with('"') => {
            problem.hint("write it in quotes")
        }
        _ => problem,
    }
}

/// What a value is, or why it will not do.
fn taken(kind: Kind, value: &DeValue<'_>) -> Result<Value, Class> {
    let text = || value.as_str().ok_or(Class::WrongType);
    let checked = |is_good: fn(&str) -> bool| {
        let text = text()?;
        is_good(text).then(|| Value::Text(text.to_owned())).ok_or(Class::BadValue)
    };
    let counted = |is_good: &dyn Fn(f64) -> bool| {
        let number = number(value).ok_or(Class::WrongType)?;
        is_good(number).then_some(Value::Number(number)).ok_or(Class::BadValue)
    };
    let listed = |is_good: fn(&str) -> bool| {
        let list: Option<Vec<String>> = match value {
            DeValue::Array(all) => all.iter().map(|one| one.get_ref().as_str().map(str::to_owned)).collect(),
            one => one.as_str().map(|text| text.split(',').map(|word| word.trim().to_owned()).collect()),
        };
        let list = list.ok_or(Class::WrongType)?;
        (!list.is_empty() && list.iter().all(|one| is_good(one))).then_some(Value::List(list)).ok_or(Class::BadValue)
    };
    match kind {
        Kind::Flag => value.as_bool().map(Value::Flag).ok_or(Class::WrongType),
        Kind::Listen => checked(|text| text.parse::<std::net::SocketAddr>().is_ok()),
        Kind::Server => checked(|text| values::server_address(text).is_some()),
        Kind::DeadMan => checked(|text| values::dead_man(text).is_some()),
        Kind::WallTime => checked(|text| values::wall_minutes(text).is_some()),
        Kind::TimeOrNever => checked(|text| values::idle(text).is_some()),
        Kind::Accelerators => listed(|text| values::stated(text).is_some()),
        Kind::Labels | Kind::Names => listed(|text| matches!(text.parse(), Ok(windfall_exec::LabelChange::Set { .. }))),
        Kind::Words => listed(values::is_word),
        Kind::Word => checked(values::is_word),
        Kind::Rate => counted(&values::is_rate),
        Kind::Hours => counted(&|hours| (0.0..=values::LONGEST_RECORDING).contains(&hours)),
        Kind::Count { least, most } => match value {
            DeValue::Float(_) => Err(Class::WrongType),
            _ => counted(&|count| (f64::from(least)..=f64::from(most)).contains(&count)),
        },
        Kind::Choice(choices) => {
            let text = text()?;
            if choices().contains(&text) { Ok(Value::Text(text.to_owned())) } else { Err(Class::BadValue) }
        }
        Kind::Folder => checked(|text| Path::new(text).is_absolute() && !text.contains(char::is_control)),
        Kind::Store => checked(|text| text.starts_with("postgres://") || text.starts_with("postgresql://")),
        Kind::NodeName => checked(windfall_exec::is_node_name),
        Kind::Account => checked(windfall_exec::is_account_name),
    }
}

fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(|number| number as f64)
        }
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => None,
    }
}

fn what(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A flag's name as a key.
fn underscored(name: &str) -> String {
    name.replace('-', "_")
}

/// A piece of the file for a message: short and printable.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(60).map(|c| if c.is_control() { '·' } else { c }).collect();
    if text.chars().count() > 60 {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_database_is_not_shown_beside_a_mistake() {
        let text = "[server]\nstore = \"postgres://ada:hush@db/lab\"\nloca = true\n";
        let error = parse(text, Path::new("config.toml")).expect_err("a key is unknown");
        let drawn = error.render(windfall_jobfile::Look::Ascii, 80);
        assert!(drawn.contains("loca") && !drawn.contains("hush") && !drawn.contains("ada"), "{drawn}");
        assert_eq!(without_passwords(text).len(), text.len(), "places stay where they are");
    }
}
