//! Rooflines are predicted from formulas of their own, because the analysis knows no model. They equal those by which
//! the instrumented layers say what they cost.
#![allow(missing_docs, reason = "a test")]
use candlescope_analysis::roofline::work::{Input, Operation, Storage, step};
use candlescope_analysis::roofline::{FeedForward, ModelShape, known_model};
use candlescope_models::config::{FeedForward as Network, ModelConfig, NAMED};
use candlescope_models::cost::{Cost, DecoderCost, Widths, Work, decoder_step};
use candlescope_work::devices::Format;

fn shape(config: &ModelConfig) -> ModelShape {
    let size = (config.vocab_size as u64, config.hidden_size as u64, config.num_layers as u64);
    let heads = (config.num_heads as u64, config.num_kv_heads as u64, config.head_dim as u64);
    let mut shape = ModelShape::decoder(&config.name, size, heads, config.intermediate() as u64);
    // GPT-2 has a row of learned positions for each token of its context.
    shape.max_context = Some(config.max_context as u64);
    let mut shape = shape.built_as(&config.architecture);
    shape.tied = config.tie_embeddings;
    if let Network::MoeSwiGlu { intermediate, experts, active } = config.feed_forward {
        let [intermediate, experts, active] = [intermediate, experts, active].map(|n| n as u64);
        shape.feed_forward = FeedForward::Experts { intermediate, experts, active };
    }
    shape
}

fn sum(operations: &[Operation], names: &[&str]) -> [f64; 5] {
    let mut all = [0.0; 5];
    for o in operations.iter().filter(|o| names.contains(&o.name)) {
        let work = [o.flops, o.surplus_flops, o.weight_bytes, o.kv_bytes, o.activation_bytes];
        all.iter_mut().zip(work).for_each(|(sum, work)| *sum += work * o.calls);
    }
    all
}

fn of(cost: Cost) -> [f64; 5] {
    [cost.flops, cost.surplus_flops, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes].map(|n| n as f64)
}

/// Every operation by the term that it belongs to; biases, which the cost model counts among the small weights, are
/// held equal together with the products that have them.
fn assert_equal(operations: &[Operation], cost: &DecoderCost, config: &ModelConfig, what: &str) {
    let qkv = ["q_proj", "k_proj", "v_proj", "c_attn"];
    let small = ["input_layernorm", "post_attention_layernorm", "norm", "embed_tokens"];
    let pointwise = ["rotary", "split", "softmax", "act_fn", "residual", "logits"];
    let terms: [(&[&str], Cost); 4] = [
        (&["scores"], cost.scores),
        (&["context"], cost.context),
        (&["kv_cache"], cost.kv_write),
        (&["lm_head"], cost.lm_head),
    ];
    for (names, cost) in terms {
        assert_eq!(sum(operations, names), of(cost), "{names:?} of {what}");
    }
    // The copy of several sequences' last positions is with the norm here and with the pointwise operations there.
    let mut rest: Vec<&str> = small.iter().chain(&pointwise).copied().collect();
    let mut rest_cost = cost.small_weights + cost.pointwise;
    let products: [(&[&str], Cost, bool); 3] = [
        (&qkv, cost.qkv, config.qkv_bias),
        (&["o_proj"], cost.output, config.is_gpt2()),
        (&["gate_proj", "up_proj", "down_proj"], cost.ffn, config.is_gpt2()),
    ];
    for (names, cost, biased) in products {
        if biased {
            assert_eq!(sum(operations, names)[0], cost.flops as f64, "FLOPs of {names:?} of {what}");
            rest.extend(names);
            rest_cost += cost;
        } else {
            assert_eq!(sum(operations, names), of(cost), "{names:?} of {what}");
        }
    }
    assert_eq!(sum(operations, &rest), of(rest_cost), "the rest of {what}");
}

#[test]
fn the_work_of_every_operation_is_that_of_the_cost_model() {
    let widths = [(2, 2, 2), (4, 4, 4), (2, 2, 4), (2, 4, 4)];
    for name in NAMED {
        let config = ModelConfig::named(name).unwrap();
        for (batch, tokens, position) in [(1, 1, 0), (1, 1, 999), (4, 1, 127), (1, 512, 0), (3, 64, 0), (2, 16, 100)] {
            for (weights, activations, products) in widths {
                let work = Work::new(batch, tokens, position);
                let both = Widths { weights, activations, products };
                let format = Format::named(if weights == 2 { "bf16" } else { "f32" }).unwrap();
                let storage = Storage {
                    weights: format,
                    activation: activations as f64,
                    cached: activations as f64,
                    product: products as f64,
                };
                let (batch, tokens) = (batch as u64, tokens as u64);
                let input = Input { batch, tokens, context: (position as u64) + tokens, encoded: 0 };
                let operations = step(&shape(&config), input, &storage, 1);
                let what = format!("{name} {work:?} {both:?}");
                assert_equal(&operations, &decoder_step(&config, work, both), &config, &what);
            }
        }
    }
}

#[test]
fn a_mixture_reads_the_experts_that_even_routing_expects_of_those_that_the_cost_model_allows() {
    let mut config = ModelConfig::named("llama-3-8b").unwrap();
    config.feed_forward = Network::MoeSwiGlu { intermediate: 14_336, experts: 8, active: 2 };
    for rows in [1, 2, 3, 4, 5, 64] {
        let work = Work::new(rows, 1, 100);
        let storage = Storage { weights: Format::named("bf16").unwrap(), activation: 2.0, cached: 2.0, product: 2.0 };
        let operations = step(&shape(&config), Input::token(rows as u64, 101), &storage, 1);
        let cost = decoder_step(&config, work, Widths::of(2));
        let mut expected = of(cost.ffn);
        // The cost model counts the experts that rows can read at most: two each. Some rows choose the same ones.
        let (most, usual) = ((2.0 * rows as f64).min(8.0), 8.0 * (1.0 - 0.75_f64.powi(rows as i32)));
        expected[2] *= usual / most;
        let found = sum(&operations, &["gate_proj", "up_proj", "down_proj"]);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() <= expected * 1e-9, "{rows} rows: {found} for {expected}");
        }
    }
}

#[test]
fn known_models_have_the_dimensions_of_the_named_configurations() {
    for name in NAMED.iter().filter(|name| **name != "embedded") {
        let config = ModelConfig::named(name).unwrap();
        let known = known_model(name).unwrap();
        assert_eq!(known.parameters(), config.parameters(), "{name}");
        let own = shape(&config);
        assert_eq!((known.layers, known.heads, known.kv_heads), (own.layers, own.heads, own.kv_heads), "{name}");
        assert_eq!(
            (known.feed_forward, known.head_dim, known.tied),
            (own.feed_forward, own.head_dim, own.tied),
            "{name}"
        );
        assert_eq!(known.max_context, Some(config.max_context as u64), "{name}");
    }
}

/// A token of `mistral-7b` and of gemma in all three: the roofline's formulas, the wrapped models' and those by which
/// unmodified models of candle are counted, which `tests/modules` and `sdk/core` hold to the same.
#[test]
fn windows_end_what_is_counted() {
    // Every layer of Mistral has the window; the wrapped model ends its context there, the formulas do not.
    let mut config = ModelConfig::named("llama-3-8b").unwrap();
    (config.vocab_size, config.window) = (32_000, Some(4096));
    let mistral = known_model("mistral-7b").unwrap();
    let storage = Storage { weights: Format::named("bf16").unwrap(), activation: 2.0, cached: 2.0, product: 2.0 };
    let needed = |operations: &[Operation], of: fn(&Operation) -> f64| -> f64 {
        let is_attention =
            |o: &&Operation| ["scores", "context", "kv_cache"].iter().any(|name| o.name.starts_with(name));
        operations.iter().filter(is_attention).map(|o| of(o) * o.calls).sum()
    };
    for (tokens, position) in [(1, 100), (1, 4095), (1, 20_000), (512, 0), (6000, 0), (64, 9000)] {
        let cost = decoder_step(&config, Work::new(2, tokens, position), Widths::of(2)).attention();
        let context = (position + tokens) as u64;
        let input = Input { batch: 2, tokens: tokens as u64, context, encoded: 0 };
        let operations = step(&mistral, input, &storage, 1);
        let what = format!("{tokens} tokens after {position}");
        assert_eq!(needed(&operations, |o| o.flops), cost.flops as f64, "{what}");
        assert_eq!(needed(&operations, |o| o.kv_bytes), cost.kv_bytes as f64, "{what}");
        // By hand: positions that each token sees, and those that have to be read.
        let seen: u64 = (context - tokens as u64 + 1..=context).map(|c| c.min(4096)).sum();
        let read = context.min(4096 + tokens as u64 - 1) + tokens as u64;
        assert_eq!(cost.flops, 2 * 32 * 4 * 4096 * seen, "{what}");
        assert_eq!(cost.kv_bytes, 2 * 32 * 2 * 1024 * 2 * read, "{what}");
    }
    // 22 of gemma-3-1b's 26 layers have a window of 512, 13 of gemma-2-2b's one of 4,096.
    let kv = |name: &str, context| {
        needed(&step(&known_model(name).unwrap(), Input::token(1, context), &storage, 1), |o| o.kv_bytes)
    };
    assert_eq!(kv("gemma-3-1b", 8192), (2 * 256 * 2 * (4 * 8192 + 22 * 512 + 26)) as f64);
    assert_eq!(kv("gemma-2-2b", 8192), (2 * 1024 * 2 * (13 * 8192 + 13 * 4096 + 26)) as f64);
}
