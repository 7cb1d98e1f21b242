//! The `candlescope` command.

fn main() -> std::process::ExitCode {
    candlescope_cli::main()
}
