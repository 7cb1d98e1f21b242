//! How an option is declared: [`options!`] makes the field, the key, its reading and its documentation from one place.

use super::EnvConfig;

/// What is declared of an option, for the pages made from it and for command lines that have it as well.
#[derive(Debug)]
#[non_exhaustive]
pub struct EnvOption {
    /// How it is written in the variable: `otlp=URL`, `otlp`.
    pub forms: &'static [&'static str],
    /// The feature of this crate that it needs; empty if none.
    pub feature: &'static str,
    /// What holds without it, in words; empty if nothing.
    pub default: &'static str,
    /// What it does, in a sentence.
    pub doc: &'static str,
    /// What else its forms in the variable do; empty if nothing.
    pub also: &'static str,
    /// Whether records go where it says.
    pub is_destination: bool,
    /// What values it accepts.
    pub wanted: &'static str,
    /// Takes a value; `false` if it is none of those.
    pub(super) read: fn(&mut EnvConfig, &str) -> bool,
    /// Whether it was given, in a way that needs its feature.
    pub(super) asks: fn(&EnvConfig) -> bool,
    /// Whether this build has its feature.
    pub(super) is_built: bool,
    /// Takes it out.
    pub(super) leave_out: fn(&mut EnvConfig),
}

impl EnvOption {
    /// Its key: what stands before `=`.
    pub fn key(&self) -> &'static str {
        self.forms.first().and_then(|form| form.split('=').next()).unwrap_or_default()
    }

    /// Whether `config` asks for what this build has no feature for.
    pub fn is_lacking(&self, config: &EnvConfig) -> bool {
        !self.is_built && (self.asks)(config)
    }
}

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

/// Declares options. Each has its documentation, its field, and between braces:
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
                #[doc = concat!("\n\nKey: ", $("`", $form, "` ",)+ $("(", $also, ")")?)]
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
            fn act_on(&self, mut builder: Builder) -> Builder {
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
