//! What is measured once of each variant: its size, its energy, and how far its predictions are from the base's.

use super::divergence::{
    FirstToken, LayerError, diverges_at, first_different, first_token, layer_errors, relative_error,
};
use super::host::VariantHost;
use super::quality::{Position, Quality, quality};
use super::runner::{Runner, TextActivations};
use super::variant::Variant;
use crate::hardware::EnergyCounter;
use crate::method::{Cancel, CaseError};
use candlescope_models::weights::Form;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Instant;

/// What was found out about all variants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct VariantsSummary {
    /// The text that quality was measured on.
    pub text: Option<PathBuf>,
    /// Tokens of that text.
    pub text_tokens: Option<usize>,
    /// Tokens of a piece; the second half of each is scored.
    pub chunk: usize,
    /// Pieces that were passed: of the text, or of random tokens where there is none; 0 where quality was not asked
    /// for.
    pub pieces: usize,
    /// Why there is no quality.
    pub no_quality: Option<String>,
    /// Whether that is an error: a text was asked for that cannot be used.
    pub text_is_wrong: bool,
    /// Whether the weights are random, so that figures of quality, if any, say nothing about a model.
    pub random_weights: bool,
    /// Where energy was read, or why it was not.
    pub energy: String,
    /// Facts about each variant, in the order of the options; after an interrupt the last ones are missing.
    pub variants: Vec<VariantFacts>,
}

/// What was found out about one variant. What is not known is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VariantFacts {
    /// Which way of running the model these facts are about.
    pub variant: Variant,
    /// Why it could not be run.
    pub absent: Option<String>,
    /// Bytes of its file: GGUF, or ONNX with its weights.
    pub disk_bytes: Option<u64>,
    /// Bytes of its weights in memory; derived from their types and sizes.
    pub weight_bytes: Option<u64>,
    /// Bytes of its keys and values after the continuation.
    pub kv_bytes: Option<u64>,
    /// By how much the process grew when it was made and had generated once. The base's weights are there before.
    pub resident_growth_bytes: Option<u64>,
    /// Energy of one continuation in millijoules, with what the device takes when idle.
    pub energy_mj: Option<f64>,
    /// What runs it, where that is not candle.
    pub runs_on: Option<String>,
    /// Predictions held against the base's.
    pub quality: Option<Quality>,
    /// The first token of greedy continuations that differs.
    pub first_token: Option<FirstToken>,
    /// The error after each block.
    pub layers: Vec<LayerError>,
    /// The first block whose error is above [`DIVERGED`](super::DIVERGED).
    pub diverges_at: Option<usize>,
    /// Why figures of quality are missing.
    pub no_quality: Option<String>,
}

impl VariantFacts {
    fn new(variant: Variant) -> Self {
        Self {
            variant,
            absent: None,
            disk_bytes: None,
            weight_bytes: None,
            kv_bytes: None,
            resident_growth_bytes: None,
            energy_mj: None,
            runs_on: None,
            quality: None,
            first_token: None,
            layers: Vec::new(),
            diverges_at: None,
            no_quality: None,
        }
    }
}

/// What the base makes of a piece of text.
struct BasePiece {
    tokens: Vec<u32>,
    made: TextActivations,
    /// Its own continuation of the piece's beginning, and the tokens before it; empty where there is no text.
    beginning: Vec<u32>,
    continuation: Vec<u32>,
}

/// Measures all variants of `host`, calling `begun` as each begins. Ends early, with what there is, when `cancel` is set.
///
/// # Errors
/// When the base itself cannot be run.
pub fn close(
    host: &VariantHost,
    mut energy: Result<EnergyCounter, String>,
    cancel: &Cancel,
    begun: &mut dyn FnMut(Variant),
) -> Result<VariantsSummary, CaseError> {
    let mut closing = VariantsSummary {
        chunk: host.options.chunk,
        random_weights: host.is_random(),
        energy: energy.as_ref().map_or_else(Clone::clone, |counter| counter.source().to_string()),
        ..VariantsSummary::default()
    };
    begun(Variant::KvCache);
    let pieces = pieces(host, &mut closing);
    let scored = closing.text.is_some();
    let base = base_pieces(host, &pieces, scored)?;
    closing.pieces = base.len();
    for variant in host.options.variants.clone() {
        if cancel.is_cancelled() {
            break;
        }
        begun(variant);
        closing.variants.push(one(host, variant, &base, scored, &mut energy, &closing));
    }
    Ok(closing)
}

/// The pieces to pass, and in `closing` what they are.
fn pieces(host: &VariantHost, closing: &mut VariantsSummary) -> Vec<Vec<u32>> {
    if !host.options.quality {
        closing.no_quality = Some("it was not asked for (--no-quality)".into());
        return Vec::new();
    }
    match host.text() {
        Ok(Ok(text)) => {
            (closing.text, closing.text_tokens) = (Some(text.path), Some(text.tokens));
            text.pieces
        }
        Ok(Err(why)) => {
            closing.no_quality = Some(why);
            host.random_pieces()
        }
        Err(why) => {
            (closing.no_quality, closing.text_is_wrong) = (Some(why), true);
            host.random_pieces()
        }
    }
}

/// The position of a piece from which on its predictions are scored: before it, there is too little text to go by.
fn scored_from(piece: &[u32]) -> usize {
    piece.len() / 2
}

fn base_pieces(host: &VariantHost, pieces: &[Vec<u32>], scored: bool) -> Result<Vec<BasePiece>, CaseError> {
    if pieces.is_empty() {
        return Ok(Vec::new());
    }
    let mut base = host.build(Variant::KvCache)?;
    let (prompt, output) = (host.options.prompt_tokens, host.options.output_tokens);
    let piece = |tokens: &Vec<u32>| {
        let made = base.inspect(tokens, scored_from(tokens))?;
        let beginning = if scored { tokens.iter().take(prompt).copied().collect() } else { Vec::new() };
        let continuation = match scored {
            true => base.generate(&beginning, output, &host.cancel)?.tokens,
            false => Vec::new(),
        };
        Ok(BasePiece { tokens: tokens.clone(), made, beginning, continuation })
    };
    pieces.iter().map(piece).collect()
}

fn one(
    host: &VariantHost,
    variant: Variant,
    base: &[BasePiece],
    scored: bool,
    energy: &mut Result<EnergyCounter, String>,
    closing: &VariantsSummary,
) -> VariantFacts {
    let mut closed = VariantFacts::new(variant);
    closed.disk_bytes = disk_bytes(host, variant);
    let before = resident_bytes();
    let ran = host.prompt().and_then(|prompt| {
        let mut runner = host.build(variant)?;
        runner.generate(&prompt, host.options.output_tokens, &host.cancel)?;
        Ok((runner, prompt))
    });
    let (mut runner, prompt) = match ran {
        Ok(ready) => ready,
        Err(error) => {
            closed.absent = Some(error.to_string());
            return closed;
        }
    };
    closed.resident_growth_bytes = before.zip(resident_bytes()).map(|(before, after)| after.saturating_sub(before));
    closed.weight_bytes = Some(runner.weight_bytes());
    closed.kv_bytes = runner.kv_bytes();
    closed.runs_on = runner.runs_on();
    closed.energy_mj = energy.as_mut().ok().and_then(|counter| energy_of(runner.as_mut(), &prompt, host, counter));
    match held_against(runner.as_mut(), variant, base, host) {
        _ if variant.is_base() => closed.no_quality = Some("it is the base".into()),
        _ if stored_alike(host, variant) => {
            closed.no_quality = Some(format!(
                "the model is stored as {variant}, and the base is those weights widened: nothing can differ"
            ));
        }
        Err(error) => closed.no_quality = Some(error.to_string()),
        Ok(found) => {
            closed.diverges_at = diverges_at(&found.layers);
            closed.layers = found.layers;
            match scored {
                true => (closed.quality, closed.first_token) = (found.quality, found.first_token),
                false => closed.no_quality.clone_from(&closing.no_quality),
            }
        }
    }
    closed
}

/// Whether every matrix of the model's file has the variant's type.
fn stored_alike(host: &VariantHost, variant: Variant) -> bool {
    let stored = &host.held.stored;
    matches!(variant.form(), Form::Quantized(dtype) if !stored.is_empty() && stored.iter().all(|own| *own == dtype))
}

/// Bytes of the variant's file, which is kept if that was asked for.
fn disk_bytes(host: &VariantHost, variant: Variant) -> Option<u64> {
    let keep = host.options.keep.as_deref();
    match variant {
        #[cfg(feature = "onnx")]
        Variant::Onnx | Variant::OnnxCandle => {
            // The first of the two writes the files that are kept; the other one runs the same.
            let written = variant == Variant::OnnxCandle && host.options.variants.contains(&Variant::Onnx);
            let files = keep.map_or_else(|| host.onnx_files(host.files(), true), |keep| host.onnx_files(keep, written));
            files.ok().map(|files| files.bytes)
        }
        #[cfg(not(feature = "onnx"))]
        Variant::Onnx | Variant::OnnxCandle => None,
        // One file for all of them.
        Variant::NoCache | Variant::KvQ8 => host.gguf(variant, None).ok(),
        _ => host.gguf(variant, keep).ok(),
    }
}

/// Energy of one continuation: many of them, because the counter stands still for as long as one may take.
fn energy_of(runner: &mut dyn Runner, prompt: &[u32], host: &VariantHost, counter: &mut EnergyCounter) -> Option<f64> {
    let (began, first) = (Instant::now(), counter.joules()?);
    let mut times = 0u32;
    while times == 0 || began.elapsed() < counter.shortest() {
        runner.generate(prompt, host.options.output_tokens, &host.cancel).ok()?;
        times += 1;
    }
    Some((counter.joules()? - first) * 1e3 / f64::from(times)).filter(|energy| *energy > 0.0)
}

struct QualityResults {
    quality: Option<Quality>,
    first_token: Option<FirstToken>,
    layers: Vec<LayerError>,
}

fn held_against(
    runner: &mut dyn Runner,
    variant: Variant,
    base: &[BasePiece],
    host: &VariantHost,
) -> Result<QualityResults, CaseError> {
    let vocabulary = host.held.loaded.config.vocab_size;
    let (mut positions, mut layers, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
    for piece in base.iter().filter(|_| !variant.is_base() && !stored_alike(host, variant)) {
        let from = scored_from(&piece.tokens);
        let made = runner.inspect(&piece.tokens, from)?;
        let errors = made.blocks.iter().zip(&piece.made.blocks).map(|(own, base)| relative_error(own, base));
        layers.push(errors.collect::<Option<Vec<f64>>>().unwrap_or_default());
        let rows = made.logits.chunks_exact(vocabulary).zip(piece.made.logits.chunks_exact(vocabulary));
        // The row of a position is held against the token after it, which the last one does not have.
        let next = piece.tokens.iter().skip(from + 1);
        for ((own, base), next) in rows.zip(next) {
            let position = Position::of(base, own, *next);
            positions.push(position.ok_or_else(|| CaseError::Failed("its logits are no numbers".into()))?);
        }
        if !piece.continuation.is_empty() {
            let text = [piece.beginning.as_slice(), &piece.continuation].concat();
            let made = runner.inspect(&text, piece.beginning.len().saturating_sub(1))?;
            firsts.push(first_different(made.logits.chunks_exact(vocabulary), &piece.continuation));
        }
    }
    Ok(QualityResults {
        quality: quality(&positions),
        first_token: first_token(firsts, host.options.output_tokens),
        layers: layer_errors(&layers),
    })
}

/// Memory that this process has resident, in bytes, as Linux counts it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}
