//! What an option of `profile` is, and [`options!`], which declares them.

use anyhow::{Result, bail};
use candlescope::env::{EnvOption, OPTIONS};
use std::path::PathBuf;
use toml::Value;

/// What a value has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Whole,
    Number,
    Flag,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Text => "a text",
            Kind::Whole => "a whole number, 0 or more",
            Kind::Number => "a number",
            Kind::Flag => "true or false",
        }
    }
}

/// Where a run keeps a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPlace {
    /// Under `options` of `run.json`, and in `inputs.yaml`.
    Options,
    /// In `inputs.yaml` alone: prompts and images, the number of threads, the ring's capacity.
    Inputs,
    /// Nowhere: it says where the run goes, which may be a secret.
    Nowhere,
}

/// What is declared of an option.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// Its group; empty for a key that stands above them.
    pub(super) group: &'static str,
    /// Its name in the group.
    pub(super) name: &'static str,
    /// The flag of the same meaning as help shows it, `--batch N` or `--cupti[=N/EVERY]`; empty if there is none.
    pub(super) flag: &'static str,
    pub(super) kind: Kind,
    /// As TOML; `None` if the value is absent unless set, or depends on other options.
    pub(super) default: Option<&'static str>,
    /// What holds unless it is set, in words, where that is no plain value.
    pub(super) usual: &'static str,
    pub(super) kept: RunPlace,
    /// Whether values must not be written where nobody asked for them.
    pub(super) is_private: bool,
    /// Lines of its help; none for an option of the SDK, which explains it.
    pub(super) doc: &'static [&'static str],
}

impl Key {
    /// `runtime.max_new_tokens`.
    pub(super) fn path(&self) -> String {
        if self.group.is_empty() { self.name.to_string() } else { format!("{}.{}", self.group, self.name) }
    }

    /// The name of its flag, without dashes; empty if it has none.
    pub(super) fn option(&self) -> &'static str {
        self.flag.trim_start_matches('-').split([' ', '[']).next().unwrap_or_default()
    }

    /// What stands for the flag's value in help; empty for a switch.
    pub(super) fn value_name(&self) -> &'static str {
        self.flag.split_once([' ', '=']).map_or("", |(_, name)| name.trim_end_matches(']'))
    }

    /// The same option of the SDK, if it is one: it reads the value, and acts on it.
    pub(super) fn of_sdk(&self) -> Option<&'static EnvOption> {
        OPTIONS.iter().filter(|_| self.doc.is_empty()).find(|option| option.key() == self.option())
    }

    /// Its help.
    pub(super) fn help(&self) -> String {
        let own = || self.doc.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let text = self.of_sdk().map_or_else(own, |option| option.doc.to_string());
        let text = text.trim_end_matches('.');
        // That a switch is off says nothing.
        let plain = self.default.filter(|_| self.kind != Kind::Flag);
        match plain.filter(|_| self.usual.is_empty()).unwrap_or(self.usual).trim_matches('"').trim_end_matches(".0") {
            "" => text.to_string(),
            default => format!("{text} [default: {default}]"),
        }
    }

    /// `value` if it is of the right kind; a whole number is a number.
    pub(super) fn checked(&self, value: Value) -> Result<Value> {
        Ok(match (self.kind, value) {
            (Kind::Text, value @ Value::String(_)) | (Kind::Flag, value @ Value::Boolean(_)) => value,
            (Kind::Whole, Value::Integer(n)) if n >= 0 => Value::Integer(n),
            (Kind::Number, value @ Value::Float(_)) => value,
            (Kind::Number, Value::Integer(n)) => Value::Float(n as f64),
            (kind, value) => bail!("`{}` is {value}; it must be {}", self.path(), kind.name()),
        })
    }

    /// The value of a text that has no quotes, as on a command line: `model.path=embedded`.
    pub(super) fn parsed(&self, text: &str) -> Result<Value> {
        let value = format!("v = {text}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("v"));
        match value {
            Some(Value::String(text)) if self.kind == Kind::Text => Ok(Value::String(text)),
            _ if self.kind == Kind::Text => Ok(Value::String(text.to_string())),
            Some(value) => self.checked(value),
            None => self.checked(Value::String(text.to_string())),
        }
    }
}

/// A type that an option can have.
pub(super) trait OptionType {
    const KIND: Kind;
}

macro_rules! typed {
    ($($type:ty: $kind:ident),+) => { $(impl OptionType for $type { const KIND: Kind = Kind::$kind; })+ };
}
typed!(String: Text, PathBuf: Text, usize: Whole, u64: Whole, f64: Number, bool: Flag);

/// Declares the options, group by group. Each has its help, its name in the group, its type, its flag as help shows it
/// (`""`: it has none), and where needed:
///
/// | | |
/// |---|---|
/// | `= VALUE` | the default; without one the field is an `Option` |
/// | `usual: "…"` | what holds unless it is set, in words, where that is no plain value |
/// | `kept: Inputs` or `Nowhere` | see [`RunPlace`] |
/// | `private: true` | its value is written nowhere unless asked for |
///
/// Under `sdk` stand options of the SDK: it explains, reads and acts on them (`sdk/candlescope/src/env/options.rs`).
macro_rules! options {
    (@field $type:ty) => { Option<$type> };
    (@field $type:ty, $default:literal) => { $type };
    (@value $type:ty, $value:expr) => { $value.and_then(|value| value.clone().try_into::<$type>().ok()) };
    (@value $type:ty, $value:expr, $default:literal) => { options!(@value $type, $value).unwrap_or_default() };
    (@default) => { None };
    (@default $default:literal) => { Some(stringify!($default)) };
    (@kept) => { RunPlace::Options };
    (@kept $kept:ident) => { RunPlace::$kept };
    ($($group:literal $part:ident: $options:ident {
        $(sdk {$(
            $sdk:ident: $sdk_type:ty, $sdk_flag:literal
            $(, usual: $sdk_usual:literal)? $(, kept: $sdk_kept:ident)? $(, private: $sdk_private:literal)?;
        )+})?
        $(
            $(#[doc = $doc:expr])+
            $name:ident: $type:ty $(= $default:literal)?, $flag:literal
            $(, usual: $usual:literal)? $(, kept: $kept:ident)? $(, private: $private:literal)?;
        )+
    })+) => {
        /// All options, group by group.
        pub(super) static KEYS: &[Key] = &[$(
            $($(Key {
                group: $group,
                name: stringify!($sdk),
                flag: $sdk_flag,
                kind: <$sdk_type as OptionType>::KIND,
                default: None,
                usual: concat!("" $(, $sdk_usual)?),
                kept: options!(@kept $($sdk_kept)?),
                is_private: false $(|| $sdk_private)?,
                doc: &[],
            },)+)?
            $(Key {
                group: $group,
                name: stringify!($name),
                flag: $flag,
                kind: <$type as OptionType>::KIND,
                default: options!(@default $($default)?),
                usual: concat!("" $(, $usual)?),
                kept: options!(@kept $($kept)?),
                is_private: false $(|| $private)?,
                doc: &[$($doc),+],
            },)+
        )+];

        $(
            #[doc = concat!("The options of the group `", $group, "`.")]
            #[derive(Debug, Clone)]
            pub(crate) struct $options {
                $(pub(crate) $name: options!(@field $type $(, $default)?),)+
            }
        )+

        /// The options of `profile` that are no options of the SDK.
        #[derive(Debug, Clone)]
        pub(crate) struct ProfileChoices {
            $(pub(crate) $part: $options,)+
        }

        impl ProfileChoices {
            /// The values of a configuration: `at` has that of a key, by its group and name.
            pub(crate) fn of<'a>(at: impl Fn(&str, &str) -> Option<&'a Value>) -> Self {
                Self {
                    $($part: $options {
                        $($name: options!(@value $type, at($group, stringify!($name)) $(, $default)?),)+
                    },)+
                }
            }
        }
    };
}
pub(super) use options;

#[cfg(test)]
mod tests {
    use super::super::declared::KEYS;
    use super::super::keys::find;
    use super::*;

    #[test]
    fn defaults_are_of_their_kind_and_options_are_unique() {
        for key in KEYS {
            if let Some(default) = key.default {
                let value = format!("v = {default}").parse::<toml::Table>().unwrap().remove("v").unwrap();
                assert_eq!(key.checked(value.clone()).unwrap(), value, "{}", key.path());
            }
            assert_eq!(find(&key.path(), None).unwrap(), key);
            assert!(key.option().is_empty() || find(key.option(), None).unwrap() == key, "{}", key.flag);
            assert!(!key.help().is_empty(), "{} is explained, here or by the SDK", key.path());
        }
    }

    #[test]
    fn the_room_that_help_tells_is_given() {
        assert_eq!(find("ring-capacity", None).unwrap().usual, crate::room::RING.to_string());
    }

    #[test]
    fn values_are_read_by_kind() {
        let parsed = |name: &str, text: &str| find(name, None).unwrap().parsed(text).map_err(|e| e.to_string());
        assert_eq!(parsed("model.path", "7").unwrap(), Value::String("7".into()));
        assert_eq!(parsed("model.path", "\"a b\"").unwrap(), Value::String("a b".into()));
        assert_eq!(parsed("temperature", "1").unwrap(), Value::Float(1.0));
        assert_eq!(parsed("chat", "true").unwrap(), Value::Boolean(true));
        assert_eq!(
            parsed("repeats", "x").unwrap_err(),
            "`runtime.repeats` is \"x\"; it must be a whole number, 0 or more"
        );
        assert!(parsed("repeats", "-1").unwrap_err().contains("it must be a whole number"));
    }
}
