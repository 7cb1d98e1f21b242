//! The small fixed sets of words that records use: phases, element types, shapes, sources of GPU time.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Name of the interval that launches a step as a CUDA graph, as the layers of `candlescope-models` call it.
pub const CUDA_GRAPH: &str = "cuda_graph";

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $word)] $variant),+ }

        impl $name {
            /// Every value, in order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word as it is written in records and exports.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }

            /// The value with this word; `None` for any other word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)+ _ => None }
            }

            /// The value with this discriminant.
            pub fn from_index(index: u8) -> Option<Self> {
                Self::ALL.get(index as usize).copied()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.pad(self.as_str()) }
        }
    };
}

words! {
    /// Phase of LLM inference that a step or an interval belongs to.
    Phase {
        /// Processing of the prompt, up to and including the first output token.
        Prefill = "prefill",
        /// Generation of one output token for each sequence.
        Decode = "decode",
        /// Choice of the next token from the logits.
        Sample = "sample",
        /// A forward pass that generates nothing, such as an embedding model's.
        Encode = "encode",
        /// A pass through a model's vision tower, whose output a decoder reads.
        Vision = "vision",
    }
}

words! {
    /// How a request ended, as the program says.
    Outcome {
        /// It got what it asked for.
        Done = "done",
        /// Nobody waits for it any more: its caller left, or it was withdrawn.
        Cancelled = "cancelled",
        /// It could not be answered.
        Failed = "failed",
    }
}

/// For `Request::outcome` of the markers, whose crate knows no records.
impl From<Outcome> for candlescope_markers::Outcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::Done,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Failed => Self::Failed,
        }
    }
}

words! {
    /// Element type of an operation's weights or data.
    DType {
        /// 64-bit floating point.
        F64 = "f64",
        /// 32-bit floating point.
        F32 = "f32",
        /// 16-bit floating point.
        F16 = "f16",
        /// bfloat16.
        BF16 = "bf16",
        /// 8-bit floating point, e4m3.
        F8E4M3 = "f8e4m3",
        /// 8-bit unsigned integer.
        U8 = "u8",
        /// 16-bit signed integer.
        I16 = "i16",
        /// 32-bit signed integer.
        I32 = "i32",
        /// 32-bit unsigned integer.
        U32 = "u32",
        /// 64-bit signed integer.
        I64 = "i64",
        /// GGML 4-bit, with scale.
        Q4_0 = "q4_0",
        /// GGML 4-bit, with scale and minimum.
        Q4_1 = "q4_1",
        /// GGML 5-bit, with scale.
        Q5_0 = "q5_0",
        /// GGML 5-bit, with scale and minimum.
        Q5_1 = "q5_1",
        /// GGML 8-bit, with scale.
        Q8_0 = "q8_0",
        /// GGML 8-bit, with scale and sum.
        Q8_1 = "q8_1",
        /// GGML k-quant, 2 bits.
        Q2K = "q2k",
        /// GGML k-quant, 3 bits.
        Q3K = "q3k",
        /// GGML k-quant, 4 bits.
        Q4K = "q4k",
        /// GGML k-quant, 5 bits.
        Q5K = "q5k",
        /// GGML k-quant, 6 bits.
        Q6K = "q6k",
        /// GGML k-quant, 8 bits.
        Q8K = "q8k",
        /// Any type that has no name here.
        Other = "other",
    }
}

impl DType {
    /// Whether it is a block format of GGML, whose values are never multiplied in the form in which they are stored.
    pub const fn is_quantised(self) -> bool {
        use DType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Q8_1, Q8K};
        matches!(self, Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 | Q8_1 | Q2K | Q3K | Q4K | Q5K | Q6K | Q8K)
    }
}

words! {
    /// Where work is done.
    Side {
        /// On the host, by the program's threads.
        Host = "host",
        /// On a device, by what they launch.
        Device = "device",
    }
}

words! {
    /// What measured an interval's GPU time.
    GpuSource {
        /// CUDA events on the stream: elapsed between the marks, queue gaps included ("stream elapsed").
        Event = "event",
        /// Sum of the kernels launched inside the interval, as CUPTI saw them.
        Cupti = "cupti",
    }
}

words! {
    /// How a step ran, where the program says it.
    Ran {
        /// As one launch of a CUDA graph that was captured before.
        Replay = "replay",
        /// Call by call: graphs were not asked for.
        NotAsked = "not_asked",
        /// Call by call, as the first steps of a shape do.
        WarmUp = "warm_up",
        /// Call by call: the device, or the build, has no graphs.
        NoDevice = "no_device",
        /// Call by call: the stream cannot be captured.
        Stream = "stream",
        /// Call by call: its capture failed, or its graph could not be launched.
        CaptureFailed = "capture_failed",
        /// Call by call: weights are quantised, and candle frees memory that a graph of them would use.
        Quantized = "quantized",
        /// Call by call: the model cannot be captured.
        Model = "model",
    }
}

words! {
    /// What a thread did at a time.
    ThreadState {
        /// It was on a CPU.
        Running = "running",
        /// It waited: for a lock, another thread, a file, a device.
        Blocked = "blocked",
        /// It was ready, but another thread had the CPU.
        Preempted = "preempted",
    }
}

words! {
    /// Which intervals get GPU time.
    GpuTier {
        /// No intervals: nothing is marked on the device.
        Off = "off",
        /// Steps only.
        Steps = "steps",
        /// Steps, and below them the intervals that have others inside, down to the first that repeats: the blocks of a
        /// model.
        Blocks = "blocks",
        /// Every interval, each with two marks on the device.
        All = "all",
        /// Every interval of one step in N, and of the other steps only the step itself. N is chosen so that the
        /// measured cost stays within the budget.
        Adaptive = "adaptive",
    }
}

words! {
    /// What ran on the device.
    KernelKind {
        /// A kernel, launched alone or by a graph.
        Kernel = "kernel",
        /// A copy: within a device, between devices, from or to the host.
        Memcpy = "memcpy",
        /// Setting memory to a value.
        Memset = "memset",
    }
}

/// A tensor shape of at most [`Shape::MAX_RANK`] dimensions, stored inline so that it can be recorded without
/// allocating.
///
/// ```
/// # mod candlescope { pub use candlescope_schema as sdk; }
/// use candlescope::sdk::Shape;
/// let shape = Shape::new(&[1, 5, 576]);
/// assert_eq!(shape.to_string(), "1x5x576");
/// assert_eq!("1x5x576".parse::<Shape>().unwrap(), shape);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dims: [u32; Shape::MAX_RANK],
    rank: u8,
}

impl Shape {
    /// Dimensions kept; if there are more, the last ones are folded into one.
    pub const MAX_RANK: usize = 4;

    /// No dimensions: the shape of a scalar.
    pub const EMPTY: Self = Self { dims: [0; Self::MAX_RANK], rank: 0 };

    /// A shape from its dimensions, outermost first. Dimensions over `u32::MAX` saturate.
    #[inline]
    pub fn new(dims: &[usize]) -> Self {
        let mut shape = Shape::default();
        for (i, &dim) in dims.iter().enumerate() {
            let dim = u32::try_from(dim).unwrap_or(u32::MAX);
            if i < Self::MAX_RANK {
                shape.dims[i] = dim;
                shape.rank = i as u8 + 1;
            } else {
                let last = &mut shape.dims[Self::MAX_RANK - 1];
                *last = last.saturating_mul(dim);
            }
        }
        shape
    }

    /// The dimensions, outermost first.
    pub fn dims(&self) -> &[u32] {
        &self.dims[..self.rank as usize]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, dim) in self.dims().iter().enumerate() {
            if i > 0 {
                f.write_str("x")?;
            }
            write!(f, "{dim}")?;
        }
        Ok(())
    }
}

/// The text is not dimensions joined by `x`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a shape such as 1x5x576")]
pub struct ParseShapeError(String);

impl std::str::FromStr for Shape {
    type Err = ParseShapeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let dims: Result<Vec<usize>, _> = text.split('x').map(|d| d.trim().parse::<usize>()).collect();
        match dims {
            Ok(dims) => Ok(Shape::new(&dims)),
            Err(_) => Err(ParseShapeError(text.to_string())),
        }
    }
}
