//! Models that keep a state instead of keys and values: two tokens, one by one.

use super::decoders::of;
use super::{Case, Row, Step, watch};
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::{mamba, mamba2, rwkv_v5, rwkv_v6};
use candlescope_core::llm;
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] = &[mamba, mamba2, rwkv_v5, rwkv_v6];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

const STEPS: &[Step] = &[Step { tokens: 1, context: 1 }, Step { tokens: 1, context: 2 }];

fn tokens(mut forward: impl FnMut(&Tensor) -> candle_core::Result<Tensor>) {
    for step in STEPS {
        let _step = llm::decode(step.told());
        forward(&step.ids()).expect("a token");
    }
}

fn mamba() -> Row {
    let text =
        r#"{"model_type": "mamba", "d_model": 32, "n_layer": 2, "vocab_size": 96, "pad_vocab_size_multiple": 8}"#;
    let config: mamba::Config = of(text);
    let mut state = mamba::State::new(1, &config, DType::F32, &Device::Cpu).expect("a state");
    let seen = watch(Some(text), &[], |vb| {
        let model = mamba::Model::new(&config, vb.pp("backbone")).expect("it loads");
        tokens(|ids| model.forward(&ids.squeeze(0)?, &mut state));
    });
    // 64 features inside, a state of 16, steps of rank 2; four taps of a convolution.
    let projections = 32 * 128 + 64 * (2 + 2 * 16) + 2 * 64 + 64 * 32;
    Case {
        name: "mamba",
        file: "mamba.rs",
        remark: "convolution and scan have no spans",
        steps: STEPS,
        total: &|_| 2 * (2 * (projections + 64 * 4) + 32 * 96),
        spanless: &["embedding", "mixer", "conv1d", "norm", "norm_f"],
        shared: &[("lm_head", "backbone.embedding.weight")],
        ..Case::default()
    }
    .check(&seen)
}

fn mamba2() -> Row {
    let text = r#"{"model_type": "mamba2", "d_model": 32, "n_layer": 2, "vocab_size": 96, "d_state": 16, "headdim": 16,
                   "pad_vocab_size_multiple": 8}"#;
    let config: mamba2::Config = of(text);
    let mut state = mamba2::State::new(1, &config, DType::F32, &Device::Cpu).expect("a state");
    let seen = watch(Some(text), &[], |vb| {
        let model = mamba2::Model::new(&config, vb.pp("backbone")).expect("it loads");
        tokens(|ids| model.forward(&ids.squeeze(0)?, &mut state));
    });
    // 64 features inside, and as many again for the gate; states of 16 in and out; four heads.
    let convolved = 64 + 2 * 16;
    let projections = 32 * (64 + convolved + 4) + 64 * 32;
    Case {
        name: "mamba2",
        file: "mamba2.rs",
        remark: "convolution and scan have no spans",
        steps: STEPS,
        total: &|_| 2 * (2 * (projections + convolved * 4) + 32 * 96),
        spanless: &["embeddings", "mixer", "conv1d", "norm", "norm_f"],
        shared: &[("lm_head", "backbone.embeddings.weight")],
        ..Case::default()
    }
    .check(&seen)
}

fn rwkv_config(model_type: &str) -> String {
    json!({"model_type": model_type, "vocab_size": 96, "hidden_size": 64, "num_hidden_layers": 2, "head_size": 32,
           "attention_hidden_size": 64, "num_attention_heads": 32, "intermediate_size": 128, "layer_norm_epsilon": 1e-5,
           "rescale_every": 6})
    .to_string()
}

/// Five projections of the mixing in time, three of that in channels.
const RWKV: u64 = 5 * 64 * 64 + 2 * 64 * 128 + 64 * 64;

const RWKV_SPANLESS: &[&str] = &["embeddings", "attention", "feed_forward", "ln_x"];

fn rwkv_v5() -> Row {
    let text = rwkv_config("rwkv5");
    let config: rwkv_v5::Config = of(&text);
    let mut state = rwkv_v5::State::new(1, &config, &Device::Cpu).expect("a state");
    let seen = watch(Some(&text), &[], |vb| {
        let model = rwkv_v5::Model::new(&config, vb).expect("it loads");
        tokens(|ids| model.forward(ids, &mut state));
    });
    Case {
        name: "rwkv_v5",
        file: "rwkv_v5.rs",
        steps: STEPS,
        total: &|_| 2 * (2 * RWKV + 64 * 96),
        spanless: RWKV_SPANLESS,
        ..Case::default()
    }
    .check(&seen)
}

fn rwkv_v6() -> Row {
    let text = rwkv_config("rwkv6");
    let config: rwkv_v5::Config = of(&text);
    let mut state = rwkv_v6::State::new(1, &config, &Device::Cpu).expect("a state");
    let seen = watch(Some(&text), &[], |vb| {
        let model = rwkv_v6::Model::new(&config, vb).expect("it loads");
        tokens(|ids| model.forward(ids, &mut state));
    });
    // Matrices of low rank for mixing and decay, in steps of the two heads.
    let mixing = 64 * (5 * 2) + 5 * 2 * 64 + 2 * 64 * (2 * 2);
    Case {
        name: "rwkv_v6",
        file: "rwkv_v6.rs",
        remark: "what mixes tokens and decays by low rank has no spans",
        steps: STEPS,
        total: &|_| 2 * (2 * (RWKV + mixing) + 64 * 96),
        spanless: RWKV_SPANLESS,
        ..Case::default()
    }
    .check(&seen)
}
