//! The operations of a step of a whole model, from its dimensions alone: FLOPs and bytes by the formulas of
//! [`operation`](crate::operation), and the kernels that candle launches for each. With mixtures, encoders and tensor
//! parallelism.

mod step_operation;

pub use step_operation::{Operands, Operation};

use crate::input::{Input, Widths};
use crate::operation::{Cost, Heads, bias, cast, linear, lookup, norm, pointwise, swiglu};
use crate::shape::{FeedForward, ModelShape};
use crate::windows::Window;
use step_operation::{SUMMED, THREADS, norm_loads};

/// The operations of one step of `shape` on one of `devices` that share every layer's matrices (tensor parallelism): 1
/// for a device alone. Logits are computed for the last position of each sequence.
pub fn step(shape: &ModelShape, input: Input, widths: Widths, devices: u64) -> Vec<Operation> {
    let maker = Maker { shape, input, widths, split: devices.max(1) as f64 };
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
    for (calls, window, names) in [
        (full, None, ["scores", "softmax", "context"]),
        (windowed, shape.window, ["scores (window)", "softmax (window)", "context (window)"]),
    ] {
        if calls > 0 {
            all.extend(maker.within(window.map(|window| window.window)).attention(calls, names));
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

/// The operations of a forward pass on one device: a step's without the choice of the next token.
pub fn forward(shape: &ModelShape, input: Input, widths: Widths) -> Vec<Operation> {
    let mut all = step(shape, input, widths, 1);
    all.retain(|operation| operation.name != SAMPLE);
    all
}

/// The operations of an encoder over a prompt of so many tokens; none for a decoder alone.
pub fn encode(shape: &ModelShape, batch: u64, tokens: u64, widths: Widths, devices: u64) -> Vec<Operation> {
    if shape.encoder_layers == 0 {
        return Vec::new();
    }
    // Each token attends to all; keys and values live within the layer.
    let input = Input::prompt(batch, tokens);
    let maker = Maker { shape, input, widths, split: devices.max(1) as f64 };
    let layers = shape.encoder_layers;
    let mut all = vec![maker.embedding(), maker.norm("encoder.norm", layers * 2)];
    all.extend(maker.projections(layers));
    let attention = maker.attention(layers, ["encoder.scores", "encoder.softmax", "encoder.context"]);
    all.extend(attention.map(|operation| Operation { cost: operation.cost.unmasked().without_cache(), ..operation }));
    all.push(maker.linear("o_proj", layers, (shape.queries(), shape.hidden), Split::Rows, shape.biases.output));
    all.push(maker.residual(layers * 2));
    all.extend(maker.feed_forward(layers));
    all
}

/// Dimensions of the layout from which queries, keys, values and contexts are copied: sequence, head, token, feature.
const TURNED: f64 = 4.0;
/// Bytes on whose multiples rows have to end for cuBLAS's faster kernels.
const ALIGNED: f64 = 16.0;

/// The choice of the next token.
const SAMPLE: &str = "sample";

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
    widths: Widths,
    split: f64,
}

impl Maker<'_> {
    fn within(self, window: Option<Window>) -> Self {
        Self { input: self.input.within(window), ..self }
    }

    fn rows(&self) -> f64 {
        self.input.rows()
    }

    fn hidden(&self) -> f64 {
        self.shape.hidden as f64
    }

    /// Heads of one device. There is at least one key head on each, copied if need be.
    fn heads(&self) -> Heads {
        let keys = (self.shape.kv_heads as f64 / self.split).max(1.0);
        Heads::new(self.shape.heads as f64 / self.split, keys, self.shape.head_dim)
    }

    /// A projection of every row from `k` to `n` features.
    fn linear(&self, name: &'static str, calls: u64, (k, n): (u64, u64), split: Split, biased: bool) -> Operation {
        self.product(name, calls, self.rows(), (k as f64, n as f64), split, biased)
    }

    fn product(
        &self,
        name: &'static str,
        calls: u64,
        rows: f64,
        (k, n): (f64, f64),
        split: Split,
        biased: bool,
    ) -> Operation {
        let Widths { weights, activations: a, products, in_blocks, .. } = self.widths;
        let (k, n) = match split {
            Split::Columns => (k, n / self.split),
            Split::Rows => (k / self.split, n),
        };
        let (bias_values, added) = if biased { (n, bias(rows * n, a)) } else { (0.0, Cost::ZERO) };
        // One row and its bias have the same layout.
        let stretched = biased && rows > 1.0;
        let ends_evenly = |values: f64| values * a % ALIGNED == 0.0;
        let dense = rows > 1.0 && !in_blocks;
        Operation {
            kernels: 1.0 + count(biased) + count(in_blocks),
            products: 1.0,
            strided: count(stretched),
            index_steps: if stretched { rows * n * SUMMED * 3.0 } else { 0.0 },
            added_bytes: added.activation_bytes,
            unaligned: dense && !(ends_evenly(n) && ends_evenly(k)),
            panel_bytes: if dense { k * n * products } else { 0.0 },
            divided: count(rows <= 32.0 && n <= 132.0 * 64.0 && k > 2048.0),
            ..Operation::new(name, calls, linear(rows, k, n, weights * (k * n + bias_values), a) + added)
        }
    }

    /// Reads and writes rows of `features`, so many tensors of them.
    fn pointwise(&self, features: f64, tensors: u32) -> Cost {
        pointwise(self.rows() * features, tensors, self.widths.activations)
    }

    /// Learned positions are looked up once for all sequences, and added to the words of each.
    fn embedding(&self) -> Operation {
        let (d, Widths { weights, activations: a, .. }) = (self.hidden(), self.widths);
        let words = lookup(self.rows(), d, d * weights, a);
        if self.shape.learned_positions == 0 {
            return Operation::new("embed_tokens", 1, words);
        }
        let places = self.input.tokens as f64;
        let sum = pointwise((2.0 * self.rows() + places) * d, 1, a);
        let stretched = self.input.batch > 1;
        Operation::new("embed_tokens", 1, words + lookup(places, d, d * weights, a) + sum)
            .kernels(3.0)
            .strided(count(stretched), if stretched { self.rows() * d * SUMMED * 3.0 } else { 0.0 })
    }

    /// A norm of so many rows. Its weights are counted in the model's format.
    fn norm_of(&self, name: &'static str, calls: u64, rows: f64) -> Operation {
        let each = if self.shape.norm_bias { 2.0 } else { 1.0 };
        let (d, Widths { weights, activations, .. }) = (self.hidden(), self.widths);
        Operation::new(name, calls, norm(rows * d, each * d * weights, activations)).serial(norm_loads(d))
    }

    fn norm(&self, name: &'static str, calls: u64) -> Operation {
        self.norm_of(name, calls, self.rows())
    }

    fn final_norm(&self) -> Operation {
        let last = self.input.batch as f64;
        let norm = self.norm_of("norm", 1, last);
        if self.input.batch <= 1 || self.input.tokens <= 1 {
            return norm;
        }
        // With several sequences, their last positions are copied.
        let copied = last * self.hidden();
        let cost = norm.cost + pointwise(copied, 2, self.widths.activations);
        Operation { cost, ..norm.kernels(2.0).strided(1.0, copied * 2.0) }
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

    /// Takes queries, keys and values out of what one projection made. Values that the cache's layout copies anyway are
    /// not copied here.
    fn taken_apart(&self, layers: u64) -> Operation {
        let (heads, input) = (self.heads(), self.input);
        let copied = heads.split_elements(input);
        let kernels = match heads.turned_keys(input) > 0.0 {
            _ if copied == 0.0 => 0.0,
            true => 2.0,
            false => 3.0,
        };
        Operation::new("split", layers, heads.split(input, self.widths.activations))
            .kernels(kernels)
            .strided(kernels, copied * TURNED)
    }

    fn qk_norm(&self, layers: u64) -> Operation {
        let Heads { queries, keys, features: d } = self.heads();
        let elements = self.rows() * (queries + keys) * d;
        let cost = norm(elements, 2.0 * d * self.widths.weights, self.widths.activations);
        Operation::new("q_norm, k_norm", layers, cost).kernels(2.0).serial(2.0 * norm_loads(d))
    }

    /// Rotates queries and keys; a change of layout copies them first.
    fn rotary(&self, layers: u64) -> Operation {
        let (heads, input) = (self.heads(), self.input);
        let (q, k) = (heads.turned_queries(input), heads.turned_keys(input));
        let copies = count(q > 0.0) + count(k > 0.0);
        Operation::new("rotary", layers, heads.rotary(input, self.widths.activations))
            .kernels(2.0 + copies)
            .strided(copies, (q + k) * TURNED)
    }

    /// Writes the new keys and values into the cache, the values copied to its layout before.
    fn kv_write(&self, layers: u64) -> Operation {
        let (heads, input) = (self.heads(), self.input);
        let turned = heads.turned_keys(input);
        let copies = count(turned > 0.0);
        Operation::new("kv_cache", layers, heads.kv_write(input, self.widths))
            .kernels(2.0 + copies)
            .strided(copies, turned * TURNED)
    }

    /// QKᵀ/√d, softmax in f32, and AV.
    fn attention(&self, layers: u64, names: [&'static str; 3]) -> [Operation; 3] {
        let (heads, input, widths) = (self.heads(), self.input, self.widths);
        let Widths { activations, cached, products, .. } = widths;
        let several = input.tokens > 1;
        let turned = heads.turned_queries(input);
        let (narrow_q, narrow_kv) = (count(activations != products), count(cached != products));
        let multiplied = |name, cost| Operation {
            products: 1.0,
            from_several: several,
            ..Operation::new(name, layers, cost).on_activations()
        };
        [
            multiplied(names[0], heads.scores(input, widths)).kernels(2.0 + narrow_q + narrow_kv),
            Operation::new(names[1], layers, heads.softmax(input, widths))
                .kernels(1.0 + count(products != 4.0) + count(several))
                .strided(count(several), if several { heads.scores_elements(input) * SUMMED * 4.0 } else { 0.0 })
                // The largest, the sum, and the division.
                .serial(3.0 * (input.multiplied() / THREADS.0).ceil())
                .on_activations(),
            multiplied(names[2], heads.context(input, widths))
                .kernels(1.0 + narrow_kv + count(products != 4.0) + count(turned > 0.0) + narrow_q)
                .strided(count(turned > 0.0), turned * TURNED),
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
            let (flops, surplus_flops) = if first { (made.cost.flops, 0.0) } else { (0.0, made.cost.flops) };
            all.push(Operation { cost: Cost { flops, surplus_flops, ..made.cost }, ..made });
        }
        let names = ["cross_attention.scores", "cross_attention.softmax", "cross_attention.context"];
        let attention = over.attention(layers, names);
        all.extend(attention.map(|operation| Operation { cost: operation.cost.unmasked(), ..operation }));
        let back = (shape.queries(), shape.hidden);
        all.push(self.linear("cross_attention.o_proj", layers, back, Split::Rows, false));
        all
    }

    fn residual(&self, calls: u64) -> Operation {
        Operation::new("residual", calls, self.pointwise(self.hidden(), 3))
    }

    fn feed_forward(&self, layers: u64) -> Vec<Operation> {
        let (d, a) = (self.shape.hidden, self.widths.activations);
        let biased = self.shape.biases.feed_forward;
        let linear = |name, size, split| self.linear(name, layers, size, split, biased);
        let wide = self.shape.feed_forward.intermediate() as f64 / self.split;
        match self.shape.feed_forward {
            FeedForward::Gated { intermediate: i } => vec![
                linear("gate_proj", (d, i), Split::Columns),
                linear("up_proj", (d, i), Split::Columns),
                Operation::new("act_fn", layers, swiglu(self.rows() * wide, a)).kernels(2.0),
                linear("down_proj", (i, d), Split::Rows),
            ],
            FeedForward::Plain { intermediate: i } => vec![
                linear("up_proj", (d, i), Split::Columns),
                Operation::new("act_fn", layers, self.pointwise(wide, 2)),
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
                    let cost = Cost { weight_bytes: one.cost.weight_bytes * read, ..one.cost };
                    // Experts to which two or more go.
                    let panel_bytes = one.panel_bytes * (read - by_one);
                    Operation { cost, kernels: one.kernels * read, products: read, panel_bytes, ..one }
                };
                let (i, d) = (i as f64, d as f64);
                vec![
                    self.linear("router", layers, (self.shape.hidden, experts), Split::Columns, false).kernels(5.0),
                    product("gate_proj", (d, i), Split::Columns),
                    product("up_proj", (d, i), Split::Columns),
                    Operation::new("act_fn", layers, swiglu(routed * wide, a)).kernels(2.0 * read),
                    product("down_proj", (i, d), Split::Rows),
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
        let a = self.widths.activations;
        Operation::new("logits", 1, cast(self.input.batch * self.shape.vocab, a, 4)).kernels(count(a != 4.0))
    }

    /// The most likely token is found on the device.
    fn sample(&self) -> Operation {
        // Its index is computed anew at every load, which takes as long as three.
        let serial = 3.0 * (self.shape.vocab as f64 / THREADS.1).ceil();
        Operation::new(SAMPLE, 1, pointwise(self.input.batch * self.shape.vocab, 1, 4)).serial(serial)
    }

    /// Sums of what each device computed, after the attention and after the feed-forward network. A ring sends 2(n−1)/n
    /// of the activations from every device [Patarasuk and Yuan 2009].
    fn all_reduce(&self, calls: u64) -> Option<Operation> {
        let n = self.split;
        let sum = self.rows() * self.hidden() * self.widths.activations;
        let link_bytes = 2.0 * (n - 1.0) / n * sum;
        (n > 1.0).then(|| Operation { link_bytes, ..Operation::new("all_reduce", calls, Cost::ZERO) })
    }
}

/// 1 for what happens, else 0.
fn count(happens: bool) -> f64 {
    f64::from(u8::from(happens))
}

/// The work of a whole step, all its operations with all their calls.
pub fn total(step: &[Operation]) -> Cost {
    total_of(step, |_| true)
}

/// The work of the operations that this holds for.
pub fn total_of(step: &[Operation], is_wanted: impl Fn(&Operation) -> bool) -> Cost {
    let wanted = step.iter().filter(|operation| is_wanted(operation));
    wanted.map(|operation| operation.cost * operation.calls).sum()
}
