//! Why a query could not be answered.

use super::place::SourceError;
use candlescope_reader::limits::{ExceededLimit, Limit, ReadLimits, VARIABLE};
use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};

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
    Limit(ExceededLimit),
    /// A file cannot be read, or no longer.
    #[error("what the query reads cannot be read: {0}")]
    Unreadable(String),
    /// There is no room for what a query puts aside.
    #[error("what the query puts aside on disk cannot be written: {0}. It is in TMPDIR: free space there")]
    Space(String),
    /// The engine failed at something else than the query: its set-up, a table or view, or values of an answer.
    #[error("the engine failed: {0}")]
    Engine(DataFusionError),
    /// The engine ended without an answer.
    #[error("the engine ended without an answer: {0}")]
    Ended(String),
}

/// Why rows were not all taken.
#[derive(Debug)]
pub enum EachError<E> {
    /// The query could not be answered, or a file that it reads is damaged.
    Query(QueryError),
    /// The error of whoever took the rows, after which none are given any more.
    Taken(E),
}

impl From<ExceededLimit> for QueryError {
    fn from(exceeded: ExceededLimit) -> Self {
        Self::Limit(exceeded)
    }
}

impl From<ArrowError> for QueryError {
    fn from(error: ArrowError) -> Self {
        Self::Engine(error.into())
    }
}

/// What the engine says, in one line.
fn said(error: &DataFusionError) -> String {
    let text = match error {
        DataFusionError::SQL(of, _) => of.to_string(),
        other => other.strip_backtrace(),
    };
    let prefixes =
        ["Error during planning: ", "sql parser error: ", "Schema error: ", "This feature is not implemented: "];
    let text = prefixes.iter().fold(text.as_str(), |text, prefix| text.strip_prefix(prefix).unwrap_or(text));
    text.lines().next().unwrap_or_default().trim_end_matches('.').to_string()
}

/// What is wrong with a query, with what there is instead.
pub(super) fn wrong(error: DataFusionError) -> QueryError {
    let root = error.find_root();
    let why = said(root);
    let hint = match root {
        DataFusionError::SchemaError(of, _) if matches!(**of, SchemaError::FieldNotFound { .. }) => {
            "; docs/run-format.md lists the columns of each table, and `SELECT * FROM columns` those that are here"
        }
        DataFusionError::Plan(why) if why.contains("function") => "; docs/sql.md lists the functions that are there",
        DataFusionError::Plan(why) if why.contains("not supported") => {
            "; queries only read: SELECT, WITH, and the functions of docs/sql.md"
        }
        _ => "",
    };
    QueryError::Query { why, hint: hint.to_string() }
}

/// Why a query that is right was not answered.
pub(super) fn failed(error: DataFusionError, limits: &ReadLimits) -> QueryError {
    // An error of the disk comes in the form of whatever was writing to it.
    if error.to_string().contains("used disk space during the spilling") {
        return QueryError::Limit(limits.reached(Limit::QuerySpill));
    }
    match error.find_root() {
        DataFusionError::ResourcesExhausted(_) => QueryError::Limit(limits.reached(Limit::QueryBytes)),
        DataFusionError::IoError(why) => QueryError::Space(why.to_string()),
        DataFusionError::ParquetError(_) | DataFusionError::ObjectStore(_) => QueryError::Unreadable(said(&error)),
        DataFusionError::ExecutionJoin(why) => QueryError::Ended(why.to_string()),
        DataFusionError::ArrowError(of, _) if matches!(**of, ArrowError::ParquetError(_)) => {
            QueryError::Unreadable(said(&error))
        }
        DataFusionError::ArrowError(of, _) if matches!(**of, ArrowError::IoError(..)) => {
            QueryError::Space(said(&error))
        }
        DataFusionError::ArrowError(..) | DataFusionError::Execution(_) | DataFusionError::External(_) => {
            QueryError::Query { why: said(&error), hint: String::new() }
        }
        _ => wrong(error),
    }
}
