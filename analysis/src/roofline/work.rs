//! FLOPs, bytes and kernels of every operation of a step, from a model's dimensions alone.
//!
//! The formulas are those of candlescope's instrumented layers (`instrumented-models/src/cost`), which say what candle
//! executes operation by operation; a test holds the two equal. Beyond them, this module knows windows, mixtures,
//! encoders, formats below 8 bits and tensor parallelism. Everything is `f64`: sums of large models at long contexts
//! are beyond what a byte count in 64 bits of a config.json could be trusted with, and whole numbers are exact up to
//! 2⁵³.

use super::operation::{SUMMED, THREADS, norm_loads};
use super::shape::{FeedForward, ModelShape};
use candlescope_work::devices::Format;
use serde::Serialize;

pub use super::operation::{Operands, Operation};

/// A step's input. Sequences of a batch have equal lengths.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Input {
    /// Sequences.
    pub batch: u64,
    /// New tokens of each sequence: T.
    pub tokens: u64,
    /// Tokens of each sequence after the step: C.
    pub context: u64,
    /// Tokens of each sequence that an encoder has seen; 0 without an encoder.
    pub encoded: u64,
}

impl Input {
    /// A prompt of so many tokens, from the beginning.
    pub fn prompt(batch: u64, tokens: u64) -> Self {
        Self { batch, tokens, context: tokens, encoded: 0 }
    }

    /// One new token of each sequence, after which it has `context` tokens.
    pub fn token(batch: u64, context: u64) -> Self {
        Self { batch, tokens: 1, context, encoded: 0 }
    }

    /// The same of a decoder whose encoder has seen so many tokens.
    #[must_use]
    pub fn after_encoding(self, encoded: u64) -> Self {
        Self { encoded, ..self }
    }

    fn rows(&self) -> f64 {
        self.batch as f64 * self.tokens as f64
    }

    /// Positions attended to, over all new tokens, where a token reaches back over `reach` positions: T·C − T(T−1)/2
    /// for each sequence if that is enough for all.
    fn attended(&self, reach: u64) -> f64 {
        let (t, c) = (self.tokens, self.context);
        // New tokens see c − t + 1, …, c positions; those that see more than the window see the window.
        let cut = t.min(c.saturating_sub(reach));
        let whole = t - cut;
        let first = (c + 1).saturating_sub(t);
        let grown = whole as f64 * first as f64 + whole as f64 * whole.saturating_sub(1) as f64 / 2.0;
        self.batch as f64 * (grown + cut as f64 * reach.min(c) as f64)
    }
}

/// How values are stored and multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Storage {
    /// Weights.
    pub weights: Format,
    /// Bytes of an activation.
    pub activation: f64,
    /// Bytes of a cached key or value, scales included.
    pub cached: f64,
    /// Bytes of a number in attention's products: 4 for 16-bit floats on a CPU, else an activation's.
    pub product: f64,
}

/// The operations of one step of `shape` on one of `devices` that share every layer's matrices (tensor parallelism): 1
/// for a device alone. Logits are computed for the last position of each sequence.
pub fn step(shape: &ModelShape, input: Input, storage: &Storage, devices: u64) -> Vec<Operation> {
    let maker = Maker { shape, input, storage, split: devices.max(1) as f64 };
    let (full, windowed) = shape.layers_by_reach();
    let mut all = vec![maker.embedding()];
    let layers = shape.layers;
    let named = shape.norms_a_layer;
    all.push(maker.norm("input_layernorm", layers));
    all.extend(maker.projections(layers));
    if shape.qk_norm {
        all.push(maker.qk_norm(layers));
    }
    if shape.merged_qkv {
        all.push(maker.taken_apart(layers));
    } else if shape.learned_positions == 0 && shape.position_buckets == 0 {
        all.push(maker.rotary(layers));
    }
    all.push(maker.kv_write(layers));
    let reach = shape.window.map_or(u64::MAX, |window| window.size);
    for (calls, reach, names) in [
        (full, u64::MAX, ["scores", "softmax", "context"]),
        (windowed, reach, ["scores (window)", "softmax (window)", "context (window)"]),
    ] {
        if calls > 0 {
            all.extend(maker.attention(calls, reach, names));
        }
    }
    all.push(maker.linear("o_proj", layers, (shape.queries(), shape.hidden), Split::Rows, shape.biases.output));
    all.extend(maker.crossed());
    all.push(maker.residual(layers * if shape.encoder_layers > 0 { 3 } else { 2 }));
    if named > 1 {
        all.push(maker.norm("post_attention_layernorm", layers * (named - 1)));
    }
    all.extend(maker.feed_forward(layers));
    all.push(maker.final_norm());
    all.push(maker.head());
    all.push(maker.logits());
    all.push(maker.sample());
    all.extend(maker.all_reduce(layers * 2));
    all
}

/// The operations of an encoder over a prompt of so many tokens; none for a decoder alone.
pub fn encode(shape: &ModelShape, batch: u64, tokens: u64, storage: &Storage, devices: u64) -> Vec<Operation> {
    if shape.encoder_layers == 0 {
        return Vec::new();
    }
    // Each token attends to all; keys and values live within the layer.
    let input = Input::prompt(batch, tokens);
    let maker = Maker { shape, input, storage, split: devices.max(1) as f64 };
    let layers = shape.encoder_layers;
    let mut all = vec![maker.embedding(), maker.norm("encoder.norm", layers * 2)];
    all.extend(maker.projections(layers));
    for mut operation in maker.attention(layers, u64::MAX, ["encoder.scores", "encoder.softmax", "encoder.context"]) {
        (operation.flops, operation.surplus_flops) = (operation.executed(), 0.0);
        (operation.activation_bytes, operation.kv_bytes) = (operation.activation_bytes + operation.kv_bytes, 0.0);
        all.push(operation);
    }
    all.push(maker.linear("o_proj", layers, (shape.queries(), shape.hidden), Split::Rows, shape.biases.output));
    all.push(maker.residual(layers * 2));
    all.extend(maker.feed_forward(layers));
    all
}

/// Dimensions of the layout from which queries, keys, values and contexts are copied: sequence, head, token, feature.
const TURNED: f64 = 4.0;
/// Bytes on whose multiples rows have to end for cuBLAS's faster kernels.
const ALIGNED: f64 = 16.0;

/// Which side of a matrix devices divide among them.
#[derive(Clone, Copy, PartialEq)]
enum Split {
    /// Each has some of the outputs.
    Columns,
    /// Each has some of the inputs, and the sum of all is taken afterwards.
    Rows,
}

#[derive(Clone, Copy)]
struct Maker<'a> {
    shape: &'a ModelShape,
    input: Input,
    storage: &'a Storage,
    split: f64,
}

impl Maker<'_> {
    fn rows(&self) -> f64 {
        self.input.rows()
    }

    fn hidden(&self) -> f64 {
        self.shape.hidden as f64
    }

    /// Query heads and key heads of one device. There is at least one key head on each, copied if need be.
    fn heads(&self) -> (f64, f64) {
        (self.shape.heads as f64 / self.split, (self.shape.kv_heads as f64 / self.split).max(1.0))
    }

    /// A projection of every row from `k` to `n` features: 2·rows·k·n FLOPs, rows·(k + n) activations.
    fn linear(&self, name: &'static str, calls: u64, (k, n): (u64, u64), split: Split, bias: bool) -> Operation {
        self.product(name, calls, self.rows(), (k as f64, n as f64), split, bias)
    }

    fn product(
        &self,
        name: &'static str,
        calls: u64,
        rows: f64,
        (k, n): (f64, f64),
        split: Split,
        bias: bool,
    ) -> Operation {
        let (k, n) = match split {
            Split::Columns => (k, n / self.split),
            Split::Rows => (k / self.split, n),
        };
        let a = self.storage.activation;
        // A bias is added by an operation of its own, after the product, which reads and writes the output.
        let (bias_values, added) = if bias { (n, 2.0 * rows * n * a) } else { (0.0, 0.0) };
        // One row and its bias have the same layout.
        let stretched = bias && rows > 1.0;
        let ends_evenly = |values: f64| values * a % ALIGNED == 0.0;
        let dense = rows > 1.0 && !self.storage.weights.in_blocks;
        Operation {
            flops: 2.0 * rows * k * n,
            weight_bytes: self.storage.weights.bytes(k * n + bias_values),
            activation_bytes: rows * (k + n) * a + added,
            kernels: 1.0 + f64::from(u8::from(bias)) + f64::from(u8::from(self.storage.weights.in_blocks)),
            products: 1.0,
            strided: f64::from(u8::from(stretched)),
            index_steps: if stretched { rows * n * SUMMED * 3.0 } else { 0.0 },
            added_bytes: added,
            unaligned: dense && !(ends_evenly(n) && ends_evenly(k)),
            panel_bytes: if dense { k * n * self.storage.product } else { 0.0 },
            divided: f64::from(u8::from(rows <= 32.0 && n <= 132.0 * 64.0 && k > 2048.0)),
            ..Operation::new(name, calls)
        }
    }

    /// Reads and writes rows of `features`, once each.
    fn pointwise(&self, features: f64, tensors: f64) -> f64 {
        self.rows() * features * tensors * self.storage.activation
    }

    /// Learned positions are looked up once for all sequences, and added to the words of each.
    fn embedding(&self) -> Operation {
        let positions = self.shape.learned_positions > 0;
        let (d, a) = (self.hidden(), self.storage.activation);
        let placed = if positions { self.input.tokens as f64 } else { 0.0 };
        let sum = if positions { (2.0 * self.rows() + placed) * d * a } else { 0.0 };
        let looked_up = self.rows() + placed;
        let stretched = positions && self.input.batch > 1;
        Operation {
            weight_bytes: self.storage.weights.bytes(looked_up * d),
            activation_bytes: looked_up * (4.0 + d * a) + sum,
            kernels: if positions { 3.0 } else { 1.0 },
            strided: f64::from(u8::from(stretched)),
            index_steps: if stretched { self.rows() * d * SUMMED * 3.0 } else { 0.0 },
            ..Operation::new("embed_tokens", 1)
        }
    }

    /// Weights of norms are counted in the model's format, as those of candlescope's cost model.
    fn norm(&self, name: &'static str, calls: u64) -> Operation {
        let each = if self.shape.norm_bias { 2.0 } else { 1.0 };
        Operation {
            weight_bytes: self.storage.weights.bytes(each * self.hidden()),
            serial: norm_loads(self.hidden()),
            ..Operation::new(name, calls).moves(self.pointwise(self.hidden(), 2.0))
        }
    }

    fn final_norm(&self) -> Operation {
        let each = if self.shape.norm_bias { 2.0 } else { 1.0 };
        let (batch, a) = (self.input.batch as f64, self.storage.activation);
        // With several sequences, their last positions are copied.
        let copied = self.input.batch > 1 && self.input.tokens > 1;
        let last = if copied { 2.0 * batch * self.hidden() * a } else { 0.0 };
        Operation {
            weight_bytes: self.storage.weights.bytes(each * self.hidden()),
            activation_bytes: 2.0 * batch * self.hidden() * a + last,
            kernels: if copied { 2.0 } else { 1.0 },
            strided: if copied { 1.0 } else { 0.0 },
            index_steps: if copied { batch * self.hidden() * 2.0 } else { 0.0 },
            serial: norm_loads(self.hidden()),
            ..Operation::new("norm", 1)
        }
    }

    fn projections(&self, layers: u64) -> Vec<Operation> {
        let shape = self.shape;
        let (q, kv) = ((shape.hidden, shape.queries()), (shape.hidden, shape.keys()));
        let linear = |name, size| self.linear(name, layers, size, Split::Columns, shape.biases.qkv);
        if shape.merged_qkv {
            return vec![linear("c_attn", (shape.hidden, shape.queries() + 2 * shape.keys()))];
        }
        vec![linear("q_proj", q), linear("k_proj", kv), linear("v_proj", kv)]
    }

    /// Takes queries, keys and values out of what one projection made. A single row is not copied; values that the
    /// cache's layout copies anyway are not copied here.
    fn taken_apart(&self, layers: u64) -> Operation {
        let (heads, kv_heads) = self.heads();
        let (d, a) = (self.shape.head_dim as f64, self.storage.activation);
        let (q, k) = (self.rows() * heads * d, self.rows() * kv_heads * d);
        let (copied, kernels) = match self.turns(self.shape.kv_heads) {
            _ if self.rows() <= 1.0 => (0.0, 0.0),
            true => (q + k, 2.0),
            false => (q + 2.0 * k, 3.0),
        };
        Operation::new("split", layers).kernels(kernels).strided(kernels, copied * TURNED).moves(2.0 * copied * a)
    }

    fn qk_norm(&self, layers: u64) -> Operation {
        let (q, kv) = self.heads();
        let d = self.shape.head_dim as f64;
        Operation {
            weight_bytes: self.storage.weights.bytes(2.0 * d),
            kernels: 2.0,
            serial: 2.0 * norm_loads(d),
            ..Operation::new("q_norm, k_norm", layers).moves(self.pointwise((q + kv) * d, 2.0))
        }
    }

    /// Whether changing the layout between (tokens, heads) and (heads, tokens) copies.
    fn turns(&self, heads: u64) -> bool {
        self.input.tokens > 1 && heads > 1
    }

    /// Rotates queries and keys; a change of layout copies them first, and T·d/2 cosines and sines are read for each.
    fn rotary(&self, layers: u64) -> Operation {
        let (heads, kv_heads) = self.heads();
        let (d, a) = (self.shape.head_dim as f64, self.storage.activation);
        let (q, k) = (self.rows() * heads * d, self.rows() * kv_heads * d);
        let (turn_q, turn_k) = (self.turns(self.shape.heads), self.turns(self.shape.kv_heads));
        let copied = if turn_q { q } else { 0.0 } + if turn_k { k } else { 0.0 };
        let tables = 2.0 * self.input.tokens as f64 * d;
        let copies = f64::from(u8::from(turn_q)) + f64::from(u8::from(turn_k));
        let moved = (2.0 * (q + k + copied) + tables) * a;
        Operation::new("rotary", layers).kernels(2.0 + copies).strided(copies, copied * TURNED).moves(moved)
    }

    /// Writes the new keys and values into the cache, the values copied to its layout before.
    fn kv_write(&self, layers: u64) -> Operation {
        let (_, kv_heads) = self.heads();
        let (a, turns) = (self.storage.activation, self.turns(self.shape.kv_heads));
        let keys = self.rows() * kv_heads * self.shape.head_dim as f64;
        Operation {
            kv_bytes: 2.0 * keys * self.storage.cached,
            activation_bytes: 2.0 * keys * a + if turns { 2.0 * keys * a } else { 0.0 },
            kernels: if turns { 3.0 } else { 2.0 },
            strided: if turns { 1.0 } else { 0.0 },
            index_steps: if turns { keys * TURNED } else { 0.0 },
            ..Operation::new("kv_cache", layers)
        }
    }

    /// QKᵀ/√d, softmax in f32, and AV. candle multiplies every new token with every cached position and masks
    /// afterwards; a token alone multiplies with those it attends to. The model needs the keys that any of the tokens
    /// attends to; others are read all the same.
    fn attention(&self, layers: u64, reach: u64, names: [&'static str; 3]) -> [Operation; 3] {
        let Storage { activation: a, cached, product: p, .. } = *self.storage;
        let (heads, kv_heads) = self.heads();
        let d = self.shape.head_dim as f64;
        let (rows, batch) = (self.rows(), self.input.batch as f64);
        let seen = if self.input.tokens > 1 { self.input.context } else { self.input.context.min(reach) } as f64;
        let keys = batch * seen * kv_heads * d;
        let needed_positions = self.input.context.min(reach.saturating_add(self.input.tokens).saturating_sub(1)) as f64;
        let needed_keys = batch * needed_positions * kv_heads * d;
        let (queries, pairs) = (rows * heads * d, rows * heads * seen);
        let attended = self.input.attended(reach);
        let needed = 2.0 * heads * d * attended;
        let all = 2.0 * heads * d * rows * seen;
        let cast = |elements: f64, from: f64, to: f64| if from == to { 0.0 } else { elements * (from + to) };
        let widened = if cached == p { 0.0 } else { 2.0 * keys * p } + (keys - needed_keys) * cached;
        let several = self.input.tokens > 1;
        let multiplied = |name| Operation {
            flops: needed,
            surplus_flops: (all - needed).max(0.0),
            kv_bytes: needed_keys * cached,
            from_several: several,
            ..Operation::new(name, layers).on_activations()
        };
        let masked = if several { pairs * 2.0 * 4.0 + self.input.tokens as f64 * seen * 4.0 } else { 0.0 };
        let turned = if self.turns(self.shape.heads) { queries } else { 0.0 };
        let count = |happens: bool| f64::from(u8::from(happens));
        let (narrow_q, narrow_kv) = (count(a != p), count(cached != p));
        [
            multiplied(names[0])
                .kernels(2.0 + narrow_q + narrow_kv)
                .product()
                .moves(widened + cast(queries, a, p) + 3.0 * queries * p + pairs * p),
            Operation::new(names[1], layers)
                .kernels(1.0 + count(p != 4.0) + count(several))
                .strided(count(several), if several { pairs * SUMMED * 4.0 } else { 0.0 })
                // The largest, the sum, and the division.
                .serial(3.0 * (seen / THREADS.0).ceil())
                .moves(cast(pairs, p, 4.0) + masked + pairs * 2.0 * 4.0)
                .on_activations(),
            multiplied(names[2])
                .kernels(1.0 + narrow_kv + count(p != 4.0) + count(turned > 0.0) + narrow_q)
                .product()
                .strided(count(turned > 0.0), turned * TURNED)
                .moves(
                    widened + cast(pairs, 4.0, p) + pairs * p + queries * p + 2.0 * turned * p + cast(queries, p, a),
                ),
        ]
    }

    /// Attention of a decoder to its encoder's output. Its keys and values are needed once, with the first token, but
    /// candle's T5 keeps none and makes them anew for every one.
    fn crossed(&self) -> Vec<Operation> {
        let shape = self.shape;
        if shape.encoder_layers == 0 {
            return Vec::new();
        }
        let layers = shape.layers;
        let over = Maker { input: Input { context: self.input.encoded, ..self.input }, ..*self };
        let mut all = vec![
            self.norm("cross_attention.norm", layers),
            self.linear("cross_attention.q_proj", layers, (shape.hidden, shape.queries()), Split::Columns, false),
        ];
        let encoder = Maker { input: Input { tokens: self.input.encoded, ..self.input }, ..*self };
        let first = self.input.context <= self.input.tokens;
        for name in ["cross_attention.k_proj", "cross_attention.v_proj"] {
            let made = encoder.linear(name, layers, (shape.hidden, shape.keys()), Split::Columns, false);
            let (flops, surplus_flops) = if first { (made.flops, 0.0) } else { (0.0, made.flops) };
            all.push(Operation { flops, surplus_flops, ..made });
        }
        let names = ["cross_attention.scores", "cross_attention.softmax", "cross_attention.context"];
        all.extend(over.attention(layers, u64::MAX, names));
        let back = (shape.queries(), shape.hidden);
        all.push(self.linear("cross_attention.o_proj", layers, back, Split::Rows, false));
        all
    }

    fn residual(&self, calls: u64) -> Operation {
        Operation::new("residual", calls).moves(self.pointwise(self.hidden(), 3.0))
    }

    fn feed_forward(&self, layers: u64) -> Vec<Operation> {
        let (d, a) = (self.shape.hidden, self.storage.activation);
        let bias = self.shape.biases.feed_forward;
        let linear = |name, size, split| self.linear(name, layers, size, split, bias);
        match self.shape.feed_forward {
            FeedForward::Gated { intermediate: i } => vec![
                linear("gate_proj", (d, i), Split::Columns),
                linear("up_proj", (d, i), Split::Columns),
                Operation::new("act_fn", layers).kernels(2.0).moves(self.pointwise(i as f64 / self.split, 5.0)),
                linear("down_proj", (i, d), Split::Rows),
            ],
            FeedForward::Plain { intermediate: i } => vec![
                linear("up_proj", (d, i), Split::Columns),
                Operation::new("act_fn", layers).moves(self.pointwise(i as f64 / self.split, 2.0)),
                linear("down_proj", (i, d), Split::Rows),
            ],
            FeedForward::Experts { intermediate: i, experts, active } => {
                // Each token goes to `active` experts; those that any token goes to are read and launched: how many these
                // are depends on the tokens. Expected are, if all experts are chosen alike, those that not all tokens
                // pass by. A step that spreads its tokens as far as possible reads more, up to all.
                let routed = self.rows() * active as f64;
                let all = experts as f64;
                let share = (active as f64 / all).min(1.0);
                let passed_by = all * (1.0 - share).powf(self.rows());
                let read = all - passed_by;
                let by_one = (all * self.rows() * share * (1.0 - share).powf((self.rows() - 1.0).max(0.0))).min(read);
                let product = |name, size: (f64, f64), split| {
                    let one = self.product(name, layers, routed, size, split, false);
                    let (weight_bytes, kernels) = (one.weight_bytes * read, one.kernels * read);
                    // Experts to which two or more go.
                    let panel_bytes = one.panel_bytes * (read - by_one);
                    Operation { weight_bytes, kernels, products: read, panel_bytes, ..one }
                };
                let (wide, d) = (i as f64, d as f64);
                vec![
                    self.linear("router", layers, (self.shape.hidden, experts), Split::Columns, false).kernels(5.0),
                    product("gate_proj", (d, wide), Split::Columns),
                    product("up_proj", (d, wide), Split::Columns),
                    Operation::new("act_fn", layers).kernels(2.0 * read).moves(5.0 * routed * wide / self.split * a),
                    product("down_proj", (wide, d), Split::Rows),
                ]
            }
        }
    }

    fn head(&self) -> Operation {
        let size = (self.hidden(), self.shape.vocab as f64);
        self.product("lm_head", 1, self.input.batch as f64, size, Split::Columns, self.shape.biases.head)
    }

    /// Logits become f32.
    fn logits(&self) -> Operation {
        let a = self.storage.activation;
        let values = self.input.batch as f64 * self.shape.vocab as f64;
        let widened = a != 4.0;
        Operation::new("logits", 1).kernels(if widened { 1.0 } else { 0.0 }).moves(if widened {
            values * (a + 4.0)
        } else {
            0.0
        })
    }

    /// The most likely token is found on the device.
    fn sample(&self) -> Operation {
        // Its index is computed anew at every load, which takes as long as three.
        let serial = 3.0 * (self.shape.vocab as f64 / THREADS.1).ceil();
        Operation::new("sample", 1).serial(serial).moves(self.input.batch as f64 * self.shape.vocab as f64 * 4.0)
    }

    /// Sums of what each device computed, after the attention and after the feed-forward network. A ring sends 2(n−1)/n
    /// of the activations from every device [Patarasuk and Yuan 2009].
    fn all_reduce(&self, calls: u64) -> Option<Operation> {
        let n = self.split;
        let sum = self.rows() * self.hidden() * self.storage.activation;
        let sent = 2.0 * (n - 1.0) / n * sum;
        (n > 1.0).then(|| Operation { link_bytes: sent, ..Operation::new("all_reduce", calls) })
    }
}
