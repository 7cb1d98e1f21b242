use crate::advice::sentence::Sentence;
use crate::format::{count, duration, plural};
use candlescope_figures::advice::LeftShape;

/// Why steps ran call by call, as the figure's name says it; and what mends it.
const CAUSES: [(&str, &str, &str); 6] = [
    (
        "capture_failed",
        "the capture of their shape failed",
        "see on standard error why: a call that synchronises, allocates or reads back cannot be captured",
    ),
    (
        "warm_up",
        "they were the first of their shape",
        "pass a prompt of each size before requests come, and ask for fewer of them: fewer slots (`--max-num-seqs`), a \
         shorter context (`--max-model-len`)",
    ),
    ("quantized", "weights are quantised", "widen the weights as they load (`--dequantize`)"),
    (
        "stream",
        "the device's stream cannot be captured",
        "make the device with `slots::capturable_device`: a stream of its own, without events that track tensors",
    ),
    (
        "no_device",
        "the model is on no CUDA device, or the build has no CUDA",
        "use a CUDA device, and a build with the feature `cuda`",
    ),
    (
        "model",
        "the model does not say that its steps always use the same memory",
        "decode one of the models whose layers are our own (`--engine instrumented`): only they say so",
    ),
];

/// Shapes that a sentence names.
const SHAPES: usize = 4;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let causes = CAUSES.iter().filter(|(name, ..)| it.advice.figure(name).is_some());
    let because = |(name, why, _): &(&str, &str, &str)| format!("{} because {why}", count(it.value(name) as u64));
    let why: Vec<String> = causes.clone().map(because).collect();
    let remedies: Vec<&str> = causes.map(|(.., remedy)| *remedy).collect();
    let steps = count(it.value("eager_steps") as u64);
    let took = it.time("eager_mean_ns");
    let left = match it.advice.figure("replay_ns") {
        Some(replay) => format!(
            "{steps} of the steps of `{phase}` left their CUDA graph and took {took} on average, where a replay takes {}",
            duration(replay)
        ),
        None => format!(
            "CUDA graphs were asked for, and none of {steps} steps of `{phase}` is one: they took {took} on average"
        ),
    };
    (format!("{left}: {}{}{}", why.join(", "), cost(it), shapes(it)), format!("For `{phase}`, {}", remedies.join("; ")))
}

/// What the steps cost, and for how many tokens.
fn cost(it: &Sentence<'_>) -> String {
    let tokens = it.advice.figure("eager_tokens").map(|tokens| plural(tokens as u64, "token"));
    let cost = it.advice.figure("excess_ns").map(duration);
    match (cost, tokens) {
        (Some(cost), Some(tokens)) => format!("; {cost} more in all, for {tokens}"),
        (Some(cost), None) => format!("; {cost} more in all"),
        (None, Some(tokens)) => format!("; {tokens}"),
        (None, None) => String::new(),
    }
}

/// The graphs by their shapes, which replays state in their interval `cuda_graph`.
fn shapes(it: &Sentence<'_>) -> String {
    let all = &it.advice.place.shapes;
    let one = |shape: &LeftShape| {
        let cost = match shape.excess_ns {
            Some(excess) => format!("{} more", duration(excess as f64)),
            None => duration(shape.took_ns as f64),
        };
        format!("{} ({}, {cost})", shape.shape, plural(shape.steps, "step"))
    };
    let named: Vec<String> = all.iter().take(SHAPES).map(one).collect();
    let more = all.len().saturating_sub(SHAPES);
    let others = if more > 0 { format!(" and {}", plural(more as u64, "other shape")) } else { String::new() };
    if named.is_empty() {
        return String::new();
    }
    format!(". Shapes, slots × context: {}{others}", named.join(", "))
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    let steps = count(it.value("eager_steps") as u64);
    let took = it.time("eager_mean_ns");
    let slow = match it.advice.figure("replay_ns") {
        Some(replay) => {
            format!("{steps} cases of {step} took the slow path: {took} on average instead of {}", duration(replay))
        }
        None => format!("The fast path was asked for, and none of {steps} cases of {step} took it: {took} on average"),
    };
    ("Have the program prepare its fast path for every size that it meets".to_string(), slow)
}
