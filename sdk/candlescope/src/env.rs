//! The environment variable `CANDLESCOPE`.

mod declare;
mod options;
mod read;

#[doc(hidden)]
pub use declare::EnvOption;
pub use options::EnvConfig;
#[doc(hidden)]
pub use options::OPTIONS;

/// Name of the environment variable.
pub const VARIABLE: &str = "CANDLESCOPE";

/// The value of `CANDLESCOPE` is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A key that does not exist. The text says which entry it is; what stands there is shown only if it is almost a
    /// known key, because it may be part of a password.
    #[error("{VARIABLE}: {0} is not known (a comma inside a value is written `\\,`); known are {known}", known = known())]
    UnknownKey(String),
    /// What stands behind an address is no key: the address has a comma in it.
    #[error(
        "{VARIABLE}: what follows `{0}` is no known key, so its address seems to hold a comma: write it as `\\,`; `{0}` is left out, and nothing is sent to an address cut short"
    )]
    Comma(&'static str),
    /// A key without the value that it needs, or with an impossible value.
    #[error("{VARIABLE}: `{key}` wants {wanted}{}", not(value))]
    Value {
        /// The key.
        key: &'static str,
        /// What values it accepts.
        wanted: &'static str,
        /// The value that was given.
        value: String,
    },
    /// Keys are joined by something other than commas.
    #[error("{VARIABLE}: keys are joined by commas, but `{0}` stands behind a semicolon")]
    Separator(String),
    /// The build lacks a feature that the key needs.
    #[error(
        "{VARIABLE}: `{0}` needs the feature `{0}` of the crate candlescope, which this build lacks; enable it and rebuild"
    )]
    NotInThisBuild(&'static str),
}

/// Every option, in the first of its forms.
fn known() -> String {
    OPTIONS.iter().filter_map(|option| option.forms.first().copied()).collect::<Vec<_>>().join(", ")
}

/// The rest of a message that says which value was given instead, if any was and it can be no part of an address, which
/// may hold a password with a comma.
fn not(value: &str) -> String {
    if value.is_empty() || value.contains('@') { String::new() } else { format!(", not `{value}`") }
}

/// The option with this key.
fn option(key: &str) -> Option<&'static EnvOption> {
    OPTIONS.iter().find(|option| option.key() == key)
}

impl EnvConfig {
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
