//! What the one container of a Job's pods runs: its command, as a shell writes it where the number of a worker is in it, and its
//! variables.

use super::keys::VARIABLE;
use super::reader::{Object, Reader};
use crate::error::{Class, Problem, Quoted};
use crate::node::Node;
use crate::sbatch::is_variable;
use std::collections::BTreeMap;

/// The variable by which a pod of an Indexed Job knows its number.
const INDEX: &str = "JOB_COMPLETION_INDEX";
/// The same as a field of the pod.
const INDEX_FIELD: &str = "metadata.annotations['batch.kubernetes.io/job-completion-index']";

/// What a container runs.
pub(super) struct Program {
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
}

/// A piece of a word: text, or a variable that only the machine knows.
#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Variable(String),
}

impl Reader<'_, '_> {
    /// Its program. `is_indexed` where each worker has a number.
    pub fn program(&mut self, container: &Object, is_indexed: bool) -> Option<Program> {
        let mut numbered: Vec<String> = if is_indexed { vec![INDEX.to_owned()] } else { Vec::new() };
        let env = self.variables(container, &mut numbered, is_indexed);
        let command = container.get("command").map(|node| self.words(node, "command"));
        if command.as_ref().is_some_and(Vec::is_empty) {
            // What is wrong with it has been said.
            return None;
        }
        let Some(command) = command else {
            let problem = Problem::new(Class::MissingKey, "`command` is missing");
            let hint = "an image's entrypoint is not known here: write the program and its arguments as a list";
            self.wrong(&container.at("args"), problem.expected("command: [python, train.py]").hint(hint));
            return None;
        };
        let args = container.get("args").map(|node| self.words(node, "args")).unwrap_or_default();
        let words: Vec<Vec<Piece>> = command.iter().chain(&args).map(|word| pieces(word, &env, &numbered)).collect();
        let command = match is_indexed {
            true => vec!["/bin/sh".to_owned(), "-c".to_owned(), script(&numbered, &words)],
            false => words.iter().map(|word| plain(word)).collect(),
        };
        Some(Program { command, env })
    }

    fn words(&mut self, node: &Node, name: &str) -> Vec<String> {
        let items = self.list(node, name);
        items.iter().filter_map(|item| self.word(item, name).map(str::to_owned)).collect()
    }

    fn variables(
        &mut self,
        container: &Object,
        numbered: &mut Vec<String>,
        is_indexed: bool,
    ) -> BTreeMap<String, String> {
        let mut env = BTreeMap::new();
        let Some(list) = container.get("env") else { return env };
        for item in self.list(list, "env") {
            let variable = self.object(item, "a variable", VARIABLE);
            let Some(name) = variable.get("name").and_then(|node| self.word(node, "its name")) else {
                let problem = Problem::new(Class::MissingKey, "a variable without a name");
                self.wrong(&item.span, problem.expected("name: NAME"));
                continue;
            };
            if !is_variable(name) {
                let problem = Problem::new(Class::BadValue, format!("{} is no name of a variable", Quoted(name)));
                self.wrong(&variable.at("name"), problem.expected("letters, digits and _, and no digit first"));
                continue;
            }
            match variable.get("valueFrom") {
                Some(from) if is_indexed && is_index(from) => numbered.push(name.to_owned()),
                Some(from) => self.said_elsewhere(name, from, &variable),
                None => {
                    let value = variable.get("value").and_then(|node| self.word(node, "its value")).unwrap_or_default();
                    let value = plain(&pieces(value, &env, &[]));
                    env.insert(name.to_owned(), value);
                }
            }
        }
        env
    }

    fn said_elsewhere(&mut self, name: &str, from: &Node, variable: &Object) {
        let source = from.entries().first().and_then(|(key, _)| key.text()).unwrap_or("valueFrom");
        let hint = match source {
            "secretKeyRef" => format!("in a job file: secrets: {{ {name}: 'file:~/.secret' }}"),
            "fieldRef" | "resourceFieldRef" => "write its value: the program does not run in that pod".to_owned(),
            _ => "write its value".to_owned(),
        };
        let problem = Problem::new(Class::Unsupported, format!("the value of {name} comes from {}", Quoted(source)));
        self.wrong(&variable.at("valueFrom"), problem.expected("value: …").hint(hint));
    }
}

/// Whether a value is the number of its pod.
fn is_index(from: &Node) -> bool {
    let field = from.entries().iter().find(|(key, _)| key.text() == Some("fieldRef"));
    let path = field.and_then(|(_, field)| field.entries().iter().find(|(key, _)| key.text() == Some("fieldPath")));
    path.and_then(|(_, path)| path.text()).is_some_and(|path| path.replace('"', "'") == INDEX_FIELD)
}

/// `$(NAME)` is what the variable is; `$$(NAME)` is `$(NAME)`; of a variable that is not known it stays as it is.
fn pieces(word: &str, env: &BTreeMap<String, String>, numbered: &[String]) -> Vec<Piece> {
    let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), word);
    while let Some(at) = rest.find('$') {
        text.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            text.push('$');
            rest = after;
            continue;
        }
        let inner = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match inner {
            Some((name, after)) if numbered.iter().any(|known| known == name) => {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Variable(name.to_owned()));
                rest = after;
            }
            Some((name, after)) if env.contains_key(name) => {
                text.push_str(&env[name]);
                rest = after;
            }
            _ => text.push('$'),
        }
    }
    text.push_str(rest);
    pieces.push(Piece::Text(text));
    pieces.retain(|piece| !matches!(piece, Piece::Text(text) if text.is_empty()));
    pieces
}

fn plain(word: &[Piece]) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Variable(name) => format!("$({name})"),
    };
    word.iter().map(text).collect()
}

/// A shell line that runs these words with their worker's number in them.
fn script(numbered: &[String], words: &[Vec<Piece>]) -> String {
    let quoted = |word: &Vec<Piece>| {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => format!("'{}'", text.replace('\'', "'\\''")),
            Piece::Variable(name) => format!("\"${name}\""),
        };
        if word.is_empty() { "''".to_owned() } else { word.iter().map(piece).collect::<String>() }
    };
    let known: Vec<String> = numbered.iter().map(|name| format!("{name}=${{RANK:-0}}")).collect();
    let words: Vec<String> = words.iter().map(quoted).collect();
    format!("export {}\nexec {}", known.join(" "), words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_put_in_as_kubernetes_does() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (word, expected) in [
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$$(A)", "$(A)"),
            ("$(B)", "$(B)"),
            ("$A $( $(", "$A $( $("),
            ("$$$(A)", "$1"),
            ("", ""),
            ("$", "$"),
        ] {
            assert_eq!(plain(&pieces(word, &env, &[])), expected, "{word}");
        }
    }

    #[test]
    fn a_worker_s_number_is_in_its_words_and_nothing_else_is_for_the_shell() {
        let numbered = ["JOB_COMPLETION_INDEX".to_owned()];
        let words = ["echo", "it's $HOME", "--rank=$(JOB_COMPLETION_INDEX)of2", ""];
        let words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(word, &BTreeMap::new(), &numbered)).collect();
        assert_eq!(
            script(&numbered, &words),
            "export JOB_COMPLETION_INDEX=${RANK:-0}\nexec 'echo' 'it'\\''s $HOME' '--rank='\"$JOB_COMPLETION_INDEX\"'of2' ''"
        );
    }
}
