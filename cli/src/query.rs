//! `candlescope query`: SQL over runs and studies.

use crate::limits::limits;
use crate::output::{note, say};
use anyhow::{Context, Result, bail};
use candlescope_analysis::sql::{Answer, Sources, SqlValue, query};
use clap::{Args, ValueEnum};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, Value, json};
use std::io::Read as _;
use std::path::PathBuf;

/// The longest query that is read from standard input.
const MOST_BYTES: u64 = 1 << 20;
/// Columns of a terminal that a table takes at most where it cannot tell.
const WIDTH: u16 = 160;

pub(crate) const EXAMPLES: &str = "\
Examples:
  candlescope query 'SELECT phase, count(*) AS steps, median(host_dur_ns) / 1e6 AS ms FROM measured_steps GROUP BY phase' runs/first
      a view over the steps of a run, without its warm-up
  candlescope query \"SELECT run, host, model ->> 'name' AS model FROM runs\" runs --format csv
      every run in a folder
  candlescope query 'SELECT batch, median(output_tps) FROM results GROUP BY batch' results
      the samples of a study
  candlescope analyze runs/first --json | jq -r '.findings[0].query' | candlescope query - runs/first
      the rows that a finding rests on";

#[derive(Debug, Args)]
pub(crate) struct QueryArgs {
    /// A single SELECT over the tables and views of docs/sql.md, such as spans, steps, samples, kernels, or - to read it
    /// from standard input
    #[arg(value_name = "SQL")]
    sql: String,
    /// Runs, studies, and folders of these
    #[arg(value_name = "RUN", required = true)]
    runs: Vec<PathBuf>,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// The most rows; 0 for all
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Table,
    /// Comma-separated values
    Csv,
    /// One object: columns, rows, whether there are more
    Json,
}

pub(crate) fn run(args: &QueryArgs) -> Result<()> {
    let sql = match args.sql.as_str() {
        "-" => from_stdin()?,
        sql => sql.to_string(),
    };
    let limits = limits(&[])?;
    let sources = Sources::open(&args.runs, &limits)?;
    let answer = query(&sql, &sources, &limits, args.limit)?;
    for finding in answer.findings() {
        note(&format!("warning: {}. {}", finding.message(), finding.remedy()));
    }
    let shown = if args.json { Format::Json } else { args.format };
    match shown {
        Format::Table => say(table(&answer).trim_end())?,
        Format::Csv => say(csv(&answer).trim_end_matches('\n'))?,
        Format::Json => say(&object(&answer).to_string())?,
    }
    if answer.truncated {
        note(&format!("note: there are more rows than {}; --limit 0 gives all", args.limit));
    }
    Ok(())
}

fn from_stdin() -> Result<String> {
    let mut sql = String::new();
    std::io::stdin()
        .take(MOST_BYTES + 1)
        .read_to_string(&mut sql)
        .context("cannot read the query from standard input")?;
    if sql.len() as u64 > MOST_BYTES {
        bail!("the query on standard input has more than {MOST_BYTES} bytes: give a shorter one");
    }
    Ok(sql)
}

fn table(answer: &Answer) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(&answer.columns);
    for row in &answer.rows {
        table.add_row(row.iter().map(|value| match value {
            SqlValue::Int(_) | SqlValue::Float(_) => Cell::new(shown(value)).set_alignment(CellAlignment::Right),
            _ => Cell::new(shown(value)),
        }));
    }
    let rows = if answer.rows.len() == 1 { "1 row".to_string() } else { format!("{} rows", answer.rows.len()) };
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_string()).collect();
    format!("{}\n({rows})", lines.join("\n"))
}

/// A value for people: six digits of a fraction are as many as anybody compares.
fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "–".to_string(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Float(value) if value.abs() >= 1e15 || (*value != 0.0 && value.abs() < 1e-4) => {
            format!("{value:.6e}")
        }
        SqlValue::Float(value) => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        SqlValue::Text(text) => text.clone(),
    }
}

/// CSV [RFC 4180, with line feeds]. Absent values are empty.
fn csv(answer: &Answer) -> String {
    let field = |text: &str| match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    };
    let value = |value: &SqlValue| match value {
        SqlValue::Null => String::new(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Float(value) => value.to_string(),
        SqlValue::Text(text) => field(text),
    };
    let head = answer.columns.iter().map(|name| field(name)).collect::<Vec<_>>().join(",");
    let rows = answer.rows.iter().map(|row| row.iter().map(value).collect::<Vec<_>>().join(","));
    std::iter::once(head).chain(rows).map(|line| line + "\n").collect()
}

fn object(answer: &Answer) -> Value {
    let row = |row: &Vec<SqlValue>| -> Map<String, Value> {
        answer.columns.iter().cloned().zip(row.iter().map(|value| json!(value))).collect()
    };
    json!({
        "columns": answer.columns, "rows": answer.rows.iter().map(row).collect::<Vec<_>>(), "truncated": answer.truncated,
    })
}
