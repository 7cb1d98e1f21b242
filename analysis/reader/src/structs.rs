//! The structs of Parquet's metadata as far as the decoder knows them, with the type of each field.
//!
//! The decoder goes by a field's number and reads the type that it expects, whatever type the file states; it skips
//! unknown fields by the stated type. A check that read the same bytes in another way would check something else than
//! what is decoded. So every field listed here must have the listed type, and all others are skipped as the decoder
//! skips them.

use Kind::{Binary, Bool, Double, I8, I16, I32, I64, List, Struct};

/// Type of a field, or of a list's elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// A truth value, which is stored in the field's header.
    Bool,
    I8,
    I16,
    /// 32-bit integers, and enums, which are stored as these.
    I32,
    I64,
    Double,
    /// Bytes with their length, and texts, which are stored as these.
    Binary,
    List(&'static Kind),
    /// Unions, too: one of the listed fields.
    Struct(&'static Fields),
}

/// Numbers and types of a struct's fields.
pub(super) type Fields = [(i16, Kind)];

impl Kind {
    /// Whether `told`, a type number of the compact protocol, means this type.
    pub(super) fn is(self, told: u8) -> bool {
        match self {
            Bool => matches!(told, 1 | 2),
            I8 => told == 3,
            I16 => told == 4,
            I32 => told == 5,
            I64 => told == 6,
            Double => told == 7,
            Binary => told == 8,
            List(_) => told == 9,
            Struct(_) => told == 12,
        }
    }
}

/// A struct without fields.
const EMPTY: Kind = Struct(&[]);

pub(super) const FILE_META_DATA: &Fields = &[
    (1, I32),
    (2, List(&Struct(SCHEMA_ELEMENT))),
    (3, I64),
    (4, List(&Struct(ROW_GROUP))),
    (5, List(&Struct(&[(1, Binary), (2, Binary)]))),
    (6, Binary),
    // The order of a column's values.
    (7, List(&Struct(&[(1, EMPTY)]))),
    (8, Struct(&[(1, Struct(AES)), (2, Struct(AES))])),
    (9, Binary),
];

pub(super) const SCHEMA_ELEMENT: &Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, Binary),
    (5, I32),
    (6, I32),
    (7, I32),
    (8, I32),
    (9, I32),
    (10, Struct(LOGICAL_TYPE)),
];

const LOGICAL_TYPE: &Fields = &[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    // A decimal number's scale and precision.
    (5, Struct(&[(1, I32), (2, I32)])),
    (6, EMPTY),
    (7, Struct(TIME_TYPE)),
    (8, Struct(TIME_TYPE)),
    // A number's bits, and whether it has a sign.
    (10, Struct(&[(1, I8), (2, Bool)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Struct(&[(1, I8)])),
    (17, Struct(&[(1, Binary)])),
    (18, Struct(&[(1, Binary), (2, I32)])),
];

const TIME_TYPE: &Fields = &[(1, Bool), (2, Struct(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)]))];

const ROW_GROUP: &Fields = &[
    (1, List(&Struct(COLUMN_CHUNK))),
    (2, I64),
    (3, I64),
    // Columns by which rows are sorted.
    (4, List(&Struct(&[(1, I32), (2, Bool), (3, Bool)]))),
    (5, I64),
    (6, I64),
    (7, I16),
];

const COLUMN_CHUNK: &Fields = &[
    (1, Binary),
    (2, I64),
    (3, Struct(COLUMN_META_DATA)),
    (4, I64),
    (5, I32),
    (6, I64),
    (7, I32),
    (8, Struct(&[(1, EMPTY), (2, Struct(&[(1, List(&Binary)), (2, Binary)]))])),
    (9, Binary),
];

const COLUMN_META_DATA: &Fields = &[
    (1, I32),
    (2, List(&I32)),
    (3, List(&Binary)),
    (4, I32),
    (5, I64),
    (6, I64),
    (7, I64),
    (8, List(&Struct(&[(1, Binary), (2, Binary)]))),
    (9, I64),
    (10, I64),
    (11, I64),
    (12, Struct(STATISTICS)),
    // Pages of each kind and encoding.
    (13, List(&Struct(&[(1, I32), (2, I32), (3, I32)]))),
    (14, I64),
    (15, I32),
    // Sizes of texts, and how often each level occurs.
    (16, Struct(&[(1, I64), (2, List(&I64)), (3, List(&I64))])),
    (17, Struct(&[(1, Struct(BOUNDING_BOX)), (2, List(&I32))])),
];

const STATISTICS: &Fields =
    &[(1, Binary), (2, Binary), (3, I64), (4, I64), (5, Binary), (6, Binary), (7, Bool), (8, Bool)];

const BOUNDING_BOX: &Fields =
    &[(1, Double), (2, Double), (3, Double), (4, Double), (5, Double), (6, Double), (7, Double), (8, Double)];

const AES: &Fields = &[(1, Binary), (2, Binary), (3, Bool)];

pub(super) const PAGE_HEADER: &Fields = &[
    (1, I32),
    (2, I32),
    (3, I32),
    (4, I32),
    (5, Struct(DATA_PAGE_HEADER)),
    (6, EMPTY),
    (7, Struct(DICTIONARY_PAGE_HEADER)),
    (8, Struct(DATA_PAGE_HEADER_V2)),
];

pub(super) const DATA_PAGE_HEADER: &Fields = &[(1, I32), (2, I32), (3, I32), (4, I32), (5, Struct(STATISTICS))];

pub(super) const DICTIONARY_PAGE_HEADER: &Fields = &[(1, I32), (2, I32), (3, Bool)];

pub(super) const DATA_PAGE_HEADER_V2: &Fields =
    &[(1, I32), (2, I32), (3, I32), (4, I32), (5, I32), (6, I32), (7, Bool), (8, Struct(STATISTICS))];
