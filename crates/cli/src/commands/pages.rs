//! What comes out of the definition of the command line and of job files.

use crate::args::Cli;
use crate::glossary::{WORDS, glossary};
use clap::CommandFactory;
use std::path::Path;
use windfall_jobfile as jobfile;
use windfall_server::client::{Code, Failure};

pub fn schema(config: bool, benchmark: bool) -> Result<Code, Failure> {
    if benchmark {
        print!("{}", windfall_insight::bench::SCHEMA);
        return Ok(Code::Done);
    }
    let schema = if config { crate::config::schema() } else { jobfile::schema() };
    let text = serde_json::to_string_pretty(&schema).map_err(|error| Failure::new(Code::Bug, error.to_string()))?;
    println!("{text}");
    Ok(Code::Done)
}

pub fn completions(shell: clap_complete::Shell) -> Result<Code, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "windfall", &mut text);
    print!("{}", String::from_utf8_lossy(&text));
    Ok(Code::Done)
}

pub fn man(folder: &Path) -> Result<Code, Failure> {
    let failed = |error: std::io::Error| Failure::new(Code::BadInput, format!("{}: {error}", folder.display()));
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).map_err(failed)?;
    println!("man pages are in {}", folder.display());
    Ok(Code::Done)
}

pub fn words(json: bool) -> Result<Code, Failure> {
    if json {
        let all: Vec<_> =
            WORDS.iter().map(|(word, meaning)| serde_json::json!({ "word": word, "meaning": meaning })).collect();
        println!("{}", serde_json::json!({ "words": all }));
    } else {
        print!("{}", glossary(crate::live::width()));
    }
    Ok(Code::Done)
}
