//! `candlescope bench`.

#[cfg_attr(not(feature = "lab"), allow(dead_code, reason = "parsed for the message that this build lacks it"))]
pub(crate) mod args;
#[cfg(feature = "lab")]
mod bar;
#[cfg(feature = "lab")]
mod drive;
#[cfg(feature = "lab")]
mod kernels;
#[cfg(feature = "lab")]
mod operations;
#[cfg(feature = "lab")]
mod peaks;
#[cfg(feature = "lab")]
mod plan;
#[cfg(feature = "lab")]
mod round;

use anyhow::Result;
use args::BenchArgs;
#[cfg(feature = "lab")]
use args::BenchCommand;

/// Runs the suite and returns the exit status of the command.
#[cfg(feature = "lab")]
pub(crate) fn run(args: &BenchArgs) -> Result<u8> {
    match &args.command {
        BenchCommand::Latency(args) => drive::run(&plan::latency(args)?, &args.common),
        BenchCommand::Throughput(args) => drive::run(&plan::throughput(args)?, &args.common),
        BenchCommand::Seqlen(args) => drive::run(&plan::seqlen(args)?, &args.common),
        BenchCommand::Suite(args) => drive::run(&plan::suite(args)?, &args.common),
        BenchCommand::Kernels(args) => kernels::run(args).map(|()| 0),
        BenchCommand::Peaks(args) => peaks::run(args).map(|()| 0),
        BenchCommand::Round(args) => round::run(args),
    }
}

#[cfg(not(feature = "lab"))]
pub(crate) fn run(_: &BenchArgs) -> Result<u8> {
    Err(crate::lacking::default_feature("`candlescope bench`", "lab"))
}
