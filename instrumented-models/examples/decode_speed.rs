//! Decode time of a GGUF model: our layers compared with candle's unmodified `quantized_llama`, interleaved.
//!
//! `cargo run --release -p candlescope-models --example decode_speed -- FILE.gguf [pairs] [tokens] [prompt tokens]`

use candle_core::Device;
use candlescope_models::load::{Engine, LoadOptions, LoadedModel};
use candlescope_models::{GenerateOptions, ModelSource, generate};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("pass a GGUF file")?;
    let pairs: usize = arguments.next().map_or(Ok(6), |n| n.parse())?;
    let tokens: usize = arguments.next().map_or(Ok(64), |n| n.parse())?;
    let prompt_tokens: Option<usize> = arguments.next().map(|n| n.parse()).transpose()?;
    let source = ModelSource::parse(&file)?;
    let load =
        |engine| LoadedModel::load(&source, &LoadOptions { device: Device::Cpu, engine, ..LoadOptions::default() });
    let mut models = [load(Engine::Instrumented)?, load(Engine::Candle)?];
    let options = GenerateOptions { max_new_tokens: tokens, ignore_eos: true, ..GenerateOptions::default() };
    let mut times = [Vec::new(), Vec::new()];
    let mut texts = [String::new(), String::new()];
    for pair in 0..=pairs {
        for turn in 0..2 {
            let which = (pair + turn) % 2;
            let model = &mut models[which];
            let prompt = match prompt_tokens {
                Some(count) => model.random_prompt(count, 1)?,
                None => model.encode_prompt("The candle burns on the desk, and")?,
            };
            let output = generate(model, &[prompt], &options, &mut |_| {})?;
            // The first pair warms up.
            if pair > 0 {
                let tpot = output.tpot().ok_or("one token is too few to time")?;
                times[which].push((tpot.as_secs_f64() * 1e3, output.ttft().unwrap_or_default().as_secs_f64() * 1e3));
            }
            texts[which] = output.sequences[0].text.clone();
        }
    }
    for (name, times) in ["instrumented", "candle"].iter().zip(&mut times) {
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        let tpot: Vec<String> = times.iter().map(|t| format!("{:.2}", t.0)).collect();
        let mut ttft: Vec<f64> = times.iter().map(|t| t.1).collect();
        ttft.sort_by(f64::total_cmp);
        println!(
            "{name:>12}: median {:.2} ms a token, {:.1} ms to the first (all: {})",
            times[times.len() / 2].0,
            ttft[ttft.len() / 2],
            tpot.join(" ")
        );
    }
    println!("same text: {}\n{}", texts[0] == texts[1], texts[0]);
    Ok(())
}
