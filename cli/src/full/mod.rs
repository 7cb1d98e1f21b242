//! `candlescope analyze --full MODEL`: static prediction, generation for a time, dynamic analysis, findings: one report.

mod whole;

use crate::json_arg::JsonArg;
use candlescope_findings::AnalyzeOptions;
use clap::Args;
use std::path::{Path, PathBuf};
pub(crate) use whole::run;

/// What `--full` is about.
#[derive(Debug, Args)]
pub(crate) struct FullArgs {
    /// Predict, generate for --duration, analyse: one folder with one report. embedded, FILE.gguf, a directory, a hub
    /// id, or config:NAME
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["runs", "what_if", "unobserved"])]
    pub(crate) full: Option<String>,
    /// With --full: how long to generate, in seconds; the request under way at its end is finished [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<f64>,
    /// With --full: cpu or cuda:N [default: cpu]
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// With --full: a key of `profile`, such as prompt-tokens=128 or batch=8; can be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// With --full: device to predict for, by its datasheet [default: the peaks measured on this machine, or the
    /// datasheet of its GPU]
    #[arg(long, value_name = "NAME")]
    gpu: Option<String>,
    /// With --full: folder for everything; must be empty or absent [default: runs/full-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// With --full: no progress bar
    #[arg(long)]
    no_progress: bool,
}

impl FullArgs {
    /// An option that only `--full` knows. (clap does not look for what an option requires where that conflicts with
    /// something else that was given.)
    pub(crate) fn given(&self) -> Option<&'static str> {
        let given = [
            ("--duration", self.duration.is_some()),
            ("--device", self.device.is_some()),
            ("--set", !self.set.is_empty()),
            ("--gpu", self.gpu.is_some()),
            ("--out", self.out.is_some()),
            ("--no-progress", self.no_progress),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(name, _)| name)
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(seconds),
        _ => Err("wants a number of seconds above 0 and up to 1000000".to_string()),
    }
}

/// What the rest of `analyze` says about it.
pub(crate) struct AnalyzeChoices<'a> {
    pub(crate) options: &'a AnalyzeOptions,
    pub(crate) peaks: Option<&'a Path>,
    pub(crate) top: usize,
    pub(crate) limits: &'a [String],
    pub(crate) json: JsonArg,
}
