//! Logits of a model directory, to compare with another program's: those of a prompt's last token, and of each further
//! token, passed one at a time with the cache.
//!
//! `cargo run -p candlescope-models --example logits -- DIRECTORY PROMPT_TOKENS TOKEN…` prints a JSON array of arrays:
//! the first `PROMPT_TOKENS` of the tokens are the prompt.

use candle_core::{Device, Tensor};
use candlescope_models::{LoadOptions, LoadedModel, ModelSource};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().ok_or("pass a model directory")?;
    let prompt: usize = arguments.next().ok_or("pass the number of tokens of the prompt")?.parse()?;
    let ids: Vec<u32> = arguments.map(|id| id.parse()).collect::<Result<_, _>>()?;
    let mut loaded = LoadedModel::load(&ModelSource::parse(&directory)?, &LoadOptions::default())?;
    let mut rows = Vec::new();
    let mut from = 0;
    for to in prompt..=ids.len() {
        let tokens = Tensor::new(ids.get(from..to).ok_or("the prompt is longer than the tokens")?, &Device::Cpu)?;
        let logits = loaded.model.forward(&tokens.unsqueeze(0)?, from)?;
        rows.push(logits.squeeze(0)?.to_vec1::<f32>()?);
        from = to;
    }
    println!("{}", serde_json::to_string(&rows)?);
    Ok(())
}
