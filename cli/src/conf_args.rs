//! Arguments of `profile` about its configuration.

use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ConfArgs {
    /// A group's file, such as model=smollm2, dataset=samples or hardware=h200, or a key's value, such as
    /// runtime.max_new_tokens=64 or repeats=3
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,
    /// Take several values for a key, model=a,b, and make a run of each combination, in folders below --out
    #[arg(short = 'm', long)]
    pub(crate) multirun: bool,
    /// A folder with groups, looked at before ./conf and the built-in ones
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// Show the configuration as composed, with where each value comes from, and end
    #[arg(long)]
    pub(crate) print_config: bool,
    /// Which combination to run, for the processes that -m starts
    #[arg(long, hide = true, requires = "pick_out")]
    pub(crate) pick: Option<usize>,
    /// Its run
    #[arg(long, hide = true)]
    pub(crate) pick_out: Option<PathBuf>,
}
