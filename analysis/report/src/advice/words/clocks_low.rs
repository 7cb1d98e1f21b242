use crate::advice::sentence::{Sentence, shown};

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "the device ran at {} while steps were open, and reaches {}",
            shown(it.value("clock_hertz"), "hertz"),
            shown(it.value("highest_hertz"), "hertz")
        ),
        format!(
            "Cool the device, raise its power limit, or lock its clocks: `{phase}` computes for {} a step",
            it.time("compute_bound_ns")
        ),
    )
}

pub(super) fn plain(_: &Sentence<'_>) -> (String, String) {
    ("Cool the GPU, or allow it more power".to_string(), "it runs at a lower clock than it could".to_string())
}
