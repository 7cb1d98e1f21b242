//! `candlescope bench`.

mod bar;
mod bench_args;
mod common_args;
mod drive;
pub(crate) mod environment;
mod estimate;
mod kernels;
mod kernels_of_model;
pub(crate) mod operations;
pub(crate) mod pace;
mod peaks;
mod plan;
mod round;
mod started_by;
mod still;
mod variants;
mod variants_args;
mod variants_round;

use anyhow::Result;
pub(crate) use bench_args::BenchArgs;
use bench_args::BenchCommand;
pub(crate) use common_args::{ModelArgs, THREADS};

/// Runs the suite and returns the exit status of the command.
pub(crate) fn run(args: &BenchArgs) -> Result<u8> {
    match &args.command {
        BenchCommand::Latency(args) => drive::run(&plan::latency(args)?, &args.common),
        BenchCommand::Throughput(args) => drive::run(&plan::throughput(args)?, &args.common),
        BenchCommand::Seqlen(args) => drive::run(&plan::seqlen(args)?, &args.common),
        BenchCommand::Suite(args) => drive::run(&plan::suite(args)?, &args.common),
        BenchCommand::Variants(args) => variants::run(args),
        BenchCommand::Kernels(args) => kernels::run(args),
        BenchCommand::Peaks(args) => peaks::run(args),
        BenchCommand::Round(args) => round::run(args),
    }
}
