//! Wrapped layers compute what candle's compute, and cost what arithmetic says.
#![allow(missing_docs, reason = "a test")]
mod common;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::{Conv2dConfig, Module, RNN, VarBuilder, VarMap};
use candlescope_core::{MemoryExporter, Session};
use candlescope_models::cost::Cost;
use candlescope_models::layers::{Activation, Conv2d, Instrumented, LayerNorm, Linear, Lstm, Mlp, Projection};
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
    assert_eq!(ours.cost(6), Cost { flops: 2 * 6 * 4 * 6, weight_bytes: (24 + 6) * 4, kv_bytes: 0 });

    let (w, b) = (values(&[4]), values(&[4]));
    let ours = LayerNorm::new("ln", w.clone(), Some(b.clone()), 1e-5);
    same(&ours.forward(&x)?, &candle_nn::LayerNorm::new(w.clone(), b, 1e-5).forward(&x)?);
    assert_eq!(ours.cost().weight_bytes, 32);
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
    assert_eq!(ours.cost(y.elem_count()).flops, 2 * (2 * 8 * 5 * 5) * (2 * 3 * 3));
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
    assert_eq!(mlp.cost(6).flops, 4 * 6 * 4 * 16);
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
    assert_eq!(ours.step_cost(2).flops, 2 * 2 * 4 * 7 * (5 + 7));
    assert_eq!(ours.step_cost(2).weight_bytes, (4 * 7 * (5 + 7) + 2 * 4 * 7) * 4);
    Ok(())
}

#[test]
fn any_module_is_recorded_with_its_cost() -> Result<()> {
    let memory = MemoryExporter::new();
    let (layer, session) = Session::builder().exporter(memory.clone()).start().unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || -> Result<()> {
        let pool = |x: &Tensor| x.mean_keepdim(1);
        let pool = Instrumented::with_cost("encoder.pool", candle_nn::func(pool), |_, x| Cost {
            flops: x.elem_count() as u64,
            ..Cost::default()
        });
        assert_eq!(pool.forward(&values(&[2, 8]))?.dims(), &[2, 1]);
        let plain = Instrumented::new("encoder.act", candle_nn::Activation::Relu);
        plain.forward(&values(&[2, 8]))?;
        Ok(())
    })?;
    drop(session.finish());
    let spans = memory.batch().spans;
    let of = |name: &str| spans.iter().find(|s| &*s.path.name == name).unwrap();
    assert_eq!((of("pool").flops, of("pool").shape.unwrap().to_string()), (Some(16), "2x1".into()));
    assert_eq!((of("act").flops, of("act").bytes), (None, None));
    Ok(())
}
