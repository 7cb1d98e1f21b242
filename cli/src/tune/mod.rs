//! `candlescope tune`: the setting that serves a goal best.

mod batch;
mod course;
mod threads;
mod tune_args;

use anyhow::Result;
pub(crate) use tune_args::TuneArgs;
use tune_args::TuneCommand;

/// Tunes and returns the exit status of the command.
pub(crate) fn run(args: &TuneArgs) -> Result<u8> {
    match &args.command {
        TuneCommand::Batch(args) => batch::run(args),
        TuneCommand::Threads(args) => threads::run(args),
    }
}
