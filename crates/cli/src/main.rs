//! `windfall`.

fn main() -> std::process::ExitCode {
    windfall_cli::run()
}
