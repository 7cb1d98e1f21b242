//! `candlescope query`: SQL over runs and studies.

use crate::limits::limits;
use crate::output::{note, say_in_parts};
use crate::query_guard::guard;
use crate::warnings::{warn, warn_unread};
use anyhow::{Context, Result, bail};
use candlescope_core::csv_field_of_others;
use candlescope_reader::ReadLimits;
use candlescope_sql::{Answer, LeftOut, Sources, SqlValue, doubles, query};
use clap::{Args, ValueEnum};
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The longest query that is read from standard input.
const MOST_BYTES: u64 = 1 << 20;
/// Characters of a cell in a table: the layout takes time with the square of a cell's length.
const MOST_OF_A_CELL: usize = 1000;
/// Rows that are laid out together: each cell takes some hundred bytes until they are written.
const ROWS_OF_A_TABLE: usize = 1000;
/// Runs that are there twice of which each is told.
const MOST_DOUBLES: usize = 3;
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
    /// Runs, studies, archives, and folders of these; s3://bucket/path, gs://, az:// and https:// as well
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
    /// One object: columns, rows, whether there are more, and which runs are left out
    Json,
}

pub(crate) fn run(args: &QueryArgs) -> Result<()> {
    let sql = match args.sql.as_str() {
        "-" => from_stdin()?,
        path if Path::new(path).exists() => bail!(
            "`{path}` is a file or folder, where the question is expected: candlescope query 'SELECT count(*) FROM spans' {path}"
        ),
        sql => sql.to_string(),
    };
    let limits = limits(&[])?;
    let sources = Sources::open(&args.runs, &limits)?;
    let answer = guard(&limits, || {
        warn_of_doubles(&sources, &limits);
        query(&sql, &sources, &limits, args.limit)
    })?;
    warn(answer.findings());
    warn_unread(sources.left_out(), "--json");
    let shown = if args.json { Format::Json } else { args.format };
    match shown {
        Format::Table => say_in_parts(table(&answer))?,
        Format::Csv => say_in_parts(csv(&answer))?,
        Format::Json => say_in_parts(object(&answer, sources.left_out()))?,
    }
    if answer.truncated {
        note(&format!("note: there are more rows than {}; --limit 0 gives all", args.limit));
    }
    Ok(())
}

/// Warns of runs that are there twice, which makes answers wrong.
pub(crate) fn warn_of_doubles(sources: &Sources, limits: &ReadLimits) {
    // What cannot be asked is told of by the question itself.
    let doubles = doubles(sources, limits).unwrap_or_default();
    for (one, other) in doubles.iter().take(MOST_DOUBLES) {
        note(&format!("warning: `{one}` and `{other}` are the same run: what is counted over both counts it twice"));
    }
    if doubles.len() > MOST_DOUBLES {
        note(&format!("warning: {} more runs are there twice", doubles.len() - MOST_DOUBLES));
    }
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

/// A table, in parts of at most [`ROWS_OF_A_TABLE`] rows with their names above them.
fn table(answer: &Answer) -> impl Iterator<Item = String> {
    let rows = match answer.rows.len() {
        1 => "(1 row)".to_string(),
        n => format!("({n} rows)"),
    };
    // Without rows, the names alone.
    let none = std::iter::once(&answer.rows[..0]).take(usize::from(answer.rows.is_empty()));
    let parts = none.chain(answer.rows.chunks(ROWS_OF_A_TABLE));
    parts.map(move |rows| laid_out(&answer.columns, rows) + "\n").chain(std::iter::once(rows))
}

fn laid_out(columns: &[String], rows: &[Vec<SqlValue>]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    if table.width().is_none() {
        table.set_width(WIDTH);
    }
    table.set_header(columns.iter().map(|name| shortened(name)));
    for row in rows {
        table.add_row(row.iter().map(|value| match value {
            SqlValue::Int(_) | SqlValue::Float(_) => Cell::new(shown(value)).set_alignment(CellAlignment::Right),
            _ => Cell::new(shown(value)),
        }));
    }
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

/// As much of a text as a cell has.
fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MOST_OF_A_CELL) {
        Some((end, _)) => {
            let rest = text[end..].chars().count();
            Cow::Owned(format!("{}… ({rest} more characters: --format csv or json has them)", &text[..end]))
        }
        None => Cow::Borrowed(text),
    }
}

/// A value for people: six digits of a fraction are as many as anybody compares.
fn shown(value: &SqlValue) -> String {
    match value {
        SqlValue::Null => "–".to_string(),
        SqlValue::Bool(value) => value.to_string(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Float(value) if value.abs() >= 1e15 || (*value != 0.0 && value.abs() < 1e-4) => {
            format!("{value:.6e}")
        }
        SqlValue::Float(value) => {
            let text = format!("{value:.6}");
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        }
        SqlValue::Text(text) => shortened(text).into_owned(),
    }
}

/// CSV [RFC 4180, with line feeds], a row at a time. Absent values are empty. Names in runs may be anybody's: a text that
/// a spreadsheet would take for a formula begins with an apostrophe.
fn csv(answer: &Answer) -> impl Iterator<Item = String> {
    let head = answer.columns.iter().map(|name| csv_field_of_others(name)).collect::<Vec<_>>().join(",");
    let value = |value: &SqlValue| match value {
        SqlValue::Null => String::new(),
        SqlValue::Bool(value) => value.to_string(),
        SqlValue::Int(value) => value.to_string(),
        SqlValue::Float(value) => value.to_string(),
        SqlValue::Text(text) => csv_field_of_others(text).into_owned(),
    };
    let rows = answer.rows.iter().map(move |row| format!("\n{}", row.iter().map(value).collect::<Vec<_>>().join(",")));
    std::iter::once(head).chain(rows)
}

/// One object of JSON, a row at a time.
fn object(answer: &Answer, left_out: &[LeftOut]) -> impl Iterator<Item = String> {
    let row = |row: &Vec<SqlValue>| -> Value {
        Value::Object(answer.columns.iter().cloned().zip(row.iter().map(|value| json!(value))).collect::<Map<_, _>>())
    };
    let rows = answer.rows.iter().enumerate().map(move |(n, values)| {
        let comma = if n > 0 { "," } else { "" };
        format!("{comma}{}", row(values))
    });
    let head = format!("{{\"columns\":{},\"rows\":[", json!(answer.columns));
    let tail = format!("],\"truncated\":{},\"left_out\":{}}}", answer.truncated, json!(left_out));
    std::iter::once(head).chain(rows).chain(std::iter::once(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(rows: Vec<Vec<SqlValue>>) -> Answer {
        let mut answer = Answer::default();
        (answer.columns, answer.rows) = (vec!["a".into(), "b".into()], rows);
        answer
    }

    fn text(text: &str) -> SqlValue {
        SqlValue::Text(text.into())
    }

    #[test]
    fn parts_together_are_one_answer() {
        let some = answer(vec![vec![SqlValue::Int(-1), text("x,\"y")], vec![SqlValue::Null, text("=1+1")]]);
        assert_eq!(csv(&some).collect::<String>(), "a,b\n-1,\"x,\"\"y\"\n,'=1+1");
        let left_out = [LeftOut::new("runs/\"a\"", "it is empty")];
        let read: Value = serde_json::from_str(&object(&some, &left_out).collect::<String>()).unwrap();
        assert_eq!((&read["rows"][1]["b"], &read["truncated"]), (&json!("=1+1"), &json!(false)));
        assert_eq!(read["left_out"], json!([{"run": "runs/\"a\"", "why": "it is empty"}]));
        assert!(table(&some).collect::<String>().ends_with("(2 rows)"));
        let none = answer(Vec::new());
        assert_eq!(serde_json::from_str::<Value>(&object(&none, &[]).collect::<String>()).unwrap()["rows"], json!([]));
        assert_eq!(table(&none).collect::<String>().trim_start().replace(' ', ""), "ab\n(0rows)");
    }

    #[test]
    fn long_texts_and_many_rows_take_time_with_their_length() {
        let long = "x".repeat(4_000_000);
        let shown = table(&answer(vec![vec![text(&long), text("b")]])).collect::<String>();
        assert!(
            shown.len() < 20_000
                && shown.contains("3999000 more")
                && csv(&answer(vec![vec![text(&long)]])).count() == 2
        );
        let many = answer((0..ROWS_OF_A_TABLE as i64 * 3).map(|n| vec![SqlValue::Int(n), text("b")]).collect());
        assert_eq!(table(&many).count(), 4);
    }
}
