//! Analytic FLOPs and bytes compared with figures computed by hand.
#![allow(missing_docs, reason = "a test")]

use candlescope_work::input::{Input, Widths};
use candlescope_work::operation::{Cost, Heads, gemm, kv_width_in_8_bits, linear, lookup, norm, swiglu};
use candlescope_work::shape::{FeedForward, ModelShape};
use candlescope_work::step::{Operands, Operation, forward, total, total_of};

fn llama3() -> ModelShape {
    ModelShape::decoder("llama-3-8b", (128_256, 4096, 32), (32, 8, 128), 14_336)
}

fn of(shape: &ModelShape, input: Input, width: usize) -> Vec<Operation> {
    forward(shape, input, Widths::of(width))
}

/// Products with weights: QKV, output, feed-forward network and head.
fn products(step: &[Operation]) -> Cost {
    total_of(step, |operation| operation.products > 0.0 && operation.operands == Operands::Weights)
}

fn named(step: &[Operation], names: &[&str]) -> Cost {
    total_of(step, |operation| names.contains(&operation.name))
}

#[track_caller]
fn is(found: f64, expected: u64) {
    assert_eq!(found, expected as f64);
}

const QKV: [&str; 3] = ["q_proj", "k_proj", "v_proj"];
const FFN: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];

#[test]
fn llama_3_8b_linear_flops_a_token() {
    let step = of(&llama3(), Input::new(1, 1, 0), 2);
    assert_eq!(products(&step).flops, 15_009_316_864.0);
    let gflop = products(&step).flops / 1e9;
    assert!((gflop - 15.009).abs() < 5e-4, "{gflop}");
}

#[test]
fn llama_3_8b_slope_per_context_token() {
    let at = |position| total(&of(&llama3(), Input::new(1, 1, position), 2));
    assert_eq!(at(1001).flops - at(1000).flops, 524_288.0);
    assert_eq!(at(1001).kv_bytes - at(1000).kv_bytes, 131_072.0);
}

#[test]
fn prefill_attends_causally() {
    // 1 + 2 + 3 + 4 positions, then 5 + 6 with four cached.
    assert_eq!(Input::new(1, 4, 0).attended(), 10.0);
    assert_eq!(Input::new(1, 2, 4).attended(), 11.0);
    assert_eq!(Input::new(3, 2, 4).attended(), 33.0);
    assert_eq!(Input::new(1, 0, 4).attended(), 0.0);
}

#[test]
fn prefill_equals_its_tokens_one_by_one() {
    let smollm2 = ModelShape::decoder("smollm2-135m", (49_152, 576, 30), (9, 3, 64), 1536);
    let whole = of(&smollm2, Input::new(2, 7, 0), 4);
    let single: Vec<_> = (0..7).map(|p| of(&smollm2, Input::new(2, 1, p), 4)).collect();
    for names in [&QKV[..], &FFN, &["scores"], &["kv_cache"]] {
        let (whole, single): (_, Cost) = (named(&whole, names), single.iter().map(|step| named(step, names)).sum());
        assert_eq!(whole.flops, single.flops, "{names:?}");
        if names == ["kv_cache"] {
            assert_eq!(whole.kv_bytes, single.kv_bytes);
        }
    }
    // The head runs for the last position only, and weights are read once.
    assert_eq!(named(&whole, &["lm_head"]), named(&single[0], &["lm_head"]));
    assert_eq!(named(&whole, &QKV).weight_bytes, named(&single[0], &QKV).weight_bytes);
}

#[test]
fn a_mixture_reads_the_experts_that_even_routing_expects() {
    let mut mixture = llama3();
    mixture.feed_forward = FeedForward::Experts { intermediate: 14_336, experts: 8, active: 2 };
    let expert = (3 * 4096 * 14_336u64) as f64;
    for rows in [1, 2, 3, 5, 100] {
        let ffn = named(&of(&mixture, Input::new(1, rows, 0), 2), &FFN);
        assert_eq!(ffn.flops, 2.0 * expert * 2.0 * 32.0 * rows as f64);
        let read = 8.0 * (1.0 - 0.75_f64.powi(rows as i32));
        assert!((ffn.weight_bytes / (expert * 2.0 * 32.0) - read).abs() < 1e-9, "{rows} rows");
    }
}

/// Every layer of Mistral has the window, of which candle's model keeps more; 4 of 26 layers of gemma have none.
#[test]
fn windows_end_what_is_needed() {
    use candlescope_work::shape::WindowedLayers;
    use candlescope_work::windows::Window;
    let mut mistral = llama3();
    mistral.window = Some(WindowedLayers { window: Window { positions: 4096, kept: false }, layers: 32 });
    for (tokens, position) in [(1, 100), (1, 4095), (1, 20_000), (512, 0), (6000, 0), (64, 9000)] {
        let step = of(&mistral, Input::new(2, tokens, position), 2);
        let attention = named(&step, &["scores (window)", "context (window)", "kv_cache"]);
        let (tokens, context) = (tokens as u64, (position + tokens) as u64);
        let seen: u64 = (context - tokens + 1..=context).map(|c| c.min(4096)).sum();
        let read = context.min(4096 + tokens - 1) + tokens;
        assert_eq!(attention.flops, (2 * 32 * 4 * 4096 * seen) as f64, "{tokens} tokens after {position}");
        assert_eq!(attention.flops_executed(), (2 * 32 * 4 * 4096 * tokens * context) as f64, "all are multiplied");
        assert_eq!(attention.kv_bytes, (2 * 32 * 2 * 1024 * 2 * read) as f64, "{tokens} tokens after {position}");
    }
    let mut gemma = ModelShape::decoder("gemma-3-1b", (262_144, 1152, 26), (4, 1, 256), 6912).built_as("gemma3_text");
    gemma.window = Some(WindowedLayers { window: Window::of("gemma3_text", 512), layers: 22 });
    let cost = total(&of(&gemma, Input::token(1, 8192), 2));
    assert_eq!(cost.kv_bytes, (2 * 256 * 2 * (4 * 8192 + 22 * 512 + 26)) as f64);
    assert_eq!(cost.surplus_flops, 0.0, "no more is kept than the window");
}

/// Two devices of a model of two key heads have one each, and its keys need no other layout.
#[test]
fn a_device_with_one_key_head_copies_no_keys() {
    use candlescope_work::step::step;
    let model = ModelShape::decoder("a model", (32_000, 512, 2), (8, 2, 64), 1024);
    let kernels = |name: &str, devices| {
        let step = step(&model, Input::new(1, 16, 0), Widths::of(2), devices);
        step.iter().find(|operation| operation.name == name).unwrap().kernels
    };
    assert_eq!([kernels("rotary", 1), kernels("rotary", 2)], [4.0, 3.0]);
    assert_eq!([kernels("kv_cache", 1), kernels("kv_cache", 2)], [3.0, 2.0]);
}

/// A decoder's tokens see their encoder's whole output.
#[test]
fn nothing_of_the_source_is_masked() {
    let t5 = ModelShape::decoder("t5-small", (32_128, 512, 6), (8, 8, 64), 2048).built_as("t5");
    let step = of(&t5, Input { encoded: 300, ..Input::new(1, 16, 0) }, 2);
    let crossed = named(&step, &["cross_attention.scores", "cross_attention.context"]);
    assert_eq!((crossed.flops, crossed.surplus_flops), ((6 * 4 * 512 * 16 * 300) as f64, 0.0));
}

#[test]
fn plain_networks_and_products_alone() {
    let mut plain = llama3();
    plain.feed_forward = FeedForward::Plain { intermediate: 16_384 };
    let ffn = named(&of(&plain, Input::new(1, 3, 0), 2), &FFN);
    assert_eq!(ffn.flops, 4.0 * 3.0 * 4096.0 * 16_384.0 * 32.0);
    assert_eq!(ffn.weight_bytes, 2.0 * 4096.0 * 16_384.0 * 2.0 * 32.0);
    assert_eq!((gemm(2, 3, 5, 4).flops, gemm(2, 3, 5, 4).io_bytes()), (60.0, ((10 + 15 + 6) * 4) as f64));
}

/// FLOP/B with activations, and with only weights, keys and values.
fn intensities(cost: &Cost) -> (f64, f64) {
    (cost.flops / cost.io_bytes(), cost.flops / cost.bytes())
}

#[test]
fn intensity_of_one_product_at_prefill() {
    // gate_proj of SmolLM2-135M in bf16, M = 2,048 tokens, K = 576, N = 1,536.
    let gate = linear(2048, 576, 1536, 576 * 1536 * 2, 2);
    is(gate.flops, 2 * 2048 * 576 * 1536);
    is(gate.weight_bytes, 1_769_472);
    is(gate.io_bytes(), (2048 * 576 + 576 * 1536 + 2048 * 1536) * 2);
    is(gate.io_bytes(), 10_420_224);
    assert_eq!(gate, gemm(2048, 1536, 576, 2));
    let (with, without) = intensities(&gate);
    assert!((with - 347.8).abs() < 0.05, "{with}");
    assert_eq!(without, 2048., "M·w/2 whatever the product: an upper bound");

    // The same of Llama-3-8B, K = 4,096, N = 14,336.
    let (with, without) = intensities(&linear(2048, 4096, 14_336, 4096 * 14_336 * 2, 2));
    assert!((with - 1246.6).abs() < 0.05, "{with}");
    assert_eq!(without, 2048.);
}

#[test]
fn intensity_of_all_projections_at_prefill() {
    // Llama-3-8B in bf16, 2,048 tokens, a layer's seven projections:
    //   FLOPs    2·2,048·(4,096·(4,096 + 1,024 + 1,024) + 4,096·4,096 + 3·4,096·14,336) = 893,353,197,568
    //   weights  half as many as FLOPs / 2,048, 2 bytes each                             =     436,207,616
    //   in, out  2·2,048·(8,192 + 2·5,120 + 8,192 + 3·18,432), q and o, k and v, FFN     =     335,544,320
    // which is 1,157.6 FLOP/B; gate_proj alone has 1,246.6.
    let step = of(&llama3(), Input::new(1, 2048, 0), 2);
    let blocks = products(&step) + named(&step, &["lm_head"]) * -1.0;
    is(blocks.flops, 32 * 893_353_197_568);
    is(blocks.weight_bytes, 32 * 436_207_616);
    is(blocks.activation_bytes, 32 * 335_544_320);
    let (with, without) = intensities(&blocks);
    assert!((with - 1157.6).abs() < 0.05, "{with}");
    assert_eq!(without, 2048.);
}

#[test]
fn intensity_of_attention_scores_at_prefill() {
    // SmolLM2-135M in bf16 on a GPU: 9 query heads, 3 for keys, 64 features, 64 tokens.
    let dims = Heads::new(9, 3, 64);
    let scores = dims.scores(Input::new(1, 64, 0), Widths::of(2));
    // 64·65/2 positions are attended to, but all 64² are computed.
    is(scores.flops, 2 * 9 * 64 * 2080);
    is(scores.flops_executed(), 2 * 9 * 64 * 4096);
    // Keys 3·64·64; queries 9·64·64, read and written to scale them and read again; scores 9·64·64, the same number.
    is(scores.kv_bytes, 3 * 4096 * 2);
    is(scores.io_bytes(), (3 + 3 * 9 + 9) * 4096 * 2);
    let (with, without) = intensities(&scores);
    assert_eq!((with, without), (7.5, 97.5));
    // On a CPU the product is in f32: keys and queries are widened, and everything from there on is twice as large.
    let widened = dims.scores(Input::new(1, 64, 0), Widths::of(2).products(4));
    is(widened.io_bytes(), 4096 * (3 * (2 + 4 + 4) + 9 * (2 + 4) + 3 * 9 * 4 + 9 * 4));
}

#[test]
fn softmax_context_and_rotary_move_what_candle_moves() {
    // 2 sequences of 3 new tokens after 5, 4 query heads, 2 for keys, 8 features, in bf16.
    let dims = Heads::new(4, 2, 8);
    let work = Input::new(2, 3, 5);
    let (q, kv, all, pairs) = (2 * 3 * 4 * 8, 2 * 3 * 2 * 8, 2 * 8 * 2 * 8, 2 * 3 * 4 * 8);
    // Scores to f32; the mask (3·8 of f32) is added; the softmax itself.
    is(dims.softmax(work, Widths::of(2)).io_bytes(), pairs * (2 + 4) + (pairs * 8 + 3 * 8 * 4) + pairs * 8);
    // Weights to bf16 and read; values read; the sum written, and copied to the projections' layout.
    is(dims.context(work, Widths::of(2)).io_bytes(), pairs * (4 + 2) + pairs * 2 + all * 2 + q * 2 + q * 4);
    // One token: no mask, no copies.
    let one = Input::new(2, 1, 7);
    is(dims.softmax(one, Widths::of(4)).io_bytes(), 2 * 4 * 8 * 8);
    is(dims.context(one, Widths::of(4)).io_bytes(), (2 * 4 * 8 + 2 * 8 * 2 * 8 + 2 * 4 * 8) * 4);
    // Both copied to the heads' layout, then rotated; 3·4 cosines and sines for each of the two.
    is(dims.rotary(work, 2).io_bytes(), (q + kv) * 2 * 2 * 2 + 2 * (2 * 3 * 4) * 2);
    is(dims.rotary(one, 2).io_bytes(), (2 * 4 * 8 + 2 * 2 * 8) * 2 * 2 + 2 * (2 * 4) * 2);
    // New keys and values read and written, after the values were copied to another layout.
    is(dims.kv_write(work, Widths::of(2)).io_bytes(), 2 * kv * 2 * 2 + kv * 2 * 2);
    is(dims.kv_write(one, Widths::of(2)).io_bytes(), 2 * (2 * 2 * 8) * 2 * 2);
    is(lookup(6, 16, 9, 4).io_bytes(), 6 * (9 + 4 + 16 * 4));
    is(swiglu(10, 2).io_bytes(), 5 * 10 * 2);
    is(norm(10, 8, 2).io_bytes(), 8 + 2 * 10 * 2);
}

#[test]
fn keys_and_values_in_8_bits_move_what_candle_moves() {
    // 2 sequences of 3 new tokens after 5, 2 heads for keys, 8 features, keys and values together.
    let dims = Heads::new(4, 2, 8);
    let work = Input::new(2, 3, 5);
    let (new, all) = (2 * (2 * 3 * 2 * 8), 2 * (2 * 8 * 2 * 8));
    let written = dims.kv_write_in_8_bits(work, 2, false);
    is(written.kv_bytes, new + 4 * (new / 8));
    // Magnitudes, their largest; to f32, the quotient, moved; to bytes, which are read to be stored. Of scales: the largest, to
    // f32, times 1/127, divided by, stored. Values were copied to another layout.
    let of_scales = 2 + (2 + 4) + (4 + 4) + 4 + 4;
    is(
        written.activation_bytes,
        new * (4 + 2 + (2 + 4) + 8 + 8 + (4 + 1) + 1) + (new / 8) * of_scales + (new / 2) * 2 * 2,
    );
    // What is no number is kept: times zero, the sum, and a scale and a sum that become a scale, all in f32.
    let kept = new * (8 + 4) + (new / 8) * (4 + 4 + 4 + 4);
    is(dims.kv_write_in_8_bits(work, 2, true).activation_bytes - written.activation_bytes, kept);
    // Of f32 nothing is widened.
    let of_scales = 4 + (4 + 4) + 4 + 4;
    is(
        dims.kv_write_in_8_bits(work, 4, true).activation_bytes,
        new * (8 + 4 + 8 + 8 + (4 + 1) + 1) + (new / 8) * of_scales + kept + (new / 2) * 2 * 4,
    );
    let read = dims.kv_read_in_8_bits(work, 2);
    is(read.kv_bytes, all + 4 * (all / 8));
    // The cast writes, the difference and the product read and write; scales are cast, and read.
    is(read.activation_bytes, all * (2 + 4 + 4) + (all / 8) * (2 + 2));
    is(dims.kv_read_in_8_bits(work, 4).activation_bytes, all * (4 + 8 + 8));
    assert_eq!(kv_width_in_8_bits(64.0), 68.0 / 64.0);
}

#[test]
fn what_is_masked_is_executed_all_the_same() {
    let llama = llama3();
    let step = total(&of(&llama, Input::new(1, 2048, 0), 2));
    // Two products in each of 32 layers, 2·32·128 FLOPs for each of the 2,048·2,047/2 masked positions.
    is(step.flops_executed() - step.flops, 32 * 2 * (2 * 32 * 128) * (2048 * 2047 / 2));
    let one = total(&of(&llama, Input::new(4, 1, 1000), 2));
    assert_eq!(one.flops_executed(), one.flops, "one token attends to all");
}

#[test]
fn decoding_moves_little_besides_weights_and_cache() {
    let step = total(&of(&llama3(), Input::new(1, 1, 1000), 2));
    let share = step.activation_bytes / step.bytes();
    assert!(share > 1e-4 && share < 0.01, "{share}");
}
