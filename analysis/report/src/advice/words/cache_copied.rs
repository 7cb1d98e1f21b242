use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
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

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Let the cache of the conversation grow without being copied".to_string(),
        format!("{step} takes {} longer for each token before it", it.time("slope_ns")),
    )
}
