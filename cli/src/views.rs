//! `candlescope views`: the tables and views of runs for other engines.

use crate::limits::limits;
use crate::output::{note, say_in_parts};
use crate::query::warn_of_doubles;
use crate::warnings::{warn, warn_unread};
use anyhow::Result;
use candlescope_sql::{Engine, Sources, script};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope views duckdb runs > views.sql
  duckdb -init views.sql -c 'SELECT * FROM operators ORDER BY self_ns DESC LIMIT 10'
      the slowest operators of a folder of runs in DuckDB
  candlescope views spark runs > views.sql
      the same for Spark SQL: Spark, Sail, Databricks; paths must be readable by its workers";

#[derive(Debug, Args)]
pub(crate) struct ViewsArgs {
    /// Whose SQL
    #[arg(value_enum)]
    engine: Dialect,
    /// Runs, studies, archives, and folders of these; s3://bucket/path, gs://, az:// and https:// as well
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Dialect {
    /// DuckDB
    Duckdb,
    /// Spark SQL
    Spark,
}

pub(crate) fn run(args: &ViewsArgs) -> Result<()> {
    let engine = match args.engine {
        Dialect::Duckdb => Engine::DuckDb,
        Dialect::Spark => Engine::Spark,
    };
    let limits = limits(&[])?;
    let sources = Sources::open(&args.runs, &limits)?;
    for root in sources.changing_archives() {
        note(&format!(
            "warning: a change of the archive `{root}` was stopped in the middle, or is being made: rows may be missing until \
             `candlescope archive --to {root}` has finished it"
        ));
    }
    warn_of_doubles(&sources, &limits);
    warn(sources.damage(|_| true));
    warn_unread(sources.left_out(), "`candlescope query --json`");
    say_in_parts(std::iter::once(script(engine, &sources, &limits)))
}
