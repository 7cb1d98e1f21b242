//! Functions that the engine lacks. Each has a pure SQL form for DuckDB and Spark: a macro (`script.rs`), an expression
//! in its place ([`OWN_AGGREGATES`](super::OWN_AGGREGATES)), or a column of the tables and views
//! ([`views`](super::views)).

use super::{exact, exact_sum};
use candlescope_schema::{PathInfo, Served};
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Array, Int64Array, Int64Builder, ListBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{
    Accumulator, ColumnarValue, ScalarFunctionImplementation, ScalarUDF, Volatility, create_udaf, create_udf,
};
use datafusion::prelude::SessionContext;
use std::sync::Arc;

/// The function that reads a step's list of the requests that it serves.
pub(super) const SERVED: &str = "served_of";

/// Functions of the engine that make a value of any size of a small one. The memory that they take is not counted, so
/// that one line could take all that there is.
const UNBOUNDED: [&str; 9] = [
    "repeat",
    "lpad",
    "rpad",
    "range",
    "generate_series",
    "array_repeat",
    "list_repeat",
    "array_resize",
    "list_resize",
];

/// Makes the functions known.
pub(super) fn register(context: &SessionContext) -> Result<()> {
    UNBOUNDED.into_iter().for_each(|name| {
        context.deregister_udf(name);
    });
    context.register_udf(operator_of());
    context.register_udf(served_of());
    context.register_udf(get_json_object());
    for (name, of) in [("median_low", Bound::Low), ("median_high", Bound::High)] {
        context.register_udaf(aggregate(name, vec![DataType::Float64], DataType::Float64, move || {
            Box::new(Interval { of, values: Vec::new() })
        }));
    }
    context.register_udaf(exact_sum::sum());
    context.register_udaf(exact::median());
    let two = vec![DataType::Int64, DataType::Int64];
    context.register_udaf(aggregate("merged_ns", two, DataType::Int64, || Box::<MergedIntervals>::default()));
    Ok(())
}

fn pure(name: &str, takes: Vec<DataType>, gives: DataType, what: ScalarFunctionImplementation) -> ScalarUDF {
    create_udf(name, takes, gives, Volatility::Immutable, what)
}

/// `operator_of(path, module)`: a path without ordinals, or the step and the module without numbers.
fn operator_of() -> ScalarUDF {
    let text = DataType::Utf8View;
    let what = |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let (paths, modules) = (arrays[0].as_string_view(), arrays[1].as_string_view());
        // Equal neighbours are the rule: a run has few paths and many intervals.
        let mut last: Option<(&str, Option<&str>, String)> = None;
        let mut built = StringViewBuilder::with_capacity(paths.len()).with_deduplicate_strings();
        for row in 0..paths.len() {
            if paths.is_null(row) {
                built.append_null();
                continue;
            }
            let of = (paths.value(row), modules.is_valid(row).then(|| modules.value(row)));
            if last.as_ref().is_none_or(|(path, module, _)| (*path, *module) != of) {
                last = Some((of.0, of.1, PathInfo::rollup_of(of.0, of.1)));
            }
            built.append_option(last.as_ref().map(|(.., operator)| operator));
        }
        Ok(ColumnarValue::Array(Arc::new(built.finish())))
    };
    pure("operator_of", vec![text.clone(), text.clone()], text, Arc::new(what))
}

/// `served_of(serves)`: the column `serves` of `steps` as a list of lists: request, tokens, output tokens.
fn served_of() -> ScalarUDF {
    let inner = DataType::List(Arc::new(Field::new_list_field(DataType::Int64, true)));
    let gives = DataType::List(Arc::new(Field::new_list_field(inner, true)));
    let what = |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let mut built = ListBuilder::new(ListBuilder::new(Int64Builder::new()));
        for text in arrays[0].as_string_view() {
            for part in text.map(Served::from_text).unwrap_or_default() {
                let request = i64::try_from(part.request).ok();
                built.values().append_value([request, Some(part.tokens.into()), Some(part.output_tokens.into())]);
            }
            built.append(true);
        }
        Ok(ColumnarValue::Array(Arc::new(built.finish())))
    };
    pure(SERVED, vec![DataType::Utf8View], gives, Arc::new(what))
}

/// `get_json_object(text, '$.a.b')`, as Spark calls it: a part of an object as text.
fn get_json_object() -> ScalarUDF {
    let text = DataType::Utf8View;
    let what = |args: &[ColumnarValue]| {
        let arrays = ColumnarValue::values_to_arrays(args)?;
        let (texts, paths) = (arrays[0].as_string_view(), arrays[1].as_string_view());
        let of = |row: usize| {
            let valid = texts.is_valid(row) && paths.is_valid(row);
            valid.then(|| part(texts.value(row), paths.value(row))).flatten()
        };
        Ok(ColumnarValue::Array(Arc::new((0..texts.len()).map(of).collect::<StringViewArray>())))
    };
    pure("get_json_object", vec![text.clone(), text.clone()], text, Arc::new(what))
}

fn part(text: &str, path: &str) -> Option<String> {
    let pointer = path.strip_prefix('$')?.replace(['.', '['], "/").replace(']', "");
    let value: serde_json::Value = serde_json::from_str(text).ok()?;
    match value.pointer(&pointer)? {
        serde_json::Value::Null => None,
        serde_json::Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

fn aggregate(
    name: &str,
    takes: Vec<DataType>,
    gives: DataType,
    make: impl Fn() -> Box<dyn Accumulator> + Send + Sync + 'static,
) -> datafusion::logical_expr::AggregateUDF {
    let state = takes.iter().map(|kind| DataType::List(Arc::new(Field::new_list_field(kind.clone(), true)))).collect();
    create_udaf(name, takes, Arc::new(gives), Volatility::Immutable, Arc::new(move |_| Ok(make())), Arc::new(state))
}

/// Appends what the lists of a state hold.
fn lists(states: &ArrayRef, mut each: impl FnMut(ArrayRef)) {
    states.as_list::<i32>().iter().flatten().for_each(&mut each);
}

fn list(values: ArrayRef) -> ScalarValue {
    ScalarValue::List(Arc::new(datafusion::common::utils::SingleRowListArrayBuilder::new(values).build_list_array()))
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    Low,
    High,
}

/// `median_low(x)` and `median_high(x)`: the 95 % interval of a median from order statistics, none below six values. The
/// values are taken as independent, which tokens of one request are not.
#[derive(Debug)]
struct Interval {
    of: Bound,
    values: Vec<f64>,
}

impl Accumulator for Interval {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.values.extend(values[0].as_primitive::<Float64Type>().iter().flatten().filter(|value| value.is_finite()));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let found = candlescope_figures::Distribution::of(std::mem::take(&mut self.values));
        let interval = found.and_then(|found| found.median_ci95);
        let of = self.of;
        Ok(ScalarValue::Float64(interval.map(|(low, high)| if matches!(of, Bound::Low) { low } else { high })))
    }

    fn size(&self) -> usize {
        // Twice again while it is evaluated: sorted, and as samples.
        size_of::<Self>() + 3 * self.values.capacity() * size_of::<f64>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![list(Arc::new(Float64Array::from(std::mem::take(&mut self.values))))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        lists(&states[0], |values| self.values.extend(values.as_primitive::<Float64Type>().iter().flatten()));
        Ok(())
    }
}

/// `merged_ns(start, end)`: how long at least one of the intervals lasts, each instant counted once.
#[derive(Debug, Default)]
struct MergedIntervals {
    /// Sorted and apart from each other up to `tidy`; those after it as they came.
    intervals: Vec<(i64, i64)>,
    tidy: usize,
}

impl MergedIntervals {
    fn push(&mut self, starts: &Int64Array, ends: &Int64Array) {
        let new = starts.iter().zip(ends).filter_map(|(start, end)| start.zip(end)).filter(|(start, end)| start < end);
        self.intervals.extend(new);
        // Most intervals of a time line touch or overlap, so that few are left.
        if self.intervals.len() > (2 * self.tidy).max(65_536) {
            self.tidy_up();
        }
    }

    fn tidy_up(&mut self) {
        self.intervals.sort_unstable();
        let mut last = 0;
        for at in 1..self.intervals.len() {
            let (start, end) = self.intervals[at];
            if start <= self.intervals[last].1 {
                self.intervals[last].1 = self.intervals[last].1.max(end);
            } else {
                last += 1;
                self.intervals[last] = (start, end);
            }
        }
        self.intervals.truncate(last + 1);
        self.tidy = self.intervals.len();
    }
}

impl Accumulator for MergedIntervals {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.push(values[0].as_primitive::<Int64Type>(), values[1].as_primitive::<Int64Type>());
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        if self.intervals.is_empty() {
            return Ok(ScalarValue::Int64(None));
        }
        self.tidy_up();
        let length =
            self.intervals.iter().fold(0i64, |sum, (start, end)| sum.saturating_add(end.saturating_sub(*start)));
        Ok(ScalarValue::Int64(Some(length)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.intervals.capacity() * size_of::<(i64, i64)>()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.tidy_up();
        let part =
            |of: fn(&(i64, i64)) -> i64| list(Arc::new(Int64Array::from_iter_values(self.intervals.iter().map(of))));
        Ok(vec![part(|interval| interval.0), part(|interval| interval.1)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        lists(&states[0], |values| starts.push(values));
        lists(&states[1], |values| ends.push(values));
        for (starts, ends) in starts.iter().zip(&ends) {
            self.push(starts.as_primitive::<Int64Type>(), ends.as_primitive::<Int64Type>());
        }
        Ok(())
    }
}
