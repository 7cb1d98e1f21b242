use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!("requests spend {} for each step `{phase}` while no step is open", it.time("each_step_ns")),
        "Tokenise, detokenise and print on another thread, or less often".to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Do the work between tokens, such as turning them into text, on another thread".to_string(),
        format!("requests spend {} with it for each token", it.time("each_step_ns")),
    )
}
