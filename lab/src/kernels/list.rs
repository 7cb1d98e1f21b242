//! The kernels there are, and the cases that sweeps over them make.

use super::kernel::{Kernel, Work};
use super::kernel_error::KernelError;
use super::sizes::{LARGEST, Shape, Sizes};
use super::{
    attention, conv2d, elementwise, embedding, gemm, grouped, lstm, norms, quantised, rotary, sampling, softmax,
};
use crate::operands::Element;

const ALL: &[&'static dyn Kernel] = &[
    &gemm::Gemm,
    &gemm::Projection,
    &quantised::QuantisedMatMul,
    &conv2d::Convolution,
    &lstm::Lstm,
    &norms::LayerNormGelu,
    &norms::Layer,
    &norms::Rms,
    &softmax::Softmax,
    &attention::Prefill,
    &attention::Decode,
    &grouped::Scores,
    &grouped::Weights,
    &grouped::Context,
    &elementwise::ADD,
    &elementwise::ADD_BIAS,
    &elementwise::GELU,
    &elementwise::SWIGLU,
    &rotary::Rotary,
    &embedding::Lookup,
    &sampling::Greedy,
    &sampling::TopKThenTopP,
];

/// Every kernel that can be measured, products of matrices first and sampling last.
pub fn all() -> &'static [&'static dyn Kernel] {
    ALL
}

/// The kernel called `name`.
///
/// # Errors
/// There is none; the message lists those there are.
pub fn by_name(name: &str) -> Result<&'static dyn Kernel, KernelError> {
    let found = ALL.iter().copied().find(|kernel| kernel.name() == name);
    found.ok_or_else(|| KernelError::Unknown { name: name.to_string(), known: names(ALL.iter().map(|k| k.name())) })
}

fn names<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.collect::<Vec<_>>().join(", ")
}

/// One kernel at one shape in one element type.
#[derive(Clone)]
pub struct KernelCase {
    /// The operation, which makes its own inputs.
    pub kernel: &'static dyn Kernel,
    /// A value for each of the kernel's sizes, in the kernel's order.
    pub shape: Shape,
    /// Element type that it runs in; a quantised one is that of the weights, beside which activations are f32.
    pub element: Element,
    /// FLOPs and bytes of one run, derived from shape and element type.
    pub work: Work,
}

impl KernelCase {
    /// The kernel called `op` in the element type called `dtype` at one shape, whose sizes may come in any order.
    ///
    /// # Errors
    /// There is no such kernel, it does not run in that type, or the sizes are not its own or do not fit each other.
    pub fn named(op: &str, dtype: &str, sizes: &[(&str, u64)]) -> Result<Self, KernelError> {
        let kernel = by_name(op)?;
        let own = |name: &str| kernel.sizes().iter().any(|size| size.name == name);
        if let Some((unknown, _)) = sizes.iter().find(|(name, _)| !own(name)) {
            return Err(KernelError::UnknownSize {
                name: (*unknown).to_string(),
                kernel: op.to_string(),
                known: names(kernel.sizes().iter().map(|size| size.name)),
            });
        }
        let element = Element::parse(dtype).filter(|element| kernel.elements().contains(element));
        let element = element.ok_or_else(|| KernelError::Element {
            kernel: kernel.name(),
            element: dtype.to_string(),
            known: names(kernel.elements().iter().map(|element| element.name())),
        })?;
        let value = |name: &'static str| {
            let given = sizes.iter().find(|(given, _)| *given == name).map(|(_, value)| *value);
            let value =
                given.and_then(|value| usize::try_from(value).ok()).filter(|value| (1..=LARGEST).contains(value));
            let wrong =
                || KernelError::Sizes { part: format!("{name}={}", given.map_or("?".into(), |v| v.to_string())) };
            value.map(|value| (name, value)).ok_or_else(wrong)
        };
        let sizes = kernel.sizes().iter().map(|size| value(size.name)).collect::<Result<Vec<_>, _>>()?;
        let shape = Shape::new(sizes);
        let work = kernel.work(&shape, element)?;
        Ok(Self { kernel, shape, element, work })
    }

    /// A name that no other case of a sweep has: `linear f32 m=1 n=4096 k=4096`.
    pub fn name(&self) -> String {
        format!("{} {} {}", self.kernel.name(), self.element, self.shape)
    }
}

impl std::fmt::Debug for KernelCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

/// The cases of these kernels over `sizes`; sizes that are not given are the kernel's usual ones, or those of a quick
/// run. Of `elements`, each kernel takes those that it runs in. Without any, it is the first that it runs in on a CPU,
/// and bf16 where the kernel has it on a GPU.
///
/// # Errors
/// No kernel has a size of a given name, none runs in a type, or the sizes do not fit each other.
pub fn cases(
    kernels: &[&'static dyn Kernel],
    sizes: &Sizes,
    elements: &[Element],
    on_gpu: bool,
    quick: bool,
) -> Result<Vec<KernelCase>, KernelError> {
    check_names(kernels, sizes)?;
    check_elements(kernels, elements)?;
    let mut cases = Vec::new();
    for kernel in kernels.iter().copied() {
        let usual: Vec<(&'static str, Sizes)> = kernel
            .sizes()
            .iter()
            .map(|size| {
                let values = if quick { size.quick } else { size.usual };
                Ok((size.name, Sizes::parse(&format!("{}={values}", size.name))?))
            })
            .collect::<Result<_, KernelError>>()?;
        let usual: Vec<(&'static str, &Sizes)> = usual.iter().map(|(name, values)| (*name, values)).collect();
        for shape in sizes.shapes(kernel.name(), &usual)? {
            for element in chosen(kernel, elements, on_gpu) {
                let work = kernel.work(&shape, element)?;
                cases.push(KernelCase { kernel, shape: shape.clone(), element, work });
            }
        }
    }
    Ok(cases)
}

fn chosen(kernel: &dyn Kernel, elements: &[Element], on_gpu: bool) -> Vec<Element> {
    let runs_in = kernel.elements();
    match elements {
        // Quantised weights have no usual type: each.
        [] if runs_in.iter().all(|e| e.blocks().is_some()) => runs_in.to_vec(),
        [] if on_gpu && runs_in.contains(&Element::BF16) => vec![Element::BF16],
        [] => runs_in.iter().copied().take(1).collect(),
        some => some.iter().copied().filter(|element| runs_in.contains(element)).collect(),
    }
}

fn check_names(kernels: &[&'static dyn Kernel], sizes: &Sizes) -> Result<(), KernelError> {
    for name in sizes.names() {
        if !kernels.iter().any(|kernel| kernel.sizes().iter().any(|size| size.name == name)) {
            let mut known: Vec<&str> = kernels.iter().flat_map(|k| k.sizes()).map(|size| size.name).collect();
            known.sort_unstable();
            known.dedup();
            return Err(KernelError::UnknownSize {
                name: name.to_string(),
                kernel: names(kernels.iter().map(|kernel| kernel.name())),
                known: known.join(", "),
            });
        }
    }
    Ok(())
}

/// A type that only some of the kernels have is left to these.
fn check_elements(kernels: &[&'static dyn Kernel], elements: &[Element]) -> Result<(), KernelError> {
    for element in elements {
        let Some(first) = kernels.first() else { continue };
        if !kernels.iter().any(|kernel| kernel.elements().contains(element)) {
            let mut known: Vec<Element> = kernels.iter().flat_map(|kernel| kernel.elements()).copied().collect();
            known.sort_unstable();
            known.dedup();
            return Err(KernelError::Element {
                kernel: if kernels.len() == 1 { first.name() } else { "none of the kernels" },
                element: element.to_string(),
                known: names(known.iter().map(|element| element.name())),
            });
        }
    }
    Ok(())
}
