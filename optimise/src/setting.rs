//! What a program is run with, and changes of that.

use crate::words::quoted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Options of `candlescope profile` by their names without dashes, and variables of the environment. An option without a
/// value is a switch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// Options.
    pub options: BTreeMap<String, String>,
    /// Variables.
    pub environment: BTreeMap<String, String>,
}

/// What is different. `None` takes an option or a variable out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// Options.
    pub options: BTreeMap<String, Option<String>>,
    /// Variables.
    pub environment: BTreeMap<String, Option<String>>,
}

impl Change {
    /// Sets an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl ToString) -> Self {
        self.options.insert(name.to_string(), Some(value.to_string()));
        self
    }

    /// Takes an option out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.options.insert(name.to_string(), None);
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.insert(name.to_string(), Some(value.to_string()));
        self
    }

    /// As people write it: `--threads=2`, `NAME=value`, `without --dtype`.
    pub fn words(&self) -> String {
        let option = |(name, value): (&String, &Option<String>)| match value {
            Some(value) => format!("--{name}={value}"),
            None => format!("without --{name}"),
        };
        let variable = |(name, value): (&String, &Option<String>)| match value {
            Some(value) => format!("{name}={value}"),
            None => format!("without {name}"),
        };
        let all = self.environment.iter().map(variable).chain(self.options.iter().map(option));
        all.collect::<Vec<_>>().join(" ")
    }
}

impl Setting {
    /// The same with a change.
    #[must_use]
    pub fn with(&self, change: &Change) -> Self {
        let put = |all: &BTreeMap<String, String>, change: &BTreeMap<String, Option<String>>| {
            let mut all = all.clone();
            for (name, value) in change {
                match value {
                    Some(value) => _ = all.insert(name.clone(), value.clone()),
                    None => _ = all.remove(name),
                }
            }
            all
        };
        Self { options: put(&self.options, &change.options), environment: put(&self.environment, &change.environment) }
    }

    /// As a shell reads it, without the program.
    pub fn options_in_words(&self) -> String {
        let words = self.options.iter().map(|(name, value)| quoted(&format!("--{name}={value}")));
        words.collect::<Vec<_>>().join(" ")
    }

    /// Variables before a program, as a shell reads them; with a space after each.
    pub fn environment_in_words(&self) -> String {
        self.environment.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_put_on_top() {
        let base = Setting::default().with(&Change::default().option("dtype", "f32").option("batch", 2));
        let change = Change::default().without("dtype").option("quantize", "q8_0").variable("A", "x y");
        let changed = base.with(&change);
        assert_eq!(changed.options_in_words(), "--batch=2 --quantize=q8_0");
        assert_eq!(changed.environment_in_words(), "A='x y' ");
        assert_eq!(change.words(), "A=x y without --dtype --quantize=q8_0");
        assert_eq!(base.with(&Change::default()), base);
    }
}
