//! A column of a table.

/// Type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// 64-bit signed integer.
    Int64,
    /// 32-bit signed integer.
    Int32,
    /// 64-bit floating point.
    Float64,
    /// UTF-8 string, dictionary-encoded.
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
