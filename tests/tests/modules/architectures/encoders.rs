//! Encoders: one pass over five tokens.

use super::decoders::{config, of};
use super::{Case, PREFILL, Row, Seen, Step, StepFlops, encode, watch};
use candle_core::{DType, Module, Tensor};
use candle_nn::VarBuilder;
use candle_transformers::models::chinese_clip::text_model;
use candle_transformers::models::{bert, distilbert, jina_bert, modernbert, nomic_bert, stella_en_v5, xlm_roberta};
use serde_json::json;

pub(super) const MODELS: &[fn() -> Row] = &[
    bert,
    bert_masked,
    distilbert,
    distilbert_masked,
    jina_bert,
    nomic_bert,
    xlm_roberta,
    xlm_roberta_masked,
    stella_small,
    stella_large,
    chinese_clip,
    modernbert,
];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// Three layers, 32 wide: attention of four heads, and 32·64 elements in each of `mlp` matrices.
fn layers(step: Step, mlp: u64) -> u64 {
    2 * step.tokens * 3 * (4 * 32 * 32 + mlp * 32 * 64)
}

/// Every token attends to all.
fn attention(step: Step) -> u64 {
    3 * 4 * 32 * step.tokens * step.context
}

fn run<M>(
    config: &str,
    new: impl FnOnce(VarBuilder<'static>) -> candle_core::Result<M>,
    forward: impl FnOnce(&mut M, &Tensor) -> candle_core::Result<Tensor>,
) -> Seen {
    watch(Some(config), &[], |vb| {
        let mut model = new(vb).expect("it loads");
        encode(|ids| forward(&mut model, ids));
    })
}

const CASE: Case<'static> = Case {
    name: "",
    file: "",
    remark: "",
    steps: &[PREFILL],
    total: &|step| layers(step, 2),
    flops: StepFlops::All(&|step| layers(step, 2) + attention(step)),
    spanless: &[],
    shared: &[],
    rows: &|_, step| step.tokens,
    times: &|_, _| 1,
    nameless: &[],
    shown: true,
    part: false,
};

/// What `config.json` of BERT and its relatives has besides.
fn bert_config(model_type: &str) -> String {
    config(
        model_type,
        json!({
            "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "type_vocab_size": 2,
            "initializer_range": 0.02, "pad_token_id": 0, "position_embedding_type": "absolute",
        }),
    )
}

fn bert() -> Row {
    let text = bert_config("bert");
    let seen = run(
        &text,
        |vb| bert::BertModel::load(vb, &of(&text)),
        |model, ids| model.forward(ids, &ids.zeros_like()?, None),
    );
    Case { name: "bert", file: "bert.rs", spanless: &["_embeddings"], ..CASE }.check(&seen)
}

fn bert_masked() -> Row {
    let text = bert_config("bert");
    let seen = run(
        &text,
        |vb| bert::BertForMaskedLM::load(vb, &of(&text)),
        |model, ids| model.forward(ids, &ids.zeros_like()?, None),
    );
    Case {
        name: "bert, masked words",
        file: "bert.rs",
        total: &|step| layers(step, 2) + 2 * step.tokens * (32 * 32 + 32 * 96),
        flops: StepFlops::Without("head", &|step| layers(step, 2) + attention(step)),
        spanless: &["_embeddings"],
        ..CASE
    }
    .check(&seen)
}

fn distilbert_config() -> String {
    bert_config("distilbert")
        .replace("\"hidden_size\"", "\"dim\"")
        .replace("\"num_hidden_layers\"", "\"n_layers\"")
        .replace("\"num_attention_heads\"", "\"n_heads\"")
        .replace("\"intermediate_size\"", "\"hidden_dim\"")
        .replace("\"hidden_act\"", "\"activation\"")
}

fn all_tokens(ids: &Tensor) -> candle_core::Result<Tensor> {
    let tokens = ids.dim(1)?;
    // What is masked, of every pair: nothing.
    Tensor::zeros((tokens, tokens), DType::U8, ids.device())
}

fn distilbert() -> Row {
    let text = distilbert_config();
    let seen = run(
        &text,
        |vb| distilbert::DistilBertModel::load(vb, &of(&text)),
        |model, ids| model.forward(ids, &all_tokens(ids)?),
    );
    Case { name: "distilbert", file: "distilbert.rs", spanless: &["_embeddings"], ..CASE }.check(&seen)
}

fn distilbert_masked() -> Row {
    let text = distilbert_config();
    let seen = run(
        &text,
        |vb| distilbert::DistilBertForMaskedLM::load(vb, &of(&text)),
        |model, ids| model.forward(ids, &all_tokens(ids)?),
    );
    Case {
        name: "distilbert, masked words",
        file: "distilbert.rs",
        total: &|step| layers(step, 2) + 2 * step.tokens * (32 * 32 + 32 * 96),
        flops: StepFlops::Without("head", &|step| layers(step, 2) + attention(step)),
        spanless: &["_embeddings", "vocab_projector"],
        shared: &[("lm_head", "distilbert.embeddings.word_embeddings.weight")],
        ..CASE
    }
    .check(&seen)
}

fn jina_bert() -> Row {
    let text = bert_config("jina_bert").replace("absolute", "alibi");
    let seen = run(&text, |vb| jina_bert::BertModel::new(vb, &of(&text)), |model, ids| model.forward(ids));
    Case {
        name: "jina_bert",
        file: "jina_bert.rs",
        total: &|step| layers(step, 3),
        flops: StepFlops::All(&|step| layers(step, 3) + attention(step)),
        spanless: &["LayerNorm", "layernorm"],
        ..CASE
    }
    .check(&seen)
}

fn nomic_bert() -> Row {
    let text = json!({"model_type": "nomic_bert", "vocab_size": 96, "n_embd": 32, "n_head": 4, "n_layer": 3,
                      "n_inner": 64, "n_positions": 128})
    .to_string();
    let seen =
        run(&text, |vb| nomic_bert::NomicBertModel::load(vb, &of(&text)), |model, ids| model.forward(ids, None, None));
    Case {
        name: "nomic_bert",
        file: "nomic_bert.rs",
        total: &|step| layers(step, 3),
        flops: StepFlops::All(&|step| layers(step, 3) + attention(step)),
        spanless: &["_embeddings"],
        ..CASE
    }
    .check(&seen)
}

fn xlm_roberta() -> Row {
    let text = bert_config("xlm-roberta");
    let seen = run(
        &text,
        |vb| xlm_roberta::XLMRobertaForSequenceClassification::new(3, &of(&text), vb),
        |model, ids| model.forward(ids, &ids.ones_like()?, &ids.zeros_like()?),
    );
    Case {
        name: "xlm_roberta, classes",
        file: "xlm_roberta.rs",
        // The classifier takes the first position.
        total: &|step| layers(step, 2) + 2 * (32 * 32 + 32 * 3),
        flops: StepFlops::Without("classifier", &|step| layers(step, 2) + attention(step)),
        spanless: &["_embeddings", "LayerNorm"],
        rows: &|module, step| if module.starts_with("classifier") { 1 } else { step.tokens },
        ..CASE
    }
    .check(&seen)
}

fn xlm_roberta_masked() -> Row {
    let text = bert_config("xlm-roberta");
    let seen = run(
        &text,
        |vb| xlm_roberta::XLMRobertaForMaskedLM::new(&of(&text), vb),
        |model, ids| model.forward(ids, &ids.ones_like()?, &ids.zeros_like()?, None, None, None),
    );
    Case {
        name: "xlm_roberta, masked words",
        file: "xlm_roberta.rs",
        remark: "the head is a product with the embedding, without a span",
        total: &|step| layers(step, 2) + 2 * step.tokens * (32 * 32 + 32 * 96),
        flops: StepFlops::Without("head", &|step| layers(step, 2) + attention(step)),
        spanless: &["_embeddings", "LayerNorm", "layer_norm"],
        shown: false,
        ..CASE
    }
    .check(&seen)
}

fn stella(variant: &str) -> Seen {
    let text = config(
        "stella",
        json!({"variant": variant, "embed_head": {"in_features": 32, "out_features": 16}, "norm_eps": 1e-5,
               "activation_fn": "gelu", "type_vocab_size": 2, "scaling_factor": 2.0}),
    );
    run(
        &text,
        |vb| stella_en_v5::EmbeddingModel::new(&of(&text), vb.clone(), vb),
        |model, ids| model.forward(ids, &ids.ones_like()?),
    )
}

fn stella_small() -> Row {
    let seen = stella("Small");
    Case {
        name: "stella_en_v5, 400M",
        file: "stella_en_v5.rs",
        total: &|step| layers(step, 3) + 2 * 32 * 16,
        flops: StepFlops::Unknown,
        spanless: &["_embeddings", "LayerNorm", "_ln"],
        rows: &|module, step| if module == "linear" { 1 } else { step.tokens },
        ..CASE
    }
    .check(&seen)
}

fn stella_large() -> Row {
    let seen = stella("Large");
    Case {
        name: "stella_en_v5, 1.5B",
        file: "stella_en_v5.rs",
        remark: "queries, keys and values are merged when the model loads: one span, and no module of the file",
        // Half as many heads of keys and values.
        total: &|step| layers(step, 3) - 2 * step.tokens * 3 * 32 * 32 + 2 * 32 * 16,
        flops: StepFlops::Unknown,
        spanless: &["embed_tokens", "q_proj", "k_proj", "v_proj"],
        nameless: &[("linear", 3)],
        rows: &|module, step| if module == "linear" { 1 } else { step.tokens },
        shown: false,
        ..CASE
    }
    .check(&seen)
}

fn chinese_clip() -> Row {
    let text = config("chinese_clip_text_model", json!({}));
    let config = text_model::ChineseClipTextConfig {
        vocab_size: 96,
        hidden_size: 32,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        intermediate_size: 64,
        max_position_embeddings: 64,
        ..text_model::ChineseClipTextConfig::default()
    };
    let seen = run(
        &text,
        |vb| text_model::ChineseClipTextTransformer::new(vb, &config),
        |model, ids| model.forward(ids, None, None),
    );
    Case {
        name: "chinese_clip, text",
        file: "chinese_clip/text_model.rs",
        remark: "only one projection of a layer has a span",
        flops: StepFlops::Unknown,
        spanless: &["_embeddings", "LayerNorm", "query", "key", "value", "output.dense"],
        shown: false,
        ..CASE
    }
    .check(&seen)
}

fn modernbert() -> Row {
    let text = config(
        "modernbert",
        json!({"pad_token_id": 0, "global_attn_every_n_layers": 2, "global_rope_theta": 1e5, "local_attention": 4,
               "local_rope_theta": 1e4}),
    );
    let seen = run(
        &text,
        |vb| modernbert::ModernBert::load(vb, &of(&text)),
        |model, ids| model.forward(ids, &ids.ones_like()?),
    );
    Case {
        name: "modernbert",
        file: "modernbert.rs",
        remark: super::NO_SPANS,
        // Gate and value in one matrix.
        total: &|step| layers(step, 3),
        flops: StepFlops::Unknown,
        spanless: &[""],
        shown: false,
        ..CASE
    }
    .check(&seen)
}
