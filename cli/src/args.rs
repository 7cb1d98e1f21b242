//! Arguments of the commands that have no module of their own for them.

use crate::json_arg::JsonArg;
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

pub(crate) const PROFILE_EXAMPLES: &str = "\
Examples:
  candlescope profile --model embedded
      a tiny model with random weights, nothing to download
  candlescope profile --model MODEL.gguf --prompt 'Once upon a' --out runs/a
      a GGUF file; the report is runs/a/report.html
  candlescope profile --model config:llama-3-8b --prompt-tokens 512
      an architecture at its true size, random weights, a prompt of a given length
  candlescope profile model=smollm2 dataset=samples runtime.max_new_tokens=32
      from files of groups: docs/configuration.md";

pub(crate) const NSYS_EXAMPLES: &str = "\
Examples:
  candlescope nsys --out llama -- ./my-server --model llama
      a program that calls candlescope::init(); writes llama.nsys-rep and llama.sqlite
  candlescope report llama.runs/RUN --nsys llama.sqlite
      the report, with Nsight's kernels by path";

#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    #[command(flatten)]
    pub(crate) flags: crate::conf::Flags,
    #[command(flatten)]
    pub(crate) conf: crate::conf_args::ConfArgs,
    /// TOML file with any of these options, named as here, or a run's inputs.yaml, to make the run again
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Overrides one option of the file, for example --set max-new-tokens=8
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// No progress bar
    #[arg(long)]
    pub(crate) no_progress: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directory of the run
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// Say why this request took so long, by its number in reports and tables, in place of the run's report
    #[arg(long, value_name = "N", conflicts_with_all = ["nsys", "price_per_hour", "top"])]
    pub(crate) request: Option<u64>,
    /// Where to put the files [default: the run's directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Profile of the same run by Nsight Systems (.sqlite or .nsys-rep), to show its kernels by path
    #[arg(long, value_name = "FILE")]
    pub(crate) nsys: Option<PathBuf>,
    /// What the machine costs, in US dollars an hour [default: what the run says]
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) price_per_hour: Option<f64>,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    pub(crate) limits: Vec<String>,
    /// Rows of the operator table on the terminal [default: 15]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Take each thread of the run that runs marked phases for a rank, and say what they do with each other, in ranks.html
    /// and ranks.json: a program with a thread a device
    #[arg(long, conflicts_with_all = ["request", "nsys", "price_per_hour", "top"])]
    pub(crate) by_thread: bool,
    #[command(flatten)]
    pub(crate) json: JsonArg,
}

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Form of the export
    #[arg(value_enum)]
    pub(crate) format: ExportFormat,
    /// Directory of the run
    #[arg(value_name = "RUN")]
    pub(crate) run: PathBuf,
    /// File to write [default: RUN/trace.json, trace.pftrace, kineto.json, firefox.json.gz, pprof.pb.gz, stacks.folded or
    /// stacks-off-cpu.folded]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Raise or lower a limit on what is read, for example steps=10000000; --help lists them
    #[arg(long = "limit", value_name = "NAME=VALUE", long_help = crate::limits::help())]
    pub(crate) limits: Vec<String>,
    /// Of `stacks`, time off the CPU in place of time on it
    #[arg(long)]
    pub(crate) off_cpu: bool,
    /// Take each thread of the run that runs marked phases for a rank: a program with a thread a device
    #[arg(long)]
    pub(crate) by_thread: bool,
    /// Collector that `otlp` sends to [default: what OTEL_EXPORTER_OTLP_ENDPOINT says, or http://localhost:4318]
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl ExportArgs {
    /// An export to its usual place, without options.
    pub(crate) const fn of(format: ExportFormat, run: PathBuf) -> Self {
        Self {
            format,
            run,
            out: None,
            limits: Vec::new(),
            off_cpu: false,
            by_thread: false,
            endpoint: None,
            json: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// JSON for chrome://tracing, speedscope and others
    Chrome,
    /// Protobuf for ui.perfetto.dev and trace_processor
    Perfetto,
    /// The PyTorch profiler's JSON, for HolisticTraceAnalysis, TraceLens and others; .gz compresses it
    Kineto,
    /// OpenTelemetry traces, sent to a collector such as Jaeger
    Otlp,
    /// Call stacks for profiler.firefox.com and samply; a name without .gz is not compressed
    Firefox,
    /// Call stacks for `go tool pprof` and others
    Pprof,
    /// Call stacks below intervals as lines for flame graphs, as inferno and speedscope read them
    Stacks,
}

#[derive(Debug, Args)]
pub(crate) struct NsysArgs {
    /// Where the profile goes: a path without extension [default: nsys-TIME]
    #[arg(long, short, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// What nsys traces [default: cuda,nvtx with a GPU, nvtx without]
    #[arg(long, value_name = "LIST")]
    pub(crate) trace: Option<String>,
    /// What nsys has of a CUDA graph: the kernels of its nodes, each as if it had been launched alone, or the graph as one
    /// bar, as nsys does by itself. By nodes a replay takes noticeably longer while it is traced
    #[arg(long, value_name = "WHAT", value_parser = ["node", "graph"], default_value = "node")]
    pub(crate) cuda_graph_trace: String,
    /// One more option for `nsys profile`, for example --nsys-arg=--delay=5; can be repeated
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(crate) nsys_arg: Vec<String>,
    /// Do not record a run beside the profile, in PATH.runs
    #[arg(long)]
    pub(crate) no_run: bool,
    /// The program and its arguments, after --
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print one machine-readable object on standard output instead of text
    #[arg(long)]
    pub(crate) json: bool,
}
