//! An unmodified candle-transformers program made observable by three lines (marked 1, 2, 3).
//!
//! `cargo run -p candlescope-examples --bin instrument_existing -- runs/existing && candlescope report runs/existing`
//!
//! The same three lines on a GPU (`--features cuda`) also record the device's time for every layer, its power and its
//! memory.

use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candle_transformers::models::llama::{Cache, Config, Llama};
use candlescope::llm::{self, Tokens};

fn main() -> anyhow::Result<()> {
    let run = std::env::args().nth(1).unwrap_or_else(|| "runs/existing".into());
    // 1. Before the model loads: candle creates its spans then.
    let scope = candlescope::builder().parquet(&run).report_at_end(true).install()?;

    let device = Device::cuda_if_available(0)?;
    let config = Config {
        hidden_size: 128,
        intermediate_size: 256,
        vocab_size: 512,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        use_flash_attn: false,
        rms_norm_eps: 1e-5,
        rope_theta: 10_000.0,
        bos_token_id: None,
        eos_token_id: None,
        rope_scaling: None,
        max_position_embeddings: 256,
        tie_word_embeddings: false,
    };
    // Random weights keep the example small; a real program loads safetensors here.
    let weights = VarMap::new();
    let vb = VarBuilder::from_varmap(&weights, DType::F32, &device);
    // Optional: names each layer after its module, `model.layers.3.mlp.down_proj` instead of `linear[26]`, and counts
    // its FLOPs and bytes; a real program gives the text of its config.json.
    candlescope::modules::model(r#"{"model_type": "llama", "vocab_size": 512, "hidden_size": 128}"#)?;
    let model = Llama::load(candlescope::observe(vb), &config)?;
    let mut cache = Cache::new(true, DType::F32, &config, &device)?;

    let prompt = [1u32, 5, 9, 42];
    let mut tokens = prompt.to_vec();
    let mut position = 0;
    while tokens.len() < prompt.len() + 16 {
        let new = &tokens[position..];
        // 2. Optional: marks the step, so that reports know tokens, context and phase.
        let _step = match position {
            0 => llm::prefill(Tokens::new(new.len()).context(new.len())),
            _ => llm::decode(Tokens::new(1).context(tokens.len())),
        };
        let input = Tensor::new(new, &device)?.unsqueeze(0)?;
        let logits = model.forward(&input, position, &mut cache)?;
        position = tokens.len();
        tokens.push(logits.squeeze(0)?.argmax(0)?.to_scalar::<u32>()?);
    }
    println!("{:?}", &tokens[prompt.len()..]);

    // 3. Writes everything and ends the run. Dropping the scope does the same.
    scope.finish();
    Ok(())
}
