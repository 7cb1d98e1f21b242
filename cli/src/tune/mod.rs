//! `candlescope tune`: the setting that serves a goal best.

mod args;
mod batch;
mod course;
mod threads;

use anyhow::Result;
pub(crate) use args::TuneArgs;
use args::TuneCommand;

/// Tunes and returns the exit status of the command.
pub(crate) fn run(args: &TuneArgs) -> Result<u8> {
    match &args.command {
        TuneCommand::Batch(args) => batch::run(args),
        TuneCommand::Threads(args) => threads::run(args),
    }
}
