//! A node of the file and what the table expects of it to a checked value. Every problem on the way is
//! collected, and the walk goes on with the neighbours.

use super::context::Context;
use super::error::{Class, Problem, Problems, Quoted};
use super::keys::{Key, Kind, Name, home_of, present_name};
use super::node::{Node, Yaml};
use super::{paths, quantity, when};
use std::collections::BTreeMap;
use std::ops::Range;
use windfall_core::nearest::nearest;
use windfall_core::spec::{Ask, tag_name_problem, tag_value_problem};
use windfall_core::{NanoUsd, Rate, Span};

/// A checked value.
#[derive(Debug)]
pub(super) enum Value {
    Text(String),
    Count(u64),
    FromTo(u64, u64),
    Span(Span),
    Money(NanoUsd),
    Bytes(u64),
    /// At least so many of a unit.
    Amount(f64),
    /// So many of a unit, and not more.
    Exactly(f64),
    Speed(Rate),
    Ask(Ask),
    List(Vec<Value>),
    Fields(Fields),
    Named(Vec<(String, Range<usize>, Value)>),
    /// Accepted, and nothing to keep: `every: auto`.
    Nothing,
}

/// The values of a group, with the bytes of each.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub span: Range<usize>,
    values: BTreeMap<&'static str, (Range<usize>, Option<Value>)>,
}

impl Fields {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).and_then(|(_, value)| value.as_ref())
    }
    /// Whether the key is there, right or wrong.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }
    pub fn span(&self, name: &str) -> Range<usize> {
        self.values.get(name).map_or(self.span.clone(), |(span, _)| span.clone())
    }
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        }
    }
    pub fn two_counts(&self, name: &str) -> Option<(u64, u64)> {
        match self.get(name) {
            Some(Value::FromTo(from, to)) => Some((*from, *to)),
            _ => None,
        }
    }
    pub fn duration(&self, name: &str) -> Option<Span> {
        match self.get(name) {
            Some(Value::Span(span)) => Some(*span),
            _ => None,
        }
    }
    pub fn money(&self, name: &str) -> Option<NanoUsd> {
        match self.get(name) {
            Some(Value::Money(money)) => Some(*money),
            _ => None,
        }
    }
    pub fn list(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }
    pub fn fields(&self, name: &str) -> Option<&Fields> {
        match self.get(name) {
            Some(Value::Fields(fields)) => Some(fields),
            _ => None,
        }
    }
    pub fn named(&self, name: &str) -> &[(String, Range<usize>, Value)] {
        match self.get(name) {
            Some(Value::Named(named)) => named,
            _ => &[],
        }
    }
}

/// Walks a file.
pub(super) struct Walk<'a, 'p> {
    pub context: &'a Context,
    /// The same, but for the folder: that which the job runs in.
    pub inside: Context,
    pub problems: &'p mut Problems<'a>,
    pub notes: Vec<String>,
    pub text: &'a str,
}

impl Walk<'_, '_> {
    /// Reads a map of known keys.
    pub fn group(&mut self, node: &Node, keys: &'static [Key], path: &str) -> Fields {
        let mut fields = Fields { span: node.span.clone(), ..Fields::default() };
        let mut seen = BTreeMap::new();
        for (key, value) in node.entries() {
            if self.is_over() {
                break;
            }
            let Some(name) = self.key_name(key, path, &mut seen) else { continue };
            let name = present_name(path, name);
            let Some(known) = keys.iter().find(|known| known.name == name) else {
                self.problems.add(&key.span, unknown_key(name, path, keys));
                continue;
            };
            let path = join(path, known.name);
            let span = if value.is_nothing() { key.span.clone() } else { value.span.clone() };
            let read = self.value(value, &span, &known.kind, &path);
            fields.values.insert(known.name, (span, read));
        }
        fields
    }

    /// Whether there are too many problems to go on. If so, adds one that says so.
    fn is_over(&mut self) -> bool {
        if self.problems.is_full() {
            self.problems.add(&(0..0), Problem::new(Class::Syntax, "the rest is not looked at"));
        }
        self.problems.is_full()
    }

    /// A key as text, if it is one and is there for the first time.
    fn key_name<'n>(
        &mut self,
        key: &'n Node,
        path: &str,
        seen: &mut BTreeMap<&'n str, Range<usize>>,
    ) -> Option<&'n str> {
        let name = match &key.yaml {
            Yaml::Scalar { text, .. } => text.as_str(),
            Yaml::List(_) | Yaml::Map(_) => {
                let problem = Problem::new(Class::WrongType, format!("{} as a key", key.what())).expected("a name");
                self.problems.add(&key.span, problem.hint("a key is one word before a colon"));
                return None;
            }
        };
        let present = present_name(path, name);
        if let Some(first) = seen.get(present) {
            let line = super::error::position(self.text, first).line;
            let problem = Problem::new(Class::DuplicateKey, format!("{} is given twice", Quoted(&join(path, name))))
                .expected("each key once")
                .hint(format!("it is on line {line} already; remove one of the two"));
            self.problems.add(&key.span, problem);
            return None;
        }
        seen.insert(present, key.span.clone());
        Some(name)
    }

    /// Reads one value; what is wrong with it is collected.
    fn value(&mut self, node: &Node, span: &Range<usize>, kind: &Kind, path: &str) -> Option<Value> {
        match (kind, &node.yaml) {
            (Kind::Group(keys) | Kind::Either(_, keys), Yaml::Map(_)) => {
                return Some(Value::Fields(self.group(node, keys, path)));
            }
            (Kind::Either(one, _), Yaml::Scalar { .. }) => return self.value(node, span, one, path),
            (Kind::Named { key, value }, Yaml::Map(entries)) => return self.named(entries, *key, value, path),
            (Kind::OneOrMany(one), Yaml::List(items)) => return self.list(items, span, one, path),
            (Kind::OneOrMany(one), Yaml::Scalar { .. }) => {
                return self.value(node, span, one, path).map(|value| Value::List(vec![value]));
            }
            (Kind::Command, Yaml::List(items)) => return self.list(items, span, &Kind::Setting, path),
            _ => {}
        }
        let read = match node.text() {
            Some(text) if kind.is_scalar() => self.scalar(text, kind),
            _ => Err(wrong_type(node, kind)),
        };
        match read {
            Ok(value) => Some(value),
            Err(problem) => {
                let message = format!("{path}: {}", problem.message);
                self.problems.add(span, Problem { message, ..problem });
                None
            }
        }
    }

    fn list(&mut self, items: &[Node], span: &Range<usize>, one: &Kind, path: &str) -> Option<Value> {
        if items.is_empty() {
            let problem =
                Problem::new(Class::BadValue, format!("{path}: an empty list")).expected("at least one entry");
            self.problems.add(span, problem.hint("add an entry, or remove the key"));
            return None;
        }
        let mut read = Vec::new();
        for item in items {
            if self.is_over() {
                break;
            }
            read.extend(self.value(item, &item.span, one, path));
        }
        (read.len() == items.len()).then_some(Value::List(read))
    }

    fn named(&mut self, entries: &[(Node, Node)], kind: Name, value: &Kind, path: &str) -> Option<Value> {
        let mut seen = BTreeMap::new();
        let mut read = Vec::new();
        for (key, node) in entries {
            if self.is_over() {
                return None;
            }
            let name = self.key_name(key, path, &mut seen).and_then(|name| {
                let checked = kind.check(name);
                checked
                    .map_err(|p| {
                        self.problems.add(&key.span, Problem { message: format!("{path}: {}", p.message), ..p })
                    })
                    .ok()
            });
            let span = if node.is_nothing() { key.span.clone() } else { node.span.clone() };
            let value = name.as_ref().and_then(|name| self.value(node, &span, value, &join(path, name)));
            if let (Some(name), Some(value)) = (name, value) {
                read.push((name, key.span.clone(), value));
            }
        }
        Some(Value::Named(read))
    }

    fn scalar(&mut self, text: &str, kind: &Kind) -> Result<Value, Problem> {
        Ok(match kind {
            Kind::Text { most } => Value::Text(plain_text(text, *most)?),
            Kind::Word => Value::Text(word(text)?),
            Kind::Count { least, most } => Value::Count(quantity::count(text, *least, *most)?),
            Kind::FromTo { least, most } => {
                let (from, to) = quantity::from_to(text, *least, *most)?;
                Value::FromTo(from, to)
            }
            Kind::Hours => Value::Span(quantity::hours(text)?),
            Kind::Flag => Value::Count(quantity::flag(text)?),
            Kind::Percent => Value::Count(quantity::permille(text)?),
            Kind::Duration { least } => Value::Span(quantity::duration(text, *least)?),
            Kind::AutoOrDuration if text == "auto" => Value::Nothing,
            Kind::AutoOrDuration => Value::Span(quantity::duration(text, Span(1)).map_err(|p| {
                let auto = nearest(text, ["auto"]).map(|word| format!("did you mean {word}?"));
                p.expected("auto, or a length of time such as 10m").maybe_hint(auto)
            })?),
            Kind::Deadline => {
                let (left, note) = when::deadline(text, self.context.now_ms, &self.context.zone)?;
                self.notes.extend(note);
                Value::Span(left)
            }
            Kind::Dollars => Value::Money(quantity::dollars(text)?),
            Kind::Bytes => Value::Bytes(quantity::size(text)?),
            Kind::Speed => Value::Speed(quantity::rate(text)?),
            Kind::Accelerators => Value::Ask(quantity::accelerators(text)?),
            Kind::AtLeast { unit } => match text.trim_end().ends_with('+') {
                true => Value::Amount(quantity::at_least(text, unit)?),
                false => Value::Exactly(quantity::at_least(text, unit)?),
            },
            Kind::Site => Value::Text(quantity::site(text)?),
            Kind::Choice(choices) => Value::Text(choice(text, &choices())?),
            Kind::FallbackStep => Value::Text(fallback_step(text)?),
            Kind::Folder => Value::Text(paths::checkpoint_path(text, &self.inside)?),
            Kind::Workdir => Value::Text(paths::workdir(text, self.context)?),
            Kind::Inside => Value::Text(inside(text)?),
            Kind::SecretFrom => Value::Text(secret_from(text, self.context)?),
            Kind::Store => Value::Text(paths::store(text, self.context)?),
            Kind::Pattern => Value::Text(pattern(text)?),
            Kind::Setting => Value::Text(without_nul(text)?),
            Kind::TagValue => match tag_value_problem(text) {
                None => Value::Text(text.to_owned()),
                Some(why) => {
                    let what = format!("{} cannot be a tag's value", Quoted(text));
                    return Err(Problem::new(Class::BadValue, what).expected(why.trim_start_matches("expected ")));
                }
            },
            Kind::Script if text.trim().is_empty() => {
                return Err(Problem::new(Class::BadValue, "no command").expected("a shell line, such as make data"));
            }
            Kind::Script => Value::Text(without_nul(text)?),
            Kind::Command if text.trim().is_empty() => {
                return Err(Problem::new(Class::BadValue, "no command").expected("a command, such as python train.py"));
            }
            Kind::Command => Value::Text(without_nul(text)?),
            // `is_scalar` keeps these out.
            Kind::OneOrMany(_) | Kind::Group(_) | Kind::Named { .. } | Kind::Either(..) => Value::Nothing,
        })
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn unknown_key(name: &str, path: &str, keys: &[Key]) -> Problem {
    let known = || keys.iter().map(|key| key.name);
    let whose = if path.is_empty() { String::new() } else { format!(" in {path}") };
    let elsewhere = home_of(name).filter(|home| *home != path).map(|home| format!("`{name}` belongs under `{home}`"));
    let above = (!path.is_empty() && super::keys::KEYS.iter().any(|key| key.name == name))
        .then(|| format!("`{name}` belongs at the top level, not under `{path}`"));
    let near = nearest(name, known()).map(|near| format!("did you mean `{near}`?"));
    Problem::new(Class::UnknownKey, format!("unknown key{whose}: {}", Quoted(name)))
        .expected(format!("one of {}", known().collect::<Vec<_>>().join(", ")))
        .maybe_hint(above.or(elsewhere).or(near))
}

fn wrong_type(node: &Node, kind: &Kind) -> Problem {
    let problem = Problem::new(Class::WrongType, format!("{} cannot be used here", node.what())).expected(kind.words());
    if node.is_nothing() {
        return Problem { message: "no value".to_owned(), ..problem }.hint("give it a value, or remove the key");
    }
    let ask = match (kind, node.entries()) {
        (Kind::Accelerators | Kind::OneOrMany(Kind::Accelerators), [(key, value), ..]) => key.text().zip(value.text()),
        _ => None,
    };
    problem.maybe_hint(
        ask.map(|(name, count)| format!("write it without a space: {}", Quoted(&format!("{name}:{count}")))),
    )
}

fn plain_text(text: &str, most: usize) -> Result<String, Problem> {
    let expected = format!("1 to {most} characters on one line");
    if text.trim().is_empty() {
        return Err(Problem::new(Class::BadValue, "empty text").expected(expected));
    }
    if text.len() > most {
        return Err(Problem::new(Class::BadValue, format!("too long: {} bytes", text.len())).expected(expected));
    }
    if text.chars().any(char::is_control) {
        return Err(
            Problem::new(Class::BadValue, format!("{} has a control character", Quoted(text))).expected(expected)
        );
    }
    Ok(text.to_owned())
}

fn word(text: &str) -> Result<String, Problem> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '@');
    if text.is_empty() || text.len() > 100 || !text.chars().all(fits) {
        let problem = Problem::new(Class::BadValue, format!("{} is not one word", Quoted(text)));
        return Err(problem.expected("letters, digits, and - _ . / @"));
    }
    Ok(text.to_owned())
}

/// A path in the job's folder, as an ignore file would name it.
fn inside(text: &str) -> Result<String, Problem> {
    let refuse = |why: &str| {
        Err(Problem::new(Class::BadValue, format!("{} {why}", Quoted(text)))
            .expected("a path in the job's folder, such as results/ or *.csv")
            .hint("name it from the job's folder on, and put a \\ before a first ! or #"))
    };
    let path = match text.strip_prefix("./") {
        Some("") => ".",
        Some(rest) => rest,
        None => text,
    };
    if path.trim().is_empty() || path.chars().any(char::is_control) {
        return refuse("is not a path");
    }
    if path.starts_with(['/', '~']) || path.split('/').any(|part| part == "..") {
        return refuse("is not inside the job's folder");
    }
    if path.starts_with(['!', '#']) {
        return refuse("begins with a sign that stands for something else");
    }
    Ok(path.to_owned())
}

/// `terminal`, `server`, or a file with its path written out.
fn secret_from(text: &str, context: &Context) -> Result<String, Problem> {
    match text.strip_prefix("file:") {
        Some(path) => Ok(format!("file:{}", paths::file(path, context)?)),
        None => choice(text, &["terminal", "server"]).map_err(|problem| {
            let hint = problem.hint.clone().unwrap_or_else(|| {
                "a value does not belong in a job file: keep it in a file, or in a variable of the terminal".to_owned()
            });
            Problem::new(Class::BadValue, "this is not a place that a secret can come from")
                .expected("terminal, file:PATH or server")
                .hint(hint)
        }),
    }
}

fn choice(text: &str, choices: &[&'static str]) -> Result<String, Problem> {
    match choices.iter().find(|known| **known == text) {
        Some(known) => Ok((*known).to_owned()),
        None => Err(Problem::new(Class::BadValue, format!("unknown choice: {}", Quoted(text)))
            .expected(format!("one of {}", choices.join(", ")))
            .maybe_hint(nearest(text, choices.iter().copied()).map(|near| format!("did you mean `{near}`?")))),
    }
}

fn fallback_step(text: &str) -> Result<String, Problem> {
    match text.split_once('+') {
        Some(("smaller", precision)) => {
            word(precision)?;
            Ok(text.to_owned())
        }
        Some(("on-demand", _)) => Err(Problem::new(Class::BadValue, format!("{} cannot be combined", Quoted(text)))
            .expected("on-demand, smaller, or smaller+bf16")
            .hint("write on-demand")),
        Some((other, precision)) => choice(other, &["on-demand", "smaller"])
            .map(|_| text.to_owned())
            .map_err(|p| p.hint(format!("did you mean {}?", Quoted(&format!("smaller+{precision}"))))),
        None => choice(text, &["on-demand", "smaller"])
            .map_err(|p| Problem { expected: Some("on-demand, smaller, or smaller+bf16".to_owned()), ..p }),
    }
}

fn pattern(text: &str) -> Result<String, Problem> {
    const EXPECTED: &str = "a regular expression with one or two groups, such as 'step (\\d+) of (\\d+)'";
    let compiled = regex::RegexBuilder::new(text).size_limit(1 << 20).nest_limit(50).build();
    let problem = |why: String| Err(Problem::new(Class::BadValue, why).expected(EXPECTED));
    match compiled {
        Ok(regex) => match regex.captures_len() - 1 {
            1 | 2 => Ok(text.to_owned()),
            0 => problem(format!("{} has no group", Quoted(text)))
                .map_err(|p: Problem| p.hint("put ( ) around the number of steps done")),
            n => problem(format!("{} has {n} groups", Quoted(text)))
                .map_err(|p: Problem| p.hint("write (?: ) for groups that are not the work done or the total")),
        },
        Err(error) => {
            // The first lines of that error draw the pattern again; the last one says what is wrong.
            let shown = error.to_string();
            let why = shown.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            problem(format!("{} is not a regular expression: {why}", Quoted(text)))
        }
    }
}

fn without_nul(text: &str) -> Result<String, Problem> {
    if text.contains('\0') {
        return Err(Problem::new(Class::BadValue, "a zero byte, which no program can be given").expected("text"));
    }
    Ok(text.to_owned())
}

impl Name {
    fn check(self, name: &str) -> Result<String, Problem> {
        match self {
            Name::Accelerator => {
                let ask = quantity::accelerators(name)?;
                if name.contains(':') {
                    return Err(Problem::new(Class::BadValue, format!("{} has a number", Quoted(name)))
                        .expected("the accelerator's name alone")
                        .hint(format!(
                            "write {}: its speed is that of the number asked for",
                            Quoted(&ask.accelerator)
                        )));
                }
                Ok(ask.accelerator)
            }
            Name::Tag => match tag_name_problem(name) {
                None => Ok(name.to_owned()),
                Some(why) => {
                    let what = format!("{} cannot be a tag's name", Quoted(name));
                    let problem = Problem::new(Class::BadValue, what).expected(why.trim_start_matches("expected "));
                    Err(problem.hint("choose a short word, such as `project`; the value may be any text"))
                }
            },
            Name::Variable => {
                let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
                if name.is_empty() || name.len() > 256 || !name.chars().all(fits) || name.as_bytes()[0].is_ascii_digit()
                {
                    return Err(Problem::new(Class::BadValue, format!("{} cannot be a variable's name", Quoted(name)))
                        .expected("letters, digits and _, not beginning with a digit"));
                }
                if name.starts_with("WINDFALL_") {
                    return Err(Problem::new(Class::BadValue, format!("{} is set by windfall", Quoted(name)))
                        .expected("a variable of your own")
                        .hint("choose a name that does not begin with WINDFALL_"));
                }
                Ok(name.to_owned())
            }
        }
    }
}
