use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "{} of the tokens that `{phase}` passes are beginnings that a prompt before had, too, and are computed again",
            it.share("shared")
        ),
        "Keep keys and values of a prompt's beginning for the prompts that share it (prompt-prefix reuse): `--concurrency N \
         --prefix-reuse`, or `least_shared` of `slots::BatcherOptions`"
            .to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Read the part that requests have in common once, and not for each of them".to_string(),
        format!("{} of what is read of requests was read before", it.share("shared")),
    )
}
