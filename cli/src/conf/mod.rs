//! Configurations composed of groups, files, arguments and flags: `docs/configuration.md`.
//!
//! Every layer is a list of keys with values and where they come from. Later layers win: defaults, group files, the
//! file of `--config`, `--set` and `key=value`, flags.

mod compose;
mod groups;
mod keys;
pub(crate) mod multirun;
mod nearest;
mod origin;
mod print;
mod sweep;
mod text;

pub(crate) use compose::{Composed, Layers};

/// The text to continue unless told otherwise, as in `conf/dataset/default.toml`.
pub(crate) const DEFAULT_PROMPT: &str = "The lighthouse keeper opened the door and";
