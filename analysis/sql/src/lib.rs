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
mod query_error;
mod schema;
mod source;
mod value;

pub use query_error::QueryError;
use query_error::{MOST_TEXT, wrong};
pub use source::{SourceError, Sources};
pub use value::{Answer, SqlValue};

use budget::Budget;
use candlescope_reader::limits::{Limit, ReadLimits};
use candlescope_schema::run::Finding;
use functions::register;
use load::Loader;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::path::Path;
use std::sync::Arc;

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

/// A query's answer and what was noticed while its tables were read.
impl Answer {
    /// Damage to the files that were read.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}
