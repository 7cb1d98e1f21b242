//! Wrapped layers compute the same as candle's, and their costs are those computed by hand.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Conv2dConfig, Module, RNN, VarBuilder, VarMap};
use candlescope_core::{MemoryExporter, Session};
use candlescope_models::config::AttentionDims;
use candlescope_models::layers::{Activation, Conv2d, Instrumented, LayerNorm, Linear, Lstm, Mlp, Projection};
use candlescope_work::input::Input;
use candlescope_work::operation::{Cost, pointwise};
use tracing_subscriber::prelude::*;

fn values(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let values: Vec<f32> = (0..n).map(|i| ((i * 31 % 17) as f32 - 8.) / 8.).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(common::difference(a, b).0, 0.);
}

#[test]
fn linear_layer_norm_and_conv_equal_candles() -> Result<()> {
    let (w, b, x) = (values(&[6, 4]), values(&[6]), values(&[2, 3, 4]));
    let ours = Linear::new("fc", w.clone(), Some(b.clone()))?;
    same(&ours.forward(&x)?, &candle_nn::Linear::new(w, Some(b)).forward(&x)?);
    // 6 rows from 4 to 6 features, then the bias: in 24, out 36, read again and written again.
    let (flops, weight_bytes, activation_bytes) = (2.0 * 6.0 * 4.0 * 6.0, 30.0 * 4.0, (24.0 + 36.0 + 2.0 * 36.0) * 4.0);
    assert_eq!(ours.cost(6), Cost { flops, weight_bytes, activation_bytes, ..Cost::ZERO });

    let (w, b) = (values(&[4]), values(&[4]));
    let ours = LayerNorm::new("ln", w.clone(), Some(b.clone()), 1e-5);
    same(&ours.forward(&x)?, &candle_nn::LayerNorm::new(w.clone(), b, 1e-5).forward(&x)?);
    assert_eq!(ours.cost(24), Cost { weight_bytes: 32.0, activation_bytes: 2.0 * 24.0 * 4.0, ..Cost::ZERO });
    same(
        &LayerNorm::new("ln", w.clone(), None, 1e-5).forward(&x)?,
        &candle_nn::LayerNorm::new_no_bias(w, 1e-5).forward(&x)?,
    );

    let config = Conv2dConfig { padding: 1, stride: 2, groups: 2, ..Conv2dConfig::default() };
    let (w, b, x) = (values(&[8, 2, 3, 3]), values(&[8]), values(&[2, 4, 9, 9]));
    let ours = Conv2d::new("conv", w.clone(), Some(b.clone()), config);
    let y = ours.forward(&x)?;
    same(&y, &candle_nn::Conv2d::new(w, Some(b), config).forward(&x)?);
    assert_eq!(y.dims(), &[2, 8, 5, 5]);
    let (input, output) = (2 * 4 * 9 * 9, 2 * 8 * 5 * 5);
    let cost = ours.cost(x.elem_count(), y.elem_count());
    assert_eq!(cost.flops as usize, 2 * output * (2 * 3 * 3));
    assert_eq!(
        (cost.weight_bytes as usize, cost.activation_bytes as usize),
        ((8 * 2 * 3 * 3 + 8) * 4, (input + 3 * output) * 4)
    );
    Ok(())
}

#[test]
fn gelu_mlp() -> Result<()> {
    let (up, down, x) = (values(&[16, 4]), values(&[4, 16]), values(&[2, 3, 4]));
    let dense = |name: &str, w: &Tensor| Linear::new(name, w.clone(), None).map(Projection::Dense);
    let mlp = Mlp::new("mlp", Activation::Gelu, dense("mlp.fc1", &up)?, dense("mlp.fc2", &down)?);
    let expected = x.broadcast_matmul(&up.t()?)?.gelu_erf()?.broadcast_matmul(&down.t()?)?;
    assert!(common::difference(&mlp.forward(&x)?, &expected).0 < 1e-6);
    // 4·T·D·I, as the definitions have it.
    assert_eq!(mlp.cost(6, 4).flops as u64, 4 * 6 * 4 * 16);
    // Up: 4 in, 16 out; the function: 16 in, 16 out; down: 16 in, 4 out.
    assert_eq!(mlp.cost(6, 4).activation_bytes as u64, 6 * (20 + 32 + 20) * 4);
    Ok(())
}

#[test]
fn lstm_equals_candles() -> Result<()> {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    let ours = Lstm::new("rnn", 5, 7, Default::default(), vb.clone())?;
    let theirs = candle_nn::lstm(5, 7, Default::default(), vb)?;
    let x = values(&[2, 4, 5]);
    let states = theirs.seq(&x)?;
    same(&ours.forward(&x)?, &theirs.states_to_tensor(&states)?);
    assert_eq!(ours.forward(&values(&[2, 0, 5]))?.dims(), &[2, 0, 7]);
    assert_eq!(ours.step_cost(2).flops as u64, 2 * 2 * 4 * 7 * (5 + 7));
    assert_eq!(ours.step_cost(2).weight_bytes as u64, (4 * 7 * (5 + 7) + 2 * 4 * 7) * 4);
    // Products: 5 + 28 and 7 + 28; biases: 2 · 56; their sum: 84; four functions: 4 · 14; new cell: three of 21; tanh
    // 14, times gate 21.
    assert_eq!(ours.step_cost(2).activation_bytes as u64, 2 * (5 + 28 + 7 + 28 + 112 + 84 + 56 + 63 + 35) * 4);
    Ok(())
}

#[test]
fn any_module_is_recorded_with_its_cost() -> Result<()> {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || -> Result<()> {
        let pool = |x: &Tensor| x.mean_keepdim(1);
        let pool = Instrumented::with_cost("encoder.pool", candle_nn::func(pool), |_, x| Cost {
            flops: x.elem_count() as f64,
            ..Cost::default()
        });
        assert_eq!(pool.forward(&values(&[2, 8]))?.dims(), &[2, 1]);
        // A cost may depend on values that are known where the module is made.
        let kept = 2;
        let half = Instrumented::with_cost("encoder.half", candle_nn::Activation::Relu, move |_, x| {
            pointwise(x.elem_count() / kept, 2, 4)
        });
        half.forward(&values(&[2, 8]))?;
        let plain = Instrumented::new("encoder.act", candle_nn::Activation::Relu);
        plain.forward(&values(&[2, 8]))?;
        Ok(())
    })?;
    drop(session.finish());
    let spans = memory.batch().spans;
    let of = |name: &str| spans.iter().find(|s| &*s.path.name == name).unwrap();
    assert_eq!((of("pool").flops, of("pool").shape.unwrap().to_string()), (Some(16), "2x1".into()));
    assert_eq!((of("pool").flops_executed, of("pool").io_bytes), (Some(16), None), "activations were not counted");
    assert_eq!((of("half").flops, of("half").bytes, of("half").io_bytes), (None, None, Some(2 * 8 * 4)));
    assert_eq!((of("act").flops, of("act").bytes, of("act").io_bytes), (None, None, None));
    Ok(())
}

#[test]
fn layouts_are_copied_where_the_cost_says_so() -> Result<()> {
    for (tokens, kv_heads) in [(1, 1), (1, 3), (5, 1), (5, 3)] {
        let projected = values(&[2, tokens, kv_heads, 4]);
        let copies = !projected.transpose(1, 2)?.is_contiguous();
        let dims = AttentionDims { heads: 6, kv_heads, head_dim: 4 };
        let expected = if copies { 2 * (2 * tokens * kv_heads * 4) * 4 } else { 0 };
        assert_eq!(dims.counted().turned_values(Input::new(2, tokens, 7), 4).activation_bytes as usize, expected);
    }
    Ok(())
}

#[test]
fn the_type_that_is_multiplied_is_said() {
    use candle_core::quantized::GgmlDType::{BF16, F16, F32, Q4_1, Q4K, Q8_0};
    use candlescope_models::info::{compute_dtype, quantized_compute_dtype};
    let cpu = Device::Cpu;
    assert_eq!(compute_dtype(DType::F32, &cpu), Some("f32"));
    assert_eq!(compute_dtype(DType::BF16, &cpu), Some("f32"), "candle widens both sides");
    assert_ne!(compute_dtype(DType::F16, &cpu), Some("f16"), "no CPU that is known multiplies halves");
    for dtype in [Q4_1, Q8_0, Q4K] {
        // Both sides of the product are 8-bit integers, though the activations are f32.
        assert_eq!(quantized_compute_dtype(dtype, &cpu).unwrap(), Some("int8"));
    }
    for dtype in [F32, F16, BF16] {
        assert_eq!(quantized_compute_dtype(dtype, &cpu).unwrap(), Some("f32"), "widened when loaded");
    }
}
