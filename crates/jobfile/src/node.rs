//! YAML text to a tree whose every key and value knows its bytes. Only what job files need: one document,
//! maps, lists and scalars. Anchors, aliases and tags are refused, so a small file cannot become a large tree.

use super::error::{Class, Problem, Problems, Quoted};
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, StrInput, StructureStyle};
use std::ops::Range;

/// Deeper than any job file; keeps everything that walks the tree shallow.
const DEEPEST: usize = 24;

/// A value with its position.
#[derive(Debug)]
pub(super) struct Node {
    pub span: Range<usize>,
    pub yaml: Yaml,
}

#[derive(Debug)]
pub(super) enum Yaml {
    Scalar { text: String, plain: bool },
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    /// What it is, in the words of messages.
    pub fn what(&self) -> String {
        match &self.yaml {
            Yaml::Scalar { .. } if self.is_nothing() => "nothing".to_owned(),
            Yaml::Scalar { text, .. } => Quoted(text).to_string(),
            Yaml::List(_) => "a list".to_owned(),
            Yaml::Map(_) => "keys with values".to_owned(),
        }
    }

    pub fn is_nothing(&self) -> bool {
        matches!(&self.yaml, Yaml::Scalar { text, plain: true } if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }

    pub fn text(&self) -> Option<&str> {
        match &self.yaml {
            Yaml::Scalar { text, .. } if !self.is_nothing() => Some(text),
            _ => None,
        }
    }

    /// As JSON, with plain numbers and truth values as such.
    pub fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.yaml {
            Yaml::Scalar { text, plain: true } => serde_json::from_str(text)
                .ok()
                .filter(|v: &Value| !v.is_string())
                .unwrap_or_else(|| Value::from(text.as_str())),
            Yaml::Scalar { text, .. } => Value::from(text.as_str()),
            Yaml::List(items) => items.iter().map(Node::to_json).collect(),
            Yaml::Map(entries) => entries
                .iter()
                .map(|(key, value)| (key.text().unwrap_or_default().to_owned(), value.to_json()))
                .collect(),
        }
    }

    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.yaml {
            Yaml::Map(entries) => entries,
            _ => &[],
        }
    }
}

/// A list or a map that is not closed yet.
struct Open {
    start: usize,
    map: bool,
    flow: bool,
    nodes: Vec<Node>,
}

/// Reads the one document of `text`; none when there is none or it is not YAML, which `problems` then says.
pub(super) fn tree(text: &str, problems: &mut Problems) -> Option<Node> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        flow_nesting_limit: DEEPEST,
        block_nesting_limit: DEEPEST,
    };
    let mut events: Parser<'_, StrInput<'_>> = Parser::new_from_str_with_options(text, options);
    let mut open: Vec<Open> = Vec::new();
    let mut root = None;
    let mut documents = 0;
    let mut refused = false;
    while let Some(event) = events.next_event() {
        let (event, span) = match event {
            Ok((event, span)) => (event, bytes(text, &span)),
            Err(error) => {
                let at = error.marker().byte_offset().unwrap_or(text.len());
                let (span, problem) = not_yaml(text, at, error.kind());
                problems.add(&span, problem);
                return None;
            }
        };
        let has_anchor = event.anchor_id().is_some_and(|id| id != 0);
        if has_anchor || event.tag().is_some() || matches!(event, Event::Alias(_) | Event::UnresolvedAlias(_)) {
            // Only the first is reported: the others follow from it.
            if !refused {
                refuse(&event, has_anchor, &span, problems);
            }
            refused = true;
        }
        let node = match event {
            Event::DocumentStart(..) => {
                documents += 1;
                if documents == 2 {
                    problems.add(&span, several_documents());
                    return None;
                }
                continue;
            }
            Event::Scalar(value, style, ..) => {
                // A block scalar's span may reach into the next line; messages underline its header line.
                Node { span, yaml: Yaml::Scalar { text: value.into_owned(), plain: style == ScalarStyle::Plain } }
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                Node { span, yaml: Yaml::Scalar { text: String::new(), plain: false } }
            }
            Event::SequenceStart(style, ..) => {
                let flow = style == StructureStyle::Flow;
                open.push(Open { start: span.start, map: false, flow, nodes: Vec::new() });
                continue;
            }
            Event::MappingStart(style, ..) => {
                let flow = style == StructureStyle::Flow;
                open.push(Open { start: span.start, map: true, flow, nodes: Vec::new() });
                continue;
            }
            Event::SequenceEnd | Event::MappingEnd => match open.pop() {
                Some(closed) => close(closed, span.end),
                None => continue,
            },
            _ => continue,
        };
        match open.last_mut() {
            Some(parent) => parent.nodes.push(node),
            None => root = Some(node),
        }
    }
    root.filter(|_| !refused)
}

fn close(open: Open, end: usize) -> Node {
    // A block's end mark is where the next token begins; its last child ends where the user's text does.
    let last = open.nodes.last().map_or(open.start, |node| node.span.end);
    let span = open.start..if open.flow { end.max(open.start) } else { last.max(open.start) };
    if !open.map {
        return Node { span, yaml: Yaml::List(open.nodes) };
    }
    let mut entries = Vec::with_capacity(open.nodes.len() / 2);
    let mut nodes = open.nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        entries.push((key, value));
    }
    Node { span, yaml: Yaml::Map(entries) }
}

fn bytes(text: &str, span: &Span) -> Range<usize> {
    let start = span.start.byte_offset().unwrap_or(0).min(text.len());
    let end = span.end.byte_offset().unwrap_or(start).clamp(start, text.len());
    start..end
}

fn refuse(event: &Event, has_anchor: bool, span: &Range<usize>, problems: &mut Problems) {
    let problem = if event.tag().is_some() {
        Problem::new(Class::Syntax, "a YAML tag (`!…`), which job files do not use")
            .expected("a plain value")
            .hint("remove the tag; put the value in quotes if it must be text")
    } else if has_anchor {
        Problem::new(Class::Syntax, "a YAML anchor (`&…`), which job files do not use")
            .expected("a plain value")
            .hint("remove the anchor and write the value out where it is needed")
    } else {
        Problem::new(Class::Syntax, "a YAML alias (`*…`), which job files do not use")
            .expected("a plain value")
            .hint("write the value out; text that starts with `*` goes in quotes")
    };
    problems.add(span, problem);
}

fn several_documents() -> Problem {
    Problem::new(Class::Syntax, "a second document begins here")
        .expected("one job in a file")
        .hint("remove the `---`, or put the second job in a file of its own")
}

/// The parser's error in words that say what to change.
fn not_yaml(text: &str, at: usize, kind: &ErrorKind) -> (Range<usize>, Problem) {
    let line = floor_line(text, at);
    let spaces = text[line..].bytes().take_while(|byte| *byte == b' ').count();
    let has_tab = text[line + spaces..].starts_with('\t');
    let span = if has_tab { line + spaces..line + spaces + 1 } else { at..at };
    let (message, expected, hint) = match kind {
        _ if has_tab => ("a tab is used for indentation", "spaces", "replace the tab with two spaces"),
        ErrorKind::TabNotAllowed
        | ErrorKind::TabInBlockIndentation
        | ErrorKind::TabInIndentation
        | ErrorKind::TabAtBlockScalarStart
        | ErrorKind::TabInPlainScalar => {
            ("a tab where only spaces are allowed", "spaces", "replace the tab with spaces")
        }
        ErrorKind::InvalidIndentation
        | ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::MappingKeyNotAllowed => (
            "the indentation does not match the lines above",
            "keys of one level in one column",
            "start this line in the same column as its neighbours, with spaces only",
        ),
        ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => (
            "a `key: value` where none can be",
            "one `key: value` on a line",
            "put text that has `: ` in it in quotes, or check the indentation of this line",
        ),
        ErrorKind::SimpleKeyExpected | ErrorKind::InvalidSimpleKey => (
            "a line that is not `key: value`",
            "`key: value`, with a space after the colon",
            "add the colon and a space, or indent this line below the key it belongs to",
        ),
        ErrorKind::UnclosedQuotedScalar | ErrorKind::DocumentIndicatorInQuotedScalar => (
            "a quote that is opened here is never closed",
            "a closing quote",
            "add the same quote at the end of the text",
        ),
        ErrorKind::InvalidQuotedScalarIndent => (
            "text in quotes that begins above goes on here",
            "the closing quote on the line of the opening one",
            "add the missing quote above; if the text is meant to go on, indent this line",
        ),
        ErrorKind::UnclosedFlowCollection { .. }
        | ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator => (
            "a bracket that is not closed, or a comma is missing",
            "`,` between entries, and `]` or `}` at the end",
            "close the bracket, or add the comma",
        ),
        ErrorKind::MisplacedFlowCollectionEnd | ErrorKind::MismatchedFlowCollectionEnd { .. } => {
            ("a closing bracket that does not match", "`[ … ]` or `{ … }`", "check the brackets on this line")
        }
        ErrorKind::RecursionLimitExceeded => {
            ("nested too deeply", "a few levels, as in the examples", "job files need at most four levels")
        }
        ErrorKind::UnknownQuotedScalarEscape
        | ErrorKind::InvalidQuotedScalarHexEscape
        | ErrorKind::InvalidUnicodeEscape => (
            "a backslash that means nothing in double quotes",
            "\\n, \\t, \\\\ or \\\"",
            "use single quotes: a backslash is then just a backslash",
        ),
        ErrorKind::UnexpectedCharacter { .. } => {
            ("a character that cannot begin a value", "text, a number, `[` or `{`", "put the value in quotes")
        }
        _ => {
            let message = format!("not valid YAML: {kind}");
            let problem = Problem::new(Class::Syntax, message).expected("`key: value` lines");
            return (span, problem.hint("put text with special characters in quotes"));
        }
    };
    (span, Problem::new(Class::Syntax, message).expected(expected).hint(hint))
}

fn floor_line(text: &str, at: usize) -> usize {
    let at = super::error::position(text, &(at..at)).span.start;
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}
