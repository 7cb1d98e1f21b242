//! Functions that SQLite lacks and the queries of `docs/sql.md` use, as DuckDB calls them.

use super::budget::Budget;
use candlescope_schema::PathInfo;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::Value;
use rusqlite::{Connection, Error, Result};
use std::sync::Arc;

/// Makes the functions known.
pub(super) fn register(database: &Connection, budget: &Arc<Budget>) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    database.create_scalar_function("operator_of", 2, pure, |context| {
        let path: Option<String> = context.get(0)?;
        let module: Option<String> = context.get(1)?;
        Ok(path.map(|path| PathInfo::rollup_of(&path, module.as_deref())))
    })?;
    database.create_scalar_function("starts_with", 2, pure, |context| {
        let (text, start): (Option<String>, Option<String>) = (context.get(0)?, context.get(1)?);
        Ok(text.zip(start).map(|(text, start)| text.starts_with(&start)))
    })?;
    database.create_scalar_function("greatest", -1, pure, |context| extreme(context, true))?;
    database.create_scalar_function("least", -1, pure, |context| extreme(context, false))?;
    database.create_aggregate_function("median", 1, pure, Quantile(Arc::clone(budget), |_| Ok(0.5)))?;
    database.create_aggregate_function(
        "quantile_cont",
        2,
        pure,
        Quantile(Arc::clone(budget), |context| context.get(1)),
    )?;
    database.create_aggregate_function("stddev_samp", 1, pure, Deviation(Arc::clone(budget)))
}

/// The largest or the smallest argument; those that are null do not count.
fn extreme(context: &Context<'_>, largest: bool) -> Result<Value> {
    let mut found = Value::Null;
    for at in 0..context.len() {
        let next: Value = context.get(at)?;
        let beyond = match (number(&next), number(&found)) {
            (Some(next), Some(found)) => {
                if largest {
                    next > found
                } else {
                    next < found
                }
            }
            (next, _) => next.is_some(),
        };
        if beyond {
            found = next;
        }
    }
    Ok(found)
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(value) => Some(*value as f64),
        Value::Real(value) => Some(*value),
        _ => None,
    }
}

/// Holds a value more, if the query may.
fn keep(values: &mut Vec<f64>, value: Option<f64>, budget: &Budget) -> Result<()> {
    let Some(value) = value else { return Ok(()) };
    if !budget.hold(size_of::<f64>()) {
        // What the query is told is the limit; this only ends it.
        return Err(Error::UserFunctionError("too many values".into()));
    }
    values.push(value);
    Ok(())
}

/// A quantile, interpolated between neighbours as DuckDB's `quantile_cont` is.
struct Quantile(Arc<Budget>, fn(&Context<'_>) -> Result<f64>);

impl Aggregate<(Vec<f64>, f64), Option<f64>> for Quantile {
    fn init(&self, _: &mut Context<'_>) -> Result<(Vec<f64>, f64)> {
        Ok((Vec::new(), 0.5))
    }

    fn step(&self, context: &mut Context<'_>, (values, share): &mut (Vec<f64>, f64)) -> Result<()> {
        *share = self.1(context)?;
        keep(values, context.get(0)?, &self.0)
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<(Vec<f64>, f64)>) -> Result<Option<f64>> {
        let Some((values, share)) = all else { return Ok(None) };
        self.0.let_go(size_of_val(&values[..]));
        Ok(candlescope_figures::stats::percentile_of(&values, share.clamp(0.0, 1.0)))
    }
}

/// The standard deviation of a sample (n − 1).
struct Deviation(Arc<Budget>);

impl Aggregate<Vec<f64>, Option<f64>> for Deviation {
    fn init(&self, _: &mut Context<'_>) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    fn step(&self, context: &mut Context<'_>, values: &mut Vec<f64>) -> Result<()> {
        keep(values, context.get(0)?, &self.0)
    }

    fn finalize(&self, _: &mut Context<'_>, all: Option<Vec<f64>>) -> Result<Option<f64>> {
        self.0.let_go(all.as_ref().map_or(0, |values| size_of_val(&values[..])));
        Ok(all.and_then(candlescope_figures::Distribution::of).and_then(|distribution| distribution.stddev))
    }
}
