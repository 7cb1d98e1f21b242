use crate::advice::sentence::Sentence;
use crate::format::count;

/// Why steps ran call by call, as the figure's name says it; and what mends it.
const CAUSES: [(&str, &str, &str); 2] = [
    (
        "capture_failed",
        "the capture of their shape failed",
        "see on standard error why: a call that synchronises, allocates or reads back cannot be captured",
    ),
    (
        "warm_up",
        "they were the first of their size or context",
        "pass a prompt of each size before requests come, and ask for fewer of them: fewer slots (`--max-num-seqs`), a \
         shorter context (`--max-model-len`)",
    ),
];

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let causes = CAUSES.iter().filter(|(name, ..)| it.advice.figure(name).is_some());
    let because = |(name, why, _): &(&str, &str, &str)| format!("{} because {why}", count(it.value(name) as u64));
    let why: Vec<String> = causes.clone().map(because).collect();
    let remedies: Vec<&str> = causes.map(|(.., remedy)| *remedy).collect();
    (
        format!(
            "{} of the steps of `{phase}` left their CUDA graph and took {} on average, where a replay takes {}: {}",
            count(it.value("eager_steps") as u64),
            it.time("eager_mean_ns"),
            it.time("replay_ns"),
            why.join(", ")
        ),
        format!("For `{phase}`, {}", remedies.join("; ")),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Have the program prepare its fast path for every size that it meets".to_string(),
        format!(
            "{} cases of {step} took the slow path: {} on average instead of {}",
            count(it.value("eager_steps") as u64),
            it.time("eager_mean_ns"),
            it.time("replay_ns")
        ),
    )
}
