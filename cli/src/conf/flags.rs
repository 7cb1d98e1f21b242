//! The flags of the options, for clap.

use super::declared::KEYS;
use super::key::{Key, Kind};
use super::keys::PROMPTS;
use clap::builder::RangedU64ValueParser;
use clap::{Arg, ArgMatches, Command, value_parser};
use toml::Value;

/// What a flag with an optional value says without one, if it is no switch: `--cupti`.
const EVERYTHING: &str = "all";

/// The flags that were given, with their values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flags(Vec<(&'static Key, Value)>);

impl Flags {
    /// As if the flag had been given.
    ///
    /// # Errors
    /// If there is no such flag.
    pub(crate) fn with(mut self, flag: &str, value: impl Into<Value>) -> anyhow::Result<Self> {
        self.0.push((super::keys::find(flag, None)?, value.into()));
        Ok(self)
    }

    /// The options that were given, by their names without dashes, and their values as they are written on a command line.
    #[cfg(feature = "lab")]
    pub(crate) fn words(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.iter().map(|(key, value)| (key.option(), in_words(value)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(&'static Key, Value)> {
        self.0.iter()
    }
}

/// A value as it is written on a command line.
#[cfg(feature = "lab")]
fn in_words(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The group of an option, and the line of a group's file that has this value. `None` for what is written nowhere:
/// texts, and where results go.
#[cfg(feature = "lab")]
pub(crate) fn group_of(option: &str, value: &str) -> Option<(&'static str, String)> {
    let key = with_flags().find(|key| key.option() == option)?;
    let value = key.parsed(value).ok().filter(|_| !key.group.is_empty() && !key.is_private)?;
    Some((key.group, format!("{} = {value}\n", key.name)))
}

fn with_flags() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|key| !key.flag.is_empty())
}

fn flag(key: &'static Key) -> Arg {
    let arg = Arg::new(key.option()).long(key.option()).value_name(key.value_name()).help(key.help());
    // Negative numbers get an error that names the option, instead of being taken for options; TOML holds whole numbers
    // up to this one.
    let arg = match key.kind {
        Kind::Text => arg.value_parser(value_parser!(String)),
        Kind::Whole => {
            let whole = RangedU64ValueParser::<u64>::new().range(..=i64::MAX as u64);
            arg.allow_negative_numbers(true).value_parser(whole)
        }
        Kind::Number => arg.allow_negative_numbers(true).value_parser(value_parser!(f64)),
        Kind::Flag => arg.value_parser(value_parser!(bool)),
    };
    let without = match key.kind {
        Kind::Flag => "true",
        _ if key.name == "stacks" => "on",
        _ => EVERYTHING,
    };
    let is_optional = key.flag.ends_with(']');
    let arg = if is_optional { arg.num_args(0..=1).default_missing_value(without).require_equals(true) } else { arg };
    let is_prompt = |key: &&Key| key.group == "dataset" && PROMPTS.contains(&key.name);
    let others = with_flags().filter(|other| is_prompt(&key) && is_prompt(other) && *other != key);
    arg.conflicts_with_all(others.map(Key::option))
}

impl clap::FromArgMatches for Flags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in with_flags() {
            let name = key.option();
            let value = match key.kind {
                Kind::Text => matches.get_one::<String>(name).cloned().map(Value::String),
                Kind::Whole => {
                    let number = matches.get_one::<u64>(name).and_then(|number| i64::try_from(*number).ok());
                    number.map(Value::Integer)
                }
                Kind::Number => matches.get_one::<f64>(name).copied().map(Value::Float),
                Kind::Flag => matches.get_one::<bool>(name).copied().map(Value::Boolean),
            };
            self.0.extend(value.map(|value| (key, value)));
        }
        Ok(())
    }
}

impl clap::Args for Flags {
    fn augment_args(command: Command) -> Command {
        command.args(with_flags().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
