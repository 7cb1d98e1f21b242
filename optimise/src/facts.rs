//! What a run says of the program, as far as remedies ask.

use crate::lookup_facts::{Lookup, decoding_share};
use crate::setting::Change;
use crate::time_shares::TimeShares;
use candlescope_core::Phase;
use candlescope_core::run::{Code, RunManifest, env_key, model_key};
use candlescope_figures::Analysis;
use candlescope_work::estimate::{Estimate, median};
use serde_json::Value;

/// What a run says of the program, as far as remedies ask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Facts {
    /// `cpu` or `cuda:0`.
    pub(crate) device: String,
    /// What the model was loaded from, as it was asked for.
    pub(crate) source: String,
    /// The processor's name, or the GPU's.
    pub(crate) hardware: String,
    /// Threads that compute on a CPU.
    pub(crate) threads: Option<u64>,
    /// Processors that may be used.
    pub(crate) processors: Option<u64>,
    /// Sequences at once.
    pub(crate) batch: u64,
    /// Whether sequences are held in slots.
    pub(crate) has_slots: bool,
    /// Whether requests join and leave between steps, several or one at a time.
    pub(crate) is_continuous: bool,
    /// Whether what a slot holds of a prompt's beginning is not computed again.
    pub(crate) reuses_prefixes: bool,
    /// Tokens of the longest piece of a prompt that passed between two steps, where requests that generate waited long for
    /// such pieces; `None` where they did not.
    pub(crate) held_up_by: Option<u64>,
    /// Tokens that a step passes of prompts, of all sequences in it, in the middle; `None` where no step says.
    pub(crate) prompt_rows: Option<f64>,
    /// The same of decoding steps: sequences at once, where each has one token.
    pub(crate) decode_rows: Option<f64>,
    /// Whether tokens are looked up in the text and checked in one pass.
    pub(crate) speculates: bool,
    /// Whether tokens are drawn by lot, for which each sequence of a batch has one of its own.
    pub(crate) draws: bool,
    /// How many decoding steps looking tokens up saves these texts; `None` where it is not known, or tokens are drawn.
    pub(crate) lookup: Option<Lookup>,
    /// The share of requests' time that decoding takes; `None` where no request says when its tokens came.
    pub(crate) decoding: Option<Estimate>,
    /// What prompts and decoding take of requests' time; `None` where no request says when its first token came.
    pub(crate) of_requests: Option<TimeShares>,
    /// The same of the time from the first request to the last.
    pub(crate) of_wall: Option<TimeShares>,
    /// Whether steps are replayed as CUDA graphs.
    pub(crate) has_graph: bool,
    /// Whether matrices are quantised while the model loads.
    pub(crate) is_quantised_here: bool,
    /// Whether keys and values are held in 8 bits.
    pub(crate) caches_in_8_bits: bool,
    /// Whether our layers run it.
    pub(crate) is_ours: bool,
    /// Element type of activations.
    pub(crate) dtype: Option<String>,
    /// Element type of most weights, as stored.
    pub(crate) weights: Option<String>,
    /// Bits of a weight, scales included.
    pub(crate) weight_bits: Option<f64>,
    /// Bytes of all weights.
    pub(crate) weight_bytes: Option<u64>,
    /// Whether other programs used the machine, or it held the program back, while the run was recorded.
    pub(crate) is_disturbed: bool,
    /// Whether weights mean nothing, so that nothing can be said about the quality of an answer.
    pub(crate) is_random: bool,
    /// Name of the model.
    pub(crate) model: String,
}

impl Facts {
    /// What a run says.
    pub(crate) fn of(manifest: &RunManifest) -> Self {
        let option = |name: &str| manifest.options.get(name).filter(|value| !value.is_null());
        let text = |name: &str| option(name).and_then(Value::as_str);
        let device = text("device").unwrap_or("cpu").to_string();
        let (model, environment) = (&manifest.model, &manifest.environment);
        let bytes = model_key::WEIGHT_BYTES.of(model).filter(|bytes| *bytes > 0);
        let parameters = model_key::PARAMETERS.of(model).filter(|number| *number > 0);
        let has_graph = option("cuda-graph").and_then(Value::as_bool).unwrap_or(false);
        Self {
            hardware: candlescope_findings::ledger::device(manifest),
            source: text("model").unwrap_or("embedded").to_string(),
            threads: env_key::COMPUTE_THREADS.of(environment),
            processors: env_key::CPU_AVAILABLE.of(environment),
            batch: option("batch").and_then(Value::as_u64).unwrap_or(1),
            has_slots: has_graph
                || ["max-num-seqs", "max-model-len", "concurrency"].iter().any(|name| option(name).is_some()),
            is_continuous: option("concurrency").is_some(),
            reuses_prefixes: option("prefix-reuse").and_then(Value::as_bool).unwrap_or(false),
            held_up_by: None,
            prompt_rows: None,
            decode_rows: None,
            speculates: option("speculate").is_some(),
            draws: option("temperature").and_then(Value::as_f64).is_some_and(|temperature| temperature > 0.0),
            lookup: Lookup::of(manifest),
            decoding: None,
            of_requests: None,
            of_wall: None,
            has_graph,
            is_quantised_here: option("quantize").is_some(),
            caches_in_8_bits: model_key::KV_CACHE_DTYPE.of(model) == Some("q8") || text("kv-cache-dtype") == Some("q8"),
            is_ours: model_key::ENGINE.of(model) == Some("instrumented"),
            dtype: model_key::DTYPE.of(model).map(str::to_string),
            weights: model_key::QUANTIZATION.of(model).map(str::to_string),
            weight_bytes: bytes,
            is_disturbed: false,
            weight_bits: bytes.zip(parameters).map(|(bytes, n)| bytes as f64 * 8.0 / n as f64),
            is_random: model.get("seed").is_some_and(|seed| !seed.is_null()),
            model: model_key::NAME.of(model).unwrap_or("the model").to_string(),
            device,
        }
    }

    /// The same with what the run's steps say.
    pub(crate) fn seen(self, analysis: &Analysis) -> Self {
        let is_told = analysis.verdict.findings.iter().any(|finding| finding.code == Code::PromptsHoldUp);
        let passed = |phase: Phase| -> Vec<u32> {
            let series = analysis.series.iter().find(|series| series.phase == Some(phase));
            series.map_or_else(Vec::new, |series| series.points.iter().filter_map(|point| point.tokens).collect())
        };
        let rows = |passed: &[u32]| median(passed.iter().copied().map(f64::from).collect());
        let of_prompts = passed(Phase::Prefill);
        let longest = of_prompts.iter().max().filter(|_| is_told);
        Self {
            held_up_by: longest.copied().map(u64::from),
            prompt_rows: rows(&of_prompts),
            decode_rows: rows(&passed(Phase::Decode)),
            decoding: decoding_share(analysis),
            of_requests: TimeShares::of_requests(analysis, self.is_continuous),
            of_wall: TimeShares::of_wall(analysis),
            is_disturbed: analysis.disturbance().is_some(),
            ..self
        }
    }

    /// The same once a change is made, as far as remedies change it: which of them are possible then follows.
    pub(crate) fn with(&self, change: &Change) -> Self {
        let mut facts = self.clone();
        for (name, value) in &change.options {
            let value = value.as_deref();
            let number = || value.and_then(|value| value.parse::<u64>().ok());
            match name.as_str() {
                "threads" => facts.threads = number().or(facts.threads),
                "batch" => facts.batch = number().unwrap_or(facts.batch),
                "max-num-seqs" => facts.has_slots = value.is_some() || facts.has_graph || facts.is_continuous,
                "concurrency" => {
                    facts.is_continuous = value.is_some();
                    facts.has_slots |= facts.is_continuous;
                }
                "speculate" => facts.speculates = value.is_some(),
                "prefix-reuse" => facts.reuses_prefixes = value == Some("true"),
                "cuda-graph" => {
                    facts.has_graph = value == Some("true");
                    facts.has_slots |= facts.has_graph;
                }
                "engine" => facts.is_ours = value == Some("instrumented"),
                "quantize" => facts.is_quantised_here = value.is_some(),
                "kv-cache-dtype" => facts.caches_in_8_bits = value == Some("q8"),
                _ => {}
            }
            if let ("quantize" | "dtype", Some(kind)) = (name.as_str(), value) {
                facts.weights = Some(kind.to_string());
                facts.weight_bits = weight_bits(kind).or(facts.weight_bits);
            }
            if let ("dtype", Some(kind)) = (name.as_str(), value) {
                facts.dtype = Some(kind.to_string());
            }
        }
        facts
    }

    /// Whether weights are held in blocks of fewer bits.
    pub(crate) fn in_blocks(&self) -> bool {
        !matches!(self.weights.as_deref(), None | Some("f32" | "f16" | "bf16"))
    }

    /// Whether the model runs on a GPU.
    pub(crate) fn on_gpu(&self) -> bool {
        self.device.starts_with("cuda")
    }
}

/// Bits of a weight of this type, scales included; `None` for types that no remedy asks for.
fn weight_bits(kind: &str) -> Option<f64> {
    match kind {
        "f32" => Some(32.0),
        "f16" | "bf16" => Some(16.0),
        "q8_0" => Some(8.5),
        "q4_0" => Some(4.5),
        _ => None,
    }
}
