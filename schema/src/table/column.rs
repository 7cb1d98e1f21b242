//! A column of a table.

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit signed integer: counts, numbers of steps and requests, times and durations in nanoseconds.
    Int64,
    /// 32-bit signed integer, of few distinct values: ranks, depths, and truth values as 0 and 1.
    Int32,
    /// 64-bit floating point: values of samples, and the energy of a step.
    Float64,
    /// UTF-8 string: names, paths, words of a vocabulary. In Parquet 32-bit keys into a dictionary.
    Utf8,
}

/// One column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name, as in Parquet files and SQL.
    pub name: &'static str,
    /// Type of its values.
    pub kind: ColumnType,
    /// Whether values can be absent.
    pub nullable: bool,
    /// What it holds, with its unit.
    pub doc: &'static str,
}
