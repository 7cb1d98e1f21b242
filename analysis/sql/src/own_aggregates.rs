//! Aggregates of our own in the SQL of other engines.

/// The rank of the lower end of a median's 95 % interval among `$n` sorted values, from six on: the largest k for which
/// at most 2.5 % of binomial(n, 1/2) lies below k. A normal quantile with the next term of its expansion, which is the
/// same as the sum of the binomial's terms for every n up to ten million.
macro_rules! rank {
    ($n:literal) => {
        concat!("CAST(floor((", $n, " + 1 - 1.95996398454 * sqrt(", $n, ") + 0.4641 / sqrt(", $n, ")) / 2) AS INT)")
    };
}

/// The macro of DuckDB for one end of that interval: `$sign` counts from the smallest value or from the largest.
macro_rules! end_in_duckdb {
    ($sign:literal) => {
        concat!(
            "list_transform([list_sort(list(CAST(x AS DOUBLE)) FILTER (WHERE isfinite(CAST(x AS DOUBLE))))],\n",
            "        lambda sorted: CASE WHEN len(sorted) >= 6 THEN\n        sorted[",
            $sign,
            rank!("len(sorted)"),
            "] END)[1]"
        )
    };
}

/// The same as an expression of Spark SQL.
macro_rules! end_in_spark {
    ($sign:literal) => {
        concat!(
            "transform(array(sort_array(collect_list(CAST({x} AS DOUBLE)) FILTER (WHERE abs({x}) < CAST('Infinity' AS DOUBLE)))),\n",
            "    sorted -> CASE WHEN size(sorted) >= 6 THEN\n    element_at(sorted, ",
            $sign,
            rank!("size(sorted)"),
            ") END)[0]"
        )
    };
}

/// An aggregate that is there in this engine and not in others.
///
/// DuckDB has macros for them. Spark has none: a function that SQL makes there cannot be an aggregate, and Sail makes
/// none at all. An expression of lists stands there in place of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnAggregate {
    /// Its name in SQL.
    pub name: &'static str,
    /// Names of its arguments, in their order.
    pub takes: &'static [&'static str],
    /// Parameters of the macro, and what it is.
    duckdb: (&'static str, &'static str),
    /// An expression with its arguments in braces.
    spark: &'static str,
}

/// All of them.
///
/// Starts and ends of intervals are sorted apart from each other: no interval is open between the n-th end and the
/// start after the n-th if that start is later. Such gaps are taken from the time between the first start and the last
/// end.
pub const OWN_AGGREGATES: &[OwnAggregate] = &[
    OwnAggregate {
        name: "merged_ns",
        takes: &["start", "end"],
        duckdb: (
            "start_ns, end_ns",
            "CAST(max(end_ns) FILTER (WHERE start_ns < end_ns) - min(start_ns) FILTER (WHERE start_ns < end_ns)
    - coalesce(list_sum(list_transform(list_zip(
        list_sort(list(start_ns) FILTER (WHERE start_ns < end_ns))[2:],
        list_sort(list(end_ns) FILTER (WHERE start_ns < end_ns))[:-2]),
        lambda gap: greatest(gap[1] - gap[2], 0))), 0) AS BIGINT)",
        ),
        spark: "(max(CASE WHEN {start} < {end} THEN {end} END) - min(CASE WHEN {start} < {end} THEN {start} END)
    - aggregate(filter(arrays_zip(
        slice(sort_array(collect_list(CAST({start} AS BIGINT)) FILTER (WHERE {start} < {end})), 2, 1000000000),
        sort_array(collect_list(CAST({end} AS BIGINT)) FILTER (WHERE {start} < {end}))),
        gap -> gap['0'] > gap['1']), CAST(0 AS BIGINT), (ns, gap) -> ns + gap['0'] - gap['1']))",
    },
    OwnAggregate { name: "median_low", takes: &["x"], duckdb: ("x", end_in_duckdb!("")), spark: end_in_spark!("") },
    OwnAggregate { name: "median_high", takes: &["x"], duckdb: ("x", end_in_duckdb!("-")), spark: end_in_spark!("-") },
];

impl OwnAggregate {
    /// The statement that makes it in DuckDB.
    pub(super) fn duckdb_macro(&self) -> String {
        let (parameters, body) = self.duckdb;
        format!("CREATE OR REPLACE MACRO {}({parameters}) AS\n    {body};\n\n", self.name)
    }

    /// What a query for Spark SQL or Sail says in place of a call with these arguments, which are expressions in the
    /// order of [`takes`](Self::takes). Arguments that are missing stay names in braces.
    pub fn in_spark(&self, arguments: &[&str]) -> String {
        let parts = self.takes.iter().zip(arguments);
        parts.fold(self.spark.to_string(), |text, (name, argument)| text.replace(&format!("{{{name}}}"), argument))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, SqlValue, query};
    use candlescope_figures::Distribution;
    use candlescope_reader::ReadLimits;

    /// The text that DuckDB and Spark compute is computed here.
    #[test]
    fn the_rank_of_an_interval_is_that_of_the_binomial() {
        // Up to ten million the last two are where the rank is closest to another one, from either side.
        let sizes: Vec<u32> = (6..=1_500).chain([1_520_748, 1_801_962]).collect();
        let rows = sizes.iter().map(|n| format!("({n})")).collect::<Vec<_>>().join(", ");
        let sql = format!("SELECT n, {} FROM (VALUES {rows}) AS t (n) ORDER BY n", rank!("n"));
        let limits = ReadLimits::default();
        let run = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/schema-v1");
        let sources = Sources::open([run], &limits).unwrap();
        let answer = query(&sql, &sources, &limits, 0).unwrap();
        assert_eq!(answer.rows.len(), sizes.len());
        for (n, row) in sizes.into_iter().zip(answer.rows) {
            let (low, high) =
                Distribution::of((1..=n).map(f64::from).collect()).and_then(|found| found.median_ci95).unwrap();
            assert_eq!(row, [SqlValue::Int(n.into()), SqlValue::Int(low as i64)]);
            assert_eq!(low + high, f64::from(n) + 1.0, "as many values are beyond either end");
        }
    }

    #[test]
    fn a_call_becomes_an_expression_of_its_arguments() {
        for of in OWN_AGGREGATES {
            let arguments: Vec<String> = of.takes.iter().map(|name| format!("(1 + of_{name})")).collect();
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let expression = of.in_spark(&arguments);
            assert!(arguments.iter().all(|argument| expression.contains(argument)), "{expression}");
            assert!(!expression.contains('{') && !expression.contains(of.name), "{expression}");
            // Scripts are taken apart there.
            assert!(!expression.contains(';') && of.duckdb_macro().matches(';').count() == 1, "{expression}");
        }
    }
}
