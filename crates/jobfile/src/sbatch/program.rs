//! A script's body as a command: it is run by its own interpreter, from the text that was submitted, so that a change of the
//! file afterwards changes nothing, as with `sbatch`.

use super::values::Warning;
use crate::error::{Class, Problem};
use std::collections::BTreeSet;

/// One argument of a program is 128 KiB at most on Linux.
const LARGEST: usize = 120_000;

/// Shells that take a script as an argument.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"];

/// Programs that only a cluster has. `module` is a function of its login shells.
const OF_A_CLUSTER: &[&str] = &["srun", "scontrol", "sbatch", "squeue", "sacct", "scancel", "sbcast", "module", "ml"];

/// Writes the script beside other temporary files, for interpreters that read a file only. SIGTERM is for the interpreter:
/// this shell waits for it, and removes the file.
const FROM_A_FILE: &str = "d=$(mktemp -d) || exit 1\ntrap 'rm -rf \"$d\"' EXIT\ntrap : TERM INT\n\
                           printf %s \"$1\" >\"$d/$0\" || exit 1\nf=$d/$0\nshift\n\"$@\" \"$f\"";

/// Runs the script in a session of its own, and turns SIGTERM into the signal that it asked for. One that comes before it is
/// known whom to tell is passed on then.
const WITH_SIGNAL: &str = "t=\ntrap t=1 TERM\nsetsid \"$@\" &\nc=$!\ntrap 'kill -s \"$0\" \"$c\"' TERM\n\
                           [ -z \"$t\" ] || kill -s \"$0\" \"$c\"\n\
                           while :; do wait \"$c\"; s=$?; kill -0 \"$c\" 2>/dev/null || exit \"$s\"; done";

/// The command that runs a script. `name` is what it calls itself.
pub(super) fn command(text: &str, name: &str, warning: Option<&Warning>) -> Result<Vec<String>, Problem> {
    // An interpreter with a carriage return at the end of its name does not exist.
    let body = text.replace("\r\n", "\n");
    if body.len() > LARGEST {
        let problem = Problem::new(Class::Unsupported, format!("the script has {} bytes", body.len()));
        return Err(problem.expected(format!("at most {LARGEST}")).hint("move what it does into a file that it calls"));
    }
    let first = body.lines().next().and_then(|line| line.strip_prefix("#!")).unwrap_or("/bin/sh");
    let mut words: Vec<String> = first.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() {
        words.push("/bin/sh".to_owned());
    }
    let name = file_name(name);
    let line = |script: &str, name: &str| ["/bin/sh", "-c", script, name].map(str::to_owned).to_vec();
    let mut command = if is_shell(&words) {
        // Alone, these end the options; the script is one.
        words.retain(|word| word != "-" && word != "--");
        words.extend(["-c".to_owned(), body, name]);
        words
    } else {
        let mut command = line(FROM_A_FILE, &name);
        command.push(body);
        command.append(&mut words);
        command
    };
    if let Some(warning) = warning.filter(|warning| is_passed_on(warning)) {
        command.splice(..0, line(WITH_SIGNAL, &warning.signal));
    }
    Ok(command)
}

/// Whether a script is sent the signal that it asked for in place of SIGTERM. One for its steps alone cannot be told apart.
pub(super) fn is_passed_on(warning: &Warning) -> bool {
    warning.to_script && !matches!(warning.signal.as_str(), "TERM" | "15" | "KILL" | "9" | "STOP" | "19")
}

fn file_name(name: &str) -> String {
    let last = name.rsplit('/').next().unwrap_or_default();
    let plain: String = last.chars().filter(|c| !c.is_control()).collect();
    if plain.is_empty() || plain.starts_with('-') { "script".to_owned() } else { plain }
}

/// Whether a script is one of a shell's.
pub(super) fn is_run_by_a_shell(text: &str) -> bool {
    let first = text.lines().next().and_then(|line| line.strip_prefix("#!")).unwrap_or("/bin/sh");
    is_shell(&first.split_whitespace().map(str::to_owned).collect::<Vec<String>>())
}

/// Whether an interpreter is a shell, also where `env` finds it.
fn is_shell(words: &[String]) -> bool {
    let mut programs = words.iter().filter(|word| !word.starts_with('-') && !word.contains('='));
    let program = |word: &String| word.rsplit('/').next().unwrap_or_default().to_owned();
    match programs.next().map(program).as_deref() {
        Some("env") => programs.next().map(program).is_some_and(|name| SHELLS.contains(&name.as_str())),
        Some(name) => SHELLS.contains(&name),
        None => false,
    }
}

/// What of a cluster the commands of a script use: programs, and variables that Slurm sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Uses {
    pub programs: BTreeSet<String>,
    pub variables: BTreeSet<String>,
}

/// Reads the commands of a script, comments left out.
pub(super) fn uses(commands: &str) -> Uses {
    let mut uses = Uses::default();
    for line in commands.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let apart = |c: char| c.is_whitespace() || ";|&()`\"'".contains(c);
        let words = line.split(apart).filter(|word| OF_A_CLUSTER.contains(word));
        uses.programs.extend(words.map(str::to_owned));
        let names = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        uses.variables.extend(names.filter(|name| name.starts_with("SLURM_") && name.len() > 6).map(str::to_owned));
    }
    uses
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;
    use std::process::Command;

    fn words(first: &str) -> Vec<String> {
        let command = command(&format!("{first}\necho"), "dir/train.sh", None).unwrap();
        command.iter().map(|word| word.replace('\n', "|")).filter(|word| !word.starts_with("d=$")).collect()
    }

    #[test]
    fn a_script_is_run_by_its_own_interpreter() {
        assert_eq!(words("#!/bin/bash -l"), ["/bin/bash", "-l", "-c", "#!/bin/bash -l|echo", "train.sh"]);
        assert_eq!(words("#! /bin/sh -"), ["/bin/sh", "-c", "#! /bin/sh -|echo", "train.sh"]);
        assert_eq!(
            words("#!/usr/bin/env bash\r"),
            ["/usr/bin/env", "bash", "-c", "#!/usr/bin/env bash|echo", "train.sh"]
        );
        assert_eq!(words("#SBATCH -N2"), ["/bin/sh", "-c", "#SBATCH -N2|echo", "train.sh"]);
        let python = words("#!/usr/bin/env python3");
        assert_eq!(python, ["/bin/sh", "-c", "train.sh", "#!/usr/bin/env python3|echo", "/usr/bin/env", "python3"]);
        assert!(command(&"#".repeat(LARGEST + 1), "x", None).is_err());
    }

    fn output(text: &str, warning: Option<&Warning>) -> (String, Option<i32>) {
        let command = command(text, "train.sh", warning).unwrap();
        let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    }

    #[test]
    fn what_it_prints_and_how_it_ends_are_the_script_s_own() {
        assert_eq!(
            output("#!/bin/bash\necho \"$0 $BASH_VERSINFO\" | cut -c1-8\nexit 3\n", None),
            ("train.sh\n".into(), Some(3))
        );
        // Any program that reads a file will do for an interpreter.
        let (said, code) = output("#!/bin/cat\nas it is\n", None);
        assert_eq!((said.as_str(), code), ("#!/bin/cat\nas it is\n", Some(0)));
    }

    #[test]
    fn the_signal_that_was_asked_for_comes_in_place_of_sigterm() {
        let warning = Warning { to_script: true, signal: "USR1".to_owned(), seconds: 60 };
        let script =
            "#!/bin/sh\ntrap 'echo saved; exit 7' USR1\nkill -TERM $PPID\nfor i in $(seq 600); do sleep 0.05; done\n";
        assert_eq!(output(script, Some(&warning)), ("saved\n".into(), Some(7)));
        assert_eq!(output("#!/bin/sh\nexit 4\n", Some(&warning)), (String::new(), Some(4)));
    }

    #[test]
    fn what_only_a_cluster_has_is_found_in_commands_alone() {
        let found = uses(
            "# srun is fine\nX=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\ntime srun x.srun\nmodule load a\n",
        );
        assert_eq!(found.programs.iter().map(String::as_str).collect::<Vec<_>>(), ["module", "scontrol", "srun"]);
        assert_eq!(found.variables.iter().map(String::as_str).collect::<Vec<_>>(), ["SLURM_JOB_NODELIST"]);
    }
}
