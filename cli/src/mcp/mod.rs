//! `candlescope mcp`: runs for agents, by the Model Context Protocol over standard input and output.
//!
//! A tool is a command of this program in a process of its own: nothing that a run or a query does can end the server,
//! limits are those of the command, and there is one home for every answer. Standard output carries the protocol and
//! nothing else.

mod answer_size;
mod ask_command;
mod root_folder;
mod serve;
mod table_columns;
mod tool_calls;
mod tool_list;

use anyhow::{Context, Result};
use clap::Args;
use root_folder::RootFolder;
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope mcp --root runs
      for a client that starts servers itself; its configuration is in docs/agents.md
Tools only read, and only below the root: list_runs, overview, analyze, query, compare, views, finding.";

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// The folder that tools may read: runs, studies, folders of these
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
}

pub(crate) fn run(args: &McpArgs) -> Result<()> {
    let root = RootFolder::open(&args.root)?;
    let program = std::env::current_exe().context("cannot tell where candlescope itself is, to start it for a tool")?;
    serve::until_the_end(root, program)
}
