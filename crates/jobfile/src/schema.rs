//! The JSON Schema of job files, made from the table of keys, for editors that complete and check YAML.

use super::keys::{KEYS, Key, Kind, Name, Status};
use serde_json::{Map, Value, json};
use windfall_catalog::plan::LONGEST_HOURS;
use windfall_core::spec::{LONGEST_TAG, LONGEST_TAG_VALUE, MOST_TAGS};

/// The schema, draft 2020-12; `docs/job.schema.json` is this.
pub fn schema() -> Value {
    let mut schema = group(KEYS);
    let top = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windfall job",
        "description": "A job file: what to run, on what, by when, and at what price.",
        "required": ["run"],
        "not": { "required": ["nodes", "elastic"] },
    });
    merge(&mut schema, top);
    schema
}

fn group(keys: &[Key]) -> Value {
    let properties: Map<String, Value> = keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

/// What the keys of a group say of each other, as `assemble` does.
fn between(group: &str) -> Value {
    let not_both = |one: &str, other: &str| json!({ "not": { "required": [one, other] } });
    match group {
        "work" => json!({
            "minProperties": 1,
            "dependentRequired": {
                "accelerator": ["hours"],
                "parameters": ["tokens"],
                "tokens": ["parameters"],
                "lora": ["parameters"],
            },
            "allOf": [
                not_both("steps", "hours"),
                not_both("steps", "accelerator"),
                not_both("hours", "throughput"),
                not_both("hours", "parameters"),
                not_both("hours", "benchmark"),
            ],
        }),
        "fallback" => json!({ "required": ["after", "to"] }),
        _ => json!({}),
    }
}

fn property(key: &Key) -> Value {
    let mut schema = of_kind(&key.kind);
    if matches!(key.kind, Kind::Group(_)) {
        merge(&mut schema, between(key.name));
    }
    let doc = match key.status {
        Status::Used => key.doc.to_owned(),
        Status::Plan => format!("{} Used by `windfall plan`.", key.doc),
    };
    merge(&mut schema, json!({ "description": doc, "examples": [example(key)] }));
    schema
}

/// The example as JSON: it is written in YAML for people, in the table.
fn example(key: &Key) -> Value {
    let mut problems = super::error::Problems::new(key.example);
    super::node::tree(key.example, &mut problems).map_or(Value::Null, |node| node.to_json())
}

fn of_kind(kind: &Kind) -> Value {
    const TIME: &str = r"^\s*(\d+(\.\d+)?\s*(ms|s|m|h|d|w)\s*)+$";
    const AMOUNT: &str = r"^\s*\d+(\.\d+)?\s*([KMGT]i?)?B\s*$";
    let above_zero = json!([{ "pattern": "[1-9]" }]);
    match kind {
        Kind::Text { most } => json!({ "type": ["string", "number", "boolean"], "minLength": 1, "maxLength": most }),
        Kind::Word => json!({ "type": ["string", "number"], "pattern": r"^[\w./@-]+$" }),
        // Readers of YAML 1.1 take `7e9`, as people write large numbers, for text.
        Kind::Count { least, most } if *most > 1_000_000 => json!({
            "type": ["integer", "string"], "minimum": least, "maximum": most, "allOf": above_zero, "pattern": r"^\d+(\.\d+)?([eE]\+?\d+)?[KMBTkmbt]?$",
        }),
        Kind::Count { least, most } => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::FromTo { .. } => {
            json!({ "type": "string", "pattern": r"^\s*\d{1,4}\s*\.\.\s*\d{1,4}\s*$", "allOf": above_zero })
        }
        Kind::Hours => json!({ "type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_HOURS }),
        Kind::Percent => json!({ "type": "string", "pattern": r"^\s*(100(\.0+)?|\d{1,2}(\.\d+)?)\s*%\s*$" }),
        Kind::Duration { least } if least.0 > 0 => json!({ "type": "string", "pattern": TIME, "allOf": above_zero }),
        Kind::Duration { .. } => json!({ "type": "string", "pattern": TIME }),
        Kind::AutoOrDuration => {
            json!({ "anyOf": [{ "const": "auto" }, { "type": "string", "pattern": TIME, "allOf": above_zero }] })
        }
        Kind::Deadline => json!({ "anyOf": [
            { "type": "string", "pattern": TIME, "allOf": above_zero },
            { "type": "string", "pattern": r"^\s*\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?$" },
        ] }),
        Kind::Dollars => {
            json!({
                "type": ["number", "string"],
                "exclusiveMinimum": 0,
                "allOf": above_zero,
                "pattern": r"^\s*\$?(\d+\.?\d*|\.\d+)([eE]\+?\d+)?\s*(USD)?\s*$",
            })
        }
        Kind::Bytes => json!({ "type": "string", "pattern": AMOUNT, "allOf": above_zero }),
        Kind::Speed => json!({
            "type": "string",
            "allOf": above_zero,
            "pattern": r"^\s*(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*/\s*(s|min|m|h)\s*$",
        }),
        Kind::Accelerators => {
            json!({ "type": "string", "pattern": r"^[\w.-]*[A-Za-z_.-][\w.-]*(:([1-9]\d{0,2}|10[01]\d|102[0-4]|0\.\d*[1-9]\d*|[1-9]\d?/[1-9]\d?))?$" })
        }
        Kind::AtLeast { unit } => json!({
            "type": ["number", "string"],
            "exclusiveMinimum": 0,
            "pattern": format!(r"^\s*\d+(\.\d+)?([eE]\+?\d+)?({unit})?\+?$"),
            "allOf": above_zero,
        }),
        Kind::Site => json!({ "type": "string", "pattern": r"^[^/\s]+/[^\s].*$" }),
        Kind::Choice(choices) => json!({ "enum": choices() }),
        Kind::FallbackStep => json!({ "type": "string", "pattern": r"^(on-demand|smaller(\+[\w./@-]+)?)$" }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Folder => json!({ "type": "string", "minLength": 1, "not": { "pattern": "://" } }),
        Kind::Workdir => json!({ "type": "string", "minLength": 1, "not": { "pattern": "://" } }),
        Kind::Inside => {
            json!({ "type": "string", "minLength": 1, "pattern": r"^[^/!#]", "not": { "pattern": r"(^|/)\.\.(/|$)" } })
        }
        Kind::SecretFrom => json!({ "type": "string", "pattern": "^(terminal|server|file:.+)$" }),
        Kind::Script => json!({ "type": "string", "minLength": 1 }),
        Kind::Store => json!({ "type": "string", "minLength": 1, "anyOf": [
            { "pattern": r"^(s3|gs|az)://[^/\s]\S*$" },
            { "pattern": r"^file://\S*[^/\s]\S*$" },
            { "not": { "pattern": "://|^(s3|gs|az|file)(:|//)" } },
        ] }),
        Kind::Pattern => json!({ "type": "string", "format": "regex", "minLength": 1 }),
        Kind::Setting => json!({ "type": ["string", "number", "boolean"] }),
        Kind::TagValue => {
            json!({ "type": ["string", "number", "boolean"], "maxLength": LONGEST_TAG_VALUE, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$" })
        }
        Kind::Command => json!({ "anyOf": [
            { "type": "string", "pattern": r"\S" },
            { "type": "array", "minItems": 1, "items": { "type": ["string", "number", "boolean"] } },
        ] }),
        Kind::OneOrMany(one) => {
            let one = of_kind(one);
            json!({ "anyOf": [one.clone(), { "type": "array", "minItems": 1, "items": one }] })
        }
        Kind::Group(keys) => group(keys),
        Kind::Named { key, value } => {
            let most = (*key == Name::Tag).then(|| json!({ "maxProperties": MOST_TAGS })).unwrap_or(json!({}));
            let names = match key {
                Name::Tag => json!({ "minLength": 1, "maxLength": LONGEST_TAG, "pattern": "^[A-Za-z0-9_./-]*$" }),
                Name::Accelerator => json!({ "pattern": r"^[\w.-]+$" }),
                Name::Variable => {
                    json!({ "pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": { "pattern": "^WINDFALL_" } })
                }
            };
            let mut named = json!({ "type": "object", "additionalProperties": of_kind(value), "propertyNames": names });
            merge(&mut named, most);
            named
        }
        Kind::Either(one, keys) => json!({ "anyOf": [of_kind(one), group(keys)] }),
    }
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// A file that holds one example, with what it needs beside it.
    fn file(path: &[&str], example: &str) -> String {
        let run = if path == ["run"] { "" } else { "run: echo\n" };
        match path {
            ["work", "accelerator"] => format!("{run}work: {{ hours: 1, accelerator: {example} }}\n"),
            ["work", "lora"] => format!("{run}work: {{ parameters: 1e9, tokens: 1e9, lora: {example} }}\n"),
            ["work", "parameters"] => format!("{run}work: {{ parameters: {example}, tokens: 1e9 }}\n"),
            ["work", "tokens"] => format!("{run}work: {{ parameters: 1e9, tokens: {example} }}\n"),
            ["setup"] => format!("{run}workdir: .\nsetup: {example}\n"),
            ["fallback", "after"] => format!("{run}fallback: {{ after: {example}, to: smaller }}\n"),
            ["fallback", "to"] => format!("{run}fallback: {{ after: 1, to: {example} }}\n"),
            [group, key] => format!("{run}{group}: {{ {key}: {example} }}\n"),
            [key] => format!("{run}{key}: {example}\n"),
            _ => String::new(),
        }
    }

    #[test]
    fn every_example_of_the_table_parses() {
        // A folder that is to be sent must be there.
        let folder = tempfile::tempdir().unwrap();
        let context = crate::Context { folder: folder.path().to_owned(), ..crate::Context::somewhere() };
        for key in KEYS {
            let below = key.kind.group().unwrap_or_default();
            let all = std::iter::once((vec![key.name], key)).chain(below.iter().map(|k| (vec![key.name, k.name], k)));
            for (path, key) in all {
                let text = file(&path, key.example);
                let read = crate::parse(&text, "job.yaml", &context);
                assert!(read.is_ok(), "{text}{}", read.unwrap_err());
            }
        }
    }

    #[test]
    fn every_key_has_a_line_of_explanation_and_an_example() {
        fn check(schema: &Value) {
            for (name, property) in schema["properties"].as_object().unwrap() {
                let doc = property["description"].as_str().unwrap_or_default();
                assert!(doc.ends_with('.') && !doc.contains('\n') && doc.len() < 130, "{name}: {doc}");
                assert!(!property["examples"][0].is_null(), "{name}");
                for below in std::iter::once(property).chain(property["anyOf"].as_array().into_iter().flatten()) {
                    if below["properties"].is_object() {
                        assert_eq!(below["additionalProperties"], json!(false), "{name}");
                        check(below);
                    }
                }
            }
        }
        check(&schema());
    }
}
