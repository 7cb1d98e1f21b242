use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, .. } = it;
    (
        format!("`{at}` works {} a step on the host, waiting left out", it.time("work_ns")),
        if has_device(it) {
            format!("Choose the token on the device in `{at}` (argmax, top-k), and fetch only its number")
        } else {
            format!(
                "Choose the token with less work in `{at}`: greedily, or among fewer candidates, in memory that is kept"
            )
        },
    )
}

/// Whether the model runs on a device that this waits for.
fn has_device(it: &Sentence<'_>) -> bool {
    it.advice.figure("waiting_ns") != Some(0.0)
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        match has_device(it) {
            true => "Choose the next token where the model runs",
            false => "Choose the next token with less work",
        }
        .to_string(),
        format!("choosing it takes {} on the processor", it.time("work_ns")),
    )
}
