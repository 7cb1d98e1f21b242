//! What a program is run with, and changes of that.

use crate::words::quoted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Options of `candlescope profile` by their names without dashes, and variables of the environment. A switch has
/// the value `true` or `false`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Setting {
    /// Value of each option, by its name without dashes.
    pub options: BTreeMap<String, String>,
    /// Value of each variable that is set for the program.
    pub environment: BTreeMap<String, String>,
}

/// What is different. `None` takes an option or a variable out.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// New value of each option by its name without dashes; `None` takes the option out.
    pub options: BTreeMap<String, Option<String>>,
    /// New value of each variable; `None` takes it out of the setting.
    pub environment: BTreeMap<String, Option<String>>,
}

impl Change {
    /// Sets an option, named without dashes; an earlier change of it is replaced.
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

    /// Sets a variable of the environment; an earlier change of it is replaced.
    #[must_use]
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.insert(name.to_string(), Some(value.to_string()));
        self
    }

    /// Both changes, this one first; `None` where they want different values of the same option or variable.
    pub(crate) fn and(mut self, other: &Self) -> Option<Self> {
        let add = |all: &mut BTreeMap<String, Option<String>>, more: &BTreeMap<String, Option<String>>| {
            more.iter().all(|(name, value)| all.entry(name.clone()).or_insert_with(|| value.clone()) == value)
        };
        let fits = add(&mut self.options, &other.options) && add(&mut self.environment, &other.environment);
        fits.then_some(self)
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
    fn changes_are_joined_unless_they_want_different_things() {
        let (slots, keep) = (Change::default().option("max-num-seqs", 1), Change::default().variable("A", 1));
        let both = slots.clone().and(&keep).unwrap();
        assert_eq!(both.words(), "A=1 --max-num-seqs=1");
        assert_eq!(both.clone().and(&slots), Some(both), "the same twice");
        assert_eq!(slots.and(&Change::default().option("max-num-seqs", 4)), None);
        assert_eq!(Change::default().option("dtype", "bf16").and(&Change::default().without("dtype")), None);
    }

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
