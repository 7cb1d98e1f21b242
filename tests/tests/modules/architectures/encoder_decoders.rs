//! Models with an encoder and a decoder: the source, the first two tokens, and what comes next.

use super::decoders::of;
use super::{Case, Row, Step, StepFlops, watch};
use candle_core::{Device, IndexOp, Tensor};
use candle_transformers::models::{marian, t5, whisper};
use candlescope_core::llm::{self, Request};
use candlescope_core::{Annotation, annotate};
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] = &[t5_tied, t5_gated, t5_encoder, marian, whisper];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// Five positions of the source.
pub(super) const ENCODE: Step = Step { tokens: 5, context: 5 };
const SOURCE: u64 = ENCODE.tokens;
pub(super) const START: Step = Step { tokens: 2, context: 2 };
pub(super) const NEXT: Step = Step { tokens: 1, context: 3 };

/// Elements of a square projection.
const SQUARE: u64 = 32 * 32;

/// The head of the last position, or of all.
fn total(step: Step, feed_forward: u64, head: u64, layers: u64) -> u64 {
    if step == ENCODE {
        return 2 * layers * SOURCE * (4 * SQUARE + feed_forward);
    }
    // Keys and values of the source are computed anew for each token.
    let layer = step.tokens * (6 * SQUARE + feed_forward) + SOURCE * 2 * SQUARE;
    2 * (layers * layer + head * 32 * 96)
}

fn t5_config(gated: bool) -> t5::Config {
    let text = json!({
        "vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "relative_attention_num_buckets": 8, "dropout_rate": 0.0, "layer_norm_epsilon": 1e-6, "initializer_factor": 1.0,
        "feed_forward_proj": if gated { "gated-gelu" } else { "relu" }, "tie_word_embeddings": !gated,
        "is_encoder_decoder": true, "pad_token_id": 0, "eos_token_id": 1,
    });
    of(&text.to_string())
}

fn t5_rows(module: &str, step: Step) -> u64 {
    match module {
        "lm_head" => 1,
        _ if module.ends_with("EncDecAttention.k") || module.ends_with("EncDecAttention.v") => SOURCE,
        _ => step.tokens,
    }
}

/// Attention of two layers: of the source to itself, of the text to itself and to the source.
fn attention(step: Step) -> u64 {
    let pairs = if step == ENCODE { SOURCE * SOURCE } else { step.causal() + step.tokens * SOURCE };
    2 * 4 * 32 * pairs
}

/// Keys and values of the source, which are needed once, though T5 makes them for each token.
const OF_SOURCE: u64 = 2 * 2 * SOURCE * 2 * SQUARE;

fn t5_flops(step: Step, feed_forward: u64) -> u64 {
    let again = if step == NEXT { OF_SOURCE } else { 0 };
    total(step, feed_forward, 1, 2) - again + attention(step)
}

fn t5(gated: bool, case: Case<'_>) -> Row {
    let shared: &[(&str, &[usize])] = &[("shared.weight", &[96, 32])];
    let seen = watch(Some(r#"{"model_type": "t5", "vocab_size": 96}"#), shared, |vb| {
        let mut model = t5::T5ForConditionalGeneration::load(vb, &t5_config(gated)).expect("it loads");
        // The source's positions are those that the same request has encoded.
        let request = Request::new("text_completion", "t5");
        let _in_request = request.enter();
        let source = {
            let _step = llm::encode(ENCODE.told());
            model.encode(&ENCODE.ids()).expect("encodes")
        };
        for (step, phase) in [(START, llm::prefill as fn(_) -> _), (NEXT, llm::decode)] {
            let _step = phase(step.told());
            model.decode(&step.ids(), &source).expect("decodes");
        }
    });
    Case { file: "t5.rs", steps: &[ENCODE, START, NEXT], rows: &t5_rows, ..case }.check(&seen)
}

fn t5_tied() -> Row {
    let case = Case {
        name: "t5, tied head",
        total: &|step| total(step, 2 * 32 * 64, 1, 2),
        flops: StepFlops::All(&|step| t5_flops(step, 2 * 32 * 64)),
        shared: &[("lm_head", "shared.weight")],
        ..Case::default()
    };
    t5(false, case)
}

fn t5_gated() -> Row {
    let case = Case {
        name: "t5, gated",
        total: &|step| total(step, 3 * 32 * 64, 1, 2),
        flops: StepFlops::All(&|step| t5_flops(step, 3 * 32 * 64)),
        ..Case::default()
    };
    t5(true, case)
}

fn t5_encoder() -> Row {
    let shared: &[(&str, &[usize])] = &[("shared.weight", &[96, 32])];
    let seen = watch(Some(r#"{"model_type": "t5", "vocab_size": 96}"#), shared, |vb| {
        let mut model = t5::T5EncoderModel::load(vb, &t5_config(true)).expect("it loads");
        super::encode(|ids| model.forward(ids));
    });
    Case {
        name: "t5, encoder",
        file: "t5.rs",
        steps: &[ENCODE],
        total: &|step| total(step, 3 * 32 * 64, 1, 2),
        flops: StepFlops::All(&|step| t5_flops(step, 3 * 32 * 64)),
        ..Case::default()
    }
    .check(&seen)
}

fn marian() -> Row {
    let config = marian::Config {
        vocab_size: 96,
        decoder_vocab_size: Some(96),
        max_position_embeddings: 64,
        encoder_layers: 2,
        encoder_ffn_dim: 64,
        encoder_attention_heads: 4,
        decoder_layers: 2,
        decoder_ffn_dim: 64,
        decoder_attention_heads: 4,
        d_model: 32,
        ..marian::Config::opus_mt_fr_en()
    };
    let seen = watch(Some(r#"{"model_type": "marian", "vocab_size": 96}"#), &[], |vb| {
        let mut model = marian::MTModel::new(&config, vb).expect("it loads");
        let source = {
            let _step = llm::encode(ENCODE.told());
            model.encoder().forward(&ENCODE.ids(), 0).expect("encodes")
        };
        for (step, phase) in [(START, llm::prefill as fn(_) -> _), (NEXT, llm::decode)] {
            let _step = phase(step.told());
            model.decode(&step.ids(), &source, step.position()).expect("decodes");
        }
    });
    Case {
        name: "marian",
        file: "marian.rs",
        steps: &[ENCODE, START, NEXT],
        // Every position has its words.
        total: &|step| total(step, 2 * 32 * 64, step.tokens, 2),
        spanless: &["layer_norm", "final_logits_bias"],
        shared: &[("lm_head", "model.shared.weight")],
        rows: &|module, step| {
            let of_source = module.ends_with("encoder_attn.k_proj") || module.ends_with("encoder_attn.v_proj");
            if of_source { SOURCE } else { step.tokens }
        },
        // Positions are computed, and no weights.
        nameless: &[("embedding", 1)],
        ..Case::default()
    }
    .check(&seen)
}

/// It has no cache of its own tokens: all three are passed, and one is needed.
const AGAIN: Step = Step { tokens: 3, context: 3 };

fn whisper_total(step: Step) -> u64 {
    let feed_forward = 2 * 32 * 128;
    match step {
        // Three taps over eight bands at ten positions, and over 32 features at every other.
        ENCODE => total(step, feed_forward, 0, 2) + 2 * (10 * 3 * 8 * 32 + 5 * 3 * 32 * 32),
        START => total(step, feed_forward, 1, 2),
        // Keys and values of the source are kept.
        _ => total(step, feed_forward, 1, 2) - OF_SOURCE,
    }
}

fn whisper() -> Row {
    let text = json!({
        "model_type": "whisper", "num_mel_bins": 8, "max_source_positions": 16, "d_model": 32,
        "encoder_attention_heads": 4, "encoder_layers": 2, "vocab_size": 96, "max_target_positions": 16,
        "decoder_attention_heads": 4, "decoder_layers": 2,
    })
    .to_string();
    let seen = watch(Some(&text), &[], |vb| {
        let mut model = whisper::model::Whisper::load(&vb, of(&text)).expect("it loads");
        let request = Request::new("text_completion", "whisper");
        let _in_request = request.enter();
        let sound = Tensor::randn(0f32, 1., (1, 8, 10), &Device::Cpu).expect("a sound");
        let source = {
            let _step = llm::encode(ENCODE.told());
            model.encoder.forward(&sound, true).expect("encodes")
        };
        for (step, phase) in [(START, llm::prefill as fn(_) -> _), (AGAIN, llm::decode)] {
            let _step = phase(step.told());
            let hidden = model.decoder.forward(&step.ids(), &source, step == START).expect("decodes");
            let last = hidden.i((.., step.tokens as usize - 1.., ..)).expect("the last");
            // candle leaves it to the program how many positions pass the head: this one says so.
            let _head = tracing::trace_span!("head").entered();
            annotate(Annotation::new().flops(2 * 32 * 96));
            model.decoder.final_linear(&last).expect("words");
        }
    });
    Case {
        name: "whisper",
        file: "whisper/model.rs",
        steps: &[ENCODE, START, AGAIN],
        remark: "FLOPs of a step where the program tells those of the head: how many positions pass it is its choice",
        total: &|step| whisper_total(step),
        flops: StepFlops::All(&|step| match step {
            AGAIN => whisper_total(NEXT) + attention(NEXT),
            _ => whisper_total(step) + attention(step),
        }),
        spanless: &["layer_norm", "embed_tokens", "embed_positions"],
        shared: &[("lm_head", "model.decoder.embed_tokens.weight")],
        rows: &|module, step| match module {
            "lm_head" => 1,
            "model.encoder.conv1" => 10,
            _ if module.ends_with("encoder_attn.k_proj") || module.ends_with("encoder_attn.v_proj") => SOURCE,
            _ => step.tokens,
        },
        ..Case::default()
    }
    .check(&seen)
}
