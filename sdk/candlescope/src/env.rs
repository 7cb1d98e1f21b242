//! The environment variable `CANDLESCOPE`.

mod config_error;
mod declare;
mod options;
mod read;
mod stack_sampling;

use crate::InitError;
use crate::builder::{Builder, builder};
pub use config_error::ConfigError;
pub use options::{EnvConfig, VARIABLE};
#[doc(hidden)]
pub use options::{EnvOption, OPTIONS};
#[doc(hidden)]
pub use stack_sampling::StackSampling;

/// The option with this key.
fn option(key: &str) -> Option<&'static EnvOption> {
    OPTIONS.iter().find(|option| option.key() == key)
}

impl EnvConfig {
    /// Reads the variable's value.
    ///
    /// ```
    /// use candlescope::env::{ConfigError, EnvConfig};
    /// let config = EnvConfig::parse("parquet=./runs,schedule=10/0/1/5/1,exclude=hyper")?;
    /// assert_ne!(config, EnvConfig::default());
    /// assert!(EnvConfig::parse("parket=./runs").unwrap_err().to_string().contains("did you mean `parquet`?"));
    /// # Ok::<(), ConfigError>(())
    /// ```
    ///
    /// # Errors
    /// Names the key that is not understood and what it accepts.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let (config, left_out) = Self::understood(text)?;
        left_out.into_iter().next().map_or(Ok(config), Err)
    }

    /// Sets one option, by its key in the variable.
    ///
    /// # Errors
    /// If there is no such key, or it does not accept the value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let option = option(key).ok_or_else(|| ConfigError::UnknownKey(format!("`{key}`")))?;
        if (option.read)(self, value) {
            return Ok(());
        }
        Err(ConfigError::Value { key: option.key(), wanted: option.wanted, value: value.into() })
    }

    /// A builder with these options.
    ///
    /// # Errors
    /// If this build lacks a feature that one of them needs.
    pub fn into_builder(self) -> Result<Builder, InitError> {
        match OPTIONS.iter().find(|option| option.is_lacking(&self)) {
            Some(lacking) => Err(ConfigError::NotInThisBuild(lacking.feature).into()),
            None => Ok(self.act_on(builder().report_at_end(true))),
        }
    }

    /// What is understood of the variable's value, and the keys that are not known. A value that a known key does not
    /// accept is an error: without it more may be recorded than was asked for.
    pub(crate) fn understood(text: &str) -> Result<(Self, Vec<ConfigError>), ConfigError> {
        let mut config = Self::default();
        let mut left_out = Vec::new();
        // The address that stands directly before an entry.
        let mut address = None;
        for (at, part) in entries(text).iter().map(|part| part.trim()).enumerate().filter(|(_, p)| !p.is_empty()) {
            // Inside a value a semicolon is accepted: addresses and file names may contain one.
            let second = part.split(';').skip(1).map(|rest| rest.split('=').next().unwrap_or_default().trim());
            if let Some(key) = second.into_iter().find(|rest| option(rest).is_some()) {
                return Err(ConfigError::Separator(key.to_string()));
            }
            let (key, value) = part.split_once('=').map_or((part, ""), |(k, v)| (k.trim(), v.trim()));
            if option(key).is_none() {
                left_out.push(match (near(key), address.take()) {
                    (Some(known), _) => ConfigError::UnknownKey(format!("`{key}` (did you mean `{known}`?)")),
                    (None, Some(cut)) => {
                        if cut == "otlp" {
                            config.otlp = None
                        } else {
                            config.otlp_metrics = None
                        }
                        ConfigError::Comma(cut)
                    }
                    (None, None) => ConfigError::UnknownKey(format!("entry {}", at + 1)),
                });
                continue;
            }
            config.set(key, value)?;
            address = ["otlp", "otlp-metrics"].into_iter().find(|known| *known == key && !value.is_empty());
        }
        Ok((config, left_out))
    }

    /// Takes out what the build has no feature for.
    pub(crate) fn take_lacking(&mut self) -> Vec<ConfigError> {
        let lacking: Vec<&EnvOption> = OPTIONS.iter().filter(|option| option.is_lacking(self)).collect();
        lacking.iter().for_each(|option| (option.leave_out)(self));
        let mut features: Vec<&str> = lacking.iter().map(|option| option.feature).collect();
        features.dedup();
        features.into_iter().map(ConfigError::NotInThisBuild).collect()
    }

    /// Whether records go anywhere.
    pub(crate) fn has_destination(&self) -> bool {
        OPTIONS.iter().any(|option| option.is_destination && (option.asks)(self))
    }
}

/// The entries of the variable: joined by commas, except those that are written `\,`.
fn entries(text: &str) -> Vec<String> {
    let mut entries = vec![String::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let last = entries.len() - 1;
        match c {
            '\\' if rest.next_if_eq(&',').is_some() => entries[last].push(','),
            ',' => entries.push(String::new()),
            other => entries[last].push(other),
        }
    }
    entries
}

/// The known key that is almost this one: two letters more or less, and up to two others.
fn near(key: &str) -> Option<&'static str> {
    let is_word = key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let names = candlescope_core::nearest::nearest(key, OPTIONS.iter().map(EnvOption::key));
    let known = *names.first().filter(|_| is_word)?;
    let others = |a: &str, b: &str| a.chars().filter(|c| !b.contains(*c)).count();
    let is_near = key.len().abs_diff(known.len()) <= 2 && others(key, known) <= 2 && others(known, key) <= 2;
    is_near.then_some(known)
}

#[cfg(test)]
mod tests;
