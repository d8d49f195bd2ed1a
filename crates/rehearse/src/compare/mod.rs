//! Compares the state that two runs ended with by what it says, not by its bytes: tensors element by element,
//! structures key by key, and a trainer's notes about a run apart from its result. It only reads files, and never
//! runs anything that a file names.

mod formats;
mod pickle;
mod tensor;
mod tree;
mod weight;
mod zip;

use formats::{Content, Format};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tree::{Apartness, Walk};
use weight::Trainer;
pub use weight::{Weight, mask};
use windfall_core::english::counted;

/// How a file was compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// Not a bit differs.
    SameBytes,
    /// Tensor by tensor and value by value: how many of each.
    Content(usize, usize),
    /// A trainer's file, by what it means.
    Books(&'static str),
    /// As text, without its times.
    Text,
    /// Its format is not known.
    Bytes,
    /// It cannot be compared here, and why.
    Not(&'static str),
}

/// A place in a file that differs, and what that weighs.
#[derive(Clone, Debug)]
pub struct Apart {
    /// `optimizer.state.0.exp_avg`; empty for the file as a whole.
    pub at: String,
    /// `differs by up to 0.0003 in 16 element(s)`.
    pub how: String,
    pub weight: Weight,
}

/// One file of two final states.
#[derive(Clone, Debug)]
pub struct Compared {
    pub path: PathBuf,
    pub how: How,
    /// It is a checkpoint of Lightning.
    pub is_lightning: bool,
    pub apart: Vec<Apart>,
}

impl Compared {
    /// The places that make the result another one, but for those that no two runs have alike.
    pub fn unlike<'a>(&'a self, volatile: &'a BTreeSet<ValuePath>) -> impl Iterator<Item = &'a Apart> {
        self.apart.iter().filter(move |apart| {
            let ends = std::iter::once(0).chain(apart.at.match_indices('.').map(|(at, _)| at)).chain([apart.at.len()]);
            let within = ends.map(|end| apart.at[..end].to_owned());
            let is_volatile = |at: String| volatile.contains(&(self.path.clone(), at));
            apart.weight == Weight::Result && !within.into_iter().any(is_volatile)
        })
    }

    /// The places that differ and could not be read.
    pub fn unread(&self) -> impl Iterator<Item = &Apart> {
        self.apart.iter().filter(|apart| apart.weight == Weight::Unread)
    }

    /// In one line for people.
    pub fn words(&self) -> String {
        let path = self.path.display();
        let many = |many: usize, what: &str| format!("{many} {what}{}", if many == 1 { "" } else { "s" });
        match &self.how {
            How::SameBytes => format!("{path} (every byte)"),
            How::Content(0, values) => format!("{path} ({})", many(*values, "value")),
            How::Content(tensors, 0) => format!("{path} ({})", many(*tensors, "tensor")),
            How::Content(tensors, values) => {
                format!("{path} ({}, {})", many(*tensors, "tensor"), many(*values, "value"))
            }
            How::Books(trainer) => format!("{path} (notes of {trainer}, by their meaning)"),
            How::Text => format!("{path} (as text, without times)"),
            How::Bytes => format!("{path} (by its bytes: its format is not known)"),
            How::Not(why) => format!("{path} (not compared: {why})"),
        }
    }
}

/// A file, and the path to a value in it.
pub type ValuePath = (PathBuf, String);

/// Compares one file of two folders; `same` when their hashes are.
pub fn file(path: &Path, one: &Path, other: &Path, same: bool) -> Compared {
    let mut compared = Compared { path: path.to_owned(), how: How::SameBytes, is_lightning: false, apart: Vec::new() };
    if !same {
        (compared.how, compared.apart) = content(path, &one.join(path), &other.join(path), &mut compared.is_lightning);
    }
    compared
}

fn content(path: &Path, one: &Path, other: &Path, is_lightning: &mut bool) -> (How, Vec<Apart>) {
    let whole = |weight| vec![Apart { at: String::new(), how: "differs".to_owned(), weight }];
    let trainer = weight::trainer_of(path, false);
    if path.file_name().is_some_and(|name| name == "manifest.ocdbt") {
        return (How::Not("an OCDBT store of Orbax"), Vec::new());
    }
    match (formats::read(one), formats::read(other)) {
        (Some(Content::Tree(format, one)), Some(Content::Tree(_, other))) => {
            *is_lightning = format == Format::Torch && one.entry("pytorch-lightning_version").is_some();
            let trainer = weight::trainer_of(path, *is_lightning);
            let walk = tree::walk(&one, &other);
            (how_of(trainer, &walk), apart(trainer, path, &walk))
        }
        (Some(Content::Text(one)), Some(Content::Text(other))) => match trainer {
            // TensorFlow's list of checkpoints.
            None if one.starts_with("model_checkpoint_path:") && other.starts_with("model_checkpoint_path:") => {
                (How::Books(Trainer::TensorFlow.name()), whole(Weight::Books))
            }
            Some(trainer) => (How::Books(trainer.name()), whole(Weight::Books)),
            None if mask(&one) == mask(&other) => (How::Text, whole(Weight::Run)),
            None => (How::Text, whole(Weight::Result)),
        },
        _ => match trainer {
            Some(trainer @ (Trainer::TensorBoard | Trainer::TensorFlow | Trainer::Orbax)) => {
                (How::Books(trainer.name()), whole(Weight::Books))
            }
            _ => (How::Bytes, whole(Weight::Result)),
        },
    }
}

fn how_of(trainer: Option<Trainer>, walk: &Walk) -> How {
    match trainer {
        // Their files hold the result itself, beside notes.
        Some(Trainer::Lightning | Trainer::DeepSpeed) | None => How::Content(walk.tensors, walk.singles),
        Some(trainer) => How::Books(trainer.name()),
    }
}

fn apart(trainer: Option<Trainer>, path: &Path, walk: &Walk) -> Vec<Apart> {
    let told = walk.differences.iter().map(|difference| {
        let how = match &difference.what {
            Apartness::Tensor(most, many) if most.is_nan() => {
                format!("differs in {}", counted(*many, "element"))
            }
            Apartness::Tensor(most, many) => {
                format!("differs by up to {most:.1e} in {}", counted(*many, "element"))
            }
            Apartness::Shape => "has another shape or type".to_owned(),
            Apartness::Single(one, other) => format!("is {} instead of {}", short(other), short(one)),
            Apartness::Content => "differs".to_owned(),
            Apartness::Alone => "is there in one of them only".to_owned(),
            Apartness::Unreadable => "cannot be read".to_owned(),
        };
        Apart { at: difference.keys.join("."), how, weight: weight::weigh(trainer, path, difference) }
    });
    told.collect()
}

fn short(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests;
