//! What a finding says, and what to do about it.

use super::super::format::{after_colon, bytes, count, duration, head, percent, printable, significant};
use super::super::kernel_name::short;
use candlescope_document::text::capital;
use candlescope_figures::advice::{Advice, AdviceCode, Diagnosis};
use candlescope_work::estimate::Estimate;

/// What is said of a finding that others may have brought about.
pub(crate) const DISTURBED: &str = "the machine was disturbed meanwhile, which can explain all of it";

/// Longest list of kernels in a sentence, in characters.
const NAMES: usize = 80;

/// A finding in words.
#[derive(Debug)]
pub(crate) struct AdviceText {
    /// What was seen.
    pub(crate) message: String,
    /// What to do, naming the place.
    pub(crate) remedy: String,
}

/// A finding as tables show it.
pub(crate) struct Row<'a> {
    pub(crate) advice: &'a Advice,
    pub(crate) words: AdviceText,
    /// `12 % (9–14 %)`.
    pub(crate) gain: String,
    pub(crate) place: String,
    /// Its figures, one after another.
    pub(crate) evidence: String,
}

/// The findings of a diagnosis.
pub(crate) fn rows(diagnosis: &Diagnosis) -> Vec<Row<'_>> {
    let row = |advice| Row {
        advice,
        words: worded(advice),
        gain: gain(advice.gain),
        place: place(advice),
        evidence: evidence(advice),
    };
    diagnosis.findings.iter().map(row).collect()
}

/// `38 % (25 to 47 %)`.
pub(crate) fn gain(gain: Estimate) -> String {
    let plain = |share: f64| percent(share).replace(" %", "");
    format!("{} ({} to {})", percent(gain.mid), plain(gain.low), percent(gain.high))
}

/// The most telling part of the place: the path, or the steps.
fn place(advice: &Advice) -> String {
    printable(advice.place.path.as_deref().unwrap_or(&advice.place.phase))
}

fn kernel(advice: &Advice) -> String {
    let names = advice.place.kernel.as_deref().unwrap_or("its kernels");
    let each: Vec<String> = names.split(" + ").map(|name| short(name).to_string()).collect();
    head(&printable(&each.join(" + ")), NAMES)
}

/// A value in its unit.
fn shown(value: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(value),
        "ns/token" => format!("{} a token", duration(value)),
        "ratio" => percent(value),
        "bytes" => bytes(value),
        "B/s" => format!("{} GB/s", significant(value / 1e9)),
        "hertz" => format!("{} MHz", significant(value / 1e6)),
        "FLOP" => format!("{} MFLOP", significant(value / 1e6)),
        "count" if value.fract() == 0.0 && value.abs() < 1e15 => count(value as u64),
        "count" => significant(value),
        unit => format!("{} {unit}", significant(value)),
    }
}

fn evidence(advice: &Advice) -> String {
    let figure = |figure: &candlescope_figures::advice::AdviceFigure| {
        let name = figure.name.strip_suffix("_ns").unwrap_or(figure.name).replace('_', " ");
        format!("{name} {} ({})", shown(figure.value, figure.unit), figure.source.name())
    };
    advice.evidence.iter().map(figure).collect::<Vec<_>>().join(", ")
}

/// What a finding says.
pub(crate) fn worded(advice: &Advice) -> AdviceText {
    let phase = printable(&advice.place.phase);
    let it = Sentence { advice, at: place(advice), kernel: kernel(advice), phase };
    let (message, remedy) = match advice.code {
        AdviceCode::ConstantCost => constant_cost(&it),
        AdviceCode::LaunchBound => launch_bound(&it),
        AdviceCode::KernelCount => kernel_count(&it),
        AdviceCode::Unfused => unfused(&it),
        AdviceCode::SyncDrain => sync_drain(&it),
        AdviceCode::ExposedCopy => exposed_copy(&it),
        AdviceCode::CacheCopied => cache_copied(&it),
        AdviceCode::KvBandwidth => kv_bandwidth(&it),
        AdviceCode::WeightStreaming => weight_streaming(&it),
        AdviceCode::BelowRoof => below_roof(&it),
        AdviceCode::WaveTail => wave_tail(&it),
        AdviceCode::ClocksLow => clocks_low(&it),
        AdviceCode::Allocator => allocator(&it),
        AdviceCode::Padding => padding(&it),
        AdviceCode::HostSampling => host_sampling(&it),
        AdviceCode::BetweenSteps => between_steps(&it),
        AdviceCode::StragglerLayer => straggler_layer(&it),
        AdviceCode::StragglerStep => straggler_step(&it),
        AdviceCode::Upcast => upcast(&it),
        AdviceCode::DataMovement => data_movement(&it),
        AdviceCode::Dequantise => dequantise(&it),
        AdviceCode::WarmupUnsettled => warmup_unsettled(&it),
        AdviceCode::ThreadsWait => threads_wait(&it),
    };
    if advice.disturbed {
        return AdviceText {
            message: format!("{}; {DISTURBED}", capital(&message)),
            remedy: format!("Record again on a machine at rest first, and if it stays: {}", after_colon(&remedy)),
        };
    }
    AdviceText { message: capital(&message), remedy }
}

/// A finding, and the names in its sentences.
struct Sentence<'a> {
    advice: &'a Advice,
    at: String,
    kernel: String,
    phase: String,
}

impl Sentence<'_> {
    fn of(&self, name: &str) -> f64 {
        self.advice.figure(name).unwrap_or(f64::NAN)
    }

    fn time(&self, name: &str) -> String {
        duration(self.of(name))
    }
}

fn constant_cost(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let (each, calls) = (it.time("each_ns"), significant(it.of("calls")));
    let threads = it.advice.figure("rayon_num_threads");
    let cause = if threads == Some(0.0) {
        ": RAYON_NUM_THREADS is not set, and candle then reads /proc/cpuinfo at each product of dense matrices"
    } else {
        ""
    };
    (
        format!(
            "each of the {calls} products of a step `{phase}` takes {each} whatever its size, {} of the step{cause}",
            percent(it.of("of_step"))
        ),
        match threads {
            Some(0.0) => format!(
                "Set RAYON_NUM_THREADS before the program starts, to the processors that it may use, or to 1 for a small \
                 model: the products of `{phase}` then cost what they compute"
            ),
            Some(_) => format!(
                "Try other numbers of threads first (`candlescope tune threads`): products of `{phase}` that wait for \
                 each other's threads cost the same whatever their size. Else find what they do beside computing \
                 (`perf record -g` names it), or make fewer and larger ones: batch, or multiply by several weights at once"
            ),
            None => format!(
                "See that RAYON_NUM_THREADS is set where the program of `{phase}` runs: without it candle 0.11 reads \
                 /proc/cpuinfo at each product of dense matrices. If it is, `perf record -g` names what they do"
            ),
        },
    )
}

fn launch_bound(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "the device waits for launches in {}{} of a step `{phase}`: {} kernels take {} of {}",
            percent(it.of("late")),
            if it.of("late_at_most") > it.of("late") + 0.01 {
                format!(" to {}", percent(it.of("late_at_most")))
            } else {
                String::new()
            },
            significant(it.of("kernels")),
            it.time("device_ns"),
            it.time("step_ns")
        ),
        format!(
            "Capture the step `{phase}` as one CUDA graph and replay it, or take work off the thread that launches; the \
             upper end of the gain is what `analyze --what-if graph` says, with kernels as fast as recorded, as \
             far as it comes from waiting"
        ),
    )
}

fn kernel_count(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "a step `{phase}` launches {} kernels of {} on average, {} of them right after a neighbour that they \
         could be one kernel with",
            significant(it.of("kernels")),
            it.time("kernel_mean_ns"),
            significant(it.of("could_join"))
        ),
        format!(
            "Fuse neighbouring element-wise kernels of `{phase}` (each launch costs the host {}), or batch more \
            sequences",
            it.time("launch_ns")
        ),
    )
}

fn unfused(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "`{at}` takes {} kernels a step, {}, where {} would do: {kernel}",
            significant(it.of("kernels")),
            it.time("device_ns"),
            significant(it.of("become"))
        ),
        format!("Use one fused kernel in `{at}` instead of {kernel}"),
    )
}

fn sync_drain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "after waiting for the device in `{at}` ({kernel}), the device is idle for {} a step until the next launch",
            it.time("idle_ns")
        ),
        format!(
            "Launch what comes next before waiting in `{at}`: keep the {kernel} result on the device, or read it one \
            step later"
        ),
    )
}

fn exposed_copy(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "copies ({kernel}) of `{at}` run while no kernel does: {} a step for {}",
            it.time("exposed_ns"),
            bytes(it.of("bytes"))
        ),
        format!(
            "Copy {kernel} of `{at}` once, before the steps, from pinned memory on another stream, or make the values \
            on the device"
        ),
    )
}

fn cache_copied(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, phase, .. } = it;
    (
        format!(
            "a step `{phase}` takes {} longer for each token of context, and reading the cache explains {} of that",
            it.time("slope_ns"),
            it.time("reads_ns")
        ),
        format!(
            "Write keys and values in place in `{at}`, into a cache allocated for the longest context, instead of \
            `Tensor::cat`; do not expand its heads"
        ),
    )
}

fn kv_bandwidth(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!(
            "reading the KV cache in `{at}` and beside it reaches {} of the memory's rate, {} a step",
            percent(it.of("of_bandwidth")),
            it.time("time_ns")
        ),
        format!(
            "Use one attention kernel in `{at}` that reads the cache once (flash-decoding), without expanding heads or \
            types"
        ),
    )
}

fn weight_streaming(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!(
            "`{at}` and others read {} of weights a step at {} of the memory's rate",
            bytes(it.of("weight_bytes")),
            percent(it.of("of_bandwidth"))
        ),
        format!(
            "Store the weights of `{at}` and its like in {} bits instead of {}, or serve more sequences at once",
            significant(it.of("to_bits")),
            significant(it.of("bits"))
        ),
    )
}

fn below_roof(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!("`{at}` reaches {} of what its work allows, {} a step", percent(it.of("of_roof")), it.time("time_ns")),
        match it.advice.place.kernel {
            Some(_) => format!(
                "Replace or tune {kernel} in `{at}`: another shape, layout or library, or one kernel for several of \
                them"
            ),
            None => {
                let library = match is_no_product(at) {
                    true => "",
                    false => "; if it is a product, a tuned library (MKL, Accelerate) in place of the built-in one",
                };
                format!("Speed up `{at}`: another layout or type, larger batches{library}")
            }
        },
    )
}

/// Whether an operation is none that multiplies matrices, by its name.
fn is_no_product(at: &str) -> bool {
    let name = at.rsplit('/').next().unwrap_or_default().to_ascii_lowercase();
    ["softmax", "norm", "rotary", "rope", "silu", "gelu", "embed", "sample"].iter().any(|word| name.contains(word))
}

fn wave_tail(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!("{kernel} in `{at}` fills {} of its {} waves", percent(it.of("filled")), significant(it.of("waves"))),
        format!(
            "Choose another tile or split for {kernel} in `{at}`, or another batch, so that its blocks fill whole waves"
        ),
    )
}

fn clocks_low(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "the device ran at {} while steps were open, and reaches {}",
            shown(it.of("clock_hertz"), "hertz"),
            shown(it.of("highest_hertz"), "hertz")
        ),
        format!(
            "Cool the device, raise its power limit, or lock its clocks: `{phase}` computes for {} a step",
            it.time("compute_bound_ns")
        ),
    )
}

fn allocator(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        "memory is allocated on the critical path".to_string(),
        format!("Reuse tensors in `{phase}`, or raise the pool's release threshold"),
    )
}

fn padding(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "{} of the tokens that `{phase}` computes are padding, or of sequences that have ended",
            percent(it.of("padded"))
        ),
        format!(
            "Batch sequences of similar lengths in `{phase}`, and let a new sequence take the place of one that has \
            ended"
        ),
    )
}

fn host_sampling(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!("`{at}` works {} a step on the host, waiting left out", it.time("work_ns")),
        format!("Choose the token on the device in `{at}` (argmax, top-k), and fetch only its number"),
    )
}

fn between_steps(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!("requests spend {} for each step `{phase}` while no step is open", it.time("each_step_ns")),
        "Tokenise, detokenise and print on another thread, or less often".to_string(),
    )
}

fn straggler_layer(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!("`{at}` takes {}, its siblings {}", it.time("mean_ns"), it.time("siblings_ns")),
        format!("Look at what `{at}` does beside its siblings: another shape, type or device, or a copy"),
    )
}

fn straggler_step(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let late = it.of("late_steps");
    (
        format!(
            "{} `{phase}` {} {}{}, where the median is {}: a stall of single steps, not what an operation takes",
            if late == 1.0 { "one of the steps".to_string() } else { format!("{} of the steps", count(late as u64)) },
            if late == 1.0 { "takes" } else { "take" },
            it.time("late_mean_ns"),
            if late == 1.0 { "" } else { " on average" },
            it.time("median_ns")
        ),
        format!(
            "Record `{phase}` again while nothing else runs on the machine; if steps still stall, look at the longest on a \
             timeline (`candlescope export perfetto`): growth of a cache, allocation, paging"
        ),
    )
}

fn upcast(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step convert types ({kernel}), {}, most of it in `{at}`",
            significant(it.of("kernels")),
            it.time("device_ns")
        ),
        format!(
            "Keep one type through `{at}`: normalise and attend in the type of the weights, with sums in f32 inside \
            the \
            kernels"
        ),
    )
}

fn data_movement(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step only move data ({kernel}), {}, most of it in `{at}`",
            significant(it.of("kernels")),
            it.time("device_ns")
        ),
        format!(
            "Leave out `contiguous`, `cat` and `repeat` in `{at}`: use layouts that the next kernel reads as they are"
        ),
    )
}

fn dequantise(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "{} kernels a step expand quantised weights ({kernel}), {}, most of it in `{at}`",
            significant(it.of("kernels")),
            it.time("device_ns")
        ),
        format!(
            "Multiply quantised weights directly in `{at}`, or expand them once where memory allows (`--dequantize`)"
        ),
    )
}

fn warmup_unsettled(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let first = it.of("unsettled_steps");
    (
        format!(
            "{}, half of the later ones at most {}",
            if first == 1.0 {
                format!("the first step `{phase}` takes {}", it.time("first_ns"))
            } else {
                format!("the first {} steps `{phase}` take {} on average", count(first as u64), it.time("first_ns"))
            },
            it.time("settled_ns")
        ),
        format!(
            "Warm up longer before measuring `{phase}` (`--warmup`, or the option `warmup` of a program that \
             marks its requests), until its rolling median settles"
        ),
    )
}

fn threads_wait(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let one_row = it.of("one_row");
    let serial = one_row >= 0.25;
    let threads = if it.advice.figure("rayon_num_threads").is_some_and(|n| n > 0.0) {
        "another number in RAYON_NUM_THREADS may do as well"
    } else {
        "see that RAYON_NUM_THREADS is set to the physical cores"
    };
    let (busy, all) = (significant(it.of("busy_processors")), significant(it.of("processors")));
    let others = it.advice.figure("others").map(|n| format!(" (others use {})", significant(n))).unwrap_or_default();
    (
        format!(
            "the process keeps {busy} of {all} processors busy{others} while steps run{}",
            if serial {
                format!(
                    "; {} of a step `{phase}` multiplies one row by weights of f32, which candle's \
                     own products do on one of them",
                    percent(one_row)
                )
            } else {
                String::new()
            }
        ),
        if serial {
            format!(
                "Compute several sequences of `{phase}` at once (batch), or quantise the weights (a GGUF file in Q8_0): such \
                products use all processors; `candlescope bench variants` says what that costs in quality"
            )
        } else {
            format!("Give `{phase}` more to do at once (batch), and leave no serial work between products; {threads}")
        },
    )
}

/// What could not be judged: the findings with the steps that it is about, what is missing, how to record it.
pub(crate) fn abstentions(diagnosis: &Diagnosis) -> Vec<(String, String, String)> {
    let mut all: Vec<(candlescope_figures::advice::Missing, &[String], Vec<&str>)> = Vec::new();
    for abstention in &diagnosis.abstained {
        let same = |known: &&mut (candlescope_figures::advice::Missing, &[String], Vec<&str>)| {
            known.0 == abstention.missing && known.1 == abstention.phases
        };
        match all.iter_mut().find(same) {
            Some((_, _, codes)) => codes.push(abstention.code.as_str()),
            None => all.push((abstention.missing, &abstention.phases, vec![abstention.code.as_str()])),
        }
    }
    // Where all kinds of steps lack it, none is named.
    let everywhere = |phases: &[String]| phases.len() == diagnosis.steps.len();
    let line = |(missing, phases, codes): (candlescope_figures::advice::Missing, &[String], Vec<&str>)| {
        let named: Vec<String> = phases.iter().map(|phase| format!("`{}`", printable(phase))).collect();
        let of = if everywhere(phases) { String::new() } else { format!(" of {}", named.join(", ")) };
        (format!("{}{of}", codes.join(", ")), missing.what().to_string(), missing.record().to_string())
    };
    all.into_iter().map(line).collect()
}

/// How long a step of each kind takes unobserved.
pub(crate) fn steps(diagnosis: &Diagnosis) -> Vec<String> {
    let one = |step: &candlescope_figures::advice::UnobservedStep| {
        let bound = step.bound_ns.map_or(String::new(), |ns| format!(" ±{}", duration(ns)));
        let device = step.device_ns.map_or(String::new(), |ns| format!(", {} of it work on the device", duration(ns)));
        format!(
            "a step `{}` takes {}{bound} unobserved ({} observed, n {}){device}; {} of the steps' time",
            printable(&step.phase),
            duration(step.unobserved_ns),
            duration(step.observed_ns),
            count(step.n),
            percent(step.share_of_time)
        )
    };
    diagnosis.steps.iter().map(one).collect()
}

/// What findings gain together.
pub(crate) fn together(diagnosis: &Diagnosis) -> Vec<String> {
    let one = |together: &candlescope_figures::advice::Together| {
        let codes: Vec<&str> = together.codes.iter().map(|code| code.as_str()).collect();
        format!(
            "all of {} together: {} of a step `{}`",
            codes.join(", "),
            gain(together.gain),
            printable(&together.phase)
        )
    };
    diagnosis.together.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_library_of_products_is_advised_for_what_is_none() {
        assert!(is_no_product("block/self_attn/softmax") && is_no_product("model/norm"));
        assert!(!is_no_product("block/mlp/up_proj"));
    }
}
