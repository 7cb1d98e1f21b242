//! Decoders: a prompt of five tokens and one more.

use super::{Case, NO_SPANS, Row, Seen, Step, StepFlops, TRACED, generate, watch};
use candle_core::{DType, Device};
use candle_nn::VarBuilder;
use candle_transformers::models::smol::smollm3;
use candle_transformers::models::voxtral::{VoxtralLlama, VoxtralLlamaCache, VoxtralLlamaConfig};
use candle_transformers::models::{
    chatglm, codegeex4_9b, gemma2, glm4, glm4_new, granite, granitemoehybrid, helium, lfm2, llama, mistral, mixformer,
    mixtral, phi, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe, stable_lm, starcoder2,
};
use serde_json::{Value, json};

pub(super) const MODELS: &[fn() -> Row] = &[
    llama,
    granite,
    granite_hybrid,
    mistral,
    mixtral,
    qwen2_tied,
    qwen2_moe,
    qwen3,
    qwen3_moe,
    phi,
    phi3,
    stable_lm,
    glm4,
    glm4_new,
    chatglm,
    helium,
    smollm3,
    mixformer,
    lfm2,
    voxtral,
    codegeex4,
    gemma2,
    starcoder2,
];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// Sizes of a decoder whose layers are alike.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    pub(super) layers: u64,
    pub(super) hidden: u64,
    /// Features of the queries, all heads together.
    pub(super) queries: u64,
    /// Features of the keys.
    pub(super) keys: u64,
    /// Elements of a layer's matrices besides attention's.
    pub(super) mlp: u64,
    pub(super) vocabulary: u64,
    /// Layers that attend to so many positions only.
    pub(super) windows: (u64, u64),
}

pub(super) const SMALL: Decoder =
    Decoder { layers: 3, hidden: 32, queries: 32, keys: 16, mlp: 3 * 32 * 64, vocabulary: 96, windows: (0, 0) };

impl Decoder {
    /// Projections of each token, and the head of the last.
    pub(super) fn weights(&self, step: Step) -> u64 {
        let attention = self.hidden * (2 * self.queries + 2 * self.keys);
        2 * (step.tokens * self.layers * (attention + self.mlp) + self.hidden * self.vocabulary)
    }

    pub(super) fn attention(&self, step: Step) -> u64 {
        let (layers, positions) = self.windows;
        let within: u64 = (step.context - step.tokens + 1..=step.context).map(|seen| seen.min(positions)).sum();
        4 * self.queries * ((self.layers - layers) * step.causal() + layers * within)
    }

    /// One whose step is known to the last FLOP.
    fn check(self, name: &'static str, seen: &Seen, case: Case<'_>) -> Row {
        let total = |step: Step| self.weights(step);
        let flops = |step: Step| self.weights(step) + self.attention(step);
        // By the file's name, unless said otherwise.
        Case { name, total: &total, flops: StepFlops::All(&flops), ..case }.check(seen)
    }
}

const TIED: &[(&str, &str)] = &[("lm_head", "model.embed_tokens.weight")];

/// What `config.json` of a small model says; keys that a model does not know are nothing to it.
pub(super) fn config(model_type: &str, more: Value) -> String {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "layer_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false,
        "attention_bias": false, "sliding_window": null, "max_window_layers": 3, "use_sliding_window": false,
        "use_flash_attn": false, "partial_rotary_factor": 0.5,
    });
    if let (Some(config), Value::Object(more)) = (config.as_object_mut(), more) {
        config.extend(more);
    }
    config.to_string()
}

pub(super) fn of<T: serde::de::DeserializeOwned>(config: &str) -> T {
    serde_json::from_str(config).expect("a configuration of candle")
}

pub(super) fn run<M>(
    config: &str,
    new: impl FnOnce(VarBuilder<'static>) -> candle_core::Result<M>,
    forward: impl Fn(&mut M, &candle_core::Tensor, usize) -> candle_core::Result<candle_core::Tensor>,
) -> Seen {
    watch(Some(config), &[], |vb| {
        let mut model = new(vb).expect("it loads");
        generate(|ids, position| forward(&mut model, ids, position));
    })
}

fn llama() -> Row {
    let text = config("llama", json!({}));
    let config = of::<llama::LlamaConfig>(&text).into_config(false);
    let mut cache = llama::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let seen = watch(Some(&text), &[], |vb| {
        let model = llama::Llama::load(vb, &config).expect("it loads");
        generate(|ids, position| model.forward(ids, position, &mut cache));
    });
    SMALL.check("llama", &seen, Case { file: "llama.rs", spanless: &["embed_tokens"], ..Case::default() })
}

fn granite() -> Row {
    let text = config("granite", json!({}));
    let config = of::<granite::GraniteConfig>(&text).into_config(false);
    let mut cache = granite::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let seen = watch(Some(&text), &[], |vb| {
        let model = granite::Granite::load(vb, &config).expect("it loads");
        generate(|ids, position| model.forward(ids, position, &mut cache));
    });
    SMALL.check("granite", &seen, Case { file: "granite.rs", spanless: &["embed_tokens"], ..Case::default() })
}

fn granite_hybrid() -> Row {
    let text = config("granitemoehybrid", json!({}));
    let config = of::<granitemoehybrid::GraniteMoeHybridConfig>(&text).into_config(false);
    let mut cache =
        granitemoehybrid::GraniteMoeHybridCache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let seen = watch(Some(&text), &[], |vb| {
        let model = granitemoehybrid::GraniteMoeHybrid::load(vb, &config).expect("it loads");
        generate(|ids, position| model.forward(ids, position, &mut cache));
    });
    Case {
        name: "granitemoehybrid",
        file: "granitemoehybrid.rs",
        remark: "the head is a product without a span",
        total: &|step| SMALL.weights(step),
        spanless: &["embed_tokens"],
        ..Case::default()
    }
    .check(&seen)
}

fn mistral() -> Row {
    let text = config("mistral", json!({"head_dim": 16}));
    let seen = run(&text, |vb| mistral::Model::new(&of(&text), vb), mistral::Model::forward);
    let wide = Decoder { queries: 64, keys: 32, ..SMALL };
    wide.check("mistral", &seen, Case { file: "mistral.rs", spanless: &["embed_tokens"], ..Case::default() })
}

/// Both experts are chosen for every token, so that their rows are known here. The product does not know them.
fn mixture(name: &'static str, seen: &Seen, all: Decoder, experts: u64, case: Case<'_>) -> Row {
    let total = |step: Step| all.weights(step);
    let flops = |step: Step| all.weights(step) + all.attention(step) - 2 * step.tokens * experts;
    Case {
        name,
        remark: "rows of an expert depend on the routing",
        total: &total,
        flops: StepFlops::Without("experts", &flops),
        spanless: &["embed_tokens"],
        ..case
    }
    .check(seen)
}

fn mixtral() -> Row {
    let more = json!({"num_local_experts": 2, "num_experts_per_tok": 2, "sliding_window": 128});
    let text = config("mixtral", more);
    let seen = run(&text, |vb| mixtral::Model::new(&of(&text), vb), mixtral::Model::forward);
    let experts = 2 * 3 * 32 * 64;
    let all = Decoder { mlp: experts + 2 * 32, ..SMALL };
    mixture("mixtral", &seen, all, 3 * experts, Case { file: "mixtral.rs", ..Case::default() })
}

fn qwen2_tied() -> Row {
    let text = config("qwen2", json!({"sliding_window": 128}));
    // The head is tied where the file has none.
    let seen = run(&text, |vb| qwen2::ModelForCausalLM::new(&of(&text), vb), qwen2::ModelForCausalLM::forward);
    let case = Case { file: "qwen2.rs", spanless: &["embed_tokens"], shared: TIED, ..Case::default() };
    SMALL.check("qwen2", &seen, case)
}

fn qwen2_moe() -> Row {
    let text = config(
        "qwen2_moe",
        json!({"num_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "sliding_window": 128,
               "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1, "norm_topk_prob": true}),
    );
    let seen = run(&text, |vb| qwen2_moe::Model::new(&of(&text), vb), qwen2_moe::Model::forward);
    let experts = 2 * 3 * 32 * 48;
    // Two experts and their gate, one shared by all tokens and its gate of one row.
    let all = Decoder { mlp: experts + 2 * 32 + 3 * 32 * 40 + 32, ..SMALL };
    mixture("qwen2_moe", &seen, all, 3 * experts, Case { file: "qwen2_moe.rs", ..Case::default() })
}

fn qwen3() -> Row {
    let text = config("qwen3", json!({"head_dim": 16, "tie_word_embeddings": true}));
    let seen = run(&text, |vb| qwen3::ModelForCausalLM::new(&of(&text), vb), qwen3::ModelForCausalLM::forward);
    let case = Case { file: "qwen3.rs", spanless: &["embed_tokens"], shared: TIED, ..Case::default() };
    Decoder { queries: 64, keys: 32, ..SMALL }.check("qwen3", &seen, case)
}

fn qwen3_moe() -> Row {
    let text = config(
        "qwen3_moe",
        json!({"num_experts": 2, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "head_dim": 16,
               "decoder_sparse_step": 2, "norm_topk_prob": true}),
    );
    let seen = run(&text, |vb| qwen3_moe::ModelForCausalLM::new(&of(&text), vb), qwen3_moe::ModelForCausalLM::forward);
    let experts = 2 * 3 * 32 * 48;
    // The second layer of three has experts.
    let dense = Decoder { queries: 64, keys: 32, mlp: 0, ..SMALL };
    let mlps = 2 * 3 * 32 * 64 + experts + 2 * 32;
    let total = |step: Step| dense.weights(step) + 2 * step.tokens * mlps;
    let flops = |step: Step| total(step) + dense.attention(step) - 2 * step.tokens * experts;
    Case {
        name: "qwen3_moe",
        file: "qwen3_moe.rs",
        remark: "rows of an expert depend on the routing; with candle's feature `cuda` experts have no span",
        total: &total,
        flops: StepFlops::Without("experts", &flops),
        spanless: &["embed_tokens"],
        ..Case::default()
    }
    .check(&seen)
}

fn phi() -> Row {
    let text = config("phi", json!({"qk_layernorm": false, "hidden_act": "gelu"}));
    let seen = run(&text, |vb| phi::Model::new(&of(&text), vb), |model, ids, _| model.forward(ids));
    Decoder { mlp: 2 * 32 * 64, ..SMALL }.check("phi", &seen, Case { file: "phi.rs", ..Case::default() })
}

fn phi3() -> Row {
    let text = config("phi3", json!({"tie_word_embeddings": true}));
    let seen = run(&text, |vb| phi3::Model::new(&of(&text), vb), phi3::Model::forward);
    let case = Case { file: "phi3.rs", spanless: &["embed_tokens"], shared: TIED, ..Case::default() };
    SMALL.check("phi3", &seen, case)
}

fn stable_lm() -> Row {
    let text = config("stablelm", json!({"use_cache": true, "use_qkv_bias": true}));
    let seen = run(&text, |vb| stable_lm::Model::new(&of(&text), vb), stable_lm::Model::forward);
    let spanless: &[&str] = &["embed_tokens", "norm"];
    SMALL.check("stable_lm", &seen, Case { file: "stable_lm.rs", spanless, ..Case::default() })
}

/// What GLM's own configuration calls otherwise.
fn glm(model_type: &str) -> String {
    config(
        model_type,
        json!({
            "num_layers": 3, "padded_vocab_size": 96, "ffn_hidden_size": 64, "kv_channels": 8, "seq_length": 128,
            "layernorm_epsilon": 1e-5, "rmsnorm": true, "apply_residual_connection_post_layernorm": false,
            "post_layer_norm": true, "add_bias_linear": false, "add_qkv_bias": true, "bias_dropout_fusion": true,
            "multi_query_attention": true, "multi_query_group_num": 2, "apply_query_key_layer_scaling": true,
            "attention_softmax_in_fp32": true, "fp32_residual_connection": false,
        }),
    )
}

const GLM: Case<'static> = Case {
    name: "",
    file: "",
    remark: "",
    steps: &[super::PREFILL, super::DECODE],
    total: &|_| 0,
    flops: StepFlops::Unknown,
    spanless: &["word_embeddings", "norm"],
    shared: &[],
    rows: &|module, step| if module == "transformer.output_layer" { 1 } else { step.tokens },
    times: &|_, _| 1,
    nameless: &[],
    shown: true,
    part: false,
};

fn glm4() -> Row {
    let text = glm("glm4");
    let seen = run(&text, |vb| glm4::Model::new(&of(&text), vb), |model, ids, _| model.forward(ids));
    SMALL.check("glm4", &seen, Case { file: "glm4.rs", ..GLM })
}

fn chatglm() -> Row {
    let text = glm("chatglm");
    let config = chatglm::Config {
        num_layers: 3,
        padded_vocab_size: 96,
        hidden_size: 32,
        ffn_hidden_size: 64,
        kv_channels: 8,
        num_attention_heads: 4,
        seq_length: 128,
        multi_query_group_num: 2,
        ..chatglm::Config::glm3_6b()
    };
    let seen = run(&text, |vb| chatglm::Model::new(&config, vb), |model, ids, _| model.forward(ids));
    SMALL.check("chatglm", &seen, Case { file: "chatglm.rs", ..GLM })
}

fn glm4_new() -> Row {
    let text = config("glm4", json!({"head_dim": 16, "attention_bias": true}));
    let seen = run(&text, |vb| glm4_new::ModelForCausalLM::new(&of(&text), vb), glm4_new::ModelForCausalLM::forward);
    let wide = Decoder { queries: 64, keys: 32, ..SMALL };
    wide.check("glm4_new", &seen, Case { file: "glm4_new.rs", spanless: &["embed_tokens"], ..Case::default() })
}

fn helium() -> Row {
    let more = json!({"head_dim": 16, "bos_token_id": 1, "eos_token_id": 2, "mlp_bias": false,
                      "tie_word_embeddings": true});
    let text = config("helium", more);
    let seen = run(&text, |vb| helium::Model::new(&of(&text), vb), helium::Model::forward);
    let case = Case { file: "helium.rs", spanless: &["embed_tokens"], shared: TIED, ..Case::default() };
    Decoder { queries: 64, keys: 32, ..SMALL }.check("helium", &seen, case)
}

fn smollm3() -> Row {
    let text = config("smollm3", json!({"tie_word_embeddings": true}));
    let seen = run(&text, |vb| smollm3::ModelForCausalLM::new(&of(&text), vb), smollm3::ModelForCausalLM::forward);
    let case = Case { file: "smol/smollm3.rs", spanless: &["embed_tokens"], shared: TIED, ..Case::default() };
    SMALL.check("smollm3", &seen, case)
}

fn mixformer() -> Row {
    let text = json!({
        "model_type": "mixformer-sequential", "vocab_size": 96, "n_positions": 128, "n_embd": 32, "n_layer": 3,
        "n_inner": 64, "n_head": 4, "rotary_dim": 4, "activation_function": "gelu", "layer_norm_epsilon": 1e-5,
        "tie_word_embeddings": false, "pad_vocab_size_multiple": 64,
    })
    .to_string();
    let seen = run(
        &text,
        |vb| mixformer::MixFormerSequentialForCausalLM::new(&of(&text), vb),
        |model, ids, _| model.forward(ids),
    );
    // As many heads of keys as of queries.
    let sizes = Decoder { keys: 32, mlp: 2 * 32 * 64, ..SMALL };
    Case {
        name: "mixformer",
        file: "mixformer.rs",
        total: &|step| sizes.weights(step),
        spanless: &["ln"],
        rows: &|module, step| if module == "layers.4.linear" { 1 } else { step.tokens },
        ..Case::default()
    }
    .check(&seen)
}

fn lfm2() -> Row {
    let more = json!({"norm_eps": 1e-5, "layer_types": ["conv", "full_attention", "conv"], "tie_embedding": true,
                      "block_ffn_dim_multiplier": 0.5, "block_multiple_of": 32});
    let text = config("lfm2", more);
    let config = of::<lfm2::Lfm2Config>(&text).into_config(false);
    let mut cache = lfm2::Cache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let seen = watch(Some(&text), &[], |vb| {
        let model = lfm2::Model::new(&config, vb).expect("it loads");
        generate(|ids, position| model.forward(ids, position, &mut cache));
    });
    // 64 = 32·4·0.5 features in the MLP; a convolution has three projections in, one out, and three taps a channel.
    let (attention, conv) = (32 * (2 * 32 + 2 * 16), 32 * 3 * 32 + 32 * 32 + 3 * 32);
    let layers = 3 * 3 * 32 * 64 + attention + 2 * conv;
    Case {
        name: "lfm2",
        file: "lfm2.rs",
        remark: "the short convolution has no span of its own",
        total: &|step| 2 * (step.tokens * layers + 32 * 96),
        spanless: &["conv.conv"],
        shared: TIED,
        ..Case::default()
    }
    .check(&seen)
}

fn voxtral() -> Row {
    let config = VoxtralLlamaConfig {
        hidden_size: 32,
        intermediate_size: 64,
        vocab_size: 96,
        num_hidden_layers: 3,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: Some(16),
        use_flash_attn: false,
        max_position_embeddings: 128,
        tie_word_embeddings: true,
        ..VoxtralLlamaConfig::voxtral_3b()
    };
    let mut cache = VoxtralLlamaCache::new(true, DType::F32, &config, &Device::Cpu).expect("a cache");
    let seen = watch(Some(&self::config("voxtral_text", json!({}))), &[], |vb| {
        let model = VoxtralLlama::load(vb, &config).expect("it loads");
        generate(|ids, position| model.forward(ids, position, &mut cache));
    });
    let wide = Decoder { queries: 64, keys: 32, ..SMALL };
    Case {
        name: "voxtral, text",
        file: "voxtral/voxtral_llama.rs",
        total: &|step| wide.weights(step),
        spanless: &["embed_tokens"],
        shared: TIED,
        ..Case::default()
    }
    .check(&seen)
}

fn codegeex4() -> Row {
    let text = glm("codegeex4");
    let seen = run(&text, |vb| codegeex4_9b::Model::new(&of(&text), vb), |model, ids, _| model.forward(ids));
    let total = &|step: Step| SMALL.weights(step);
    Case { name: "codegeex4", file: "codegeex4_9b.rs", total, flops: StepFlops::Unknown, ..GLM }.check(&seen)
}

/// A decoder that makes no spans of its own. With those of candle-nn's layers its steps are `known` to the last FLOP,
/// unless its architecture is not.
pub(super) fn spanless(sizes: Decoder, known: bool, seen: &Seen, case: Case<'_>) -> Row {
    let total = |step: Step| sizes.weights(step);
    let flops = |step: Step| sizes.weights(step) + sizes.attention(step);
    let flops = if TRACED && known { StepFlops::All(&flops) } else { StepFlops::Unknown };
    Case { remark: NO_SPANS, total: &total, flops, spanless: &[""], shown: false, ..case }.check(seen)
}

/// A tied head, where it has a span.
pub(super) const fn tied() -> &'static [(&'static str, &'static str)] {
    if TRACED { TIED } else { &[] }
}

fn gemma2() -> Row {
    let more = json!({"head_dim": 8, "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 8,
        "sliding_window": 4, "use_sliding_window": null});
    let text = config("gemma2", more);
    let seen = run(&text, |vb| gemma2::Model::new(false, &of(&text), vb), gemma2::Model::forward);
    spanless(
        Decoder { windows: (2, 4), ..SMALL },
        true,
        &seen,
        Case { name: "gemma2", file: "gemma2.rs", shared: tied(), ..Case::default() },
    )
}

fn starcoder2() -> Row {
    let text = config("starcoder2", json!({"norm_epsilon": 1e-5, "use_bias": true}));
    let seen = run(&text, |vb| starcoder2::Model::new(&of(&text), vb), starcoder2::Model::forward);
    let case = Case { name: "starcoder2", file: "starcoder2.rs", shared: tied(), ..Case::default() };
    spanless(Decoder { mlp: 2 * 32 * 64, ..SMALL }, true, &seen, case)
}
