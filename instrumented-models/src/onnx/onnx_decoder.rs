//! The graph of a decoder: what `llama.rs` and `gpt2.rs` compute, operation by operation, for one sequence.

use super::builder::{Builder, FLOAT, INT64, Size, Value, int, ints};
use crate::config::ModelConfig;
use crate::layers::rotary_frequencies;
use crate::weights::{HeldWeights, WeightError};
use std::path::PathBuf;

/// Puts the graph of `config` together. With `blocks`, each block's output is one of the graph's: `hidden.0` (tokens,
/// features) and so on.
pub(super) fn decoder(
    config: &ModelConfig,
    held: &HeldWeights,
    data: &str,
    blocks: bool,
) -> Result<Builder, WeightError> {
    let mut writer = Decoder { config, held, graph: Builder::new(&config.name, data) };
    writer.inputs();
    let shared = writer.shared()?;
    let mut xs = writer.embedded()?;
    for layer in 0..config.num_layers {
        xs = match config.is_gpt2() {
            true => writer.gpt2_block(&xs, layer, &shared)?,
            false => writer.llama_block(&xs, layer, &shared)?,
        };
        if blocks {
            let name = format!("hidden.{layer}");
            writer.graph.named("Identity", &[&xs], &[], &[&name]);
            writer.graph.output(&name, FLOAT, &[Size::Named("tokens"), Size::Fixed(config.hidden_size)]);
        }
    }
    writer.head(&xs)?;
    Ok(writer.graph)
}

struct Decoder<'a> {
    config: &'a ModelConfig,
    held: &'a HeldWeights,
    graph: Builder,
}

/// Values that all blocks use.
struct BlockValues {
    /// The mask that is added to scores, (tokens, context).
    mask: Value,
    /// Cosines and sines of the positions, (tokens, head / 2).
    turns: Option<(Value, Value)>,
}

impl Decoder<'_> {
    fn cache_shape(&self, tokens: &'static str) -> [Size; 4] {
        let heads = Size::Fixed(self.config.num_kv_heads);
        [Size::Fixed(1), heads, Size::Named(tokens), Size::Fixed(self.config.head_dim)]
    }

    fn inputs(&mut self) {
        self.graph.input("input_ids", INT64, &[Size::Fixed(1), Size::Named("tokens")]);
        self.graph.input("position_ids", INT64, &[Size::Fixed(1), Size::Named("tokens")]);
        self.graph.input("logits_at", INT64, &[Size::Named("positions")]);
        let vocabulary = Size::Fixed(self.config.vocab_size);
        self.graph.output("logits", FLOAT, &[Size::Named("positions"), vocabulary]);
        for layer in 0..self.config.num_layers {
            for kind in ["key", "value"] {
                let (past, present) = (self.cache_shape("past"), self.cache_shape("context"));
                self.graph.input(&format!("past_key_values.{layer}.{kind}"), FLOAT, &past);
                self.graph.output(&format!("present.{layer}.{kind}"), FLOAT, &present);
            }
        }
    }

    fn weight(&mut self, name: &str) -> Result<Value, WeightError> {
        let missing = || WeightError::MissingTensor { tensor: name.into(), path: PathBuf::from("the held weights") };
        Ok(self.graph.weight(name, self.held.get(name).ok_or_else(missing)?))
    }

    fn linear(&mut self, x: &str, path: &str) -> Result<Value, WeightError> {
        let weight = self.weight(&format!("{path}.weight"))?;
        let bias = format!("{path}.bias");
        let bias = if self.held.get(&bias).is_some() { Some(self.weight(&bias)?) } else { None };
        Ok(self.graph.linear(x, &weight, bias.as_deref()))
    }

    /// Words, and in GPT-2 their positions, (tokens, features).
    fn embedded(&mut self) -> Result<Value, WeightError> {
        let (words, positions) = match self.config.is_gpt2() {
            true => ("transformer.wte.weight", Some("transformer.wpe.weight")),
            false => ("model.embed_tokens.weight", None),
        };
        let ids = self.graph.reshape("input_ids", &[-1]);
        let table = self.weight(words)?;
        let xs = self.graph.op("Gather", &[&table, &ids], &[int("axis", 0)]);
        let Some(positions) = positions else { return Ok(xs) };
        let at = self.graph.reshape("position_ids", &[-1]);
        let table = self.weight(positions)?;
        let positions = self.graph.op("Gather", &[&table, &at], &[int("axis", 0)]);
        Ok(self.graph.op("Add", &[&xs, &positions], &[]))
    }

    fn shared(&mut self) -> Result<BlockValues, WeightError> {
        let graph = &mut self.graph;
        // A position attends to itself and to those before it.
        let past = graph.op("Shape", &["past_key_values.0.key"], &[]);
        let (two, zero, one) = (graph.whole(2), graph.whole(0), graph.whole(1));
        let past = graph.op("Gather", &[&past, &two], &[int("axis", 0)]);
        let tokens = graph.op("Shape", &["input_ids"], &[]);
        let tokens = graph.op("Gather", &[&tokens, &one], &[int("axis", 0)]);
        let context = graph.op("Add", &[&past, &tokens], &[]);
        let keys = graph.op("Range", &[&zero, &context, &one], &[]);
        let queries = graph.reshape("position_ids", &[-1, 1]);
        let later = graph.op("Greater", &[&keys, &queries], &[]);
        let (hidden, seen) = (graph.number(f32::MIN), graph.number(0.0));
        let mask = graph.op("Where", &[&later, &hidden, &seen], &[]);
        if self.config.is_gpt2() {
            return Ok(BlockValues { mask, turns: None });
        }
        let at = graph.op("Cast", &[&queries], &[int("to", FLOAT.into())]);
        let frequencies = rotary_frequencies(&self.config.rope, self.config.head_dim, self.held.rope_factors())
            .map_err(|cause| WeightError::Tensor { tensor: "rotary frequencies".into(), cause })?;
        let frequencies = graph.row(&frequencies);
        let angles = graph.op("Mul", &[&at, &frequencies], &[]);
        let turns = Some((graph.op("Cos", &[&angles], &[]), graph.op("Sin", &[&angles], &[])));
        Ok(BlockValues { mask, turns })
    }

    /// `x / rms(x) · w`.
    fn rms_norm(&mut self, x: &str, path: &str) -> Result<Value, WeightError> {
        let weight = self.weight(&format!("{path}.weight"))?;
        let graph = &mut self.graph;
        let (two, eps) = (graph.number(2.0), graph.number(self.config.rms_norm_eps as f32));
        let squares = graph.op("Pow", &[x, &two], &[]);
        let mean = graph.mean(&squares);
        let mean = graph.op("Add", &[&mean, &eps], &[]);
        let root = graph.op("Sqrt", &[&mean], &[]);
        let normal = graph.op("Div", &[x, &root], &[]);
        Ok(graph.op("Mul", &[&normal, &weight], &[]))
    }

    /// `(x − mean(x)) / √(var(x) + ε) · w + b`, in parts: candle-onnx has no LayerNormalization, and ONNX Runtime makes one
    /// of them.
    fn layer_norm(&mut self, x: &str, path: &str) -> Result<Value, WeightError> {
        let (weight, bias) = (self.weight(&format!("{path}.weight"))?, self.weight(&format!("{path}.bias"))?);
        let graph = &mut self.graph;
        let (two, eps) = (graph.number(2.0), graph.number(self.config.rms_norm_eps as f32));
        let mean = graph.mean(x);
        let centred = graph.op("Sub", &[x, &mean], &[]);
        let squares = graph.op("Pow", &[&centred, &two], &[]);
        let variance = graph.mean(&squares);
        let variance = graph.op("Add", &[&variance, &eps], &[]);
        let root = graph.op("Sqrt", &[&variance], &[]);
        let normal = graph.op("Div", &[&centred, &root], &[]);
        let scaled = graph.op("Mul", &[&normal, &weight], &[]);
        Ok(graph.op("Add", &[&scaled, &bias], &[]))
    }

    /// From (tokens, heads·head) to (1, heads, tokens, head).
    fn heads(&mut self, x: &str, heads: usize) -> Value {
        let apart = self.graph.reshape(x, &[1, -1, heads as i64, self.config.head_dim as i64]);
        self.graph.op("Transpose", &[&apart], &[ints("perm", &[0, 2, 1, 3])])
    }

    /// Rotates the pairs (i, i + head / 2) of each head by their positions.
    fn rotated(&mut self, x: &str, (cos, sin): &(Value, Value)) -> Value {
        let half = self.config.head_dim / 2;
        let parts = self.graph.split(x, &[half, half], 3);
        let graph = &mut self.graph;
        let mut product = |a: usize, turn: &str| graph.op("Mul", &[&parts[a], turn], &[]);
        let (a_cos, b_sin, b_cos, a_sin) = (product(0, cos), product(1, sin), product(1, cos), product(0, sin));
        let first = graph.op("Sub", &[&a_cos, &b_sin], &[]);
        let second = graph.op("Add", &[&b_cos, &a_sin], &[]);
        graph.op("Concat", &[&first, &second], &[int("axis", 3)])
    }

    /// Attention of (1, heads, tokens, head) queries; the result is (tokens, heads·head). Query heads that share a
    /// key/value head are rows of one product.
    fn attend(&mut self, q: &str, k: &str, v: &str, layer: usize, mask: &str) -> Value {
        let (heads, kv, d) = (self.config.num_heads, self.config.num_kv_heads, self.config.head_dim);
        let (heads, kv, d) = (heads as i64, kv as i64, d as i64);
        let graph = &mut self.graph;
        let mut append = |kind: &str, new: &str| {
            let present = format!("present.{layer}.{kind}");
            graph.named("Concat", &[&format!("past_key_values.{layer}.{kind}"), new], &[int("axis", 2)], &[&present]);
            present
        };
        let (keys, values) = (append("key", k), append("value", v));
        let scale = graph.number(1.0 / (d as f32).sqrt());
        let q = graph.op("Mul", &[q, &scale], &[]);
        let q = graph.reshape(&q, &[1, kv, -1, d]);
        let keys = graph.op("Transpose", &[&keys], &[ints("perm", &[0, 1, 3, 2])]);
        let scores = graph.op("MatMul", &[&q, &keys], &[]);
        let scores = graph.reshape(&scores, &[1, heads, -1, 0]);
        let scores = graph.op("Add", &[&scores, mask], &[]);
        let weights = graph.op("Softmax", &[&scores], &[int("axis", -1)]);
        let weights = graph.reshape(&weights, &[1, kv, -1, 0]);
        let context = graph.op("MatMul", &[&weights, &values], &[]);
        let context = graph.reshape(&context, &[1, heads, -1, d]);
        let context = graph.op("Transpose", &[&context], &[ints("perm", &[0, 2, 1, 3])]);
        graph.reshape(&context, &[-1, heads * d])
    }

    fn llama_block(&mut self, xs: &str, layer: usize, shared: &BlockValues) -> Result<Value, WeightError> {
        let path = format!("model.layers.{layer}");
        let normal = self.rms_norm(xs, &format!("{path}.input_layernorm"))?;
        let (heads, kv) = (self.config.num_heads, self.config.num_kv_heads);
        let mut part = |name: &str, heads: usize| -> Result<Value, WeightError> {
            let made = self.linear(&normal, &format!("{path}.self_attn.{name}"))?;
            Ok(self.heads(&made, heads))
        };
        let (mut q, mut k, v) = (part("q_proj", heads)?, part("k_proj", kv)?, part("v_proj", kv)?);
        if let Some(turns) = &shared.turns {
            (q, k) = (self.rotated(&q, turns), self.rotated(&k, turns));
        }
        let context = self.attend(&q, &k, &v, layer, &shared.mask);
        let attended = self.linear(&context, &format!("{path}.self_attn.o_proj"))?;
        let xs = self.graph.op("Add", &[xs, &attended], &[]);
        let normal = self.rms_norm(&xs, &format!("{path}.post_attention_layernorm"))?;
        let gate = self.linear(&normal, &format!("{path}.mlp.gate_proj"))?;
        let up = self.linear(&normal, &format!("{path}.mlp.up_proj"))?;
        let opened = self.graph.op("Sigmoid", &[&gate], &[]);
        let gate = self.graph.op("Mul", &[&gate, &opened], &[]);
        let inner = self.graph.op("Mul", &[&gate, &up], &[]);
        let fed = self.linear(&inner, &format!("{path}.mlp.down_proj"))?;
        Ok(self.graph.op("Add", &[&xs, &fed], &[]))
    }

    fn gpt2_block(&mut self, xs: &str, layer: usize, shared: &BlockValues) -> Result<Value, WeightError> {
        let path = format!("transformer.h.{layer}");
        let normal = self.layer_norm(xs, &format!("{path}.ln_1"))?;
        let merged = self.linear(&normal, &format!("{path}.attn.c_attn"))?;
        let (heads, features) = (self.config.num_heads, self.config.hidden_size);
        let parts = self.graph.split(&merged, &[features; 3], 1);
        let (q, k, v) = (self.heads(&parts[0], heads), self.heads(&parts[1], heads), self.heads(&parts[2], heads));
        let context = self.attend(&q, &k, &v, layer, &shared.mask);
        let attended = self.linear(&context, &format!("{path}.attn.c_proj"))?;
        let xs = self.graph.op("Add", &[xs, &attended], &[]);
        let normal = self.layer_norm(&xs, &format!("{path}.ln_2"))?;
        let up = self.linear(&normal, &format!("{path}.mlp.c_fc"))?;
        let inner = self.gelu_tanh(&up);
        let fed = self.linear(&inner, &format!("{path}.mlp.c_proj"))?;
        Ok(self.graph.op("Add", &[&xs, &fed], &[]))
    }

    /// `x/2 · (1 + tanh(√(2/π) · (x + 0.044715 x³)))`.
    fn gelu_tanh(&mut self, x: &str) -> Value {
        let graph = &mut self.graph;
        let (three, small) = (graph.number(3.0), graph.number(0.044_715));
        let root = graph.number((2.0 / std::f32::consts::PI).sqrt());
        let (one, half) = (graph.number(1.0), graph.number(0.5));
        let cube = graph.op("Pow", &[x, &three], &[]);
        let cube = graph.op("Mul", &[&cube, &small], &[]);
        let inner = graph.op("Add", &[x, &cube], &[]);
        let inner = graph.op("Mul", &[&inner, &root], &[]);
        let bent = graph.op("Tanh", &[&inner], &[]);
        let bent = graph.op("Add", &[&bent, &one], &[]);
        let product = graph.op("Mul", &[x, &bent], &[]);
        graph.op("Mul", &[&product, &half], &[])
    }

    /// Logits of the positions asked for: a prompt needs those of its last one only.
    fn head(&mut self, xs: &str) -> Result<(), WeightError> {
        let xs = self.graph.op("Gather", &[xs, "logits_at"], &[int("axis", 0)]);
        let (normal, table) = match self.config.is_gpt2() {
            true => (self.layer_norm(&xs, "transformer.ln_f")?, "transformer.wte.weight"),
            false => (self.rms_norm(&xs, "model.norm")?, "model.embed_tokens.weight"),
        };
        let table = self.weight(if self.config.tie_embeddings { table } else { "lm_head.weight" })?;
        let nothing = self.graph.number(0.0);
        self.graph.named("Gemm", &[&normal, &table, &nothing], &[int("transB", 1)], &["logits"]);
        Ok(())
    }
}
