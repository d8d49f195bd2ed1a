//! Which kind of file a profile was asked of, from how it begins: people name files as they like.

use crate::read::source::Source;
use crate::read::sqlite::MAGIC;
use std::path::Path;

/// As much of a file is looked at: NCCL's lines may come after a program's own.
const LOOKED_AT: usize = 1 << 20;

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A trace of torch.profiler or JAX, or an export of Nsight Systems: [`crate::profile()`] reads it.
    Trace,
    /// A table of Nsight Compute: [`crate::ncu::report`] reads it.
    Ncu,
    /// A log of NCCL: [`crate::nccl::report`] reads it.
    Nccl,
}

/// What a file is; a trace where nothing says otherwise, so that the trace's reader says what is wrong with it.
pub fn kind(path: &Path) -> Kind {
    let Ok(mut source) = Source::open(path, Default::default()) else { return Kind::Trace };
    let mut begin = Vec::new();
    while begin.len() < LOOKED_AT && source.fill(&mut begin) {}
    begin.truncate(LOOKED_AT);
    let text = begin.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&begin).trim_ascii_start();
    let has = |what: &[u8]| memchr::memmem::find(&begin, what).is_some();
    match text.first() {
        _ if begin.starts_with(MAGIC) => Kind::Trace,
        Some(b'{') => Kind::Trace,
        _ if has(b"\"Kernel Name\"") && has(b"\"ID\"") => Kind::Ncu,
        _ if has(b" NCCL INFO ") || has(b" NCCL WARN ") => Kind::Nccl,
        _ => Kind::Trace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_known_by_how_they_begin() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        for (file, wanted) in [
            ("traces/jax_fp32.json.gz", Kind::Trace),
            ("traces/resnet50_fp32.json.gz", Kind::Trace),
            ("nsight/small.sqlite", Kind::Trace),
            ("ncu/raw.csv", Kind::Ncu),
            ("ncu/printed.csv", Kind::Ncu),
            ("nccl/one.log", Kind::Nccl),
            ("slurm/small.txt", Kind::Trace),
            ("nothing", Kind::Trace),
        ] {
            assert_eq!(kind(&tests.join(file)), wanted, "{file}");
        }
    }
}
