//! Which module of a model a span stands for, found out while the model loads.
//!
//! candle's layers make their span beside the place where they load their weights. Whoever loads weights tells their
//! names ([`loaded`]); the layer of a session asks for the module when one of candle's spans is made. What such a
//! span has to do with the weights read around it differs from callsite to callsite: `rules` has the table.
//!
//! Nothing of this is on the hot path: a span's module is part of its interned name.

mod architecture;
mod books;
mod candle_version;
mod cost;
mod hf_config;
mod loading;
mod model_facts;
mod module;
pub(crate) mod rules;
mod slot;
pub(crate) mod table;
mod watch;

#[doc(hidden)]
pub use books::architecture;
pub(crate) use books::claim;
pub use books::{begin_loading, loaded, model};
pub(crate) use candle_version::{note as note_candle_version, seen as seen_candle_version};
pub(crate) use candlescope_work::family::{AttentionScope, Rows};
pub(crate) use cost::{StepWork, activation_width};
pub use hf_config::ConfigUnreadable;
pub(crate) use module::{Attention, Module, Operation, Weight};
pub(crate) use module::{common, parent};
pub(crate) use slot::Slot;
pub(crate) use watch::Watch;
