//! How an option is declared: [`options!`] makes the field, the key, its reading and its documentation from one place.

/// A field that holds what was given: nothing, a value, or several.
pub(super) trait Field {
    type Value;
    fn put(&mut self, value: Self::Value);
    fn values(&self) -> Vec<Self::Value>;
}

impl<T: Clone> Field for Option<T> {
    type Value = T;
    fn put(&mut self, value: T) {
        *self = Some(value);
    }
    fn values(&self) -> Vec<T> {
        self.iter().cloned().collect()
    }
}

impl<T: Clone> Field for Vec<T> {
    type Value = T;
    fn put(&mut self, value: T) {
        self.push(value);
    }
    fn values(&self) -> Vec<T> {
        self.clone()
    }
}

impl Field for bool {
    type Value = bool;
    fn put(&mut self, value: bool) {
        *self = value;
    }
    fn values(&self) -> Vec<bool> {
        self.then_some(true).into_iter().collect()
    }
}

/// Declares options, whose fields are for the command line alone: programs have keys. Each has its documentation, its
/// field, and between braces:
///
/// | | |
/// |---|---|
/// | `form` | how it is written; the part before `=` is its key |
/// | `also` | what else the forms in the variable do |
/// | `feature` | the feature it needs, and with `if` when it does (unless said: when it is given) |
/// | `default` | what holds without it, in words |
/// | `read` | a function from a text to the field's value, and what texts it takes, in words |
/// | `act` | what it does to the builder, given the value and all options; `to` for one that says where records go |
macro_rules! options {
    (@has) => { false };
    (@has $($any:tt)+) => { true };
    (@asks $field:ident) => { |config| !config.$field.values().is_empty() };
    (@asks $field:ident $asks:expr) => { $asks };
    ($(#[$attribute:meta])* $name:ident {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty {
            form: $($form:literal)|+,
            $(also: $also:literal,)?
            $(feature: $feature:literal $(if $asks:expr)?,)?
            $(default: $default:literal,)?
            read: $read:expr, $wanted:literal,
            $(act: $act:expr,)?
            $(to: $to:expr,)?
        })+
    }) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $name {
            $(
                $(#[doc = $doc])+
                #[doc(hidden)]
                pub $field: $type,
            )+
        }

        /// All options, in the order in which they are explained.
        pub const OPTIONS: &[EnvOption] = &[$(EnvOption {
            forms: &[$($form),+],
            feature: concat!("" $(, $feature)?),
            default: concat!("" $(, $default)?),
            doc: concat!($($doc),+).trim_ascii(),
            also: concat!("" $(, $also)?),
            is_destination: options!(@has $($to)?),
            wanted: $wanted,
            read: |config, text| ($read)(text).map(|value| config.$field.put(value)).is_some(),
            asks: options!(@asks $field $($($asks)?)?),
            is_built: true $(&& cfg!(feature = $feature))?,
            leave_out: |config| config.$field = Default::default(),
        }),+];

        impl $name {
            /// Does to the builder what the options say.
            #[allow(unused_mut, reason = "not changed without features")]
            pub(super) fn act_on(&self, mut builder: Builder) -> Builder {
                $($(#[cfg(feature = $feature)])? {
                    for _value in self.$field.values() {
                        $(builder = act($act, builder, _value, self);)?
                        $(builder = act($to, builder, _value, self);)?
                    }
                })+
                builder
            }
        }
    };
}
pub(super) use options;
