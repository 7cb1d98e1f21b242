//! What a range is called, and what it means.

use candlescope_core::{Phase, RangeKind};
use regex::Regex;
use std::borrow::Cow;
use std::collections::HashMap;

/// What PyTorch's `emit_nvtx` appends to an operator's name: no two calls have the same.
const TAILS: &[&str] = &[", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = "];

/// Domains of libraries, whose ranges say what they do inside of the program's own: never a step.
const LIBRARIES: &[&str] =
    &["NCCL", "CCCL", "cuBLAS", "cuBLASLt", "cuDNN", "cuFFT", "cuSPARSE", "nvshmem", "UCX", "TensorRT"];

/// Names that differ by their numbers only, kept apart up to this many: the layers of a model, not the steps of a day.
const NUMBERED: usize = 256;
/// Texts without their numbers that are counted; of further ones no numbers are kept.
const TEXTS: usize = 16_384;

/// Whether a domain is a library's.
pub(crate) fn is_library(domain: &str) -> bool {
    LIBRARIES.iter().any(|library| domain.eq_ignore_ascii_case(library))
}

/// The part of a range's text that all ranges of its kind have.
pub(crate) fn cleaned(text: &str) -> &str {
    // Most names have no comma, and each range passes here.
    let mut commas = text.bytes().enumerate().filter(|(_, byte)| *byte == b',').map(|(at, _)| at);
    let end = commas.find(|at| TAILS.iter().any(|tail| text[*at..].starts_with(tail))).unwrap_or(text.len());
    let text = text[..end].trim();
    if text.is_empty() { "(unnamed)" } else { text }
}

/// What ranges mean, and which of their numbers belong to their names.
#[derive(Debug, Default)]
pub(crate) struct Meanings {
    /// Only ranges that it matches are steps.
    steps: Option<Regex>,
    /// How many names there are for a text without its numbers.
    numbered: HashMap<String, usize>,
}

impl Meanings {
    pub(crate) fn new(steps: Option<Regex>) -> Self {
        Self { steps, numbered: HashMap::new() }
    }

    /// The name of a range for which there is none yet.
    pub(crate) fn name<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        let text = cleaned(text);
        if !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return text.into();
        }
        let mut without = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                '0'..='9' if without.ends_with('#') => {}
                '0'..='9' => without.push('#'),
                other => without.push(other),
            }
        }
        if self.numbered.len() >= TEXTS && !self.numbered.contains_key(&without) {
            return without.into();
        }
        let known = self.numbered.entry(without.clone()).or_default();
        if *known >= NUMBERED {
            return without.into();
        }
        *known += 1;
        text.into()
    }

    /// What a range of this name means.
    pub(crate) fn kind(&self, name: &str) -> RangeKind {
        let phase = phase_of(name);
        match &self.steps {
            // A step is a phase, so that nothing else is one: whatever has no word for it generates.
            Some(steps) if steps.is_match(name) => RangeKind::Phase(phase.unwrap_or(Phase::Decode)),
            Some(_) => RangeKind::Application,
            None => phase.map_or(RangeKind::Interval, RangeKind::Phase),
        }
    }
}

/// The phase that a name begins with: `prefill`, `Decode step 7`.
fn phase_of(name: &str) -> Option<Phase> {
    let first: String = name.chars().take_while(char::is_ascii_alphabetic).collect();
    Phase::from_word(&first.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_of_torch_lose_what_differs_from_call_to_call() {
        assert_eq!(cleaned("aten::linear, seq = 7, sizes = [[1, 576]]"), "aten::linear");
        assert_eq!(cleaned("aten::mm, op_id = 12, input_op_ids = [(3,0)]"), "aten::mm");
        assert_eq!(cleaned(" attention, rotary "), "attention, rotary");
        assert_eq!(cleaned(", seq = 1"), "(unnamed)");
    }

    #[test]
    fn layers_keep_their_numbers_and_endless_ones_go() {
        let mut meanings = Meanings::default();
        let names: Vec<String> = (0..1_000).map(|n| meanings.name(&format!("iteration {n}")).into_owned()).collect();
        assert_eq!((names[0].as_str(), names[255].as_str()), ("iteration 0", "iteration 255"));
        assert!(names[256..].iter().all(|name| name == "iteration #"));
        assert_eq!(meanings.name("layer 12"), "layer 12");
        assert_eq!(meanings.name("forward"), "forward");
    }

    #[test]
    fn phases_are_words_and_an_expression_says_what_steps_are() {
        let plain = Meanings::default();
        assert_eq!(plain.kind("Decode step 7"), RangeKind::Phase(Phase::Decode));
        assert_eq!(plain.kind("decoder.layer"), RangeKind::Interval);
        assert_eq!(plain.kind("prefill_0"), RangeKind::Phase(Phase::Prefill));
        let steps = Meanings::new(Some(Regex::new("^(prefill|model_step)").expect("an expression")));
        assert_eq!(steps.kind("prefill"), RangeKind::Phase(Phase::Prefill));
        assert_eq!(steps.kind("model_step 3"), RangeKind::Phase(Phase::Decode));
        assert_eq!(steps.kind("decode"), RangeKind::Application);
        assert!(is_library("nccl") && !is_library("vllm"));
    }
}
