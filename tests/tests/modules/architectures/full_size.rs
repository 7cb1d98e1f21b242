//! Decoders whose configurations cannot be made small from outside: in their real size, with nothing but zeros, which
//! take address space and no memory as long as nobody writes them. Two tokens and one more.
//!
//! They take some twenty seconds: the page's test runs them, and no other.

use super::decoders::Decoder;
use super::encoder_decoders::{NEXT, START};
use super::{Case, Row, Seen, StepFlops, common};
use candle_core::{DType, Device, Result, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};
use candle_transformers::models::{mpt, yi};
use candlescope_core::llm;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

pub(super) const MODELS: &[fn() -> Row] = &[yi, mpt];

/// Zeros of any shape, by name.
#[derive(Clone, Default)]
struct Zeros(Arc<Mutex<BTreeMap<String, Vec<usize>>>>);

impl SimpleBackend for Zeros {
    fn get(&self, shape: Shape, name: &str, _: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        self.0.lock().expect("the names").insert(name.to_owned(), shape.dims().to_vec());
        Tensor::zeros(shape, dtype, device)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        candle_core::bail!("{name} has no shape")
    }

    fn contains_tensor(&self, _: &str) -> bool {
        false
    }
}

fn watch<M>(
    config: &str,
    new: impl FnOnce(VarBuilder<'static>) -> Result<M>,
    forward: impl Fn(&mut M, &Tensor, usize) -> Result<Tensor>,
) -> Seen {
    let zeros = Zeros::default();
    let (batch, ..) = common::record(|| {
        candlescope::modules::model(config).expect("a configuration");
        let vb = VarBuilder::from_backend(Box::new(zeros.clone()), DType::F32, Device::Cpu);
        let mut model = new(candlescope::observe(vb)).expect("it loads");
        for (step, phase) in [(START, llm::prefill as fn(_) -> _), (NEXT, llm::decode)] {
            let _step = phase(step.told());
            forward(&mut model, &step.ids(), step.position()).expect("a step");
        }
    });
    let weights = std::mem::take(&mut *zeros.0.lock().expect("the names"));
    Seen { weights, batch }
}

fn yi() -> Row {
    let sizes = Decoder {
        layers: 32,
        hidden: 4096,
        queries: 4096,
        keys: 4 * 128,
        mlp: 3 * 4096 * 11008,
        vocabulary: 64000,
        windows: (0, 0),
    };
    let text = r#"{"model_type": "yi", "vocab_size": 64000, "num_attention_heads": 32, "num_key_value_heads": 4}"#;
    let seen = watch(text, |vb| yi::Model::new(&yi::Config::config_6b(), vb), yi::Model::forward);
    Case {
        name: "yi, 6B",
        file: "yi.rs",
        steps: &[START, NEXT],
        total: &|step| sizes.weights(step),
        flops: StepFlops::All(&|step| sizes.weights(step) + sizes.attention(step)),
        spanless: &["embed_tokens"],
        ..Case::default()
    }
    .check(&seen)
}

fn mpt() -> Row {
    let sizes = Decoder {
        layers: 32,
        hidden: 3072,
        queries: 3072,
        keys: 8 * 128,
        mlp: 2 * 3072 * 4 * 3072,
        vocabulary: 32768,
        windows: (0, 0),
    };
    let text = r#"{"model_type": "mpt", "vocab_size": 32768, "n_heads": 24}"#;
    let seen =
        watch(text, |vb| mpt::Model::new(&mpt::Config::replit_code_v1_5_3b(), vb), |model, ids, _| model.forward(ids));
    Case {
        name: "mpt, 3B",
        file: "mpt.rs",
        remark: "the head is a product without a span",
        steps: &[START, NEXT],
        total: &|step| sizes.weights(step),
        spanless: &["norm_1", "norm_2", "norm_f"],
        ..Case::default()
    }
    .check(&seen)
}
