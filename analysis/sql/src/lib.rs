//! SQL over runs and studies.
//!
//! A query is compiled against the schema first, which tells the columns that it reads; these alone are loaded from
//! Parquet, into a database of its own that exists while the query runs. Tables, views and functions are those of
//! `docs/sql.md`. The engine is SQLite: it is compiled in anyway for profiles of Nsight Systems, and everything that
//! the views need can be written in SQL that DuckDB understands as well.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod budget;
mod functions;
mod load;
mod schema;
mod source;
mod value;

pub use source::{SourceError, Sources};
pub use value::{Answer, SqlValue};

use budget::Budget;
use candlescope_reader::limits::{Exceeded, Limit, ReadLimits, VARIABLE};
use candlescope_schema::run::Finding;
use functions::register;
use load::Loader;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode};
use std::path::Path;
use std::sync::Arc;

/// A query could not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// There is nothing to ask.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The query is wrong, or does something else than ask.
    #[error("the query cannot be run: {why}{hint}")]
    Query {
        /// What the engine says.
        why: String,
        /// What is there instead, with a semicolon before it; may be empty.
        hint: String,
    },
    /// Several statements, or none.
    #[error("one query at a time: give a single SELECT")]
    NotOne,
    /// It takes more time or memory than it may.
    #[error(
        "the query takes more than {} {} (limit `{}`): ask for less, or set {VARIABLE}={}={}",
        .0.allowed, .0.limit.meaning(), .0.limit.name(), .0.limit.name(), .0.allowed.saturating_mul(4)
    )]
    Limit(Exceeded),
    /// Studies have more columns together than a table can have.
    #[error(
        "the studies that are asked have {found} columns together, and a query can read {} at most: name fewer studies, \
         or look for results.parquet that is no study's",
        source::MOST_COLUMNS
    )]
    Columns {
        /// How many there are.
        found: usize,
    },
    /// The database that exists while the query runs failed.
    #[error("the database that holds what the query reads failed: {0}{hint}", hint = space(.0))]
    Engine(rusqlite::Error),
}

/// What to do, where the place of the database is why it failed.
fn space(error: &rusqlite::Error) -> &'static str {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => {
            ". It is in TMPDIR: free space there"
        }
        _ => "",
    }
}

/// Longest text that a query may make, unless longer ones may be read: functions can make texts of any length.
const MOST_TEXT: u64 = 64 << 20;
/// What a row takes besides its values: the list of them, its place in the answer, and room for that to grow.
const BYTES_OF_A_ROW: usize = 64;
/// Instructions of the engine between two looks at the clock.
const INSTRUCTIONS: i32 = 100_000;

/// Asks `sql` of runs and studies, and returns at most `limit` rows; 0 returns all.
///
/// ```no_run
/// use candlescope_sql::{Sources, query};
/// use candlescope_reader::ReadLimits;
/// let limits = ReadLimits::default();
/// let sources = Sources::open(["runs/today"], &limits)?;
/// let answer = query("SELECT phase, count(*) AS steps FROM measured_steps GROUP BY phase", &sources, &limits, 0)?;
/// assert_eq!(answer.columns, ["phase", "steps"]);
/// # Ok::<(), candlescope_sql::QueryError>(())
/// ```
///
/// # Errors
/// When the query is wrong or does anything else than ask, or there is no room for what it reads.
pub fn query(sql: &str, sources: &Sources, limits: &ReadLimits, limit: usize) -> Result<Answer, QueryError> {
    // An empty name is a database in a temporary file, which is removed with the connection.
    let mut database = Connection::open(Path::new("")).map_err(QueryError::Engine)?;
    let budget = Arc::new(Budget::new(limits));
    let text = limits.get(Limit::TextBytes).max(limits.get(Limit::ManifestBytes)).max(MOST_TEXT);
    let text = i32::try_from(text).unwrap_or(i32::MAX);
    database.set_limit(rusqlite::limits::Limit::SQLITE_LIMIT_LENGTH, text).map_err(QueryError::Engine)?;
    register(&database, &budget).map_err(QueryError::Engine)?;
    database.execute_batch(&schema::schema(sources)).map_err(QueryError::Engine)?;
    // From here on statements may only ask.
    database.authorizer(Some(only_asks)).map_err(QueryError::Engine)?;
    let loader = Loader::of(&database, sql, sources);
    if let Some(found) = sources.too_many_columns()
        && loader.as_ref().map_or(true, Loader::reads_results)
    {
        return Err(QueryError::Columns { found });
    }
    let loader = loader?;
    database.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).map_err(QueryError::Engine)?;
    let findings = loader.load(&mut database, sources, limits, &budget)?;
    database.authorizer(Some(only_asks)).map_err(QueryError::Engine)?;
    let clock = Arc::clone(&budget);
    database.progress_handler(INSTRUCTIONS, Some(move || !clock.in_time())).map_err(QueryError::Engine)?;
    let mut answer = ask(&database, sql, limit, &budget).map_err(|error| match budget.over() {
        Some(exceeded) => QueryError::Limit(exceeded),
        None => error,
    })?;
    answer.findings = findings;
    Ok(answer)
}

/// Whether a part of a statement reads: anything else could write files, or read others than those named.
fn only_asks(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } if !function_name.eq_ignore_ascii_case("load_extension") => {
            Authorization::Allow
        }
        _ => Authorization::Deny,
    }
}

fn ask(database: &Connection, sql: &str, limit: usize, budget: &Budget) -> Result<Answer, QueryError> {
    let wrong = |error| wrong(database, error);
    let mut statement = database.prepare(sql).map_err(wrong)?;
    let columns: Vec<String> = statement.column_names().map(str::to_string).collect();
    let mut answer = Answer { columns: value::distinct(columns), ..Answer::default() };
    let mut rows = statement.query([]).map_err(wrong)?;
    while let Some(row) = rows.next().map_err(wrong)? {
        if limit > 0 && answer.rows.len() >= limit {
            answer.truncated = true;
            break;
        }
        let values = (0..answer.columns.len()).map(|at| row.get_ref(at).map(SqlValue::from));
        let values: Vec<SqlValue> = values.collect::<Result<_, _>>().map_err(wrong)?;
        if !budget.hold(values.iter().map(SqlValue::held).sum::<usize>() + BYTES_OF_A_ROW) {
            return Err(QueryError::Limit(budget.exceeded()));
        }
        answer.rows.push(values);
    }
    Ok(answer)
}

/// What is wrong with a query, with what there is instead.
fn wrong(database: &Connection, error: rusqlite::Error) -> QueryError {
    let code = error.sqlite_error_code();
    let why = match &error {
        rusqlite::Error::SqliteFailure(_, Some(message)) => message.clone(),
        rusqlite::Error::SqlInputError { msg, .. } => msg.clone(),
        other => other.to_string(),
    };
    let hint = if code == Some(ErrorCode::AuthorizationForStatementDenied) || why.starts_with("not authorized") {
        "; queries only read: SELECT, WITH, and the functions of docs/sql.md".to_string()
    } else if why.starts_with("no such table") {
        format!("; tables and views are {}", schema::names(database).join(", "))
    } else if why.starts_with("no such column") {
        "; docs/run-format.md lists the columns of each table, and `SELECT * FROM columns` those that are here".into()
    } else if why.starts_with("no such function") {
        "; the functions of SQLite are there, and those that docs/sql.md lists".into()
    } else if code == Some(ErrorCode::TooBig) {
        format!("; a text has at most {} MiB in a query", MOST_TEXT >> 20)
    } else if matches!(code, Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory)) {
        return QueryError::Engine(error);
    } else {
        String::new()
    };
    QueryError::Query { why, hint }
}

/// A query's answer and what was noticed while its tables were read.
impl Answer {
    /// Damage to the files that were read.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
