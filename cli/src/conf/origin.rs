//! Where a value comes from.

use std::fmt;
use std::path::PathBuf;
use toml::Value;

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// What the program does unless told otherwise.
    Default,
    /// A line of a file.
    File { path: PathBuf, line: usize },
    /// A line of a file that is part of the program.
    BuiltIn { group: &'static str, name: &'static str, line: usize },
    /// `--set KEY=VALUE` on the command line.
    Set,
    /// `key=value` on the command line.
    Argument,
    /// The flag of this name.
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::BuiltIn { group, name, line } => write!(f, "built-in conf/{group}/{name}.toml:{line}"),
            Self::Set => f.write_str("--set"),
            Self::Argument => f.write_str("command line"),
            Self::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A value and its origin.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setting {
    pub(crate) value: Value,
    pub(crate) origin: Origin,
}
