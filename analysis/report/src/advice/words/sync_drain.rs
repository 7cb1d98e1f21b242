use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { at, kernel, .. } = it;
    (
        format!(
            "after waiting for the device in `{at}` ({kernel}), the device is idle for {} a step until the next launch",
            it.time("idle_ns")
        ),
        format!(
            "Launch what comes next before waiting in `{at}`: keep the {kernel} result on the device, or read it one \
            step later"
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { part, .. } = it;
    (
        format!("Give the GPU its next work before waiting for the last, in {part}"),
        format!("it is idle for {} each time", it.time("idle_ns")),
    )
}
