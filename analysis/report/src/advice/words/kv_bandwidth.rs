use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!(
            "reading the KV cache in `{at}` and beside it reaches {} of the memory's rate, {} a step",
            it.share("of_bandwidth"),
            it.time("time_ns")
        ),
        format!(
            "Use one attention kernel in `{at}` that reads the cache once (flash-decoding), without expanding heads or \
            types"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Read the cache of the conversation in one pass (flash decoding)".to_string(),
        format!("it is read at {} of the memory's rate", it.share("of_bandwidth")),
    )
}
