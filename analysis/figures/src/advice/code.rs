//! The one list of what is looked for. `docs/findings.md` is made of it.

use serde::{Serialize, Serializer};
use std::fmt;

macro_rules! codes {
    ($($_of:ident { $(
        $(#[doc = $doc:literal])+ $name:ident = $rule:ident, $test:literal, $gain:literal;
    )+ })+) => {
        /// What a finding is about: its stable, machine-readable name.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum AdviceCode {
            $($($(#[doc = $doc])+ $name,)+)+
        }

        impl AdviceCode {
            /// Every code that this release reports.
            pub const ALL: &[AdviceCode] = &[$($(AdviceCode::$name,)+)+];

            /// Its name in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $($(AdviceCode::$name => stringify!($rule),)+)+ }
            }

            /// That of a name in JSON; `None` if there is none.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().find(|code| code.as_str() == name).copied()
            }

            /// What it means, in a sentence.
            pub fn meaning(self) -> &'static str {
                match self { $($(AdviceCode::$name => concat!($($doc,)+).trim(),)+)+ }
            }

            /// When it is reported.
            pub fn test(self) -> &'static str {
                match self { $($(AdviceCode::$name => $test,)+)+ }
            }

            /// Whether only the figures gain from it, and the program stays as fast.
            pub fn is_of_figures(self) -> bool {
                matches!(self, AdviceCode::WarmupUnsettled)
            }

            /// Whether other programs that use the machine can bring it about by themselves.
            pub fn may_be_of_the_machine(self) -> bool {
                use AdviceCode::{BetweenSteps, CacheCopied, Preempted, StragglerLayer, StragglerStep, WarmupUnsettled};
                let of_steps = matches!(self, StragglerLayer | StragglerStep | WarmupUnsettled | CacheCopied);
                of_steps || matches!(self, BetweenSteps | Preempted)
            }

            /// How its gain is computed.
            pub fn gain(self) -> &'static str {
                match self { $($(AdviceCode::$name => $gain,)+)+ }
            }
        }
    };
}

/// The one list of findings with gains, given to the macro named:
/// `Name = rule, "when it is reported", "how its gain is computed";` under what it means: those of steps, and those of
/// ranks beside each other. The rule is its name in JSON, and that of its files in `candlescope-findings` or
/// `candlescope-ranks`, and in `candlescope-report`, which make their lists of this one.
#[doc(hidden)]
#[macro_export]
#[rustfmt::skip]
macro_rules! each_advice {
    ($to:ident) => {
        $to! {
            of_steps {
                /// Operations take the same time whatever their size.
                ConstantCost = constant_cost,
                    "on a CPU, the line of products' time over their FLOPs meets the axis at 10 µs or more, half of their \
                     time and a quarter of a step; where RAYON_NUM_THREADS is known not to be set a twentieth, by what \
                     the program measured where it did",
                    "calls · that time · rate; where the variable is known not to be set, mid and high are all of it, or what \
                     samples have of asking for the number of cores, if that is more";
                /// The device waits for the host to launch work.
                LaunchBound = launch_bound,
                    "gaps whose launch returned after the kernel before had ended, less what recording adds to them, \
                     above 15 % of T",
                    "T − max(K + n·g, host work outside the graph), as one CUDA graph would run it, but no more than \
                     those gaps; high is what `--what-if graph` replays, mid and low the same with the device at 87.5 and \
                     75 % of its rate; of steps that cannot be replayed no more than these parts of the gaps";
                /// Steps that could have been replays of a CUDA graph ran call by call.
                LeftGraph = left_graph,
                    "some steps of a kind ran as replays, and others call by call, because their capture failed or they were \
                     the first of their shape; or graphs were asked for, and none of ten steps or more is one",
                    "their excess over the median replay; where there is no replay, what the step simulated as a graph takes less";
                /// What the host does while the device waits for launches, by whose code it is.
                HostOfLaunches = host_of_launches,
                    "a step that is launch-bound, with 100 samples of call stacks or more",
                    "of the unobserved step: low without allocation on the host, high as if of all that the host does only the \
                     driver's and cuBLAS's own work were left; mid half-way";
                /// Threads that launch at once wait for one another.
                ContendedLaunches = contended_launches,
                    "launching calls beside other threads' take twice as long as those alone, by their medians (or the quickest \
                     twentieth, where nearly none is alone), 10 % of a step or more in all, on a device that is idle for a fifth \
                     of the time",
                    "calls beside others · (their mean − the mean alone) · rate";
                /// Many kernels are so short that launching them costs more than running them.
                KernelCount = kernel_count,
                    "50 kernels or more a step, mean below 10 µs, and neighbours of one path that could be one kernel",
                    "fusing m neighbours: (m − 1)·max(launch, gap)";
                /// One operation is computed by several small kernels.
                Unfused = unfused,
                    "an interval launches two or more kernels itself that neither multiply matrices nor only move data",
                    "Σt − bytes in and out / bandwidth, or Σt − the longest of them where bytes are not stated";
                /// The host waits for the device and then lets it run dry.
                SyncDrain = sync_drain,
                    "a call that blocked, followed by an empty queue",
                    "start of the next launch − end of the call, within the step, while the device is idle";
                /// Copies run while no kernel does.
                ExposedCopy = exposed_copy,
                    "time of copies that is not under a kernel",
                    "the exposed part";
                /// The KV cache, or another tensor, is copied to grow.
                CacheCopied = cache_copied,
                    "step time grows with the context, which grew by half or more, by more than reading the cache explains",
                    "(slope − its 95 % error − slope of the reads) · mean context, at most what kernels that move data there take, \
                     or on a CPU with stacks what functions that copy tensors take, in 36 samples or more; low and high with \
                     twice the standard error of counting these";
                /// No KV cache: the whole text is processed again for each token.
                Recomputed = recomputed,
                    "decoding, the products by weights compute 16 rows a sequence or more, and half of the context or more",
                    "t·(1 − 1/rows), no shorter than reading the weights at a quarter (low) to all (high) of the memory's rate";
                /// Reading the KV cache is far from the memory's rate.
                KvBandwidth = kv_bandwidth,
                    "KV bytes / (time of attention · bandwidth) below 60 %",
                    "t·(1 − eff/rate)";
                /// Weights are read at nearly the memory's rate: only fewer bytes make it faster.
                WeightStreaming = weight_streaming,
                    "weight bytes / (time of the operations that read them · bandwidth) of 50 % or more, decoding; on a CPU of 25 % \
                     where one thread of several computes, and of 16 MiB a step or more",
                    "quantising: t·(1 − b′/b), to 8 bits (low, mid) or 4.5 bits a weight (high)";
                /// An operation is far below what the device can do.
                BelowRoof = below_roof,
                    "achieved / attainable(intensity) below 50 %; on a CPU not of products with a constant cost",
                    "share·(1 − eff/rate), no shorter than a kernel can be";
                /// A kernel's last wave of blocks leaves most of the device idle.
                WaveTail = wave_tail,
                    "w/⌈w⌉ below 80 %, w = grid / (processors · blocks a processor), from more than one wave on",
                    "(1 − w/⌈w⌉)·t";
                /// The device runs at a lower clock than it could.
                ClocksLow = clocks_low,
                    "clock of the processors below 75 % of its highest, or lowered for power or heat",
                    "compute-bound share·(1 − f/f_max)";
                /// Memory is allocated on the critical path.
                Allocator = allocator,
                    "allocating calls on the critical path",
                    "the part on the critical path";
                /// Padding and ended sequences are computed.
                Padding = padding,
                    "1 − Σ new tokens / Σ computed tokens",
                    "that share of the device's time";
                /// Prompts begin alike, and what they share is computed again for each.
                PrefixRecomputed = prefix_recomputed,
                    "prompts of a data set that begin with 16 tokens or more that a slot could hold from a prompt before",
                    "the shared part of the tokens that are passed, of the time of prefill steps";
                /// Choosing the next token takes long on the host.
                HostSampling = host_sampling,
                    "host time of the phase `sample` that does not wait for the device",
                    "the part of it in which the device is idle";
                /// The host works between the steps of a request: tokenising, detokenising, printing.
                BetweenSteps = between_steps,
                    "time of requests from their first step on in which no step is open, their own or another's, by \
                     the median of these gaps",
                    "that time / (step + that time)";
                /// Single layers take longer than their siblings.
                StragglerLayer = straggler_layer,
                    "mean time of a layer above the median of its siblings + 3 IQR, and 10 % above the median",
                    "its excess over the median";
                /// Single steps take much longer than the others.
                StragglerStep = straggler_step,
                    "steps above the median + 3 IQR of those like them (with recorded kernels or without, of about the \
                     same length), the growth with the context taken out; the first ones of a run are warm-up",
                    "their excess over the median";
                /// Values are converted to a wider type and back.
                Upcast = upcast,
                    "kernels that convert element types",
                    "their time, and their launches";
                /// Kernels only move data in the device's memory.
                DataMovement = data_movement,
                    "kernels that copy, concatenate or make a layout contiguous",
                    "their time, and their launches";
                /// Weights are expanded at every step.
                Dequantise = dequantise,
                    "kernels that turn quantised weights into floating point",
                    "their time, and their launches";
                /// Measured steps still get faster: the warm-up was too short.
                WarmupUnsettled = warmup_unsettled,
                    "the first measured steps are slower than the later ones, by their rolling median or each by itself \
                     (above the median + 3 IQR)",
                    "what the figures lose once they are left out; the program itself gains nothing";
                /// Functions that compute nothing take a large part of a step on the host.
                HotOverhead = hot_overhead,
                    "sampled time, on the CPU and waiting, below functions of one known cause is 5 % of a step or more, in \
                     36 samples and waits or more, from which on twice its standard error is at most a third of it: the \
                     number of threads being asked for, a pool's synchronisation without what the pool was given to \
                     compute, allocation, copies, formatting, hashing, the environment",
                    "that time; of a pool's synchronisation less what its threads computed meanwhile, which one thread \
                     would do then; low and high with twice the standard error of counting samples; of asking for the number \
                     of threads mid and high are all of it";
                /// Other threads take the CPU while a step is ready to go on.
                Preempted = preempted,
                    "time that the step's thread was ready and off its CPU, 3 % of the step or more",
                    "that time: mid and high all of it, low 75 %";
                /// The thread of a step waits for something that is no thread of a pool.
                Blocked = blocked,
                    "time that the step's thread waited, on a CPU, less what a pool's synchronisation explains: 5 % of the \
                     step or more; where waits were recorded a part of the time only, as many of them as would tell as \
                     much as 36 samples or more",
                    "that time; low and high with twice the standard error of counting the waits of a part; high with what the first of the step's layers takes beyond the others, if it takes longer than \
                     each of these and the wait is outside of them";
                /// Memory is taken from the system and given back again and again.
                PageFaults = page_faults,
                    "page faults × what one takes here (measured) and sampled time in calls for memory; where samples see the \
                     kernel, sampled time in it below functions that call it for memory or did not call it, if that is more: \
                     5 % of the step or more, and 10 faults a step or more; sampled time in 36 samples or more counts",
                    "that time; low three quarters of it; low and high with twice the standard error of counting samples; high \
                     with what the pages, zeroed, put out of the caches, at the \
                     memory's rate";
                /// One thread computes while those of the pool wait.
                SerialPart = serial_part,
                    "on a CPU with two or more threads to compute: sampled time on the CPU in operations of 100 µs or more a \
                     call for which the pool's threads compute less than a tenth of what they could, no known cause's, 15 % \
                     of the step or more, in 36 samples or more",
                    "that time·(1 − 1/k), no shorter than the memory's rate allows; k the threads of which half, three \
                     quarters or all help";
                /// Threads of the CPU wait.
                ThreadsWait = threads_wait,
                    "CPU time of the process / (wall time · processors, or RAYON_NUM_THREADS if that is less) below 75 %, \
                     on a CPU, and no constant cost",
                    "at most 1 − that use";
            }
            of_ranks {
                /// One rank is slower than the others in most steps, and they wait for it.
                StragglerRank = straggler_rank,
                    "the own time of one rank is the longest in more than 60 % of the steps, which chance does less often \
                     than once in a thousand, and longer than the others' by more than 3 % of a step",
                    "what it takes longer than the slowest of the others; low with the steps in which it was quicker taken off";
                /// Ranks take different times, now this one and then that one longer.
                RankImbalance = rank_imbalance,
                    "the own time of each step's slowest rank is above the mean by more than 3 % of a step, and it is no \
                     straggler's",
                    "that difference; low only what ranks differ by on average over all steps, which other shares of the work \
                     would take away";
                /// Steps wait for data on its way between ranks.
                ExposedCommunication = exposed_communication,
                    "transfers that nothing hides take more than 3 % of a step, by kernels of all ranks, or where hosts compute",
                    "what they take, as far as it can be hidden or saved: 75, 87.5 and 100 % of it";
                /// The link between ranks carries less than it can.
                BusBandwidth = bus_bandwidth,
                    "operations of 8 MiB and more reach less than half of NVLink's rate (bus bandwidth as in nccl-tests), on \
                     one machine",
                    "not stated: what hides these operations is not told apart from what hides others";
            }
        }
    };
}

each_advice!(codes);

impl fmt::Display for AdviceCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for AdviceCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

macro_rules! lacks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal, $what:literal, $record:literal;)+) => {
        /// What a run lacks to judge something.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum Missing {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Missing {
            /// Everything that may be missing.
            pub const ALL: &[Missing] = &[$(Missing::$name,)+];

            /// Its name in JSON.
            pub fn as_str(self) -> &'static str {
                match self { $(Missing::$name => $text,)+ }
            }

            /// What is missing, in a clause that reports give as the reason.
            pub fn what(self) -> &'static str {
                match self { $(Missing::$name => $what,)+ }
            }

            /// How to record it.
            pub fn record(self) -> &'static str {
                match self { $(Missing::$name => $record,)+ }
            }
        }
    };
}

lacks! {
    /// Kernels of these steps.
    Kernels = "kernels", "no kernels were recorded in these steps",
        "record some: `candlescope profile --device cuda:0 --cupti`, or `cupti` in the variable CANDLESCOPE";
    /// Launch calls.
    LaunchCalls = "launch_calls", "the calls that launched the kernels were not recorded",
        "record kernels with candlescope's own recorder (`--cupti`)";
    /// Clocks that can be compared.
    CommonClock = "common_clock", "the clocks of host and device cannot be compared closely enough",
        "record again on a machine at rest; `run.json`, `gpu.kernels.clock_bound_ns`, says how far apart they are";
    /// FLOPs or bytes of the operations.
    Work = "work", "the operations do not state their FLOPs and bytes",
        "use `candlescope-models`, name candle's modules while they load, or annotate spans";
    /// Peaks of the device.
    Peaks = "peaks", "neither measured peaks nor a datasheet's are known for this device",
        "measure them once: `candlescope bench peaks`";
    /// Different contexts.
    Contexts = "contexts", "the decoding steps' contexts differ too little, or are not stated",
        "generate more tokens, or mark phases with their context";
    /// Blocks that fit a processor at once, and processors.
    Processors = "processors", "the number of the device's multiprocessors, or how much one holds, is not known",
        "sample the device: `candlescope profile` does with NVML, see `candlescope doctor`";
    /// Samples of the device's clocks.
    ClockSamples = "clock_samples", "the device's clocks were not sampled",
        "sample them: `candlescope profile` does with NVML, see `candlescope doctor`";
    /// The highest clock.
    HighestClock = "highest_clock", "the device's highest clock is not known, and no reason for lower clocks was seen",
        "sample the device with NVML, which tells it, or lock the clocks (`nvidia-smi --lock-gpu-clocks`)";
    /// Call stacks.
    Stacks = "stacks", "no call stacks were sampled in these steps",
        "sample them: `candlescope profile` does on Linux, elsewhere `stacks` in the variable CANDLESCOPE; `candlescope \
         doctor` says what this machine allows";
    /// More call stacks.
    MoreStackSamples = "more_stack_samples",
        "fewer than 36 samples of call stacks, or of waits, tell of what seems to take long, too few to say how long",
        "record for longer: more requests, or more tokens";
    /// Calls that allocate.
    AllocatorCalls = "allocator_calls", "calls that allocate are not recorded, only calls that launch",
        "none yet: Nsight Systems shows them (`nsys profile --trace=cuda`)";
    /// New tokens beside computed ones.
    NewTokens = "new_tokens", "steps of a batch do not say how many of their tokens are new",
        "give `Tokens::new_tokens` with the phase";
    /// The phase `sample`.
    SamplePhase = "sample_phase", "sampling is in no interval of its own",
        "mark it: `llm::sample()`";
    /// Requests with all their steps.
    WholeRequests = "whole_requests", "no request has a record with all its steps",
        "mark requests, and record every step";
    /// Layers that can be told apart.
    Layers = "layers", "no intervals are numbered siblings",
        "record a model whose blocks have spans";
    /// Enough layers.
    MoreLayers = "more_layers", "fewer than six numbered siblings have no spread",
        "nothing: the model has too few layers to compare";
    /// Enough steps.
    Steps = "steps", "there are too few steps of about the same length to have a spread",
        "generate more tokens";
    /// Use of the processors.
    CpuSamples = "cpu_samples", "the use of the processors was not sampled, or their number is not known",
        "turn on the host collector; `candlescope profile` has it";
    /// More samples of it.
    MoreCpuSamples = "more_cpu_samples", "fewer than five samples of the processors' use fall into steps",
        "record for longer: more requests, or more tokens";
    /// Processors that others left.
    FreeProcessors = "free_processors", "other programs left no processor that could have waited",
        "end them, or record again on a machine at rest";
}
