use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!("a step `{phase}` processes {} tokens for each one that it writes: the whole text again", it.number("rows")),
        "Keep keys and values of earlier tokens (a KV cache) and process new tokens only: candle's models have a cache that is on by \
         default, or `use_kv_cache`"
            .to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Remember what was read already in place of reading the whole text again for each word".to_string(),
        format!("{step} reads {} tokens again for one new one", it.number("rows")),
    )
}
