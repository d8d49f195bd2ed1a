//! `cargo xtask mutants`: small bugs, kept as a list in `xtask/mutants/`, are put into a scratch copy of the tree one
//! by one, and the tests or the explorer must find each of them. Results are kept, so that a run goes on where the
//! last one stopped. The user's own files are only read.

mod list;
mod results;
mod scratch;
mod trial;

pub use list::violations;

use list::Mutant;
use results::Results;
use scratch::Scratch;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use trial::Found;

const USAGE: &str = "\
cargo xtask mutants [NAME…]        tries the named changes, or all of them
                   --list          names and bugs only
                   --check         only sees whether every change applies to the present tree
                   --time SECONDS  begins no further change after this long
                   --again         tries again what has a result already";

#[derive(Default)]
struct Arguments {
    names: Vec<String>,
    list: bool,
    check: bool,
    again: bool,
    time: Option<Duration>,
}

fn read(args: &[String]) -> Result<Arguments, String> {
    let mut arguments = Arguments::default();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => arguments.list = true,
            "--check" => arguments.check = true,
            "--again" => arguments.again = true,
            "--time" => {
                let seconds = words.next().and_then(|text| text.parse().ok());
                arguments.time = Some(Duration::from_secs(seconds.ok_or("--time: expected a number of seconds")?));
            }
            other if other.starts_with('-') => return Err(format!("unknown argument: {other}\n{USAGE}")),
            name => arguments.names.push(name.to_owned()),
        }
    }
    Ok(arguments)
}

/// Tries changes and says which were caught.
pub fn mutants(args: &[String]) -> ExitCode {
    match read(args).and_then(|arguments| go(&arguments)) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn go(arguments: &Arguments) -> Result<ExitCode, String> {
    let all = list::read_all()?;
    if arguments.list {
        for mutant in &all {
            println!("{:<44} {}: {}", mutant.name, mutant.file, mutant.bug);
        }
        println!("\n{} changes", all.len());
        return Ok(ExitCode::SUCCESS);
    }
    let stale = violations();
    if !stale.is_empty() {
        return Err(format!("the list does not fit the tree:\n  {}", stale.join("\n  ")));
    }
    if arguments.check {
        println!("all {} changes apply", all.len());
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(unknown) = arguments.names.iter().find(|name| all.iter().all(|mutant| mutant.name != **name)) {
        return Err(format!("no change is called {unknown}\nhint: cargo xtask mutants --list"));
    }
    let chosen = |mutant: &&Mutant| arguments.names.is_empty() || arguments.names.contains(&mutant.name);
    try_all(&all.iter().filter(chosen).collect::<Vec<_>>(), arguments)
}

fn try_all(mutants: &[&Mutant], arguments: &Arguments) -> Result<ExitCode, String> {
    let began = Instant::now();
    let scratch = Scratch::new()?;
    let mut results = Results::load()?;
    let (mut caught, mut survived, mut left) = (0, Vec::new(), 0);
    for (n, mutant) in mutants.iter().enumerate() {
        let hash = results::hash(&scratch, Some(mutant), mutant.krate())?;
        let mut found = results.find(&hash).filter(|_| !arguments.again).cloned();
        if found.is_none() {
            if arguments.time.is_some_and(|time| began.elapsed() >= time) {
                left += 1;
                continue;
            }
            see_the_tree_pass(&scratch, &mut results, mutant.krate())?;
            println!("[{}/{}] {}: {}", n + 1, mutants.len(), mutant.name, mutant.bug);
            scratch.put(Some(mutant))?;
            let fresh = trial::try_out(&scratch, mutant.krate())?;
            if let Found::NotBuilt(why) = &fresh {
                return Err(format!("{} cannot be built, so it shows nothing:\n{why}", mutant.name));
            }
            results.keep(&hash, &mutant.name, &fresh)?;
            found = Some(fresh);
        }
        match found {
            Some(Found::By(by)) => {
                caught += 1;
                println!("caught    {:<44} {by}", mutant.name);
            }
            _ => {
                survived.push(*mutant);
                println!("SURVIVED  {:<44}", mutant.name);
            }
        }
    }
    println!("\n{caught} caught, {} survived, {left} not tried yet", survived.len());
    for mutant in &survived {
        println!("  {}: {} ({})", mutant.name, mutant.bug, mutant.file);
    }
    println!("results are kept in {}", results.file().display());
    Ok(if survived.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Nothing can be said of a change while the tree fails without it.
fn see_the_tree_pass(scratch: &Scratch, results: &mut Results, krate: &str) -> Result<(), String> {
    let hash = results::hash(scratch, None, krate)?;
    if results.find(&hash).is_some() {
        return Ok(());
    }
    println!("first the tree as it is, with what tries changes of {krate}");
    scratch.put(None)?;
    match trial::try_out(scratch, krate)? {
        Found::Nothing => results.keep(&hash, &format!("{krate}-unchanged"), &Found::Nothing),
        Found::By(by) => Err(format!("the tree fails without any change: {by}")),
        Found::NotBuilt(why) => Err(format!("the tree cannot be built:\n{why}")),
    }
}
