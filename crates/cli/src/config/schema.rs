//! The JSON Schema of configuration files, made from the table of keys, for editors that complete and check TOML.

use super::keys::{Key, Kind, NONE, RULES, Rule, SECTIONS, Section};
use serde_json::{Map, Value, json};

/// The schema, draft 2020-12; `docs/config.schema.json` is this.
pub(crate) fn schema() -> Value {
    let sections: Map<String, Value> =
        SECTIONS.iter().map(|section| (section.name.to_owned(), table(section))).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windfall configuration",
        "description": "A configuration file (TOML): what a server, and the agent of a machine that joins, do by themselves.",
        "type": "object",
        "additionalProperties": false,
        "properties": sections,
    })
}

fn table(section: &Section) -> Value {
    let keys: Map<String, Value> = section.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let mut table =
        json!({ "type": "object", "description": section.doc, "additionalProperties": false, "properties": keys });
    if section.name == "server" {
        table["allOf"] = RULES.iter().map(rule).collect();
    }
    table
}

/// A flag that says false is as good as none.
fn is_set(key: &str) -> Value {
    json!({ "required": [key], "properties": { key: { "not": { "const": false } } } })
}

fn rule(rule: &Rule) -> Value {
    match rule {
        Rule::Needs(key, other) => json!({ "if": { "required": [key] }, "then": is_set(other) }),
        Rule::NotWith(key, other) => json!({ "if": is_set(key), "then": { "not": { "required": [other] } } }),
    }
}

fn property(key: &Key) -> Value {
    let mut property = of_kind(key.kind);
    property["description"] = json!(key.doc);
    let example: Value = toml_example(key.example);
    property["examples"] = json!([example]);
    if key.default != NONE {
        property["$comment"] = json!(format!("Where it is not set: {}.", key.default));
    }
    property
}

/// An example as JSON: what the table holds is TOML and JSON at once.
fn toml_example(example: &str) -> Value {
    serde_json::from_str(example).expect("examples of the table are JSON as well")
}

fn of_kind(kind: Kind) -> Value {
    const TIME: &str = r"^\s*(\d+(\.\d+)?\s*(ms|s|m|h|d|w)\s*)+$";
    const STATED: &str = r"^[A-Za-z0-9._-]+:([1-9]\d{0,2}|10[01]\d|102[0-4])$";
    let list = |pattern: &str| {
        let one = json!({ "type": "string", "pattern": pattern });
        json!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "array", "minItems": 1, "items": one }] })
    };
    match kind {
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Listen => {
            json!({ "type": "string", "pattern": r"^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-fA-F:.%]+\]):\d{1,5}$" })
        }
        Kind::Server => json!({ "type": "string", "pattern": r"^(https://)?([^/@ :]+|\[[^/@ ]+\]):\d{1,5}/*$" }),
        Kind::DeadMan | Kind::WallTime => json!({ "type": "string", "pattern": TIME }),
        Kind::TimeOrNever => json!({ "anyOf": [{ "const": "never" }, { "type": "string", "pattern": TIME }] }),
        Kind::Accelerators => list(STATED),
        Kind::Labels | Kind::Names => list(r"^[A-Za-z0-9._/-]+=[A-Za-z0-9._/-]+$"),
        Kind::Words => list(r"^\S+$"),
        Kind::Word => json!({ "type": "string", "pattern": r"^\S+$" }),
        Kind::Rate => json!({ "type": "number", "minimum": 0, "maximum": 1e6 }),
        Kind::Hours => json!({ "type": "number", "minimum": 0, "maximum": super::values::LONGEST_RECORDING }),
        Kind::Count { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Choice(choices) => json!({ "enum": choices() }),
        Kind::Folder => json!({ "type": "string", "pattern": "^/" }),
        Kind::Store => json!({ "type": "string", "pattern": "^postgres(ql)?://" }),
        Kind::Account => json!({ "type": "string", "minLength": 1, "maxLength": 64 }),
        Kind::NodeName => json!({ "type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[A-Za-z0-9.-]+$" }),
    }
}

/// A commented file that sets nothing: every key with what it does, and what holds without it.
pub(crate) fn example() -> String {
    let mut text = "# Windfall's configuration: every key, with what it does. Flags count more than this file.\n\
                    # `windfall config check FILE` says whether it is right, `windfall config show` what holds.\n"
        .to_owned();
    for section in SECTIONS {
        text.push_str(&format!("\n# {}\n[{}]\n", section.doc, section.name));
        for key in section.keys {
            text.push_str(&format!("# {} Default: {}.\n# {} = {}\n", key.doc, key.default, key.name, key.example));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::parse;
    use std::path::Path;

    #[test]
    fn the_published_schema_is_that_of_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.schema.json");
        let fresh = serde_json::to_string_pretty(&schema()).expect("a schema has string keys") + "\n";
        if std::env::var_os("WINDFALL_REFRESH").is_some() {
            std::fs::write(&path, &fresh).expect("it is written");
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        let how = "WINDFALL_REFRESH=1 cargo test -p windfall-cli --lib schema";
        assert!(published == fresh, "docs/config.schema.json is stale; refresh it: {how}");
    }

    #[test]
    fn every_example_of_the_table_is_read_and_every_key_is_explained() {
        for section in SECTIONS {
            for key in section.keys {
                let text = format!("[{}]\n{} = {}\n", section.name, key.name, key.example);
                let file = parse(&text, Path::new("config.toml")).unwrap_or_else(|error| panic!("{text}{error}"));
                assert!(file.get(section.name, key.name).is_some(), "{text}");
                assert!(key.doc.ends_with('.') && key.doc.len() < 120, "{}", key.doc);
                assert!(!key.kind.words().is_empty());
            }
        }
    }

    #[test]
    fn the_commented_example_sets_nothing_and_sets_all_once_its_keys_are_uncommented() {
        let text = example();
        assert_eq!(parse(&text, Path::new("config.toml")).expect("it is right").len(), 0);
        let open = |line: &str| line.strip_prefix("# ").filter(|line| line.contains(" = ")).unwrap_or(line).to_owned();
        let all = text.lines().map(open).collect::<Vec<_>>().join("\n");
        let keys: usize = SECTIONS.iter().map(|section| section.keys.len()).sum();
        assert_eq!(parse(&all, Path::new("config.toml")).expect("it is right").len(), keys);
    }
}
