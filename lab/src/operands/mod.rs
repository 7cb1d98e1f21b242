//! What operations work on: element types, and random tensors of them.

mod element;
mod inputs;

pub use element::Element;
pub use inputs::Inputs;
