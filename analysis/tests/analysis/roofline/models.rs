//! Shapes of models against the parameters that their makers and the hub publish.

use candlescope_predict::roofline::{MemoryNeed, Scenario};
use candlescope_work::devices::{Format, known_device, known_devices};
use candlescope_work::input::{Input, Widths};
use candlescope_work::known_models::{known_model, known_models};
use candlescope_work::shape::ModelShape;
use candlescope_work::step::{Operation, step};

/// Published totals of parameters, a shared embedding table counted once. Gemma 3 from 4B on: the hub's total less the
/// vision tower (416,866,032) and the projector (1,152 × hidden + 1,152).
const PUBLISHED: &[(&str, u64)] = &[
    ("llama-2-7b", 6_738_415_616),
    ("llama-2-13b", 13_015_864_320),
    ("llama-2-70b", 68_976_648_192),
    ("llama-3-8b", 8_030_261_248),
    ("llama-3-70b", 70_553_706_496),
    ("llama-3.1-8b", 8_030_261_248),
    ("llama-3.1-70b", 70_553_706_496),
    ("llama-3.2-1b", 1_235_814_400),
    ("llama-3.2-3b", 3_212_749_824),
    ("qwen2.5-0.5b", 494_032_768),
    ("qwen2.5-1.5b", 1_543_714_304),
    ("qwen2.5-3b", 3_085_938_688),
    ("qwen2.5-7b", 7_615_616_512),
    ("qwen2.5-14b", 14_770_033_664),
    ("qwen2.5-32b", 32_763_876_352),
    ("qwen2.5-72b", 72_706_203_648),
    ("qwen3-0.6b", 596_049_920),
    ("qwen3-1.7b", 1_720_574_976),
    ("qwen3-4b", 4_022_468_096),
    ("qwen3-8b", 8_190_735_360),
    ("qwen3-14b", 14_768_307_200),
    ("qwen3-32b", 32_762_123_264),
    ("qwen3-30b-a3b", 30_532_122_624),
    ("mistral-7b", 7_241_732_096),
    ("mistral-7b-v0.2", 7_241_732_096),
    ("mistral-7b-v0.3", 7_248_023_552),
    ("mixtral-8x7b", 46_702_792_704),
    ("phi-2", 2_779_683_840),
    ("phi-3-mini", 3_821_079_552),
    ("phi-3-mini-128k", 3_821_079_552),
    ("gemma-2b", 2_506_172_416),
    ("gemma-7b", 8_537_680_896),
    ("gemma-2-2b", 2_614_341_888),
    ("gemma-2-9b", 9_241_705_984),
    ("gemma-2-27b", 27_227_128_320),
    ("gemma-3-270m", 268_098_176),
    ("gemma-3-1b", 999_885_952),
    ("gemma-3-4b", 4_300_079_472 - 416_866_032 - 1_152 * 2_561),
    ("gemma-3-12b", 12_187_325_040 - 416_866_032 - 1_152 * 3_841),
    ("gemma-3-27b", 27_432_406_640 - 416_866_032 - 1_152 * 5_377),
    ("distilgpt2", 81_912_576),
    ("gpt2", 124_439_808),
    ("gpt2-medium", 354_823_168),
    ("gpt2-large", 774_030_080),
    ("gpt2-xl", 1_557_611_200),
    ("t5-small", 60_506_624),
    ("t5-base", 222_903_552),
    ("t5-large", 737_668_096),
    ("smollm2-135m", 134_515_008),
    ("smollm2-360m", 361_821_120),
    ("smollm2-1.7b", 1_711_376_384),
    ("tinyllama-1.1b", 1_100_048_384),
];

#[test]
fn every_known_model_has_its_published_parameters() {
    let wrong: Vec<String> = PUBLISHED
        .iter()
        .map(|(name, published)| (name, known_model(name).unwrap().parameters(), *published))
        .filter(|(_, ours, published)| ours != published)
        .map(|(name, ours, published)| format!("{name}: {ours} instead of {published}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for model in known_models() {
        assert!(PUBLISHED.iter().any(|(name, _)| *name == model.name), "{} has no published total here", model.name);
    }
    // Mixtral's paper says 13 billion a token; Qwen's card 3.3 billion.
    let active = |name: &str| known_model(name).unwrap().active_parameters();
    assert_eq!(active("mixtral-8x7b"), 12_879_925_248);
    assert!((3.2e9..3.4e9).contains(&(active("qwen3-30b-a3b") as f64)));
}

#[test]
fn models_go_by_their_usual_names() {
    for (id, name) in [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("NousResearch/Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("META-LLAMA/llama-3.2-1b", "llama-3.2-1b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("google/gemma-2-2b-it", "gemma-2-2b"),
        ("openai-community/gpt2-xl", "gpt2-xl"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct-GGUF", "smollm2-135m"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
    ] {
        assert_eq!(known_model(id).unwrap().name, name, "{id}");
    }
    // Every id of the table leads back to its row.
    for model in known_models() {
        for id in model.ids {
            assert_eq!(known_model(id).unwrap().name, model.name, "{id}");
        }
    }
    let typo = known_model("lama-3-8b").unwrap_err().to_string();
    assert!(typo.contains("did you mean `llama-3-8b`") && typo.contains("config.json"), "{typo}");
    let nothing = known_model("zzzzzzzzzzzzzzzzzzzzzzzzzz").unwrap_err().to_string();
    assert!(!nothing.contains("did you mean") && nothing.contains("smollm2-135m"), "{nothing}");
    // Another model of the same family is not taken for the known one.
    assert!(known_model("togethercomputer/LLaMA-2-7B-32K").is_err());
}

/// 15.009 GFLOP a token of the linear parts with the head, 524,288 FLOP and 131,072 B of f16 cache for each token of
/// context.
#[test]
fn llama_3_8b_has_its_golden_figures() {
    let shape = known_model("llama-3-8b").unwrap();
    let device = known_device("H200").unwrap();
    let storage = Scenario::new(Format::named("bf16").unwrap()).storage(&device);
    let of = |context| step(&shape, Input::token(1, context), storage.widths, 1);
    let products = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head"];
    let linear: f64 = of(1).iter().filter(|o| products.contains(&o.name)).map(|o| o.cost.flops * o.calls).sum();
    assert_eq!((linear / 1e6).floor(), 15_009.0);
    let sum = |context, f: fn(&Operation) -> f64| -> f64 { of(context).iter().map(|o| f(o) * o.calls).sum() };
    assert_eq!(sum(1001, |o| o.cost.flops) - sum(1000, |o| o.cost.flops), 524_288.0);
    assert_eq!(sum(1001, |o| o.cost.kv_bytes) - sum(1000, |o| o.cost.kv_bytes), 131_072.0);
}

/// candlescope recorded 695 kernels of SmolLM2's decoding step on an H200 (docs/measurements/truth.md): 23 a layer and
/// 5 beside them.
#[test]
fn a_decoding_step_launches_the_kernels_that_were_recorded() {
    let shape = known_model("smollm2-135m").unwrap();
    let storage = Scenario::new(Format::named("bf16").unwrap()).storage(&known_device("H200").unwrap());
    let kernels: f64 = step(&shape, Input::token(1, 100), storage.widths, 1).iter().map(|o| o.kernels * o.calls).sum();
    assert_eq!(kernels, 695.0);
}

/// What a window leaves out, against a sum over every token.
#[test]
fn a_window_ends_what_a_token_attends_to() {
    let mut shape = known_model("gemma-2-2b").unwrap();
    shape.window.as_mut().unwrap().window.positions = 10;
    let storage = Scenario::new(Format::named("bf16").unwrap()).storage(&known_device("H200").unwrap());
    let flops = |input: Input, name: &str| {
        step(&shape, input, storage.widths, 1).iter().filter(|o| o.name == name).map(|o| o.cost.flops).sum::<f64>()
    };
    let each = 2.0 * (8 * 256) as f64;
    for (tokens, context) in [(1, 5), (1, 50), (7, 7), (20, 20), (6, 13), (30, 100)] {
        let input = Input { batch: 2, tokens, context, encoded: 0, window: None };
        let seen = |reach: u64| (context - tokens + 1..=context).map(|c| c.min(reach)).sum::<u64>() as f64 * 2.0;
        assert_eq!(flops(input, "scores"), each * seen(u64::MAX), "{tokens} of {context}");
        assert_eq!(flops(input, "scores (window)"), each * seen(10), "{tokens} of {context}");
    }
}

/// candle's gemma2 keeps the whole text, its gemma3 the window's.
#[test]
fn a_cache_holds_what_candle_keeps() {
    let of = |name: &str| MemoryNeed::of(&known_model(name).unwrap(), Widths::of(2), 1, 8192, 1).kv_a_sequence;
    assert_eq!(of("gemma-2-2b"), (2 * 1024 * 2 * 26 * 8192) as f64);
    assert_eq!(of("gemma-3-1b"), (2 * 256 * 2 * (4 * 8192 + 22 * 512)) as f64);
}

#[test]
fn a_config_file_makes_the_same_shape_and_names_what_it_lacks() {
    let llama = r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192,
        "tie_word_embeddings": false}"#;
    let shape = ModelShape::from_config_text("mine", llama).unwrap();
    assert_eq!(shape.parameters(), 8_030_261_248);
    assert_eq!((shape.name.as_str(), shape.head_dim), ("mine", 128));
    let configs = [
        (
            r#"{"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
                "vocab_size": 50257}"#,
            124_439_808,
        ),
        (
            r#"{"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000, "num_local_experts": 8,
                "num_experts_per_tok": 2, "sliding_window": null}"#,
            46_702_792_704,
        ),
        (
            r#"{"model_type": "t5", "d_model": 512, "d_ff": 2048, "d_kv": 64, "num_layers": 6, "num_heads": 8,
                "vocab_size": 32128, "feed_forward_proj": "relu"}"#,
            60_506_624,
        ),
        (
            r#"{"model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
                "num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151936, "use_sliding_window": false,
                "sliding_window": 32768, "tie_word_embeddings": true}"#,
            494_032_768,
        ),
        (
            r#"{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 1152,
                "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
                "head_dim": 256, "vocab_size": 262144, "sliding_window": 512}}"#,
            999_885_952,
        ),
    ];
    for (text, parameters) in configs {
        assert_eq!(ModelShape::from_config_text("x", text).unwrap().parameters(), parameters, "{text}");
    }
    let says = |text: &str| ModelShape::from_config_text("x", text).unwrap_err().to_string();
    for field in ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"] {
        let without = says(&llama.replace(field, "other"));
        assert!(without.contains(&format!("`{field}`")), "{field}: {without}");
    }
    assert!(says(r#"{"model_type": "rwkv"}"#).contains("`rwkv` is not known"));
    assert!(says("{").contains("not JSON"));
    assert!(says(&llama.replace("4096", "4e30")).contains("hidden_size"));
    assert!(says(&llama.replace("4096", "999999999999")).contains("more than the limit"));
    assert!(says(&llama.replace("4096", "99999968")).contains("more than the limit of 10^15"));
    assert!(says(&llama.replace("4096", "0")).contains("above 0"));
}

#[test]
fn devices_have_a_source_and_go_by_the_names_of_drivers() {
    for name in known_devices() {
        let device = known_device(name).unwrap();
        assert!(device.bandwidth > 1e10 && device.source.len() > 10, "{name}");
        // 8-bit is never slower than 16-bit, which is never slower than 32-bit.
        let mut last = 0.0;
        for kind in ["f32", "f16", "int8"] {
            let flops = candlescope_work::devices::Multiply::named(kind).and_then(|k| device.flops.get(&k).copied());
            assert!(flops.unwrap_or(f64::MAX) >= last, "{name} {kind}");
            last = flops.unwrap_or(last);
        }
    }
    for (name, known) in [
        ("NVIDIA H200", "H200-SXM"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("nvidia a100-sxm4-80gb", "A100-80GB-SXM"),
        ("mi300x", "MI300X"),
        ("Apple M2 Ultra", "M2-Ultra"),
    ] {
        assert_eq!(known_device(name).unwrap().name, known);
    }
    let typo = known_device("H20O").unwrap_err().to_string();
    assert!(typo.contains("did you mean") && typo.contains("H200-SXM") && typo.contains("--peaks"), "{typo}");
}

#[test]
fn formats_count_the_scales_of_their_blocks() {
    for (name, bits) in [("q8_0", 8.5), ("q4_0", 4.5), ("q4_K_M", 4.5), ("q6_k", 6.5625), ("Q5_0", 5.5), ("bf16", 16.0)]
    {
        assert_eq!(Format::named(name).unwrap().bits, bits, "{name}");
    }
    let typo = Format::named("q4_x").unwrap_err().to_string();
    assert!(typo.contains("did you mean `q4_") && typo.contains("bf16"), "{typo}");
}
