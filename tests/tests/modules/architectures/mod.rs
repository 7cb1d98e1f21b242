//! candle's models, built small with random weights and run: every span of a layer has the name of the one module whose
//! weights it computes with. What each model shows is kept in `docs/models.md`.
//!
//! A model is a function that returns its [`Row`]; what is wrong with it is collected there, so that one run tells all.

mod decoders;
mod encoder_decoders;
mod encoders;
mod full_size;
mod page;
mod quantised;
mod state_space;
mod vision;
mod without_spans;

use super::{TRACED, common};
use candle_core::{DType, Device, Tensor};
use candle_nn::{VarBuilder, VarMap};
use candlescope_core::llm::{self, Tokens};
use candlescope_core::{Batch, SpanRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What is said of a model that makes no spans of its own.
const NO_SPANS: &str = "makes no spans";

/// Least share of weight FLOPs in named modules for a model to count as shown.
const SHOWN: f64 = 0.95;

/// What a model does in a step, as its case says: one number for each step.
type PerStep<'a> = &'a dyn Fn(Step) -> u64;

/// One step of a run, of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    tokens: u64,
    /// Tokens of the sequence after the step.
    context: u64,
}

const PREFILL: Step = Step { tokens: 5, context: 5 };
const DECODE: Step = Step { tokens: 1, context: 6 };

impl Step {
    /// Pairs of tokens that causal attention needs.
    fn causal(self) -> u64 {
        self.tokens * self.context - self.tokens * (self.tokens - 1) / 2
    }

    fn told(self) -> Tokens {
        Tokens::new(self.tokens as usize).context(self.context as usize)
    }

    fn ids(self) -> Tensor {
        let ids = (self.context - self.tokens..self.context).map(|i| (i as u32 * 7 + 3) % 96);
        let ids = Tensor::from_iter(ids, &Device::Cpu).expect("tokens");
        ids.unsqueeze(0).expect("one sequence")
    }

    fn position(self) -> usize {
        (self.context - self.tokens) as usize
    }
}

/// Whether `StepRecord::flops` is known, and what it has to be.
enum StepFlops<'a> {
    /// All weights and attention.
    All(PerStep<'a>),
    /// Those of all but what is named here, whose rows are not known: of the step nothing is told.
    Without(&'static str, PerStep<'a>),
    /// No row of this model is known.
    Unknown,
}

/// A model, and what is expected of it.
struct Case<'a> {
    name: &'static str,
    /// File below candle-transformers' `src/models`.
    file: &'static str,
    remark: &'static str,
    steps: &'a [Step],
    /// Weight FLOPs of a step, from the configuration.
    total: PerStep<'a>,
    flops: StepFlops<'a>,
    /// Endings of the modules that have weights and no span of their own.
    spanless: &'a [&'a str],
    /// Modules of spans that have the weight of another module: the head's is the embedding's.
    shared: &'a [(&'a str, &'a str)],
    /// Rows that a module computes in a step.
    rows: &'a dyn Fn(&str, Step) -> u64,
    /// How often a module is entered in a step.
    times: &'a dyn Fn(&str, Step) -> u64,
    /// Spans of layers that have no module's weights, by name, and how many a step has.
    nameless: &'a [(&'a str, usize)],
    /// Whether named modules do nearly all of the work.
    shown: bool,
    /// Whether what was left out would change that.
    part: bool,
}

impl Default for Case<'_> {
    fn default() -> Self {
        Self {
            name: "",
            file: "",
            remark: "",
            steps: &[PREFILL, DECODE],
            total: &|_| 0,
            flops: StepFlops::Unknown,
            spanless: &[],
            shared: &[],
            rows: &|module, step| if module == "lm_head" { 1 } else { step.tokens },
            times: &|_, _| 1,
            nameless: &[],
            shown: true,
            part: false,
        }
    }
}

/// What a model showed.
#[derive(Debug)]
struct Row {
    name: &'static str,
    file: &'static str,
    remark: &'static str,
    /// Spans of the first step that have a module's name, of all.
    named: usize,
    entered: usize,
    /// Of weight FLOPs in named modules.
    share: f64,
    /// Whether the model is one that is shown.
    counts: bool,
    flops: String,
    /// Of the steps' host time in layers that have a name, and in anything that has one.
    host: (f64, f64),
    problems: Vec<String>,
}

/// What was recorded of a model, and the weights it has.
struct Seen {
    /// Dimensions by full name.
    weights: BTreeMap<String, Vec<usize>>,
    batch: Batch,
}

impl Seen {
    /// Numbers of the steps, in order.
    fn steps(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.batch.steps.iter().map(|step| step.step).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Of a step, in the order in which they were entered.
    fn spans(&self, step: u64) -> Vec<&SpanRecord> {
        let mut spans: Vec<&SpanRecord> = self.batch.spans.iter().filter(|span| span.step == Some(step)).collect();
        spans.sort_by_key(|span| span.seq);
        spans
    }
}

/// Runs a model under a session. Its weights are made as it asks for them; `given` are there before, for models that
/// look what their file has.
fn watch(config: Option<&str>, given: &[(&str, &[usize])], run: impl FnOnce(VarBuilder<'static>)) -> Seen {
    let map = VarMap::new();
    let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
    for (name, dims) in given {
        vb.get(*dims, name).expect("made");
    }
    let (batch, ..) = common::record(|| {
        if let Some(config) = config {
            candlescope::modules::model(config).expect("a configuration");
        }
        run(candlescope::observe(vb));
    });
    let weights = map.data().lock().expect("the weights");
    Seen { weights: weights.iter().map(|(name, var)| (name.clone(), var.dims().to_vec())).collect(), batch }
}

/// A prompt and one more token.
fn generate(mut forward: impl FnMut(&Tensor, usize) -> candle_core::Result<Tensor>) {
    {
        let _step = llm::prefill(PREFILL.told());
        forward(&PREFILL.ids(), PREFILL.position()).expect("prefill");
    }
    let _step = llm::decode(DECODE.told());
    forward(&DECODE.ids(), DECODE.position()).expect("decode");
}

/// A pass that generates nothing.
fn encode(forward: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>) {
    let _step = llm::encode(PREFILL.told());
    forward(&PREFILL.ids()).expect("a pass");
}

/// Spans around one layer that computes with weights: each of them should have a module.
const LAYERS: &[&str] =
    &["conv1", "conv2", "conv2d", "embedding", "geglu", "layer-norm", "linear", "patch-embed", "qmatmul", "rms-norm"];

/// Parts of a module in the order in which all of candle's models compute them: those of one size could be mixed up and
/// fit all the same.
const ORDER: &[&[&str]] = &[
    &["q_proj", "k_proj", "v_proj", "o_proj"],
    &["q_proj", "k_proj", "v_proj", "out_proj"],
    &["q_lin", "k_lin", "v_lin", "out_lin"],
    &["query", "key", "value"],
    &["q", "k", "v", "o"],
    &["attn_q", "attn_k", "attn_v", "attn_output"],
    &["gate_proj", "up_proj", "down_proj"],
    &["ffn_gate", "ffn_up", "ffn_down"],
    &["fc11", "fc12", "fc2"],
    &["input_layernorm", "post_attention_layernorm"],
    &["attn_norm", "ffn_norm"],
    &["attn_q_norm", "attn_k_norm"],
    &["q_norm", "k_norm"],
    &["ln1", "ln2"],
    &["layer_norm1", "layer_norm2"],
];

fn module_of(weight: &str) -> &str {
    weight.rsplit_once('.').map_or(weight, |(module, _)| module)
}

fn is_below(name: &str, module: &str) -> bool {
    name.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn dims(span: &SpanRecord) -> Option<Vec<usize>> {
    span.shape.map(|shape| shape.dims().iter().map(|&dim| dim as usize).collect())
}

impl Case<'_> {
    /// Holds a model to what is expected of it.
    fn check(&self, seen: &Seen) -> Row {
        let mut problems = self.check_all_names(seen);
        let numbers = seen.steps();
        let (mut named_flops, mut total) = (0, 0);
        for (&number, &step) in numbers.iter().zip(self.steps) {
            named_flops += self.named_flops(&seen.spans(number), step);
            total += (self.total)(step);
        }
        self.check_flops(seen, &mut problems);
        let share = if total == 0 { 0. } else { named_flops as f64 / total as f64 };
        if share > 1. {
            problems.push(format!("{named_flops} FLOPs named of {total}"));
        }
        let first: Vec<&SpanRecord> =
            seen.batch.spans.iter().filter(|span| span.step == numbers.first().copied() && span.depth > 0).collect();
        // What is missing has a remark.
        let shown = self.shown || (TRACED && self.remark == NO_SPANS);
        let more = TRACED && share >= SHOWN;
        if ((share >= SHOWN) != shown && !more) || (self.remark.is_empty() && named_flops != total) {
            problems.push(format!("{named_flops} of {total} FLOPs are named, {share:.3}; shown: {shown}"));
        }
        Row {
            name: self.name,
            file: self.file,
            remark: self.remark,
            named: first.iter().filter(|span| span.path.module.is_some()).count(),
            entered: first.len(),
            share,
            counts: self.shown && !self.part,
            flops: match &self.flops {
                StepFlops::All(_) => "yes".into(),
                StepFlops::Without(what, _) => format!("no: rows of {what} are not known"),
                StepFlops::Unknown => "no".into(),
            },
            host: host_shares(&seen.batch),
            problems,
        }
    }

    /// What is wrong with the names of all steps.
    fn check_all_names(&self, seen: &Seen) -> Vec<String> {
        let mut problems = Vec::new();
        let mut entered = BTreeSet::new();
        let numbers = seen.steps();
        if numbers.len() != self.steps.len() {
            problems.push(format!("{} steps, not {}", numbers.len(), self.steps.len()));
        }
        for (&number, &step) in numbers.iter().zip(self.steps) {
            let spans = seen.spans(number);
            self.check_names(seen, &spans, step, &mut problems);
            entered.extend(spans.iter().filter(|s| s.shape.is_some()).filter_map(|s| s.path.module.as_deref()));
        }
        self.check_completeness(seen, &entered, &mut problems);
        problems
    }

    /// Every layer has a module, the right one as far as its shape tells, and as often as it should.
    fn check_names(&self, seen: &Seen, spans: &[&SpanRecord], step: Step, problems: &mut Vec<String>) {
        let mut times: BTreeMap<&str, u64> = BTreeMap::new();
        let mut nameless: BTreeMap<&str, usize> = BTreeMap::new();
        for span in spans {
            let Some(module) = span.path.module.as_deref() else {
                if LAYERS.contains(&&*span.path.name) {
                    *nameless.entry(&span.path.name).or_default() += 1;
                }
                continue;
            };
            let Some(dims) = dims(span) else {
                if !seen.weights.keys().any(|weight| is_below(module_of(weight), module)) {
                    problems.push(format!("{} is no group of modules: {module}", span.path.name));
                }
                continue;
            };
            *times.entry(module).or_default() += 1;
            let weight = self.shared.iter().find(|(known, _)| *known == module).map(|(_, weight)| *weight);
            let own = format!("{module}.weight");
            let known = seen.weights.get(weight.unwrap_or(&own));
            if known != Some(&dims) {
                problems.push(format!("{} is not {module}: {dims:?}, not {known:?}", span.path.name));
            }
        }
        for parts in ORDER {
            // By the module that they are parts of.
            let mut last: BTreeMap<&str, usize> = BTreeMap::new();
            for module in spans.iter().filter_map(|span| span.path.module.as_deref()) {
                let Some((above, part)) = module.rsplit_once('.') else { continue };
                let Some(place) = parts.iter().position(|known| *known == part) else { continue };
                if last.insert(above, place).is_some_and(|before| before > place) {
                    problems.push(format!("{module} comes after {above}.{}", parts[place + 1]));
                }
            }
        }
        let expected: BTreeMap<&str, usize> = self.nameless.iter().copied().collect();
        if nameless != expected {
            problems.push(format!("layers without a module: {nameless:?}, not {expected:?}"));
        }
        for (module, n) in times {
            let expected = (self.times)(module, step);
            if n != expected {
                problems.push(format!("{module} is entered {n} times in {step:?}, not {expected}"));
            }
        }
    }

    /// Every module that has weights was entered, but for those that have no span.
    fn check_completeness(&self, seen: &Seen, entered: &BTreeSet<&str>, problems: &mut Vec<String>) {
        let mut expected: BTreeSet<&str> = seen.weights.keys().map(|weight| module_of(weight)).collect();
        for ending in self.spanless {
            if TRACED {
                // Most of them have one now.
                expected.retain(|module| !module.ends_with(ending) || entered.contains(module));
                continue;
            }
            let before = expected.len();
            expected.retain(|module| !module.ends_with(ending));
            if expected.len() == before {
                problems.push(format!("no module ends with {ending}"));
            }
        }
        expected.extend(self.shared.iter().map(|(module, _)| *module));
        let missing: Vec<_> = expected.difference(entered).collect();
        let more: Vec<_> = entered.difference(&expected).collect();
        if !(missing.is_empty() && more.is_empty()) {
            problems.push(format!("missing: {missing:?}; not expected: {more:?}"));
        }
    }

    /// FLOPs of the matrices in named spans: from their shapes, and the rows that this case says.
    fn named_flops(&self, spans: &[&SpanRecord], step: Step) -> u64 {
        let flops = |span: &&SpanRecord| {
            let (module, dims) = (span.path.module.as_deref()?, dims(span)?);
            let multiplies = dims.len() > 1 && &*span.path.name != "embedding";
            multiplies.then(|| 2 * (self.rows)(module, step) * dims.iter().product::<usize>() as u64)
        };
        spans.iter().filter_map(flops).sum()
    }

    fn check_flops(&self, seen: &Seen, problems: &mut Vec<String>) {
        let mut steps: Vec<_> = seen.batch.steps.iter().collect();
        steps.sort_by_key(|step| step.step);
        for (record, &step) in steps.iter().zip(self.steps) {
            // A sum that lacks something is not told; what is known stands with the modules.
            let (expected, inside) = match self.flops {
                StepFlops::All(flops) => (Some(flops(step)), flops(step)),
                StepFlops::Without(_, flops) => (None, flops(step)),
                StepFlops::Unknown => (None, 0),
            };
            if record.flops != expected {
                problems.push(format!("FLOPs of {step:?} are {:?}, not {expected:?}", record.flops));
            }
            let of_step = seen.batch.spans.iter().filter(|span| span.step == Some(record.step));
            let sum: u64 = of_step.filter_map(|span| span.flops).sum();
            if sum != inside {
                problems.push(format!("FLOPs of the modules of {step:?} are {sum} together, not {inside}"));
            }
        }
    }
}

/// Shares of the steps' host time: in layers with a name, and in the outermost spans with one.
fn host_shares(batch: &Batch) -> (f64, f64) {
    let all: u64 = batch.steps.iter().map(|step| step.host_dur_ns).sum();
    let by_seq: BTreeMap<u64, &SpanRecord> = batch.spans.iter().map(|span| (span.seq, span)).collect();
    let outermost = |span: &SpanRecord| {
        let above = std::iter::successors(span.parent_seq, |seq| by_seq.get(seq)?.parent_seq);
        !above.filter_map(|seq| by_seq.get(&seq)).any(|span| span.path.module.is_some())
    };
    let time = |which: &dyn Fn(&SpanRecord) -> bool| {
        let named = batch.spans.iter().filter(|span| span.path.module.is_some() && which(span));
        named.map(|span| span.host_dur_ns).sum::<u64>() as f64 / all.max(1) as f64
    };
    (time(&|span| span.shape.is_some()), time(&outermost))
}

/// Runs the models of a family, on one thread as a program would, and tells what is wrong with any of them.
fn rows(models: &[fn() -> Row]) -> Vec<Row> {
    let run = |model: &fn() -> Row| {
        catch_unwind(AssertUnwindSafe(model)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            Row {
                name: "?",
                file: "?",
                remark: "",
                named: 0,
                entered: 0,
                share: 0.,
                counts: false,
                flops: String::new(),
                host: (0., 0.),
                problems: vec![format!("panicked: {text:?}")],
            }
        })
    };
    models.iter().map(run).collect()
}

fn hold_family(models: &[fn() -> Row]) {
    hold_rows(&rows(models));
}

fn hold_rows(rows: &[Row]) {
    for row in rows {
        println!(
            "{:<24} {:>4}/{:<4} named, {:>5.1} % of FLOPs; host time in layers {:>3.0} %, in modules {:>3.0} %",
            row.name,
            row.named,
            row.entered,
            row.share * 100.,
            row.host.0 * 100.,
            row.host.1 * 100.
        );
    }
    let problems: Vec<String> = rows
        .iter()
        .flat_map(|row| row.problems.iter().map(|problem| format!("{} ({}): {problem}", row.name, row.file)))
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}
