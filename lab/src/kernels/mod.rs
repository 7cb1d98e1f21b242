//! Single operations (GEMM, attention, normalisation, …) measured over shapes and types.
//!
//! Each one says what it is in a file of its own: inputs for a shape, an element type and a seed, its FLOPs and bytes
//! by formula, and one run of it through candle's operations, those that programs call.

mod attention;
mod conv2d;
mod elementwise;
mod embedding;
mod gemm;
mod grouped;
mod kernel;
mod kernel_error;
mod kernel_table;
mod list;
mod lstm;
mod norms;
mod page;
mod quantised;
mod recording;
mod rotary;
mod run;
mod sampling;
mod sizes;
mod softmax;

pub use kernel::{Kernel, PreparedKernel, Size, Work};
pub use kernel_error::KernelError;
pub use kernel_table::{STREAM_ELAPSED, TABLE_NAME, table, write};
pub use list::{KernelCase, all, by_name, cases};
pub use recording::{KernelTimes, kernel_times};
pub use run::{RunOptions, case_id, engine_cases};
pub use sizes::{LARGEST, MOST_CASES, Shape, Sizes};
