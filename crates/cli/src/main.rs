//! `windfall`.

/// Who is asked for memory by several threads at once, for very many small things, answers sooner than the C library does
/// (decision 28).
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    windfall_cli::run()
}
