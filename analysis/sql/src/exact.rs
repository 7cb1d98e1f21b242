//! `sum` and `median` as people mean them, and as DuckDB has them: the engine's own wrap around where a sum of whole numbers
//! leaves 64 bits (FLOPs of a fleet do), and give the median of 1 and 2 as 1.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, plan_err};
use datafusion::functions_aggregate::{median::median_udaf, sum::sum_udaf};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};
use std::sync::Arc;

/// A sum: of whole numbers, a decimal of 30 digits.
pub(super) fn sum() -> AggregateUDF {
    let takes = |kind: &DataType| match kind {
        kind if kind.is_integer() => Some(DataType::Decimal128(20, 0)),
        kind if kind.is_decimal() => Some(kind.clone()),
        kind if kind.is_floating() || kind.is_null() => Some(DataType::Float64),
        _ => None,
    };
    AggregateUDF::new_from_impl(CoercedFunction::new(sum_udaf(), takes))
}

/// A median: of whole numbers as well, a number between two of them.
pub(super) fn median() -> AggregateUDF {
    let takes = |kind: &DataType| (kind.is_numeric() || kind.is_null()).then_some(DataType::Float64);
    AggregateUDF::new_from_impl(CoercedFunction::new(median_udaf(), takes))
}

/// A function of the engine that is given its argument as another type.
#[derive(Debug)]
struct CoercedFunction {
    inner: Arc<AggregateUDF>,
    takes: fn(&DataType) -> Option<DataType>,
    signature: Signature,
}

impl CoercedFunction {
    fn new(inner: Arc<AggregateUDF>, takes: fn(&DataType) -> Option<DataType>) -> Self {
        Self { inner, takes, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl PartialEq for CoercedFunction {
    fn eq(&self, other: &Self) -> bool {
        self.inner == other.inner
    }
}

impl Eq for CoercedFunction {}

impl std::hash::Hash for CoercedFunction {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}

impl AggregateUDFImpl for CoercedFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        let [kind] = given else { return plan_err!("the function {} takes one value", self.name()) };
        match (self.takes)(kind) {
            Some(kind) => Ok(vec![kind]),
            None => plan_err!("the function {} takes numbers, and was given {kind}", self.name()),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        self.inner.return_type(given)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(args)
    }
}
