//! Call stacks of the program's threads, sampled by the kernel's perf events or by timers and signals, and what the
//! threads do off the CPU.
//!
//! ```text
//!  perf/      one thread's events and buffer ─┐
//!  signals/   one thread's timer and slot ────┤ registers and 16 KiB of its stack
//!                                             ▼
//!  sampled_thread.rs ◄── sampling.rs finds threads (thread_list.rs)
//!          │ stack_books.rs
//!          ├─► stack_walk.rs     addresses, by the unwind tables of binary_file.rs, placed by memory_map.rs; through what
//!          │                     Python makes at run time by python_code.rs
//!          ├─► stack_tree.rs     one node for each stack
//!          └─► named_stacks.rs   delivers stacks and samples once symbol_thread.rs, or perf_map.rs of code that is in
//!                                no file, has named them
//! ```
//!
//! The threads that are sampled do as little as can be: the kernel, or the signal's handler, copies. Everything else happens
//! on the thread that polls, and on `cs-symbols`.

/// What samples: where it can.
macro_rules! here {
    ($($item:item)*) => {
        $(
            #[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
            $item
        )*
    };
}

/// What takes its place where it cannot.
macro_rules! elsewhere {
    ($($item:item)*) => {
        $(
            #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
            $item
        )*
    };
}

mod sampler;
mod stack_options;
mod stacks_probe;

#[doc(hidden)]
pub use sampler::{StackSampler, probe};
pub use stack_options::{SourceChoice, StackOptions};
#[doc(hidden)]
pub use stacks_probe::{SourceProbe, StackProbe};

elsewhere! {
    mod no_sampling;
}

here! {
    mod binary_file;
    mod function_name;
    mod memory_map;
    mod mode;
    mod named_stacks;
    mod perf;
    mod perf_map;
    mod python_code;
    mod sampled_thread;
    mod sampling;
    mod signals;
    mod stack_books;
    mod stack_tree;
    mod stack_walk;
    mod symbol_thread;
    mod sys;
    mod thread_list;
}
