//! A topology file: which machines are in which rack, block, zone or NVLink domain. It is checked whole before anything
//! changes; what it says becomes labels of the nodes that it names.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use windfall_core::nearest::nearest;
use windfall_exec::{LEVELS, LabelChange, is_node_name};
use windfall_jobfile::{Class, JobFileError, Problem};

type Found = Vec<(Range<usize>, Problem)>;

/// What the file says of nodes, by name and level, with the bytes that say so.
type Places = BTreeMap<String, BTreeMap<&'static str, (String, Range<usize>)>>;

/// Reads a topology file: the labels of each node that it names.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, Vec<LabelChange>>, JobFileError> {
    let name = path.to_string_lossy();
    let hint = "such as: [rack.r1] and below it nodes = [\"gpu-1\", \"gpu-2\"]";
    let bytes = windfall_jobfile::contents(path, "topology file", "TOML", hint);
    let bytes = bytes.map_err(|problem| JobFileError::unreadable(&name, problem))?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let places = parse(&text).map_err(|found| JobFileError::of(&name, &text, found))?;
    let changes = |levels: BTreeMap<&'static str, (String, Range<usize>)>| {
        let set = |(key, (value, _)): (&str, (String, _))| LabelChange::Set { key: key.to_owned(), value };
        levels.into_iter().map(set).collect()
    };
    Ok(places.into_iter().map(|(node, levels)| (node, changes(levels))).collect())
}

fn parse(text: &str) -> Result<Places, Found> {
    let (root, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        let problem = |error: &toml::de::Error| {
            let text = format!("this is not TOML: {}", error.message().replace('\n', ", "));
            let problem = Problem::new(Class::Syntax, text);
            (error.span().unwrap_or(0..0), problem.expected("tables such as [rack.r1], and keys below them"))
        };
        return Err(errors.iter().map(problem).collect());
    }
    let (mut places, mut found) = (Places::new(), Found::new());
    for (level, domains) in root.get_ref() {
        match LEVELS.into_iter().find(|known| known == level.get_ref()) {
            Some(level) => read_level(level, domains, &mut places, &mut found),
            None => found.push((level.span(), unknown_level(level.get_ref()))),
        }
    }
    if places.is_empty() && found.is_empty() {
        let problem = Problem::new(Class::MissingKey, "it names no node");
        found.push((0..0, problem.expected("tables such as [rack.r1], with nodes = [\"gpu-1\"]")));
    }
    if found.is_empty() { Ok(places) } else { Err(found) }
}

fn unknown_level(name: &str) -> Problem {
    let problem = Problem::new(Class::UnknownKey, format!("there is no level `{name}`"));
    let problem = problem.expected(format!("one of {}", LEVELS.join(", ")));
    match nearest(name, LEVELS) {
        Some(near) => problem.hint(format!("did you mean `{near}`?")),
        None => problem.hint("other words about a machine are labels: `windfall nodes label NAME KEY=VALUE`"),
    }
}

fn read_level(level: &'static str, domains: &Spanned<DeValue<'_>>, places: &mut Places, found: &mut Found) {
    let expected = format!("tables such as [{level}.a], with nodes = [\"gpu-1\"]");
    let DeValue::Table(table) = domains.get_ref() else {
        let problem = Problem::new(Class::WrongType, format!("{level} is not a table")).expected(expected);
        return found.push((domains.span(), problem));
    };
    for (name, domain) in table {
        let DeValue::Table(keys) = domain.get_ref() else {
            let problem = Problem::new(Class::WrongType, format!("{level}.{} is not a table", name.get_ref()));
            found.push((domain.span(), problem.expected(expected.as_str())));
            continue;
        };
        read_domain(level, name, keys, places, found);
    }
}

/// One domain: its nodes, and the wider domains that it is in.
fn read_domain(
    level: &'static str,
    name: &Spanned<std::borrow::Cow<'_, str>>,
    keys: &DeTable<'_>,
    places: &mut Places,
    found: &mut Found,
) {
    let mut levels = vec![(level, name.get_ref().to_string(), name.span())];
    let (mut nodes, mut has_nodes) = (Vec::new(), false);
    for (key, value) in keys {
        let wider = LEVELS.into_iter().take_while(|wider| *wider != level).find(|wider| wider == key.get_ref());
        match (key.get_ref().as_ref(), wider, value.get_ref()) {
            ("nodes", _, DeValue::Array(all)) => {
                has_nodes = true;
                for node in all {
                    match node.get_ref().as_str().filter(|node| is_node_name(node)) {
                        Some(node_name) => nodes.push((node_name.to_owned(), node.span())),
                        None => found.push((
                            node.span(),
                            Problem::new(Class::BadValue, "not a node's name").expected("a name such as \"gpu-1\""),
                        )),
                    }
                }
            }
            ("nodes", ..) => {
                let problem = Problem::new(Class::WrongType, "nodes is not a list");
                found.push((value.span(), problem.expected("a list of names, such as [\"gpu-1\", \"gpu-2\"]")));
                has_nodes = true;
            }
            (_, Some(wider), DeValue::String(text)) => levels.push((wider, text.to_string(), value.span())),
            (_, Some(wider), _) => {
                let problem = Problem::new(Class::WrongType, format!("{wider} is not a name"));
                found.push((value.span(), problem.expected("a name in quotes")));
            }
            (unknown, None, _) => {
                let wider: Vec<&str> = LEVELS.into_iter().take_while(|wider| *wider != level).collect();
                let known: Vec<&str> = wider.into_iter().chain(["nodes"]).collect();
                let problem = Problem::new(Class::UnknownKey, format!("{level} has no key `{unknown}`"));
                let problem = problem.expected(format!("one of {}", known.join(", ")));
                let near = nearest(unknown, known.iter().copied());
                let problem = match near {
                    Some(near) => problem.hint(format!("did you mean `{near}`?")),
                    None => problem,
                };
                found.push((key.span(), problem));
            }
        }
    }
    if !has_nodes {
        let problem = Problem::new(Class::MissingKey, format!("{level}.{} has no nodes", name.get_ref()));
        found.push((name.span(), problem.expected("nodes = [\"gpu-1\", \"gpu-2\"]")));
    }
    for (level, value, span) in &levels {
        if format!("{level}={value}").parse::<LabelChange>().is_err() {
            let problem = Problem::new(Class::BadValue, format!("not a name: {value}"));
            found.push((span.clone(), problem.expected("letters, digits, dots and dashes, at most 63")));
        }
    }
    for (node, span) in nodes {
        for (level, value, _) in &levels {
            place(&node, &span, level, value, places, found);
        }
    }
}

/// Puts a node somewhere, unless the file put it elsewhere before.
fn place(node: &str, span: &Range<usize>, level: &'static str, value: &str, places: &mut Places, found: &mut Found) {
    let of_node = places.entry(node.to_owned()).or_default();
    match of_node.get(level) {
        Some((other, _)) if other != value => {
            let text = format!("{node} is in two: {level} {other} and {level} {value}");
            found.push((span.clone(), Problem::new(Class::BadValue, text).hint("name it in one of them")));
        }
        _ => _ = of_node.insert(level, (value.to_owned(), span.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> Vec<String> {
        let places = parse(text).unwrap_or_else(|found| panic!("{found:?}"));
        let of_node = |(node, levels): (String, BTreeMap<&str, (String, Range<usize>)>)| {
            let levels = levels.iter().map(|(level, (value, _))| format!("{level}={value}")).collect::<Vec<_>>();
            format!("{node}: {}", levels.join(" "))
        };
        places.into_iter().map(of_node).collect()
    }

    fn wrong(text: &str) -> String {
        let found = parse(text).expect_err("it is refused");
        let error = JobFileError::of("t.toml", text, found);
        format!("{error} {}", error.to_json())
    }

    #[test]
    fn what_a_file_says_are_labels_of_the_nodes_that_it_names() {
        let text = "[rack.r1]\nzone = \"east\"\nnodes = [\"a\", \"b\"]\n[rack.r2]\nnodes = [\"c\"]\n\
                    [nvlink.n1]\nnodes = [\"a\", \"b\"]\n[zone.east]\nnodes = [\"a\", \"c\"]\n";
        assert_eq!(
            labels(text),
            ["a: nvlink=n1 rack=r1 zone=east", "b: nvlink=n1 rack=r1 zone=east", "c: rack=r2 zone=east"]
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_a_hint() {
        for (text, says) in [
            ("[rack.r1\n", "this is not TOML"),
            ("", "it names no node"),
            ("[rak.r1]\nnodes = [\"a\"]\n", "did you mean `rack`?"),
            ("[rack]\nr1 = 3\n", "rack.r1 is not a table"),
            ("rack = 3\n", "rack is not a table"),
            ("[rack.r1]\n", "rack.r1 has no nodes"),
            ("[rack.r1]\nnodes = \"a\"\n", "nodes is not a list"),
            ("[rack.r1]\nnodes = [7]\n", "not a node's name"),
            ("[rack.r1]\nnodes = [\"a b\"]\n", "not a node's name"),
            ("[rack.r1]\nnode = [\"a\"]\nnodes = []\n", "did you mean `nodes`?"),
            ("[zone.z]\nrack = \"r\"\nnodes = [\"a\"]\n", "zone has no key `rack`"),
            ("[rack.\"r 1\"]\nnodes = [\"a\"]\n", "not a name: r 1"),
            ("[rack.r1]\nnodes = [\"a\"]\n[rack.r2]\nnodes = [\"a\"]\n", "a is in two: rack r1 and rack r2"),
            ("[rack.r1]\nzone = \"e\"\nnodes = [\"a\"]\n[zone.w]\nnodes = [\"a\"]\n", "a is in two"),
        ] {
            assert!(wrong(text).contains(says), "{text}: {}", wrong(text));
        }
        assert!(wrong("[rack.r1]\nnodes = [\"a\"]\n[rack.r2]\nnodes = [\"a\"]\n").contains("t.toml:4:"));
    }
}
