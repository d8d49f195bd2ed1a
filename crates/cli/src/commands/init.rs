//! Writes a commented job file from flags and, on a terminal, from a few questions.

use crate::args::InitArgs;
use crate::here::Here;
use std::io::{IsTerminal, Write};
use windfall_jobfile::{Answers, Problem, Question, template};
use windfall_server::client::{Code, Failure};

pub fn init(here: &Here, args: &InitArgs) -> Result<Code, Failure> {
    if args.file.exists() && !args.force {
        let text = format!("{} exists already", args.file.display());
        return Err(Failure::new(Code::BadInput, text).hint("name another file, or write over it with --force"));
    }
    let context = here.context()?;
    let mut answers = Answers::default();
    let work = args
        .hours
        .as_ref()
        .map(|hours| format!("{hours}h"))
        .or_else(|| args.steps.as_ref().map(|steps| format!("{steps} steps")));
    let given = [
        (Question::Name, args.name.clone()),
        (Question::Command, args.command.clone()),
        (Question::Accelerators, args.accelerators.clone()),
        (Question::Work, work),
        (Question::Deadline, args.deadline.clone()),
        (Question::CheckpointPath, args.checkpoint_path.clone()),
        (Question::Store, args.store.clone()),
    ];
    for (question, text) in given {
        if let Some(text) = text {
            answers.set(question, &text, &context).map_err(|problem| {
                let mut failure = Failure::new(Code::BadInput, format!("--{}: {}", question.flag(), problem.message));
                failure.hint = problem.hint.or(problem.expected);
                failure
            })?;
        }
    }
    if std::io::stdin().is_terminal() && !args.yes && !here.json {
        answers.ask(&context, question);
    }
    std::fs::write(&args.file, template(&answers))
        .map_err(|error| Failure::new(Code::BadInput, format!("{} cannot be written: {error}", args.file.display())))?;
    if here.json {
        println!("{}", serde_json::json!({ "type": "written", "file": args.file }));
    } else {
        if answers.lacks_accelerators() {
            println!("note: hours on what? Say `work: {{ accelerator: A100:8 }}` in it, or nothing can be planned");
        }
        println!("wrote {0}\nnext: windfall rehearse {0}, then windfall run {0}", args.file.display());
    }
    Ok(Code::Done)
}

fn question(question: Question, wrong: Option<&Problem>) -> Option<String> {
    if let Some(problem) = wrong {
        let more =
            problem.hint.as_ref().or(problem.expected.as_ref()).map(|more| format!(" ({more})")).unwrap_or_default();
        println!("  {}{more}", problem.message);
    }
    print!("{} {}: ", question.prompt(), question.aside());
    let _ = std::io::stdout().flush();
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(read) if read > 0 => Some(line),
        _ => None,
    }
}
