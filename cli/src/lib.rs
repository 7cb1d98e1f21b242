//! The `candlescope` command: argument parsing and wiring, nothing else. Its commands and options are promised; this
//! library is a part of candlescope that may change with every release.
//!
//! It is a library so that it can be two programs: `candlescope`, which starts on any machine, and `candlescope-cuda`,
//! which is linked to the driver's library and therefore starts only where there is one. The first hands commands that
//! need the GPU for a model to the second.
// The macros panic if the output is closed: `output` prints instead.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod analyze;
#[cfg(feature = "lab")]
mod api_key;
#[cfg(feature = "query")]
mod archive;
mod args;
#[cfg(feature = "lab")]
mod at_work;
#[cfg(feature = "lab")]
mod bench;
mod command;
#[cfg(feature = "lab")]
mod compare;
mod compare_failed;
mod conf;
mod conf_args;
mod crash_report;
mod demo;
mod device;
mod doctor;
#[cfg(any(feature = "lab", feature = "monitor"))]
mod durations;
mod explain;
mod export;
mod full;
mod hand_over;
#[cfg(any(feature = "lab", feature = "monitor"))]
mod interrupts;
#[cfg(feature = "lab")]
mod journey;
mod json_arg;
mod kept_between_runs;
mod lacking;
mod limits;
#[cfg(feature = "lab")]
mod load;
#[cfg(feature = "mcp")]
mod mcp;
#[cfg(feature = "monitor")]
mod monitor;
#[cfg(feature = "ncu")]
mod ncu;
mod nsight;
mod nsys;
#[cfg(feature = "lab")]
mod optimise;
mod options;
mod out_dir;
mod output;
mod overview;
mod price;
mod profile;
mod progress;
mod prompts;
#[cfg(feature = "query")]
mod prune;
#[cfg(feature = "query")]
mod query;
#[cfg(feature = "query")]
mod query_guard;
mod ranks;
mod record;
mod report;
mod roofline;
mod roofline_model;
mod room;
mod run_dir;
mod samples;
mod sdk;
#[cfg(feature = "otlp")]
mod services;
mod shared_prompts;
mod shell;
#[cfg(feature = "query")]
mod summary;
mod this_program;
mod threads;
#[cfg(feature = "trace-candle")]
mod trace_candle;
#[cfg(feature = "query")]
mod trend;
#[cfg(feature = "lab")]
mod tune;
#[cfg(feature = "query")]
mod views;
mod warnings;
mod work;

// Commands that a build can lack keep their names, and say how to build them.
#[cfg(not(feature = "mcp"))]
use lacking::mcp;
#[cfg(not(feature = "monitor"))]
use lacking::monitor;
#[cfg(not(feature = "ncu"))]
use lacking::ncu;
#[cfg(not(feature = "trace-candle"))]
use lacking::trace_candle;
#[cfg(not(feature = "query"))]
use lacking::{archive, prune, query, summary, trend, views};
#[cfg(not(feature = "lab"))]
use lacking::{bench, compare, journey, load, optimise, tune};

use clap::{CommandFactory as _, Parser};
use command::{Cli, Command};
use compare_failed::COMPARE_FAILED;
use std::process::ExitCode;

/// The command: reads its arguments, does what they say, and returns the exit status.
pub fn main() -> ExitCode {
    crash_report::install();
    candlescope_models::chat::isolate();
    let told = std::panic::take_hook();
    // A library's panic on a file of others becomes an error, which is told then.
    std::panic::set_hook(Box::new(move |panic| {
        if !candlescope_core::caught::is_caught_here() {
            told(panic);
        }
    }));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    #[cfg(feature = "cuda")]
    if let Err(error) = hand_over::check_version() {
        output::note(&format!("error: {error:#}"));
        return ExitCode::FAILURE;
    }
    let outcome = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Profile(args) => profile::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Overview(args) => overview::run(&args),
        Command::Analyze(args) => analyze::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Export(args) => export::run(&args),
        // The command ends with the status of the program it ran.
        Command::Nsys(args) => match nsys::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Record(args) => match record::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Ncu(args) => ncu::run(&args),
        Command::Query(args) => query::run(&args),
        Command::Views(args) => views::run(&args),
        Command::Mcp(args) => mcp::run(&args),
        Command::Archive(args) => match archive::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Summary(args) => summary::run(&args),
        Command::Trend(args) => trend::run(&args),
        Command::Prune(args) => prune::run(&args),
        Command::Roofline(args) => roofline::run(&args),
        Command::Monitor(args) => monitor::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Bench(args) => match bench::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Tune(args) => match tune::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Optimise(args) => match optimise::run(&args) {
            Ok(status) => return ExitCode::from(status),
            Err(error) => Err(error),
        },
        Command::Journey(args) => journey::run(&args),
        // Their errors have a status of their own, because 1 and 2 are outcomes.
        Command::Compare(args) => return ExitCode::from(compare::run(&args)),
        Command::Gate(args) => return ExitCode::from(compare::run_gate(&args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::TraceCandleNn(args) => trace_candle::run(&args),
        Command::Completions(args) => shell::completions(&args, Cli::command()),
        Command::Man(args) => shell::man(&args, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // `{:#}` puts the causes on the same line: one line per error, for people and for grep.
            output::note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Prints what is wrong with the command line. The message repeats arguments, which may not come from the keyboard:
/// control characters in them are escaped.
fn usage(error: &clap::Error) -> ExitCode {
    let given: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    if error.use_stderr() && given.get(1).is_some_and(|command| command == "compare" || command == "gate") {
        output::complain(&error.to_string());
        return ExitCode::from(COMPARE_FAILED);
    }
    if !error.use_stderr() || !given.iter().any(|arg| output::steers_terminal(arg)) {
        error.exit();
    }
    let shown = given.iter().map(|arg| output::printable(arg).replace(['\n', '\t'], " "));
    let text = match Cli::try_parse_from(shown) {
        Err(shown) if shown.use_stderr() => shown.to_string(),
        _ => error.to_string(),
    };
    output::complain(&text);
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}
