//! What the measuring programs share. Each figure is a program of its own in `src/bin`; `docs/measurements/` says how
//! they are taken and has the results and the hardware.
//!
//! | program | question |
//! |---|---|
//! | `overhead` | what does one enter+exit cost, beside peers? |
//! | `throughput` | how many intervals per second can the background threads process on one core? |
//! | `decode` | how much slower does a real model decode with everything recorded? |
//! | `stacks_cost` | what does sampling of call stacks cost a real model's decoding? |
//! | `tensor_parallel` | who waits for whom, of ranks that share layers? |
//! | `soak` | does memory stay flat, and is every record accounted for, over a long run? |
//! | `summary` | all of it in one table and one file |

pub mod account;
pub mod alloc;
pub mod cases;
pub mod host_reduce;
pub mod machine;
#[cfg(feature = "model")]
pub mod model;
pub mod output;
pub mod pace;
pub mod process;
pub mod slowing;
pub mod stats;
pub mod work;
