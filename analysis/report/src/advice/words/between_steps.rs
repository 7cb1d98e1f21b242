use crate::advice::sentence::Sentence;

/// A mean of so many medians is made by single gaps.
const FAR: f64 = 2.0;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    // Single gaps may be far longer: others had the processor, or the program did what it does now and then.
    let mean = if it.value("mean_ns") >= FAR * it.value("each_step_ns") {
        format!(" ({} on average: single gaps are far longer)", it.time("mean_ns"))
    } else {
        String::new()
    };
    (
        format!(
            "requests usually spend {} for each step `{phase}` while no step is open{mean}",
            it.time("each_step_ns")
        ),
        "Tokenise, detokenise and print on another thread, or less often".to_string(),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    (
        "Do the work between tokens, such as turning them into text, on another thread".to_string(),
        format!("requests spend {} with it for each token", it.time("each_step_ns")),
    )
}
