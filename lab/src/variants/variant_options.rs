//! What is asked of a study of variants.

use super::variant::Variant;
use crate::method::CaseId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Name of the suite, and of the option by which a study of variants is told from others.
pub const SUITE: &str = "variants";

/// Options of the suite.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct VariantOptions {
    /// The variants, in the order in which they are shown.
    pub variants: Vec<Variant>,
    /// The model, as [`ModelSource::parse`](candlescope_models::ModelSource::parse) reads it.
    pub model: String,
    /// The device that all variants run on: `cpu`, or `cuda:N` with CUDA's ordinal.
    pub device: String,
    /// Seed of random weights and prompts.
    pub seed: u64,
    /// Tokens of the prompt whose continuation is timed.
    pub prompt_tokens: usize,
    /// Tokens of the continuation.
    pub output_tokens: usize,
    /// Text that quality is measured on.
    pub text: Option<PathBuf>,
    /// Tokens of a piece of that text that is passed at once. The second half of them is scored.
    pub chunk: usize,
    /// Most pieces that are passed, from the text's beginning on; 8 by default.
    pub chunks: usize,
    /// Whether quality is measured at all.
    pub quality: bool,
    /// Where files of the variants are kept.
    pub keep: Option<PathBuf>,
    /// The library of ONNX Runtime; without it, it is looked for.
    pub onnxruntime: Option<PathBuf>,
    /// Bytes that a variant may take; without it, what the machine has left.
    pub memory_limit: Option<u64>,
}

impl Default for VariantOptions {
    fn default() -> Self {
        Self {
            variants: Variant::USUAL.to_vec(),
            model: candlescope_models::config::EMBEDDED.into(),
            device: "cpu".into(),
            seed: 42,
            prompt_tokens: 32,
            output_tokens: 50,
            text: None,
            chunk: 256,
            chunks: 8,
            quality: true,
            keep: None,
            onnxruntime: None,
            memory_limit: None,
        }
    }
}

impl VariantOptions {
    /// A short continuation and a short text: for a look at whether all works.
    pub fn quick() -> Self {
        Self { prompt_tokens: 16, output_tokens: 8, chunk: 64, chunks: 2, ..Self::default() }
    }

    /// Sets the variants: each once, in the order in which they are shown, and always the base.
    pub fn choose(&mut self, variants: &[Variant]) {
        let wanted = |variant: &Variant| *variant == Variant::KvCache || variants.contains(variant);
        self.variants = Variant::ALL.into_iter().filter(wanted).collect();
    }

    /// The name of a variant's case.
    pub fn case_id(&self, variant: Variant) -> CaseId {
        CaseId::new(SUITE)
            .param("variant", variant.name())
            .param("prompt_tokens", self.prompt_tokens)
            .param("output_tokens", self.output_tokens)
    }

    /// Names of the cases, in order.
    pub fn case_ids(&self) -> Vec<CaseId> {
        self.variants.iter().map(|variant| self.case_id(*variant)).collect()
    }
}
