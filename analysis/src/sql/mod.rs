//! SQL over runs and studies.
//!
//! A query is compiled against the schema first, which tells the columns that it reads; these alone are loaded from
//! Parquet, into a database of its own that exists while the query runs. Tables, views and functions are those of
//! `docs/sql.md`. The engine is SQLite: it is compiled in anyway for profiles of Nsight Systems, and everything that
//! the views need can be written in SQL that DuckDB understands as well.

mod functions;
mod load;
mod schema;
mod source;
mod value;

pub use source::{SourceError, Sources};
pub use value::{Answer, SqlValue};

use crate::limits::ReadLimits;
use candlescope_core::run::Finding;
use functions::register;
use load::Loader;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ErrorCode};
use std::path::Path;

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
    /// The database that exists while the query runs failed.
    #[error("the database that holds what the query reads failed: {0}. It is in TMPDIR: free space there")]
    Engine(rusqlite::Error),
}

/// Asks `sql` of runs and studies, and returns at most `limit` rows; 0 returns all.
///
/// ```no_run
/// use candlescope_analysis::sql::{Sources, query};
/// use candlescope_analysis::ReadLimits;
/// let limits = ReadLimits::default();
/// let sources = Sources::open(["runs/today"], &limits)?;
/// let answer = query("SELECT phase, count(*) AS steps FROM measured_steps GROUP BY phase", &sources, &limits, 0)?;
/// assert_eq!(answer.columns, ["phase", "steps"]);
/// # Ok::<(), candlescope_analysis::sql::QueryError>(())
/// ```
///
/// # Errors
/// When the query is wrong or does anything else than ask, or there is no room for what it reads.
pub fn query(sql: &str, sources: &Sources, limits: &ReadLimits, limit: usize) -> Result<Answer, QueryError> {
    // An empty name is a database in a temporary file, which is removed with the connection.
    let mut database = Connection::open(Path::new("")).map_err(QueryError::Engine)?;
    register(&database).map_err(QueryError::Engine)?;
    database.execute_batch(&schema::schema(sources)).map_err(QueryError::Engine)?;
    // From here on statements may only ask.
    database.authorizer(Some(only_asks)).map_err(QueryError::Engine)?;
    let loader = Loader::of(&database, sql, sources)?;
    database.authorizer(None::<fn(AuthContext<'_>) -> Authorization>).map_err(QueryError::Engine)?;
    let findings = loader.load(&mut database, sources, limits)?;
    database.authorizer(Some(only_asks)).map_err(QueryError::Engine)?;
    let mut answer = ask(&database, sql, limit)?;
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

fn ask(database: &Connection, sql: &str, limit: usize) -> Result<Answer, QueryError> {
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
        answer.rows.push(values.collect::<Result<_, _>>().map_err(wrong)?);
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
