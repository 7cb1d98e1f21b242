//! Arguments that benchmarks of models share.

use crate::device;
use crate::json_arg::JsonArg;
use anyhow::Result;
use candlescope_figures::PRICE_PER_HOUR;
use candlescope_lab::study::Manifest;
use candlescope_lab::suites::LmOptions;
use candlescope_models::ModelSource;
use clap::Args;
use std::path::{Path, PathBuf};

/// The option of a study that says how many threads compute.
pub(crate) const THREADS: &str = "threads";

/// The model that is measured, and how it is run.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// embedded, FILE.gguf, a directory with config.json and *.safetensors, a hub id (org/name), or config:NAME
    #[arg(long, value_name = "MODEL", default_value = "embedded")]
    pub(crate) model: String,
    /// cpu or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    pub(crate) device: String,
    #[arg(long, value_name = "N", help = crate::threads::HELP)]
    pub(crate) threads: Option<usize>,
    /// f32, f16 or bf16 for dense weights [default: f32 on a CPU, bf16 on a GPU]
    #[arg(long, value_name = "DTYPE")]
    pub(crate) dtype: Option<String>,
    /// Widen a GGUF's quantised weights to --dtype
    #[arg(long)]
    pub(crate) dequantize: bool,
    #[arg(long, value_name = "ENGINE", default_value = "auto", help = crate::device::ENGINE_HELP)]
    pub(crate) engine: String,
    /// How keys and values are held: auto, in the type of activations, or q8, in 8 bits with a scale for each position and
    /// head; our layers only [default: auto]
    #[arg(long, value_name = "DTYPE")]
    pub(crate) kv_cache_dtype: Option<String>,
}

impl ModelArgs {
    /// Finds out what is wrong with the words before a directory is made.
    pub(crate) fn check(&self) -> Result<()> {
        ModelSource::parse(&self.model)?;
        device::engine(&self.engine)?;
        self.dtype.as_deref().map(device::dtype).transpose()?;
        device::kv_cache_dtype_or_auto(self.kv_cache_dtype.as_deref())?;
        Ok(())
    }

    /// Settles how many threads compute, before any thread starts, and says it among the options of the study, so that
    /// its processes and a `--resume` have as many.
    pub(crate) fn settle_threads(&self, manifest: &mut Manifest) -> Result<()> {
        let threads = crate::threads::settle(self.threads, Some(&self.model))?;
        manifest.options.insert(THREADS.to_string(), threads.number.into());
        Ok(())
    }

    /// The model by a name that means the same in a process that is started elsewhere.
    pub(crate) fn anywhere(&self) -> Result<String> {
        Ok(match Path::new(&self.model) {
            path if path.exists() => std::path::absolute(path)?.display().to_string(),
            _ => self.model.clone(),
        })
    }

    /// Tells `options` which model they are about, and how it runs.
    pub(crate) fn tell(&self, options: &mut LmOptions) -> Result<()> {
        options.model = self.anywhere()?;
        options.device = self.device.clone();
        options.dtype = self.dtype.clone();
        options.dequantize = self.dequantize;
        options.engine = self.engine.clone();
        options.kv_cache_dtype = self.kv_cache_dtype.clone();
        Ok(())
    }
}

impl CommonArgs {
    /// Says what the machine costs among the options of the study.
    pub(crate) fn tell_price(&self, manifest: &mut Manifest) -> Result<()> {
        if let Some(price) = crate::price::price_of(self.price_per_hour)? {
            manifest.options.insert(PRICE_PER_HOUR.to_string(), price.usd_per_hour.into());
        }
        Ok(())
    }
}

/// What is measured, where the results go, and how often cases are repeated.
#[derive(Debug, Args)]
pub(crate) struct CommonArgs {
    #[command(flatten)]
    pub(crate) subject: ModelArgs,
    /// Seed of random weights, of prompts, and of the order of cases
    #[arg(long, value_name = "N", default_value_t = 42)]
    pub(crate) seed: u64,
    /// Directory of the study; must be empty or absent, unless --resume is given [default: results/KIND-TIME]
    #[arg(long, value_name = "STUDY")]
    pub(crate) out: Option<PathBuf>,
    /// Exactly this many requests of each case, in place of the rules that stop it
    #[arg(long, value_name = "N")]
    pub(crate) runs: Option<u32>,
    /// Longest time that a case may take, in seconds [default: 60, with --quick 3]
    #[arg(long, value_name = "SECONDS", value_parser = crate::durations::seconds, allow_negative_numbers = true)]
    pub(crate) time_limit: Option<f64>,
    /// Starts of the process that a case is spread over; from 6 on medians have a 95 % interval over them
    /// [default: 6, with --quick 1]
    #[arg(long, value_name = "N")]
    pub(crate) processes: Option<u32>,
    /// Recorded requests of each case, whose runs are kept in STUDY/runs; 0 for none [default: 3, with --quick 1]
    #[arg(long, value_name = "N")]
    pub(crate) profiled: Option<u32>,
    /// What the machine costs, in US dollars an hour, for the cost of a million tokens
    #[arg(long, value_name = "USD", allow_negative_numbers = true)]
    pub(crate) price_per_hour: Option<f64>,
    /// Memory that a case may need on its device, in MiB [default: what the machine has left; no limit on a GPU]
    #[arg(long, value_name = "MIB")]
    pub(crate) memory_limit: Option<u64>,
    /// Short requests and three of each, in one process start: a look, no measurement to rely on
    #[arg(long)]
    pub(crate) quick: bool,
    /// Go on with the study in --out STUDY, which was begun with the same options
    #[arg(long)]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) json: JsonArg,
    /// No progress bar, and where there is no terminal no lines of progress
    #[arg(long)]
    pub(crate) no_progress: bool,
}
