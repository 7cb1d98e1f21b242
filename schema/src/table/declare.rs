//! How a table is declared.

/// Declares a table; see the [module](crate::table).
macro_rules! record {
    (
        [$d:tt] $each:ident
        $(#[$meta:meta])*
        $Record:ident, $Kind:ident, $Rows:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $ty:ty => $cells:ident $($column:literal)?,
            )*
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        #[non_exhaustive]
        pub struct $Record {
            $(
                $(#[doc = $doc])+
                pub $field: $ty,
            )*
        }

        impl $Record {
            /// A record of all its fields, in the order of their declaration: for readers made with the list.
            #[doc(hidden)]
            #[allow(clippy::too_many_arguments, reason = "called by macros that have the same list")]
            #[inline]
            pub fn of_fields($($field: $ty,)*) -> Self {
                Self { $($field,)* }
            }

            pub(crate) fn describe(columns: &mut Vec<$crate::table::Column>) {
                $(
                    <$crate::table::kind::$cells as $crate::table::kind::Describe<$ty>>::describe(
                        $crate::column!($field $($column)?),
                        concat!($($doc),+).trim().trim_end_matches('.'),
                        columns,
                    );
                )*
            }
        }

        #[doc = concat!(
            "Calls the macro `$do` with the fields of [`", stringify!($Record), "`]: \
             `Record, RecordKind, Rows; field: Type => Kind \"column\", …`."
        )]
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $each {
            ($d do:ident) => {
                $d do! {
                    $Record, $Kind, $Rows;
                    $($field: $ty => $cells ($($column)?),)*
                }
            };
        }
    };
}
pub(crate) use record;

/// The name of a field's column: that of the field, if there is no other.
#[doc(hidden)]
#[macro_export]
macro_rules! column {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $column:literal) => {
        $column
    };
}
