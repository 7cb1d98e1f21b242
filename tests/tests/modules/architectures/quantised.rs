//! Quantised models, from a GGUF file written here: a prompt of five tokens and one more.

use super::decoders::{Decoder, SMALL, config, of};
use super::{Case, Row, Seen, Step, StepFlops, common, generate};
use candle_core::quantized::gguf_file::{self, Content, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use candle_transformers::models::{
    quantized_gemma3, quantized_glm4, quantized_llama, quantized_mistral, quantized_phi, quantized_phi3,
    quantized_qwen2, quantized_qwen3, quantized_qwen3_moe,
};
use candle_transformers::quantized_var_builder::VarBuilder;
use candlescope::modules::ObservedGguf;
use std::io::Cursor;

pub(super) const MODELS: &[fn() -> Row] =
    &[llama, llama_tied, llama_moe, gemma3, glm4, phi, phi3, qwen3, qwen3_untied, qwen3_moe, qwen2, mistral];

#[test]
fn every_layer_is_named() {
    super::hold_family(MODELS);
}

/// A file being written.
#[derive(Default)]
struct File {
    tensors: Vec<(String, QTensor)>,
    metadata: Vec<(String, Value)>,
}

type Observed = ObservedGguf<Cursor<Vec<u8>>>;

impl File {
    /// What every file has: the embedding, the last norm, and sizes under the architecture's name.
    fn new(architecture: &str) -> Self {
        let mut file = Self::default().matrix("token_embd", 96, 32).vector("output_norm.weight", 32);
        file.metadata.push(("general.architecture".into(), Value::String(architecture.into())));
        file.metadata.push(("general.dtype".into(), Value::U32(0)));
        for (key, value) in [
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
            ("attention.key_length", 8),
            ("attention.value_length", 8),
            ("block_count", 3),
            ("context_length", 128),
            ("embedding_length", 32),
            ("feed_forward_length", 64),
            ("rope.dimension_count", 8),
        ] {
            file = file.size(format!("{architecture}.{key}"), value);
        }
        for key in ["attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"] {
            file.metadata.push((format!("{architecture}.{key}"), Value::F32(1e-5)));
        }
        file.metadata.push((format!("{architecture}.rope.freq_base"), Value::F32(10_000.)));
        file
    }

    /// One more size, or another one.
    fn size(mut self, key: String, value: u32) -> Self {
        self.metadata.retain(|(known, _)| *known != key);
        self.metadata.push((key, Value::U32(value)));
        self
    }

    fn matrix(mut self, module: &str, out: usize, features: usize) -> Self {
        let values = Tensor::randn(0f32, 0.05, (out, features), &Device::Cpu).expect("random");
        let quantised = QTensor::quantize(&values, GgmlDType::Q8_0).expect("quantised");
        self.tensors.push((format!("{module}.weight"), quantised));
        self
    }

    fn vector(mut self, name: &str, features: usize) -> Self {
        let values = Tensor::ones(features, DType::F32, &Device::Cpu).expect("ones");
        self.tensors.push((name.into(), QTensor::quantize(&values, GgmlDType::F32).expect("as it is")));
        self
    }

    fn layers(self, layer: impl Fn(Self, &str) -> Self) -> Self {
        (0..3).fold(self, |file, i| layer(file, &format!("blk.{i}")))
    }

    fn head(self) -> Self {
        self.matrix("output", 96, 32)
    }

    fn bytes(&self) -> Vec<u8> {
        let mut file = Cursor::new(Vec::new());
        let metadata: Vec<(&str, &Value)> = self.metadata.iter().map(|(key, value)| (key.as_str(), value)).collect();
        let tensors: Vec<(&str, &QTensor)> =
            self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
        gguf_file::write(&mut file, &metadata, &tensors).expect("written");
        file.into_inner()
    }

    /// Loads and runs a model under a session.
    fn watch<M>(
        &self,
        load: impl FnOnce(Content, &mut Observed) -> candle_core::Result<M>,
        forward: impl Fn(&mut M, &Tensor, usize) -> candle_core::Result<Tensor>,
    ) -> Seen {
        let (batch, ..) = common::record(|| {
            let mut file = candlescope::observe_gguf(Cursor::new(self.bytes())).expect("a file");
            let content = Content::read(&mut file).expect("read back");
            let mut model = load(content, &mut file).expect("it loads");
            generate(|ids, position| forward(&mut model, ids, position));
        });
        self.seen(batch)
    }

    fn seen(&self, batch: candlescope_core::Batch) -> Seen {
        let weights = self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().dims().to_vec()));
        Seen { weights: weights.collect(), batch }
    }
}

/// Four projections of separate attention.
fn attention(file: File, layer: &str) -> File {
    let file = file.matrix(&format!("{layer}.attn_q"), 32, 32).matrix(&format!("{layer}.attn_k"), 16, 32);
    file.matrix(&format!("{layer}.attn_v"), 16, 32).matrix(&format!("{layer}.attn_output"), 32, 32)
}

fn gated(file: File, layer: &str, suffix: &str) -> File {
    let part = |name: &str| format!("{layer}.{name}{suffix}");
    file.matrix(&part("ffn_gate"), 64, 32).matrix(&part("ffn_up"), 64, 32).matrix(&part("ffn_down"), 32, 64)
}

fn norms(file: File, layer: &str, names: &[&str], features: usize) -> File {
    names.iter().fold(file, |file, name| file.vector(&format!("{layer}.{name}.weight"), features))
}

const CASE: Case<'static> = Case {
    name: "",
    file: "",
    remark: "",
    steps: &[super::PREFILL, super::DECODE],
    total: &|step| SMALL.weights(step),
    flops: StepFlops::All(&|step| SMALL.weights(step) + SMALL.attention(step)),
    spanless: &["token_embd"],
    shared: &[],
    rows: &|module, step| if matches!(module, "output" | "lm_head") { 1 } else { step.tokens },
    times: &|_, _| 1,
    nameless: &[],
    shown: true,
    part: false,
};

const TIED: &[(&str, &str)] = &[("lm_head", "token_embd.weight")];

fn llama_file() -> File {
    File::new("llama")
        .layers(|file, layer| norms(gated(attention(file, layer), layer, ""), layer, &["attn_norm", "ffn_norm"], 32))
}

fn run_llama(file: &File) -> Seen {
    file.watch(
        |content, file| quantized_llama::ModelWeights::from_gguf(content, file, &Device::Cpu),
        |model, ids, position| model.forward(ids, position),
    )
}

fn llama() -> Row {
    Case { name: "quantized_llama", file: "quantized_llama.rs", ..CASE }.check(&run_llama(&llama_file().head()))
}

fn llama_tied() -> Row {
    let seen = run_llama(&llama_file());
    Case { name: "quantized_llama, tied head", file: "quantized_llama.rs", shared: TIED, ..CASE }.check(&seen)
}

fn llama_moe() -> Row {
    let file = File::new("llama").head().layers(|file, layer| {
        let file = attention(file, layer).matrix(&format!("{layer}.ffn_gate_inp"), 2, 32);
        let file = gated(gated(file, layer, ".0"), layer, ".1");
        norms(file, layer, &["attn_norm", "ffn_norm"], 32)
    });
    // Both experts for each token.
    let file = file.size("llama.expert_count".into(), 2).size("llama.expert_used_count".into(), 2);
    let experts = 2 * 3 * 32 * 64;
    let all = Decoder { mlp: experts + 2 * 32, ..SMALL };
    Case {
        name: "quantized_llama, experts",
        file: "quantized_llama.rs",
        remark: "rows of an expert depend on the routing",
        total: &|step| all.weights(step),
        flops: StepFlops::Without("experts", &|step: Step| {
            all.weights(step) + all.attention(step) - 2 * step.tokens * 3 * experts
        }),
        ..CASE
    }
    .check(&run_llama(&file))
}

fn gemma3() -> Row {
    let file = File::new("gemma3").size("gemma3.attention.sliding_window".into(), 128).layers(|file, layer| {
        let file = gated(attention(file, layer), layer, "");
        let file = norms(file, layer, &["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"], 32);
        norms(file, layer, &["attn_q_norm", "attn_k_norm"], 8)
    });
    let seen = file.watch(
        |content, file| quantized_gemma3::ModelWeights::from_gguf(content, file, &Device::Cpu),
        quantized_gemma3::ModelWeights::forward,
    );
    Case { name: "quantized_gemma3", file: "quantized_gemma3.rs", flops: StepFlops::Unknown, shared: TIED, ..CASE }
        .check(&seen)
}

fn glm4() -> Row {
    let file = File::new("glm4").head().layers(|file, layer| {
        let file = attention(file, layer).matrix(&format!("{layer}.ffn_up"), 128, 32);
        let file = file.matrix(&format!("{layer}.ffn_down"), 32, 64).vector(&format!("{layer}.attn_q.bias"), 32);
        let file = file.vector(&format!("{layer}.attn_k.bias"), 16).vector(&format!("{layer}.attn_v.bias"), 16);
        norms(file, layer, &["attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"], 32)
    });
    let seen = file.watch(
        |content, file| quantized_glm4::ModelWeights::from_gguf(content, file, &Device::Cpu, DType::F32),
        |model, ids, position| model.forward(ids, position),
    );
    Case { name: "quantized_glm4", file: "quantized_glm4.rs", ..CASE }.check(&seen)
}

fn phi() -> Row {
    let linear = |file: File, module: &str, out: usize, features: usize| {
        file.matrix(module, out, features).vector(&format!("{module}.bias"), out)
    };
    // It wants as many heads of keys as of queries.
    let file = File::new("phi2").size("phi2.attention.head_count_kv".into(), 4);
    let file = linear(file, "output", 96, 32).vector("output_norm.bias", 32).layers(|file, layer| {
        let file = linear(file, &format!("{layer}.attn_qkv"), 3 * 32, 32);
        let file = linear(file, &format!("{layer}.attn_output"), 32, 32);
        let file = linear(linear(file, &format!("{layer}.ffn_up"), 64, 32), &format!("{layer}.ffn_down"), 32, 64);
        norms(file, layer, &["attn_norm"], 32).vector(&format!("{layer}.attn_norm.bias"), 32)
    });
    let seen = file.watch(
        |content, file| quantized_phi::ModelWeights::from_gguf(content, file, &Device::Cpu),
        quantized_phi::ModelWeights::forward,
    );
    let sizes = Decoder { keys: 32, mlp: 2 * 32 * 64, ..SMALL };
    Case {
        name: "quantized_phi",
        file: "quantized_phi.rs",
        total: &|step| sizes.weights(step),
        flops: StepFlops::All(&|step| sizes.weights(step) + sizes.attention(step)),
        spanless: &["token_embd", "norm"],
        ..CASE
    }
    .check(&seen)
}

fn phi3() -> Row {
    let file = File::new("phi3").size("phi3.attention.sliding_window".into(), 4).head().layers(|file, layer| {
        let file = file.matrix(&format!("{layer}.attn_qkv"), 32 + 2 * 16, 32);
        let file = file.matrix(&format!("{layer}.attn_output"), 32, 32);
        let file = file.matrix(&format!("{layer}.ffn_up"), 128, 32).matrix(&format!("{layer}.ffn_down"), 32, 64);
        norms(file, layer, &["attn_norm", "ffn_norm"], 32)
    });
    let seen = file.watch(
        |content, file| quantized_phi3::ModelWeights::from_gguf(false, content, file, &Device::Cpu),
        quantized_phi3::ModelWeights::forward,
    );
    let sizes = Decoder { windows: (3, 4), ..SMALL };
    Case {
        name: "quantized_phi3",
        file: "quantized_phi3.rs",
        flops: StepFlops::All(&|step| sizes.weights(step) + sizes.attention(step)),
        spanless: &["token_embd", "norm"],
        ..CASE
    }
    .check(&seen)
}

fn qwen3_file() -> File {
    File::new("qwen3").layers(|file, layer| {
        let file = norms(gated(attention(file, layer), layer, ""), layer, &["attn_norm", "ffn_norm"], 32);
        norms(file, layer, &["attn_q_norm", "attn_k_norm"], 8)
    })
}

fn run_qwen3(file: &File) -> Seen {
    file.watch(
        |content, file| quantized_qwen3::ModelWeights::from_gguf(content, file, &Device::Cpu),
        quantized_qwen3::ModelWeights::forward,
    )
}

fn qwen3() -> Row {
    let seen = run_qwen3(&qwen3_file());
    Case { name: "quantized_qwen3, tied head", file: "quantized_qwen3.rs", shared: TIED, ..CASE }.check(&seen)
}

fn qwen3_untied() -> Row {
    let seen = run_qwen3(&qwen3_file().head());
    Case { name: "quantized_qwen3", file: "quantized_qwen3.rs", ..CASE }.check(&seen)
}

/// Without experts, which candle computes together and on a GPU only.
fn qwen3_moe() -> Row {
    let file = ["expert_count", "expert_used_count", "expert_feed_forward_length"]
        .iter()
        .fold(File::new("qwen3moe"), |file, key| file.size(format!("qwen3moe.{key}"), 0));
    let file = file.head().layers(|file, layer| {
        let file = norms(gated(attention(file, layer), layer, ""), layer, &["attn_norm", "ffn_norm"], 32);
        norms(file, layer, &["attn_q_norm", "attn_k_norm"], 8)
    });
    let seen = file.watch(
        |content, file| quantized_qwen3_moe::GGUFQWenMoE::from_gguf(content, file, &Device::Cpu, DType::F32),
        quantized_qwen3_moe::GGUFQWenMoE::forward,
    );
    Case {
        name: "quantized_qwen3_moe, dense",
        file: "quantized_qwen3_moe.rs",
        remark: "router and experts, which need a GPU and did not run here, have no spans",
        part: true,
        ..CASE
    }
    .check(&seen)
}

fn qwen2() -> Row {
    let file = File::new("qwen2").head().layers(|file, layer| {
        let file = gated(attention(file, layer), layer, "").vector(&format!("{layer}.attn_q.bias"), 32);
        let file = file.vector(&format!("{layer}.attn_k.bias"), 16).vector(&format!("{layer}.attn_v.bias"), 16);
        norms(file, layer, &["attn_norm", "ffn_norm"], 32)
    });
    let seen = file.watch(
        |content, file| quantized_qwen2::ModelWeights::from_gguf(content, file, &Device::Cpu),
        quantized_qwen2::ModelWeights::forward,
    );
    Case {
        name: "quantized_qwen2",
        file: "quantized_qwen2.rs",
        remark: "only norms have spans",
        flops: StepFlops::Unknown,
        spanless: &["token_embd", "output", "attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up", "ffn_down"],
        shown: false,
        ..CASE
    }
    .check(&seen)
}

/// Loaded by a builder that reads the whole file before anything is built.
fn mistral() -> Row {
    let file = ["model.embed_tokens", "lm_head"].iter().fold(File::default(), |file, name| file.matrix(name, 96, 32));
    let file = (0..3).fold(file.vector("model.norm.weight", 32), |file, i| {
        let layer = format!("model.layers.{i}");
        let sizes = [
            ("self_attn.q_proj", 32, 32),
            ("self_attn.k_proj", 16, 32),
            ("self_attn.v_proj", 16, 32),
            ("self_attn.o_proj", 32, 32),
            ("mlp.gate_proj", 64, 32),
            ("mlp.up_proj", 64, 32),
            ("mlp.down_proj", 32, 64),
        ];
        let part = |file: File, (name, out, features): &(&str, usize, usize)| {
            file.matrix(&format!("{layer}.{name}"), *out, *features)
        };
        let file = sizes.iter().fold(file, part);
        norms(file, &layer, &["input_layernorm", "post_attention_layernorm"], 32)
    });
    let text = config("mistral", serde_json::json!({}));
    let (batch, ..) = common::record(|| {
        let vb = VarBuilder::from_gguf_buffer(&file.bytes(), &Device::Cpu).expect("a file");
        let mut model = quantized_mistral::Model::new(&of(&text), vb).expect("it loads");
        generate(|ids, position| model.forward(ids, position));
    });
    Case {
        name: "quantized_mistral",
        file: "quantized_mistral.rs",
        remark: "read as a whole before anything is built, as with all models of candle's quantised builder",
        flops: StepFlops::Unknown,
        spanless: &[""],
        nameless: &[("embedding", 1), ("qmatmul", 22), ("rms-norm", 7)],
        shown: false,
        ..CASE
    }
    .check(&file.seen(batch))
}
