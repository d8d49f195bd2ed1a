//! What a look at one thing shows, and how that is written for people.

use serde::Serialize;

/// How it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    Ok,
    /// It works, but not as well as it could, or nobody can say.
    Warning,
    /// It is needed, and not there.
    Missing,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Ok => "ok",
            State::Warning => "warning",
            State::Missing => "missing",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub name: &'static str,
    pub state: State,
    pub says: String,
    /// The command that mends it.
    pub mend: Option<String>,
}

impl Finding {
    pub fn ok(name: &'static str, says: impl Into<String>) -> Finding {
        Finding { name, state: State::Ok, says: says.into(), mend: None }
    }

    pub fn warning(name: &'static str, says: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { name, state: State::Warning, says: says.into(), mend: Some(mend.into()) }
    }

    pub fn missing(name: &'static str, says: impl Into<String>, mend: impl Into<String>) -> Finding {
        Finding { name, state: State::Missing, says: says.into(), mend: Some(mend.into()) }
    }

    /// The finding in so many columns. A command is never broken: it is to be copied.
    pub fn shown(&self, columns: usize) -> String {
        const INDENT: usize = 20;
        let mut text = format!("{:<8} {:<10} ", self.state.word(), self.name);
        let mut used = INDENT;
        for word in self.says.split(' ') {
            let length = word.chars().count();
            if used > INDENT && used + 1 + length > columns {
                text.push_str(&format!("\n{:INDENT$}", ""));
                used = INDENT;
            }
            if used > INDENT {
                text.push(' ');
                used += 1;
            }
            text.push_str(word);
            used += length;
        }
        text.push('\n');
        if let Some(mend) = &self.mend {
            text.push_str(&format!("{:9}mend: {mend}\n", ""));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_and_commands_are_not() {
        let says = "the state directory may be written by everybody on this machine";
        let mend = "chmod o-w /a/very/long/path/that/is/longer/than/sixty/columns/in/all/of/it";
        let shown = Finding::missing("state", says, mend).shown(60);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.len() == 3 && lines[..2].iter().all(|line| line.chars().count() <= 60), "{shown}");
        assert!(lines[0].starts_with("missing  state      the state") && lines[2].ends_with(mend), "{shown}");
    }
}
