//! What a kernel is: inputs for a shape, its work, and one run of it.

use super::kernel_error::KernelError;
use super::sizes::Shape;
use crate::operands::Element;
use crate::operands::Inputs;
use candle_core::Tensor;
use candlescope_work::operation::Cost;

/// What a size is called, and its values where none are given.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Name in sweeps and cases, in lower case, such as `m`.
    pub name: &'static str,
    /// Values of a usual sweep, as [`Sizes`](super::Sizes) reads them.
    pub usual: &'static str,
    /// Value of a quick run.
    pub quick: &'static str,
}

/// A size with its usual values and the one of a quick run.
pub(super) const fn size(name: &'static str, usual: &'static str, quick: &'static str) -> Size {
    Size { name, usual, quick }
}

/// Work of one run of a kernel, from its shape alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Floating-point operations that are needed; a multiply and an add are two. `None` where none are counted.
    pub flops: Option<u64>,
    /// Bytes that the operation as a whole has to move: each input read once, each output written once. What candle's
    /// single operations move in between is not in it, so the distance to the attainable rate shows what fusing would
    /// save.
    pub io_bytes: u64,
    /// Bytes of memory that inputs, outputs and the largest intermediate take.
    pub memory_bytes: u64,
}

impl Work {
    /// With `flops` in the place of those that the formula counts: those of norms, for example, which stand in no
    /// published figure.
    pub(super) fn with_flops(self, flops: u64) -> Self {
        Self { flops: Some(flops), ..self }
    }

    /// With an intermediate of so many bytes.
    pub(super) fn with_intermediate(self, bytes: u64) -> Self {
        Self { memory_bytes: self.memory_bytes.saturating_add(bytes), ..self }
    }
}

/// What it has to move, and as much memory; without FLOPs where the formula counts none.
impl From<Cost> for Work {
    fn from(cost: Cost) -> Self {
        let io_bytes = cost.io_bytes() as u64;
        let flops = (cost.flops > 0.0).then_some(cost.flops as u64);
        Self { flops, io_bytes, memory_bytes: io_bytes }
    }
}

/// One operation over shapes and element types.
pub trait Kernel: Send + Sync {
    /// Its name on the command line.
    fn name(&self) -> &'static str;
    /// What it computes, in a line.
    fn about(&self) -> &'static str;
    /// Its sizes, in the order that they are shown in.
    fn sizes(&self) -> &'static [Size];
    /// Element types that it runs in; the first one is what a CPU gets if none is named.
    fn elements(&self) -> &'static [Element] {
        Element::DENSE
    }
    /// Whether a run waits for the device because its result is needed on the host.
    fn ends_on_host(&self) -> bool {
        false
    }
    /// Its work.
    ///
    /// # Errors
    /// The sizes do not fit each other.
    fn work(&self, shape: &Shape, element: Element) -> Result<Work, KernelError>;
    /// Random inputs, and how to run on them.
    ///
    /// # Errors
    /// candle cannot make them.
    fn prepare(&self, shape: &Shape, element: Element, inputs: &mut Inputs) -> candle_core::Result<PreparedKernel>;
}

/// Computes an output from inputs.
type KernelCall = Box<dyn Fn(&[Tensor]) -> candle_core::Result<Tensor>>;

/// Inputs, and the operation on them.
pub struct PreparedKernel {
    inputs: Vec<Tensor>,
    apply: KernelCall,
}

impl PreparedKernel {
    /// `apply` on these inputs.
    pub(super) fn new(inputs: Vec<Tensor>, apply: impl Fn(&[Tensor]) -> candle_core::Result<Tensor> + 'static) -> Self {
        Self { inputs, apply: Box::new(apply) }
    }

    /// The inputs; weights that are quantised are not among them.
    pub fn inputs(&self) -> &[Tensor] {
        &self.inputs
    }

    /// Runs the operation once. On a GPU it has only been launched when this returns.
    ///
    /// # Errors
    /// candle's.
    pub fn run(&self) -> candle_core::Result<Tensor> {
        (self.apply)(&self.inputs)
    }
}

/// Product of sizes, `u64::MAX` at most.
pub(super) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1u64, |product, size| product.saturating_mul(*size as u64))
}

/// Bytes of tensors of these sizes with elements of `width` bytes.
pub(super) fn bytes(tensors: &[&[usize]], width: usize) -> u64 {
    tensors.iter().fold(0u64, |sum, sizes| sum.saturating_add(product(sizes).saturating_mul(width as u64)))
}
