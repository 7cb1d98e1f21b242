use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "{} of the tokens that `{phase}` computes are padding, or of sequences that have ended",
            it.share("padded")
        ),
        format!(
            "Batch sequences of similar lengths in `{phase}`, and let a new sequence take the place of one that has \
            ended"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Batch requests of similar lengths, and let new ones take the place of those that have ended".to_string(),
        format!("{} of what is computed is of no use", it.share("padded")),
    )
}
