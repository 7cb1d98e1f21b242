use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "{} threads launch at once and wait for one another: a launching call of `{phase}` takes {} beside others and {} \
             alone, {} more of a step",
            it.number("threads"),
            it.time("call_ns"),
            it.time("alone_ns"),
            it.time("more_ns")
        ),
        format!(
            "Let one thread launch for all, best as one batch of their sequences (`{phase}` then launches once for all of them); \
             a process for each thread has no lock in common; a CUDA graph launches once a step"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Serve several requests together as one batch, instead of each on a thread of its own".to_string(),
        format!("threads of {step} wait for one another for {}", it.time("more_ns")),
    )
}
