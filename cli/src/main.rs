//! The `candlescope` command: argument parsing and wiring, nothing else.
// The macros panic where nobody reads: `output` prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod args;
mod device;
mod doctor;
mod export;
mod gpu;
mod nsys;
mod options;
mod output;
mod profile;
mod progress;
mod report;
mod run_dir;
mod services;

use args::{Cli, Command};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command {
        Command::Profile(args) => profile::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Export(args) => export::run(&args),
        // The profiled program's status is the command's.
        Command::Nsys(args) => match nsys::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Doctor(args) => doctor::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `{:#}` puts the causes on the same line: one error, one line, made for people and for grep.
            output::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
