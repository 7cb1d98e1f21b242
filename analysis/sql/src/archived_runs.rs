//! Where an archive has the rows of a run, by its index: a question about one of a thousand runs then opens the files of
//! that run's day and machine, and not all of them to read in each that it does not have the run.

use super::views::RUN;
use candlescope_schema::hive;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use datafusion::physical_plan::collect;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The runs of an archive, by name, with the folder of their day and machine. Read when it is first wanted.
#[derive(Debug)]
pub(super) struct ArchivedRuns {
    index: Arc<dyn TableProvider>,
    folders: OnceLock<HashMap<String, PathBuf>>,
}

impl ArchivedRuns {
    /// Columns of the index that tell.
    pub(super) fn columns() -> Vec<Field> {
        let text = |name| Field::new(name, DataType::Utf8View, true);
        vec![text(RUN), Field::new("started_ns", DataType::Int64, true), text("host")]
    }

    /// By an index with these columns.
    pub(super) fn of(index: Arc<dyn TableProvider>) -> Self {
        Self { index, folders: OnceLock::new() }
    }

    /// The folders with all rows that fulfil these conditions; `None` if it cannot be told. An index that cannot be
    /// read tells nothing, and is told of by who asks for its rows.
    pub(super) async fn folders(&self, state: &dyn Session, conditions: &[Expr]) -> Option<HashSet<PathBuf>> {
        let runs = conditions.iter().find_map(named)?;
        let known = match self.folders.get() {
            Some(known) => known,
            None => {
                let read = self.read(state).await.unwrap_or_default();
                self.folders.get_or_init(|| read)
            }
        };
        // A run that is not in the index may have been added since.
        runs.into_iter().map(|run| known.get(run).cloned()).collect()
    }

    async fn read(&self, state: &dyn Session) -> Result<HashMap<String, PathBuf>> {
        let plan = self.index.scan(state, None, &[], None).await?;
        let mut folders = HashMap::new();
        for rows in collect(plan, state.task_ctx()).await? {
            folders.extend(of_rows(&rows)?);
        }
        Ok(folders)
    }
}

fn of_rows(rows: &RecordBatch) -> Result<Vec<(String, PathBuf)>> {
    let text = |at: usize| cast(rows.column(at), &DataType::Utf8);
    let (runs, hosts) = (text(0)?, text(2)?);
    let (runs, hosts) = (runs.as_string::<i32>(), hosts.as_string::<i32>());
    let started = cast(rows.column(1), &DataType::Int64)?;
    let started = started.as_primitive::<Int64Type>();
    let each = runs.iter().zip(started).zip(hosts);
    // What has no time of its start stands in no day: its run is none that is known.
    let of = |((run, started), host): ((Option<&str>, Option<i64>), Option<&str>)| {
        Some((run?.to_string(), hive::folders(started?, host.unwrap_or_default())))
    };
    Ok(each.filter_map(of).collect())
}

/// The runs that fulfil a condition, if it names them: `run = 'a'`, `run IN ('a', 'b')`; or where several archives are
/// asked, with this one's name before that of the run, `concat('archive/', run) = 'archive/a'`.
fn named(condition: &Expr) -> Option<Vec<&str>> {
    match condition {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => match (prefix(left), prefix(right)) {
            (Some(prefix), None) => Some(Vec::from_iter(text(right)?.strip_prefix(prefix))),
            (None, Some(prefix)) => Some(Vec::from_iter(text(left)?.strip_prefix(prefix))),
            _ => None,
        },
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => named(left).or_else(|| named(right)),
        // A few are written as alternatives.
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let mut both = named(left)?;
            both.extend(named(right)?);
            Some(both)
        }
        Expr::InList(InList { expr, list, negated: false }) => {
            let prefix = prefix(expr)?;
            let texts: Vec<&str> = list.iter().map(text).collect::<Option<_>>()?;
            Some(texts.into_iter().filter_map(|text| text.strip_prefix(prefix)).collect())
        }
        _ => None,
    }
}

/// What an expression puts before the name of a row's run, mostly nothing; `None` if it is something else.
fn prefix(expr: &Expr) -> Option<&str> {
    let is_run = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == RUN);
    match expr {
        Expr::ScalarFunction(call) if call.func.name() == "concat" => match &call.args[..] {
            [before, run] if is_run(run) => text(before),
            _ => None,
        },
        expr => is_run(expr).then_some(""),
    }
}

fn text(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Literal(value, _) => value.try_as_str().flatten(),
        _ => None,
    }
}

/// Whether a file lies in one of these folders of its table.
pub(super) fn is_in(file: &Path, folders: &HashSet<PathBuf>) -> bool {
    file.parent().is_some_and(|folder| folders.iter().any(|of| folder.ends_with(of)))
}

/// The runs of an archive for each of its tables.
pub(super) type SharedRuns = Arc<ArchivedRuns>;

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::functions::string::expr_fn::concat;
    use datafusion::prelude::{col, lit};

    #[test]
    fn conditions_name_runs_or_say_nothing() {
        let of = |condition: Expr| named(&condition).map(|runs| runs.join(" "));
        assert_eq!(of(col("run").eq(lit("a"))).as_deref(), Some("a"));
        assert_eq!(of(lit("a").eq(col("run"))).as_deref(), Some("a"));
        assert_eq!(of(col("_archived_steps_0.run").eq(lit("a"))).as_deref(), Some("a"));
        assert_eq!(of(col("run").in_list(vec![lit("a"), lit("b")], false)).as_deref(), Some("a b"));
        assert_eq!(of(col("run").eq(lit("a")).or(col("run").eq(lit("b")))).as_deref(), Some("a b"));
        assert_eq!(of(col("step").gt(lit(5)).and(col("run").eq(lit("a")))).as_deref(), Some("a"));
        // Of one of several archives: runs of another one are none of it.
        let named = || concat(vec![lit("one/"), col("run")]);
        assert_eq!(of(named().eq(lit("one/a"))).as_deref(), Some("a"));
        assert_eq!(of(named().eq(lit("two/a"))).as_deref(), Some(""));
        assert_eq!(of(named().in_list(vec![lit("two/b"), lit("one/a"), lit("one/c")], false)).as_deref(), Some("a c"));
        assert_eq!(of(concat(vec![col("host"), col("run")]).eq(lit("one/a"))), None);
        // All of these have rows of other runs, too.
        assert_eq!(of(col("run").in_list(vec![lit("a")], true)), None);
        assert_eq!(of(col("run").not_eq(lit("a"))), None);
        assert_eq!(of(col("run").eq(lit("a")).or(col("step").eq(lit(5)))), None);
        assert_eq!(of(col("run").eq(col("host"))), None);
        assert_eq!(of(col("host").eq(lit("a"))), None);
    }

    #[test]
    fn files_are_told_by_their_days_and_machines() {
        let folders = HashSet::from([hive::folders(1_764_201_600_000_000_000, "gpu-07")]);
        let folder = folders.iter().next().unwrap();
        assert!(is_in(&Path::new("archive/steps").join(folder).join("runs-0.parquet"), &folders));
        assert!(!is_in(Path::new("archive/steps/date=2025-11-27/machine=gpu-0/runs-0.parquet"), &folders));
    }
}
