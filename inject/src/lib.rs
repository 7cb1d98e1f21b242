//! Records programs that do not link candlescope. NVIDIA's driver loads this library into a CUDA program where
//! `CUDA_INJECTION64_PATH` names it, and NVTX where `NVTX_INJECTION64_PATH` does; `candlescope record` sets both. A
//! part of candlescope, which may change with every release.
//!
//! | file | does |
//! |---|---|
//! | `sys` | what the driver and NVTX call, and the end of the process |
//! | `recording` | the session of this process: when it starts and ends |
//! | `claim`, `forks` | what the command says of it, and whose it is; processes that are forked from it |
//! | `problems` | what went wrong in it |
//! | `ranges` | NVTX ranges of a thread, as intervals |
//! | `registered` | texts that a program has made known for them |
//! | `start_end` | those that began by a start and are open: they may end on another thread |
//! | `program`, `patterns` | steps of work outside of ranges; those that repeat |
//! | `program::inside`, `step_names` | the same inside of a range that stays open; what they are called |
//! | `model` | what steps do, where the user says which language model it is |
//! | `windows` | windows of kernels by time |
//! | `lacking` | what is said of options that the library was built without |
//! | `names`, `open` | what a range is called, and what it means; how many are open |
//! | `operator_sizes` | what an operator of PyTorch does, by the sizes in its name |
//!
//! The program is somebody else's: nothing unwinds into it, its output streams are left alone but for one line where
//! what was asked for is not understood, and a run that cannot be written ends the recording, not the program.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod claim;
mod forks;
mod inside_of_ranges;
mod lacking;
mod model;
mod names;
mod open;
mod operator_sizes;
mod patterns;
mod problems;
mod program;
mod ranges;
mod recording;
mod registered;
mod start_end;
mod step_names;
#[cfg(unix)]
mod sys;
mod windows;
