//! The published schema against the reader of job files: what it lets through must be what windfall takes, as far as a
//! schema can tell. The few keywords that it uses are checked here by hand.

use regex::Regex;
use serde_json::Value;
use windfall_jobfile::{Context, parse, schema};

/// Whether a value is what a schema describes. A keyword that is not known here would check nothing, so it is refused.
fn accepts(schema: &Value, value: &Value) -> bool {
    let keywords = schema.as_object().expect("a schema is an object");
    keywords.iter().all(|(keyword, rule)| meets(schema, keyword, rule, value))
}

fn meets(schema: &Value, keyword: &str, rule: &Value, value: &Value) -> bool {
    let all = |rules: &Value| rules.as_array().expect("a list").clone();
    let names = |rule: &Value| all(rule).iter().filter_map(|name| name.as_str().map(str::to_owned)).collect::<Vec<_>>();
    let has = |name: &String| value.get(name).is_some();
    let bound =
        |test: fn(f64, f64) -> bool| value.as_f64().is_none_or(|number| test(number, rule.as_f64().expect("a number")));
    let length = |test: fn(u64, u64) -> bool| {
        value.as_str().is_none_or(|text| test(text.chars().count() as u64, rule.as_u64().expect("a number")))
    };
    match keyword {
        "$schema" | "title" | "description" | "examples" | "format" | "then" => true,
        "type" => match rule {
            Value::String(one) => is(one, value),
            several => names(several).iter().any(|one| is(one, value)),
        },
        "enum" => all(rule).contains(value),
        "const" => rule == value,
        "minimum" => bound(|number, least| number >= least),
        "maximum" => bound(|number, most| number <= most),
        "exclusiveMinimum" => bound(|number, least| number > least),
        "minLength" => length(|count, least| count >= least),
        "maxLength" => length(|count, most| count <= most),
        "pattern" => value.as_str().is_none_or(|text| pattern(rule).is_match(text)),
        "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().expect("a number")),
        "maxProperties" => value.as_object().is_none_or(|keys| keys.len() as u64 <= rule.as_u64().expect("a number")),
        "minProperties" => value.as_object().is_none_or(|keys| keys.len() as u64 >= rule.as_u64().expect("a number")),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(rule, item))),
        "required" => !value.is_object() || names(rule).iter().all(has),
        "dependentRequired" => {
            let rules = rule.as_object().expect("an object");
            rules.iter().all(|(key, needed)| !has(key) || names(needed).iter().all(has))
        }
        "properties" => {
            let rules = rule.as_object().expect("an object");
            rules.iter().all(|(key, rule)| value.get(key).is_none_or(|value| accepts(rule, value)))
        }
        "additionalProperties" => value.as_object().is_none_or(|keys| {
            let known = |key: &str| schema["properties"].get(key).is_some();
            keys.iter().filter(|(key, _)| !known(key)).all(|(_, value)| match rule {
                Value::Bool(may) => *may,
                rule => accepts(rule, value),
            })
        }),
        "propertyNames" => {
            value.as_object().is_none_or(|keys| keys.keys().all(|name| accepts(rule, &Value::String(name.clone()))))
        }
        "anyOf" => all(rule).iter().any(|one| accepts(one, value)),
        "allOf" => all(rule).iter().all(|one| accepts(one, value)),
        "not" => !accepts(rule, value),
        "if" => !accepts(rule, value) || accepts(&schema["then"], value),
        unknown => panic!("`{unknown}` is not checked here"),
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "boolean" => value.is_boolean(),
        unknown => panic!("no such type: {unknown}"),
    }
}

fn pattern(rule: &Value) -> Regex {
    Regex::new(rule.as_str().expect("text")).expect("a pattern that every dialect reads")
}

/// What the schema and the reader say of a file.
fn judged(text: &str) -> (bool, bool) {
    let value: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (accepts(&schema(), &value), parse(text, "job.yaml", &Context::somewhere()).is_ok())
}

#[test]
fn what_windfall_refuses_the_schema_refuses() {
    for wrong in [
        "checkpoint: { store: s4://bucket/ckpt }",
        "checkpoint: { store: s3:bucket }",
        "checkpoint: { store: 's3://' }",
        "checkpoint: { path: s3://bucket/out }",
        "work: { hours: 3, steps: 100 }",
        "work: { hours: 3, throughput: { A100: 3/s } }",
        "work: { hours: 3, parameters: 7e9, tokens: 1e9 }",
        "work: { steps: 3, accelerator: A100 }",
        "work: { accelerator: A100 }",
        "work: { parameters: 7e9 }",
        "work: { steps: 10, lora: true }",
        "work: { parameters: 7e9, tokens: 1e9, lora: 2 }",
        "work: {}",
        "elastic: 2",
        "elastic: 2...4",
        "elastic: 2..many",
        "elastic: 2..10000",
        "nodes: 4\nelastic: 2..4",
        "fallback: { after: 3 }",
        "fallback: { to: smaller }",
        "worth_waiting: 101%",
        "resources: { accelerator_memory: much }",
        "dedline: 3h",
        "deadline: 0h",
        "resources: { accelerators: 'A100:0' }",
        "resources: { accelerators: '8:8' }",
        "resources: { cpus: -1 }",
        "resources: { memory: 0GB }",
        "checkpoint: { size: 0GB }",
        "checkpoint: { every: 0s }",
        "data: { size: 5GB, at: aws }",
        "work: { hours: 1000000000 }",
        "work: { parameters: 7KB, tokens: 1e9 }",
        "work: { steps: 0K }",
        "work: { steps: 5, throughput: { V100: 0/s } }",
        "work: { steps: 5, throughput: { 'V100:8': 1/s } }",
        "budget: '0'",
        "budget: $0",
        "resources: { memory: 200++ }",
        "env: { 1A: x }",
        "env: { WINDFALL_X: x }",
        "progress: ''",
        "tags: { 'two words': x }",
        "tags: { '': x }",
        "tags: [project]",
        "tags: { project: [search] }",
        "tags: { project: \"a\\tb\" }",
        "tags: { t0: x, t1: x, t2: x, t3: x, t4: x, t5: x, t6: x, t7: x, t8: x, t9: x, t10: x, t11: x, t12: x, t13: x, t14: x, t15: x, t16: x }",
    ] {
        assert_eq!(judged(&format!("run: echo\n{wrong}\n")), (false, false), "{wrong}");
    }
}

#[test]
fn what_windfall_takes_the_schema_takes() {
    for good in [
        "checkpoint: { store: s3://bucket/ckpt, path: out/ }",
        "checkpoint: { store: kept/checkpoints }",
        "checkpoint: { store: file:///kept }",
        "work: { hours: 40, accelerator: A100:8 }",
        "work: { steps: 40000, throughput: { A100: 3.1/s } }",
        "work: { parameters: 7000000000, tokens: 30000000000, lora: true }",
        "work: { steps: 10, benchmark: result.json }",
        "work: { parameters: '7e9', tokens: '3e10' }",
        "resources: { accelerators: A100, accelerator_memory: 40+ }",
        "resources: { accelerator_memory: 40GB }",
        "elastic: 2..4",
        "elastic: 1..1",
        "elastic: 1..4096",
        "resources: { memory: 1e9+ }",
        "resources: { accelerators: 'A100:1024' }",
        "work: { hours: 100000, accelerator: L4 }",
        "work: { parameters: 7B, tokens: 1.5T }",
        "data: { size: 5GB, at: aws/us-east-1 }",
        "grace: 0s",
        "budget: '1e3'",
        "budget: '900.'",
        "max_price: '.5'",
        "work: { steps: 5, throughput: { V100: 1e3/s } }",
        "work: { parameters: 7b, tokens: 30B }",
        "env: { SEED: 1, lower_case: x }",
        "worth_waiting: 100%",
        "tags: { project: search, cost-centre: 4711, empty: '' }",
        "fallback: { after: 3, to: [on-demand, smaller+bf16] }",
    ] {
        assert_eq!(judged(&format!("run: echo\n{good}\n")), (true, true), "{good}");
    }
}

/// YAML 1.1 reads these words as booleans, also where they are keys.
#[test]
fn no_key_of_the_schema_is_a_boolean_for_other_parsers() {
    fn keys(schema: &Value, into: &mut Vec<String>) {
        for (name, below) in schema["properties"].as_object().into_iter().flatten() {
            into.push(name.to_ascii_lowercase());
            keys(below, into);
            below["anyOf"].as_array().into_iter().flatten().for_each(|one| keys(one, into));
        }
    }
    let mut all = Vec::new();
    keys(&schema(), &mut all);
    assert!(all.len() > 40, "{}", all.len());
    let booleans = ["y", "n", "yes", "no", "on", "off", "true", "false"];
    assert!(all.iter().all(|key| !booleans.contains(&key.as_str())), "{all:?}");
}
