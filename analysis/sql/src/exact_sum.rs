//! The exact sum of whole numbers, without an array of decimals for each batch of them: what a group has is added up in
//! 128 bits, which as many rows as there can be do not fill. All else is as [`exact`] has it.

use super::exact;
use datafusion::arrow::array::{ArrayRef, AsArray, BooleanArray, Decimal128Array};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, FieldRef, Int64Type};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, Signature, Volatility,
};
use datafusion::physical_expr::NullState;
use std::sync::Arc;

/// As which decimals whole numbers are added up where they are not by group.
const DECIMAL: DataType = DataType::Decimal128(20, 0);

/// A sum: of whole numbers, a decimal of 30 digits.
pub(super) fn sum() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::new_from_impl(ExactSum { of_decimals: exact::sum(), signature })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExactSum {
    /// What adds up decimals, and numbers that are not whole.
    of_decimals: AggregateUDF,
    signature: Signature,
}

/// Whether the argument came as 64 bits.
fn is_whole(args: &AccumulatorArgs<'_>) -> bool {
    args.expr_fields.first().is_some_and(|field| *field.data_type() == DataType::Int64)
}

impl AggregateUDFImpl for ExactSum {
    fn name(&self) -> &str {
        self.of_decimals.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, given: &[DataType]) -> Result<Vec<DataType>> {
        match given {
            [kind] if kind.is_integer() && *kind != DataType::UInt64 => Ok(vec![DataType::Int64]),
            given => self.of_decimals.coerce_types(given),
        }
    }

    fn return_type(&self, given: &[DataType]) -> Result<DataType> {
        match given {
            [DataType::Int64] => self.of_decimals.return_type(&[DECIMAL]),
            given => self.of_decimals.return_type(given),
        }
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_whole = is_whole(&args);
        let inner = self.of_decimals.accumulator(args)?;
        Ok(if is_whole { Box::new(CastingSum(inner)) } else { inner })
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.of_decimals.state_fields(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.of_decimals.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        if !is_whole(&args) {
            return self.of_decimals.create_groups_accumulator(args);
        }
        let kind = args.return_type().clone();
        Ok(Box::new(GroupSums { sums: Vec::new(), nulls: NullState::new(), kind }))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        let is_whole = is_whole(&args);
        let inner = self.of_decimals.create_sliding_accumulator(args)?;
        Ok(if is_whole { Box::new(CastingSum(inner)) } else { inner })
    }
}

/// The sum of each group.
#[derive(Debug)]
struct GroupSums {
    sums: Vec<i128>,
    /// Which groups have any value.
    nulls: NullState,
    /// The decimal that a sum becomes.
    kind: DataType,
}

impl GroupsAccumulator for GroupSums {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        let (sums, values) = (&mut self.sums, values[0].as_primitive::<Int64Type>());
        self.nulls.accumulate(group_indices, values, opt_filter, total_num_groups, |group, value| {
            sums[group] = sums[group].wrapping_add(value.into());
        });
        Ok(())
    }

    fn merge_batch(&mut self, values: &[ArrayRef], group_indices: &[usize], total_num_groups: usize) -> Result<()> {
        self.sums.resize(total_num_groups, 0);
        let (sums, values) = (&mut self.sums, values[0].as_primitive::<Decimal128Type>());
        self.nulls.accumulate(group_indices, values, None, total_num_groups, |group, value| {
            sums[group] = sums[group].wrapping_add(value);
        });
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let (sums, nulls) = (emit_to.take_needed(&mut self.sums), self.nulls.build(emit_to));
        Ok(Arc::new(Decimal128Array::new(sums.into(), nulls).with_data_type(self.kind.clone())))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.evaluate(emit_to)?])
    }

    fn convert_to_state(&self, values: &[ArrayRef], opt_filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<Int64Type>();
        let sums: Decimal128Array = match opt_filter {
            None => values.unary(i128::from),
            Some(filter) => {
                let kept = values.iter().zip(filter).map(|(value, keeps)| value.filter(|_| keeps == Some(true)));
                kept.map(|value| value.map(i128::from)).collect()
            }
        };
        Ok(vec![Arc::new(sums.with_data_type(self.kind.clone()))])
    }

    fn size(&self) -> usize {
        self.sums.capacity() * size_of::<i128>() + self.nulls.size()
    }
}

/// A sum of decimals that is given whole numbers.
#[derive(Debug)]
struct CastingSum(Box<dyn Accumulator>);

fn decimals(values: &[ArrayRef]) -> Result<Vec<ArrayRef>> {
    values.iter().map(|values| Ok(cast(values, &DECIMAL)?)).collect()
}

impl Accumulator for CastingSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(&decimals(values)?)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.0.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(&decimals(values)?)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, SqlValue, query};
    use candlescope_reader::ReadLimits;
    use datafusion::arrow::array::Int64Array;

    const BIG: i64 = 9_000_000_000_000_000_000;

    /// Rows as texts, `-` for no value.
    fn rows(sql: &str) -> Vec<String> {
        let limits = ReadLimits::default();
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/schema-v1");
        let answer = query(sql, &Sources::open([run], &limits).unwrap(), &limits, 0);
        let text = |value: &SqlValue| match value {
            SqlValue::Text(text) => text.clone(),
            SqlValue::Null => "-".to_string(),
            other => panic!("{other:?}"),
        };
        let row = |row: &Vec<SqlValue>| row.iter().map(text).collect::<Vec<_>>().join(" ");
        answer.unwrap_or_else(|error| panic!("{sql}: {error}")).rows.iter().map(row).collect()
    }

    #[test]
    fn sums_of_groups_are_exact_and_absent_where_there_is_no_value() {
        let text = |sum: &str| format!("CAST({sum} AS VARCHAR)");
        let sums = ["sum(x)", "sum(x) FILTER (WHERE x > 0)", "sum(DISTINCT x)", "sum(y)"].map(text).join(", ");
        let values = format!("('a', {BIG}, 0.5), ('a', {BIG}, 1), ('b', NULL, 2), ('b', -5, NULL), ('c', NULL, NULL)");
        let grouped = format!("SELECT g, {sums} FROM (VALUES {values}) AS t (g, x, y) GROUP BY g ORDER BY g");
        let twice = "18000000000000000000";
        assert_eq!(
            rows(&grouped),
            [format!("a {twice} {twice} {BIG} 1.5"), "b -5 - -5 2.0".into(), "c - - - -".into()]
        );
        // Without groups, and of no row.
        let all = format!("SELECT {sums} FROM (VALUES {values}) AS t (g, x, y)");
        assert_eq!(rows(&all), [format!("17999999999999999995 {twice} {} 3.5", BIG - 5)]);
        assert_eq!(rows("SELECT CAST(sum(step) AS VARCHAR) FROM steps WHERE step < 0"), ["-"]);
    }

    #[test]
    fn sums_over_windows_are_exact() {
        let sql = format!(
            "SELECT CAST(sum(x) OVER (ORDER BY i ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS VARCHAR), \
             CAST(sum(x) OVER (PARTITION BY i % 2) AS VARCHAR) FROM (VALUES (1, {BIG}), (2, {BIG}), (3, 1)) AS t (i, x) ORDER BY i"
        );
        let next = BIG + 1;
        assert_eq!(
            rows(&sql),
            [format!("{BIG} {next}"), format!("18000000000000000000 {BIG}"), format!("{next} {next}")]
        );
    }

    /// As the engine does it where there are about as many groups as rows.
    #[test]
    fn rows_become_states_and_states_are_added_up() {
        let kind = DataType::Decimal128(30, 0);
        let made = || GroupSums { sums: Vec::new(), nulls: NullState::new(), kind: kind.clone() };
        let numbers = |sums: &ArrayRef| sums.as_primitive::<Decimal128Type>().iter().collect::<Vec<_>>();
        let values: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![Some(BIG), None, Some(3), Some(BIG)]))];
        let filter = BooleanArray::from(vec![Some(true), Some(true), None, Some(true)]);
        let states = made().convert_to_state(&values, Some(&filter)).unwrap();
        assert_eq!(numbers(&states[0]), [Some(i128::from(BIG)), None, None, Some(i128::from(BIG))]);
        let mut sums = made();
        sums.merge_batch(&states, &[0, 1, 2, 0], 3).unwrap();
        sums.update_batch(&values, &[1, 0, 2, 1], None, 3).unwrap();
        assert_eq!(numbers(&sums.evaluate(EmitTo::First(1)).unwrap()), [Some(2 * i128::from(BIG))]);
        let rest = sums.state(EmitTo::All).unwrap();
        assert_eq!(rest[0].data_type(), &kind);
        assert_eq!(numbers(&rest[0]), [Some(2 * i128::from(BIG)), Some(3)]);
    }
}
