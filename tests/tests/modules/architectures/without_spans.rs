//! Models that make no spans of their own, beside those of the other families. With spans in candle-nn's layers
//! (`tests/without_spans`) they are held to the same as all others.

use super::decoders::{Decoder, SMALL, config, of, run, spanless, tied};
use super::vision::{IMAGE, pixels, see};
use super::{Case, DECODE, NO_SPANS, PREFILL, Row, Step, TRACED, watch};
use candle_core::{Device, Module, Tensor};
use candle_transformers::models::{
    deepseek2, falcon, gemma, gemma3, olmo, olmo2, paddleocr_vl, pixtral, siglip, trocr, vit,
};
use candlescope_core::llm::{self, Tokens};
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] =
    &[gemma, gemma3, olmo, olmo2, deepseek2, falcon, siglip, pixtral, trocr, paddleocr_vl];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

fn gemma() -> Row {
    let text = config("gemma", json!({"head_dim": 8, "hidden_act": null, "hidden_activation": "gelu"}));
    let seen = run(&text, |vb| gemma::Model::new(false, &of(&text), vb), gemma::Model::forward);
    spanless(SMALL, true, &seen, Case { name: "gemma", file: "gemma.rs", shared: tied(), ..Case::default() })
}

fn gemma3() -> Row {
    let more = json!({
        "head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 8, "sliding_window": 4,
        "use_sliding_window": null, "sliding_window_pattern": 2, "rope_local_base_freq": 10000.0,
        // candle's cache takes the values of one head only.
        "num_key_value_heads": 1,
    });
    let text = config("gemma3_text", more);
    let seen = run(&text, |vb| gemma3::Model::new(false, &of(&text), vb), gemma3::Model::forward);
    let sizes = Decoder { keys: 8, windows: (2, 4), ..SMALL };
    spanless(sizes, true, &seen, Case { name: "gemma3", file: "gemma3.rs", shared: tied(), ..Case::default() })
}

fn olmo() -> Row {
    let text = config("olmo", json!({}));
    let seen = run(&text, |vb| olmo::Model::new(&of(&text), vb), olmo::Model::forward);
    // Its norms have no weights.
    let nameless: &[(&str, usize)] = if TRACED { &[("layer-norm", 7)] } else { &[] };
    spanless(SMALL, true, &seen, Case { name: "olmo", file: "olmo.rs", nameless, ..Case::default() })
}

fn olmo2() -> Row {
    let text = config("olmo2", json!({}));
    let seen = run(&text, |vb| olmo2::Model::new(&of(&text), vb), olmo2::Model::forward);
    spanless(SMALL, true, &seen, Case { name: "olmo2", file: "olmo2.rs", ..Case::default() })
}

fn deepseek2() -> Row {
    let more = json!({
        "moe_intermediate_size": 32, "n_shared_experts": null, "n_routed_experts": null, "num_experts_per_tok": null,
        "q_lora_rank": null, "qk_rope_head_dim": 8, "kv_lora_rank": 16, "v_head_dim": 8, "qk_nope_head_dim": 8,
        "n_group": 1, "topk_group": 1, "rope_scaling": null,
    });
    let text = config("deepseek_v2", more);
    let seen = run(&text, |vb| deepseek2::DeepSeekV2::new(&of(&text), vb), deepseek2::DeepSeekV2::forward);
    // Queries; keys and values as one vector and its rotary part, and out of it; the output.
    let attention = 32 * 64 + 32 * 24 + 16 * 64 + 32 * 32;
    let total = |step: Step| 2 * (step.tokens * 3 * (attention + SMALL.mlp) + 32 * 96);
    Case {
        name: "deepseek2, dense",
        file: "deepseek2.rs",
        remark: NO_SPANS,
        total: &total,
        spanless: &[""],
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

fn falcon() -> Row {
    let more = json!({
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "use_cache": true, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "n_head_kv": null, "alibi": false,
        "new_decoder_architecture": false, "multi_query": true, "parallel_attn": true, "bias": false,
    });
    let text = config("falcon", more);
    let load = |vb| falcon::Falcon::load(vb, of(&text));
    let seen = run(&text, load, |model, ids, _| model.forward(ids));
    // One head of keys, one of values; four times as wide inside.
    let sizes = Decoder { keys: 8, mlp: 2 * 32 * 128, ..SMALL };
    spanless(sizes, false, &seen, Case { name: "falcon", file: "falcon.rs", ..Case::default() })
}

/// Elements of a layer of a vision tower: attention and two matrices.
const LAYER: u64 = 4 * 32 * 32 + 2 * 32 * 64;

fn siglip() -> Row {
    let text = json!({
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "num_channels": 3,
        "image_size": 16, "patch_size": 8, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6,
    })
    .to_string();
    let seen = watch(None, &[], |vb| {
        let model = siglip::VisionModel::new(&of(&text), true, vb).expect("it loads");
        see(|pixels| model.forward(pixels));
    });
    // The pooling's queries, keys and values are thirds of one matrix.
    let nameless: &[(&str, usize)] = if TRACED { &[("linear", 3)] } else { &[] };
    Case {
        name: "siglip, vision",
        file: "siglip.rs",
        remark: NO_SPANS,
        steps: &[IMAGE],
        total: &|_| 2 * (4 * 3 * 64 * 32 + 4 * 6 * LAYER + (2 + 4 + 4) * 32 * 32 + 2 * 32 * 64),
        spanless: if TRACED { &["head", "head.attention", "position_embedding"] } else { &[""] },
        rows: &|module, _| if module.starts_with("head.") { 1 } else { 4 },
        nameless,
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

fn pixtral() -> Row {
    let text = json!({
        "hidden_size": 32, "num_channels": 3, "image_size": 16, "patch_size": 8, "rope_theta": 10000.0,
        "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_act": "silu",
    })
    .to_string();
    let seen = watch(None, &[], |vb| {
        let model = pixtral::vision_model::Model::new(&of(&text), vb).expect("it loads");
        see(|pixels| model.forward(pixels));
    });
    Case {
        name: "pixtral, vision",
        file: "pixtral/vision_model.rs",
        remark: NO_SPANS,
        steps: &[IMAGE],
        total: &|_| 2 * (4 * 3 * 64 * 32 + 4 * 2 * (4 * 32 * 32 + 3 * 32 * 64)),
        spanless: &[""],
        rows: &|_, _| 4,
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

/// candle adds the mask of the tokens to that of the image: it takes them one by one.
const ONE: Step = Step { tokens: 1, context: 1 };
const TWO: Step = Step { tokens: 1, context: 2 };

fn trocr() -> Row {
    let vision = json!({
        "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64, "image_size": 16,
        "patch_size": 8, "num_channels": 3, "qkv_bias": false, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
    })
    .to_string();
    let text = trocr::TrOCRConfig {
        vocab_size: 96,
        d_model: 32,
        cross_attention_hidden_size: 32,
        decoder_layers: 3,
        decoder_attention_heads: 4,
        decoder_ffn_dim: 64,
        max_position_embeddings: 64,
        tie_word_embeddings: true,
        use_learned_position_embeddings: true,
        ..trocr::TrOCRConfig::default()
    };
    let seen = watch(None, &[], |vb| {
        let encoder: vit::Config = of(&vision);
        let mut model = trocr::TrOCRModel::new(&encoder, &text, vb).expect("it loads");
        let image = {
            let _step = llm::vision(IMAGE.told());
            model.encoder().forward(&pixels()).expect("a pass")
        };
        for (step, phase) in [(ONE, llm::prefill as fn(_) -> _), (TWO, llm::decode)] {
            let _step = phase(step.told());
            model.decode(&step.ids(), &image, step.position()).expect("decodes");
        }
    });
    let patches = "encoder.embeddings.patch_embeddings.projection";
    Case {
        name: "trocr",
        file: "trocr.rs",
        remark: if TRACED { NO_SPANS } else { "only the encoder, which is vit, makes spans" },
        steps: &[IMAGE, ONE, TWO],
        total: &|step| match step {
            IMAGE => 2 * (4 * 3 * 64 * 32 + step.tokens * LAYER),
            // Keys and values of the image are computed anew for each token.
            _ => 2 * (3 * (6 * 32 * 32 + 2 * 32 * 64 + IMAGE.tokens * 2 * 32 * 32) + 32 * 96),
        },
        spanless: &[
            "_proj",
            "layer_norm",
            "fc1",
            "fc2",
            "embed_tokens",
            "embed_positions",
            "layernorm_before",
            "layernorm_after",
            "encoder.layernorm",
            "encoder.embeddings",
        ],
        shared: if TRACED { &[("lm_head", "decoder.model.decoder.embed_tokens.weight")] } else { &[] },
        rows: &|module, step| match module {
            _ if module == patches => 4,
            _ if module.ends_with("encoder_attn.k_proj") || module.ends_with("encoder_attn.v_proj") => IMAGE.tokens,
            _ => step.tokens,
        },
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

fn paddleocr_vl() -> Row {
    let text = json!({
        "model_type": "paddleocr_vl", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 128, "image_token_id": 95, "rope_scaling": {"mrope_section": [2, 1, 1]},
        "vision_config": {
            "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
            "image_size": 28, "patch_size": 14,
        },
    })
    .to_string();
    let seen = watch(Some(&text), &[], |vb| {
        let mut model = paddleocr_vl::PaddleOCRVLModel::new(&of(&text), vb).expect("it loads");
        let image = Tensor::randn(0f32, 1., (1, 3, 28, 28), &Device::Cpu).expect("an image");
        let grid = Tensor::new(&[[1u32, 2, 2]], &Device::Cpu).expect("a grid");
        {
            let _step = llm::vision(Tokens::new(4));
            model.encode_image(&image, &grid).expect("a pass");
        }
        {
            // The pass over the prompt looks at the image itself.
            let _step = llm::prefill(PREFILL.told());
            let prompt = Tensor::new(&[[3u32, 95, 17, 24, 31]], &Device::Cpu).expect("tokens");
            model.forward(&prompt, Some(&image), Some(&grid), 0).expect("prefill");
        }
        let _step = llm::decode(DECODE.told());
        model.forward(&DECODE.ids(), None, None, DECODE.position()).expect("decode");
    });
    let vision = 4 * 3 * 14 * 14 * 32 + 4 * 2 * LAYER + 128 * 128 + 128 * 32;
    // Its head computes every position, and keeps the last.
    let decoder = |step: Step| SMALL.weights(step) + 2 * (step.tokens - 1) * 32 * 96;
    Case {
        name: "paddleocr_vl",
        file: "paddleocr_vl/mod.rs",
        remark: NO_SPANS,
        steps: &[LOOK, PREFILL, DECODE],
        total: &|step| match step {
            LOOK => 2 * vision,
            PREFILL => 2 * vision + decoder(step),
            _ => decoder(step),
        },
        spanless: if TRACED { &["position_embedding"] } else { &[""] },
        rows: &|module, step| match module {
            _ if module.starts_with("visual.") => 4,
            _ if module.starts_with("mlp_AR.") => 1,
            _ => step.tokens,
        },
        shown: false,
        ..Case::default()
    }
    .check(&seen)
}

/// Four patches, which become one token of the prompt.
const LOOK: Step = Step { tokens: 4, context: 4 };
