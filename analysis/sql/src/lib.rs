//! SQL over runs and studies. A part of candlescope, which may change with every release.
//!
//! The engine is DataFusion. It reads Parquet as it lies: the columns that a query names, the row groups that its
//! conditions leave, a piece at a time, in bounded memory. Tables, views and functions are those of `docs/sql.md`; the views
//! ([`VIEWS`]) are files that DuckDB and Spark understand as well.

#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod archived_runs;
mod damage;
mod engine;
mod exact;
mod exact_sum;
mod facts;
mod files;
mod functions;
mod left_out;
mod listing;
mod own_aggregates;
mod parse;
mod place;
mod query_error;
#[cfg_attr(not(feature = "object-stores"), path = "no_remote.rs")]
mod remote;
mod script;
mod source;
mod value;
mod views;

pub use left_out::LeftOut;
pub use own_aggregates::{OWN_AGGREGATES, OwnAggregate};
pub use place::{ARCHIVE_ASIDE, ARCHIVE_JOURNAL, SourceError, is_aside, is_run};
pub use query_error::{EachError, QueryError};
pub use script::{Engine, script};
pub use source::Sources;
pub use value::{Answer, SqlValue};
pub use views::{VIEWS, View, fields, names};

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use candlescope_reader::ReadLimits;

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
/// When the query is wrong or does anything else than ask, takes more than it may, or a file fails while it is read.
pub fn query(sql: &str, sources: &Sources, limits: &ReadLimits, limit: usize) -> Result<Answer, QueryError> {
    engine::ask(sql, sources, limits, limit)
}

/// Asks `sql`, and gives the rows to `take` in pieces as they come.
///
/// # Errors
/// Those of [`query`], and what `take` returns.
pub fn each_batch<E: Send>(
    sql: &str,
    sources: &Sources,
    limits: &ReadLimits,
    take: &mut (dyn FnMut(RecordBatch) -> Result<(), E> + Send),
) -> Result<(), EachError<E>> {
    engine::each(sql, sources, limits, take)
}

/// What is known of runs without reading their tables: the rows of the table `runs`.
///
/// # Errors
/// Never in practice: the columns have one length.
pub fn facts(sources: &Sources) -> Result<RecordBatch, ArrowError> {
    facts::rows(&sources.described())
}

/// Runs that are asked twice, by two of their names: copies of a directory, or one that is in an archive as well. What is
/// counted over all of them counts these twice.
///
/// # Errors
/// Those of [`query`].
pub fn doubles(sources: &Sources, limits: &ReadLimits) -> Result<Vec<(String, String)>, QueryError> {
    const SQL: &str = "SELECT min(run), max(run) FROM runs WHERE run_id IS NOT NULL GROUP BY run_id, host, rank, started_ns \
                       HAVING count(*) > 1 ORDER BY 1";
    if !sources.has_several() {
        return Ok(Vec::new());
    }
    let answer = query(SQL, sources, limits, 0)?;
    let pair = |row: &Vec<SqlValue>| match &row[..] {
        [SqlValue::Text(a), SqlValue::Text(b)] => Some((a.clone(), b.clone())),
        _ => None,
    };
    Ok(answer.rows.iter().filter_map(pair).collect())
}
