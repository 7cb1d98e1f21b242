use crate::advice::sentence::Sentence;
use crate::format::{percent, significant};

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, at, .. } = it;
    let (share, threads) = (it.share("share"), significant(it.value("threads")));
    let work = it.function().unwrap_or_else(|| at.clone());
    let more = it.value("paths") - 1.0;
    let others = if more > 0.0 { format!(" and in {} more", significant(more)) } else { String::new() };
    let one_row = it.value("one_row");
    let remedy = if one_row >= 0.5 * it.value("share") {
        format!(
            "Compute several sequences of `{phase}` at once (batch), or quantise the weights (a GGUF file in Q8_0): candle's \
             products of one row by weights of f32 ({} of a step) run on one thread, those use all; `candlescope bench \
             variants` says what that costs in quality",
            percent(one_row)
        )
    } else {
        format!(
            "Divide the work of `{work}` among the pool's threads (rayon's `par_chunks`), use an operation of candle's \
             that does (`candle_nn::ops::softmax_last_dim`, `rms_norm`, `rope`), or give it several sequences at once"
        )
    };
    (
        format!(
            "{share} of a step `{phase}` is computed by one of {threads} threads while the others wait, {}{others}",
            it.most_of_it()
        ),
        remedy,
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Let all processors share the work: serve several requests together, or store the weights in fewer bits"
            .to_string(),
        format!("one processor works alone for {} of {step}", it.share("share")),
    )
}
