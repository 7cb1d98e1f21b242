//! The command line.

use crate::args::{DoctorArgs, ExportArgs, NSYS_EXAMPLES, NsysArgs, PROFILE_EXAMPLES, ProfileArgs, ReportArgs};
use clap::{Parser, Subcommand};

/// See where time, memory and FLOPs go in LLM inference written with candle.
#[derive(Debug, Parser)]
#[command(name = "candlescope", version, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show what a run is, by one of an H200 that this program brings along: its report, its timeline, what to change
    Demo(crate::demo::DemoArgs),
    /// Run a model under full instrumentation and write a run
    #[command(after_help = PROFILE_EXAMPLES)]
    Profile(Box<ProfileArgs>),
    /// Turn a run into its reports (report.html, report.md, metrics.json, …) and a terminal summary
    Report(ReportArgs),
    /// Say in short what a run is, whether it can be trusted, its figures, what to change, and what to ask next
    #[command(after_help = crate::overview::EXAMPLES)]
    Overview(crate::overview::OverviewArgs),
    /// Say what to change and what that gains, and where the GPUs' time went; simulate changes
    #[command(after_help = crate::analyze::EXAMPLES)]
    Analyze(crate::analyze::AnalyzeArgs),
    /// Say what the code of a finding means: when it is reported, how its gain is computed, what to do
    #[command(after_help = crate::explain::EXAMPLES)]
    Explain(crate::explain::ExplainArgs),
    /// Turn a run into a timeline or call stacks for another tool
    Export(ExportArgs),
    /// Record a CUDA program that does not link candlescope: its NVTX ranges, kernels, power and memory
    #[command(after_help = crate::record::EXAMPLES)]
    Record(crate::record::RecordArgs),
    /// Run a program under NVIDIA's Nsight Systems, with every interval as an NVTX range
    #[command(after_help = NSYS_EXAMPLES)]
    Nsys(NsysArgs),
    /// Run a program under NVIDIA's Nsight Compute: hardware counters of the kernels of one path
    #[command(after_help = crate::ncu::EXAMPLES)]
    Ncu(crate::ncu::NcuArgs),
    /// Ask runs and studies in SQL
    #[command(after_help = crate::query::EXAMPLES)]
    Query(crate::query::QueryArgs),
    /// Write the tables and views of runs as a script for another engine: DuckDB, Spark
    #[command(after_help = crate::views::EXAMPLES)]
    Views(crate::views::ViewsArgs),
    /// Serve runs to agents, by the Model Context Protocol over standard input and output
    #[command(after_help = crate::mcp::EXAMPLES)]
    Mcp(crate::mcp::McpArgs),
    /// Move finished runs into an archive: many runs as one data set
    #[command(after_help = crate::archive::EXAMPLES)]
    Archive(crate::archive::ArchiveArgs),
    /// Say what changed over time in many runs: figures by day, and where their level changed
    #[command(after_help = crate::summary::EXAMPLES)]
    Summary(crate::summary::SummaryArgs),
    /// Follow one figure of many runs day by day
    #[command(after_help = crate::trend::EXAMPLES)]
    Trend(crate::trend::TrendArgs),
    /// Remove what is oldest in an archive
    #[command(after_help = crate::prune::EXAMPLES)]
    Prune(crate::prune::PruneArgs),
    /// Predict what a model reaches on a device, or hold runs against their rooflines
    #[command(after_help = crate::roofline::EXAMPLES)]
    Roofline(Box<crate::roofline::RooflineArgs>),
    /// Watch GPUs, processes and candlescope programs on this machine while they run
    #[command(after_help = crate::monitor::EXAMPLES)]
    Monitor(crate::monitor::MonitorArgs),
    /// Put load on an OpenAI-compatible server and measure what its clients see
    #[command(after_help = crate::load::EXAMPLES)]
    Load(Box<crate::load::LoadArgs>),
    /// Measure a model (latency, throughput, sequence length), single operations, or what this device reaches at best
    Bench(crate::bench::BenchArgs),
    /// Find the setting that serves a goal best: predicted, measured where it matters
    Tune(crate::tune::TuneArgs),
    /// Make a program faster: apply what its findings say, measure each change in turns, keep what helps
    #[command(after_help = crate::optimise::EXAMPLES)]
    Optimise(Box<crate::optimise::OptimiseArgs>),
    /// Write the same account of what was tried by hand: studies, comparisons and load tests in the order given
    #[command(after_help = crate::journey::EXAMPLES)]
    Journey(crate::journey::JourneyArgs),
    /// Say whether one run, study or program is better than another, and which paths changed
    #[command(after_help = crate::compare::EXAMPLES)]
    Compare(Box<crate::compare::CompareArgs>),
    /// Hold runs against a stored baseline and its history, for CI
    #[command(after_help = crate::compare::GATE_EXAMPLES)]
    Gate(Box<crate::compare::GateArgs>),
    /// Show what this machine has, and what you go without where something is missing
    Doctor(DoctorArgs),
    /// Write candle-nn with spans in its layers, for models that make none (docs/instrument.md)
    TraceCandleNn(crate::trace_candle::TraceCandleArgs),
    /// Print what completes this command's words in a shell
    #[command(after_help = crate::shell::COMPLETIONS)]
    Completions(crate::shell::CompletionsArgs),
    /// Write manual pages, one of each command
    Man(crate::shell::ManArgs),
}
