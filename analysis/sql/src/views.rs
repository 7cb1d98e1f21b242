//! The views over runs, each a file of `views/`, and what they stand on in each engine.
//!
//! A view is one SELECT in SQL that DataFusion, DuckDB and Spark understand alike. What differs (how a file's directory
//! becomes a column, what reads a list in a text) is below the views: one statement for each table and engine.

use candlescope_schema::RecordKind;
use candlescope_schema::run::{ColumnType, columns};
use datafusion::arrow::datatypes::{DataType, Field};

/// The table with one row a run, from `run.json`.
pub(super) const RUNS: &str = "runs";
/// The column that names a run, in every table.
pub(super) const RUN: &str = "run";
/// The table with the samples of studies.
pub(super) const RESULTS: &str = "results";
/// The indexes of archives, with every column that they have.
pub(super) const ARCHIVED: &str = "archived";
/// The table with every column and its meaning.
pub(super) const COLUMNS: &str = "columns";
/// What steps for several requests do for each of them.
pub(super) const SERVED: &str = "served";
/// Before the name of the files that a view of the same name stands on.
const BEHIND: &str = "_";

/// A view that is the same text in every engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// Its name in SQL, which is that of its file in `views/`.
    pub name: &'static str,
    /// Its file: lines of its meaning, then the query.
    text: &'static str,
}

macro_rules! views {
    ($($name:literal),+ $(,)?) => {
        &[$(View { name: $name, text: include_str!(concat!("../views/", $name, ".sql")) }),+]
    };
}

/// The views, each after those that it reads.
pub const VIEWS: &[View] = views![
    "warmup",
    "measured_requests",
    "application_steps",
    "measured_steps",
    "measured_spans",
    "recorded_steps",
    "gpu_intervals",
    "gpu_time",
    "self_time",
    "operators",
    "phases",
    "device_time",
    "device_timeline",
    "request_latency",
    "request_accounts",
    "device_accounts",
    "headlines",
    "days",
    "rank_runs",
    "rank_steps",
    "stragglers",
];

impl View {
    /// What its rows are, in one line: the comment at the head of its file.
    pub fn meaning(&self) -> String {
        let lines = self.text.lines().map_while(|line| line.strip_prefix("-- "));
        lines.collect::<Vec<_>>().join(" ")
    }

    /// The query that it stands for.
    pub fn query(&self) -> String {
        let lines = self.text.lines().skip_while(|line| line.starts_with("--"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// Names of all tables and views, in order.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = RecordKind::ALL.into_iter().map(RecordKind::table).collect();
    names.extend([RUNS, ARCHIVED, RESULTS, COLUMNS, SERVED]);
    names.extend(VIEWS.iter().map(|view| view.name));
    names.sort_unstable();
    names
}

/// The columns of a table of a run, as the engine and archives have them: any can be absent in a file of another version.
pub fn fields(kind: RecordKind) -> impl Iterator<Item = Field> {
    columns(kind).iter().map(|column| {
        let of = match column.kind {
            ColumnType::Int64 => DataType::Int64,
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::Utf8 => DataType::Utf8View,
        };
        Field::new(column.name, of, true)
    })
}

/// A table of files that another stands on.
#[derive(Debug)]
pub(super) struct Part {
    /// As SQL names it.
    pub(super) table: String,
    /// What gives a row's run.
    pub(super) run: String,
}

impl Part {
    /// One whose rows say their run.
    pub(super) fn of(table: &str) -> Self {
        Self { table: quoted(table), run: RUN.to_string() }
    }
}

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The files of a kind of record as a table of this engine.
pub(super) fn files_of(kind: RecordKind) -> String {
    format!("{BEHIND}{}", kind.table())
}

/// The table of a kind of record over the tables of its files: its run first, then the operator where there is a path.
pub(super) fn table_of(kind: RecordKind, from: &[Part]) -> String {
    let names: Vec<String> = columns(kind).iter().map(|column| quoted(column.name)).collect();
    let has = |name: &str| columns(kind).iter().any(|column| column.name == name);
    let operator = match (has("path"), has("module")) {
        (true, true) => "operator_of(path, module) AS operator, ",
        (true, false) => "operator_of(path, NULL) AS operator, ",
        (false, _) => "",
    };
    let names = names.join(", ");
    let part = |from: &Part| format!("SELECT {} AS run, {operator}{names} FROM {}", from.run, from.table);
    from.iter().map(part).collect::<Vec<_>>().join(" UNION ALL ")
}

/// `served` in this engine.
pub(super) fn served() -> String {
    format!(
        "SELECT run, step, part[1] AS request, part[2] AS tokens, part[3] AS output_tokens FROM (SELECT run, step, \
         unnest({}(serves)) AS part FROM steps WHERE serves IS NOT NULL) AS parts",
        super::functions::SERVED
    )
}
