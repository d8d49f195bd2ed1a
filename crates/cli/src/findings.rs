//! Findings as people read them: what was looked at, how it stands, and what mends it.

use crate::here::Here;
use windfall_core::english::counted;
use windfall_exec::{Finding, FindingState};
use windfall_server::client::Code;

/// Prints findings, and gives the exit code: something that is needed may be missing.
pub fn tell(here: &Here, found: &[Finding]) -> Code {
    let count = |state: FindingState| found.iter().filter(|finding| finding.state == state).count() as u64;
    let (missing, warnings) = (count(FindingState::Missing), count(FindingState::Warning));
    let code = if missing > 0 { Code::BadInput } else { Code::Done };
    if here.json {
        println!("{}", serde_json::json!({ "checks": found, "missing": missing, "warnings": warnings }));
        return code;
    }
    let columns = crate::live::width();
    found.iter().for_each(|finding| print!("{}", shown(finding, columns)));
    println!();
    match (missing, warnings) {
        (0, 0) => println!("nothing is missing"),
        (0, warnings) => println!("nothing that is needed is missing; {}", counted(warnings, "warning")),
        (missing, 0) => println!("{} missing", counted(missing, "thing")),
        (missing, warnings) => println!("{} missing; {}", counted(missing, "thing"), counted(warnings, "warning")),
    }
    code
}

/// The finding in so many columns. A command is never broken: it is to be copied.
fn shown(finding: &Finding, columns: usize) -> String {
    const INDENT: usize = 20;
    let mut text = format!("{:<8} {:<10} ", finding.state.word(), finding.name);
    let mut used = INDENT;
    for word in finding.says.split(' ') {
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
    if let Some(mend) = &finding.mend {
        text.push_str(&format!("{:9}mend: {mend}\n", ""));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_broken_and_commands_are_not() {
        let says = "the state directory may be written by everybody on this machine";
        let mend = "chmod o-w /a/very/long/path/that/is/longer/than/sixty/columns/in/all/of/it";
        let shown = shown(&Finding::missing("state", says, mend), 60);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines.len() == 3 && lines[..2].iter().all(|line| line.chars().count() <= 60), "{shown}");
        assert!(lines[0].starts_with("missing  state      the state") && lines[2].ends_with(mend), "{shown}");
    }
}
