//! Tables and views.

use super::source::Sources;
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Column, ColumnType, columns};
use rusqlite::Connection;

/// Before the name of a table that a view stands for.
const BEHIND: &str = "_";
/// The table with one row a run, from `run.json`.
pub(super) const RUNS: &str = "runs";
/// Its columns.
pub(super) const RUN_COLUMNS: [&str; 13] = [
    "run",
    "run_id",
    "host",
    "rank",
    "started_ns",
    "ended_ns",
    "complete",
    "asked",
    "environment",
    "model",
    "options",
    "steps",
    "results",
];
/// The table with the samples of studies.
pub(super) const RESULTS: &str = "results";

/// The table behind the view of a kind of record.
pub(super) fn table_of(kind: RecordKind) -> String {
    format!("{BEHIND}{}", kind.table())
}

/// A name as SQL writes it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Statements that make every table, empty, and every view.
pub(super) fn schema(sources: &Sources) -> String {
    let mut sql = String::from("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;\n");
    for kind in RecordKind::ALL {
        let fields: Vec<String> = columns(kind).iter().map(|c| format!("{} {}", quoted(c.name), affinity(c))).collect();
        sql += &format!("CREATE TABLE {} (run TEXT, {});\n", quoted(&table_of(kind)), fields.join(", "));
        let names: Vec<String> = columns(kind).iter().map(|column| quoted(column.name)).collect();
        let operator = match kind {
            RecordKind::Span => "operator_of(path, module) AS operator, ",
            _ => "",
        };
        sql += &format!(
            "CREATE VIEW {} AS SELECT run, {operator}{} FROM {};\n",
            kind.table(),
            names.join(", "),
            quoted(&table_of(kind))
        );
    }
    sql += &format!("CREATE TABLE {RUNS} ({});\n", RUN_COLUMNS.join(", "));
    let results = sources.result_columns();
    let fields: Vec<String> = results.iter().map(|name| quoted(name)).collect();
    sql += &format!("CREATE TABLE {RESULTS} ({});\n", fields.join(", "));
    sql += VIEWS;
    sql += &listing(results);
    sql
}

fn affinity(column: &Column) -> &'static str {
    match column.kind {
        ColumnType::Int64 | ColumnType::Int32 => "INTEGER",
        ColumnType::Float64 => "REAL",
        ColumnType::Utf8 => "TEXT",
    }
}

/// Names of tables and views that people know.
pub(super) fn names(database: &Connection) -> Vec<String> {
    // Whoever asks may not read the schema; a failure only shortens a hint.
    let known = "SELECT DISTINCT table_name FROM columns";
    let mut names: Vec<String> = RecordKind::ALL.iter().map(|kind| kind.table().to_string()).collect();
    let listed = database.prepare(known).and_then(|mut statement| {
        let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
        rows.collect::<Result<Vec<_>, _>>()
    });
    names.extend(listed.unwrap_or_default());
    names.extend(VIEW_NAMES.map(str::to_string));
    names.push("columns".into());
    names.sort();
    names.dedup();
    names
}

/// The table `columns`: every column of the tables, with its meaning.
fn listing(results: &[String]) -> String {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    let mut rows = Vec::new();
    for kind in RecordKind::ALL {
        let mut row = |name: &str, kind_of: &str, doc: &str| {
            rows.push(format!("({}, {}, {}, {})", text(kind.table()), text(name), text(kind_of), text(doc)));
        };
        row("run", "TEXT", "Directory of the run");
        if kind == RecordKind::Span {
            row("operator", "TEXT", "Path without ordinals, or the step and the module without numbers");
        }
        columns(kind).iter().for_each(|column| row(column.name, affinity(column), column.doc));
    }
    let runs = RUN_COLUMNS.iter().map(|name| format!("({}, {}, '', 'From run.json')", text(RUNS), text(name)));
    let results = results.iter().map(|name| format!("({}, {}, '', 'From results.parquet')", text(RESULTS), text(name)));
    rows.extend(runs.chain(results));
    format!("CREATE VIEW columns (table_name, column_name, type, meaning) AS VALUES {};\n", rows.join(",\n"))
}

/// Names of the views below.
const VIEW_NAMES: [&str; 9] = [
    "warmup",
    "served",
    "application_steps",
    "measured_requests",
    "measured_steps",
    "measured_spans",
    "recorded_steps",
    "gpu_intervals",
    "gpu_time",
];

/// The views of `docs/sql.md`.
const VIEWS: &str = "
CREATE VIEW warmup AS
SELECT runs.run, CASE WHEN coalesce(max(request), 0) > asked THEN asked ELSE 0 END AS warmup
FROM runs LEFT JOIN requests ON requests.run = runs.run GROUP BY runs.run, asked;

CREATE VIEW measured_requests AS
SELECT requests.* FROM requests JOIN warmup USING (run) WHERE request > warmup;

CREATE VIEW served AS
SELECT run, step, json_extract(value, '$[0]') AS request, json_extract(value, '$[1]') AS tokens,
       json_extract(value, '$[2]') AS output_tokens
FROM steps, json_each(CASE WHEN json_valid(serves) THEN serves ELSE '[]' END);

CREATE VIEW application_steps AS
SELECT run, step FROM steps WHERE phase IS NULL AND flops IS NULL AND bytes IS NULL AND tokens IS NULL
AND module IS NULL AND target <> '' AND target NOT GLOB 'candle*' AND run IN (SELECT run FROM steps WHERE phase IS NOT NULL);

CREATE VIEW measured_steps AS
SELECT steps.* FROM steps JOIN warmup USING (run) WHERE (request IS NULL OR request > warmup)
AND (run, step) NOT IN (SELECT run, step FROM application_steps) AND (serves IS NULL OR (run, step) IN (SELECT run, step FROM served JOIN warmup USING (run) WHERE request > warmup));

CREATE VIEW measured_spans AS
SELECT * FROM spans WHERE (run, step) IN (SELECT run, step FROM measured_steps);

CREATE VIEW recorded_steps AS
SELECT DISTINCT run, step FROM kernels WHERE step IS NOT NULL;

CREATE VIEW gpu_intervals AS
SELECT run, operator, step, seq, 'event' AS source, gpu_dur_ns FROM measured_spans WHERE gpu_source = 'event'
UNION ALL
SELECT run, operator, step, seq, 'cupti', CASE WHEN gpu_source = 'cupti' THEN gpu_dur_ns ELSE 0 END
FROM measured_spans WHERE gpu_source = 'cupti' OR (run, step) IN (SELECT run, step FROM recorded_steps);

CREATE VIEW gpu_time AS
SELECT run, operator, source, measured, calls, mean_ns, mean_ns * calls AS total_ns
FROM (SELECT run, operator, source, count(*) AS measured, avg(gpu_dur_ns) AS mean_ns
      FROM gpu_intervals GROUP BY run, operator, source) AS measured_ones
JOIN (SELECT run, operator, count(*) AS calls FROM measured_spans GROUP BY run, operator) AS all_ones
USING (run, operator);
";
