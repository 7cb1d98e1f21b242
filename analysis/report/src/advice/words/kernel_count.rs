use crate::advice::sentence::Sentence;

pub(super) fn words(it: &Sentence<'_>) -> (String, String) {
    let Sentence { phase, .. } = it;
    (
        format!(
            "a step `{phase}` launches {} kernels of {} on average, {} of them right after a neighbour that they \
         could be one kernel with",
            it.number("kernels"),
            it.time("kernel_mean_ns"),
            it.number("could_join")
        ),
        format!(
            "Fuse neighbouring element-wise kernels of `{phase}` (each launch costs the host {}), or batch more \
            sequences",
            it.time("launch_ns")
        ),
    )
}

pub(super) fn plain(it: &Sentence<'_>) -> (String, String) {
    let Sentence { step, .. } = it;
    (
        "Join small programs on the GPU (kernels), or serve more requests at once".to_string(),
        format!("{step} starts {} of them, of {} each", it.number("kernels"), it.time("kernel_mean_ns")),
    )
}
