use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!("`{at}` works {} a step on the host, waiting left out", it.time("work_ns")),
        format!("Choose the token on the device in `{at}` (argmax, top-k), and fetch only its number"),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Choose the next token where the model runs".to_string(),
        format!("choosing it takes {} on the processor", it.time("work_ns")),
    )
}
