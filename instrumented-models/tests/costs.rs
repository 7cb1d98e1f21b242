//! Analytic FLOPs and bytes compared with figures computed by hand.
#![allow(missing_docs, reason = "a test")]

use candlescope_models::config::AttentionDims;
use candlescope_models::config::{FeedForward, ModelConfig};
use candlescope_models::cost::{Cost, Widths, Work, decoder_step, gemm, linear, lookup, norm, swiglu};

fn llama3() -> ModelConfig {
    ModelConfig::named("llama-3-8b").unwrap()
}

#[test]
fn llama_3_8b_linear_flops_a_token() {
    let step = decoder_step(&llama3(), Work::new(1, 1, 0), Widths::of(2));
    assert_eq!(step.linear().flops, 15_009_316_864);
    let gflop = step.linear().flops as f64 / 1e9;
    assert!((gflop - 15.009).abs() < 5e-4, "{gflop}");
}

#[test]
fn llama_3_8b_slope_per_context_token() {
    let at = |position| decoder_step(&llama3(), Work::new(1, 1, position), Widths::of(2)).total();
    assert_eq!(at(1001).flops - at(1000).flops, 524_288);
    assert_eq!(at(1001).kv_bytes - at(1000).kv_bytes, 131_072);
}

#[test]
fn prefill_attends_causally() {
    // 1 + 2 + 3 + 4 positions, then 5 + 6 with four cached.
    assert_eq!(Work::new(1, 4, 0).attended(), 10);
    assert_eq!(Work::new(1, 2, 4).attended(), 11);
    assert_eq!(Work::new(3, 2, 4).attended(), 33);
    assert_eq!(Work::new(1, 0, 4).attended(), 0);
}

#[test]
fn prefill_equals_its_tokens_one_by_one() {
    let config = ModelConfig::named("smollm2-135m").unwrap();
    let whole = decoder_step(&config, Work::new(2, 7, 0), Widths::of(4));
    let single: Vec<_> = (0..7).map(|p| decoder_step(&config, Work::new(2, 1, p), Widths::of(4))).collect();
    assert_eq!(whole.qkv.flops, single.iter().map(|s| s.qkv.flops).sum::<u64>());
    assert_eq!(whole.ffn.flops, single.iter().map(|s| s.ffn.flops).sum::<u64>());
    assert_eq!(whole.scores.flops, single.iter().map(|s| s.scores.flops).sum::<u64>());
    assert_eq!(whole.kv_write.kv_bytes, single.iter().map(|s| s.kv_write.kv_bytes).sum::<u64>());
    // The head runs for the last position only, and weights are read once.
    assert_eq!(whole.lm_head, single[0].lm_head);
    assert_eq!(whole.qkv.weight_bytes, single[0].qkv.weight_bytes);
}

#[test]
fn moe_reads_only_the_experts_in_use() {
    let mut config = llama3();
    config.feed_forward = FeedForward::MoeSwiGlu { intermediate: 14_336, experts: 8, active: 2 };
    let one = decoder_step(&config, Work::new(1, 1, 0), Widths::of(2)).ffn;
    let many = decoder_step(&config, Work::new(1, 100, 0), Widths::of(2)).ffn;
    let expert = 3 * 4096 * 14_336u64;
    assert_eq!(one.flops, 2 * expert * 2 * 32);
    assert_eq!(one.weight_bytes, expert * 2 * 2 * 32);
    assert_eq!(many.weight_bytes, expert * 8 * 2 * 32);
}

#[test]
fn gelu_and_gemm() {
    let mut config = llama3();
    config.feed_forward = FeedForward::Gelu { intermediate: 16_384 };
    let ffn = decoder_step(&config, Work::new(1, 3, 0), Widths::of(2)).ffn;
    assert_eq!(ffn.flops, 4 * 3 * 4096 * 16_384 * 32);
    assert_eq!(ffn.weight_bytes, 2 * 4096 * 16_384 * 2 * 32);
    assert_eq!(gemm(2, 3, 5, 4), (60, (10 + 15 + 6) * 4));
}

#[test]
fn what_is_not_counted_stays_unsaid() {
    assert!(Cost::default().annotation().is_empty());
    let annotation = linear(1, 2, 3, 24, 4).annotation();
    assert_eq!((annotation.get_flops(), annotation.get_bytes()), (Some(12), Some(24)));
    assert_eq!((annotation.get_flops_executed(), annotation.get_io_bytes()), (Some(12), Some(24 + (2 + 3) * 4)));
    let annotation = Cost { activation_bytes: 0, ..linear(1, 2, 3, 24, 4) }.annotation();
    assert_eq!((annotation.get_bytes(), annotation.get_io_bytes()), (Some(24), None), "weights alone are no I/O");
}

/// FLOP/B with activations, and with only weights, keys and values.
fn intensities(cost: &Cost) -> (f64, f64) {
    (cost.flops as f64 / cost.io_bytes() as f64, cost.flops as f64 / cost.bytes() as f64)
}

#[test]
fn intensity_of_one_product_at_prefill() {
    // gate_proj of SmolLM2-135M in bf16, M = 2,048 tokens, K = 576, N = 1,536.
    let gate = linear(2048, 576, 1536, 576 * 1536 * 2, 2);
    assert_eq!(gate.flops, 2 * 2048 * 576 * 1536);
    assert_eq!(gate.weight_bytes, 1_769_472);
    assert_eq!(gate.io_bytes(), (2048 * 576 + 576 * 1536 + 2048 * 1536) * 2);
    assert_eq!(gate.io_bytes(), 10_420_224);
    assert_eq!((gate.flops, gate.io_bytes()), gemm(2048, 1536, 576, 2));
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
    let step = decoder_step(&llama3(), Work::new(1, 2048, 0), Widths::of(2));
    let blocks = step.qkv + step.output + step.ffn;
    assert_eq!(blocks.flops, 32 * 893_353_197_568);
    assert_eq!(blocks.weight_bytes, 32 * 436_207_616);
    assert_eq!(blocks.activation_bytes, 32 * 335_544_320);
    let (with, without) = intensities(&blocks);
    assert!((with - 1157.6).abs() < 0.05, "{with}");
    assert_eq!(without, 2048.);
}

#[test]
fn intensity_of_attention_scores_at_prefill() {
    // SmolLM2-135M in bf16 on a GPU: 9 query heads, 3 for keys, 64 features, 64 tokens.
    let dims = AttentionDims { heads: 9, kv_heads: 3, head_dim: 64 };
    let scores = dims.scores(Work::new(1, 64, 0), Widths::of(2));
    // 64·65/2 positions are attended to, but all 64² are computed.
    assert_eq!(scores.flops, 2 * 9 * 64 * 2080);
    assert_eq!(scores.flops_executed(), 2 * 9 * 64 * 4096);
    // Keys 3·64·64; queries 9·64·64, read and written to scale them and read again; scores 9·64·64, the same number.
    assert_eq!(scores.kv_bytes, 3 * 4096 * 2);
    assert_eq!(scores.io_bytes(), (3 + 3 * 9 + 9) * 4096 * 2);
    let (with, without) = intensities(&scores);
    assert_eq!((with, without), (7.5, 97.5));
    // On a CPU the product is in f32: keys and queries are widened, and everything from there on is twice as large.
    let widened = dims.scores(Work::new(1, 64, 0), Widths::of(2).products(4));
    assert_eq!(widened.io_bytes(), 4096 * (3 * (2 + 4 + 4) + 9 * (2 + 4) + 3 * 9 * 4 + 9 * 4));
}

#[test]
fn softmax_context_and_rotary_move_what_candle_moves() {
    // 2 sequences of 3 new tokens after 5, 4 query heads, 2 for keys, 8 features, in bf16.
    let dims = AttentionDims { heads: 4, kv_heads: 2, head_dim: 8 };
    let work = Work::new(2, 3, 5);
    let (q, kv, all, pairs) = (2 * 3 * 4 * 8, 2 * 3 * 2 * 8, 2 * 8 * 2 * 8, 2 * 3 * 4 * 8);
    // Scores to f32; the mask (3·8 of f32) is added; the softmax itself.
    assert_eq!(dims.softmax(work, Widths::of(2)).io_bytes(), pairs * (2 + 4) + (pairs * 8 + 3 * 8 * 4) + pairs * 8);
    // Weights to bf16 and read; values read; the sum written, and copied to the projections' layout.
    assert_eq!(dims.context(work, Widths::of(2)).io_bytes(), pairs * (4 + 2) + pairs * 2 + all * 2 + q * 2 + q * 4);
    // One token: no mask, no copies.
    let one = Work::new(2, 1, 7);
    assert_eq!(dims.softmax(one, Widths::of(4)).io_bytes(), 2 * 4 * 8 * 8);
    assert_eq!(dims.context(one, Widths::of(4)).io_bytes(), (2 * 4 * 8 + 2 * 8 * 2 * 8 + 2 * 4 * 8) * 4);
    // Both copied to the heads' layout, then rotated; 3·4 cosines and sines for each of the two.
    assert_eq!(dims.rotary(work, 2).io_bytes(), (q + kv) * 2 * 2 * 2 + 2 * (2 * 3 * 4) * 2);
    assert_eq!(dims.rotary(one, 2).io_bytes(), (2 * 4 * 8 + 2 * 2 * 8) * 2 * 2 + 2 * (2 * 4) * 2);
    // New keys and values read and written, after the values were copied to another layout.
    assert_eq!(dims.kv_write(work, 2).io_bytes(), 2 * kv * 2 * 2 + kv * 2 * 2);
    assert_eq!(dims.kv_write(one, 2).io_bytes(), 2 * (2 * 2 * 8) * 2 * 2);
    assert_eq!(lookup(6, 16, 9, 4).io_bytes(), 6 * (9 + 4 + 16 * 4));
    assert_eq!(swiglu(10, 2).io_bytes(), 5 * 10 * 2);
    assert_eq!(norm(10, 8, 2).io_bytes(), 8 + 2 * 10 * 2);
}

#[test]
fn what_is_masked_is_executed_all_the_same() {
    let llama = llama3();
    let step = decoder_step(&llama, Work::new(1, 2048, 0), Widths::of(2)).total();
    // Two products in each of 32 layers, 2·32·128 FLOPs for each of the 2,048·2,047/2 masked positions.
    assert_eq!(step.flops_executed() - step.flops, 32 * 2 * (2 * 32 * 128) * (2048 * 2047 / 2));
    let one = decoder_step(&llama, Work::new(4, 1, 1000), Widths::of(2)).total();
    assert_eq!(one.flops_executed(), one.flops, "one token attends to all");
}

#[test]
fn decoding_moves_little_besides_weights_and_cache() {
    let step = decoder_step(&llama3(), Work::new(1, 1, 1000), Widths::of(2)).total();
    let share = step.activation_bytes as f64 / step.bytes() as f64;
    assert!(share > 1e-4 && share < 0.01, "{share}");
}
