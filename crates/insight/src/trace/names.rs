//! Names of a trace, each kept once.

use super::kernel::{Kernel, kernel};
use crate::read::json::text;
use std::collections::HashMap;

/// A name's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameId(pub u32);

/// Distinct names and what they say.
#[derive(Default)]
pub struct Names {
    written: HashMap<Box<[u8]>, NameId>,
    texts: Vec<String>,
    kernels: Vec<Kernel>,
}

impl Names {
    /// The place of a name as it is written in the file.
    pub fn id(&mut self, written: &[u8]) -> NameId {
        if let Some(id) = self.written.get(written) {
            return *id;
        }
        let id = NameId(self.texts.len() as u32);
        let said = text(written);
        self.kernels.push(kernel(&said));
        self.texts.push(said);
        self.written.insert(written.into(), id);
        id
    }

    /// A name as people read it.
    pub fn text(&self, id: NameId) -> &str {
        self.texts.get(id.0 as usize).map_or("", String::as_str)
    }

    /// What a name says of a kernel.
    pub fn kernel(&self, id: NameId) -> Kernel {
        self.kernels.get(id.0 as usize).copied().unwrap_or_else(|| kernel(""))
    }

    /// How many names there are.
    pub fn count(&self) -> usize {
        self.texts.len()
    }
}
