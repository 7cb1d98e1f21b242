//! Loads the columns that a query reads, and no others.

use super::budget::Budget;
use super::query_error::{QueryError, wrong};
use super::schema::{RESULTS, RUN_COLUMNS, RUNS, quoted, table_of};
use super::source::{DIR, Sources};
use candlescope_reader::limits::ReadLimits;
use candlescope_reader::{RawColumn, RawTable, Run};
use candlescope_schema::RecordKind;
use candlescope_schema::run::{Code, Finding, columns};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Statement, ToSql, params_from_iter};
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Tables with the columns of each that a query reads.
#[derive(Debug)]
pub(super) struct Loader {
    wanted: BTreeMap<String, BTreeSet<String>>,
}

impl Loader {
    /// What `sql` reads, from the program that the engine compiles it to: which cursor opens which table, and which
    /// columns are taken from each cursor. The program does not depend on what tables hold.
    pub(super) fn of(database: &Connection, sql: &str, sources: &Sources) -> Result<Self, QueryError> {
        let wrong = |error| wrong(database, error);
        let asked = database.prepare(sql).map_err(|error| match error {
            rusqlite::Error::MultipleStatement => QueryError::NotOne,
            error => wrong(error),
        })?;
        if asked.column_count() == 0 || asked.is_explain() > 0 {
            return Err(QueryError::NotOne);
        }
        let tables = tables(sources);
        let mut cursors: HashMap<i64, usize> = HashMap::new();
        let mut taken: Vec<(i64, i64)> = Vec::new();
        let mut program = database.prepare(&format!("EXPLAIN {sql}")).map_err(wrong)?;
        let mut rows = program.query([]).map_err(wrong)?;
        let roots = roots(database, &tables).map_err(wrong)?;
        while let Some(row) = rows.next().map_err(wrong)? {
            let field = |name: &str| row.get::<_, i64>(name).unwrap_or(-1);
            match row.get::<_, String>("opcode").map_err(wrong)?.as_str() {
                "OpenRead" => {
                    if let Some(table) = roots.get(&field("p2")) {
                        cursors.insert(field("p1"), *table);
                    }
                }
                "Column" => taken.push((field("p1"), field("p2"))),
                _ => {}
            }
        }
        let mut wanted: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for table in cursors.values() {
            wanted.entry(tables[*table].0.clone()).or_default();
        }
        for (cursor, column) in taken {
            let Some((table, names)) = cursors.get(&cursor).map(|table| &tables[*table]) else { continue };
            if let Some(name) = usize::try_from(column).ok().and_then(|column| names.get(column)) {
                wanted.entry(table.clone()).or_default().insert(name.clone());
            }
        }
        Ok(Self { wanted })
    }

    /// Whether it reads samples of studies.
    pub(super) fn reads_results(&self) -> bool {
        self.wanted.contains_key(RESULTS)
    }

    /// Loads them, and returns what was noticed.
    pub(super) fn load(
        &self,
        database: &mut Connection,
        sources: &Sources,
        limits: &ReadLimits,
        budget: &Budget,
    ) -> Result<Vec<Finding>, QueryError> {
        let mut findings: Vec<Finding> = Vec::new();
        let transaction = database.transaction().map_err(QueryError::Engine)?;
        if self.wanted.contains_key(RUNS) {
            runs(&transaction, sources).map_err(QueryError::Engine)?;
            let of_runs = sources.runs.iter().flat_map(Run::findings);
            findings.extend(of_runs.filter(|found| found.code == Code::LimitReached).cloned());
        }
        for kind in RecordKind::ALL {
            let Some(names) = self.wanted.get(&table_of(kind)) else { continue };
            // A table of which only the rows count needs a column all the same.
            let names: Vec<&str> =
                columns(kind).iter().map(|column| column.name).filter(|n| names.contains(*n)).collect();
            for run in &sources.runs {
                let dir = run.dir().display().to_string();
                let mut table = RawTable::of_run(run, kind, &names);
                insert(&transaction, &table_of(kind), Some(&dir), &mut table, budget)?;
                findings.extend(table.into_findings());
            }
        }
        if let Some(names) = self.wanted.get(RESULTS) {
            for study in &sources.studies {
                let names: Vec<&str> = names.iter().map(String::as_str).filter(|name| *name != DIR).collect();
                let mut table = RawTable::of_file(&study.join("results.parquet"), &names, limits);
                let dir = study.display().to_string();
                insert(&transaction, RESULTS, Some(&dir), &mut table, budget)?;
                findings.extend(table.into_findings());
            }
        }
        transaction.commit().map_err(QueryError::Engine)?;
        Ok(findings)
    }
}

/// Every table with its columns, in the order in which [`schema`](super::schema::schema) makes them.
fn tables(sources: &Sources) -> Vec<(String, Vec<String>)> {
    let of = |kind: &RecordKind| {
        let names = columns(*kind).iter().map(|column| column.name.to_string());
        (table_of(*kind), std::iter::once("run".to_string()).chain(names).collect())
    };
    let mut all: Vec<(String, Vec<String>)> = RecordKind::ALL.iter().map(of).collect();
    all.push((RUNS.to_string(), RUN_COLUMNS.map(str::to_string).into()));
    all.push((RESULTS.to_string(), sources.result_columns().to_vec()));
    all
}

/// Pages at which tables begin, by which a compiled query names them.
fn roots(database: &Connection, tables: &[(String, Vec<String>)]) -> rusqlite::Result<HashMap<i64, usize>> {
    let mut statement = database.prepare("SELECT name, rootpage FROM sqlite_master WHERE type = 'table'")?;
    let known = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?)))?;
    let mut roots = HashMap::new();
    for row in known {
        let (name, page) = row?;
        roots.extend(tables.iter().position(|(table, _)| *table == name).map(|at| (page, at)));
    }
    Ok(roots)
}

fn runs(database: &Connection, sources: &Sources) -> rusqlite::Result<()> {
    let places = vec!["?"; RUN_COLUMNS.len()].join(", ");
    let mut statement = database.prepare(&format!("INSERT INTO {RUNS} VALUES ({places})"))?;
    for run in &sources.runs {
        statement.execute(params_from_iter(facts(run)))?;
    }
    Ok(())
}

/// The row of a run, in the order of [`RUN_COLUMNS`].
fn facts(run: &Run) -> Vec<Value> {
    let dir = Value::Text(run.dir().display().to_string());
    let Some(manifest) = run.manifest() else {
        return std::iter::once(dir).chain((1..RUN_COLUMNS.len()).map(|_| Value::Null)).collect();
    };
    let object = |json: Json| if json.is_null() { Value::Null } else { Value::Text(json.to_string()) };
    vec![
        dir,
        Value::Text(manifest.run_id.clone()),
        Value::Text(manifest.host.clone()),
        Value::Integer(manifest.rank.into()),
        Value::Integer(manifest.started_ns),
        manifest.ended_ns.map_or(Value::Null, Value::Integer),
        Value::Integer(manifest.complete.into()),
        Value::Integer(i64::try_from(manifest.warmup_requests()).unwrap_or(i64::MAX)),
        object(json!(manifest.environment)),
        object(json!(manifest.model)),
        object(json!(manifest.options)),
        object(json!(manifest.steps)),
        object(json!(manifest.results)),
    ]
}

/// Inserts all rows of a table of Parquet, with the directory first.
fn insert(
    database: &Connection,
    table: &str,
    dir: Option<&str>,
    rows: &mut RawTable<'_>,
    budget: &Budget,
) -> Result<(), QueryError> {
    let mut names: Vec<String> = rows.names().iter().map(|name| quoted(name)).collect();
    let first = if table == RESULTS { DIR } else { "run" };
    names.insert(0, first.to_string());
    let places = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {} ({}) VALUES ({places})", quoted(table), names.join(", "));
    let mut statement = database.prepare(&sql).map_err(QueryError::Engine)?;
    while let Some((count, columns)) = rows.next_batch() {
        if !budget.load(count) {
            return Err(QueryError::Limit(budget.exceeded()));
        }
        (0..count).try_for_each(|row| execute(&mut statement, dir, &columns, row)).map_err(QueryError::Engine)?;
    }
    Ok(())
}

fn execute(
    statement: &mut Statement<'_>,
    dir: Option<&str>,
    columns: &[RawColumn],
    row: usize,
) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, dir)?;
    for (at, column) in columns.iter().enumerate() {
        statement.raw_bind_parameter(at + 2, Cell(column, row))?;
    }
    statement.raw_execute().map(drop)
}

/// A value of a column.
struct Cell<'a>(&'a RawColumn, usize);

impl ToSql for Cell<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        let value = match self.0 {
            RawColumn::Int(column) => column.get(self.1).map(ValueRef::Integer),
            RawColumn::Float(column) => column.get(self.1).map(ValueRef::Real),
            RawColumn::Text(column) => column.get(self.1).map(|text| ValueRef::Text(text.as_bytes())),
        };
        Ok(ToSqlOutput::Borrowed(value.unwrap_or(ValueRef::Null)))
    }
}
