//! The explorer's command line: worlds by seed or by time, planted bugs, a replay.

use std::process::ExitCode;
use std::time::Duration;
use windfall_explore::{Bug, Options, explore, planted, replay};

const USAGE: &str = "\
windfall-explore [--seeds A..B | --seed N] [--seconds S] [--steps-per-world N] [--json] [--no-shrink]
                 [--planted all|NAME] [--verbose]";

struct Arguments {
    options: Options,
    seed: Option<u64>,
    json: bool,
    verbose: bool,
    planted: Option<String>,
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let options = Options { seeds: 0..u64::MAX, ..Options::default() };
    let mut arguments = Arguments { options, seed: None, json: false, verbose: false, planted: None };
    let mut bounded = false;
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word}: expected a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{word}: expected a number: {text}"));
        match word.as_str() {
            "--seed" => {
                arguments.seed = Some(number(value()?)?);
                bounded = true;
            }
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").ok_or_else(|| format!("--seeds: expected A..B: {text}"))?;
                arguments.options.seeds = number(from.to_owned())?..number(to.to_owned())?;
                bounded = true;
            }
            "--seconds" => {
                arguments.options.time = Some(Duration::from_secs(number(value()?)?));
                bounded = true;
            }
            "--steps-per-world" => arguments.options.steps_per_world = number(value()?)?,
            "--planted" => arguments.planted = Some(value()?),
            "--json" => arguments.json = true,
            "--no-shrink" => arguments.options.shrink = false,
            "--verbose" => arguments.verbose = true,
            "--help" | "-h" => return Err(USAGE.to_owned()),
            other => return Err(format!("unknown argument: {other}\n{USAGE}")),
        }
    }
    if !bounded {
        arguments.options.seeds = 0..1_000;
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    if let Some(name) = &arguments.planted {
        return plant(name, arguments.options.steps_per_world);
    }
    let report = match arguments.seed {
        Some(seed) => {
            let (report, story) = replay(seed, &arguments.options);
            if arguments.verbose {
                story.iter().for_each(|line| println!("{line}"));
            }
            report
        }
        None => explore(&arguments.options),
    };
    if arguments.json {
        println!("{}", report.json());
    } else {
        println!("{report}");
        if let Some(found) = &report.found {
            println!("{found}");
        }
    }
    if report.found.is_some() { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn plant(name: &str, steps: u64) -> ExitCode {
    let bugs: Vec<Bug> = Bug::ALL.iter().copied().filter(|bug| name == "all" || bug.name() == name).collect();
    if bugs.is_empty() {
        let names: Vec<&str> = Bug::ALL.iter().map(|bug| bug.name()).collect();
        eprintln!("no such bug: {name}\nhint: one of {}", names.join(", "));
        return ExitCode::from(2);
    }
    println!("{:<24} {:>6} {:>7} {:>9} {:>8}  what the law said", "bug", "law", "worlds", "steps", "seconds");
    let mut missed = 0;
    for bug in bugs {
        for result in planted(&[bug], 2_000, steps) {
            missed += u32::from(result.caught_by.is_none());
            let law = result.caught_by.map_or("missed".to_owned(), |law| law.to_string());
            let (worlds, steps, seconds) = (result.worlds, result.steps, result.seconds);
            println!("{:<24} {law:>6} {worlds:>7} {steps:>9} {seconds:>8.2}  {}", bug.name(), result.what);
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
