//! SmolLM2, which several figures are taken on, and its greedy decoding without any code of ours.

use anyhow::{Context, Result, ensure};
use candle_core::Tensor;
use candlescope_models::LoadedModel;
use std::path::{Path, PathBuf};

/// What it is to go on from.
pub const PROMPT: &str = "Once upon a time, a lighthouse keeper found a letter in a bottle. It said";

/// The file that was given, or SmolLM2 in `.models/`, where tests/fetch-smollm2.sh puts it.
///
/// # Errors
/// If there is no such file.
pub fn find_model(given: Option<&Path>) -> Result<PathBuf> {
    let path = match given {
        Some(path) => path.to_path_buf(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.models/SmolLM2-135M-Instruct.Q4_1.gguf"),
    };
    ensure!(
        path.exists(),
        "there is no model at {}: run tests/fetch-smollm2.sh, or set CANDLESCOPE_SMOLLM2",
        path.display()
    );
    Ok(path)
}

/// The most likely token after these, the first of which is at `position`.
///
/// # Errors
/// As the model's.
pub fn most_likely(loaded: &mut LoadedModel, new: &[u32], position: usize) -> Result<u32> {
    let model = loaded.model.as_mut();
    let input = Tensor::new(new, model.device())?.unsqueeze(0)?;
    let logits = model.forward(&input, position)?.flatten_all()?.to_vec1::<f32>()?;
    let best = logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).context("the model has no vocabulary")?;
    Ok(best.0 as u32)
}
