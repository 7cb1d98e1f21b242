//! A `VarBuilder` that passes everything on to another one and tells what was loaded.

use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use candlescope_core::modules;

/// Watches a model's weights being loaded: the spans that candle's layers make meanwhile get the names of their modules
/// (`model.layers.7.mlp.down_proj`), and with them their shapes, FLOPs and bytes.
///
/// It takes any `VarBuilder` (of safetensors in one or several files, a `VarMap`, npz, PyTorch's format, a back end of
/// your own) and returns one that behaves the same: names, prefix, `root()`, hints, element types and devices pass through
/// unchanged. Without a session hardly anything is done. `ShardedVarBuilder` and the `VarBuilder` of quantised
/// models are types of their own that cannot be wrapped: for a GGUF file see [`observe_gguf`](crate::observe_gguf).
///
/// Without [`modules::model`](crate::modules::model) the architecture is recognised where names of weights and places in
/// candle's source leave no doubt; then FLOPs and bytes are known as well. A finding says where they are not.
///
/// Set candlescope up first: a span that is made before stays disabled.
///
/// ```
/// use candle_core::{DType, Device};
/// use candle_nn::{VarBuilder, VarMap};
/// let _scope = candlescope::init();
/// let weights = VarMap::new();
/// let vb = VarBuilder::from_varmap(&weights, DType::F32, &Device::Cpu);
/// let vb = candlescope::observe(vb);
/// let layer = candle_nn::linear(4, 8, vb.pp("model.layers.0.mlp.up_proj"))?;
/// # Ok::<(), candle_core::Error>(())
/// ```
pub fn observe(vb: VarBuilder<'_>) -> VarBuilder<'_> {
    modules::begin_loading();
    super::threads::check_threads(vb.device());
    let (prefix, dtype, device) = (vb.prefix(), vb.dtype(), vb.device().clone());
    let observed: Box<dyn SimpleBackend> = Box::new(ObservedBackend { inner: vb.root() });
    let outer = VarBuilder::from_backend(observed, HIDDEN, device).to_dtype(dtype);
    if prefix.is_empty() { outer } else { outer.set_prefix(prefix) }
}

/// A `VarBuilder` has two element types, the one that it says and a hidden one that `get_unchecked` uses. The hidden one
/// of the builder inside cannot be read, so that of the outer one stands for it: a type that no tensor can have.
const HIDDEN: DType = DType::F6E2M3;

struct ObservedBackend<'a> {
    /// At its root: names that come here are full.
    inner: VarBuilder<'a>,
}

impl ObservedBackend<'_> {
    /// The builder inside, on the device that the one outside was set to.
    fn on(&self, device: &Device) -> VarBuilder<'_> {
        let inner = self.inner.clone();
        if inner.device().same_device(device) { inner } else { inner.set_device(device.clone()) }
    }
}

/// Tells of a tensor, and hands it on.
fn told(name: &str, tensor: Tensor) -> Tensor {
    let dtype = tensor.dtype();
    let bytes = (tensor.elem_count() as u64).saturating_mul(dtype.size_in_bytes() as u64);
    modules::loaded(name, tensor.dims(), dtype.as_str(), bytes);
    tensor
}

impl SimpleBackend for ObservedBackend<'_> {
    fn get(&self, shape: Shape, name: &str, hints: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        Ok(told(name, self.on(device).get_with_hints_dtype(shape, name, hints, dtype)?))
    }

    fn get_unchecked(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        let inner = self.on(device);
        let tensor =
            if dtype == HIDDEN { inner.get_unchecked(name)? } else { inner.get_unchecked_dtype(name, dtype)? };
        Ok(told(name, tensor))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.inner.contains_tensor(name)
    }
}
