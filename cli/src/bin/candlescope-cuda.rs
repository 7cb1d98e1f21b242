//! The `candlescope` command with models on CUDA devices: needs the driver's library to start.

fn main() -> std::process::ExitCode {
    candlescope_cli::main()
}
