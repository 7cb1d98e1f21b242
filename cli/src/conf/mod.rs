//! Configurations composed of groups, files, arguments and flags: `docs/configuration.md`.
//!
//! Every layer is a list of keys with values and where they come from. Later layers win: defaults, group files, the
//! file of `--config`, `--set` and `key=value`, flags.

mod compose;
mod declared;
mod flags;
mod groups;
mod key;
mod keys;
pub(crate) mod multirun;
mod nearest;
mod origin;
#[cfg(test)]
mod pages;
mod print;
mod sweep;
mod text;

pub(crate) use compose::{Composition, Layers};
pub(crate) use declared::{DatasetOptions, ProfileChoices, ProfilingOptions};
pub(crate) use flags::Flags;
#[cfg(feature = "lab")]
pub(crate) use flags::group_of;
#[cfg(feature = "lab")]
pub(crate) use keys::is_private;

/// The text to continue unless told otherwise, as in `conf/dataset/default.toml`.
pub(crate) const DEFAULT_PROMPT: &str = "The lighthouse keeper opened the door and";
