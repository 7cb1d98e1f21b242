//! Single operations (GEMM, attention, normalisation, …) measured over shapes and types.
//!
//! Each one says what it is in a file of its own: inputs for a shape, an element type and a seed, its FLOPs and bytes
//! by formula, and one run of it through candle's operations, those that programs call.

mod attention;
mod conv2d;
mod element;
mod embedding;
mod error;
mod gemm;
mod inputs;
mod kernel;
mod list;
mod lstm;
mod norms;
mod quantised;
mod rotary;
mod sampling;
mod sizes;
mod softmax;

pub use element::Element;
pub use error::KernelError;
pub use inputs::Inputs;
pub use kernel::{Kernel, Prepared, Size, Work};
pub use list::{KernelCase, all, by_name, cases};
pub use sizes::{LARGEST, MOST_CASES, Shape, Sizes};
