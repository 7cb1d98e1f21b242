use crate::advice::sentence::Sentence;
use crate::format::{percent, significant};

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    let one_row = it.value("one_row");
    let serial = one_row >= 0.25;
    let threads = if it.advice.figure("rayon_num_threads").is_some_and(|n| n > 0.0) {
        "another number in RAYON_NUM_THREADS may do as well"
    } else {
        "see that RAYON_NUM_THREADS is set to the physical cores"
    };
    let (busy, all) = (it.number("busy_processors"), it.number("processors"));
    let others = it.advice.figure("others").map(|n| format!(" (others use {})", significant(n))).unwrap_or_default();
    (
        format!(
            "the process keeps {busy} of {all} processors busy{others} while steps run{}",
            if serial {
                format!(
                    "; {} of a step `{phase}` multiplies one row by weights of f32, which candle's \
                     own products do on one of them",
                    percent(one_row)
                )
            } else {
                String::new()
            }
        ),
        if serial {
            format!(
                "Compute several sequences of `{phase}` at once (batch), or quantise the weights (a GGUF file in Q8_0): such \
                products use all processors; `candlescope bench variants` says what that costs in quality"
            )
        } else {
            format!("Give `{phase}` more to do at once (batch), and leave no serial work between products; {threads}")
        },
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Give the processors more to do at once: serve several requests together, or store the \
             weights in fewer bits"
            .to_string(),
        format!("{} of {} are busy", it.number("busy_processors"), it.number("processors")),
    )
}
