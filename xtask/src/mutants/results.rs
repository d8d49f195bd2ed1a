//! What came of each change, kept by a hash of the change, of the code that takes part, and of how it is tried: one line
//! each in a file of the test cache. An interrupted run goes on where it stopped.

use super::list::Mutant;
use super::scratch::{Scratch, read};
use super::trial::{self, Found};
use crate::workspace::cache;
use crate::workspace::root;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

const SURVIVED: &str = "survived";
const CAUGHT: &str = "caught";

/// Results by hash.
pub struct Results {
    file: PathBuf,
    known: BTreeMap<String, Found>,
}

impl Results {
    pub fn load() -> Result<Results, String> {
        let file = cache().join("mutants.tsv");
        std::fs::create_dir_all(cache()).map_err(|error| format!("{}: {error}", cache().display()))?;
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        Ok(Results { known: text.lines().filter_map(parse).collect(), file })
    }

    pub fn file(&self) -> &Path {
        &self.file
    }

    pub fn find(&self, hash: &str) -> Option<&Found> {
        self.known.get(hash)
    }

    pub fn keep(&mut self, hash: &str, name: &str, found: &Found) -> Result<(), String> {
        let line = match found {
            Found::By(by) => format!("{hash}\t{name}\t{CAUGHT}\t{by}\n"),
            Found::Nothing => format!("{hash}\t{name}\t{SURVIVED}\t\n"),
            Found::NotBuilt(_) => return Ok(()),
        };
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&self.file);
        let written = opened.and_then(|mut file| file.write_all(line.as_bytes()));
        written.map_err(|error| format!("{}: {error}", self.file.display()))?;
        self.known.insert(hash.to_owned(), found.clone());
        Ok(())
    }
}

fn parse(line: &str) -> Option<(String, Found)> {
    let mut parts = line.splitn(4, '\t');
    let (hash, _name, word, by) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    match word {
        CAUGHT => Some((hash.to_owned(), Found::By(by.to_owned()))),
        SURVIVED => Some((hash.to_owned(), Found::Nothing)),
        _ => None,
    }
}

/// Names what is tried: the change, the files of the crates that take part, and how.
pub fn hash(scratch: &Scratch, mutant: Option<&Mutant>, krate: &str) -> Result<String, String> {
    let mut hash = Fnv::default();
    if let Some(mutant) = mutant {
        [&mutant.file, &mutant.old, &mutant.new].into_iter().for_each(|part| hash.add(part.as_bytes()));
    }
    hash.add(trial::terms(krate).as_bytes());
    let mut prefixes: Vec<String> = trial::taking_part(krate).iter().map(|krate| format!("crates/{krate}/")).collect();
    prefixes.push("Cargo.".to_owned());
    for file in scratch.files_below(&prefixes) {
        hash.add(file.as_bytes());
        hash.add(&read(&root().join(file))?);
    }
    Ok(format!("{:032x}", hash.0))
}

/// FNV-1a of 128 bits: the same on every machine, and nobody attacks it.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let found = Found::By("explorer: law 5".to_owned());
        assert_eq!(parse("abc\tname\tcaught\texplorer: law 5"), Some(("abc".to_owned(), found)));
        assert_eq!(parse("abc\tname\tsurvived\t"), Some(("abc".to_owned(), Found::Nothing)));
        assert_eq!(parse("a line that was cut sh"), None);
    }

    #[test]
    fn parts_are_told_apart() {
        let (mut a, mut b) = (Fnv::default(), Fnv::default());
        a.add(b"ab");
        a.add(b"c");
        b.add(b"a");
        b.add(b"bc");
        assert_ne!(a.0, b.0);
    }
}
