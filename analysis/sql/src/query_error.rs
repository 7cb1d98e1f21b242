//! Why a query could not be answered.

use super::schema;
use super::source::{self, SourceError};
use candlescope_reader::limits::{Exceeded, VARIABLE};
use rusqlite::{Connection, ErrorCode};

/// Longest text that a query may make, unless longer ones may be read: functions can make texts of any length.
pub(super) const MOST_TEXT: u64 = 64 << 20;

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

/// What is wrong with a query, with what there is instead.
pub(super) fn wrong(database: &Connection, error: rusqlite::Error) -> QueryError {
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
