//! What can be wrong with a kernel's case.

/// A kernel, its sizes or its element type cannot be used as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "its messages say what the fields are")]
pub enum KernelError {
    /// There is no kernel of that name.
    #[error("kernel `{name}` is not known; kernels are {known}")]
    Unknown { name: String, known: String },
    /// A part of the sizes cannot be read.
    #[error(
        "sizes `{part}` cannot be read: write NAME=VALUES, separated by `;`, with values like 1,16,256 or 128-1024*2 \
         or 64-256+64, each from 1 to 16777216"
    )]
    Sizes { part: String },
    /// The sizes make too many cases.
    #[error("the sizes of {kernel} make {cases} cases, and {most} is the most: name fewer values")]
    TooMany { kernel: &'static str, cases: usize, most: usize },
    /// None of the kernels asked for has a size of that name.
    #[error("size `{name}` is not one of {kernel}'s, which are {known}")]
    UnknownSize {
        name: String,
        /// The kernels asked for.
        kernel: String,
        known: String,
    },
    /// The kernel does not run in that type.
    #[error("{kernel} cannot run in {element}: name a type among {known}")]
    Element {
        kernel: &'static str,
        /// The type asked for.
        element: String,
        /// Types it runs in.
        known: String,
    },
    /// The sizes do not fit each other.
    #[error("{kernel} cannot run at {shape}: {why}")]
    Shape {
        kernel: &'static str,
        shape: String,
        /// What does not fit.
        why: &'static str,
    },
    /// candle refused the operation or ran out of memory.
    #[error("{kernel} failed at {shape}: {message}")]
    Failed { kernel: &'static str, shape: String, message: String },
}
