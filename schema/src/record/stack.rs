//! Call stacks of the program's threads, and the samples that have them.

use crate::record::{PathInfo, ThreadInfo};
use crate::vocabulary::{Phase, ThreadState};
use crate::{HostNs, table::record};
use std::sync::Arc;

record! {
    [$] each_stack
    /// One call stack, as its innermost frame and the stack that called it: stacks that begin alike share their outer
    /// frames. Walk `parent` from a sample's stack to the thread's entry point.
    StackRecord, Stack, Stacks {
        /// Number of the stack, unique in the run and greater than its caller's; joins stack_samples.stack.
        stack: u64 => Int,
        /// The stack of the caller; null for the outermost frame.
        parent: Option<u64> => Int,
        /// Frames outside this one.
        depth: u16 => Narrow,
        /// Demangled name of the innermost function; null where the binary has no name for the address.
        function: Option<Arc<str>> => Text,
        /// Rust crate of the function, by its name; null for functions of other languages.
        crate_name: Option<Arc<str>> => Text "crate",
        /// Source file, where the binary has debug information.
        file: Option<Arc<str>> => Text,
        /// Line in that file.
        line: Option<u32> => Int,
        /// File name of the binary or library; vdso or unknown, in square brackets, otherwise.
        binary: Arc<str> => Text,
        /// Its GNU build id, in hexadecimal.
        build_id: Option<Arc<str>> => Text,
        /// Address in the binary as its symbols count; of an address outside all binaries, the address itself.
        address: u64 => Int,
        /// Whether the function was inlined into the one that called it.
        inlined: bool => Narrow,
    }
}

record! {
    [$] each_stack_sample
    /// Time of one thread, sampled while it was on a CPU, or measured while it was not.
    StackSampleRecord, StackSample, StackSamples {
        /// When the sample was taken, or the time off the CPU began, nanoseconds since the Unix epoch.
        time: HostNs => Int "time_ns",
        /// Name of the thread.
        thread: Arc<ThreadInfo> => Thread,
        /// The operating system's number of the thread.
        tid: u64 => Int,
        /// running: on a CPU, sampled; blocked: waiting; preempted: ready, but another thread had the CPU.
        state: ThreadState => Word,
        /// Time that the row stands for, nanoseconds: of the thread's CPU clock if it was running, else of the host's.
        weight_ns: u64 => Int,
        /// Its call stack; joins stacks.stack. Null where it is not known.
        stack: Option<u64> => Int,
        /// Whether the thread was in the operating system's kernel, called by the innermost function of its stack; null
        /// where that is not known.
        kernel: Option<bool> => Narrow,
        /// seq of the innermost interval open on the thread, or, where `pool` says so, of the interval that the thread
        /// computed for; joins spans.seq.
        seq: Option<u64> => Int,
        /// Step of that interval.
        step: Option<u64> => Int,
        /// Phase of that interval: prefill, decode, sample, encode or vision; null outside a marked phase.
        phase: Option<Phase> => Word,
        /// Path and module of that interval.
        path: Option<Arc<PathInfo>> => Launcher,
        /// Whether the interval is another thread's, which waited for this one as one of a pool.
        pool: bool => Narrow,
    }
}

impl StackRecord {
    /// A stack of one frame that has no name.
    pub fn new(stack: u64, parent: Option<u64>, depth: u16, binary: impl Into<Arc<str>>, address: u64) -> Self {
        Self {
            stack,
            parent,
            depth,
            function: None,
            crate_name: None,
            file: None,
            line: None,
            binary: binary.into(),
            build_id: None,
            address,
            inlined: false,
        }
    }

    /// What it is called: its function, or its binary in brackets where that has no name for it.
    ///
    /// ```
    /// use candlescope_schema::StackRecord;
    /// let mut frame = StackRecord::new(1, None, 0, "libgomp.so.1", 0x1d);
    /// assert_eq!(&*frame.name(), "[libgomp.so.1]");
    /// frame.function = Some("gomp_barrier_wait".into());
    /// assert_eq!(&*frame.name(), "gomp_barrier_wait");
    /// assert_eq!(&*StackRecord::new(1, None, 0, "[vdso]", 0x1d).name(), "[vdso]");
    /// ```
    pub fn name(&self) -> Arc<str> {
        match &self.function {
            Some(function) => function.clone(),
            None if self.binary.starts_with('[') => self.binary.clone(),
            None => format!("[{}]", self.binary).into(),
        }
    }
}

/// Name of time in the operating system's kernel, below the function that called it: of the kernel's own functions there
/// are no frames.
pub const KERNEL_FRAME: &str = "[kernel]";

impl StackSampleRecord {
    /// A sample outside all intervals, without a stack.
    pub fn new(time: HostNs, thread: Arc<ThreadInfo>, state: ThreadState, weight_ns: u64) -> Self {
        let tid = thread.os_id;
        Self {
            time,
            thread,
            tid,
            state,
            weight_ns,
            stack: None,
            kernel: None,
            seq: None,
            step: None,
            phase: None,
            path: None,
            pool: false,
        }
    }
}
