//! Decoding of fixed shape: several sequences, each in a slot, advanced together by a step that is the same calls whatever
//! their positions are. On a GPU such a step can be captured once, as a CUDA graph, and replayed: the device then takes its
//! kernels without waiting for the host to launch each.
//!
//! Keys and values of all slots are allocated when the decoder is made. A step takes one token of each of the first slots,
//! as many as the smallest bucket (`slots/buckets.rs`) that holds those in use; a slot that is idle is computed with the others, and
//! writes nothing.

mod batcher;
mod buckets;
mod continuous;
mod decoder;
#[cfg(not(feature = "cuda"))]
#[path = "slots/no_graphs.rs"]
mod graphs;
#[cfg(feature = "cuda")]
mod graphs;
mod kv_memory;
#[cfg(all(test, feature = "cuda"))]
mod near_ties;
mod one_request;
mod room;
mod slot_options;
#[cfg(feature = "cuda")]
mod sys;

#[doc(hidden)]
pub use crate::slot_model::Capturable;
pub use crate::slot_model::{EagerCause, SlotModel};
pub use batcher::{Batcher, BatcherOptions, Job, Receive};
#[doc(hidden)]
pub use continuous::{ContinuousRequest, generate_continuously};
pub use decoder::SlotDecoder;
pub use graphs::capturable_device;
pub use kv_memory::KvCollector;
pub(crate) use one_request::OneRequest;
pub use slot_options::{SlotOptions, SlotStepRun};
