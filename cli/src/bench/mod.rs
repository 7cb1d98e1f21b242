//! `candlescope bench`.

mod kernels;
mod operations;
mod peaks;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
    /// Measure single operations (GEMM, attention, norms, …) over shapes and element types
    #[command(after_help = kernels::EXAMPLES)]
    Kernels(kernels::KernelsArgs),
    /// Measure what the device reaches at best, and keep it as the measured denominator of reports
    Peaks(peaks::PeaksArgs),
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    match &args.suite {
        Suite::Kernels(args) => kernels::run(args),
        Suite::Peaks(args) => peaks::run(args),
    }
}
