use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!(
            "`{at}` and others read {} of weights a step at {} of the memory's rate",
            it.bytes("weight_bytes"),
            it.share("of_bandwidth")
        ),
        format!(
            "Store the weights of `{at}` and its like in {} bits instead of {}, or serve more sequences at once",
            it.number("to_bits"),
            it.number("bits")
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        format!(
            "Store the model's weights in fewer bits ({} instead of {}), or serve more \
                 requests at once",
            it.number("to_bits"),
            it.number("bits")
        ),
        format!(
            "{step} reads them at {} of the memory's rate, so only fewer bytes make it \
                 faster",
            it.share("of_bandwidth")
        ),
    )
}
