//! `candlescope completions` and `candlescope man`: what a shell and `man` want to know of this command.

use crate::output::say;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::PathBuf;

pub(crate) const COMPLETIONS: &str = "\
Examples:
  candlescope completions bash > ~/.local/share/bash-completion/completions/candlescope
  candlescope completions zsh > \"${fpath[1]}/_candlescope\"
  candlescope completions fish > ~/.config/fish/completions/candlescope.fish";

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for the pages, such as ~/.local/share/man/man1
    #[arg(long, short, value_name = "DIR")]
    out: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "candlescope", &mut text);
    say(String::from_utf8_lossy(&text).trim_end())
}

pub(crate) fn man(args: &ManArgs, command: Command) -> Result<()> {
    let failed = || format!("cannot write manual pages to {}: name another folder with --out", args.out.display());
    std::fs::create_dir_all(&args.out).with_context(failed)?;
    clap_mangen::generate_to(command, &args.out).with_context(failed)?;
    say(&format!("wrote manual pages to {}: man {}", args.out.display(), args.out.join("candlescope.1").display()))
}
